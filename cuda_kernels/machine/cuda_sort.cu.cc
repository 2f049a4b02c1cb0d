// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/machine/cuda_sort.h"

#include <cuda_runtime.h>

#include <cub/cub.cuh>

#include "cuda_kernels/machine/cuda_launch.cuh"

namespace ceres_ext::kernels {
namespace {

// call(memory, num_bytes) is a call of CUB: with no memory it says how many
// bytes it needs, with them it queues its work.
template <typename Call>
Status RunInScratch(const Call& call,
                    DeviceBuffer<unsigned char>* scratch,
                    CudaContext* context) {
  // CUB uses CUDA's last error, which may belong to the caller.
  static_cast<void>(cudaGetLastError());
  size_t num_bytes = 0;
  cudaError_t error = call(nullptr, num_bytes);
  if (error == cudaSuccess) {
    CERES_EXT_RETURN_IF_ERROR(
        scratch->Allocate(context, static_cast<int64_t>(num_bytes)));
    if (!IsCountingMemory()) {
      CERES_EXT_RETURN_IF_ERROR(context->Flush());
      error = call(scratch->data(), num_bytes);
    }
  }
  return error == cudaSuccess ? Status() : CudaError("A sort or sum", error);
}

}  // namespace

Status CudaIndexScratch::Reserve(int64_t n, CudaContext* context) {
  CERES_EXT_RETURN_IF_ERROR(keys_in.Allocate(context, n));
  CERES_EXT_RETURN_IF_ERROR(keys_out.Allocate(context, n));
  CERES_EXT_RETURN_IF_ERROR(values_in.Allocate(context, n));
  CERES_EXT_RETURN_IF_ERROR(values_out.Allocate(context, n));
  return counts.Allocate(context, 2);
}

int NumBits(int64_t count) {
  int bits = 1;
  while (bits < 63 && (int64_t{1} << bits) < count) {
    ++bits;
  }
  return bits;
}

template <typename T>
Status SortPairs(int64_t n,
                 int num_bits,
                 const uint64_t* keys_in,
                 uint64_t* keys_out,
                 const T* values_in,
                 T* values_out,
                 DeviceBuffer<unsigned char>* memory,
                 CudaContext* context) {
  if (n == 0) {
    return {};
  }
  const auto sort_pairs = [&](void* scratch, size_t& num_bytes) {
    return cub::DeviceRadixSort::SortPairs(scratch,
                                           num_bytes,
                                           keys_in,
                                           keys_out,
                                           values_in,
                                           values_out,
                                           n,
                                           0,
                                           num_bits,
                                           context->stream());
  };
  return RunInScratch(sort_pairs, memory, context);
}
template Status SortPairs(int64_t,
                          int,
                          const uint64_t*,
                          uint64_t*,
                          const int32_t*,
                          int32_t*,
                          DeviceBuffer<unsigned char>*,
                          CudaContext*);
template Status SortPairs(int64_t,
                          int,
                          const uint64_t*,
                          uint64_t*,
                          const int64_t*,
                          int64_t*,
                          DeviceBuffer<unsigned char>*,
                          CudaContext*);

Status SortPairs(int64_t n,
                 int num_bits,
                 int32_t* values,
                 CudaIndexScratch* scratch,
                 CudaContext* context) {
  return SortPairs<int32_t>(n,
                            num_bits,
                            scratch->keys_in.data(),
                            scratch->keys_out.data(),
                            scratch->values_in.data(),
                            values,
                            &scratch->sort,
                            context);
}

template <typename T>
Status GroupBegins(int64_t n,
                   int shift,
                   int64_t num_groups,
                   T* begin,
                   const CudaIndexScratch& scratch,
                   CudaContext* context) {
  // Thread k < n writes the groups after the one of key k - 1 up to its own,
  // thread n those after the last key.
  const uint64_t* const keys = scratch.keys_out.data();
  return ForEach(
      "GroupBegins", n + 1, context->stream(), [=] __device__(int64_t k) {
        const int64_t previous =
            k == 0 ? -1 : static_cast<int64_t>(keys[k - 1] >> shift);
        const int64_t last =
            k == n ? num_groups : static_cast<int64_t>(keys[k] >> shift);
        for (int64_t g = previous + 1; g <= last; ++g) {
          begin[g] = static_cast<T>(k);
        }
      });
}
template Status GroupBegins(
    int64_t, int, int64_t, int32_t*, const CudaIndexScratch&, CudaContext*);
template Status GroupBegins(
    int64_t, int, int64_t, int64_t*, const CudaIndexScratch&, CudaContext*);

template <typename T>
Status InclusiveSum(int64_t n,
                    T* x,
                    T* total,
                    DeviceBuffer<unsigned char>* memory,
                    CudaContext* context) {
  *total = 0;
  if (n == 0) {
    return {};
  }
  const auto sum = [&](void* scratch, size_t& num_bytes) {
    return cub::DeviceScan::InclusiveSum(
        scratch, num_bytes, x, x, n, context->stream());
  };
  CERES_EXT_RETURN_IF_ERROR(RunInScratch(sum, memory, context));
  return context->CopyToHost(total, x + n - 1, sizeof(T));
}
template Status InclusiveSum(
    int64_t, int32_t*, int32_t*, DeviceBuffer<unsigned char>*, CudaContext*);
template Status InclusiveSum(
    int64_t, int64_t*, int64_t*, DeviceBuffer<unsigned char>*, CudaContext*);

}  // namespace ceres_ext::kernels
