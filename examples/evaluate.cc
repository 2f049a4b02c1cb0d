// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Cost and residuals without solving: finds the mistakes among the observations
// by the residuals that a robust solve leaves.
//   build/release/examples/evaluate

#include <cmath>
#include <iostream>
#include <string>
#include <vector>

#include "ceres/loss_function.h"
#include "ceres/solver.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/options.h"
#include "ceres_ext/solve.h"
#include "ceres_ext/summary.h"
#include "examples/scene.h"

int main() {
  examples::Scene scene = examples::MakeScene();
  constexpr int kEvery = 100;
  for (int i = 0; i < scene.num_observations(); i += kEvery) {
    scene.observations[2 * i] += 50.0;
  }

  ceres::CauchyLoss loss(2.0 * scene.noise);
  ceres_ext::ArrayProblem problem;
  const int cameras =
      problem.AddParameters({scene.cameras.data(), scene.num_cameras(), 9});
  const int points =
      problem.AddParameters({scene.points.data(), scene.num_points(), 3});
  problem.AddResiduals<ceres_ext::BalReprojectionError>(
      scene.num_observations(),
      scene.observations.data(),
      {{cameras, scene.camera_index.data()},
       {points, scene.point_index.data()}},
      &loss);
  ceres::Solver::Options options;
  options.linear_solver_type = ceres::ITERATIVE_SCHUR;
  options.preconditioner_type = ceres::SCHUR_JACOBI;
  ceres_ext::Summary summary;
  ceres_ext::Solve(options, ceres_ext::Options(), &problem, &summary);

  ceres_ext::EvaluateOptions evaluate_options;
  evaluate_options.apply_loss_function = false;
  double cost = 0.0;
  std::vector<double> residuals;
  std::string error;
  if (!ceres_ext::Evaluate(evaluate_options,
                           ceres_ext::Options(),
                           problem,
                           &cost,
                           &residuals,
                           /*gradient=*/nullptr,
                           &error)) {
    std::cerr << error << "\n";
    return 1;
  }
  int num_found = 0;
  int num_right = 0;
  for (int i = 0; i < scene.num_observations(); ++i) {
    if (std::hypot(residuals[2 * i], residuals[2 * i + 1]) >
        10.0 * scene.noise) {
      ++num_found;
      num_right += i % kEvery == 0 ? 1 : 0;
    }
  }
  std::cout << "sum of squares / 2: " << cost << ", with the loss "
            << summary.final_cost << "\n"
            << "mistakes made: " << (scene.num_observations() - 1) / kEvery + 1
            << ", found: " << num_found << ", of which right: " << num_right
            << std::endl;
  return summary.IsSolutionUsable() ? 0 : 1;
}
