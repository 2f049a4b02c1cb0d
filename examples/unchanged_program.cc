// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A program that knows Ceres alone. Solved by this library without a change:
//   ceres_ext_run build/release/examples/unchanged_program
// or, linked with the patched Ceres as here, with
// CERES_SOLVER_PLUGIN=ceres_ext.

#include <iostream>

#include "ceres/autodiff_cost_function.h"
#include "ceres/problem.h"
#include "ceres/rotation.h"
#include "ceres/solver.h"
#include "examples/scene.h"

struct ReprojectionError {
  template <typename T>
  bool operator()(const T* camera, const T* point, T* residuals) const {
    T p[3];
    ceres::AngleAxisRotatePoint(camera, point, p);
    const T u = -(p[0] + camera[3]) / (p[2] + camera[5]);
    const T v = -(p[1] + camera[4]) / (p[2] + camera[5]);
    const T r2 = u * u + v * v;
    const T scale = camera[6] * (1.0 + r2 * (camera[7] + camera[8] * r2));
    residuals[0] = scale * u - x;
    residuals[1] = scale * v - y;
    return true;
  }
  double x, y;
};

int main() {
  examples::Scene scene = examples::MakeScene();
  ceres::Problem problem;
  for (int i = 0; i < scene.num_observations(); ++i) {
    problem.AddResidualBlock(
        new ceres::AutoDiffCostFunction<ReprojectionError, 2, 9, 3>(
            new ReprojectionError{scene.observations[2 * i],
                                  scene.observations[2 * i + 1]}),
        nullptr,
        &scene.cameras[9 * scene.camera_index[i]],
        &scene.points[3 * scene.point_index[i]]);
  }
  ceres::Solver::Options options;
  options.linear_solver_type = ceres::ITERATIVE_SCHUR;
  options.preconditioner_type = ceres::SCHUR_JACOBI;
  ceres::Solver::Summary summary;
  ceres::Solve(options, &problem, &summary);
  // With the plugin it ends with what solved the problem.
  std::cout << summary.message << "\n";
  examples::PrintCost(scene,
                      9 * scene.num_cameras() + 3 * scene.num_points() - 7,
                      summary.final_cost);
  return summary.IsSolutionUsable() ? 0 : 1;
}
