// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// --batch: all problems of a folder as one batch.

#ifndef EXAMPLES_BAL_SOLVE_FOLDER_H_
#define EXAMPLES_BAL_SOLVE_FOLDER_H_

#include "examples/bal/adjuster_program.h"

namespace ceres_ext::bal {

// Solves the files of --batch and writes those with a usable solution to
// --output, a folder, under their names. Files that are not valid problems are
// listed on standard error, and do not affect the others.
ExitCode SolveFolder();

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_SOLVE_FOLDER_H_
