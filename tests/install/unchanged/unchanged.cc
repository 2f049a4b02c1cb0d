// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A program that uses Ceres alone. Prints the message of a solve; its exit
// status is the number of its arguments.

#include <iostream>

#include "ceres/ceres.h"

struct Difference {
  template <typename T>
  bool operator()(const T* x, const T* y, T* residual) const {
    residual[0] = x[0] - y[0] - 1.0;
    residual[1] = x[0] + 2.0 * y[1];
    return true;
  }
};

int main(int argc, char** /*argv*/) {
  double x[3] = {1.0, 2.0, 3.0};
  double y[2] = {4.0, 5.0};
  ceres::Problem problem;
  for (double& value : x) {
    problem.AddResidualBlock(
        new ceres::AutoDiffCostFunction<Difference, 2, 1, 2>(new Difference),
        nullptr,
        &value,
        y);
  }
  ceres::Solver::Options options;
  options.linear_solver_type = ceres::ITERATIVE_SCHUR;
  options.preconditioner_type = ceres::SCHUR_JACOBI;
  options.logging_type = ceres::SILENT;
  ceres::Solver::Summary summary;
  ceres::Solve(options, &problem, &summary);
  std::cout << summary.message << "\n";
  return argc - 1;
}
