// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include <cuda_runtime.h>

#include "cuda_kernels/cuda_camera_sums.h"
#include "cuda_kernels/cuda_operations.h"
#include "cuda_kernels/normal_blocks_kernels.h"

namespace ceres_ext::kernels::cuda {
namespace {

constexpr int kBlockSize = 128;

__global__ void ResetBreakdownKernel(int32_t* first_breakdown) {
  *first_breakdown = Breakdown::kNone;
}

template <int N>
__device__ __forceinline__ void LoadDamped(
    const InvertBlockDiagonalParams<N, kDeviceLayout>& p,
    int64_t i,
    double* a) {
#pragma unroll
  for (int e = 0; e < PackedSize(N); ++e) {
    a[e] = p.a(i, e);
  }
  if (p.diagonal != nullptr) {
    AddSquaredDiagonal<N>(p.diagonal + N * i, a);
  }
}

// Mapping: one thread per block. The minimum is of integers.
template <int N>
__global__ void __launch_bounds__(kBlockSize)
    InvertBlockDiagonalKernel(InvertBlockDiagonalParams<N, kDeviceLayout> p) {
  const int64_t i = int64_t{blockIdx.x} * kBlockSize + threadIdx.x;
  if (i >= p.num_blocks) {
    return;  // No barrier follows.
  }
  double a[PackedSize(N)];
  LoadDamped(p, i, a);
  if (!InvertSymmetric<N>(a)) {
    LoadDamped(p, i, a);
    if (!InvertDiagonal<N>(a)) {
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
template <int N>
__global__ void __launch_bounds__(kBlockSize)
    ApplyBlockDiagonalKernel(ApplyBlockDiagonalParams<N, kDeviceLayout> p) {
  const int64_t at = int64_t{blockIdx.x} * kBlockSize + threadIdx.x;
  const int64_t i = at / N;
  const int row = static_cast<int>(at % N);
  if (i >= p.num_blocks || Ended(p.scalars)) {
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

}  // namespace

template <int N>
Status InvertBlockDiagonal(
    const InvertBlockDiagonalParams<N, kDeviceLayout>& params,
    cudaStream_t stream) {
  CERES_EXT_RETURN_IF_ERROR(Launch("ResetBreakdown",
                                   ResetBreakdownKernel,
                                   1,
                                   1,
                                   0,
                                   stream,
                                   params.first_breakdown));
  return Launch("InvertBlockDiagonal",
                InvertBlockDiagonalKernel<N>,
                CeilDivide(params.num_blocks, kBlockSize),
                kBlockSize,
                0,
                stream,
                params);
}

template <int N>
Status ApplyBlockDiagonal(
    const ApplyBlockDiagonalParams<N, kDeviceLayout>& params,
    cudaStream_t stream) {
  return Launch("ApplyBlockDiagonal",
                ApplyBlockDiagonalKernel<N>,
                CeilDivide(params.num_blocks * N, kBlockSize),
                kBlockSize,
                0,
                stream,
                params);
}

#define CERES_EXT_INSTANTIATE(N)                                         \
  template Status InvertBlockDiagonal(                                   \
      const InvertBlockDiagonalParams<N, kDeviceLayout>&, cudaStream_t); \
  template Status ApplyBlockDiagonal(                                    \
      const ApplyBlockDiagonalParams<N, kDeviceLayout>&, cudaStream_t)

CERES_EXT_INSTANTIATE(3);
CERES_EXT_INSTANTIATE(9);
CERES_EXT_INSTANTIATE(10);
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext::kernels::cuda
