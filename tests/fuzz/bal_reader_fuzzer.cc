// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Whatever the bytes, the reader returns a problem that keeps its promises or
// one printable line, and the same in blocks of any size.

#include <cstddef>
#include <cstdint>
#include <string>

#include "problem_io/bal_problem.h"
#include "tests/fuzz/bal_fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ceres_ext::bal;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  BalProblem problem;
  std::string error;
  const bool is_read = ReadInput(bytes, 1 << 12, &problem, &error);
  // A size of the input's own choice.
  const size_t block_size = size == 0 ? 1 : 1 + data[size / 2] % 64;
  BalProblem other;
  std::string other_error;
  Require(ReadInput(bytes, block_size, &other, &other_error) == is_read);
  Require(other_error == error);
  Require(other.camera_index == problem.camera_index);
  Require(other.point_index == problem.point_index);
  Require(other.observations == problem.observations);
  Require(other.cameras == problem.cameras);
  Require(other.points == problem.points);
  return 0;
}
