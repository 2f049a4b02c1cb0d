// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/ops/evaluate.h"

#include <cuda_runtime.h>

#include <string>

#include "cuda_kernels/ops/cuda_operations.h"
#include "cuda_kernels/cuda/vector_sums.cuh"
#include "cuda_kernels/cuda/evaluate_impl.cuh"

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
