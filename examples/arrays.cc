// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The same problem as arrays, without an object for each block, solved twice by
// one ArraySolver: the second solve keeps memory, threads and index of the
// first.
//   build/release/examples/arrays

#include <cstdlib>
#include <iostream>

#include "ceres/loss_function.h"
#include "ceres/solver.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/options.h"
#include "ceres_ext/solve.h"
#include "ceres_ext/summary.h"
#include "examples/scene.h"

// The arrays are the scene's own: they are read, and refined, where they are.
ceres_ext::ArrayProblem MakeProblem(examples::Scene* scene,
                                    ceres::LossFunction* loss) {
  ceres_ext::ArrayProblem problem;
  const int cameras =
      problem.AddParameters({scene->cameras.data(), scene->num_cameras(), 9});
  const int points =
      problem.AddParameters({scene->points.data(), scene->num_points(), 3});
  problem.AddResiduals<ceres_ext::BalReprojectionError>(
      scene->num_observations(),
      scene->observations.data(),
      {{cameras, scene->camera_index.data()},
       {points, scene->point_index.data()}},
      loss);
  return problem;
}

int main() {
  examples::Scene scene = examples::MakeScene();
  ceres::Solver::Options options;
  options.linear_solver_type = ceres::ITERATIVE_SCHUR;
  options.preconditioner_type = ceres::SCHUR_JACOBI;
  ceres_ext::ArraySolver solver;

  // A mistake in one observation pulls at all of the scene.
  scene.observations[0] += 500.0;
  ceres_ext::ArrayProblem problem = MakeProblem(&scene, nullptr);
  ceres_ext::Summary summary;
  solver.Solve(options, ceres_ext::Options(), &problem, &summary);
  std::cout << "with a mistake: final cost " << summary.final_cost << "\n";

  // Observations, values, losses and options may change from solve to solve.
  scene.observations[0] -= 500.0;
  ceres::HuberLoss huber(4.0 * scene.noise);
  problem = MakeProblem(&scene, &huber);
  solver.Solve(options, ceres_ext::Options(), &problem, &summary);
  if (!summary.IsSolutionUsable()) {
    std::cerr << summary.message << "\n";
    return EXIT_FAILURE;
  }
  std::cout << "corrected: ";
  examples::PrintCost(scene,
                      9 * scene.num_cameras() + 3 * scene.num_points() - 7,
                      summary.final_cost);
  return EXIT_SUCCESS;
}
