// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// As bal_reader_fuzzer for .npz files alone. Values of small problems rarely
// have the checksum that their member names, so the input is taken once more
// with the right ones where its directory can be read: behind them come the
// checks of the values.

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "problem_io/bal_problem.h"
#include "problem_io/byte_stream.h"
#include "problem_io/npz_file.h"
#include "tests/fuzz/bal_fuzz_input.h"

namespace {

// Sets the checksums of all members, in directory and local headers.
void SetChecksums(const std::vector<ceres_ext::bal::NpyMember>& members,
                  std::string* bytes) {
  for (const ceres_ext::bal::NpyMember& member : members) {
    const auto crc = static_cast<uint32_t>(
        crc32_z(member.header_crc,
                reinterpret_cast<const Bytef*>(bytes->data() + member.begin),
                member.size));
    for (size_t i = 0; i + 46 + member.name.size() <= bytes->size(); ++i) {
      for (const auto& [magic, offset, name] :
           {std::tuple("PK\1\2", 16, 46), std::tuple("PK\3\4", 14, 30)}) {
        if (bytes->compare(i, 4, magic) == 0 &&
            bytes->compare(i + name, member.name.size(), member.name) == 0) {
          std::memcpy(bytes->data() + i + offset, &crc, sizeof(crc));
        }
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ceres_ext::bal;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  bytes.replace(0, 4, "PK\3\4");
  BalProblem problem;
  std::string error;
  ReadInput(bytes, 64, &problem, &error);
  std::vector<NpyMember> members;
  if (ReadNpzMembers(
          *OpenMemory(bytes.data(), bytes.size()), &members, &error)) {
    SetChecksums(members, &bytes);
    ReadInput(bytes, 64, &problem, &error);
  }
  return 0;
}
