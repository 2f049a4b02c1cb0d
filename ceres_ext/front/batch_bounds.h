// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Whether the offsets of a batch fit its arrays and its problems are apart.

#ifndef CERES_EXT_FRONT_BATCH_BOUNDS_H_
#define CERES_EXT_FRONT_BATCH_BOUNDS_H_

#include <string>

#include "ceres_ext/batch.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

// True where the offsets fit the arrays and no residual block names a block of
// another problem. Blocks that are no block at all are left to the problems.
bool IsValidBatch(const ProblemBatch& batch,
                  kernels::HostContext* context,
                  std::string* error);

}  // namespace ceres_ext

#endif  // CERES_EXT_FRONT_BATCH_BOUNDS_H_
