// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Real problems from file to final cost, with this library and with Ceres
// alone, in both camera parameterisations.

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "ceres/solver.h"
#include "ceres_ext/summary.h"
#include "examples/bal/bal_geometry.h"
#include "examples/bal/solve_bal.h"
#include "gtest/gtest.h"
#include "problem_io/bal_problem.h"
#include "problem_io/bal_reader.h"
#include "problem_io/bal_synthetic.h"
#include "tests/bal/bal_test_util.h"
#include "tests/bal/synthetic_scene.h"

namespace ceres_ext::bal {
namespace {

struct RealProblem {
  const char* file;
  int num_cameras;
  int num_points;
  int num_observations;
  // 1/2 sum r^2, computed apart from this project (initial) and reached by
  // several solvers (final), with six digits.
  double initial_cost;
  double final_cost;
};

constexpr RealProblem kDubrovnik = {
    "dubrovnik-16-22106-pre.txt.bz2", 16, 22106, 83718, 4185659.52, 1.803390e4};
constexpr RealProblem kLadybug = {
    "ladybug-49-7776-pre.txt.bz2", 49, 7776, 31843, 850912.46, 1.334424e4};
constexpr RealProblem kTrafalgar = {
    "trafalgar-21-11315-pre.txt.bz2", 21, 11315, 36455, 4413239.31, 3.037864e4};

void Read(const RealProblem& real,
          const std::string& path,
          BalProblem* problem) {
  std::string error;
  ASSERT_TRUE(ReadBalFile(path, problem, &error)) << error;
  EXPECT_EQ(problem->num_cameras(), real.num_cameras);
  EXPECT_EQ(problem->num_points(), real.num_points);
  EXPECT_EQ(problem->num_observations(), real.num_observations);
}

SolveBalOptions Options(bool ceres_ext, int max_num_iterations) {
  SolveBalOptions options;
  options.use_manifolds = true;
  options.ext_options.enabled = ceres_ext;
  options.ext_options.fallback = ceres_ext::FALLBACK_REFUSE;
  options.solver_options.linear_solver_type = ceres::ITERATIVE_SCHUR;
  options.solver_options.preconditioner_type = ceres::SCHUR_JACOBI;
  options.solver_options.max_linear_solver_iterations = 500;
  options.solver_options.eta = 1e-2;
  options.solver_options.num_threads = 2;
  options.solver_options.max_num_iterations = max_num_iterations;
  options.solver_options.function_tolerance = 1e-7;
  options.solver_options.gradient_tolerance = 1e-16;
  options.solver_options.parameter_tolerance = 1e-16;
  return options;
}

void Solve(const SolveBalOptions& options,
           BalProblem* problem,
           ceres_ext::Summary* summary) {
  double build_time;
  SolveBal(options, problem, summary, &build_time);
  // Arrays are not built.
  EXPECT_EQ(build_time > 0.0,
            !options.ext_options.enabled ||
                options.cost_function != COST_FUNCTION_ANALYTIC);
  EXPECT_TRUE(summary->IsSolutionUsable()) << summary->message;
}

// Problem, with this library, camera size, cost function.
using Parameters = std::tuple<RealProblem, bool, int, CostFunctionType>;

std::string Name(const ::testing::TestParamInfo<Parameters>& info) {
  const auto& [real, ceres_ext, camera_size, cost_function] = info.param;
  const std::string file = real.file;
  return file.substr(0, file.find('-')) +
         (ceres_ext ? "_ceres_ext_" : "_ceres_") + std::to_string(camera_size) +
         (cost_function == COST_FUNCTION_ANALYTIC   ? "_analytic"
          : cost_function == COST_FUNCTION_AUTODIFF ? "_autodiff"
                                                    : "_device_autodiff");
}

class FinalCostTest : public ::testing::TestWithParam<Parameters> {};

TEST_P(FinalCostTest, IsTheKnownOne) {
  const auto& [real, ceres_ext, camera_size, cost_function] = GetParam();
  const std::string path = FindBalFile(real.file);
  if (path.empty()) {
    GTEST_SKIP() << SkippedForLackOf(real.file);
  }
  BalProblem problem;
  Read(real, path, &problem);
  if (camera_size == 10) {
    ToQuaternions(&problem);
  }
  const double initial_cost = PlainCost(problem);
  // Published with eight digits and more.
  EXPECT_NEAR(initial_cost, real.initial_cost, 1e-6 * real.initial_cost);
  Normalize(&problem);

  SolveBalOptions options = Options(ceres_ext, 100);
  options.cost_function = cost_function;
  ceres_ext::Summary summary;
  Solve(options, &problem, &summary);
  // Rounding of a residual is some 100 eps f = 1e-11 pixels in ten and more.
  EXPECT_NEAR(summary.initial_cost, initial_cost, 1e-10 * initial_cost);
  EXPECT_NEAR(summary.final_cost, real.final_cost, 1e-5 * real.final_cost);
  EXPECT_NEAR(
      PlainCost(problem), summary.final_cost, 1e-10 * summary.final_cost);
  if (ceres_ext) {
    EXPECT_EQ(summary.path, ceres_ext::PATH_FULL) << summary.path_reason;
  } else {
    EXPECT_EQ(summary.path, ceres_ext::PATH_CERES);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Analytic,
    FinalCostTest,
    ::testing::Combine(::testing::Values(kDubrovnik, kLadybug, kTrafalgar),
                       ::testing::Bool(),
                       ::testing::Values(9, 10),
                       ::testing::Values(COST_FUNCTION_ANALYTIC)),
    Name);

INSTANTIATE_TEST_SUITE_P(
    Autodiff,
    FinalCostTest,
    ::testing::Combine(::testing::Values(kTrafalgar),
                       ::testing::Bool(),
                       ::testing::Values(9, 10),
                       ::testing::Values(COST_FUNCTION_AUTODIFF)),
    Name);

// As long as both spend the same number of PCG iterations, both take the same
// steps.
class FirstTenCostsTest
    : public ::testing::TestWithParam<
          std::tuple<RealProblem, int, ceres::PreconditionerType>> {};

TEST_P(FirstTenCostsTest, MatchCeres) {
  const auto& [real, camera_size, preconditioner] = GetParam();
  const std::string path = FindBalFile(real.file);
  if (path.empty()) {
    GTEST_SKIP() << SkippedForLackOf(real.file);
  }
  ceres_ext::Summary summaries[2];
  for (const bool ceres_ext : {false, true}) {
    BalProblem problem;
    Read(real, path, &problem);
    if (camera_size == 10) {
      ToQuaternions(&problem);
    }
    Normalize(&problem);
    SolveBalOptions options = Options(ceres_ext, 10);
    options.solver_options.preconditioner_type = preconditioner;
    Solve(options, &problem, &summaries[ceres_ext]);
  }
  const auto& stock = summaries[0].iterations;
  const auto& ours = summaries[1].iterations;
  size_t num_compared = 0;
  for (size_t i = 0; i < std::min(stock.size(), ours.size()); ++i) {
    if (stock[i].linear_solver_iterations != ours[i].linear_solver_iterations) {
      break;
    }
    EXPECT_NEAR(ours[i].cost, stock[i].cost, 1e-6 * stock[i].cost) << i;
    EXPECT_EQ(ours[i].step_is_successful, stock[i].step_is_successful) << i;
    ++num_compared;
  }
  RecordProperty("num_compared", static_cast<int>(num_compared));
  // The start, and a few steps before rounding may tell.
  EXPECT_GE(num_compared, 4u);
}

std::string FirstTenName(
    const ::testing::TestParamInfo<FirstTenCostsTest::ParamType>& info) {
  const auto& [real, camera_size, preconditioner] = info.param;
  const std::string file = real.file;
  return file.substr(0, file.find('-')) + "_" + std::to_string(camera_size) +
         "_" + ceres::PreconditionerTypeToString(preconditioner);
}

INSTANTIATE_TEST_SUITE_P(
    Real,
    FirstTenCostsTest,
    ::testing::Combine(::testing::Values(kDubrovnik, kLadybug, kTrafalgar),
                       ::testing::Values(9, 10),
                       ::testing::Values(ceres::SCHUR_JACOBI, ceres::JACOBI)),
    FirstTenName);

// Noise alone is left of a synthetic problem: its cost is sigma^2 / 2 times a
// chi-squared number with (residuals - parameters + 7) degrees of freedom; 7
// for the frame.
TEST(SyntheticSolve, ReachesTheCostOfTheNoise) {
  SyntheticOptions synthetic_options = OptionsOfSize(20, 2000, 12000);
  synthetic_options.pixel_noise = 0.5;
  synthetic_options.outlier_fraction = 0.0;
  SyntheticProblem synthetic = MakeScene(synthetic_options);
  for (const bool ceres_ext : {false, true}) {
    BalProblem problem = synthetic.start;
    Normalize(&problem);
    ceres_ext::Summary summary;
    Solve(Options(ceres_ext, 100), &problem, &summary);
    const double freedom = 2 * 12000 - 9 * 20 - 3 * 2000 + 7;
    EXPECT_NEAR(summary.final_cost,
                0.125 * freedom,
                5 * 0.125 * std::sqrt(2 * freedom));
  }
}

TEST(SyntheticSolve, UnobservedBlocksStayWhereTheyAre) {
  SyntheticOptions synthetic_options = OptionsOfSize(20, 500, 3000);
  synthetic_options.num_weak_cameras = 2;
  synthetic_options.weak_camera_points = 0;
  SyntheticProblem synthetic = MakeScene(synthetic_options);
  BalProblem start = synthetic.start;
  start.points.insert(start.points.end(), {1.0, 2.0, 3.0});
  for (const bool ceres_ext : {false, true}) {
    for (const auto ordering : {ORDERING_USER, ORDERING_AUTOMATIC}) {
      BalProblem problem = start;
      SolveBalOptions options = Options(ceres_ext, 5);
      options.ordering = ordering;
      ceres_ext::Summary summary;
      Solve(options, &problem, &summary);
      EXPECT_LT(summary.final_cost, 0.1 * summary.initial_cost);
      EXPECT_EQ(
          std::vector<double>(problem.points.end() - 3, problem.points.end()),
          (std::vector<double>{1.0, 2.0, 3.0}));
    }
  }
}

TEST(SyntheticSolve, RobustifyWeighsOutliersLess) {
  SyntheticOptions synthetic_options = OptionsOfSize(20, 1000, 6000);
  synthetic_options.outlier_fraction = 0.05;
  SyntheticProblem synthetic = MakeScene(synthetic_options);
  for (const bool ceres_ext : {false, true}) {
    double costs[2];
    for (const bool robustify : {false, true}) {
      BalProblem problem = synthetic.start;
      SolveBalOptions options = Options(ceres_ext, 50);
      options.robustify = robustify;
      // Not every path of this library knows loss functions.
      options.ext_options.fallback = ceres_ext::FALLBACK_TO_CERES;
      ceres_ext::Summary summary;
      Solve(options, &problem, &summary);
      costs[robustify] = summary.final_cost;
      // Huber's loss of s = |r|^2 is s up to 1 and 2 sqrt(s) - 1 beyond.
      if (!robustify) {
        EXPECT_NEAR(PlainCost(problem), costs[0], 1e-10 * costs[0]);
      }
    }
    EXPECT_LT(costs[1], 0.5 * costs[0]);
  }
}

}  // namespace
}  // namespace ceres_ext::bal
