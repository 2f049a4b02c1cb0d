// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The device's part of MachineRates, measured on the context's stream: 0.1 to
// 0.2 s, of which 0.05 wait for the clocks of an idle card to rise. Takes
// kBytesForRates for that time. Host-includable: needs no CUDA toolkit.
#ifndef CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_RATES_H_
#define CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_RATES_H_

#include <cstdint>

#include "cuda_kernels/base/machine_rates.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_context.h"

namespace ceres_ext::kernels {

// Two arrays that no second level of caches has.
inline constexpr int64_t kBytesForRates = int64_t{256} << 20;

// Sets bytes_per_second, launch_seconds and both fmas_per_second. After an
// error nothing is set. kOutOfMemory: there is no room.
Status MeasureDeviceRates(CudaContext* context, MachineRates* rates);

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_RATES_H_
