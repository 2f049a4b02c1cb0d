// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Problems of the generator for tests: a scene of so many cameras, points and
// observations, with its truth.

#ifndef TESTS_BAL_SYNTHETIC_SCENE_H_
#define TESTS_BAL_SYNTHETIC_SCENE_H_

#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "problem_io/bal_synthetic.h"

namespace ceres_ext::bal {

inline SyntheticOptions OptionsOfSize(int32_t num_cameras,
                                      int32_t num_points,
                                      int64_t num_observations) {
  SyntheticOptions options;
  options.num_cameras = num_cameras;
  options.num_points = num_points;
  options.num_observations = num_observations;
  return options;
}

inline SyntheticProblem MakeScene(const SyntheticOptions& options) {
  SyntheticProblem scene;
  std::string error;
  EXPECT_TRUE(GenerateSynthetic(options, &scene, &error)) << error;
  return scene;
}

}  // namespace ceres_ext::bal

#endif  // TESTS_BAL_SYNTHETIC_SCENE_H_
