// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/solve.h"

#include <cstdio>
#include <string>

#include "ceres/solver_plugin.h"
#include "ceres_ext/glue/plugin.h"
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
