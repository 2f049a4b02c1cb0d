// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Scenes some hundred units wide at places as far from zero as maps have them
// (UTM, ECEF in metres, and ten times that): every machine and precision ends
// where stock Ceres does. From 1e7 on that is not a minimum: by its rotation a
// camera of BAL turns about zero, so that its columns hardly differ in double.
//
// And a survey with poses of quaternion and translation, priors of positions
// and control points: relative to an origin (ceres_ext/photogrammetry.h) it
// ends far from zero where it ends near zero.

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "ceres/autodiff_cost_function.h"
#include "ceres/ceres.h"
#include "ceres/manifold.h"
#include "ceres/product_manifold.h"
#include "ceres/rotation.h"
#include "ceres_ext/photogrammetry.h"
#include "ceres_ext/solve.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/has_device.h"

namespace ceres_ext {
namespace {

// For a scene of about 400 units.
BalTestProblem MakeFarProblem(int camera_size, double distance) {
  BalTestProblem bal = MakeBalTestProblem(12, 400, 5, camera_size);
  const double origin[3] = {0.6 * distance, -0.8 * distance, 0.01 * distance};
  for (double& value : bal.points) {
    value *= 100.0;
  }
  for (int i = 0; i < bal.num_cameras(); ++i) {
    double* t = bal.camera(i) + camera_size - 6;
    double turned[3];
    if (camera_size == 9) {
      ceres::AngleAxisRotatePoint(bal.camera(i), origin, turned);
    } else {
      ceres::QuaternionRotatePoint(bal.camera(i), origin, turned);
    }
    for (int k = 0; k < 3; ++k) {
      t[k] = 100.0 * t[k] - turned[k];
    }
  }
  for (int j = 0; j < bal.num_points(); ++j) {
    for (int k = 0; k < 3; ++k) {
      bal.point(j)[k] += origin[k];
    }
  }
  return bal;
}

class FarOrigin : public ::testing::TestWithParam<std::tuple<int, double>> {
 protected:
  void SetUp() override {
    const auto [camera_size, distance] = GetParam();
    start_ = MakeFarProblem(camera_size, distance);
    BalTestProblem bal = start_;
    auto problem = BuildProblem(
        &bal, Derivatives::kAnalytic, /*use_manifold=*/camera_size == 10);
    ceres::Solve(SolverOptions(&bal), problem.get(), &stock_);
    ASSERT_TRUE(stock_.IsSolutionUsable()) << stock_.message;
    ASSERT_LT(stock_.final_cost, stock_.initial_cost);
  }

  static ceres::Solver::Options SolverOptions(BalTestProblem* bal) {
    ceres::Solver::Options options = TestOptions(bal);
    options.max_num_iterations = 50;
    options.function_tolerance = 1e-8;
    return options;
  }

  // The bar is that of docs/reliability.md.
  void ExpectStocksEnd(const Options& ext_options) {
    BalTestProblem bal = start_;
    auto problem = BuildProblem(
        &bal, Derivatives::kAnalytic, /*use_manifold=*/bal.camera_size == 10);
    Summary summary;
    Solve(SolverOptions(&bal), ext_options, problem.get(), &summary);
    ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
    ASSERT_TRUE(summary.IsSolutionUsable()) << summary.message;
    EXPECT_NEAR(
        summary.initial_cost, stock_.initial_cost, 1e-3 * stock_.initial_cost);
    EXPECT_LE(summary.final_cost, stock_.final_cost * (1.0 + 1e-3));
  }

 private:
  BalTestProblem start_;
  ceres::Solver::Summary stock_;
};

INSTANTIATE_TEST_SUITE_P(
    Distances,
    FarOrigin,
    ::testing::Combine(::testing::Values(9, 10),
                       ::testing::Values(0.0, 1e4, 1e6, 1e7, 1e8)),
    [](const auto& info) {
      return std::to_string(std::get<0>(info.param)) + "Parameters_" +
             std::to_string(static_cast<int>(std::get<1>(info.param)));
    });

TEST_P(FarOrigin, EndsWhereStockEnds) {
  Options options;
  options.device = DEVICE_HOST;
  ExpectStocksEnd(options);
}

TEST_P(FarOrigin, EndsWhereStockEndsOnADevice) {
  if (!HasDevice()) {
    GTEST_SKIP() << "skipped: no CUDA device";
  }
  for (const JacobianType jacobian : {JACOBIAN_STORED, JACOBIAN_RECOMPUTED}) {
    for (const PrecisionType precision : {PRECISION_DOUBLE, PRECISION_MIXED}) {
      SCOPED_TRACE(std::string(JacobianTypeToString(jacobian)) + ", " +
                   PrecisionTypeToString(precision));
      Options options;
      options.device = DEVICE_CUDA;
      options.fallback = FALLBACK_REFUSE;
      options.jacobian = jacobian;
      options.precision = precision;
      ExpectStocksEnd(options);
    }
  }
}

// A strip of 24 images over 400 points, 200 m by 80 m, from 60 m above.
class Survey {
 public:
  using Rotation = EigenQuaternion;
  using Pose = std::array<double, 7>;
  using Position = std::array<double, 3>;

