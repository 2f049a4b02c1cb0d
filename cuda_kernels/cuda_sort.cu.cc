// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/cuda_sort.h"

#include <cuda_runtime.h>

#include <cub/cub.cuh>

#include "cuda_kernels/cuda_launch.h"

namespace ceres_ext::kernels {

int NumBits(int64_t count) {
  int bits = 1;
  while (bits < 63 && (int64_t{1} << bits) < count) {
    ++bits;
  }
  return bits;
}

Status SortPairs(const uint64_t* keys_in,
                 uint64_t* keys_out,
                 const int32_t* values_in,
                 int32_t* values_out,
                 int64_t n,
                 int num_bits,
                 DeviceBuffer<unsigned char>* scratch,
                 CudaContext* context) {
  if (n == 0) {
    return Status();
  }
  size_t num_bytes = 0;
  CERES_EXT_RETURN_IF_CUDA_ERROR(
      cub::DeviceRadixSort::SortPairs(nullptr,
                                      num_bytes,
                                      keys_in,
                                      keys_out,
                                      values_in,
                                      values_out,
                                      n,
                                      0,
                                      num_bits,
                                      context->stream()));
  CERES_EXT_RETURN_IF_ERROR(
      scratch->Allocate(context, static_cast<int64_t>(num_bytes)));
  CERES_EXT_RETURN_IF_CUDA_ERROR(
      cub::DeviceRadixSort::SortPairs(scratch->data(),
                                      num_bytes,
                                      keys_in,
                                      keys_out,
                                      values_in,
                                      values_out,
                                      n,
                                      0,
                                      num_bits,
                                      context->stream()));
  return Status();
}

Status InclusiveSum(const int32_t* in,
                    int32_t* out,
                    int64_t n,
                    DeviceBuffer<unsigned char>* scratch,
                    CudaContext* context) {
  if (n == 0) {
    return Status();
  }
  size_t num_bytes = 0;
  CERES_EXT_RETURN_IF_CUDA_ERROR(cub::DeviceScan::InclusiveSum(
      nullptr, num_bytes, in, out, n, context->stream()));
  CERES_EXT_RETURN_IF_ERROR(
      scratch->Allocate(context, static_cast<int64_t>(num_bytes)));
  CERES_EXT_RETURN_IF_CUDA_ERROR(cub::DeviceScan::InclusiveSum(
      scratch->data(), num_bytes, in, out, n, context->stream()));
  return Status();
}

}  // namespace ceres_ext::kernels
