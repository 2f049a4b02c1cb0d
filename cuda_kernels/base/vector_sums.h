// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The one order in which vectors are added up, on every machine and for any
// number of threads, a function of the length n alone:
//   G = NumSumBlocks(n) blocks of 256 lanes; lane t of block b adds elements
//   256 b + t, then + 256 G, + 512 G, ...; each 32 lanes are added as a
//   butterfly (16, 8, 4, 2, 1 apart) and the eight results from the first on;
//   the G results are lanes 0, 1, .. of one more such block.
// The machines then differ in the rounding of fused products only.
#ifndef CERES_EXT_CUDA_KERNELS_BASE_VECTOR_SUMS_H_
#define CERES_EXT_CUDA_KERNELS_BASE_VECTOR_SUMS_H_

#include <cstdint>

#include "cuda_kernels/base/host_device.h"

namespace ceres_ext::kernels {

inline constexpr int kSumLanes = 256;
inline constexpr int kMaxSumBlocks = 1024;

inline int64_t NumSumBlocks(int64_t n) {
  const int64_t blocks = (n + 2 * kSumLanes - 1) / (2 * kSumLanes);
  return blocks < 1 ? 1 : blocks > kMaxSumBlocks ? kMaxSumBlocks : blocks;
}

struct TwoSums {
  double first = 0.0;
  double second = 0.0;
};

// The meaning of `first`: a sum, or the largest of values >= 0, NaN if one is.
struct AddFirst {
  CERES_EXT_HOST_DEVICE static double Combine(double a, double b) {
    return a + b;
  }
};
struct MaxFirst {
  CERES_EXT_HOST_DEVICE static double Combine(double a, double b) {
    return a != a || a > b ? a : b;
  }
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_BASE_VECTOR_SUMS_H_
