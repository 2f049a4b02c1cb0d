// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Scenes some hundred units wide at places as far from zero as maps have them
// (UTM, ECEF in metres, and ten times that): every machine and precision ends
// where stock Ceres does. From 1e7 on that is no minimum: by its rotation a
// camera of BAL turns about zero, so that its columns hardly differ in double.

#include <string>
#include <tuple>
#include <vector>

#include "ceres/ceres.h"
#include "ceres/rotation.h"
#include "ceres_ext/solve.h"
#include "gtest/gtest.h"
#include "tests/glue/bal_test_problem.h"
#include "tests/glue/has_device.h"

namespace ceres_ext {
namespace {

// Of a scene of about 400 units.
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

}  // namespace
}  // namespace ceres_ext
