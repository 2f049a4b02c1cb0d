// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/under_ceres/solve_once.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "ceres/context_impl.h"
#include "ceres/parameter_block.h"
#include "ceres/problem_impl.h"
#include "ceres/program.h"
#include "ceres/sized_cost_function.h"
#include "ceres/solver_plugin.h"
#include "ceres_ext/base/ceres_version.h"
#include "ceres_ext/base/failure.h"
#include "ceres_ext/import/array_import.h"
#include "ceres_ext/import/array_rows.h"
#include "ceres_ext/plan/solver_choice.h"
#include "ceres_ext/under_ceres/solver_options.h"
#include "cuda_kernels/machine/communicator.h"

namespace ceres_ext {
namespace {

// The parameter blocks of a problem as they are before a solve, for one that an
// exception takes out of Ceres.
class Start {
 public:
  Start(const ceres::Solver::Options& options, ceres::Problem* problem)
      : program_(problem->mutable_impl()->mutable_program()) {
    // Otherwise Ceres writes to the user's blocks when it ends, with success; a
    // wrong gradient that it then finds is a failure.
    if (options.update_state_every_iteration || options.check_gradients ||
        program_->mutable_evaluation_callback() != nullptr) {
      for (const auto* block : program_->parameter_blocks()) {
        values_.insert(values_.end(),
                       block->user_state(),
                       block->user_state() + block->Size());
      }
    }
  }

  // As Ceres leaves a problem, with the values of the start.
  void Restore() noexcept {
    program_->SetParameterOffsetsAndIndex();
    const double* values = values_.data();
    if (!values_.empty()) {
      for (auto* block : program_->parameter_blocks()) {
        std::copy_n(values, block->Size(), block->mutable_user_state());
        values += block->Size();
      }
    }
    Failure ignored;  // of a user-defined manifold
    ignored.Guard(false, [&] {
      return program_->SetParameterBlockStatePtrsToUserStatePtrs();
    });
  }

 private:
  ceres::internal::Program* program_;
  std::vector<double> values_;
};

// ceres::Solve with as many of the threads as the system has.
void SolveWithThreads(ceres::Solver::Options options,
                      ceres::Problem* problem,
                      ceres::Solver::Summary* summary) {
  ceres::internal::ContextImpl* context = problem->mutable_impl()->context();
  try {
    context->EnsureMinimumThreads(options.num_threads - 1);
  } catch (const std::system_error&) {
    options.num_threads =
        std::min(options.num_threads, 1 + context->thread_pool.Size());
    LOG(WARNING) << "The system refuses threads: " << options.num_threads
                 << " solve.";
  }
  ceres::Solve(options, problem, summary);
}

// True if the caller sees nothing of a solve before it has ended, so that it
// can be done again from the start.
bool LeavesNoTrace(const ceres::Solver::Options& options) {
  return options.callbacks.empty() && !options.update_state_every_iteration;
}

// The problem that Ceres gets instead of a problem of arrays: one parameter
// block that varies, and a residual block on it that is never evaluated.
class Shell {
 public:
  Shell() {
    ceres::Problem::Options options;
    options.cost_function_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
    problem_ = std::make_unique<ceres::Problem>(options);
    problem_->AddResidualBlock(&cost_function_, nullptr, &value_);
  }
  ceres::Problem* problem() { return problem_.get(); }

 private:
  class NoCostFunction final : public ceres::SizedCostFunction<1, 1> {
   public:
    bool Evaluate(double const* const* /*parameters*/,
                  double* /*residuals*/,
                  double** /*jacobians*/) const final {
      return false;
    }
  };
  NoCostFunction cost_function_;
  double value_ = 0.0;
  std::unique_ptr<ceres::Problem> problem_;
};

// The parameters of arrays as they are before a solve that writes to them on
// the way, or nothing.
class ArraysStart {
 public:
  ArraysStart(const ceres::Solver::Options& options,
              const ArrayProblem& problem)
      : problem_(problem) {
    for (const ArrayProblem::Parameters& array : problem.parameters()) {
      if (options.update_state_every_iteration) {
        values_.emplace_back(array.values,
                             array.values + array.num_blocks * array.size);
      }
    }
  }
  void Restore() noexcept {
    for (size_t i = 0; i < values_.size(); ++i) {
      std::copy(values_[i].begin(),
                values_[i].end(),
                problem_.parameters()[i].values);
    }
  }

