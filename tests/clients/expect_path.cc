// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// ceres::Solve for Ceres's own tests, which come with a GoogleTest of their own
// and are compiled against the shared libceres: it expects that every solve
// takes the path that its options call for. So they fail if the plugin of
// CERES_SOLVER_PLUGIN is missing or leaves to Ceres a solve that it should
// take.

#include <string>

#include "ceres/problem.h"
#include "ceres/solver.h"
#include "ceres/types.h"
#include "gtest/gtest.h"

namespace ceres {
namespace {

int num_served = 0;

class SomeSolveIsServed : public ::testing::Environment {
 public:
  void TearDown() override { EXPECT_GT(num_served, 0); }
};

::testing::Environment* const environment =
    ::testing::AddGlobalTestEnvironment(new SomeSolveIsServed);

}  // namespace

void Solve(const Solver::Options& options,
           Problem* problem,
           Solver::Summary* summary) {
  Solver solver;
  solver.Solve(options, problem, summary);
  const bool is_normal =
      options.linear_solver_type == DENSE_NORMAL_CHOLESKY ||
      (options.linear_solver_type == SPARSE_NORMAL_CHOLESKY &&
       !options.dynamic_sparsity);
  const bool is_served = IsSchurType(options.linear_solver_type) || is_normal ||
                         options.linear_solver_type == CGNR;
  const std::string path = is_served ? "FULL on " : "CERES, ";
  // Stock's factorisation of J'J is as fast for the smallest problems.
  EXPECT_TRUE(summary->message.find("[Ceres Ext: path " + path) !=
                  std::string::npos ||
              (is_normal && summary->message.find("is as fast for so few") !=
                                std::string::npos))
      << LinearSolverTypeToString(options.linear_solver_type) << ": expected "
      << path << "found " << summary->message;
  num_served += is_served ? 1 : 0;
}

}  // namespace ceres
