// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Checks that the offsets of a batch fit its arrays and that its problems are
// separate.

#ifndef CERES_EXT_SMALL_BATCH_BOUNDS_H_
#define CERES_EXT_SMALL_BATCH_BOUNDS_H_

#include <string>

#include "ceres_ext/batch.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

// False, with a sentence in *error, if the offsets do not fit the arrays, two
// parameter arrays overlap, or a residual block names a block of another
// problem. Numbers outside of the whole array are not checked: the solve of
// that problem refuses them.
bool IsValidBatch(const ProblemBatch& batch,
                  kernels::HostContext* context,
                  std::string* error);

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_BATCH_BOUNDS_H_
