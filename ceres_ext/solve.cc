// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/solve.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "ceres/sized_cost_function.h"
#include "ceres/solver_plugin.h"
#include "ceres/wall_time.h"
#include "ceres_ext/glue/array_import.h"
#include "ceres_ext/glue/plugin.h"
#include "ceres_ext/glue/problem_of_arrays.h"
#include "glog/logging.h"

namespace ceres_ext {
namespace {

// True if the options can be used; otherwise fills *summary.
bool CheckOptions(const Options& options, ceres::Solver::Summary* summary) {
  std::string error;
  if (options.IsValid(&error)) {
    return true;
  }
  *summary = ceres::Solver::Summary();
  summary->termination_type = ceres::FAILURE;
  summary->message = "ceres_ext::Options is not valid: " + error;
  LOG(ERROR) << "Terminating: " << summary->message;
  return false;
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

// Solves without a ceres::Problem, or fails without memory, in which one would
// not fit either. False, with a part of a sentence in *reason, where one is
// needed; *summary is of no use then.
bool SolveArrays(const ceres::Solver::Options& options,
                 const Options& ext_options,
                 const ArrayProblem& problem,
                 KeptMachines* kept,
                 Summary* summary,
                 std::string* reason) {
  if (!ext_options.enabled || !ext_options.batch_evaluation) {
    *reason = "this library is not to evaluate residual blocks";
    return false;
  }
  ArrayImport arrays(&problem, summary);
  *reason = arrays.WhyProblemIsNeeded(options);
  if (!reason->empty()) {
    return false;
  }
  BundlePlugin plugin(ext_options, options.num_threads, &arrays, kept);
  // Ceres itself needs no thread.
  ceres::Solver::Options shell_options = options;
  shell_options.num_threads = 1;
  Shell shell;
  // Callbacks see the state of each iteration, and a solve that fails leaves
  // that of the start.
  std::vector<std::vector<double>> start;
  for (const ArrayProblem::Parameters& array : problem.parameters()) {
    if (options.update_state_every_iteration) {
      start.emplace_back(array.values,
                         array.values + array.num_blocks * array.size);
    }
  }
  ceres::internal::ScopedSolverPlugin scoped_plugin(&plugin);
  ceres::Solve(shell_options, shell.problem(), summary);
  for (size_t i = 0; !summary->IsSolutionUsable() && i < start.size(); ++i) {
    std::copy(start[i].begin(), start[i].end(), problem.parameters()[i].values);
  }
  *reason = plugin.Reason();
  plugin.FinishIfCeresDidNot(*summary);
  plugin.FillSummary(summary);
  return plugin.IsTaken() || plugin.IsOutOfMemory();
}

void SolveArraysOrProblem(const ceres::Solver::Options& options,
                          const Options& ext_options,
                          const ArrayProblem& problem,
                          KeptMachines* kept,
                          Summary* summary) {
  *summary = Summary();
  const double start = ceres::internal::WallTimeInSeconds();
  std::string error;
  if (!CheckOptions(ext_options, summary)) {
    summary->path_reason = summary->message;
    return;
  }
  if (!options.IsValid(&error) ||
      !IsValidProblem(
          problem, kept->host_context(options.num_threads), &error)) {
    summary->termination_type = ceres::FAILURE;
    summary->message = error;
    summary->path_reason = error;
    LOG(ERROR) << "Terminating: " << error;
    return;
  }
  // Checking the arrays, and making a ceres::Problem of them, is part of the
  // solve.
  const auto count_all = [start, summary] {
    const double rest = ceres::internal::WallTimeInSeconds() - start -
                        summary->total_time_in_seconds;
    summary->preprocessor_time_in_seconds += rest;
    summary->total_time_in_seconds += rest;
  };
  std::string reason;
  if (SolveArrays(options, ext_options, problem, kept, summary, &reason)) {
    if (!summary->IsSolutionUsable()) {
      kept->Clear();
    }
    count_all();
    return;
  }
  // It has memory of its own.
  kept->Clear();
  ProblemOfArrays of_arrays(problem);
  ceres_ext::Solve(options, ext_options, of_arrays.problem(), summary);
  count_all();
  summary->path_reason +=
      "; a ceres::Problem was made of the arrays: " + reason;
}

}  // namespace

void Solve(const ceres::Solver::Options& options,
           const Options& ext_options,
           ceres::Problem* problem,
           Summary* summary) {
  *summary = Summary();
  if (!CheckOptions(ext_options, summary)) {
    summary->path_reason = summary->message;
    return;
  }
  BundlePlugin plugin(ext_options, /*append_to_message=*/false);
  ceres::internal::ScopedSolverPlugin scoped_plugin(&plugin);
  ceres::Solve(options, problem, summary);
  plugin.FinishIfCeresDidNot(*summary);
  plugin.FillSummary(summary);
}

void Solve(const ceres::Solver::Options& options,
           const Options& ext_options,
           ceres::Problem* problem,
           ceres::Solver::Summary* summary) {
  if (!CheckOptions(ext_options, summary)) {
    return;
  }
  BundlePlugin plugin(ext_options, /*append_to_message=*/true);
  ceres::internal::ScopedSolverPlugin scoped_plugin(&plugin);
  ceres::Solve(options, problem, summary);
  plugin.FinishIfCeresDidNot(*summary);
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
  SolveArraysOrProblem(options, ext_options, *problem, &impl_->kept, summary);
}

void Solve(const ceres::Solver::Options& options,
           const Options& ext_options,
           ArrayProblem* problem,
           Summary* summary) {
  KeptMachines kept;
  SolveArraysOrProblem(options, ext_options, *problem, &kept, summary);
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
  std::string message;
  ceres_ext::Options options;
  if (abi_version != ceres::internal::kSolverPluginAbiVersion) {
    message = "ceres_ext was built for version " +
              std::to_string(ceres::internal::kSolverPluginAbiVersion) +
              " of the plugin interface, this Ceres has version " +
              std::to_string(abi_version) + ".";
  } else if (ceres_ext::ParseOptions(settings, &options, &message)) {
    return new ceres_ext::BundlePlugin(options, /*append_to_message=*/true);
  }
  std::snprintf(error, error_size, "%s", message.c_str());
  return nullptr;
}
