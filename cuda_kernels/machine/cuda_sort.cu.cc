// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/machine/cuda_sort.h"

#include <cuda_runtime.h>
#include <thrust/iterator/counting_iterator.h>

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
  size_t num_bytes = 0;
  CERES_EXT_RETURN_IF_ERROR(call(nullptr, num_bytes));
  CERES_EXT_RETURN_IF_ERROR(
      scratch->Allocate(context, static_cast<int64_t>(num_bytes)));
  return call(scratch->data(), num_bytes);
}

struct IsLongGroup {
  __device__ bool operator()(int32_t g) const {
    return begin[g + 1] - begin[g] > length;
  }
  const int64_t* begin;
  int64_t length;
};

}  // namespace

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
  const auto sort = [&](void* memory, size_t& num_bytes) {
    CERES_EXT_RETURN_IF_CUDA_ERROR(
        cub::DeviceRadixSort::SortPairs(memory,
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
  };
  return RunInScratch(sort, scratch, context);
}

Status InclusiveSum(const int32_t* in,
                    int32_t* out,
                    int64_t n,
                    DeviceBuffer<unsigned char>* scratch,
                    CudaContext* context) {
  if (n == 0) {
    return Status();
  }
  const auto sum = [&](void* memory, size_t& num_bytes) {
    CERES_EXT_RETURN_IF_CUDA_ERROR(cub::DeviceScan::InclusiveSum(
        memory, num_bytes, in, out, n, context->stream()));
    return Status();
  };
  return RunInScratch(sum, scratch, context);
}

Status SelectLongGroups(const int64_t* begin,
                        int64_t n,
                        int64_t length,
                        int32_t* selected,
                        int32_t* num_selected,
                        DeviceBuffer<unsigned char>* scratch,
                        CudaContext* context) {
  if (n == 0) {
    return context->SetBytes(num_selected, 0, sizeof(int32_t));
  }
  const auto select = [&](void* memory, size_t& num_bytes) {
    CERES_EXT_RETURN_IF_CUDA_ERROR(
        cub::DeviceSelect::If(memory,
                              num_bytes,
                              thrust::counting_iterator<int32_t>(0),
                              selected,
                              num_selected,
                              n,
                              IsLongGroup{begin, length},
                              context->stream()));
    return Status();
  };
  return RunInScratch(select, scratch, context);
}

}  // namespace ceres_ext::kernels
