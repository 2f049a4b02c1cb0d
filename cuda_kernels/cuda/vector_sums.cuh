// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Sums over whole vectors in one kernel, in a fixed order. Included by .cu.cc
// files only.
#ifndef CERES_EXT_CUDA_KERNELS_CUDA_VECTOR_SUMS_CUH_
#define CERES_EXT_CUDA_KERNELS_CUDA_VECTOR_SUMS_CUH_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/structure/cuda_workspace.h"

namespace ceres_ext::kernels {

inline constexpr int kVectorBlock = 256;

// Blocks of a kernel over n elements whose threads stride over them.
inline int64_t NumVectorBlocks(int64_t n) {
  return std::max<int64_t>(
      1, std::min<int64_t>(kVectorBlocks, CeilDivide(n, 2 * kVectorBlock)));
}

struct TwoSums {
  double first;
  double second;
};

// Adds up `value` over all threads of the grid. Every thread must call it, once
// per kernel. Returns true in thread 0 of the block that is last to arrive,
// where *sum is valid; false elsewhere.
// Order: a tree over the block; the blocks' sums, strided over the threads of
// the last block from 0 on; a tree over that block. Which block is last does
// not matter. The ticket is an integer and is zero again at the end.
__device__ inline bool SumOverBlocks(TwoSums value,
                                     double* partial,
                                     int32_t* ticket,
                                     TwoSums* sum) {
  __shared__ bool is_last;
  const double first = BlockSum<kVectorBlock>(value.first);
  const double second = BlockSum<kVectorBlock>(value.second);
  const int num_blocks = static_cast<int>(gridDim.x);
  if (threadIdx.x == 0) {
    partial[2 * blockIdx.x] = first;
    partial[2 * blockIdx.x + 1] = second;
    // The sums above are seen by whoever sees the ticket below.
    __threadfence();
    is_last = atomicAdd(ticket, 1) == num_blocks - 1;
  }
  __syncthreads();  // The block leaves or stays as one.
  if (!is_last) {
    return false;
  }
  __threadfence();
  TwoSums total{0.0, 0.0};
  for (int i = static_cast<int>(threadIdx.x); i < num_blocks;
       i += kVectorBlock) {
    total.first += __ldcg(partial + 2 * i);
    total.second += __ldcg(partial + 2 * i + 1);
  }
  sum->first = BlockSum<kVectorBlock>(total.first);
  sum->second = BlockSum<kVectorBlock>(total.second);
  if (threadIdx.x == 0) {
    *ticket = 0;
  }
  return threadIdx.x == 0;
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_CUDA_VECTOR_SUMS_CUH_
