// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The device bodies of the block diagonal preconditioners for any layout.
// Included by .cu.cc files that instantiate them.
#ifndef CERES_EXT_CUDA_KERNELS_CUDA_PRECONDITIONER_IMPL_CUH_
#define CERES_EXT_CUDA_KERNELS_CUDA_PRECONDITIONER_IMPL_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda_kernels/base/block_view.h"
#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/cuda/camera_sums.cuh"
#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/ops/normal_blocks.h"
#include "cuda_kernels/ops/preconditioner.h"

namespace ceres_ext::kernels {

inline constexpr int kPreconditionerBlock = 128;

template <int N, BlockLayout kLayout>
__device__ __forceinline__ void LoadDamped(
    const InvertBlockDiagonalParams<N, kLayout>& p, int64_t i, double* a) {
#pragma unroll
  for (int e = 0; e < PackedSize(N); ++e) {
    a[e] = p.a(i, e);
  }
  if (p.diagonal != nullptr) {
    AddSquaredDiagonal<N>(p.diagonal + N * i, a);
  }
}

// Mapping: one thread per block. The minimum is of integers.
template <int N, BlockLayout kLayout>
__global__ void __launch_bounds__(kPreconditionerBlock)
    InvertBlockDiagonalKernel(InvertBlockDiagonalParams<N, kLayout> p) {
  const int64_t i = int64_t{blockIdx.x} * kPreconditionerBlock + threadIdx.x;
  if (i >= p.num_blocks) {
    return;  // No barrier follows.
  }
  double a[PackedSize(N)];
  LoadDamped(p, i, a);
  if (!InvertSymmetric<N>(a)) {
    LoadDamped(p, i, a);
    const double* d = p.diagonal == nullptr ? nullptr : p.diagonal + N * i;
    if (!InvertDiagonal<N>(d, a)) {
      atomicMin(p.first_breakdown, static_cast<int32_t>(i));
    }
  }
#pragma unroll
  for (int e = 0; e < PackedSize(N); ++e) {
    p.inverse(i, e) = a[e];
  }
}

// Mapping: one thread per block and row. For N = 9 a warp reads 3.6 rows of
// every element of the blocks: 32 B pieces of the element's array.
template <int N, BlockLayout kLayout>
__global__ void __launch_bounds__(kPreconditionerBlock)
    ApplyBlockDiagonalKernel(ApplyBlockDiagonalParams<N, kLayout> p) {
  const int64_t at = int64_t{blockIdx.x} * kPreconditionerBlock + threadIdx.x;
  const int64_t i = at / N;
  const int row = static_cast<int>(at % N);
  if (i >= p.num_blocks || PcgHasEnded(p.scalars)) {
    return;  // No barrier follows.
  }
  double sum = 0.0;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    sum += p.inverse(i, j <= row ? PackedIndex(row, j) : PackedIndex(j, row)) *
           p.r[N * i + j];
  }
  p.z[at] = sum;
}

template <int N, BlockLayout kLayout>
Status Run(const InvertBlockDiagonalParams<N, kLayout>& params,
           CudaMachine* machine) {
  CERES_EXT_RETURN_IF_ERROR(SetValue("ResetBreakdown",
                                     params.first_breakdown,
                                     int32_t{Breakdown::kNone},
                                     machine->stream()));
  return Launch("InvertBlockDiagonal",
                InvertBlockDiagonalKernel<N, kLayout>,
                CeilDivide(params.num_blocks, kPreconditionerBlock),
                kPreconditionerBlock,
                0,
                machine->stream(),
                params);
}

template <int N, BlockLayout kLayout>
Status Run(const ApplyBlockDiagonalParams<N, kLayout>& params,
           CudaMachine* machine) {
  return Launch("ApplyBlockDiagonal",
                ApplyBlockDiagonalKernel<N, kLayout>,
                CeilDivide(params.num_blocks * N, kPreconditionerBlock),
                kPreconditionerBlock,
                0,
                machine->stream(),
                params);
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_CUDA_PRECONDITIONER_IMPL_CUH_
