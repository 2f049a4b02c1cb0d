// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Batches on a device whose n-th call fails, or the n-th and all later ones:
// allocations, copies and launches among them. Windows are solved by the device
// or the host, or keep their start where the host may not; nothing leaks.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ceres_ext/solve.h"
#include "ceres_ext/window_solver.h"
#include "cuda_kernels/machine/cuda_process.h"
#include "gtest/gtest.h"
#include "tests/common/has_device.h"
#include "tests/front/batch_cases.h"
#include "tests/front/others_capture.h"
#include "tests/kernels/cuda_faults.h"

namespace ceres_ext {
namespace {

// In pieces, so that one is done when another fails.
std::vector<Case> ManyCases() {
  std::vector<Case> cases;
  for (int i = 0; i < 12; ++i) {
    cases.push_back(MakeCase(3, 60, 3, 9, 700 + i));
    cases.back().camera_is_constant[0] = 1;
  }
  return cases;
}

struct Outcome {
  bool is_solved = false;
  std::string error;
  BatchSummary summary;
  std::vector<double> cameras;
};

Outcome ByBatch(const std::vector<Case>& cases, FallbackType fallback) {
  Options ext_options;
  ext_options.device = DEVICE_CUDA;
  ext_options.fallback = fallback;
  ext_options.cuda_memory_limit_bytes = int64_t{1} << 19;
  Batch batch(cases, nullptr);
  Outcome outcome;
  outcome.is_solved = SolveBatch(SomeOptions(),
                                 ext_options,
                                 &batch.batch,
                                 &outcome.summary,
                                 &outcome.error);
  outcome.cameras = batch.cameras;
  return outcome;
}

Outcome ByWindowSolver(const std::vector<Case>& cases, FallbackType fallback) {
  Options ext_options;
  ext_options.device = DEVICE_CUDA;
  ext_options.fallback = fallback;
  WindowCapacity capacity;
  capacity.num_cameras = 3;
  capacity.num_points = 60;
  capacity.num_rows = 180;
  capacity.num_problems = 12;
  capacity.num_submissions = 1;
  Batch batch(cases, nullptr);
  Outcome outcome;
  const auto solver = WindowSolver::Create(
      SomeOptions(), ext_options, capacity, &outcome.error);
  if (solver != nullptr) {
    outcome.is_solved = solver->Wait(
        solver->Submit(batch.batch, &outcome.error), &outcome.summary);
  }
  outcome.cameras = batch.cameras;
  return outcome;
}

using Door = Outcome (*)(const std::vector<Case>&, FallbackType);

void ExpectOutcomes(Door solve, FallbackType fallback, bool and_all_later) {
  const std::vector<Case> cases = ManyCases();
  const Batch start(cases, nullptr);
  ReleaseIdle();
  const int64_t held = cuda_faults().num_held();
  const int64_t bytes = kernels::ProcessBytes(0);
  cuda_faults().Start(0, false);
  const Outcome expected = solve(cases, fallback);
  cuda_faults().Stop();
  const int64_t num_calls = cuda_faults().num_calls();
  ASSERT_TRUE(expected.is_solved) << expected.error;
  ASSERT_EQ(expected.summary.num_windows, 12);
  ASSERT_GT(num_calls, 20);
  std::map<std::string, int> counts;
  for (int64_t n = 1; n <= num_calls + 1; ++n) {
    ReleaseIdle();
    cuda_faults().Start(n, and_all_later);
    const Outcome outcome = solve(cases, fallback);
    cuda_faults().Stop();
    ReleaseIdle();
    SCOPED_TRACE(std::to_string(n) + " " + cuda_faults().failed_call());
    EXPECT_EQ(cuda_faults().num_held(), held);
    EXPECT_EQ(kernels::ProcessBytes(0), bytes);
    if (!outcome.is_solved) {
      EXPECT_EQ(fallback, FALLBACK_REFUSE) << outcome.error;
      EXPECT_FALSE(outcome.error.empty());
      EXPECT_EQ(outcome.cameras, start.cameras);
      ++counts["refused"];
      continue;
    }
    ASSERT_EQ(outcome.summary.problems.size(), 12u);
    for (int i = 0; i < 12; ++i) {
      const ProblemSummary& one = outcome.summary.problems[i];
      if (!one.IsSolutionUsable()) {
        EXPECT_EQ(fallback, FALLBACK_REFUSE) << one.message;
        EXPECT_FALSE(one.message.empty());
        EXPECT_TRUE(std::equal(start.cameras.begin() + 27 * i,
                               start.cameras.begin() + 27 * (i + 1),
                               outcome.cameras.begin() + 27 * i));
        ++counts["failed"];
        continue;
      }
      // The device's bits, or the host's, which differ by rounding in each of a
      // few steps.
      EXPECT_NEAR(one.final_cost,
                  expected.summary.problems[i].final_cost,
                  1e-6 * one.final_cost);
      ++counts["solved"];
    }
  }
  // Both the fault in time and that of nothing are among them.
  EXPECT_GT(counts["solved"], 0);
  EXPECT_EQ(counts["failed"] + counts["refused"] > 0,
            fallback == FALLBACK_REFUSE);
}

TEST(BatchFaults, EveryCall) {
  if (!HasDevice()) {
    GTEST_SKIP() << "skipped: no CUDA device";
  }
  for (const Door door : {&ByBatch, &ByWindowSolver}) {
    SCOPED_TRACE(door == &ByBatch ? "SolveBatch" : "WindowSolver");
    for (const bool and_all_later : {false, true}) {
      SCOPED_TRACE(and_all_later);
      ExpectOutcomes(door, FALLBACK_TO_CERES, and_all_later);
      ExpectOutcomes(door, FALLBACK_REFUSE, and_all_later);
    }
  }
}

TEST(BatchFaults, BesideACaptureOfAnotherThread) {
  if (!HasDevice()) {
    GTEST_SKIP() << "skipped: no CUDA device";
  }
  const std::vector<Case> cases = ManyCases();
  for (const Door door : {&ByBatch, &ByWindowSolver}) {
    SCOPED_TRACE(door == &ByBatch ? "SolveBatch" : "WindowSolver");
    const Outcome expected = door(cases, FALLBACK_REFUSE);
    ASSERT_TRUE(expected.is_solved) << expected.error;
    ReleaseIdle();
    OthersCapture others;
    const Outcome outcome = door(cases, FALLBACK_REFUSE);
    EXPECT_EQ(others.End(), "");
    ReleaseIdle();
    EXPECT_EQ(OthersCapture::CaptureMode(), 0);
    ASSERT_TRUE(outcome.is_solved) << outcome.error;
    EXPECT_EQ(outcome.summary.num_windows, 12);
    EXPECT_EQ(outcome.cameras, expected.cameras);
  }
}

}  // namespace
}  // namespace ceres_ext
