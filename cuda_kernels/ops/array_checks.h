// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Checks of a caller's arrays where they are, before a solve:
//
//   CheckFinite     the first value that is not finite
//   CheckWeights    the first that is not finite or is negative
//   CheckBlocks     the first block number that is out of range; counts the
//   rows
//                   of each block
//   SummarizeBlocks how many blocks have no rows, and the pairs of rows in one
//                   block
//
// All are vector operations (ops/vector_operation.h). Minima and counts of
// integers do not depend on the order of the atomics.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_ARRAY_CHECKS_H_
#define CERES_EXT_CUDA_KERNELS_OPS_ARRAY_CHECKS_H_

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>

#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/base/vector_sums.h"
#include "cuda_kernels/ops/vector_operation.h"

namespace ceres_ext::kernels {

// The results for one array.
struct ArrayRecord {
  static constexpr int32_t kNoneBad = 0x7fffffff;
  int32_t first_bad = kNoneBad;  // its number
  int32_t unused = 0;
  // From SummarizeBlocks:
  double num_without_rows = 0.0;
  double num_pairs = 0.0;  // unordered, with those of a row and itself
};

struct CheckFiniteParams {
  int64_t n = 0;
  const double* x = nullptr;
  ArrayRecord* record = nullptr;

  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    if (!(std::fabs(x[i]) <= DBL_MAX)) {
      AtomicMinimum(static_cast<int32_t>(i), &record->first_bad);
    }
  }
};

struct CheckWeightsParams {
  int64_t n = 0;
  const double* x = nullptr;
  ArrayRecord* record = nullptr;

  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    if (!(x[i] >= 0.0 && x[i] <= DBL_MAX)) {
      AtomicMinimum(static_cast<int32_t>(i), &record->first_bad);
    }
  }
};

struct CheckBlocksParams {
  int64_t n = 0;                   // rows
  const int32_t* block = nullptr;  // null: row i has block i
  int32_t num_blocks = 0;
  int32_t* num_rows = nullptr;  // of each block, added to
  ArrayRecord* record = nullptr;

  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    const int32_t b = block == nullptr ? static_cast<int32_t>(i) : block[i];
    if (b < 0 || b >= num_blocks) {
      AtomicMinimum(static_cast<int32_t>(i), &record->first_bad);
    } else {
      AddAtomically(1, &num_rows[b]);
    }
  }
};

// The sums are of integers below 2^53 for all that fits on a device.
struct SummarizeBlocksParams {
  int64_t n = 0;  // blocks
  const int32_t* num_rows = nullptr;
  ArrayRecord* record = nullptr;

  CERES_EXT_HOST_DEVICE TwoSums Term(int64_t i) const {
    const double rows = num_rows[i];
    TwoSums term;
    term.first = num_rows[i] == 0 ? 1.0 : 0.0;
    term.second = 0.5 * rows * (rows + 1.0);
    return term;
  }
  CERES_EXT_HOST_DEVICE void Set(const TwoSums& sums) const {
    record->num_without_rows = sums.first;
    record->num_pairs = sums.second;
  }
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_ARRAY_CHECKS_H_
