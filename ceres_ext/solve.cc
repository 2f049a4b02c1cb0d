// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/solve.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "ceres/context_impl.h"
#include "ceres/parameter_block.h"
#include "ceres/problem_impl.h"
#include "ceres/program.h"
#include "ceres/sized_cost_function.h"
#include "ceres/solver_plugin.h"
#include "ceres/wall_time.h"
#include "ceres_ext/glue/array_import.h"
#include "ceres_ext/glue/array_rows.h"
#include "ceres_ext/glue/failure.h"
#include "ceres_ext/glue/plugin.h"
#include "ceres_ext/glue/problem_of_arrays.h"
#include "ceres_ext/glue/solver_options.h"
#include "glog/logging.h"

namespace ceres_ext {
namespace {

// The parameter blocks of a problem as they are before a solve, for one that an
// exception takes out of Ceres.
class Start {
 public:
  Start(const ceres::Solver::Options& options, ceres::Problem* problem)
      : program_(problem->mutable_impl()->mutable_program()) {
    // Else Ceres writes to the user's blocks when it ends, and with success;
    // but what it then finds of wrong gradients is a failure.
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
    Failure ignored;  // of a manifold of the user's
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

// Whether the options can be used; else *error says why not.
bool IsValid(const ceres::Solver::Options& options,
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

// Whether the caller sees nothing of a solve before it has ended, so that it
// can be done again from the start.
bool LeavesNoTrace(const ceres::Solver::Options& options) {
  return options.callbacks.empty() && !options.update_state_every_iteration;
}

// Both forms; ext_summary is summary or null. Returns whether the problem is to
// be solved again, as *attempt then says.
bool SolveOnce(const ceres::Solver::Options& options,
               const Options& ext_options,
               SolveAttempt* attempt,
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
    if (IsValid(options, ext_options, problem, &error) && problem == nullptr) {
      error = "problem is null; expected a ceres::Problem";
    }
    if (!error.empty()) {
      LOG(ERROR) << "Terminating: " << error;
      failure.Set(error);
      return false;
    }
    plugin.emplace(attempt->Apply(ext_options),
                   /*append_to_message=*/ext_summary == nullptr);
    plugin->SetAttempt(*attempt,
                       LeavesNoTrace(options) &&
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
  bool again = false;
  if (plugin.has_value()) {
    plugin->FinishIfCeresDidNot(failure, *summary);
    Failure ignored;  // Then the failure stands.
    again = ignored.Guard(false, [&] { return plugin->Next(attempt); });
    if (ext_summary != nullptr) {
      plugin->FillSummary(ext_summary);
    }
  } else if (ext_summary != nullptr) {
    AssignOrShorten(failure.sentence(), &ext_summary->path_reason);
  }
  return again;
}

// The time of a solve beside what Ceres has counted is its preprocessor's.
void CountTimeSince(double start, ceres::Solver::Summary* summary) {
  const double rest = ceres::internal::WallTimeInSeconds() - start -
                      std::max(0.0, summary->total_time_in_seconds);
  summary->preprocessor_time_in_seconds =
      std::max(0.0, summary->preprocessor_time_in_seconds) + rest;
  summary->total_time_in_seconds =
      std::max(0.0, summary->total_time_in_seconds) + rest;
}

void Solve(const ceres::Solver::Options& options,
           const Options& ext_options,
           ceres::Problem* problem,
           ceres::Solver::Summary* summary,
           Summary* ext_summary) {
  const double start = ceres::internal::WallTimeInSeconds();
  Failure ignored;  // Then what there is stands.
  ignored.Guard(false, [&] {
    SolveAttempt attempt;
    while (SolveOnce(
        options, ext_options, &attempt, problem, summary, ext_summary)) {
      LOG(WARNING) << attempt.reason;
    }
    if (!attempt.reason.empty()) {
      CountTimeSince(start, summary);
    }
    return true;
  });
}

// What Ceres is given in place of a problem of arrays: one parameter block that
// varies, and a residual block on it, which nobody evaluates.
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

// Solves without a ceres::Problem, or fails where one would fail too. False,
// with a part of a sentence in *reason, where one is needed; *summary is of no
// use then. *again: as SolveOnce.
bool SolveArrays(const ceres::Solver::Options& options,
                 const Options& ext_options,
                 SolveAttempt* attempt,
                 const ArrayProblem& problem,
                 KeptMachines* kept,
                 Summary* summary,
                 std::string* reason,
                 bool* again) {
  *again = false;
  if (!ext_options.enabled) {
    *reason = "this library is switched off (enabled = false)";
    return false;
  }
  ArrayImport arrays(&problem, summary);
  *reason = arrays.WhyProblemIsNeeded(options);
  if (!reason->empty()) {
    return false;
  }
  BundlePlugin plugin(
      attempt->Apply(ext_options), options.num_threads, &arrays, kept);
  plugin.SetAttempt(*attempt, LeavesNoTrace(options));
  // Ceres itself needs no thread.
  ceres::Solver::Options shell_options = options;
  shell_options.num_threads = 1;
  Shell shell;
  ArraysStart start(options, problem);
  Failure failure;
  failure.Guard(false, [&] {
    ceres::internal::ScopedSolverPlugin scoped_plugin(&plugin);
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
  plugin.FinishIfCeresDidNot(failure, *summary);
  *reason = plugin.Reason();
  *again = plugin.Next(attempt);
  plugin.FillSummary(summary);
  return plugin.IsTaken() || plugin.HasFailed();
}

void SolveArraysOrProblem(const ceres::Solver::Options& options,
                          const Options& ext_options,
                          const ArrayProblem* problem,
                          KeptMachines* kept,
                          Summary* summary) {
  const double start = ceres::internal::WallTimeInSeconds();
  Failure failure;
  failure.Guard(false, [&] {
    *summary = Summary();
    std::string error;
    bool is_valid = IsValid(options, ext_options, /*problem=*/nullptr, &error);
    if (is_valid && problem == nullptr) {
      error = "problem is null; expected a ceres_ext::ArrayProblem";
      is_valid = false;
    }
    if (!is_valid || !options.IsValid(&error) ||
        !IsValidProblem(
            *problem, kept->host_context(options.num_threads), &error)) {
      failure.Set(error);
      return false;
    }
    std::string reason;
    SolveAttempt attempt;
    bool again = false;
    bool is_done = SolveArrays(options,
                               ext_options,
                               &attempt,
                               *problem,
                               kept,
                               summary,
                               &reason,
                               &again);
    while (again) {
      LOG(WARNING) << attempt.reason;
      kept->Clear();
      *summary = Summary();
      is_done = SolveArrays(options,
                            ext_options,
                            &attempt,
                            *problem,
                            kept,
                            summary,
                            &reason,
                            &again);
    }
    if (!is_done || !summary->IsSolutionUsable()) {
      // A ceres::Problem has memory of its own, and what failed may have left a
      // device in any state.
      kept->Clear();
    }
    if (!is_done) {
      ProblemOfArrays of_arrays(*problem);
      Solve(options, ext_options, of_arrays.problem(), summary, summary);
      NameWorst(*problem, &summary->degenerate_eliminated_blocks);
      NameWorst(*problem, &summary->degenerate_other_blocks);
      const bool is_said =
          summary->path_reason.find(reason) != std::string::npos;
      summary->path_reason += "; a ceres::Problem was made of the arrays" +
                              (is_said ? " for that" : ", because " + reason);
    }
    // Checking the arrays, and making a ceres::Problem of them, is part of the
    // solve.
    CountTimeSince(start, summary);
    return true;
  });
  if (failure.has_happened()) {
    kept->Clear();
    summary->termination_type = ceres::FAILURE;
    AssignOrShorten(failure.sentence(), &summary->message);
    AssignOrShorten(failure.sentence(), &summary->path_reason);
  }
}

// Cost and gradient by the evaluator of a solve. False where a ceres::Problem
// is needed; *error says why they could not be had, or is empty. *again: as in
// SolveArrays.
bool EvaluateArrays(const EvaluateOptions& options,
                    const Options& ext_options,
                    SolveAttempt* attempt,
                    const ArrayProblem& problem,
                    KeptMachines* kept,
                    double* cost,
                    std::vector<double>* gradient,
                    std::string* error,
                    bool* again) {
  error->clear();
  *again = false;
  ceres::Solver::Options solver_options;
  solver_options.linear_solver_type = ceres::CGNR;
  solver_options.preconditioner_type = ceres::IDENTITY;
  solver_options.jacobi_scaling = false;
  // One evaluation is the work that a device would have.
  solver_options.max_num_iterations = 1;
  solver_options.max_linear_solver_iterations = 1;
  solver_options.num_threads = 1;
  solver_options.logging_type = ceres::SILENT;
  Summary summary;
  ArrayImport arrays(&problem, &summary);
  if (!ext_options.enabled ||
      !arrays.WhyProblemIsNeeded(solver_options).empty()) {
    return false;
  }
  Options own_options = attempt->Apply(ext_options);
  own_options.linear_solver = LINEAR_SOLVER_AS_GIVEN;
  own_options.preconditioner = PRECONDITIONER_AS_GIVEN;
  own_options.report.clear();
  BundlePlugin plugin(own_options, options.num_threads, &arrays, kept);
  plugin.SetAttempt(*attempt, /*leaves_no_trace=*/true);
  StartEvaluation evaluation;
  evaluation.apply_loss_function = options.apply_loss_function;
  evaluation.want_gradient = gradient != nullptr;
  plugin.EvaluateStart(&evaluation);
  Shell shell;
  Failure failure;
  failure.Guard(false, [&] {
    ceres::internal::ScopedSolverPlugin scoped_plugin(&plugin);
    ceres::Solve(solver_options, shell.problem(), &summary);
    return true;
  });
  plugin.FinishIfCeresDidNot(failure, summary);
  if (evaluation.is_done) {
    double fixed_cost = 0.0;
    if (!arrays.FixedCost(options.apply_loss_function, &fixed_cost)) {
      *error =
          "A residual block that depends on constants alone can't be "
          "evaluated.";
      return true;
    }
    if (cost != nullptr) {
      *cost = evaluation.cost + fixed_cost;
    }
    if (gradient != nullptr) {
      arrays.SpreadTangents(evaluation.gradient.data(), gradient);
    }
    return true;
  }
  *again = plugin.Next(attempt);
  if (!plugin.IsTaken() && !plugin.HasFailed() && !failure.has_happened()) {
    if (ext_options.fallback != FALLBACK_REFUSE) {
      return false;
    }
    *error = "Ceres Ext refuses the problem: " + plugin.Reason() + ".";
    return true;
  }
  *error = failure.has_happened() ? failure.sentence() : summary.message;
  return true;
}

// The same by Ceres, whose gradient has all blocks too.
bool EvaluateProblem(const EvaluateOptions& options,
                     const ArrayProblem& problem,
                     double* cost,
                     std::vector<double>* gradient,
                     std::string* error) {
  ProblemOfArrays of_arrays(problem);
  ceres::Problem::EvaluateOptions evaluate_options;
  evaluate_options.apply_loss_function = options.apply_loss_function;
  evaluate_options.num_threads = options.num_threads;
  if (of_arrays.problem()->Evaluate(
          evaluate_options, cost, nullptr, gradient, nullptr)) {
    return true;
  }
  *error = "A residual block can't be evaluated.";
  return false;
}

bool EvaluateWith(const EvaluateOptions& options,
                  const Options& ext_options,
                  const ArrayProblem& problem,
                  KeptMachines* kept,
                  double* cost,
                  std::vector<double>* residuals,
                  std::vector<double>* gradient,
                  std::string* error) {
  error->clear();
  Failure failure;
  const bool ok = failure.Guard(false, [&] {
    if (!ext_options.IsValid(error)) {
      *error = "ceres_ext::Options is not valid: " + *error;
      return false;
    }
    if (options.num_threads < 1) {
      *error = "EvaluateOptions::num_threads is " +
               std::to_string(options.num_threads) + "; expected 1 or more";
      return false;
    }
    kernels::HostContext* const context =
        kept->host_context(options.num_threads);
    if (!IsValidProblem(problem, context, error)) {
      return false;
    }
    if (residuals != nullptr &&
        !ArrayRows(&problem).AllResiduals(
            options.apply_loss_function, context, residuals, error)) {
      return false;
    }
    if (cost == nullptr && gradient == nullptr) {
      return true;
    }
    SolveAttempt attempt;
    bool again = false;
    bool is_done = false;
    do {
      is_done = EvaluateArrays(options,
                               ext_options,
                               &attempt,
                               problem,
                               kept,
                               cost,
                               gradient,
                               error,
                               &again);
      if (again) {
        // A device that has failed is told nowhere else.
        LOG_IF(WARNING, !attempt.why_host.empty())
            << "The host evaluates the problem again: " << attempt.why_host;
        kept->Clear();
      }
    } while (again);
    return is_done ? error->empty()
                   : EvaluateProblem(options, problem, cost, gradient, error);
  });
  if (failure.has_happened()) {
    AssignOrShorten(failure.sentence(), error);
  }
  if (!ok) {
    kept->Clear();
  }
  return ok;
}

}  // namespace

void Solve(const ceres::Solver::Options& options,
           const Options& ext_options,
           ceres::Problem* problem,
           Summary* summary) {
  Solve(options, ext_options, problem, summary, summary);
}

void Solve(const ceres::Solver::Options& options,
           const Options& ext_options,
           ceres::Problem* problem,
           ceres::Solver::Summary* summary) {
  Solve(options, ext_options, problem, summary, nullptr);
}

bool StartDevice(const Options& ext_options, std::string* error) {
  Failure failure;
  failure.Guard(false, [&] {
    if (!ext_options.IsValid(error)) {
      failure.Set("ceres_ext::Options is not valid: " + *error);
      return false;
    }
    KeptMachines kept;
    std::unique_ptr<MachineSetup> setup;
    const kernels::Status status =
        CreateCudaSetup(ext_options, /*num_threads=*/1, &kept, &setup);
    if (!status.ok()) {
      failure.Set(status);
    }
    return status.ok();
  });
  AssignOrShorten(failure.sentence(), error);
  return !failure.has_happened();
}

bool Evaluate(const EvaluateOptions& options,
              const Options& ext_options,
              const ArrayProblem& problem,
              double* cost,
              std::vector<double>* residuals,
              std::vector<double>* gradient,
              std::string* error) {
  KeptMachines kept;
  return EvaluateWith(
      options, ext_options, problem, &kept, cost, residuals, gradient, error);
}

struct ArraySolver::Impl {
  KeptMachines kept;
};

ArraySolver::ArraySolver() : impl_(std::make_unique<Impl>()) {
  impl_->kept.is_for_several = true;
}
ArraySolver::~ArraySolver() = default;
ArraySolver::ArraySolver(ArraySolver&&) noexcept = default;
ArraySolver& ArraySolver::operator=(ArraySolver&&) noexcept = default;

void ArraySolver::Solve(const ceres::Solver::Options& options,
                        const Options& ext_options,
                        ArrayProblem* problem,
                        Summary* summary) {
  SolveArraysOrProblem(options, ext_options, problem, &impl_->kept, summary);
}

bool ArraySolver::Evaluate(const EvaluateOptions& options,
                           const Options& ext_options,
                           const ArrayProblem& problem,
                           double* cost,
                           std::vector<double>* residuals,
                           std::vector<double>* gradient,
                           std::string* error) {
  return EvaluateWith(options,
                      ext_options,
                      problem,
                      &impl_->kept,
                      cost,
                      residuals,
                      gradient,
                      error);
}

void Solve(const ceres::Solver::Options& options,
           const Options& ext_options,
           ArrayProblem* problem,
           Summary* summary) {
  KeptMachines kept;
  SolveArraysOrProblem(options, ext_options, problem, &kept, summary);
}

}  // namespace ceres_ext

// What Ceres looks up when CERES_SOLVER_PLUGIN names this library. Returns null
// with a message of at most error_size - 1 characters in `error` when the
// settings are not valid.
extern "C" __attribute__((visibility("default"))) ceres::internal::SolverPlugin*
CeresCreateSolverPlugin(int abi_version,
                        const char* settings,
                        char* error,
                        int error_size) {
  using ceres::internal::SolverPlugin;
  ceres_ext::Failure failure;
  SolverPlugin* plugin = nullptr;
  failure.Guard(false, [&] {
    std::string message;
    ceres_ext::Options options;
    if (abi_version != ceres::internal::kSolverPluginAbiVersion) {
      message = "ceres_ext was built for version " +
                std::to_string(ceres::internal::kSolverPluginAbiVersion) +
                " of the plugin interface, this Ceres has version " +
                std::to_string(abi_version) + ".";
    } else if (ceres_ext::ParseOptions(settings, &options, &message)) {
      plugin = new ceres_ext::BundlePlugin(options, /*append_to_message=*/true);
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
