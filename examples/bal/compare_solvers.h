// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#ifndef EXAMPLES_BAL_COMPARE_SOLVERS_H_
#define EXAMPLES_BAL_COMPARE_SOLVERS_H_

#include "examples/bal/adjuster_program.h"

namespace ceres_ext::bal {

// bundle_adjuster --compare.
ExitCode CompareSolvers();

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_COMPARE_SOLVERS_H_
