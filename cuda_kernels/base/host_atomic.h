// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#ifndef CERES_EXT_CUDA_KERNELS_BASE_HOST_ATOMIC_H_
#define CERES_EXT_CUDA_KERNELS_BASE_HOST_ATOMIC_H_

#include <atomic>
#include <cstdint>

namespace ceres_ext::kernels {

// *minimum = min(*minimum, value): the same for any order of calls.
inline void AtomicMinimum(int32_t value, std::atomic<int32_t>* minimum) {
  int32_t seen = minimum->load(std::memory_order_relaxed);
  while (value < seen && !minimum->compare_exchange_weak(
                             seen, value, std::memory_order_relaxed)) {
  }
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_BASE_HOST_ATOMIC_H_
