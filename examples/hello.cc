// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A bundle adjustment with a ceres::Problem: ceres_ext::Solve in place of
// ceres::Solve, everything else as with Ceres.
//   build/release/examples/hello

#include <iostream>

#include "ceres/problem.h"
#include "ceres/solver.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/options.h"
#include "ceres_ext/solve.h"
#include "ceres_ext/summary.h"
#include "examples/scene.h"

int main() {
  examples::Scene scene = examples::MakeScene();

  ceres::Problem problem;
  for (int i = 0; i < scene.num_observations(); ++i) {
    problem.AddResidualBlock(
        ceres_ext::CreateBalReprojectionError(scene.observations[2 * i],
                                              scene.observations[2 * i + 1]),
        nullptr,
        &scene.cameras[9 * scene.camera_index[i]],
        &scene.points[3 * scene.point_index[i]]);
  }

  ceres::Solver::Options options;
  options.linear_solver_type = ceres::ITERATIVE_SCHUR;
  options.preconditioner_type = ceres::SCHUR_JACOBI;
  ceres_ext::Summary summary;
  ceres_ext::Solve(options, ceres_ext::Options(), &problem, &summary);

  // The solver that was used, the machine, the steps and the times.
  std::cout << summary.FullReport() << "\n";
  // The position, orientation and scale of the whole scene are free.
  examples::PrintCost(scene,
                      9 * scene.num_cameras() + 3 * scene.num_points() - 7,
                      summary.final_cost);
  return summary.IsSolutionUsable() ? 0 : 1;
}
