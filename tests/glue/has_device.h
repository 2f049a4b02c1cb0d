// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#ifndef CERES_EXT_TESTS_GLUE_HAS_DEVICE_H_
#define CERES_EXT_TESTS_GLUE_HAS_DEVICE_H_

#ifdef CERES_EXT_WITH_CUDA
#include "cuda_kernels/machine/cuda_context.h"
#endif

namespace ceres_ext {

// Whether there is a device, real or emulated.
inline bool HasDevice() {
#ifdef CERES_EXT_WITH_CUDA
  return kernels::NumCudaDevices(nullptr) > 0;
#else
  return false;
#endif
}

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_GLUE_HAS_DEVICE_H_
