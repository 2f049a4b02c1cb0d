// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Sums over whole vectors in one kernel, in the order of base/vector_sums.h.
#ifndef CERES_EXT_CUDA_KERNELS_CUDA_VECTOR_SUMS_CUH_
#define CERES_EXT_CUDA_KERNELS_CUDA_VECTOR_SUMS_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda_kernels/base/vector_sums.h"
#include "cuda_kernels/machine/cuda_warp.cuh"

namespace ceres_ext::kernels {

inline constexpr int kVectorBlock = kSumLanes;

// `first` and `second` combined over a block, valid in thread 0. Every thread
// must call it; ends with a barrier.
template <typename First>
__device__ __forceinline__ TwoSums CombineOverBlock(TwoSums value) {
  constexpr int kNumWarps = kVectorBlock / kWarpSize;
  __shared__ double first[kNumWarps];
  __shared__ double second[kNumWarps];
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    value.first = First::Combine(
        value.first, __shfl_xor_sync(kFullWarp, value.first, offset));
    value.second += __shfl_xor_sync(kFullWarp, value.second, offset);
  }
  if (threadIdx.x % kWarpSize == 0) {
    first[threadIdx.x / kWarpSize] = value.first;
    second[threadIdx.x / kWarpSize] = value.second;
  }
  __syncthreads();  // Thread 0 reads what all warps have written.
  TwoSums sum;
  if (threadIdx.x == 0) {
    for (int w = 0; w < kNumWarps; ++w) {
      sum.first = First::Combine(sum.first, first[w]);
      sum.second += second[w];
    }
  }
  __syncthreads();  // The arrays are free for the next call.
  return sum;
}

// Combines `value` over all threads of the grid, of kVectorBlock threads per
// block. Every thread must call it, once per kernel. Returns true in thread 0
// of the block that is last to arrive, where *sum is valid; false elsewhere.
// Which block is last does not matter. The ticket is an integer and is zero
// again at the end.
template <typename First>
__device__ __forceinline__ bool SumOverBlocks(TwoSums value,
                                              double* partial,
                                              int32_t* ticket,
                                              TwoSums* sum) {
  __shared__ bool is_last;
  const TwoSums of_block = CombineOverBlock<First>(value);
  const int num_blocks = static_cast<int>(gridDim.x);
  if (num_blocks == 1) {
    *sum = of_block;  // Combining it with zeros would change no bit.
    return threadIdx.x == 0;
  }
  if (threadIdx.x == 0) {
    partial[2 * blockIdx.x] = of_block.first;
    partial[2 * blockIdx.x + 1] = of_block.second;
    // Any thread that sees the ticket below sees the sums above.
    __threadfence();
    is_last = atomicAdd(ticket, 1) == num_blocks - 1;
  }
  __syncthreads();  // The block leaves or stays as one.
  if (!is_last) {
    return false;
  }
  __threadfence();
  TwoSums total;
  for (int i = static_cast<int>(threadIdx.x); i < num_blocks;
       i += kVectorBlock) {
    total.first = First::Combine(total.first, __ldcg(partial + 2 * i));
    total.second += __ldcg(partial + 2 * i + 1);
  }
  *sum = CombineOverBlock<First>(total);
  if (threadIdx.x == 0) {
    *ticket = 0;
  }
  return threadIdx.x == 0;
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_CUDA_VECTOR_SUMS_CUH_
