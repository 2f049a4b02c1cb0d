// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Macros for functions that exist on the host and on the device.
#ifndef CERES_EXT_CUDA_KERNELS_BASE_HOST_DEVICE_H_
#define CERES_EXT_CUDA_KERNELS_BASE_HOST_DEVICE_H_

#include <cstdint>

#ifdef __CUDACC__
#define CERES_EXT_HOST_DEVICE __host__ __device__
#else
#define CERES_EXT_HOST_DEVICE
#endif

namespace ceres_ext::kernels {

// a b, never fused with an addition: the same bits on every machine.
CERES_EXT_HOST_DEVICE inline double UnfusedProduct(double a, double b) {
#ifdef __CUDA_ARCH__
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

// *minimum = min(*minimum, value): the same for any order of calls.
CERES_EXT_HOST_DEVICE inline void AtomicMinimum(int32_t value,
                                                int32_t* minimum) {
#ifdef __CUDA_ARCH__
  atomicMin(minimum, value);
#else
  int32_t seen = __atomic_load_n(minimum, __ATOMIC_RELAXED);
  while (value < seen &&
         !__atomic_compare_exchange_n(
             minimum, &seen, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
#endif
}

// *sum += value, for any order of calls.
CERES_EXT_HOST_DEVICE inline void AddAtomically(int32_t value, int32_t* sum) {
#ifdef __CUDA_ARCH__
  atomicAdd(sum, value);
#else
  __atomic_fetch_add(sum, value, __ATOMIC_RELAXED);
#endif
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_BASE_HOST_DEVICE_H_
