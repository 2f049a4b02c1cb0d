// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Each step is at most two kernels: one that sums and, in the last block to
// arrive, sets the scalars; and one that moves the vector by what they say.
// Mapping: threads stride over the elements.
#include <cuda_runtime.h>

#include "cuda_kernels/cuda/camera_sums.cuh"
#include "cuda_kernels/ops/cuda_operations.h"
#include "cuda_kernels/cuda/vector_sums.cuh"

namespace ceres_ext::kernels::cuda {
namespace {

__device__ __forceinline__ int64_t FirstElement() {
  return int64_t{blockIdx.x} * kVectorBlock + threadIdx.x;
}
__device__ __forceinline__ int64_t ElementStride() {
  return int64_t{gridDim.x} * kVectorBlock;
}

// x'y over the elements of this thread.
__device__ __forceinline__ double DotOfThread(int64_t n,
                                              const double* x,
                                              const double* y) {
  double sum = 0.0;
#pragma unroll 4
  for (int64_t i = FirstElement(); i < n; i += ElementStride()) {
    sum += x[i] * y[i];
  }
  return sum;
}

__global__ void __launch_bounds__(kVectorBlock)
    PcgStartKernel(PcgStartParams params, double* partial, int32_t* ticket) {
  double squared_norm = 0.0;
#pragma unroll 4
  for (int64_t i = FirstElement(); i < params.n; i += ElementStride()) {
    const double b = params.rhs[i];
    params.x[i] = 0.0;
    params.r[i] = b;
    squared_norm += b * b;
  }
  TwoSums sum;
  if (!SumOverBlocks({squared_norm, 0.0}, partial, ticket, &sum)) {
    return;  // No barrier follows.
  }
  *params.scalars = StartPcg(sum.first,
                             params.q_tolerance,
                             params.r_tolerance,
                             params.min_num_iterations,
                             params.max_num_iterations);
}

// rho and beta.
__global__ void __launch_bounds__(kVectorBlock)
    PcgRhoKernel(PcgDirectionParams params, double* partial, int32_t* ticket) {
  if (Ended(params.scalars)) {
    return;  // The whole grid leaves.
  }
  TwoSums sum;
  if (!SumOverBlocks({DotOfThread(params.n, params.r, params.z), 0.0},
                     partial,
                     ticket,
                     &sum)) {
    return;  // No barrier follows.
  }
  SetPcgRho(sum.first, params.scalars);
}

// p = z + beta p, in the first iteration p = z.
__global__ void __launch_bounds__(kVectorBlock)
    PcgDirectionKernel(PcgDirectionParams params) {
  if (Ended(params.scalars)) {
    return;  // The whole grid leaves.
  }
  // p has no value yet in the first iteration.
  const bool first = params.scalars->num_iterations == 1;
  const double beta = params.scalars->beta;
#pragma unroll 4
  for (int64_t i = FirstElement(); i < params.n; i += ElementStride()) {
    params.p[i] = first ? params.z[i] : params.z[i] + beta * params.p[i];
  }
}

// p'q and alpha.
__global__ void __launch_bounds__(kVectorBlock)
    PcgAlphaKernel(PcgAdvanceParams params, double* partial, int32_t* ticket) {
  if (Ended(params.scalars)) {
    return;  // The whole grid leaves.
  }
  TwoSums sum;
  if (!SumOverBlocks({DotOfThread(params.n, params.p, params.q), 0.0},
                     partial,
                     ticket,
                     &sum)) {
    return;  // No barrier follows.
  }
  SetPcgAlpha(sum.first, params.scalars);
}

// x += alpha p.
__global__ void __launch_bounds__(kVectorBlock)
    PcgAdvanceKernel(PcgAdvanceParams params) {
  if (Ended(params.scalars)) {
    return;  // The whole grid leaves.
  }
  const double alpha = params.scalars->alpha;
#pragma unroll 4
  for (int64_t i = FirstElement(); i < params.n; i += ElementStride()) {
    params.x[i] += alpha * params.p[i];
  }
}

__global__ void __launch_bounds__(kVectorBlock)
    PcgResidualKernel(PcgResidualParams params,
                      double* partial,
                      int32_t* ticket) {
  if (Ended(params.scalars)) {
    return;  // The whole grid leaves.
  }
  const double alpha = params.scalars->alpha;
  TwoSums value{0.0, 0.0};
#pragma unroll 4
  for (int64_t i = FirstElement(); i < params.n; i += ElementStride()) {
    const double b = params.rhs[i];
    const double r =
        params.reset ? b - params.q[i] : params.r[i] - alpha * params.q[i];
    params.r[i] = r;
    value.first += params.x[i] * (b + r);
    value.second += r * r;
  }
  TwoSums sum;
  if (!SumOverBlocks(value, partial, ticket, &sum)) {
    return;  // No barrier follows.
  }
  SetPcgResidual(sum.first, sum.second, params.scalars);
}

__global__ void __launch_bounds__(kVectorBlock)
    DotKernel(DotParams params, double* partial, int32_t* ticket) {
  TwoSums sum;
  if (SumOverBlocks({DotOfThread(params.n, params.x, params.y), 0.0},
                    partial,
                    ticket,
                    &sum)) {
    *params.result = sum.first;
  }
}

}  // namespace

Status PcgStart(const PcgStartParams& params,
                const CudaWorkspaceView& workspace,
                cudaStream_t stream) {
  return Launch("PcgStart",
                PcgStartKernel,
                NumVectorBlocks(params.n),
                kVectorBlock,
                0,
                stream,
                params,
                workspace.vector_partial,
                workspace.ticket);
}

Status PcgDirection(const PcgDirectionParams& params,
                    const CudaWorkspaceView& workspace,
                    cudaStream_t stream) {
  const int64_t num_blocks = NumVectorBlocks(params.n);
  CERES_EXT_RETURN_IF_ERROR(Launch("PcgRho",
                                   PcgRhoKernel,
                                   num_blocks,
                                   kVectorBlock,
                                   0,
                                   stream,
                                   params,
                                   workspace.vector_partial,
                                   workspace.ticket));
  return Launch("PcgDirection",
                PcgDirectionKernel,
                num_blocks,
                kVectorBlock,
                0,
                stream,
                params);
}

Status PcgAdvance(const PcgAdvanceParams& params,
                  const CudaWorkspaceView& workspace,
                  cudaStream_t stream) {
  const int64_t num_blocks = NumVectorBlocks(params.n);
  CERES_EXT_RETURN_IF_ERROR(Launch("PcgAlpha",
                                   PcgAlphaKernel,
                                   num_blocks,
                                   kVectorBlock,
                                   0,
                                   stream,
                                   params,
                                   workspace.vector_partial,
                                   workspace.ticket));
  return Launch("PcgAdvance",
                PcgAdvanceKernel,
                num_blocks,
                kVectorBlock,
                0,
                stream,
                params);
}

Status PcgResidual(const PcgResidualParams& params,
                   const CudaWorkspaceView& workspace,
                   cudaStream_t stream) {
  return Launch("PcgResidual",
                PcgResidualKernel,
                NumVectorBlocks(params.n),
                kVectorBlock,
                0,
                stream,
                params,
                workspace.vector_partial,
                workspace.ticket);
}

Status Dot(const DotParams& params,
           const CudaWorkspaceView& workspace,
           cudaStream_t stream) {
  return Launch("Dot",
                DotKernel,
                NumVectorBlocks(params.n),
                kVectorBlock,
                0,
                stream,
                params,
                workspace.vector_partial,
                workspace.ticket);
}

}  // namespace ceres_ext::kernels::cuda
