// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The clock of a loop with a limit of time.
#ifndef CERES_EXT_SMALL_MODEL_WINDOW_MODEL_CLOCK_H_
#define CERES_EXT_SMALL_MODEL_WINDOW_MODEL_CLOCK_H_

#include <chrono>
#include <cstdint>

#include "cuda_kernels/base/host_device.h"

namespace ceres_ext {

// Nanoseconds of a clock of the machine that calls this.
CERES_EXT_HOST_DEVICE inline int64_t NanosecondsNow() {
#ifdef __CUDA_ARCH__
  int64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
#else
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
#endif
}

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_MODEL_WINDOW_MODEL_CLOCK_H_
