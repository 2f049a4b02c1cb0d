// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/ops/covariance.h"

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_machine.h"

namespace ceres_ext::kernels {
namespace {

constexpr int kColumnBlock = 128;
constexpr int kWarps = kColumnBlock / kWarpSize;

// A warp computes a block; its lanes share the elements of S^-1.
template <int E>
__global__ void __launch_bounds__(kColumnBlock)
    EliminatedBlocksKernel(EliminatedBlocksParams p, int family) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t at = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpSize;
  if (at >= p.of.n || p.of.blocks[at].left_family != family) {
    return;
  }
  const CovarianceBlock block = p.of.blocks[at];
  const CovariancePairs& pairs = p.of.pairs[family];
  const int32_t e = block.left_block;
  double sums[E][E] = {};
  for (int64_t k = pairs.Begin(e); k < pairs.End(e); ++k) {
    const int32_t f = pairs.FBlock(k);
    const int columns = p.of.f_size[f];
    const int32_t* const id = p.id + p.value_begin[f];
    const double* const w = pairs.W(k);
    for (int64_t l = pairs.Begin(e); l <= k; ++l) {
      const int32_t g = pairs.FBlock(l);
      const int num_elements = p.of.f_size[g] * columns;
      const int32_t* const left_id = p.id + p.value_begin[g];
      const double* const left_w = pairs.W(l);
      const double weight = l == k ? 1.0 : 2.0;
      for (int t = lane; t < num_elements; t += kWarpSize) {
        const int a = t / columns;
        const int c = t - columns * a;
        const int32_t u = left_id[a];
        const int32_t v = id[c];
        if (u < 0 || v < 0) {
          continue;
        }
        const double x = weight * p.x[p.stride * u + v];
#pragma unroll
        for (int i = 0; i < E; ++i) {
          const double wx = left_w[E * a + i] * x;
#pragma unroll
          for (int j = 0; j < E; ++j) {
            sums[i][j] += wx * w[E * c + j];
          }
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < E; ++i) {
#pragma unroll
    for (int j = 0; j < E; ++j) {
      sums[i][j] = WarpSum(sums[i][j]);
    }
  }
  // An element of the block a lane.
  for (int t = lane; t < E * E; t += kWarpSize) {
    const int i = t / E;
    const int j = t - E * i;
    double sum = 0.0;
#pragma unroll
    for (int m = 0; m < E; ++m) {
#pragma unroll
      for (int l = 0; l < E; ++l) {
        sum += pairs.VInverse(e, i, m) * sums[m][l] * pairs.VInverse(e, l, j);
      }
    }
    p.of.values[block.out + t] += sum;
  }
}

using Kernel = void (*)(EliminatedBlocksParams, int);

Kernel KernelOf(int32_t size) {
  static_assert(kMaxCovarianceEliminatedSize == 6, "a kernel for each size");
  switch (size) {
    case 1:
      return EliminatedBlocksKernel<1>;
    case 2:
      return EliminatedBlocksKernel<2>;
    case 3:
      return EliminatedBlocksKernel<3>;
    case 4:
      return EliminatedBlocksKernel<4>;
    case 5:
      return EliminatedBlocksKernel<5>;
    default:
      return EliminatedBlocksKernel<6>;
  }
}

}  // namespace

Status Run(const EliminatedBlocksParams& params, CudaMachine* machine) {
  for (int family = 0; family < kMaxCovarianceFamilies; ++family) {
    const CovariancePairs& pairs = params.of.pairs[family];
    if (pairs.point_begin != nullptr) {
      CERES_EXT_RETURN_IF_ERROR(
          Launch("EliminatedBlocks",
                 KernelOf(pairs.e_size),
                 {CeilDivide(params.of.n, kWarps), kColumnBlock},
                 machine->stream(),
                 params,
                 family));
    }
  }
  return {};
}

}  // namespace ceres_ext::kernels
