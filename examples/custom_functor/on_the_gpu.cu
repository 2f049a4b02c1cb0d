// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The same as plain_ceres.cc on a GPU: on_the_gpu PROBLEM.txt.

#include <fstream>
#include <iostream>
#include <vector>

#include "ceres/ceres.h"
#include "ceres/rotation.h"
#include "ceres_ext/device/cost_function.cuh"
#include "ceres_ext/solve.h"

struct SnavelyError {
  // Camera: rotation vector, translation, f, k1, k2.
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* camera,
                                    const T* point,
                                    T* residuals) const {
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

using SnavelyCost =
    ceres_ext::DeviceAutoDiffCostFunction<SnavelyError, 2, 9, 3>;
CERES_EXT_COST_FUNCTION(SnavelyCost, ceres_ext::form::Rows)

int main(int argc, char** argv) {
  std::ifstream file(argc > 1 ? argv[1] : "");
  int num_cameras = 0;
  int num_points = 0;
  int num_observations = 0;
  file >> num_cameras >> num_points >> num_observations;
  std::vector<int> camera(num_observations);
  std::vector<int> point(num_observations);
  std::vector<SnavelyError> errors(num_observations);
  for (int i = 0; i < num_observations; ++i) {
    file >> camera[i] >> point[i] >> errors[i].x >> errors[i].y;
  }
  std::vector<double> cameras(9 * num_cameras);
  std::vector<double> points(3 * num_points);
  for (std::vector<double>* values : {&cameras, &points}) {
    for (double& value : *values) {
      file >> value;
    }
  }
  if (!file) {
    std::cerr << "A BAL problem was expected: " << argv[0] << " PROBLEM.txt\n";
    return 1;
  }

  ceres::Problem problem;
  for (int i = 0; i < num_observations; ++i) {
    problem.AddResidualBlock(new SnavelyCost(new SnavelyError(errors[i])),
                             nullptr,
                             &cameras[9 * camera[i]],
                             &points[3 * point[i]]);
  }
  ceres::Solver::Options options;
  options.linear_solver_type = ceres::ITERATIVE_SCHUR;
  options.preconditioner_type = ceres::SCHUR_JACOBI;
  options.max_num_iterations = 50;
  ceres_ext::Summary summary;
  ceres_ext::Solve(options, ceres_ext::Options(), &problem, &summary);
  std::cout << summary.FullReport() << "\n";
  return summary.IsSolutionUsable() ? 0 : 1;
}
