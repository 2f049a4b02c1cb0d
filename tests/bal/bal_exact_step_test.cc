// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The exact step of real problems, on a device, real or emulated, against stock
// Ceres with the same options: the same accepted and rejected steps, the same
// costs, the same end.

#include <cstdint>
#include <string>
#include <tuple>

#include "ceres/ceres.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/solve.h"
#include "gtest/gtest.h"
#include "problem_io/bal_problem.h"
#include "problem_io/bal_reader.h"
#include "tests/bal/bal_test_util.h"
#include "tests/common/has_cudss.h"
#include "tests/common/has_device.h"
#include "tests/common/same_steps.h"

namespace ceres_ext::bal {
namespace {

// Problem, and how S is factorised.
class BalExactStepTest : public ::testing::TestWithParam<
                             std::tuple<const char*, SchurFactorizationType>> {
};

TEST_P(BalExactStepTest, TakesTheStepsOfStock) {
  const auto& [file, factorization] = GetParam();
  if (!HasDevice()) {
    GTEST_SKIP() << "skipped: no device for a factorisation";
  }
  if (factorization == SCHUR_FACTORIZATION_SPARSE && !HasCudss()) {
    GTEST_SKIP() << "skipped: no cuDSS for sparse matrices";
  }
  const std::string path = FindBalFile(file);
  if (path.empty()) {
    GTEST_SKIP() << SkippedForLackOf(file);
  }
  BalProblem start;
  std::string error;
  ASSERT_TRUE(ReadBalFile(path, &start, &error)) << error;
  ceres::Solver::Options options;
  options.linear_solver_type = ceres::DENSE_SCHUR;
  options.max_num_iterations = 12;
  options.num_threads = 2;
  options.function_tolerance = 0.0;
  Options ext_options;
  ext_options.device = DEVICE_CUDA;
  ext_options.fallback = FALLBACK_REFUSE;
  ext_options.schur_factorization = factorization;
  Summary ours;
  ceres::Solver::Summary stock;
  for (const bool is_stock : {false, true}) {
    BalProblem problem = start;
    ceres::Problem rows;
    for (int64_t k = 0; k < problem.num_observations(); ++k) {
      rows.AddResidualBlock(
          CreateBalReprojectionError(problem.observations[2 * k],
                                     problem.observations[2 * k + 1]),
          nullptr,
          &problem.cameras[9 * problem.camera_index[k]],
          &problem.points[3 * problem.point_index[k]]);
    }
    if (is_stock) {
      ceres::Solve(options, &rows, &stock);
    } else {
      Solve(options, ext_options, &rows, &ours);
    }
  }
  ASSERT_EQ(ours.path, PATH_FULL) << ours.path_reason << ours.message;
  ASSERT_EQ(ours.iterations.size(), stock.iterations.size());
  EXPECT_GE(ExpectSameSteps(ours, stock), 5u);
}

INSTANTIATE_TEST_SUITE_P(
    Real,
    BalExactStepTest,
    ::testing::Combine(::testing::Values("ladybug-49-7776-pre.txt.bz2",
                                         "dubrovnik-16-22106-pre.txt.bz2",
                                         "trafalgar-21-11315-pre.txt.bz2"),
                       ::testing::Values(SCHUR_FACTORIZATION_DENSE,
                                         SCHUR_FACTORIZATION_SPARSE)),
    [](const auto& info) {
      const std::string file = std::get<0>(info.param);
      return file.substr(0, file.find('-')) +
             (std::get<1>(info.param) == SCHUR_FACTORIZATION_DENSE ? "_dense"
                                                                   : "_sparse");
    });

}  // namespace
}  // namespace ceres_ext::bal