  // The scene lies at `offset`, and its parameters are relative to `origin`.
  // The random numbers are the same for all.
  Survey(const Position& offset, const Position& origin) {
    std::vector<Position> truth(kNumPoints);
    for (Position& point : truth) {
      point = {100.0 * Uniform(), 40.0 * Uniform(), 3.0 * Uniform()};
    }
    std::vector<Pose> poses;
    std::vector<Position> measured;
    for (int i = 0; i < kNumImages; ++i) {
      const Position center = {100.0 * (2.0 * i / (kNumImages - 1) - 1.0),
                               10.0 * Uniform(),
                               -60.0 + 2.0 * Uniform()};
      poses.push_back(PoseAt(RandomQuaternion(0.05), center));
      measured.push_back(Near(center, 0.05, offset));
    }
    for (int j = 0; j < kNumPoints; ++j) {
      for (int i = 0; i < kNumImages; ++i) {
        const Error error{0.0, 0.0};
        double pixel[2];
        error(truth[j].data(), poses[i].data(), intrinsics_, pixel);
        if (std::abs(pixel[0] - 500.0) <= 500.0 &&
            std::abs(pixel[1] - 500.0) <= 500.0) {
          observations_.push_back({i,
                                   j,
                                   {pixel[0] + 0.3 * normal_(random_),
                                    pixel[1] + 0.3 * normal_(random_)}});
        }
      }
    }
    for (int i = 0; i < kNumImages; ++i) {
      Position center;
      ProjectionCenter<Rotation>(
          poses[i].data(), poses[i].data() + 4, center.data());
      double turned[4];
      ceres::QuaternionProduct(
          RandomQuaternion(0.01).data(), Wxyz(poses[i]).data(), turned);
      poses_.push_back(PoseAt({turned[0], turned[1], turned[2], turned[3]},
                              Near(center, 1.0, offset)));
      MoveOrigin<Rotation>(origin.data(), poses_.back().data());
      priors_.push_back({PositionPrior<Rotation>::RelativeTo(
                             origin.data(), measured[i].data()),
                         20.0});
    }
    for (int j = 0; j < kNumPoints; ++j) {
      points_.push_back(Near(truth[j], 0.5, offset));
      for (int k = 0; k < 3; ++k) {
        points_[j][k] -= origin[k];
      }
      if (j < kNumControlPoints) {
        control_points_.push_back(
            {PointPrior::RelativeTo(origin.data(),
                                    Near(truth[j], 0.02, offset).data()),
             50.0});
      }
    }
  }

  // Stock Ceres's where there are no options.
  ceres::Solver::Summary Solve(const Options* ext_options) {
    ceres::Problem problem;
    auto* huber = new ceres::HuberLoss(1.0);
    for (const Observation& o : observations_) {
      problem.AddResidualBlock(
          new CostFunctionFor<ceres::AutoDiffCostFunction, Error>(
              new Error{o.pixel[0], o.pixel[1]}),
          huber,
          points_[o.point].data(),
          poses_[o.image].data(),
          intrinsics_);
    }
    auto* manifold = new ceres::ProductManifold<ceres::EigenQuaternionManifold,
                                                ceres::EuclideanManifold<3>>;
    for (int i = 0; i < kNumImages; ++i) {
      problem.AddResidualBlock(
          new CostFunctionFor<ceres::AutoDiffCostFunction, Prior>(
              new Prior(priors_[i])),
          nullptr,
          poses_[i].data());
      problem.SetManifold(poses_[i].data(), manifold);
    }
    for (int j = 0; j < kNumControlPoints; ++j) {
      problem.AddResidualBlock(
          new CostFunctionFor<ceres::AutoDiffCostFunction, ControlPoint>(
              new ControlPoint(control_points_[j])),
          nullptr,
          points_[j].data());
    }
    ceres::Solver::Options options;
    options.logging_type = ceres::SILENT;
    options.max_num_iterations = 60;
    options.num_threads = 2;
    if (ext_options == nullptr) {
      options.linear_solver_type = ceres::SPARSE_SCHUR;
      ceres::Solver::Summary summary;
      ceres::Solve(options, &problem, &summary);
      return summary;
    }
    options.linear_solver_type = ceres::ITERATIVE_SCHUR;
    options.preconditioner_type = ceres::SCHUR_JACOBI;
    options.eta = 1e-3;
    Summary summary;
    ceres_ext::Solve(options, *ext_options, &problem, &summary);
    EXPECT_EQ(summary.path, PATH_FULL) << summary.path_reason;
    return summary;
  }

