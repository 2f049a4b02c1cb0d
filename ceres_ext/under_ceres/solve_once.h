// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// One call of Ceres's loop with a plugin of this library.

#ifndef CERES_EXT_UNDER_CERES_SOLVE_ONCE_H_
#define CERES_EXT_UNDER_CERES_SOLVE_ONCE_H_

#include <string>

#include "ceres/problem.h"
#include "ceres/solver.h"
#include "ceres/solver_plugin.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/options.h"
#include "ceres_ext/plan/attempts.h"
#include "ceres_ext/session/kept_machines.h"
#include "ceres_ext/summary.h"
#include "ceres_ext/under_ceres/bundle_plugin.h"
#include "ceres_ext/under_ceres/whole_solve_plugin.h"

namespace ceres_ext {

// True if the options can be used, for this problem where it is not null; else
// *error says why not.
bool CanSolve(const ceres::Solver::Options& options,
              const Options& ext_options,
              ceres::Problem* problem,
              std::string* error);

// One attempt by one machine. ext_summary is summary or null.
Outcome SolveOnce(const ceres::Solver::Options& options,
                  const Options& ext_options,
                  const Attempt& attempt,
                  ceres::Problem* problem,
                  ceres::Solver::Summary* summary,
                  Summary* ext_summary);

// The same without a ceres::Problem, or it fails if one would fail too.
// kNeedsProblem where one is needed, or the host has to read arrays that are on
// a device; *summary is of no use then. *kept is empty after that and after a
// failure: a ceres::Problem has memory of its own. device_facts: of
// IsValidProblem, if arrays are on a device.
Outcome SolveArraysOnce(const ceres::Solver::Options& options,
                        const Options& ext_options,
                        const Attempt& attempt,
                        const ArrayProblem& problem,
                        const std::vector<DeviceArrayFacts>& device_facts,
                        KeptMachines* kept,
                        Summary* summary);

// CeresCreateSolverPlugin. solve_by_devices: where the settings name several.
ceres::internal::SolverPlugin* CreatePluginOfEnvironment(
    int abi_version,
    const char* settings,
    const SolveWhole& solve_by_devices,
    char* error,
    int error_size);

}  // namespace ceres_ext

#endif  // CERES_EXT_UNDER_CERES_SOLVE_ONCE_H_
