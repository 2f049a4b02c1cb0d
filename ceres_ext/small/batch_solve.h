// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Solves the problems of a batch: those of a kind (kind.h) in pieces that a
// queue sends and waits for, all others by ceres_ext::Solve.

#ifndef CERES_EXT_SMALL_BATCH_SOLVE_H_
#define CERES_EXT_SMALL_BATCH_SOLVE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ceres/solver.h"
#include "ceres_ext/base/failure.h"
#include "ceres_ext/base/scoped_seconds.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/options.h"
#include "ceres_ext/session/kept_machines.h"
#include "ceres_ext/small/one_of_batch.h"
#include "ceres_ext/summary.h"

namespace ceres_ext {

// A call of SolveBatch. All outlive it.
struct BatchCall {
  const ceres::Solver::Options& options;
  const Options& ext_options;
  const Clock& clock;
  const StopFlag* stop = nullptr;  // or null
  BatchSummary* summary = nullptr;
  std::vector<Summary>* full_summaries = nullptr;  // or null

  bool IsStopped() const { return stop != nullptr && stop->IsStopped(); }
  const int32_t* stop_value() const {
    return stop != nullptr ? stop->value() : nullptr;
  }
  Summary* full_summary(int64_t i) const {
    return full_summaries != nullptr ? &(*full_summaries)[i] : nullptr;
  }
  // Makes empty summaries of n problems.
  void Prepare(int64_t n) const;
  // Problem i was not solved.
  void Fail(int64_t i, const char* why) const;
};

// Solves the problems of each kind, on the devices that the options name.
// False, with a sentence in *error, if nothing was solved: the device that was
// asked for cannot be used and the host may not replace it, or there was no
// memory. If memory ends later, the problems that are not solved end with that
// sentence.
bool SolveKinds(const BatchCall& call,
                const ProblemBatch& batch,
                KeptMachines* machines,
                std::string* error);

// Calls fn(). If it throws, *message says so.
template <typename Function>
void TryOrSay(const Function& fn, std::string* message) {
  Failure failure;
  failure.Guard(false, [&] {
    fn();
    return true;
  });
  if (failure.has_happened()) {
    AssignOrShorten(failure.sentence(), message);
  }
}

// Calls solve(i, options) for the problems that are of no kind, unless the call
// is stopped. The options can be stopped.
template <typename Function>
void SolveOthers(const BatchCall& call, const Function& solve) {
  const ScopedSeconds time(&call.summary->other_time_in_seconds);
  const auto n = static_cast<int64_t>(call.summary->problems.size());
  for (int64_t i = 0; i < n; ++i) {
    ProblemSummary& summary = call.summary->problems[i];
    if (summary.IsSolvedWhole()) {
      continue;
    }
    TryOrSay(
        [&] {
          if (call.IsStopped()) {
            SummarizeUnbegun(&summary, call.full_summary(i));
          } else {
            StoppableOptions stoppable(call.options, call.stop_value());
            solve(i, stoppable.options());
          }
        },
        &summary.message);
    summary.latency_in_seconds = call.clock.seconds();
  }
}

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_BATCH_SOLVE_H_
