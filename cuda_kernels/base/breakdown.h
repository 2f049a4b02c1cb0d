// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Which blocks of a matrix could not be inverted. The records live where the
// blocks live.
#ifndef CERES_EXT_CUDA_KERNELS_BASE_BREAKDOWN_H_
#define CERES_EXT_CUDA_KERNELS_BASE_BREAKDOWN_H_

#include <cstdint>
#include <limits>

#include "cuda_kernels/base/host_device.h"

namespace ceres_ext::kernels {

// For the blocks of one family.
struct Breakdown {
  static constexpr int32_t kNone = std::numeric_limits<int32_t>::max();
  int32_t first_block = kNone;
};

// The records of several families, in up to kMaxArrays places. Passed to
// operations by value.
struct BreakdownArrays {
  static constexpr int kMaxArrays = 4;
  struct Array {
    const Breakdown* data = nullptr;
    int64_t size = 0;
  };
  Array arrays[kMaxArrays];
  int num_arrays = 0;

  // At most kMaxArrays times. Empty arrays count for nothing.
  void Add(const Breakdown* data, int64_t size) {
    if (size > 0) {
      arrays[num_arrays++] = {data, size};
    }
  }
  CERES_EXT_HOST_DEVICE bool Any() const {
    bool any = false;
    for (int a = 0; a < num_arrays; ++a) {
      for (int64_t i = 0; i < arrays[a].size; ++i) {
        any |= arrays[a].data[i].first_block != Breakdown::kNone;
      }
    }
    return any;
  }
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_BASE_BREAKDOWN_H_
