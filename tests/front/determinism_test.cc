// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The promises of docs/determinism.md on whole solves: the same bits for any
// number of threads, wherever the parameters lie, in every process.

#include <cstdint>
#include <string>
#include <vector>

#include "ceres_ext/solve.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/bits.h"
#include "tests/common/has_device.h"
#include "tests/common/row_kinds.h"

namespace ceres_ext {
namespace {

#ifdef CERES_EXT_EMULATED
constexpr int kThreads[] = {1, 1};  // It can be used once.
#else
constexpr int kThreads[] = {1, 1, 2, 3, 7, 16};
#endif

// Parameters and all that a loop sees of a solve: more rows and points than a
// chunk has.
std::vector<double> SolveOnce(Kind kind, int num_threads, bool order_is_given) {
  Case solved(kind, num_threads, MakeBalTestProblem(20, 3000, 4, 9));
  solved.options.max_num_iterations = 4;
  if (!order_is_given) {
    solved.options.linear_solver_ordering = nullptr;
  }
  solved.ext_options.device = kDevice;
  Summary summary;
  Solve(solved.options, solved.ext_options, solved.problem.get(), &summary);
  EXPECT_EQ(summary.path, PATH_FULL) << summary.path_reason;
  EXPECT_GT(summary.num_successful_steps, 1);
  std::vector<double> bits = solved.bal.Values();
  for (const auto& iteration : summary.iterations) {
    bits.push_back(iteration.cost);
    bits.push_back(iteration.gradient_norm);
    bits.push_back(iteration.step_norm);
    bits.push_back(iteration.linear_solver_iterations);
  }
  return bits;
}

class Determinism : public ::testing::TestWithParam<Kind> {};

INSTANTIATE_TEST_SUITE_P(
    Kinds,
    Determinism,
    ::testing::Values(Kind::kObservations, Kind::kViews, Kind::kGeneralRows),
    [](const auto& info) { return std::string(Name(info.param)); });

TEST_P(Determinism, AnyNumberOfThreadsAndAnyAddresses) {
  for (const bool order_is_given : {true, false}) {
    std::vector<std::vector<double>> kept;  // So that addresses differ.
    uint64_t first = 0;
    for (const int num_threads : kThreads) {
      kept.push_back(SolveOnce(GetParam(), num_threads, order_is_given));
      const uint64_t hash = HashOfBits(kept.back());
      first = kept.size() == 1 ? hash : first;
      EXPECT_EQ(hash, first) << num_threads << " threads";
    }
  }
}

// Addresses of other processes differ in all their pages.
TEST_P(Determinism, AnyProcess) {
  const uint64_t hash = HashOfBits(SolveOnce(GetParam(), 1, false));
  if (IsAnotherProcess(hash)) {
    return;
  }
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(HashOfAnotherProcess(), hash);
  }
}

}  // namespace
}  // namespace ceres_ext
