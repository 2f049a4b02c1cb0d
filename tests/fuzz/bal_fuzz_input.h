// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The common part of the fuzzers of problem_io.

#ifndef TESTS_FUZZ_BAL_FUZZ_INPUT_H_
#define TESTS_FUZZ_BAL_FUZZ_INPUT_H_

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "problem_io/bal_problem.h"
#include "problem_io/bal_reader.h"

namespace ceres_ext::bal {

inline void Require(bool condition) {
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

// A problem that keeps its promises, or one printable line.
inline void RequireProblemOrLine(bool is_read,
                                 const BalProblem& problem,
                                 const std::string& error) {
  if (!is_read) {
    Require(error.rfind("input:", 0) == 0);
    Require(error.find(": expected ") != std::string::npos);
    Require(error.find(", found ") != std::string::npos);
    for (const char c : error) {
      Require(c >= ' ' && c <= '~');
    }
    Require(problem.num_observations() == 0);
    return;
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
}

// Reads the bytes in blocks of this size on one thread.
inline bool ReadInput(const std::string& bytes,
                      size_t block_size,
                      BalProblem* problem,
                      std::string* error) {
  const bool is_read = ReadBalMemory(
      "input", bytes.data(), bytes.size(), problem, error, {1, block_size});
  RequireProblemOrLine(is_read, *problem, *error);
  return is_read;
}

}  // namespace ceres_ext::bal

#endif  // TESTS_FUZZ_BAL_FUZZ_INPUT_H_
