// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Which blocks ITERATIVE_SCHUR eliminates, in a program that Ceres does not
// order for it.

#ifndef CERES_EXT_IMPORT_ELIMINATION_H_
#define CERES_EXT_IMPORT_ELIMINATION_H_

#include <cstdint>
#include <vector>

#include "ceres_ext/import/problem_rows.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

// Of each block that varies, whether it is in the independent set of Ceres's
// ComputeStableSchurOrdering, which libceres keeps to itself. After
// ProblemRows::ReadBlocks. Without those of more than max_size tangent
// dimensions.
std::vector<uint8_t> IndependentSet(const ProblemRows& rows, int max_size);

// Whether no row has two of the blocks that are marked, by index. After
// ProblemRows::ReadBlocks.
bool IsIndependentSet(const ProblemRows& rows,
                      const std::vector<uint8_t>& is_marked,
                      kernels::HostContext* context);

}  // namespace ceres_ext

#endif  // CERES_EXT_IMPORT_ELIMINATION_H_
