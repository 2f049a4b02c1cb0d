// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Batches on a system whose n-th allocation, or n-th and all later ones, or
// whose n-th thread fails. Nothing may abort, throw or leak; what fails says so
// and keeps its start.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ceres/problem.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/solve.h"
#include "ceres_ext/window_solver.h"
#include "gtest/gtest.h"
#include "tests/common/scarce_system.h"
#include "tests/front/batch_cases.h"

namespace ceres_ext {
namespace {

struct Outcome {
  bool is_solved = false;
  std::string error;
  BatchSummary summary;
  std::vector<Summary> full_summaries;
};

constexpr int kNumProblems = 3;

std::vector<Case> FewCases() {
  std::vector<Case> cases;
  for (int i = 0; i < kNumProblems; ++i) {
    cases.push_back(MakeCase(2, 8, 2, 9, 800 + i));
    cases.back().camera_is_constant[0] = 1;
  }
  return cases;
}

ceres::Solver::Options FewIterations() {
  ceres::Solver::Options options = SomeOptions();
  options.max_num_iterations = 3;
  return options;
}

Options OnHost() {
  Options ext_options;
  ext_options.device = DEVICE_HOST;
  return ext_options;
}

void ByBatch(Batch* batch, Outcome* outcome) {
  outcome->is_solved = SolveBatch(FewIterations(),
                                  OnHost(),
                                  &batch->batch,
                                  &outcome->summary,
                                  &outcome->error,
                                  &outcome->full_summaries);
}

void ByWindowSolver(Batch* batch, Outcome* outcome) {
  WindowCapacity capacity;
  capacity.num_cameras = 2;
  capacity.num_points = 8;
  capacity.num_rows = 16;
  capacity.num_problems = kNumProblems;
  capacity.num_submissions = 1;
  const auto solver = WindowSolver::Create(
      FewIterations(), OnHost(), capacity, &outcome->error);
  if (solver != nullptr) {
    outcome->is_solved = solver->Wait(
        solver->Submit(batch->batch, &outcome->error), &outcome->summary);
  }
}

// The same problems as objects that refer to the batch's arrays.
void ByList(Batch* batch, Outcome* outcome) {
  std::vector<std::unique_ptr<ceres::Problem>> owned;
  std::vector<ceres::Problem*> problems;
  for (int i = 0; i < kNumProblems; ++i) {
    owned.push_back(std::make_unique<ceres::Problem>());
    problems.push_back(owned.back().get());
    for (int64_t k = batch->row_begin[i]; k < batch->row_begin[i + 1]; ++k) {
      owned[i]->AddResidualBlock(
          CreateBalReprojectionError(batch->observations[2 * k],
                                     batch->observations[2 * k + 1]),
          nullptr,
          &batch->cameras[9 * batch->camera_id[k]],
          &batch->points[3 * batch->point_id[k]]);
    }
  }
  outcome->is_solved = SolveBatch(FewIterations(),
                                  OnHost(),
                                  problems,
                                  &outcome->summary,
                                  &outcome->error,
                                  &outcome->full_summaries);
}

using Door = void (*)(Batch* batch, Outcome* outcome);

// Returns what has gone wrong.
std::string FaultOfOne(Door solve,
                       const Scarcity& allocations,
                       const Scarcity& threads) {
  const std::vector<Case> cases = FewCases();
  Batch batch(cases, nullptr);
  const Batch start(cases, nullptr);
  ReleaseIdle();
  const int64_t num_live_blocks = NumLiveBlocks();
  {
    Outcome outcome;
    bool has_thrown = false;
    MakeScarce(allocations, threads);
    try {
      solve(&batch, &outcome);
    } catch (...) {
      has_thrown = true;
    }
    MakePlentiful();
    ReleaseIdle();
    if (has_thrown) {
      // The test's own problems.
      return solve == &ByList ? "" : "threw";
    }
    if (!outcome.is_solved) {
      if (outcome.error.empty()) {
        return "no sentence";
      }
      return batch.cameras == start.cameras ? "" : "refused, but changed";
    }
    for (int i = 0; i < kNumProblems; ++i) {
      const ProblemSummary& one = outcome.summary.problems[i];
      if (!one.IsSolutionUsable() &&
          !std::equal(start.cameras.begin() + 18 * i,
                      start.cameras.begin() + 18 * (i + 1),
                      batch.cameras.begin() + 18 * i)) {
        return "failed, but changed";
      }
    }
  }
  return NumLiveBlocks() > num_live_blocks ? "leaked" : "";
}

// The first call keeps memory for good, as streams do; the second must not.
std::string FaultOf(Door solve,
                    const Scarcity& allocations,
                    const Scarcity& threads) {
  FaultOfOne(solve, allocations, threads);
  const std::string fault = FaultOfOne(solve, allocations, threads);
  // The C library keeps memory of the most threads that ran at once, which
  // depends on their timing. A leak comes again.
  return fault == "leaked" ? FaultOfOne(solve, allocations, threads) : fault;
}

class ScarceBatch : public ::testing::TestWithParam<Door> {};

TEST_P(ScarceBatch, AllocationOrThreadFails) {
  if (!CanBeScarce()) {
    GTEST_SKIP() << "skipped: the sanitizer has its own malloc";
  }
  ASSERT_EQ(FaultOf(GetParam(), {}, {}), "");
  {
    Batch batch(FewCases(), nullptr);
    Outcome outcome;
    ReleaseIdle();
    MakeScarce({}, {});
    GetParam()(&batch, &outcome);
    MakePlentiful();
    ASSERT_TRUE(outcome.is_solved) << outcome.error;
    ASSERT_EQ(outcome.summary.num_windows, kNumProblems);
  }
  const int64_t num_allocations = NumAllocations();
  const int64_t num_threads = NumThreads();
  ASSERT_GT(num_allocations, 20);
  for (const bool and_all_later : {false, true}) {
    for (int64_t n = 1; n <= num_allocations + 3; ++n) {
      EXPECT_EQ(FaultOf(GetParam(), {n, and_all_later}, {}), "")
          << "allocation " << n << (and_all_later ? " and all later" : "");
    }
    for (int64_t n = 1; n <= num_threads; ++n) {
      EXPECT_EQ(FaultOf(GetParam(), {}, {n, and_all_later}), "")
          << "thread " << n;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Doors,
                         ScarceBatch,
                         ::testing::Values(&ByBatch, &ByWindowSolver, &ByList),
                         [](const ::testing::TestParamInfo<Door>& info) {
                           return std::string(info.param == &ByBatch
                                                  ? "SolveBatch"
                                              : info.param == &ByWindowSolver
                                                  ? "WindowSolver"
                                                  : "ListOfProblems");
                         });

}  // namespace
}  // namespace ceres_ext
