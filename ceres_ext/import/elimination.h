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

// For each block that varies, true if it is in the independent set of Ceres's
// ComputeStableSchurOrdering, which libceres does not export; of blocks with
// equally many neighbours those of at most kPointSize tangent dimensions come
// first. After ProblemRows::ReadBlocks. Without those of more than max_size
// tangent dimensions.
std::vector<uint8_t> IndependentSet(const ProblemRows& rows, int max_size);

// True if no row has two of the blocks that are marked, by index. After
// ProblemRows::ReadBlocks.
bool IsIndependentSet(const ProblemRows& rows,
                      const std::vector<uint8_t>& is_marked,
                      kernels::HostContext* context);

}  // namespace ceres_ext

#endif  // CERES_EXT_IMPORT_ELIMINATION_H_
