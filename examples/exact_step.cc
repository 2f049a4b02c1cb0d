// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Exact steps in place of PCG: DENSE_SCHUR factorises on a GPU if there is one,
// else stock Ceres does on the host, and the summary says why.
//   build/release/examples/exact_step

#include <iostream>

#include "ceres/problem.h"
#include "ceres/solver.h"
#include "ceres/types.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/options.h"
#include "ceres_ext/solve.h"
#include "ceres_ext/summary.h"
#include "examples/scene.h"

int main() {
  for (const ceres::LinearSolverType type :
       {ceres::ITERATIVE_SCHUR, ceres::DENSE_SCHUR}) {
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
    options.linear_solver_type = type;
    options.preconditioner_type = ceres::SCHUR_JACOBI;
    ceres_ext::Options ext_options;
    // To get an error in place of stock Ceres, where there is no GPU:
    // ext_options.fallback = ceres_ext::FALLBACK_REFUSE;
    ceres_ext::Summary summary;
    ceres_ext::Solve(options, ext_options, &problem, &summary);
    std::cout << ceres::LinearSolverTypeToString(type) << ": "
              << summary.iterations.size() - 1 << " steps, "
              << ceres_ext::SolvePathToString(summary.path) << " ("
              << summary.path_reason << ")\n";
    examples::PrintCost(scene,
                        9 * scene.num_cameras() + 3 * scene.num_points() - 7,
                        summary.final_cost);
    if (!summary.IsSolutionUsable()) {
      std::cerr << summary.message << "\n";
      return 1;
    }
  }
  return 0;
}
