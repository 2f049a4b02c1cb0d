// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// One camera took all images: its focal length and distortion are one parameter
// block, which every residual block shares. Poses have a manifold.
//   build/release/examples/shared_intrinsics

#include <iostream>

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

int main() {
  using Error = ceres_ext::ReprojectionError<ceres_ext::RadialCamera,
                                             ceres_ext::EigenQuaternion>;
  using Cost =
      ceres_ext::CostFunctionFor<ceres_ext::DeviceAutoDiffCostFunction, Error>;
  examples::Scene scene = examples::MakeScene();
  std::vector<double> poses = examples::PosesOf(scene.cameras);
  // f, cx, cy, k1, k2: the principal point is the image's centre, and the focal
  // length is 5 % off.
  double params[] = {950.0, 0.0, 0.0, 0.0, 0.0};

  ceres::Problem problem;
  for (int i = 0; i < scene.num_observations(); ++i) {
    // These cameras look along +z, with y down.
    problem.AddResidualBlock(
        new Cost(new Error{scene.observations[2 * i],
                           -scene.observations[2 * i + 1]}),
        nullptr,
        &scene.points[3 * scene.point_index[i]],
        &poses[7 * scene.camera_index[i]],
        params);
  }
  auto* pose_manifold =
      new ceres::ProductManifold<ceres::EigenQuaternionManifold,
                                 ceres::EuclideanManifold<3>>();
  for (int i = 0; i < scene.num_cameras(); ++i) {
    problem.SetManifold(&poses[7 * i], pose_manifold);
  }
  problem.SetManifold(params, new ceres::SubsetManifold(5, {1, 2}));

  ceres::Solver::Options options;
  options.linear_solver_type = ceres::ITERATIVE_SCHUR;
  options.preconditioner_type = ceres::SCHUR_JACOBI;
  options.max_num_iterations = 100;
  ceres_ext::Summary summary;
  ceres_ext::Solve(options, ceres_ext::Options(), &problem, &summary);
  std::cout << summary.BriefReport() << "\n"
            << "focal length " << params[0] << ", true "
            << scene.true_cameras[6] << "\n";
  examples::PrintCost(scene,
                      6 * scene.num_cameras() + 3 * scene.num_points() + 3 - 7,
                      summary.final_cost);
  return summary.IsSolutionUsable() ? 0 : 1;
}
