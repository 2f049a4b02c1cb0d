// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Host stand-ins for the CUB calls of the device bodies; see cuda_runtime.h.
#ifndef CERES_EXT_TESTS_EMULATION_CUB_H_
#define CERES_EXT_TESTS_EMULATION_CUB_H_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace cub {

struct DeviceRadixSort {
  template <typename Key, typename Value, typename N>
  static cudaError_t SortPairs(void* scratch,
                               size_t& scratch_bytes,
                               const Key* keys_in,
                               Key* keys_out,
                               const Value* values_in,
                               Value* values_out,
                               N n,
                               int begin_bit,
                               int end_bit,
                               cudaStream_t = nullptr) {
    if (scratch == nullptr) {
      scratch_bytes = 1;
      return cudaSuccess;
    }
    const cudaError_t error = emulation::NextOnDevice("SortPairs");
    if (error != cudaSuccess) {
      return error;
    }
    const auto digit = [&](Key key) {
      key >>= begin_bit;
      const int bits = end_bit - begin_bit;
      return bits >= static_cast<int>(8 * sizeof(Key))
                 ? key
                 : key & ((Key(1) << bits) - 1);
    };
    std::vector<N> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), N(0));
    std::stable_sort(order.begin(), order.end(), [&](N a, N b) {
      return digit(keys_in[a]) < digit(keys_in[b]);
    });
    for (N i = 0; i < n; ++i) {
      keys_out[i] = keys_in[order[static_cast<size_t>(i)]];
      values_out[i] = values_in[order[static_cast<size_t>(i)]];
    }
    return cudaSuccess;
  }
};

struct DeviceScan {
  template <typename In, typename Out, typename N>
  static cudaError_t InclusiveSum(void* scratch,
                                  size_t& scratch_bytes,
                                  In in,
                                  Out out,
                                  N n,
                                  cudaStream_t = nullptr) {
    if (scratch == nullptr) {
      scratch_bytes = 1;
      return cudaSuccess;
    }
    const cudaError_t error = emulation::NextOnDevice("InclusiveSum");
    if (error != cudaSuccess) {
      return error;
    }
    std::partial_sum(in, in + n, out);
    return cudaSuccess;
  }
};

}  // namespace cub

#endif  // CERES_EXT_TESTS_EMULATION_CUB_H_
