// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The sorts and sums that index structures are made of, on the device.
#ifndef CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_SORT_H_
#define CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_SORT_H_

#include <cstdint>

#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_context.h"
#include "cuda_kernels/machine/device_buffer.h"

namespace ceres_ext::kernels {

// Working memory of the builders of indices, 36 bytes per observation and 4 per
// point. Kept by the caller so that several builds share it; may be released
// after the last.
struct CudaIndexScratch {
  DeviceBuffer<uint64_t> keys_in;
  DeviceBuffer<uint64_t> keys_out;
  DeviceBuffer<int32_t> values_in;
  DeviceBuffer<int32_t> values_out;
  DeviceBuffer<int32_t> counts;  // two
  DeviceBuffer<int32_t> rank;
  DeviceBuffer<unsigned char> sort;

  // Room for n keys and values.
  Status Reserve(int64_t n, CudaContext* context);
};

// Bits needed for the values 0 .. count - 1, at least 1.
int NumBits(int64_t count);

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
// The same of the first n pairs of scratch->keys_in and values_in to
// scratch->keys_out and `values`.
Status SortPairs(int64_t n,
                 int num_bits,
                 int32_t* values,
                 CudaIndexScratch* scratch,
                 CudaContext* context);

// begin[g] = how many of the first n of scratch->keys_out, which are sorted,
// have key >> shift below g, 0 <= g <= num_groups. T: int32_t, int64_t.
template <typename T>
Status GroupBegins(int64_t n,
                   int shift,
                   int64_t num_groups,
                   T* begin,
                   const CudaIndexScratch& scratch,
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

#endif  // CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_SORT_H_
