// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/evaluate_kernels.h"

#include <cuda_runtime.h>

#include <string>

#include "cuda_kernels/cuda_operations.h"
#include "cuda_kernels/cuda_vector_sums.h"

namespace ceres_ext::kernels::cuda {
namespace {

// state_c, and L_c T_c diag(s_c) where wanted.
// Mapping: one thread per camera. Order: sums from 0 on.
template <CameraParameters kParameters, typename T, int C>
__global__ void __launch_bounds__(64)
    PrepareCamerasKernel(PrepareCamerasParams<T, C> p) {
  constexpr int A = static_cast<int>(kParameters);
  constexpr int kRotationDim = A - 6;
  const int64_t c = int64_t{blockIdx.x} * 64 + threadIdx.x;
  if (c >= p.num_cameras) {
    return;  // No barrier follows.
  }
  double rotation_map[3 * kRotationDim];
  CameraState<double> state;
  if constexpr (kParameters == CameraParameters::kAngleAxis) {
    state = PrepareAngleAxisCamera(p.cameras + A * c, rotation_map);
  } else {
    state = PrepareQuaternionCamera(p.cameras + A * c, rotation_map);
  }
  p.states[c] = CameraStateCast<T>(state);
  if (p.maps == nullptr) {
    return;  // No barrier follows.
  }
  double local[kBalLocalCameraDim * A];
  ExpandCameraMap<kRotationDim>(rotation_map, local);
  const double* tangent =
      p.tangent == nullptr ? nullptr : p.tangent + A * C * c;
  for (int i = 0; i < kBalLocalCameraDim; ++i) {
    for (int j = 0; j < C; ++j) {
      double sum = 0.0;
      if (tangent == nullptr) {
        sum = j < A ? local[i * A + j] : 0.0;
      } else {
        for (int a = 0; a < A; ++a) {
          sum += local[i * A + a] * tangent[a * C + j];
        }
      }
      if (p.camera_scale != nullptr) {
        sum *= p.camera_scale[C * c + j];
      }
      p.maps[kBalLocalCameraDim * C * c + i * C + j] = static_cast<T>(sum);
    }
  }
}

__device__ __forceinline__ void LoadPosition(const double* points,
                                             int64_t point,
                                             double* x) {
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    x[i] = points[3 * point + i];
  }
}

// Mapping: threads stride over the observations, in point order. The last block
// sets the evaluation. Order: SumOverBlocks.
__global__ void __launch_bounds__(kVectorBlock)
    EvaluateCostKernel(EvaluateCostParams p, double* partial, int32_t* ticket) {
  TwoSums value{0.0, 0.0};
  for (int64_t k = int64_t{blockIdx.x} * kVectorBlock + threadIdx.x;
       k < p.index.num_observations;
       k += int64_t{gridDim.x} * kVectorBlock) {
    const CameraState<double> camera = p.cameras[p.index.camera_id[k]];
    double x[3];
    LoadPosition(p.points, p.index.point_id[k], x);
    double residual[2];
    Residual(camera, Project(camera, x), p.observations + 2 * k, residual);
    value.first += residual[0] * residual[0] + residual[1] * residual[1];
    value.second += AllFinite(residual, 2) ? 0.0 : 1.0;
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

template <int N, typename T>
__device__ __forceinline__ bool StoreBlock(
    const double* from, int64_t k, const BlockView<T, N, kDeviceLayout>& to) {
  T values[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    values[i] = static_cast<T>(from[i]);
    // Streamed: more than the cache holds is written before anyone reads it.
    __stcs(&to(k, i), values[i]);
  }
  return AllFinite(values, N);
}

__global__ void ResetFlagKernel(int32_t* flag) { *flag = 0; }

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
template <typename T, int C>
__global__ void __launch_bounds__(kVectorBlock)
    EvaluateJacobianKernel(EvaluateJacobianParams<T, C, kDeviceLayout> p,
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
    const bool finite = AllFinite(residual, 2) &
                        StoreBlock<2 * C>(jc, k, p.camera_blocks) &
                        StoreBlock<6>(jp, k, p.point_blocks);
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

}  // namespace

template <typename T, int C>
Status PrepareCameras(const PrepareCamerasParams<T, C>& params,
                      cudaStream_t stream) {
  const int num_parameters = static_cast<int>(params.parameters);
  if (params.tangent == nullptr && params.maps != nullptr &&
      C < num_parameters) {
    return Status(StatusCode::kInvalidArgument,
                  "Cameras of " + std::to_string(num_parameters) +
                      " parameters need tangent matrices for " +
                      std::to_string(C) + " columns.");
  }
  const auto kernel =
      params.parameters == CameraParameters::kAngleAxis
          ? &PrepareCamerasKernel<CameraParameters::kAngleAxis, T, C>
          : &PrepareCamerasKernel<CameraParameters::kQuaternion, T, C>;
  return Launch("PrepareCameras",
                kernel,
                CeilDivide(params.num_cameras, 64),
                64,
                0,
                stream,
                params);
}

Status EvaluateCost(const EvaluateCostParams& params,
                    const CudaWorkspaceView& workspace,
                    cudaStream_t stream) {
  return Launch("EvaluateCost",
                EvaluateCostKernel,
                NumVectorBlocks(params.index.num_observations),
                kVectorBlock,
                0,
                stream,
                params,
                workspace.vector_partial,
                workspace.ticket);
}

template <typename T, int C>
Status EvaluateJacobian(
    const EvaluateJacobianParams<T, C, kDeviceLayout>& params,
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
      Launch("ResetFlag", ResetFlagKernel, 1, 1, 0, stream, workspace.flag));
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
             EvaluateJacobianKernel<T, C>,
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
  // J'r from the model, not from the stored blocks, which may be rounded.
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

#define CERES_EXT_INSTANTIATE(T, C)                                 \
  template Status PrepareCameras(const PrepareCamerasParams<T, C>&, \
                                 cudaStream_t);                     \
  template Status EvaluateJacobian(                                 \
      const EvaluateJacobianParams<T, C, kDeviceLayout>&,           \
      const CudaWorkspaceView&,                                     \
      cudaStream_t)

CERES_EXT_INSTANTIATE(double, 9);
CERES_EXT_INSTANTIATE(double, 10);
CERES_EXT_INSTANTIATE(float, 9);
CERES_EXT_INSTANTIATE(float, 10);
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext::kernels::cuda
