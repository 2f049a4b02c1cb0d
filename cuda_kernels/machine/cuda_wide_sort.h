// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Sorts and sums of values of 32 or 64 bits in the caller's memory, for indices
// of more elements than an int32 counts. cuda_sort.h has those of observations.
#ifndef CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_WIDE_SORT_H_
#define CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_WIDE_SORT_H_

#include <cstdint>

#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_context.h"
#include "cuda_kernels/machine/device_buffer.h"

namespace ceres_ext::kernels {

// Stable sort of n pairs of a key and a value by the lowest num_bits bits of
// the key, in memory that is taken where `memory` has too little. T: int32_t,
// int64_t.
template <typename T>
Status SortPairs(int64_t n,
                 int num_bits,
                 const uint64_t* keys_in,
                 uint64_t* keys_out,
                 const T* values_in,
                 T* values_out,
                 DeviceBuffer<unsigned char>* memory,
                 CudaContext* context);

// x[i] = x[0] + ... + x[i], 0 <= i < n. *total, on the host: the last of them,
// or 0. Waits for the stream. T: int32_t, int64_t.
template <typename T>
Status InclusiveSum(int64_t n,
                    T* x,
                    T* total,
                    DeviceBuffer<unsigned char>* memory,
                    CudaContext* context);

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_WIDE_SORT_H_
