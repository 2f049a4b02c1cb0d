// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Options::model_cost_tolerance and forcing_sequence, which say how accurate
// PCG is. Also with an emulated device.

#include <cstddef>
#include <string>
#include <vector>

#include "ceres_ext/solve.h"
#include "gtest/gtest.h"
#include "tests/glue/bal_test_problem.h"
#include "tests/glue/has_device.h"

namespace ceres_ext {
namespace {

struct Result {
  Summary summary;
  std::vector<double> parameters;
};

Result SolveWith(const Options& ext_options,
                 double eta,
                 double function_tolerance,
                 int num_iterations) {
  // A chain that closes once: many iterations of PCG.
  BalTestProblem bal = MakeBalTestProblem(40, 300, 3, 9);
  auto problem = BuildProblem(&bal, Derivatives::kAnalytic);
  ceres::Solver::Options options = TestOptions(&bal);
  options.eta = eta;
  options.function_tolerance = function_tolerance;
  options.gradient_tolerance = 0.0;
  options.parameter_tolerance = 0.0;
  options.max_num_iterations = num_iterations;
  Result result;
  Options on_device = ext_options;
  on_device.device = kDevice;
  Solve(options, on_device, problem.get(), &result.summary);
  EXPECT_EQ(result.summary.path, PATH_FULL) << result.summary.path_reason;
  result.parameters = bal.cameras;
  result.parameters.insert(
      result.parameters.end(), bal.points.begin(), bal.points.end());
  return result;
}

TEST(ModelCostTolerance, SparesWhatTheSolveWouldEndFor) {
  for (const double function_tolerance : {1e-3, 1e-6}) {
    const Result all = SolveWith({}, 1e-8, function_tolerance, 50);
    Options tenth;
    tenth.model_cost_tolerance = 0.1 * function_tolerance;
    const Result spared = SolveWith(tenth, 1e-8, function_tolerance, 50);
    ASSERT_EQ(all.summary.termination_type, ceres::CONVERGENCE);
    ASSERT_EQ(spared.summary.termination_type, ceres::CONVERGENCE);
    EXPECT_LT(spared.summary.num_pcg_iterations,
              all.summary.num_pcg_iterations);
    // Both end where a step gains less than the tolerance; a step leaves out
    // a tenth of it at most, by an estimate.
    EXPECT_NEAR(spared.summary.final_cost,
                all.summary.final_cost,
                2.0 * function_tolerance * all.summary.final_cost);
  }
}

TEST(ModelCostTolerance, IsOfNoAccountWhereEtaIsCeressOwn) {
  Options large;
  large.model_cost_tolerance = 1.0;
  EXPECT_EQ(SolveWith(large, 0.1, 1e-6, 20).parameters,
            SolveWith({}, 0.1, 1e-6, 20).parameters);
}

TEST(ForcingSequence, FollowsTheGradientFromEtaOn) {
  Options walker;
  walker.forcing_sequence = FORCING_SEQUENCE_EISENSTAT_WALKER;
  const Result constant = SolveWith({}, 0.1, 0.0, 8);
  const Result forced = SolveWith(walker, 0.1, 0.0, 8);
  const auto steps = [](const Result& result, size_t i) {
    return result.summary.iterations.at(i).linear_solver_iterations;
  };
  // The same steps until a gradient is so much smaller that the tolerance is
  // too, which takes more iterations of PCG.
  size_t i = 1;
  while (i < 8 && steps(forced, i) == steps(constant, i)) {
    EXPECT_EQ(forced.summary.iterations[i].cost,
              constant.summary.iterations[i].cost);
    ++i;
  }
  EXPECT_GT(i, 1u);  // The first step has no gradient before it.
  EXPECT_GT(steps(forced, i), steps(constant, i));
  EXPECT_EQ(forced.parameters, SolveWith(walker, 0.1, 0.0, 8).parameters);
}

}  // namespace
}  // namespace ceres_ext