 private:
  using Error = ReprojectionError<SimpleRadialCamera, Rotation>;
  using Prior = WeightedError<PositionPrior<Rotation>>;
  using ControlPoint = WeightedError<PointPrior>;
  using Quaternion = std::array<double, 4>;  // w, x, y, z
  struct Observation {
    int image;
    int point;
    double pixel[2];
  };
  static constexpr int kNumImages = 24;
  static constexpr int kNumPoints = 400;
  static constexpr int kNumControlPoints = 5;

  double Uniform() { return uniform_(random_); }

  Quaternion RandomQuaternion(double sigma) {
    double angle_axis[3];
    for (double& value : angle_axis) {
      value = sigma * normal_(random_);
    }
    Quaternion q;
    ceres::AngleAxisToQuaternion(angle_axis, q.data());
    return q;
  }

  static Quaternion Wxyz(const Pose& pose) {
    return {pose[3], pose[0], pose[1], pose[2]};
  }

  static Pose PoseAt(const Quaternion& q, const Position& center) {
    Pose pose = {q[1], q[2], q[3], q[0], 0.0, 0.0, 0.0};
    const double back[3] = {-center[0], -center[1], -center[2]};
    MoveOrigin<Rotation>(back, pose.data());
    return pose;
  }

  Position Near(const Position& position,
                double sigma,
                const Position& offset) {
    Position near;
    for (int k = 0; k < 3; ++k) {
      near[k] = position[k] + sigma * normal_(random_) + offset[k];
    }
    return near;
  }

  std::mt19937 random_{5};
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> uniform_{-1.0, 1.0};
  // f, cx, cy, k
  double intrinsics_[4] = {1000.0, 500.0, 500.0, 0.0};
  std::vector<Pose> poses_;
  std::vector<Position> points_;
  std::vector<Observation> observations_;
  std::vector<Prior> priors_;
  std::vector<ControlPoint> control_points_;
};

TEST(FarSurvey, EndsWithAnOriginWhereItEndsNearZero) {
  const Survey::Position zero = {};
  const Survey::Position ecef = {3.9e6, -4.4e6, 2.5e6};
  Options on_host;
  on_host.device = DEVICE_HOST;
  for (const Options* options : {static_cast<const Options*>(nullptr),
                                 static_cast<const Options*>(&on_host)}) {
    SCOPED_TRACE(options == nullptr ? "stock" : "ours");
    const ceres::Solver::Summary near = Survey(zero, zero).Solve(options);
    ASSERT_EQ(near.termination_type, ceres::CONVERGENCE) << near.message;
    const ceres::Solver::Summary moved = Survey(ecef, ecef).Solve(options);
    ASSERT_EQ(moved.termination_type, ceres::CONVERGENCE) << moved.message;
    // Coordinates are rounded to 1e-9 m, which is 1e-9 / 60 * 1000 pixels. With
    // residuals of 0.3 pixels and half their squares as the cost, the latter
    // changes by 1.2e-7 of itself at most.
    EXPECT_NEAR(moved.final_cost, near.final_cost, 2e-7 * near.final_cost);
    // Which is what the origin is for.
    const ceres::Solver::Summary far = Survey(ecef, zero).Solve(options);
    EXPECT_GT(far.final_cost, 2.0 * near.final_cost);
  }
}

}  // namespace
}  // namespace ceres_ext
