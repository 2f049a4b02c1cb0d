// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The host's part of MachineRates, measured. Takes about 0.05 s and 64 MB, and
// starts a thread for each usable processor. Thread safe.
#ifndef CERES_EXT_CUDA_KERNELS_MACHINE_HOST_RATES_H_
#define CERES_EXT_CUDA_KERNELS_MACHINE_HOST_RATES_H_

#include "cuda_kernels/base/machine_rates.h"

namespace ceres_ext::kernels {

// Sets host_values_per_second and host_bytes_per_second. False, and nothing is
// set, where there is no memory.
bool MeasureHostRates(MachineRates* rates);

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MACHINE_HOST_RATES_H_
