// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Random problems of arrays of all kinds of rows, blocks, losses, weights and
// manifolds: without a ceres::Problem they are solved as the ceres::Problem of
// the same blocks is, bit for bit. How to run more cases: random_cases.h.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ceres/ceres.h"
#include "ceres/rotation.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/base/ceres_version.h"
#include "ceres_ext/import/problem_of_arrays.h"
#include "ceres_ext/solve.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/functors.h"
#include "tests/common/has_device.h"
#include "tests/common/own_manifold.h"
#include "tests/common/random_arrays.h"
#include "tests/common/random_cases.h"
#include "tests/common/same_summary.h"

namespace ceres_ext {
namespace {

#ifdef CERES_EXT_EMULATED
constexpr int kNumCases = 40;
#else
constexpr int kNumCases = 300;
#endif

const bool kIsQuiet = [] {
  SetQuiet(true);
  return true;
}();

// Those that this library leaves to stock Ceres are few.
TEST(ArrayKinds, SameBitsAsAProblem) {
  int num_cases = 0;
  int num_problems = 0;
  ForEachCase(kNumCases, [&](Random* random) {
    RandomArrays arrays(random);
    ceres::Solver::Options options;
    options.linear_solver_type =
        random->Chance(0.8) ? ceres::ITERATIVE_SCHUR : ceres::CGNR;
    options.preconditioner_type =
        options.linear_solver_type == ceres::CGNR ? ceres::JACOBI
        : random->Chance(0.5)                     ? ceres::SCHUR_JACOBI
                              : ceres::SCHUR_POWER_SERIES_EXPANSION;
    options.max_num_iterations = 4;
    options.logging_type = ceres::SILENT;
    options.num_threads = 1 + random->Below(3);
    Options ext_options;
    ext_options.device =
        HasDevice() && random->Chance(0.8) ? DEVICE_CUDA : DEVICE_HOST;
    ext_options.batch_evaluation = random->Chance(0.85);
    SCOPED_TRACE(arrays.Describe());
    const auto start = arrays.Values();

    ProblemOfArrays of_arrays(*arrays.problem());
    Summary expected;
    Solve(options, ext_options, of_arrays.problem(), &expected);
    const auto expected_values = arrays.Values();

    arrays.SetValues(start);
    Summary summary;
    Solve(options, ext_options, arrays.problem(), &summary);
    SCOPED_TRACE(summary.path_reason);
    EXPECT_EQ(summary.path, expected.path);
    EXPECT_EQ(summary.termination_type, expected.termination_type);
    // The sums of stock Ceres differ from run to run where it has threads.
    if (expected.path == PATH_FULL) {
      EXPECT_EQ(arrays.Values(), expected_values);
      ExpectSameSummary(summary, expected);
      // A weight alone is not a loss that the host would have to call, as
      // ceres::ScaledLoss is beside a user-defined one.
      EXPECT_LE(summary.num_host_losses, expected.num_host_losses);
      EXPECT_EQ(summary.num_host_manifolds, expected.num_host_manifolds);
    }
    ++num_cases;
    if (summary.path_reason.find("a ceres::Problem was built") !=
        std::string::npos) {
      ++num_problems;
      // If this library does not take the ceres::Problem either.
      EXPECT_TRUE(expected.path != PATH_FULL ||
                  summary.path_reason.find("no parameter block varies") !=
                      std::string::npos)
          << summary.path_reason;
    } else {
      EXPECT_EQ(summary.path_reason, expected.path_reason);
    }
  });
  if (num_cases >= kNumCases) {
    EXPECT_LT(num_problems, num_cases / 5);
  }
}

// A residual is the difference of coordinates of some 1e3 pixels, each after
// some hundred roundings: 1e-11 of pixels that differ by more than 0.01. So far
// may numbers that two ways of evaluating have found differ, by the largest.
void ExpectClose(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  double largest = 0.0;
  for (const double value : b) {
    largest = std::max(largest, std::abs(value));
  }
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_NEAR(a[i], b[i], 1e-9 * largest) << i;
  }
}

TEST(ArrayKinds, EvaluatesAsCeresDoes) {
  ForEachCase(kNumCases, [&](Random* random) {
    RandomArrays arrays(random);
    EvaluateOptions options;
    options.apply_loss_function = random->Chance(0.7);
    options.num_threads = 1 + random->Below(3);
    Options ext_options;
    ext_options.device =
        HasDevice() && random->Chance(0.8) ? DEVICE_CUDA : DEVICE_HOST;
    ext_options.batch_evaluation = random->Chance(0.85);
    ext_options.enabled = random->Chance(0.9);
    SCOPED_TRACE(arrays.Describe());
    const auto start = arrays.Values();

    ProblemOfArrays of_arrays(*arrays.problem());
    ceres::Problem::EvaluateOptions of_ceres;
    of_ceres.apply_loss_function = options.apply_loss_function;
    double expected_cost = 0.0;
    std::vector<double> expected_residuals;
    std::vector<double> expected_gradient;
    // With derivatives, autodiff computes residuals in another way.
    ASSERT_TRUE(of_arrays.problem()->Evaluate(
        of_ceres, &expected_cost, &expected_residuals, nullptr, nullptr));
    ASSERT_TRUE(of_arrays.problem()->Evaluate(
        of_ceres, nullptr, nullptr, &expected_gradient, nullptr));

    ArraySolver solver;
    double first_cost = 0.0;
    for (const bool all : {true, false}) {
      double cost = 0.0;
      std::vector<double> residuals;
      std::vector<double> gradient;
      std::string error;
      ASSERT_TRUE(solver.Evaluate(options,
                                  ext_options,
                                  *arrays.problem(),
                                  &cost,
                                  all ? &residuals : nullptr,
                                  all ? &gradient : nullptr,
                                  &error))
          << error;
      EXPECT_EQ(arrays.Values(), start);
      EXPECT_NEAR(cost, expected_cost, 1e-9 * expected_cost);
      if (all) {
        first_cost = cost;
        // These are the same functions.
        EXPECT_EQ(residuals, expected_residuals);
        ExpectClose(gradient, expected_gradient);
      }
    }
    if (!options.apply_loss_function || !ext_options.enabled) {
      return;
    }
    ceres::Solver::Options solver_options;
    solver_options.linear_solver_type = ceres::CGNR;
    solver_options.preconditioner_type = ceres::IDENTITY;
    solver_options.max_num_iterations = 0;
    solver_options.num_threads = options.num_threads;
    solver_options.logging_type = ceres::SILENT;
    Summary summary;
    Solve(solver_options, ext_options, arrays.problem(), &summary);
    if (summary.path == PATH_FULL) {
      EXPECT_EQ(summary.initial_cost, first_cost);
    }
  });
}

// Collects what is logged.
class Log final : public LogReader {
 public:
  Log() { SetQuiet(false); }
  ~Log() override { SetQuiet(true); }
  std::vector<std::string> lines;

