// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Problems that every machine of the study solves within a test.
#ifndef CERES_EXT_TESTS_STUDY_SMALL_PROBLEM_H_
#define CERES_EXT_TESTS_STUDY_SMALL_PROBLEM_H_

#include <cstdint>
#include <string>

#include "examples/bal/bal_problem.h"
#include "examples/bal/bal_synthetic.h"
#include "gtest/gtest.h"

namespace ceres_ext::bal {

inline BalProblem MakeSmallProblem(int32_t num_cameras,
                                   int32_t num_points,
                                   int64_t num_observations) {
  SyntheticOptions options;
  options.num_cameras = num_cameras;
  options.num_points = num_points;
  options.num_observations = num_observations;
  options.num_threads = 1;
  SyntheticProblem synthetic;
  std::string error;
  EXPECT_TRUE(GenerateSynthetic(options, &synthetic, &error)) << error;
  return synthetic.start;
}

}  // namespace ceres_ext::bal

#endif  // CERES_EXT_TESTS_STUDY_SMALL_PROBLEM_H_
