// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// GPS positions of the cameras with their covariance, and a control point: they
// say where the scene is, how it is turned and how large it is.
//   build/release/examples/priors_and_gps

#include <cmath>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "ceres/manifold.h"
#include "ceres/problem.h"
#include "ceres/product_manifold.h"
#include "ceres/solver.h"
#include "ceres_ext/camera_models.h"
#include "ceres_ext/device_cost_function.h"
#include "ceres_ext/options.h"
#include "ceres_ext/photogrammetry.h"
#include "ceres_ext/solve.h"
#include "ceres_ext/summary.h"
#include "examples/poses.h"
#include "examples/scene.h"

using ceres_ext::EigenQuaternion;
template <typename Error>
using Cost =
    ceres_ext::CostFunctionFor<ceres_ext::DeviceAutoDiffCostFunction, Error>;

// The root of the mean squared distance between the cameras of two lists.
double PositionError(const std::vector<double>& a,
                     const std::vector<double>& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); i += 7) {
    double center[2][3];
    ceres_ext::ProjectionCenter<EigenQuaternion>(&a[i], &a[i + 4], center[0]);
    ceres_ext::ProjectionCenter<EigenQuaternion>(&b[i], &b[i + 4], center[1]);
    for (int j = 0; j < 3; ++j) {
      sum += std::pow(center[0][j] - center[1][j], 2);
    }
  }
  return std::sqrt(sum / (static_cast<double>(a.size()) / 7.0));
}

int main() {
  using Error = ceres_ext::WeightedError<
      ceres_ext::ReprojectionError<ceres_ext::RadialCamera, EigenQuaternion>>;
  using Gps =
      ceres_ext::WhitenedError<ceres_ext::PositionPrior<EigenQuaternion>>;
  using ControlPoint = ceres_ext::WeightedError<ceres_ext::PointPrior>;
  examples::Scene scene = examples::MakeScene();
  const std::vector<double> truth = examples::PosesOf(scene.true_cameras);
  std::vector<double> poses = examples::PosesOf(scene.cameras);
  double params[] = {1000.0, 0.0, 0.0, -0.05, 0.01};  // f, cx, cy, k1, k2

  ceres::Problem problem;
  auto* pose_manifold =
      new ceres::ProductManifold<ceres::EigenQuaternionManifold,
                                 ceres::EuclideanManifold<3>>();
  for (int i = 0; i < scene.num_observations(); ++i) {
    // In standard deviations, as the others.
    problem.AddResidualBlock(
        new Cost<Error>(new Error{
            {scene.observations[2 * i], -scene.observations[2 * i + 1]},
            1.0 / scene.noise}),
        nullptr,
        &scene.points[3 * scene.point_index[i]],
        &poses[7 * scene.camera_index[i]],
        params);
  }
  problem.SetParameterBlockConstant(params);

  // Twice as uncertain in height as in the plane.
  const double covariance[] = {0.0004, 0, 0, 0, 0.0016, 0, 0, 0, 0.0004};
  std::mt19937 random(2);
  std::normal_distribution<double> normal;
  for (int i = 0; i < scene.num_cameras(); ++i) {
    problem.SetManifold(&poses[7 * i], pose_manifold);
    Gps gps;
    ceres_ext::ProjectionCenter<EigenQuaternion>(
        &truth[7 * i], &truth[7 * i + 4], gps.position);
    for (int j = 0; j < 3; ++j) {
      gps.position[j] += std::sqrt(covariance[4 * j]) * normal(random);
    }
    std::string error;
    if (!ceres_ext::SquareRootInformation<3>(
            covariance, gps.sqrt_information, &error)) {
      std::cerr << error << "\n";
      return 1;
    }
    problem.AddResidualBlock(
        new Cost<Gps>(new Gps(gps)), nullptr, &poses[7 * i]);
  }
  // Point 0, to a millimetre.
  const double* p = scene.true_points.data();
  problem.AddResidualBlock(
      new Cost<ControlPoint>(new ControlPoint{{{p[0], p[1], p[2]}}, 1000.0}),
      nullptr,
      scene.points.data());

  ceres::Solver::Options options;
  options.linear_solver_type = ceres::ITERATIVE_SCHUR;
  options.preconditioner_type = ceres::SCHUR_JACOBI;
  ceres_ext::Summary summary;
  ceres_ext::Solve(options, ceres_ext::Options(), &problem, &summary);
  std::cout << summary.BriefReport() << "\n"
            << "cameras are off by " << PositionError(poses, truth)
            << ", GPS alone by about 0.049\n";
  return summary.IsSolutionUsable() ? 0 : 1;
}
