// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A library for CERES_SOLVER_PLUGIN. Its plugin leaves all work to Ceres and
// says so in the message of the summary. Settings:
//
//   null       no plugin, with the reason "asked for null"
//   silent     no plugin and no reason
//   long       no plugin, with a reason that fills the buffer without a final 0
//   otherwise  a plugin

#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>

#include "ceres/solver_plugin.h"
#include "ceres/solver_plugin_library.h"

namespace {

std::atomic<int> num_created{0};
std::atomic<int> num_destroyed{0};

class EnvironmentTestPlugin final : public ceres::internal::SolverPlugin {
 public:
  explicit EnvironmentTestPlugin(const char* settings) : settings_(settings) {
    ++num_created;
  }
  ~EnvironmentTestPlugin() override { ++num_destroyed; }

  void Finish(const ceres::internal::PreprocessedProblem& /*pp*/,
              ceres::Solver::Summary* summary) override {
    summary->message += " [plugin " + settings_ + " " +
                        std::to_string(num_created - num_destroyed) + "]";
  }

 private:
  const std::string settings_;
};

}  // namespace

extern "C" __attribute__((visibility("default"))) ceres::internal::SolverPlugin*
CeresCreateSolverPlugin(int abi_version,
                        const char* settings,
                        char* error,
                        int error_size) {
  if (abi_version != ceres::internal::kSolverPluginAbiVersion) {
    std::snprintf(error, error_size, "wrong version %d", abi_version);
    return nullptr;
  }
  if (std::strcmp(settings, "null") == 0) {
    std::snprintf(error, error_size, "asked for null");
    return nullptr;
  }
  if (std::strcmp(settings, "silent") == 0) {
    return nullptr;
  }
  if (std::strcmp(settings, "long") == 0) {
    std::memset(error, 'x', error_size);
    return nullptr;
  }
  return new EnvironmentTestPlugin(settings);
}