 private:
  const ArrayProblem& problem_;
  std::vector<std::vector<double>> values_;
};

// True if the ceres::Problem of the same blocks is solved so; both have the
// same bits. Arrays of more residuals are not counted, though the rest may be
// constant.
bool AreSmall(const ceres::Solver::Options& options,
              const Options& ext_options,
              const ArrayProblem& problem,
              kernels::HostContext* context) {
  if (!IsSmallSolve(ext_options, options, 0, 0)) {
    return false;  // Nothing is.
  }
  ArrayRows rows(&problem);
  int64_t num_residuals = 0;
  for (size_t r = 0; r < problem.residuals().size(); ++r) {
    const auto* cost_function = rows.cost_function(static_cast<int>(r));
    num_residuals += cost_function == nullptr
                         ? 0
                         : problem.residuals()[r].num_blocks *
                               cost_function->num_residuals();
  }
  if (num_residuals > kMostSmallResiduals) {
    return false;
  }
  rows.Setup(context);
  return IsSmallSolve(
      ext_options, options, rows.num_residuals(), rows.num_columns());
}

}  // namespace

bool CanSolve(const ceres::Solver::Options& options,
              const Options& ext_options,
              ceres::Problem* problem,
              std::string* error) {
  if (ext_options.IsValid(error)) {
    return CanBeGivenToCeres(
        options, problem == nullptr ? nullptr : problem->mutable_impl(), error);
  }
  *error = "ceres_ext::Options is not valid: " + *error;
  return false;
}

Outcome SolveOnce(const ceres::Solver::Options& options,
                  const Options& ext_options,
                  const Attempt& attempt,
                  ceres::Problem* problem,
                  ceres::Solver::Summary* summary,
                  Summary* ext_summary) {
  Failure failure;
  std::optional<BundlePlugin> plugin;
  std::optional<Start> start;
  failure.Guard(false, [&] {
    if (ext_summary != nullptr) {
      *ext_summary = Summary();
    } else {
      *summary = ceres::Solver::Summary();
    }
    std::string error;
    const Options applied = attempt.Apply(ext_options);
    if (CanSolve(options, applied, problem, &error) && problem == nullptr) {
      error = "problem is null; expected a ceres::Problem";
    }
    if (!error.empty()) {
      LOG(ERROR) << "Terminating: " << error;
      failure.Set(error);
      return false;
    }
    plugin.emplace(applied, /*append_to_message=*/ext_summary == nullptr);
    plugin->SetAttempt(attempt);
    plugin->MayBeRepeated(LeavesNoTrace(options) &&
                          problem->mutable_impl()
                                  ->mutable_program()
                                  ->mutable_evaluation_callback() == nullptr);
    start.emplace(options, problem);
    ceres::internal::ScopedSolverPlugin scoped_plugin(&*plugin);
    SolveWithThreads(options, problem, summary);
    return true;
  });
  if (start.has_value() &&
      (failure.has_happened() ||
       (options.check_gradients && !summary->IsSolutionUsable()))) {
    start->Restore();
  }
  if (failure.has_happened()) {
    summary->termination_type = ceres::FAILURE;
    AssignOrShorten(failure.sentence(), &summary->message);
  }
  Outcome outcome;
  if (plugin.has_value()) {
    plugin->FinishIfCeresDidNot(failure, *summary);
    Failure ignored;  // Then the failure stands.
    ignored.Guard(false, [&] {
      outcome = plugin->End();
      return true;
    });
    if (ext_summary != nullptr) {
      plugin->FillSummary(ext_summary);
    }
  } else if (ext_summary != nullptr) {
    AssignOrShorten(failure.sentence(), &ext_summary->path_reason);
  }
  return outcome;
}

Outcome SolveArraysOnce(const ceres::Solver::Options& options,
                        const Options& ext_options,
                        const Attempt& attempt,
                        const ArrayProblem& problem,
                        const std::vector<DeviceArrayFacts>& device_facts,
                        KeptMachines* kept,
                        Summary* summary) {
  *summary = Summary();  // Earlier attempts may have filled it.
  ArrayImport arrays(&problem, summary, ext_options.communicator);
  std::string reason = ext_options.enabled
                           ? arrays.WhyProblemIsNeeded(options)
                           : "this library is switched off (enabled = false)";
  if (reason.empty() && device_facts.empty() &&
      ext_options.communicator == nullptr &&
      AreSmall(options,
               ext_options,
               problem,
               kept->host_context(options.num_threads))) {
    reason = "a problem of few columns is solved so by linear_solver = auto";
  }
  if (reason.empty() && !device_facts.empty()) {
    arrays.SetDeviceFacts(device_facts);
    reason = arrays.WhyCopied(options);
  }
  if (!reason.empty()) {
    kept->Clear();
    return {Outcome::kNeedsProblem, reason};
  }
  std::optional<BundlePlugin> plugin(std::in_place,
                                     attempt.Apply(ext_options),
                                     options.num_threads,
                                     &arrays,
                                     kept);
  plugin->SetAttempt(attempt);
  plugin->MayBeRepeated(LeavesNoTrace(options));
  // Ceres itself needs no thread.
  ceres::Solver::Options shell_options = options;
  shell_options.num_threads = 1;
  Shell shell;
  ArraysStart start(options, problem);
  Failure failure;
  failure.Guard(false, [&] {
    ceres::internal::ScopedSolverPlugin scoped_plugin(&*plugin);
    ceres::Solve(shell_options, shell.problem(), summary);
    return true;
  });
  if (failure.has_happened()) {
    summary->termination_type = ceres::FAILURE;
    AssignOrShorten(failure.sentence(), &summary->message);
  }
  if (!summary->IsSolutionUsable()) {
    start.Restore();
  }
  plugin->FinishIfCeresDidNot(failure, *summary);
  reason = plugin->Reason();
  if (ext_options.communicator != nullptr &&
      (plugin->HasFailed() || !plugin->IsTaken())) {
    ext_options.communicator->Abort(reason);
  }
  plugin->FillSummary(summary);
  Outcome outcome = plugin->IsTaken() || plugin->HasFailed()
                        ? plugin->End()
                        : Outcome(Outcome::kNeedsProblem, reason);
  if (outcome.stage == Outcome::kNeedsProblem || !summary->IsSolutionUsable()) {
    // A failure may have left a device in any state.
    plugin.reset();
    kept->Clear();
  }
  return outcome;
}

ceres::internal::SolverPlugin* CreatePluginOfEnvironment(
    int abi_version,
    const char* settings,
    const SolveWhole& solve_by_devices,
    char* error,
    int error_size) {
  using ceres::internal::SolverPlugin;
  Failure failure;
  SolverPlugin* plugin = nullptr;
  failure.Guard(false, [&] {
    std::string message;
    Options options;
    if (abi_version != ceres::internal::kSolverPluginAbiVersion) {
      message = "ceres_ext was built for version " +
                std::to_string(ceres::internal::kSolverPluginAbiVersion) +
                " of the plugin interface, this Ceres has version " +
                std::to_string(abi_version) + ".";
    } else if (ParseOptions(settings, &options, &message)) {
      if (options.cuda_devices.empty()) {
        plugin = new BundlePlugin(options, /*append_to_message=*/true);
      } else {
        plugin = new WholeSolvePlugin(options, solve_by_devices);
      }
      return true;
    }
    failure.Set(message);
    return false;
  });
  if (plugin == nullptr) {
    std::snprintf(error, error_size, "%s", failure.sentence());
  }
  return plugin;
}

}  // namespace ceres_ext
