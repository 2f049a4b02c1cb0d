// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Whatever the bytes of a gzip or bzip2 file: read at once, in pieces, or
// decompressed by two threads, they come to the same bytes and the same error.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "problem_io/byte_stream.h"

namespace ceres_ext::bal {
namespace {

// The memory for text that may be 45 MB for each of its bytes.
constexpr size_t kMostBytes = 1 << 16;

void Require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

// The bytes, and behind them the error where there is one.
std::string ReadInPieces(const std::string& file,
                         int num_threads,
                         size_t piece) {
  const std::unique_ptr<ByteStream> stream =
      Decompress(OpenMemory(file.data(), file.size()), num_threads);
  std::string bytes;
  while (bytes.size() < kMostBytes) {
    const size_t size = bytes.size();
    const size_t wanted = std::min(piece, kMostBytes - size);
    bytes.resize(size + wanted);
    const size_t num_read = stream->Read(&bytes[size], wanted);
    Require(num_read <= wanted);
    bytes.resize(size + num_read);
    if (num_read < wanted) {
      for (const char c : stream->error()) {
        Require(c >= ' ' && c <= '~');
      }
      return bytes + '\0' + stream->error();
    }
  }
  return bytes;
}

}  // namespace
}  // namespace ceres_ext::bal

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ceres_ext::bal;
  if (size < 4) {
    return 0;
  }
  std::string file(reinterpret_cast<const char*>(data), size);
  // The smallest blocks of bzip2, which take the least memory.
  const bool is_bzip2 = file[0] == 'B';
  file.replace(0, is_bzip2 ? 3 : 2, is_bzip2 ? "BZh" : "\x1f\x8b");
  for (size_t i = 0; i + 3 < file.size(); ++i) {
    if (file.compare(i, 3, "BZh") == 0) {
      file[i + 3] = '1';
    }
  }
  const std::string at_once = ReadInPieces(file, 1, kMostBytes);
  Require(ReadInPieces(file, 1, 1 + 16 * data[size / 2]) == at_once);
  if (is_bzip2) {
    Require(ReadInPieces(file, 2, 1 + 64 * data[size / 3]) == at_once);
  }
  return 0;
}
