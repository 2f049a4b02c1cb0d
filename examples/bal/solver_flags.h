// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The flags that mean the same in bundle_adjuster and colmap_adjuster: how a
// problem is solved, whatever it is, and what is written beside the solution.

#ifndef EXAMPLES_BAL_SOLVER_FLAGS_H_
#define EXAMPLES_BAL_SOLVER_FLAGS_H_

#include <string>
#include <vector>

#include "ceres/solver.h"
#include "ceres_ext/covariance.h"
#include "ceres_ext/options.h"
#include "examples/bal/flag_help.h"
#include "gflags/gflags.h"

DECLARE_string(report_json);
DECLARE_string(initial_ply);
DECLARE_string(final_ply);
DECLARE_string(covariance);
DECLARE_double(covariance_sigmas);
DECLARE_bool(line_search);
DECLARE_bool(warm_up);
DECLARE_double(max_solver_time);

namespace ceres_ext::bal {

// Adds these flags to the groups of a program, behind its own flags where it
// has a group of the same title.
void AddSolverFlags(std::vector<FlagGroup>* groups);

// Sets all fields but max_num_iterations and the orderings, which are the
// program's. On failure returns false and sets *error to one line that names
// the flag.
bool SolverOptionsFromFlags(ceres::Solver::Options* options,
                            ceres_ext::Options* ext_options,
                            std::string* error);

// The value of --covariance_scale, which SolverOptionsFromFlags has checked.
CovarianceScale CovarianceScaleFromFlags();

// Starts for --warm_up, before its solve: CUDA, if a device may be used.
void WarmUp(const ceres_ext::Options& ext_options);

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_SOLVER_FLAGS_H_
