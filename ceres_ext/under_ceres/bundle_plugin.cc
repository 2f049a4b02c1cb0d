// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/under_ceres/bundle_plugin.h"

#include <cstdio>
#include <limits>
#include <utility>

#include "ceres/parameter_block.h"
#include "ceres/problem_impl.h"
#include "ceres/program.h"
#include "ceres/types.h"
#include "ceres_ext/base/report.h"
#include "ceres_ext/base/scoped_seconds.h"
#include "ceres_ext/plan/solve_plan.h"
#include "ceres_ext/under_ceres/no_minimum.h"
#include "ceres_ext/under_ceres/small_solve.h"
#include "ceres_ext/under_ceres/solver_options.h"
#include "cuda_kernels/machine/communicator.h"

namespace ceres_ext {

using ceres::internal::PreprocessedProblem;
using kernels::Status;
using kernels::StatusCode;

std::string PathInBrackets(const Summary& summary, const std::string& reason) {
  return std::string(" [Ceres Ext: path ") + SolvePathToString(summary.path) +
         (summary.path == PATH_CERES ? "" : " on " + summary.device) + ", " +
         WithoutPeriod(reason) + ".]";
}

BundlePlugin::BundlePlugin(const Options& options, bool append_to_message)
    : options_(Attempt().Apply(options)),
      append_to_message_(append_to_message),
      arrays_(nullptr),
      own_machines_(std::make_unique<BorrowedMachines>(options_)),
      kept_(own_machines_->get()) {
  Decline("Ceres ended before it asked for a linear solver");
}

BundlePlugin::BundlePlugin(const Options& options,
                           int num_threads,
                           ArrayImport* arrays,
                           KeptMachines* kept)
    : options_(options),
      append_to_message_(false),
      arrays_(arrays),
      num_threads_(num_threads),
      kept_(kept) {
  Decline("Ceres ended before it asked for a linear solver");
}

BundlePlugin::~BundlePlugin() {
  if (own_machines_ != nullptr && failure_.has_happened()) {
    own_machines_->Discard();
  }
}

void BundlePlugin::Decline(const std::string& reason) {
  record_.path = PATH_CERES;
  record_.path_reason = reason;
}

ceres::CallbackReturnType BundlePlugin::Watch::operator()(
    const ceres::IterationSummary& /*summary*/) {
  if (plugin_->machine() != nullptr && !plugin_->machine()->IsAlive()) {
    plugin_->failure_.Set(
        Status(StatusCode::kDeviceError,
               "The device was reset, or broken by a kernel, in a callback."));
  }
  return ceres::SOLVER_CONTINUE;
}

void BundlePlugin::RankWatch::TakeOver(ceres::Solver::Options* options) {
  callbacks_ = options->callbacks;
  max_seconds_ = options->max_solver_time_in_seconds;
  options->callbacks = {this};
  options->max_solver_time_in_seconds = std::numeric_limits<double>::max();
  if (plugin_->options_.communicator->rank() != 0) {
    options->minimizer_progress_to_stdout = false;
    options->logging_type = ceres::SILENT;
  }
}

ceres::CallbackReturnType BundlePlugin::RankWatch::operator()(
    const ceres::IterationSummary& summary) {
  constexpr int32_t kTimeIsUp = -1;
  kernels::Communicator* const communicator = plugin_->options_.communicator;
  int32_t decision = ceres::SOLVER_CONTINUE;
  if (communicator->rank() == 0) {
    for (ceres::IterationCallback* const callback : callbacks_) {
      if (decision == ceres::SOLVER_CONTINUE) {
        decision = (*callback)(summary);
      }
    }
    if (decision == ceres::SOLVER_CONTINUE &&
        summary.cumulative_time_in_seconds >= max_seconds_) {
      decision = kTimeIsUp;
    }
  }
  std::vector<int32_t> all(static_cast<size_t>(communicator->size()));
  std::string error;
  if (!communicator->AllGather(
          &decision, sizeof(decision), all.data(), &error)) {
    plugin_->failure_.Set(error);
    return ceres::SOLVER_CONTINUE;
  }
  if (all[0] == kTimeIsUp) {
    has_timed_out_ = true;
    seconds_ = summary.cumulative_time_in_seconds;
    return ceres::SOLVER_TERMINATE_SUCCESSFULLY;
  }
  return static_cast<ceres::CallbackReturnType>(all[0]);
}

void BundlePlugin::RankWatch::Finish(ceres::Solver::Summary* summary) const {
  if (has_timed_out_ && summary->termination_type == ceres::USER_SUCCESS) {
    char text[160];
    std::snprintf(text,
                  sizeof(text),
                  "Maximum solver time reached. Total solver time: %e >= %e.",
                  seconds_,
                  max_seconds_);
    summary->termination_type = ceres::NO_CONVERGENCE;
    summary->message = text;
  }
}

// Owns it after a failure too: then Ceres goes on to SetupLinearSolver, which
// ends the solve, and orders nothing on the way.
bool BundlePlugin::OwnsOrdering(PreprocessedProblem* pp) {
  const auto is_taken = [&] {
    if (Take(pp)) {
      return true;
    }
    std::string error;
    if (arrays_ == nullptr && !CanBeSolvedByCeres(*pp, &error)) {
      failure_.Set(error + ".");
    }
    return false;
  };
  return failure_.Guard(true, is_taken) || failure_.has_happened();
}

bool BundlePlugin::Take(PreprocessedProblem* pp) {
  if (pp->options.linear_solver_type == ceres::CGNR &&
      pp->options.preconditioner_type == ceres::SCHUR_POWER_SERIES_EXPANSION) {
    // No eliminated block varies, so Ceres has put CGNR for ITERATIVE_SCHUR and
    // JACOBI for the preconditioners that it thinks of. CGNR aborts on this
    // one.
    pp->options.preconditioner_type = ceres::JACOBI;
  }
  if (!options_.enabled) {
    Decline("this library is switched off (enabled = false)");
    return false;
  }
  ScopedSeconds timer(&record_.setup_time_in_seconds);
  if (num_threads_ == 0) {
    num_threads_ = pp->options.num_threads;
  }
  setup_.emplace(SolveInput{options_,
                            num_threads_,
                            attempt_,
                            Purpose::kSolve,
                            arrays_,
                            kept_,
                            &failure_,
                            &record_});
  if (!setup_->Take(pp)) {
    return false;
  }
  if (!attempt_.why_double.empty()) {
    record_.path_reason +=
        "; in double, since the solve failed in mixed precision";
  }
  if (options_.communicator != nullptr) {
    record_.path_reason +=
        "; " + std::to_string(options_.communicator->size()) + " ranks solve";
    rank_watch_.TakeOver(&pp->options);
  }
  if (setup_->is_on_device() && !pp->options.callbacks.empty()) {
    pp->options.callbacks.push_back(&watch_);
  }
  return true;
}

bool BundlePlugin::SetupLinearSolver(PreprocessedProblem* pp) {
  const bool ok = failure_.Guard(false, [&] {
    if (arrays_ != nullptr && !IsTaken()) {
      pp->error = Reason();
      return false;
    }
    if (arrays_ != nullptr) {
      pp->fixed_cost = arrays_->fixed_cost();
      std::vector<double> scratch;
      const Status status =
          options_.communicator == nullptr
              ? Status()
              : kernels::SumOverRanks(
                    1, &pp->fixed_cost, &scratch, options_.communicator);
      if (!status.ok()) {
        failure_.Set(status);
        return false;
      }
    }
    if (record_.path == PATH_CERES && options_.enabled &&
        !MayFallBack(options_) && !failure_.has_happened()) {
      pp->error =
          "Ceres Ext refuses the problem: " + WithoutPeriod(Reason()) + ".";
      return false;
    }
    if (machine() != nullptr) {
      pp->linear_solver = std::move(setup_->objects()->linear_solver);
    } else if (IsSmall()) {
      SetupSmallLinearSolver(pp, &failure_, &record_);
    }
    return true;
  });
  if (failure_.has_happened()) {
    record_.path_reason.clear();
    AssignOrShorten(failure_.sentence(), &pp->error);
    return false;
  }
  return ok;
}

bool BundlePlugin::SetupEvaluator(PreprocessedProblem* pp) {
  if (machine() != nullptr) {
    record_.transfer_bytes = -machine()->copied_bytes();
    pp->evaluator = std::move(setup_->objects()->evaluator);
  }
  return !IsSmall() || SetupSmallEvaluator(pp, &failure_);
}

std::shared_ptr<ceres::internal::TrustRegionVectors>
BundlePlugin::CreateTrustRegionVectors(PreprocessedProblem* pp) {
  if (arrays_ != nullptr) {
    pp->minimizer_options.is_constrained = arrays_->is_constrained();
  }
  return machine() != nullptr ? std::move(setup_->objects()->vectors) : nullptr;
}

void BundlePlugin::Finish(const PreprocessedProblem& pp,
                          ceres::Solver::Summary* summary) {
  is_finished_ = true;
  // Which by now can't end the solve.
  Failure late;
  late.Guard(false, [&] {
    FinishUnguarded(pp, summary);
    return true;
  });
}

void BundlePlugin::FinishUnguarded(const PreprocessedProblem& pp,
                                   ceres::Solver::Summary* summary) {
  if (pp.options.minimizer_type == ceres::LINE_SEARCH) {
    Decline("minimizer_type LINE_SEARCH has no linear solver");
  }
  if (options_.communicator != nullptr && failure_.has_happened()) {
    // Ranks that have not failed do not come to add up the summaries.
    options_.communicator->Abort(failure_.sentence());
  }
  if (arrays_ != nullptr && IsTaken()) {
    arrays_->FillSummary(summary);
    // Ceres itself has nothing to do.
    summary->num_threads_given = num_threads_;
    summary->num_threads_used = num_threads_;
  }
  if (record_.path == PATH_FULL &&
      ceres::IsSchurType(pp.options.linear_solver_type)) {
    // Ceres sees no block structure where it neither orders nor evaluates.
    summary->schur_structure_given = setup_->schur_structure();
    summary->schur_structure_used = summary->schur_structure_given;
    summary->linear_solver_ordering_used = machine()->NumBlocks();
    if (summary->linear_solver_ordering_used.back() == 0) {
      // Ceres leaves out what is empty.
      summary->linear_solver_ordering_used.pop_back();
    }
  }
  for (DegenerateBlocks* degenerate : {&record_.degenerate_eliminated_blocks,
                                       &record_.degenerate_other_blocks}) {
    NameWorst(pp, degenerate);
  }
  if (machine() != nullptr) {
    record_.transfer_bytes += machine()->copied_bytes();
  }
  rank_watch_.Finish(summary);
  const bool has_failed = summary->termination_type == ceres::FAILURE;
  if (failure_.has_happened()) {
    // One that leaves time for no other step ends at the best state.
    has_result_ = summary->IsSolutionUsable();
    summary->message =
        (has_failed ? "" : summary->message + " ") + failure_.sentence();
  } else if (has_failed && failure_.explanation()[0] != '\0') {
    summary->message += std::string(" ") + failure_.explanation();
  }
  has_failed_ = has_failed;
  has_iterations_ = !summary->iterations.empty();
  if (HasFailedInFloat()) {
    message_ = summary->message;
    summary->message +=
        " Mixed precision keeps the Jacobian in float, which ends at 3.4e38. "
        "With precision = double the solve may succeed.";
  }
  if (EndsAtNoMinimum(*summary)) {
    NameNoMinimum(pp, *summary);
  }
  Report(*summary);
  if (append_to_message_ && !record_.no_minimum.empty()) {
    summary->message += " " + record_.no_minimum;
  }
  if (append_to_message_) {
    summary->message += PathInBrackets(record_, FullReason());
  }
}

void BundlePlugin::NameWorst(const PreprocessedProblem& pp,
                             DegenerateBlocks* degenerate) const {
  if (arrays_ != nullptr) {
    ceres_ext::NameWorst(arrays_->problem(), degenerate);
    return;
  }
  const auto& blocks = pp.problem->program().parameter_blocks();
  for (size_t i = 0; degenerate->count > 0 && i < blocks.size(); ++i) {
    if (blocks[i]->user_state() == degenerate->worst) {
      degenerate->worst_block = static_cast<int64_t>(i);
    }
  }
}

void BundlePlugin::NameNoMinimum(const PreprocessedProblem& pp,
                                 const ceres::Solver::Summary& summary) {
  if (machine() != nullptr && !failure_.has_happened() &&
      !machine()->FindRunawayResiduals(&record_.runaway_residuals).ok()) {
    record_.runaway_residuals.clear();
  }
  NameBlocks([&](DegenerateBlocks* one) { NameWorst(pp, one); },
             &record_.runaway_residuals);
  record_.no_minimum = NoMinimumText(
      summary, record_.num_runaway_trials, record_.num_runaway_residuals);
  nothing_.no_minimum = record_.no_minimum;
}

void BundlePlugin::FinishIfCeresDidNot(const Failure& failure,
                                       const ceres::Solver::Summary& summary) {
  failure_.Set(failure.sentence());
  if (!is_finished_) {
    Failure late;
    late.Guard(false, [&] {
      Report(summary);
      return true;
    });
  }
}

bool BundlePlugin::HasFailedInFloat() const {
  return has_failed_ && !failure_.has_happened() && machine() != nullptr &&
         machine()->has_float_blocks();
}

Outcome BundlePlugin::End() const {
  Outcome outcome;
  if (failure_.is_of_device()) {
    outcome.status = {StatusCode::kDeviceError, failure_.sentence()};
    outcome.on_device = setup_.has_value() && setup_->is_on_device();
    outcome.may_repeat = leaves_no_trace_ && !has_result_;
  } else if (HasFailedInFloat()) {
    outcome.status = {StatusCode::kNumericalFailure, message_};
    outcome.in_float = true;
    outcome.may_repeat = leaves_no_trace_ || !has_iterations_;
  }
  return outcome;
}

std::string BundlePlugin::Reason() const {
  std::string reason =
      (setup_.has_value() ? setup_->choice() : "") + record_.path_reason;
  if (failure_.has_happened() && record_.path_reason != failure_.sentence()) {
    reason += record_.path_reason.empty() ? "" : "; ";
    reason += failure_.sentence();
  }
  return reason;
}

std::string BundlePlugin::FullReason() const {
  return Reason() +
         (attempt_.why_one.empty()
              ? ""
              : "; cuda_devices is not used, because " + attempt_.why_one);
}

void BundlePlugin::Report(const ceres::Solver::Summary& summary) {
  // Arrays that aren't taken are solved, and reported, as a ceres::Problem.
  if (options_.report.empty() ||
      (may_solve_again_ && PartToLeave(options_, attempt_, End()) != nullptr) ||
      (arrays_ != nullptr && !IsTaken() && !HasFailed())) {
    return;
  }
  Summary reported = record_.path == PATH_CERES ? nothing_ : record_;
  reported.path_reason = FullReason();
  static_cast<ceres::Solver::Summary&>(reported) = summary;
  // Ceres knows it only after the plugin's last call.
  reported.total_time_in_seconds = clock_.seconds();
  AppendReport(options_.report, reported);
}

void BundlePlugin::FillSummary(Summary* summary) {
  Failure late;
  late.Guard(false, [&] {
    record_.path_reason = FullReason();
    return true;
  });
  if (late.has_happened() && failure_.has_happened()) {
    AssignOrShorten(failure_.sentence(), &record_.path_reason);
  }
  if (record_.path == PATH_CERES) {
    nothing_.path_reason = std::move(record_.path_reason);
  }
  Summary& filled = record_.path == PATH_CERES ? nothing_ : record_;
  static_cast<ceres::Solver::Summary&>(filled) =
      std::move(static_cast<ceres::Solver::Summary&>(*summary));
  *summary = std::move(filled);
}

}  // namespace ceres_ext
