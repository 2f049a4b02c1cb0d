// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The flags of bundle_adjuster beside those of solver_flags.h, and the options
// that follow from all of them.

#ifndef EXAMPLES_BAL_ADJUSTER_FLAGS_H_
#define EXAMPLES_BAL_ADJUSTER_FLAGS_H_

#include <string>

#include "examples/bal/adjuster_program.h"
#include "examples/bal/bal_geometry.h"
#include "examples/bal/solve_bal.h"
#include "gflags/gflags.h"
#include "problem_io/bal_problem.h"

// Inputs, outputs and the start; the rest is in SolveBalOptions.
DECLARE_string(input);
DECLARE_string(batch);
DECLARE_string(output);
DECLARE_bool(use_quaternions);
DECLARE_double(rotation_sigma);
DECLARE_double(translation_sigma);
DECLARE_double(point_sigma);
DECLARE_int32(random_seed);
DECLARE_int32(num_iterations);
DECLARE_bool(report_problem);

namespace ceres_ext::bal {

// With the help of bundle_adjuster.
AdjusterProgram BundleAdjusterProgram();

// Checks all flags but paths. On failure returns false and sets *error to one
// line that names the flag.
bool SolveOptionsFromFlags(SolveBalOptions* options, std::string* error);

// The start of a solve: cameras as --use_quaternions wants them, in the frame
// that is returned, with the noise of the flags.
Similarity StartFromFlags(BalProblem* problem);

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_ADJUSTER_FLAGS_H_