 private:
  void Read(bool /*is_error*/, const std::string& message) override {
    lines.push_back(message);
  }
};

TEST(Evaluate, SaysWhatIsWrong) {
  const Log log;
  BalTestProblem bal = MakeBalTestProblem(3, 20, 2, 9, 1);
  ArrayProblem problem = ArraysOf(&bal);
  Options ext_options;
  ext_options.device = DEVICE_HOST;
  const auto error_of = [&](const EvaluateOptions& options) {
    double cost = 0.0;
    std::vector<double> residuals;
    std::string error;
    EXPECT_FALSE(Evaluate(options,
                          ext_options,
                          problem,
                          &cost,
                          &residuals,
                          /*gradient=*/nullptr,
                          &error));
    double only_cost = 0.0;
    std::string of_cost;
    EXPECT_FALSE(Evaluate(options,
                          ext_options,
                          problem,
                          &only_cost,
                          /*residuals=*/nullptr,
                          /*gradient=*/nullptr,
                          &of_cost));
    EXPECT_FALSE(of_cost.empty());
    return error;
  };
  EvaluateOptions options;
  options.num_threads = 0;
  EXPECT_EQ(error_of(options),
            "EvaluateOptions::num_threads is 0; expected 1 or more");
  options.num_threads = 2;
  // R X + t = 0.
  const int32_t camera = bal.camera_id[7];
  const int32_t point = bal.point_id[7];
  std::fill_n(&bal.cameras[9 * camera], 6, 0.0);
  std::fill_n(&bal.points[3 * point], 3, 0.0);
  EXPECT_EQ(error_of(options).find("residuals[0]: residual block "), 0u);
  bal.points[3 * point] = std::nan("");
  EXPECT_NE(error_of(options).find("nan"), std::string::npos);
  ext_options.cuda_device = -1;
  EXPECT_EQ(error_of(options).find("ceres_ext::Options is not valid"), 0u);
  EXPECT_THAT(log.lines, ::testing::IsEmpty());
}

// A returned error is not logged.
TEST(Evaluate, LogsNothing) {
  BalTestProblem bal = MakeBalTestProblem(3, 20, 2, 9, 1);
  ArrayProblem problem = ArraysOf(&bal);
  Options ext_options;
  ext_options.device = HasDevice() ? DEVICE_CUDA : DEVICE_HOST;
  const auto evaluate = [&](bool want_gradient, std::string* error) {
    double cost = 0.0;
    std::vector<double> gradient;
    return Evaluate(EvaluateOptions(),
                    ext_options,
                    problem,
                    &cost,
                    /*residuals=*/nullptr,
                    want_gradient ? &gradient : nullptr,
                    error);
  };
  const Log log;
  std::string error;
  for (const bool want_gradient : {false, true}) {
    EXPECT_TRUE(evaluate(want_gradient, &error)) << error;
  }
  // R X + t = 0.
  std::fill_n(&bal.cameras[9 * bal.camera_id[7]], 6, 0.0);
  std::fill_n(&bal.points[3 * bal.point_id[7]], 3, 0.0);
  for (const bool want_gradient : {false, true}) {
    EXPECT_FALSE(evaluate(want_gradient, &error));
    EXPECT_NE(error.find("finite"), std::string::npos) << error;
  }
  bal.points[0] = std::nan("");
  Summary summary;
  Solve(ceres::Solver::Options(), ext_options, &problem, &summary);
  EXPECT_EQ(summary.termination_type, ceres::FAILURE);
  EXPECT_NE(summary.message.find("nan"), std::string::npos) << summary.message;
  EXPECT_THAT(log.lines, ::testing::IsEmpty());
}

}  // namespace
}  // namespace ceres_ext
