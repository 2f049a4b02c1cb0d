// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A user's program: three cameras on a line see eight points without noise; the
// points start a few per cent off. Returns 0 if the solve ends near zero cost,
// on this library's path.

#include <array>
#include <iostream>
#include <vector>

#include "ceres/ceres.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/solve.h"

int main() {
  // Rotation vector, translation, f, k1, k2.
  std::vector<std::array<double, 9>> cameras;
  for (int i = 0; i < 3; ++i) {
    cameras.push_back(
        {0.0, 0.05 * (i - 1), 0.0, 1.0 - i, 0.0, -8.0, 500.0, 0.0, 0.0});
  }
  std::vector<std::array<double, 3>> points;
  for (int j = 0; j < 8; ++j) {
    points.push_back(
        {j & 1 ? 1.0 : -1.0, j & 2 ? 1.0 : -1.0, j & 4 ? 1.0 : -1.0});
  }

  ceres::Problem problem;
  for (auto& camera : cameras) {
    for (auto& point : points) {
      // The residual of the observation (0, 0) is the projection.
      const ceres_ext::BalReprojectionError projection(0.0, 0.0);
      const double* parameters[] = {camera.data(), point.data()};
      double projected[2];
      if (!projection.Evaluate(parameters, projected, nullptr)) {
        std::cerr << "A point of the test is not in front of its camera.\n";
        return 1;
      }
      problem.AddResidualBlock(
          ceres_ext::CreateBalReprojectionError(projected[0], projected[1]),
          nullptr,
          camera.data(),
          point.data());
    }
    problem.SetParameterBlockConstant(camera.data());
  }
  // Two cameras stay fixed, which fixes the frame and the scale.
  problem.SetParameterBlockVariable(cameras[2].data());
  for (auto& point : points) {
    for (double& coordinate : point) {
      coordinate *= 1.05;
    }
  }

  ceres::Solver::Options options;
  options.linear_solver_type = ceres::ITERATIVE_SCHUR;
  options.preconditioner_type = ceres::SCHUR_JACOBI;
  options.max_num_iterations = 50;
  ceres_ext::Summary summary;
  ceres_ext::Solve(options, ceres_ext::Options(), &problem, &summary);
  std::cout << summary.FullReport() << "\n";

  if (!summary.IsSolutionUsable() || summary.initial_cost < 1.0 ||
      summary.final_cost > 1e-6 * summary.initial_cost) {
    std::cerr << "Expected the cost to fall to less than a millionth.\n";
    return 1;
  }
  if (summary.path != ceres_ext::PATH_FULL) {
    std::cerr << "Expected this library's path, found "
              << ceres_ext::SolvePathToString(summary.path) << ": "
              << summary.path_reason << "\n";
    return 1;
  }
  return 0;
}
