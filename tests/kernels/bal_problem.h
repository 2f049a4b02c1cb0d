// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Small random BAL problems for tests.
#ifndef CERES_EXT_TESTS_KERNELS_BAL_PROBLEM_H_
#define CERES_EXT_TESTS_KERNELS_BAL_PROBLEM_H_

#include <cstdint>
#include <vector>

#include "cuda_kernels/ops/evaluate.h"
#include "gtest/gtest.h"
#include "tests/kernels/dense_problem.h"

namespace ceres_ext::kernels {

// Cameras on a shell that look at points around the origin, with C parameters
// and C tangent columns each; a DenseProblem holds what is evaluated.
template <typename T, int C>
class BalProblem {
 public:
  BalProblem(const Structure& structure, unsigned seed)
      : problem(structure, seed) {
    const int64_t num_cameras = problem.num_cameras();
    const int64_t num_points = problem.num_points();
    const int64_t n = problem.num_observations();
    for (int64_t c = 0; c < num_cameras; ++c) {
      VectorXd rotation = 0.3 * problem.RandomVector(3);
      const double t[] = {0.1 * problem.Normal(),
                          0.1 * problem.Normal(),
                          -5.0 + 0.1 * problem.Normal()};
      if (num_parameters() == 10) {
        cameras.push_back(1.0);
      }
      cameras.insert(cameras.end(), rotation.data(), rotation.data() + 3);
      cameras.insert(cameras.end(), t, t + 3);
      cameras.push_back(500 + problem.Normal());
      cameras.push_back(-0.1 + 0.01 * problem.Normal());
      cameras.push_back(0.02 * problem.Normal());
    }
    for (int64_t i = 0; i < 3 * num_points; ++i) {
      points.push_back(problem.Normal());
    }
    for (int64_t i = 0; i < 2 * n; ++i) {
      observations.push_back(50 * problem.Normal());
    }
    states.resize(num_cameras);
    maps.resize(kBalLocalCameraDim * C * num_cameras);
    camera_scale = problem.UniformVector(C * num_cameras).array() + 2.0;
    point_scale = problem.UniformVector(3 * num_points).array() + 2.0;
    tangent = problem.RandomVector(num_parameters() * C * num_cameras);
    residuals.resize(2 * n);
    camera_gradient.resize(C * num_cameras);
    point_gradient.resize(3 * num_points);
  }

  // The camera dimension of the parameters, so that both are tested.
  static constexpr int num_parameters() { return C; }

  PrepareCamerasParams<double, C> PrepareParams() {
    PrepareCamerasParams<double, C> params;
    params.num_cameras = problem.index().num_cameras;
    params.parameters = static_cast<CameraParameters>(num_parameters());
    params.cameras = cameras.data();
    params.tangent = tangent.data();
    params.camera_scale = camera_scale.data();
    params.states = states.data();
    params.maps = maps.data();
    return params;
  }

  EvaluateJacobianParams<T, C, kHostLayout> JacobianParams() {
    EvaluateJacobianParams<T, C, kHostLayout> params;
    params.index = problem.index();
    params.cameras = states.data();
    params.camera_maps = maps.data();
    params.points = points.data();
    params.point_scale = point_scale.data();
    params.observations = observations.data();
    params.residuals = residuals.data();
    params.camera_blocks = {problem.jc.data(), problem.num_observations()};
    params.point_blocks = {problem.jp.data(), problem.num_observations()};
    params.camera_gradient = camera_gradient.data();
    params.point_gradient = point_gradient.data();
    params.evaluation = &evaluation;
    return params;
  }

  void Prepare() {
    ASSERT_TRUE(kernels::Run(PrepareParams(), &problem.machine).ok());
  }

  DenseProblem<T, C> problem;
  std::vector<double> cameras, points, observations;
  VectorXd tangent, camera_scale, point_scale;
  std::vector<CameraState<double>> states;
  std::vector<double> maps;
  VectorXd residuals, camera_gradient, point_gradient;
  Evaluation evaluation;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_TESTS_KERNELS_BAL_PROBLEM_H_
