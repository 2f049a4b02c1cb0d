// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// An array of small blocks of one size, and the only place that knows how the
// elements of a block lie in memory.
//
//   BlockRef<double, 6, kDeviceLayout> v{data, num_points};
//   v(point, 4) = 1.0;
//
// kContinuousElement keeps element e of all blocks together, so that threads
// next to each other read addresses next to each other; kBlockContiguous keeps
// a block together, so that one thread reads whole cache lines.
//
// Arrays of matrix blocks (Jacobian, U, V, W, factors) are BlockRefs. Vectors
// (p, q, D, b, gradients, steps, points) are plain arrays on both machines, one
// block after the other: PCG and Ceres see them as vectors.
#ifndef CERES_EXT_CUDA_KERNELS_BASE_BLOCK_REF_H_
#define CERES_EXT_CUDA_KERNELS_BASE_BLOCK_REF_H_

#include <cstdint>

#include "cuda_kernels/base/host_device.h"

namespace ceres_ext::kernels {

enum class BlockLayout { kContinuousElement, kBlockContiguous };

inline constexpr BlockLayout kHostLayout = BlockLayout::kBlockContiguous;
inline constexpr BlockLayout kDeviceLayout = BlockLayout::kContinuousElement;

template <typename T, int kSize, BlockLayout kLayoutIn>
struct BlockRef {
  using Value = T;
  static constexpr int kBlockSize = kSize;
  static constexpr BlockLayout kLayout = kLayoutIn;

  // Null means that the array does not exist, where an operation allows that.
  T* data = nullptr;
  int64_t num_blocks = 0;

  CERES_EXT_HOST_DEVICE T& operator()(int64_t block, int element) const {
    if constexpr (kLayout == BlockLayout::kContinuousElement) {
      return data[element * num_blocks + block];
    } else {
      return data[block * kBlockSize + element];
    }
  }

  CERES_EXT_HOST_DEVICE int64_t size() const { return num_blocks * kBlockSize; }

  // Implicit, as T* converts to const T*.
  // NOLINTNEXTLINE(google-explicit-constructor)
  CERES_EXT_HOST_DEVICE operator BlockRef<const T, kSize, kLayoutIn>() const {
    return {data, num_blocks};
  }
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_BASE_BLOCK_REF_H_
