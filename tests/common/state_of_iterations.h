// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#ifndef CERES_EXT_TESTS_COMMON_STATE_OF_ITERATIONS_H_
#define CERES_EXT_TESTS_COMMON_STATE_OF_ITERATIONS_H_

#include "ceres/iteration_callback.h"
#include "ceres/problem.h"
#include "ceres_ext/solve.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"

namespace ceres_ext {

// With update_state_every_iteration a callback finds the state of the last
// successful step in the problem, up to a relative difference of costs.
inline void ExpectStateOfEachIteration(const Options& ext_options,
                                       double tolerance) {
  BalTestProblem bal = MakeBalTestProblem(8, 60, 4, 9);
  auto problem = BuildProblem(&bal, Derivatives::kAnalytic);
  struct Watch : public ceres::IterationCallback {
    ceres::CallbackReturnType operator()(
        const ceres::IterationSummary& summary) override {
      double cost = 0.0;
      problem->Evaluate({}, &cost, nullptr, nullptr, nullptr);
      if (summary.step_is_successful) {
        EXPECT_NEAR(cost, summary.cost, tolerance * cost);
        ++num_checked;
      }
      return ceres::SOLVER_CONTINUE;
    }
    ceres::Problem* problem;
    double tolerance;
    int num_checked = 0;
  } watch;
  watch.problem = problem.get();
  watch.tolerance = tolerance;
  ceres::Solver::Options options = TestOptions(&bal);
  options.callbacks.push_back(&watch);
  options.update_state_every_iteration = true;
  Summary summary;
  Solve(options, ext_options, problem.get(), &summary);
  EXPECT_EQ(summary.path, PATH_FULL) << summary.message;
  EXPECT_GT(watch.num_checked, 3);
}

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_COMMON_STATE_OF_ITERATIONS_H_
