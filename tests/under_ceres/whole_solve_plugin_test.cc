// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// ceres::Solve with a plugin that solves the whole problem in another way, here
// as arrays on the host.

#include "ceres_ext/under_ceres/whole_solve_plugin.h"

#include <memory>
#include <string>
#include <vector>

#include "ceres/ceres.h"
#include "ceres/solver_plugin.h"
#include "ceres_ext/solve.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"

namespace ceres_ext {
namespace {

using ::testing::HasSubstr;

class WholeSolvePluginTest : public testing::Test {
 protected:
  WholeSolvePluginTest() : bal_(MakeBalTestProblem(8, 90, 4, 9)) {
    problem_ = BuildProblem(&bal_, Derivatives::kAnalytic);
    problem_->SetParameterBlockConstant(bal_.camera(2));
    problem_->SetParameterBlockConstant(bal_.point(5));
    options_ = TestOptions(&bal_);
    options_.callbacks.push_back(&counter_);
  }

  struct Counter final : ceres::IterationCallback {
    ceres::CallbackReturnType operator()(
        const ceres::IterationSummary& /*summary*/) final {
      ++num_calls;
      return ceres::SOLVER_CONTINUE;
    }
    int num_calls = 0;
  };

  static Options OnHost() {
    Options options;
    options.device = DEVICE_HOST;
    options.cuda_devices = "all";
    return options;
  }
  void Solve(const SolveWhole& solve, ceres::Solver::Summary* summary) {
    WholeSolvePlugin plugin(OnHost(), solve);
    const ceres::internal::ScopedSolverPlugin scoped(&plugin);
    ceres::Solve(options_, problem_.get(), summary);
  }

  BalTestProblem bal_;
  std::unique_ptr<ceres::Problem> problem_;
  ceres::Solver::Options options_;
  Counter counter_;
};

TEST_F(WholeSolvePluginTest, HasTheSummaryAndTheValuesOfThatSolve) {
  BalTestProblem other = bal_;
  auto same = BuildProblem(&other, Derivatives::kAnalytic);
  same->SetParameterBlockConstant(other.camera(2));
  same->SetParameterBlockConstant(other.point(5));
  ceres::Solver::Summary stock;
  ceres::Solve(TestOptions(&other), same.get(), &stock);
  ceres::Solver::Summary summary;
  Solve(
      [](const ceres::Solver::Options& options,
         const Options& ext_options,
         TableOfProblem* arrays,
         Summary* of_arrays) {
        ceres::Solver::Options without = options;
        EXPECT_TRUE(arrays->IsFirstGroup(1, *options.linear_solver_ordering));
        EXPECT_FALSE(arrays->IsFirstGroup(0, *options.linear_solver_ordering));
        without.linear_solver_ordering.reset();
        ArrayProblem problem = arrays->arrays();
        ceres_ext::Solve(without, ext_options, &problem, of_arrays);
        arrays->Write();
        return Outcome();
      },
      &summary);
  EXPECT_TRUE(summary.IsSolutionUsable()) << summary.message;
  EXPECT_THAT(summary.message, HasSubstr("[Ceres Ext: path FULL on host"));
  EXPECT_NEAR(
      summary.initial_cost, stock.initial_cost, 1e-12 * stock.initial_cost);
  EXPECT_NEAR(summary.final_cost, stock.final_cost, 1e-6 * stock.final_cost);
  EXPECT_GT(summary.iterations.size(), 2u);
  EXPECT_EQ(counter_.num_calls, static_cast<int>(summary.iterations.size()));
  double cost = 0.0;
  ASSERT_TRUE(problem_->Evaluate({}, &cost, nullptr, nullptr, nullptr));
  EXPECT_NEAR(cost, summary.final_cost, 1e-12 * cost);
  for (int e = 0; e < 9; ++e) {
    EXPECT_EQ(bal_.camera(2)[e], MakeBalTestProblem(8, 90, 4, 9).camera(2)[e]);
  }
}

TEST_F(WholeSolvePluginTest, LeavesTheRestToCeresLoop) {
  ceres::Solver::Summary summary;
  Solve(
      [](const ceres::Solver::Options& /*options*/,
         const Options& /*ext_options*/,
         TableOfProblem* /*arrays*/,
         Summary* /*summary*/) {
        return Outcome::NotBySeveral("this is a test");
      },
      &summary);
  EXPECT_TRUE(summary.IsSolutionUsable()) << summary.message;
  EXPECT_THAT(summary.message,
              HasSubstr("cuda_devices is not used, because this is a test"));
  EXPECT_EQ(counter_.num_calls, static_cast<int>(summary.iterations.size()));
}

TEST_F(WholeSolvePluginTest, TakesBounds) {
  problem_->SetParameterLowerBound(bal_.camera(1), 4, -1e6);
  problem_->SetParameterUpperBound(bal_.camera(1), 5, 1e6);
  int num_bounded = 0;
  ceres::Solver::Summary summary;
  Solve(
      [&](const ceres::Solver::Options& /*options*/,
          const Options& /*ext_options*/,
          TableOfProblem* arrays,
          Summary* /*summary*/) {
        for (const auto& p : arrays->arrays().parameters()) {
          for (int64_t i = 0; i < p.num_blocks; ++i) {
            for (int j = 0; j < p.size; ++j) {
              num_bounded += p.IsBounded(i, j) ? 1 : 0;
            }
            if (p.size == 9 && p.IsBounded(i, 4)) {
              EXPECT_EQ(p.LowerBoundOf(i, 4), -1e6);
              EXPECT_EQ(p.UpperBoundOf(i, 5), 1e6);
            }
          }
        }
        return Outcome::NotBySeveral("this is a test");
      },
      &summary);
  EXPECT_EQ(num_bounded, 2);
  EXPECT_TRUE(summary.IsSolutionUsable()) << summary.message;
}

TEST_F(WholeSolvePluginTest, AFailureIsOneOfTheSolve) {
  const std::vector<double> start = bal_.cameras;
  ceres::Solver::Summary summary;
  Solve(
      [](const ceres::Solver::Options& /*options*/,
         const Options& /*ext_options*/,
         TableOfProblem* /*arrays*/,
         Summary* of_arrays) {
        of_arrays->termination_type = ceres::FAILURE;
        of_arrays->message = "Rank 1 has ended.";
        return Outcome();
      },
      &summary);
  EXPECT_EQ(summary.termination_type, ceres::FAILURE);
  EXPECT_THAT(summary.message, HasSubstr("Rank 1 has ended."));
  EXPECT_EQ(bal_.cameras, start);
  EXPECT_EQ(counter_.num_calls, 0);
}

}  // namespace
}  // namespace ceres_ext
