// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The sorts, scans and selections that index structures are made of, on the
// device.
#ifndef CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_SORT_H_
#define CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_SORT_H_

#include <cstdint>

#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_context.h"
#include "cuda_kernels/machine/device_buffer.h"

namespace ceres_ext::kernels {

// Bits needed for the values 0 .. count - 1, at least 1.
int NumBits(int64_t count);

// Stable sort of (key, value) pairs by the lowest num_bits bits of the key.
// All arrays hold n elements in device memory and don't overlap; scratch grows
// as needed.
Status SortPairs(const uint64_t* keys_in,
                 uint64_t* keys_out,
                 const int32_t* values_in,
                 int32_t* values_out,
                 int64_t n,
                 int num_bits,
                 DeviceBuffer<unsigned char>* scratch,
                 CudaContext* context);

// out[i] = in[0] + ... + in[i]; out may be in.
Status InclusiveSum(const int32_t* in,
                    int32_t* out,
                    int64_t n,
                    DeviceBuffer<unsigned char>* scratch,
                    CudaContext* context);

// selected = the groups g of 0 .. n - 1 with begin[g + 1] - begin[g] > length,
// ascending; *num_selected, in device memory as well, their number.
Status SelectLongGroups(const int64_t* begin,
                        int64_t n,
                        int64_t length,
                        int32_t* selected,
                        int32_t* num_selected,
                        DeviceBuffer<unsigned char>* scratch,
                        CudaContext* context);

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_SORT_H_
