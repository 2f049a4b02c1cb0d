// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#ifndef CERES_EXT_TESTS_COMMON_HAS_DEVICE_H_
#define CERES_EXT_TESTS_COMMON_HAS_DEVICE_H_

#include "ceres_ext/options.h"

#ifdef CERES_EXT_WITH_CUDA
#include "cuda_kernels/machine/cuda_context.h"
#endif

namespace ceres_ext {

// The machine of tests that are built for the host and with a device emulated.
#ifdef CERES_EXT_EMULATED
inline constexpr DeviceType kDevice = DEVICE_CUDA;
#else
inline constexpr DeviceType kDevice = DEVICE_HOST;
#endif

// The devices of a test of all; the host's is one of the two programs alone.
#ifdef CERES_EXT_EMULATED
inline constexpr DeviceType kDevices[] = {DEVICE_CUDA};
#else
inline constexpr DeviceType kDevices[] = {DEVICE_HOST, DEVICE_CUDA};
#endif

// Runs that must have the same bits. An emulated device has one thread and one
// order, so that more of them would prove no more.
#ifdef CERES_EXT_EMULATED
inline constexpr int kNumRuns = 2;
#else
inline constexpr int kNumRuns = 10;
#endif

// Devices, real or emulated.
inline int NumDevices() {
#ifdef CERES_EXT_WITH_CUDA
  return kernels::NumCudaDevices(nullptr);
#else
  return 0;
#endif
}
inline bool HasDevice() { return NumDevices() > 0; }

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_COMMON_HAS_DEVICE_H_
