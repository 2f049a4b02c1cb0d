// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "Eigen/Core"
#include "Eigen/Geometry"
#include "ceres/autodiff_cost_function.h"
#include "ceres/gradient_checker.h"
#include "ceres/loss_function.h"
#include "ceres/manifold.h"
#include "ceres/problem.h"
#include "ceres/solver.h"
#include "ceres_ext/photogrammetry.h"
#include "ceres_ext/solve.h"
#include "examples/colmap/colmap_problem.h"
#include "examples/colmap/model_arrays.h"
#include "examples/colmap/position_priors.h"
#include "examples/colmap/problem_plan.h"
#include "gtest/gtest.h"
#include "tests/colmap/colmap_scene.h"

namespace ceres_ext::colmap {
namespace {

// Derivatives by Ceres's Jets against differences, and the value against Eigen.
TEST(SensorPositionPrior, IsThePlaceOfTheSensor) {
  using Error = WhitenedError<SensorPositionPrior>;
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform(-1.0, 1.0);
  const auto pose = [&] {
    std::vector<double> values(7);
    for (double& value : values) {
      value = uniform(random);
    }
    Eigen::Map<Eigen::Vector4d>(values.data()).normalize();
    return values;
  };
  const auto matrix = [](const std::vector<double>& values) {
    Eigen::Isometry3d transform = Eigen::Isometry3d::Identity();
    transform.linear() = Eigen::Quaterniond(values.data()).toRotationMatrix();
    transform.translation() << values[4], values[5], values[6];
    return transform;
  };
  const std::unique_ptr<ceres::Manifold> manifold =
      MakePoseManifold(/*constant_rotation=*/false, /*component=*/-1);
  const std::vector<const ceres::Manifold*> manifolds(2, manifold.get());
  for (int i = 0; i < 20; ++i) {
    const CostFunctionFor<ceres::AutoDiffCostFunction, Error> cost(
        new Error{{{1.5, -2.0, 0.75}}, {1, 2, 3, 4, 5, 6, 7, 8, 10}});
    const std::vector<double> sensor = pose();
    const std::vector<double> rig = pose();
    const double* const blocks[] = {sensor.data(), rig.data()};
    ceres::GradientChecker checker(
        &cost, &manifolds, ceres::NumericDiffOptions());
    ceres::GradientChecker::ProbeResults results;
    EXPECT_TRUE(checker.Probe(blocks, 1e-7, &results)) << results.error_log;
    Eigen::Matrix3d weights;
    weights << 1, 2, 3, 4, 5, 6, 7, 8, 10;
    const Eigen::Vector3d center =
        (matrix(sensor) * matrix(rig)).inverse().translation();
    const Eigen::Vector3d expected =
        weights * (Eigen::Vector3d(1.5, -2.0, 0.75) - center);
    // 100 roundings of numbers up to 30.
    EXPECT_LT((results.residuals - expected).norm(), 100 * 30 * 2.3e-16);
  }
}

// Priors of cameras in rigs whose sensor varies or not, and of an antenna that
// is known or estimated, against the same rows in a ceres::Problem.
TEST(ModelArrays, PositionsOfCamerasAndAntennas) {
  using OfPose = WhitenedError<PositionPrior<EigenQuaternion>>;
  using OfSensor = WhitenedError<SensorPositionPrior>;
  const Model start = MakeRigs("RADIAL");
  const std::vector<double> centers = CameraCenters(start);
  constexpr double kSigma = 0.02;
  for (const bool has_antenna : {false, true}) {
    for (const bool varies : {false, true}) {
      SCOPED_TRACE(has_antenna ? "antenna" : "cameras");
      SCOPED_TRACE(varies ? "varies" : "is constant");
      ProblemOptions options;
      options.fix_gauge = false;
      options.refine_sensor_from_rig = varies || has_antenna;
      PositionPriors positions;
      positions.loss_scale = varies ? 2.0 : 0.0;
      positions.has_antenna = has_antenna;
      positions.antenna_sigma = varies && has_antenna ? 0.5 : 0.0;
      std::mt19937 random(1);
      std::normal_distribution<double> noise(0.0, kSigma);
      for (size_t i = 0; i < start.images.size(); ++i) {
        PositionPriors::Prior& prior = positions.priors.emplace_back();
        prior = {static_cast<int32_t>(i),
                 {},
                 {1 / kSigma, 0, 0, 0, 1 / kSigma, 0, 0, 0, 1 / kSigma}};
        for (size_t k = 0; k < 3; ++k) {
          prior.position[k] = centers[3 * i + k] + noise(random);
        }
      }

      Model stock = start;
      PositionPriors of_stock = positions;
      ceres::Problem problem;
      BuildProblem(options, &stock, &problem);
      double* const sensor = stock.rigs[0].sensors[0].pose;
      double* const antenna = of_stock.antenna_from_rig;
      ceres::LossFunction* const loss =
          varies ? new ceres::CauchyLoss(2.0) : nullptr;
      for (const PositionPriors::Prior& prior : positions.priors) {
        const Image& image = stock.images[prior.image];
        double* const pose = stock.images[prior.image % 8].pose;
        if (!has_antenna && image.sensor < 0) {
          auto* const error = new OfPose{};
          std::copy_n(prior.position, 3, error->position);
          std::copy_n(prior.sqrt_information, 9, error->sqrt_information);
          problem.AddResidualBlock(
              new CostFunctionFor<ceres::AutoDiffCostFunction, OfPose>(error),
              loss,
              pose);
          continue;
        }
        auto* const error = new OfSensor{};
        std::copy_n(prior.position, 3, error->position);
        std::copy_n(prior.sqrt_information, 9, error->sqrt_information);
        problem.AddResidualBlock(
            new CostFunctionFor<ceres::AutoDiffCostFunction, OfSensor>(error),
            loss,
            has_antenna ? antenna : sensor,
            pose);
      }
      if (has_antenna) {
        problem.SetManifold(antenna,
                            new ceres::SubsetManifold(7, {0, 1, 2, 3}));
        auto* const error = new OfPose{{}, {2, 0, 0, 0, 2, 0, 0, 0, 2}};
        problem.AddResidualBlock(
            new CostFunctionFor<ceres::AutoDiffCostFunction, OfPose>(error),
            nullptr,
            antenna);
      }
      if (!varies) {
        problem.SetParameterBlockConstant(has_antenna ? antenna : sensor);
      }
      ceres::Solver::Options solver_options = TightOptions();
      solver_options.linear_solver_type = ceres::SPARSE_SCHUR;
      ceres::Solver::Summary expected;
      ceres::Solve(solver_options, &problem, &expected);
      ASSERT_EQ(expected.termination_type, ceres::CONVERGENCE);

      Model model = start;
      ModelArrays arrays(options, ProblemSelection(), &model, &positions);
      Options ext_options;
      ext_options.device = DEVICE_HOST;
      Summary summary;
      Solve(solver_options, ext_options, arrays.problem(), &summary);
      ASSERT_TRUE(summary.IsSolutionUsable()) << summary.message;
      EXPECT_NEAR(
          summary.final_cost, expected.final_cost, 1e-8 * expected.final_cost);
      arrays.Store();
      for (int k = 0; k < 7; ++k) {
        EXPECT_NEAR(positions.antenna_from_rig[k], antenna[k], 1e-5) << k;
        EXPECT_NEAR(model.rigs[0].sensors[0].pose[k], sensor[k], 1e-5) << k;
      }
      EXPECT_EQ(positions.antenna_from_rig[4] != 0.0, has_antenna && varies);
    }
  }
}

}  // namespace
}  // namespace ceres_ext::colmap
