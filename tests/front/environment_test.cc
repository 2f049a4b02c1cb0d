// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A program that knows nothing of this library and calls ceres::Solve, with
// CERES_SOLVER_PLUGIN set.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "ceres/ceres.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"

namespace ceres_ext {
namespace {

// SetUp and TearDown keep the variable to one test.
class Environment : public ::testing::Test {
 protected:
  void TearDown() override { unsetenv("CERES_SOLVER_PLUGIN"); }

  // Solves the same problem with the variable set to `value`, or unset if null.
  static ceres::Solver::Summary Solve(
      const char* value,
      Derivatives derivatives,
      ceres::LinearSolverType type = ceres::ITERATIVE_SCHUR) {
    if (value != nullptr) {
      setenv("CERES_SOLVER_PLUGIN", value, /*overwrite=*/1);
    } else {
      unsetenv("CERES_SOLVER_PLUGIN");
    }
    BalTestProblem bal = MakeBalTestProblem(10, 120, 5, 9);
    auto problem = BuildProblem(&bal, derivatives);
    ceres::Solver::Options options = TestOptions(&bal);
    options.linear_solver_type = type;
    Counter counter;
    options.callbacks.push_back(&counter);
    ceres::Solver::Summary summary;
    ceres::Solve(options, problem.get(), &summary);
    EXPECT_EQ(counter.num_calls, static_cast<int>(summary.iterations.size()));
    double cost = 0.0;
    EXPECT_TRUE(problem->Evaluate({}, &cost, nullptr, nullptr, nullptr));
    EXPECT_NEAR(cost, summary.final_cost, 1e-10 * cost);
    return summary;
  }

 private:
  struct Counter final : ceres::IterationCallback {
    ceres::CallbackReturnType operator()(
        const ceres::IterationSummary& /*summary*/) final {
      ++num_calls;
      return ceres::SOLVER_CONTINUE;
    }
    int num_calls = 0;
  };
};

const std::string kLibrary = CERES_EXT_TEST_LIBRARY;

TEST_F(Environment, UnsetIsStock) {
  const auto summary = Solve(nullptr, Derivatives::kAnalytic);
  EXPECT_TRUE(summary.IsSolutionUsable());
  EXPECT_EQ(summary.message.find("Ceres Ext"), std::string::npos);
}

TEST_F(Environment, LibraryTakesThePathsItCan) {
  const auto stock = Solve(nullptr, Derivatives::kAutodiff);
  const auto full =
      Solve((kLibrary + ":device=cuda").c_str(), Derivatives::kAnalytic);
  EXPECT_NE(full.message.find("[Ceres Ext: path FULL"), std::string::npos)
      << full.message;
  EXPECT_NEAR(full.final_cost, stock.final_cost, 1e-6 * stock.final_cost);

  const auto rows = Solve((kLibrary + ":device=cuda,jacobian=stored").c_str(),
                          Derivatives::kAutodiff);
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

// By all devices, where there are several, or by one of them or the host.
TEST_F(Environment, SeveralDevices) {
  const auto stock = Solve(nullptr, Derivatives::kAutodiff);
  const auto all =
      Solve((kLibrary + ":cuda_devices=all").c_str(), Derivatives::kAnalytic);
  EXPECT_NE(all.message.find("[Ceres Ext: path FULL"), std::string::npos)
      << all.message;
  const bool are_all = all.message.find("ranks solve") != std::string::npos;
  const bool is_one = all.message.find("cuda_devices is not used, because") !=
                      std::string::npos;
  EXPECT_NE(are_all, is_one) << all.message;
  EXPECT_NEAR(all.final_cost, stock.final_cost, 1e-6 * stock.final_cost);
  EXPECT_NEAR(all.initial_cost, stock.initial_cost, 1e-9 * stock.initial_cost);
  EXPECT_GT(all.iterations.size(), 1u);
  // Ranks have no dense step.
  const auto dense = Solve((kLibrary + ":cuda_devices=all").c_str(),
                           Derivatives::kAnalytic,
                           ceres::DENSE_SCHUR);
  EXPECT_NE(dense.message.find("cuda_devices is not used, because"),
            std::string::npos)
      << dense.message;
  EXPECT_NEAR(dense.final_cost, stock.final_cost, 1e-6 * stock.final_cost);
}

// The settings for a program that hard-codes its linear solver, and the report
// on each of its solves.
TEST_F(Environment, AnotherLinearSolverAndAReport) {
  const std::string file = ::testing::TempDir() + "ceres_ext_environment_" +
                           std::to_string(getpid()) + ".jsonl";
  for (const auto type : {ceres::SPARSE_SCHUR,
                          ceres::DENSE_SCHUR,
                          ceres::SPARSE_NORMAL_CHOLESKY}) {
    const auto stock = Solve(nullptr, Derivatives::kAutodiff, type);
    const auto chosen = Solve((kLibrary +
                               ":linear_solver=iterative_schur,preconditioner="
                               "schur_jacobi,report=" +
                               file)
                                  .c_str(),
                              Derivatives::kAutodiff,
                              type);
    EXPECT_EQ(chosen.linear_solver_type_given, type);
    EXPECT_EQ(chosen.linear_solver_type_used, ceres::ITERATIVE_SCHUR);
    EXPECT_NE(chosen.message.find(
                  std::string("ITERATIVE_SCHUR with SCHUR_JACOBI was chosen in "
                              "place of ") +
                  ceres::LinearSolverTypeToString(type) + "; all residual"),
              std::string::npos)
        << chosen.message;
    EXPECT_NEAR(chosen.final_cost, stock.final_cost, 1e-3 * stock.final_cost);
  }
  Solve((kLibrary + ":report=" + file).c_str(),
        Derivatives::kAnalytic,
        ceres::DENSE_QR);
  std::ifstream stream(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  ASSERT_EQ(lines.size(), 4u);
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_NE(lines[i].find(i < 3 ? "\"path\":\"FULL\"" : "\"path\":\"CERES\""),
              std::string::npos)
        << lines[i];
  }
  std::remove(file.c_str());
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
