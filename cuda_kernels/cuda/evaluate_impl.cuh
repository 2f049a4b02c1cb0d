// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The device body of EvaluateJacobian for any layout of its blocks. Included by
// .cu.cc files that instantiate it.
#ifndef CERES_EXT_CUDA_KERNELS_CUDA_EVALUATE_IMPL_CUH_
#define CERES_EXT_CUDA_KERNELS_CUDA_EVALUATE_IMPL_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/cuda/vector_sums.cuh"
#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/model/bal_model.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/ops/evaluate.h"
#include "cuda_kernels/ops/normal_blocks.h"

namespace ceres_ext::kernels {

template <int N, typename T, BlockLayout kLayout>
__device__ __forceinline__ bool StoreBlock(const double* from,
                                           int64_t k,
                                           const BlockRef<T, N, kLayout>& to) {
  T values[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    values[i] = static_cast<T>(from[i]);
    // Streamed: more than the cache holds is written before anyone reads it.
    __stcs(&to(k, i), values[i]);
  }
  return AllFinite(values, N);
}

// *bits = what the camera maps are not (ClassifyMapValue).
// Mapping: one thread per value. Bits are set or not in any order.
template <int C>
__global__ void ClassifyMapsKernel(int64_t num_values,
                                   const double* maps,
                                   int32_t* bits) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= num_values) {
    return;  // No barrier follows.
  }
  const int32_t own = ClassifyMapValue<C>(maps, at);
  if (own != 0) {
    atomicOr(bits, own);
  }
}

// Mapping: threads stride over the observations, in point order. The last block
// sets the evaluation. Order: base/vector_sums.h.
template <typename T, int C, BlockLayout kLayout>
__global__ void __launch_bounds__(kVectorBlock)
    EvaluateJacobianKernel(EvaluateJacobianParams<T, C, kLayout> p,
                           const int32_t* map_bits,
                           double* partial,
                           int32_t* ticket) {
  using Shape = BalShape<C>;
  const int32_t bits = *map_bits;
  TwoSums value;
  for (int64_t k = int64_t{blockIdx.x} * kVectorBlock + threadIdx.x;
       k < p.index.num_observations;
       k += int64_t{gridDim.x} * kVectorBlock) {
    double residual[Shape::kNumResiduals];
    double jc[Shape::kFSize];
    double jp[Shape::kESize];
    EvaluateObservation(p, bits, k, residual, jc, jp);
    value.first += residual[0] * residual[0] + residual[1] * residual[1];
    const bool jc_finite = StoreBlock<Shape::kFSize>(jc, k, p.camera_blocks);
    const bool jp_finite = StoreBlock<Shape::kESize>(jp, k, p.point_blocks);
    const bool finite = AllFinite(residual, 2) && jc_finite && jp_finite;
    value.second += finite ? 0.0 : 1.0;
    if (p.residuals != nullptr) {
      p.residuals[2 * k] = residual[0];
      p.residuals[2 * k + 1] = residual[1];
    }
  }
  TwoSums sum;
  if (SumOverBlocks<AddFirst>(value, partial, ticket, &sum)) {
    p.evaluation->cost = 0.5 * sum.first;
    p.evaluation->num_not_finite = static_cast<int64_t>(sum.second);
  }
}

template <typename T, int C, BlockLayout kLayout>
Status Run(const EvaluateJacobianParams<T, C, kLayout>& params,
           CudaMachine* machine) {
  const bool gradient =
      params.camera_gradient != nullptr || params.point_gradient != nullptr;
  if (gradient && params.residuals == nullptr) {
    return Status(StatusCode::kInvalidArgument,
                  "On the device a gradient needs room for the residuals.");
  }
  const int64_t num_map_values =
      int64_t{kBalLocalCameraDim * C} * params.index.num_cameras;
  CERES_EXT_RETURN_IF_ERROR(
      SetValue("ResetFlag", machine->flag(), int32_t{0}, machine->stream()));
  CERES_EXT_RETURN_IF_ERROR(Launch("ClassifyMaps",
                                   ClassifyMapsKernel<C>,
                                   {CeilDivide(num_map_values, 256), 256},
                                   machine->stream(),
                                   num_map_values,
                                   params.camera_maps,
                                   machine->flag()));
  CERES_EXT_RETURN_IF_ERROR(
      Launch("EvaluateJacobian",
             EvaluateJacobianKernel<T, C, kLayout>,
             {NumSumBlocks(params.index.num_observations), kVectorBlock},
             machine->stream(),
             params,
             static_cast<const int32_t*>(machine->flag()),
             machine->sum_partial(),
             machine->sum_ticket()));
  if (!gradient) {
    return Status();
  }
  // J'r from the model, not from the stored blocks, which may be rounded. No
  // block array takes part, so the layout does not matter.
  using Source = RecomputedJacobian<double, C>;
  NormalBlocksParams<Source, kDeviceLayout> normal;
  normal.index = params.index;
  normal.jacobian = Source{
      params.cameras, params.camera_maps, params.points, params.point_scale};
  normal.b = params.residuals;
  normal.point_gradient = params.point_gradient;
  normal.camera_gradient = params.camera_gradient;
  return Run(normal, machine);
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_CUDA_EVALUATE_IMPL_CUH_
