// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "examples/bal/study/study_kernels.h"

#include "cuda_kernels/cuda_launch.h"

namespace ceres_ext::bal::cuda {
namespace {

using kernels::CeilDivide;
using kernels::Launch;
using kernels::Status;

constexpr int kBlock = 256;

__device__ __forceinline__ int64_t Thread() {
  return int64_t{blockIdx.x} * kBlock + threadIdx.x;
}

__global__ void SubtractKernel(SubtractParams p) {
  const int64_t i = Thread();
  if (i < p.n) {
    p.out[i] = p.x[i] - p.step[i];
  }
}

__global__ void DampingKernel(DampingParams p) {
  const int64_t i = Thread();
  if (i < p.n) {
    p.diagonal[i] = DampingOf(p.squared_norms[i], p.radius);
  }
}

__global__ void RoundKernel(RoundParams p) {
  const int64_t i = Thread();
  if (i < p.n) {
    p.out[i] = static_cast<float>(p.x[i]);
  }
}

__global__ void GatherPairsKernel(int64_t n,
                                  const int32_t* input_id,
                                  const double* in,
                                  double* out) {
  const int64_t k = Thread();
  if (k < n) {
    const int64_t i = input_id[k];
    out[2 * k] = in[2 * i];
    out[2 * k + 1] = in[2 * i + 1];
  }
}

__global__ void RelabelKernel(int64_t n, const int32_t* rank, int32_t* ids) {
  const int64_t i = Thread();
  if (i < n) {
    ids[i] = rank[ids[i]];
  }
}

}  // namespace

Status Subtract(const SubtractParams& params, cudaStream_t stream) {
  return Launch("Subtract",
                SubtractKernel,
                CeilDivide(params.n, kBlock),
                kBlock,
                0,
                stream,
                params);
}

Status Damping(const DampingParams& params, cudaStream_t stream) {
  return Launch("Damping",
                DampingKernel,
                CeilDivide(params.n, kBlock),
                kBlock,
                0,
                stream,
                params);
}

Status Round(const RoundParams& params, cudaStream_t stream) {
  return Launch("Round",
                RoundKernel,
                CeilDivide(params.n, kBlock),
                kBlock,
                0,
                stream,
                params);
}

Status GatherPairs(int64_t n,
                   const int32_t* input_id,
                   const double* in,
                   double* out,
                   cudaStream_t stream) {
  return Launch("GatherPairs",
                GatherPairsKernel,
                CeilDivide(n, kBlock),
                kBlock,
                0,
                stream,
                n,
                input_id,
                in,
                out);
}

Status Relabel(int64_t n,
               const int32_t* rank,
               int32_t* ids,
               cudaStream_t stream) {
  return Launch("Relabel",
                RelabelKernel,
                CeilDivide(n, kBlock),
                kBlock,
                0,
                stream,
                n,
                rank,
                ids);
}

}  // namespace ceres_ext::bal::cuda
