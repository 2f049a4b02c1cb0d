// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Solves a fit on a thread of the host.

#ifndef CERES_EXT_SMALL_FIT_FIT_HOST_H_
#define CERES_EXT_SMALL_FIT_FIT_HOST_H_

#include <cstdint>
#include <vector>

#include "ceres_ext/base/num_bytes.h"
#include "ceres_ext/batchable_cost_function.h"
#include "ceres_ext/small/fit/fit.h"
#include "ceres_ext/small/fit/fit_batch.h"

namespace ceres_ext {

// Memory of a thread, which is used again.
struct FitWorkspace final : SmallWorkspace {
  std::vector<RowBlock> blocks;
  std::vector<uint64_t> constants;
  std::vector<double> constant_state;
  std::vector<double> weights;
  std::vector<uint8_t> loss_id;
  std::vector<double> residuals;

  int64_t num_bytes() const override {
    return NumBytesOf(blocks) + NumBytesOf(constants) +
           NumBytesOf(constant_state) + NumBytesOf(weights) +
           NumBytesOf(loss_id) + NumBytesOf(residuals);
  }
};

// Solves a fit of `batch`, and writes its result and the values of blocks that
// vary. All arrays of params are on the host. Throws std::bad_alloc.
void SolveFitOnHost(const FitBatch& batch,
                    const FitParams& params,
                    const FitRecord& record,
                    FitWorkspace* workspace);

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_FIT_FIT_HOST_H_
