// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Which blocks ITERATIVE_SCHUR eliminates, in a program that Ceres does not
// order for it.

#ifndef CERES_EXT_GLUE_ELIMINATION_H_
#define CERES_EXT_GLUE_ELIMINATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ceres/ordered_groups.h"
#include "ceres_ext/glue/problem_rows.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres::internal {
class Program;
}  // namespace ceres::internal

namespace ceres_ext {

// Of each block that varies, whether it is in the independent set of Ceres's
// ComputeStableSchurOrdering, which libceres keeps to itself. Its threads read
// the rows. Throws std::bad_alloc where memory runs out.
std::vector<uint8_t> IndependentSet(const ProblemRows& rows,
                                    kernels::HostContext* context);

// Sets *is_eliminated, of each parameter block of the program, to what Ceres's
// own ITERATIVE_SCHUR would eliminate: the first group of the ordering where
// there is one with several, else the independent set. `ordering` may be null.
// False with a sentence in *reason where the first group is no independent set.
bool ChooseEliminatedBlocks(const ceres::internal::Program& program,
                            const ceres::ParameterBlockOrdering* ordering,
                            kernels::HostContext* context,
                            std::vector<uint8_t>* is_eliminated,
                            std::string* reason);

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_ELIMINATION_H_
