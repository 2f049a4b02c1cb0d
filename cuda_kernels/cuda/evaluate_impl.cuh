// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The device body of EvaluateJacobian for any layout of its blocks. Included by
// .cu.cc files that instantiate it.
#ifndef CERES_EXT_CUDA_KERNELS_CUDA_EVALUATE_IMPL_CUH_
#define CERES_EXT_CUDA_KERNELS_CUDA_EVALUATE_IMPL_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda_kernels/model/bal_model.h"
#include "cuda_kernels/base/block_view.h"
#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/ops/cuda_operations.h"
#include "cuda_kernels/cuda/vector_sums.cuh"
#include "cuda_kernels/ops/evaluate.h"

namespace ceres_ext::kernels::cuda {

__device__ __forceinline__ void LoadPosition(const double* points,
                                             int64_t point,
                                             double* x) {
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    x[i] = points[3 * point + i];
  }
}

template <int N, typename T, BlockLayout kLayout>
__device__ __forceinline__ bool StoreBlock(const double* from,
                                           int64_t k,
                                           const BlockView<T, N, kLayout>& to) {
  T values[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    values[i] = static_cast<T>(from[i]);
    // Streamed: more than the cache holds is written before anyone reads it.
    __stcs(&to(k, i), values[i]);
  }
  return AllFinite(values, N);
}

// *general = 1 where a camera map is not blockdiag(3 x (C - 6), diagonal 6).
// The maps of both BAL parameterisations with their manifolds, scaled and with
// constant coordinates, have that form: 3 C - 12 of their 9 C values matter.
// Mapping: one thread per value. The flag is set or not in any order.
template <int C>
__global__ void ClassifyMapsKernel(int64_t num_values,
                                   const double* maps,
                                   int32_t* general) {
  const int64_t at = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= num_values) {
    return;  // No barrier follows.
  }
  const int i = static_cast<int>(at / C % kBalLocalCameraDim);
  const int j = static_cast<int>(at % C);
  const bool within = i < 3 ? j < C - 6 : j - (C - 6) == i - 3;
  if (!within && maps[at] != 0.0) {
    atomicOr(general, 1);
  }
}

// Jc = J_c map.
template <int C>
__device__ __forceinline__ void MapBlockDiagonal(const double* local,
                                                 const double* map,
                                                 double* jc) {
  constexpr int kRotationDim = C - 6;
#pragma unroll
  for (int j = 0; j < kRotationDim; ++j) {
    const double m0 = map[j];
    const double m1 = map[C + j];
    const double m2 = map[2 * C + j];
    jc[j] = local[0] * m0 + local[1] * m1 + local[2] * m2;
    jc[C + j] = local[9] * m0 + local[10] * m1 + local[11] * m2;
  }
#pragma unroll
  for (int j = 0; j < 6; ++j) {
    const double m = map[(3 + j) * C + kRotationDim + j];
    jc[kRotationDim + j] = local[3 + j] * m;
    jc[C + kRotationDim + j] = local[12 + j] * m;
  }
}

// Mapping, order: as EvaluateCost.
template <typename T, int C, BlockLayout kLayout>
__global__ void __launch_bounds__(kVectorBlock)
    EvaluateJacobianKernel(EvaluateJacobianParams<T, C, kLayout> p,
                           const int32_t* general,
                           double* partial,
                           int32_t* ticket) {
  const bool block_diagonal = *general == 0;
  TwoSums value{0.0, 0.0};
  for (int64_t k = int64_t{blockIdx.x} * kVectorBlock + threadIdx.x;
       k < p.index.num_observations;
       k += int64_t{gridDim.x} * kVectorBlock) {
    const int64_t c = p.index.camera_id[k];
    const int64_t point = p.index.point_id[k];
    const CameraState<double> camera = p.cameras[c];
    double x[3];
    LoadPosition(p.points, point, x);
    const Projection<double> projection = Project(camera, x);
    double residual[2];
    Residual(camera, projection, p.observations + 2 * k, residual);
    double local[2 * kBalLocalCameraDim];
    CameraJacobian(camera, projection, local);
    double jc[2 * C];
    const double* map = p.camera_maps + kBalLocalCameraDim * C * c;
    if (block_diagonal) {
      MapBlockDiagonal<C>(local, map, jc);
    } else {
      MapCameraJacobian<C>(local, map, jc);
    }
    double jp[6];
    PointJacobian(camera, projection, jp);
    if (p.point_scale != nullptr) {
#pragma unroll
      for (int i = 0; i < 6; ++i) {
        jp[i] *= p.point_scale[3 * point + i % 3];
      }
    }
    value.first += residual[0] * residual[0] + residual[1] * residual[1];
    const bool jc_finite = StoreBlock<2 * C>(jc, k, p.camera_blocks);
    const bool jp_finite = StoreBlock<6>(jp, k, p.point_blocks);
    const bool finite = AllFinite(residual, 2) && jc_finite && jp_finite;
    value.second += finite ? 0.0 : 1.0;
    if (p.residuals != nullptr) {
      p.residuals[2 * k] = residual[0];
      p.residuals[2 * k + 1] = residual[1];
    }
  }
  TwoSums sum;
  if (SumOverBlocks(value, partial, ticket, &sum)) {
    p.evaluation->cost = 0.5 * sum.first;
    p.evaluation->num_not_finite = static_cast<int64_t>(sum.second);
  }
}

template <typename T, int C, BlockLayout kLayout>
Status EvaluateJacobian(const EvaluateJacobianParams<T, C, kLayout>& params,
                        const CudaWorkspaceView& workspace,
                        cudaStream_t stream) {
  const bool gradient =
      params.camera_gradient != nullptr || params.point_gradient != nullptr;
  if (gradient && params.residuals == nullptr) {
    return Status(StatusCode::kInvalidArgument,
                  "On the device a gradient needs room for the residuals.");
  }
  const int64_t num_map_values =
      int64_t{kBalLocalCameraDim * C} * params.index.num_cameras;
  CERES_EXT_RETURN_IF_ERROR(
      SetValue("ResetFlag", workspace.flag, int32_t{0}, stream));
  CERES_EXT_RETURN_IF_ERROR(Launch("ClassifyMaps",
                                   ClassifyMapsKernel<C>,
                                   CeilDivide(num_map_values, 256),
                                   256,
                                   0,
                                   stream,
                                   num_map_values,
                                   params.camera_maps,
                                   workspace.flag));
  CERES_EXT_RETURN_IF_ERROR(
      Launch("EvaluateJacobian",
             EvaluateJacobianKernel<T, C, kLayout>,
             NumVectorBlocks(params.index.num_observations),
             kVectorBlock,
             0,
             stream,
             params,
             static_cast<const int32_t*>(workspace.flag),
             workspace.vector_partial,
             workspace.ticket));
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
  return NormalBlocks(normal, workspace, stream);
}

}  // namespace ceres_ext::kernels::cuda

#endif  // CERES_EXT_CUDA_KERNELS_CUDA_EVALUATE_IMPL_CUH_
