// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Whatever the bytes, the reader returns a problem that keeps its promises or
// one printable line.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "examples/bal/bal_problem.h"
#include "examples/bal/bal_reader.h"

namespace {

void Require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

template <typename Array>
void RequireFinite(const Array& values) {
  for (const double value : values) {
    Require(std::isfinite(value));
  }
}

template <typename Array>
void RequireIndices(const Array& indices, int32_t count) {
  for (const int32_t index : indices) {
    Require(index >= 0 && index < count);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ceres_ext::bal::BalProblem problem;
  std::string error;
  const bool read = ceres_ext::bal::ReadBalMemory(
      "input", reinterpret_cast<const char*>(data), size, &problem, &error);
  if (!read) {
    Require(error.rfind("input:", 0) == 0);
    Require(error.find(": expected ") != std::string::npos);
    Require(error.find(", found ") != std::string::npos);
    for (const char c : error) {
      Require(c >= ' ' && c <= '~');
    }
    Require(problem.num_observations() == 0);
    return 0;
  }
  Require(error.empty());
  Require(problem.num_cameras() > 0 && problem.num_points() > 0);
  Require(problem.num_observations() > 0);
  Require(problem.point_index.size() == problem.camera_index.size());
  Require(problem.observations.size() == 2 * problem.camera_index.size());
  RequireIndices(problem.camera_index, problem.num_cameras());
  RequireIndices(problem.point_index, problem.num_points());
  RequireFinite(problem.observations);
  RequireFinite(problem.cameras);
  RequireFinite(problem.points);
  return 0;
}
