// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A program that knows nothing of this library and calls ceres::Solve, with
// CERES_SOLVER_PLUGIN set.

#include <cstdlib>
#include <string>

#include "ceres/ceres.h"
#include "gtest/gtest.h"
#include "tests/glue/bal_test_problem.h"

namespace ceres_ext {
namespace {

// SetUp and TearDown keep the variable to one test.
class Environment : public ::testing::Test {
 protected:
  void TearDown() override { unsetenv("CERES_SOLVER_PLUGIN"); }

  // Solves the same problem with the variable set to `value`, or unset if null.
  static ceres::Solver::Summary Solve(const char* value,
                                      Derivatives derivatives) {
    if (value != nullptr) {
      setenv("CERES_SOLVER_PLUGIN", value, /*overwrite=*/1);
    } else {
      unsetenv("CERES_SOLVER_PLUGIN");
    }
    BalTestProblem bal = MakeBalTestProblem(10, 120, 5, 9);
    auto problem = BuildProblem(&bal, derivatives);
    ceres::Solver::Summary summary;
    ceres::Solve(TestOptions(&bal), problem.get(), &summary);
    return summary;
  }
};

const std::string kLibrary = CERES_EXT_TEST_LIBRARY;

TEST_F(Environment, UnsetIsStock) {
  const auto summary = Solve(nullptr, Derivatives::kAnalytic);
  EXPECT_TRUE(summary.IsSolutionUsable());
  EXPECT_EQ(summary.message.find("Ceres Ext"), std::string::npos);
}

TEST_F(Environment, LibraryTakesThePathsItCan) {
  const auto stock = Solve(nullptr, Derivatives::kAutodiff);
  const auto full = Solve(kLibrary.c_str(), Derivatives::kAnalytic);
  EXPECT_NE(full.message.find("[Ceres Ext: path FULL"), std::string::npos)
      << full.message;
  EXPECT_NEAR(full.final_cost, stock.final_cost, 1e-6 * stock.final_cost);

  const auto rows =
      Solve((kLibrary + ":jacobian=stored").c_str(), Derivatives::kAutodiff);
  EXPECT_NE(rows.message.find("evaluated by Ceres"), std::string::npos)
      << rows.message;
  EXPECT_NEAR(rows.final_cost, stock.final_cost, 1e-6 * stock.final_cost);

  const auto switched_off =
      Solve((kLibrary + ":enabled=false").c_str(), Derivatives::kAutodiff);
  EXPECT_NE(switched_off.message.find("[Ceres Ext: path CERES"),
            std::string::npos)
      << switched_off.message;
  EXPECT_EQ(switched_off.final_cost, stock.final_cost);
}

TEST_F(Environment, BadSettingsAreAnErrorMessageAndStock) {
  const auto stock = Solve(nullptr, Derivatives::kAutodiff);
  for (const char* settings :
       {":speed=fast", ":jacobian=both", ":jacobian=stored,", "="}) {
    ::testing::internal::CaptureStderr();
    const auto summary =
        Solve((kLibrary + settings).c_str(), Derivatives::kAutodiff);
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(summary.final_cost, stock.final_cost) << settings;
    EXPECT_EQ(summary.message.find("Ceres Ext"), std::string::npos);
    EXPECT_NE(log.find("CERES_SOLVER_PLUGIN"), std::string::npos) << log;
  }
}

}  // namespace
}  // namespace ceres_ext
