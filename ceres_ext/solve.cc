// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/solve.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "ceres/context_impl.h"
#include "ceres/parameter_block.h"
#include "ceres/problem_impl.h"
#include "ceres/program.h"
#include "ceres/solver_plugin.h"
#include "ceres_ext/glue/failure.h"
#include "ceres_ext/glue/plugin.h"
#include "glog/logging.h"

namespace ceres_ext {
namespace {

// The parameter blocks of a problem as they are before a solve, for one that an
// exception takes out of Ceres.
class Start {
 public:
  Start(const ceres::Solver::Options& options, ceres::Problem* problem)
      : program_(problem->mutable_impl()->mutable_program()) {
    // Else Ceres writes to the user's blocks when it ends.
    if (options.update_state_every_iteration ||
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

// Both forms; ext_summary is summary or null.
void Solve(const ceres::Solver::Options& options,
           const Options& ext_options,
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
    if (!ext_options.IsValid(&error)) {
      error = "ceres_ext::Options is not valid: " + error;
    } else if (problem == nullptr) {
      error = "problem is null; expected a ceres::Problem";
    }
    if (!error.empty()) {
      LOG(ERROR) << "Terminating: " << error;
      failure.Set(error);
      return false;
    }
    plugin.emplace(ext_options, /*append_to_message=*/ext_summary == nullptr);
    start.emplace(options, problem);
    ceres::internal::ScopedSolverPlugin scoped_plugin(&*plugin);
    SolveWithThreads(options, problem, summary);
    return true;
  });
  if (failure.has_happened()) {
    if (start.has_value()) {
      start->Restore();
    }
    summary->termination_type = ceres::FAILURE;
    AssignOrShorten(failure.sentence(), &summary->message);
  }
  if (plugin.has_value()) {
    plugin->FinishIfCeresDidNot(failure, *summary);
    if (ext_summary != nullptr) {
      plugin->FillSummary(ext_summary);
    }
  } else if (ext_summary != nullptr) {
    AssignOrShorten(failure.sentence(), &ext_summary->path_reason);
  }
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
