// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ceres_ext/base/failure.h"
#include "ceres_ext/base/scoped_seconds.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/front/batch_of_problems.h"
#include "ceres_ext/front/ranks.h"
#include "ceres_ext/plan/device_choice.h"
#include "ceres_ext/session/idle_machines.h"
#include "ceres_ext/session/kept_machines.h"
#include "ceres_ext/small/batch_bounds.h"
#include "ceres_ext/small/batch_solve.h"
#include "ceres_ext/small/lane.h"
#include "ceres_ext/small/marginal.h"
#include "ceres_ext/small/one_of_batch.h"
#include "ceres_ext/small/window/window_rows.h"
#include "ceres_ext/solve.h"
#include "ceres_ext/under_ceres/solve_once.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {
namespace {

// Residuals of a residual block of each array; 0 if it has no cost function,
// which windows and fits have.
std::vector<int> NumResiduals(const ArrayProblem& problem) {
  std::vector<int> num_residuals;
  for (const ArrayProblem::Residuals& residuals : problem.residuals()) {
    std::unique_ptr<const ceres::CostFunction> owner;
    const ceres::CostFunction* const first =
        residuals.num_blocks > 0 ? FirstCostFunction(residuals, &owner)
                                 : nullptr;
    num_residuals.push_back(first != nullptr ? first->num_residuals() : 0);
  }
  return num_residuals;
}

// Counts the blocks and residual blocks of problem i as they were given.
void CountAll(const ProblemBatch& batch,
              int64_t i,
              const std::vector<int>& num_residuals_of_row,
              Summary* summary) {
  const auto& parameters = batch.problem.parameters();
  const auto& residuals = batch.problem.residuals();
  int64_t num_blocks = 0;
  int64_t num_parameters = 0;
  int64_t num_rows = 0;
  int64_t num_residuals = 0;
  for (size_t a = 0; a < parameters.size(); ++a) {
    const int64_t n =
        batch.parameter_begin[a][i + 1] - batch.parameter_begin[a][i];
    num_blocks += n;
    num_parameters += n * parameters[a].size;
  }
  for (size_t r = 0; r < residuals.size(); ++r) {
    const int64_t n =
        batch.residual_begin[r][i + 1] - batch.residual_begin[r][i];
    num_rows += n;
    num_residuals += n * num_residuals_of_row[r];
  }
  summary->num_parameter_blocks = static_cast<int>(num_blocks);
  summary->num_parameters = static_cast<int>(num_parameters);
  summary->num_residual_blocks = static_cast<int>(num_rows);
  summary->num_residuals = static_cast<int>(num_residuals);
}

// Checks the options, calls run and sets *error, for both kinds of batches.
// run(failure) returns false, with the failure set, if nothing was solved.
template <typename Function>
bool SolveAll(const BatchCall& call, const Function& run, std::string* error) {
  Failure failure;
  const bool is_done = failure.Guard(false, [&] {
    std::string reason;
    if (!CanSolve(
            call.options, call.ext_options, /*problem=*/nullptr, &reason) ||
        !HasNoRanks(call.ext_options, "a batch", &reason) ||
        !call.options.IsValid(&reason)) {
      failure.Set(reason);
      return false;
    }
    call.Prepare(0);
    if (!run(&reason)) {
      failure.Set(reason);
      return false;
    }
    call.summary->total_time_in_seconds = call.clock.seconds();
    return true;
  });
  if (!is_done && error != nullptr) {
    AssignOrShorten(failure.sentence(), error);
  }
  return is_done;
}

// Solves a part of a list. False, with a sentence in *reason, or an exception:
// nothing has changed.
bool SolvePart(const BatchCall& call,
               const std::vector<ceres::Problem*>& problems,
               const BatchOfProblems::Part& of_list,
               KeptMachines* machines,
               std::string* reason) {
  const std::vector<int64_t>& numbers = of_list.numbers;
  const auto m = static_cast<int64_t>(numbers.size());
  BatchSummary part;
  std::vector<Summary> full_part;
  const BatchCall of_part{
      call.options,
      call.ext_options,
      call.clock,
      call.stop,
      &part,
      call.full_summaries != nullptr ? &full_part : nullptr};
  of_part.Prepare(m);
  if (!SolveKinds(of_part, of_list.table->batch(), machines, reason)) {
    return false;
  }
  BatchSummary& summary = *call.summary;
  for (int64_t k = 0; k < m; ++k) {
    const int64_t i = numbers[k];
    if (part.problems[k].IsSolutionUsable()) {
      of_list.table->Write(k);
    }
    summary.problems[i] = std::move(part.problems[k]);
    Summary* const full = call.full_summary(i);
    if (full != nullptr && summary.problems[i].IsSolvedWhole()) {
      *full = std::move(full_part[k]);
      full->num_parameter_blocks = problems[i]->NumParameterBlocks();
      full->num_parameters = problems[i]->NumParameters();
      full->num_residual_blocks = problems[i]->NumResidualBlocks();
      full->num_residuals = problems[i]->NumResiduals();
    }
  }
  if (!part.device.empty()) {
    AssignOrShorten(part.device.c_str(), &summary.device);
  }
  summary.num_windows += part.num_windows;
  summary.pack_time_in_seconds += part.pack_time_in_seconds;
  summary.window_time_in_seconds += part.window_time_in_seconds;
  return true;
}

bool SolveArrays(const BatchCall& call,
                 ProblemBatch* batch,
                 std::string* reason) {
  if (batch == nullptr) {
    *reason = "batch is null; expected a ceres_ext::ProblemBatch";
    return false;
  }
  BorrowedMachines machines(call.ext_options);
  if (!IsValidBatch(
          *batch, machines->host_context(call.options.num_threads), reason)) {
    return false;
  }
  call.Prepare(batch->num_problems);
  if (batch->num_problems == 0) {
    return true;
  }
  call.summary->marginals.resize(batch->drop.any() ? batch->num_problems : 0);
  call.summary->covariances.resize(
      batch->covariance_is_wanted.empty() ? 0 : batch->num_problems);
  // These take memory, and nothing has been solved yet.
  kernels::HostContext* const context =
      machines->host_context(call.options.num_threads);
  std::vector<MarginalMemory>& memory =
      MemoryOfSmall(machines.get())->of_marginals;
  memory.resize(std::max<size_t>(memory.size(), context->num_threads()));
  const std::vector<int> num_residuals = call.full_summaries == nullptr
                                             ? std::vector<int>()
                                             : NumResiduals(batch->problem);
  const Options of_one = WithOneDevice(call.ext_options);
  if (!SolveKinds(call, *batch, machines.get(), reason)) {
    return false;
  }
  SolveOthers(call, [&](int64_t i, const ceres::Solver::Options& options) {
    SolveOther(options,
               of_one,
               *batch,
               i,
               &call.summary->problems[i],
               call.full_summary(i));
  });
  ForEach(context,
          static_cast<int64_t>(call.summary->marginals.size()),
          [&](int64_t i, int slot) {
            MarginalizeSolved(*batch,
                              i,
                              call.summary->problems[i],
                              &memory[slot],
                              &call.summary->marginals[i]);
          });
  ceres::Solver::Options of_covariance = call.options;
  of_covariance.num_threads = 1;
  ForEach(context,
          static_cast<int64_t>(call.summary->covariances.size()),
          [&](int64_t i, int /*slot*/) {
            FindCovariance(of_covariance,
                           of_one,
                           *batch,
                           i,
                           call.summary->problems[i],
                           &call.summary->covariances[i]);
          });
  for (int64_t i = 0; i < batch->num_problems && call.full_summaries != nullptr;
       ++i) {
    if (call.summary->problems[i].IsSolvedWhole()) {
      CountAll(*batch, i, num_residuals, call.full_summary(i));
    }
  }
  return true;
}

bool SolveList(const BatchCall& call,
               const std::vector<ceres::Problem*>& problems,
               std::string* reason) {
  BorrowedMachines machines(call.ext_options);
  BatchOfProblems batches(&problems,
                          machines->host_context(call.options.num_threads));
  if (!batches.AreApart(reason)) {
    return false;
  }
  call.Prepare(static_cast<int64_t>(problems.size()));
  for (const BatchOfProblems::Part& part : batches.MakeParts()) {
    Failure failure;
    const bool is_done = failure.Guard(false, [&] {
      return SolvePart(call, problems, part, machines.get(), reason);
    });
    if (is_done) {
      continue;
    }
    if (!failure.has_happened()) {
      failure.Set(*reason);
    }
    if (call.summary->num_windows == 0) {
      *reason = failure.sentence();
      return false;
    }
    // Problems of other parts are solved.
    for (const int64_t i : part.numbers) {
      call.Fail(i, failure.sentence());
    }
  }
  SolveOthers(call, [&](int64_t i, const ceres::Solver::Options& options) {
    ProblemSummary& of_one = call.summary->problems[i];
    if (of_one.path_reason.empty()) {
      of_one.path_reason = batches.reason(i);
    }
    Summary full;
    Solve(options, call.ext_options, problems[i], &full);
    Summarize(full, &of_one);
    if (call.full_summaries != nullptr) {
      *call.full_summary(i) = std::move(full);
    }
  });
  return true;
}

}  // namespace

bool SolveBatch(const ceres::Solver::Options& options,
                const Options& ext_options,
                ProblemBatch* batch,
                BatchSummary* summary,
                std::string* error,
                std::vector<Summary>* full_summaries,
                const StopFlag* stop) {
  const Clock clock;
  const BatchCall call{
      options, ext_options, clock, stop, summary, full_summaries};
  return SolveAll(
      call,
      [&](std::string* reason) { return SolveArrays(call, batch, reason); },
      error);
}

bool SolveBatch(const ceres::Solver::Options& options,
                const Options& ext_options,
                const std::vector<ceres::Problem*>& problems,
                BatchSummary* summary,
                std::string* error,
                std::vector<Summary>* full_summaries,
                const StopFlag* stop) {
  const Clock clock;
  const BatchCall call{
      options, ext_options, clock, stop, summary, full_summaries};
  return SolveAll(
      call,
      [&](std::string* reason) { return SolveList(call, problems, reason); },
      error);
}

}  // namespace ceres_ext
