// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// J x, column norms and scaling. J'y works on tiles: schur_products_*.cu.cc.
#include <cuda_runtime.h>

#include "cuda_kernels/cuda_camera_chunks.h"
#include "cuda_kernels/cuda_operations.h"
#include "cuda_kernels/cuda_recomputed_tiles.h"

namespace ceres_ext::kernels::cuda {
namespace {

constexpr int kBlockSize = 128;

// y_k = Jc x_c + Jp x_p with stored blocks.
// Mapping: one thread per observation, in point order. Order: columns from 0.
template <typename T, int C>
__global__ void __launch_bounds__(kBlockSize) StoredRightMultiplyKernel(
    RightMultiplyParams<StoredJacobian<T, C, kDeviceLayout>> p) {
  const int64_t k = int64_t{blockIdx.x} * kBlockSize + threadIdx.x;
  if (k >= p.index.num_observations) {
    return;  // No barrier follows.
  }
  const double* camera_x = p.camera_x + int64_t{C} * p.index.camera_id[k];
  const double* point_x = p.point_x + int64_t{3} * p.index.point_id[k];
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    double sum = 0.0;
#pragma unroll
    for (int i = 0; i < C; ++i) {
      sum += static_cast<double>(p.jacobian.camera_blocks(k, row * C + i)) *
             camera_x[i];
    }
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      sum += static_cast<double>(p.jacobian.point_blocks(k, row * 3 + i)) *
             point_x[i];
    }
    p.y[2 * k + row] = p.accumulate ? p.y[2 * k + row] + sum : sum;
  }
}

// The same with recomputed blocks.
// Mapping: one thread per observation, in point order.
// Traffic per observation: a camera record (L2), 8 B of ids, 16 B out.
template <typename T, int C>
__global__ void __launch_bounds__(kBlockSize) RecomputedRightMultiplyKernel(
    RightMultiplyParams<RecomputedJacobian<T, C>> p,
    const CameraRecord<T>* records) {
  const int64_t k = int64_t{blockIdx.x} * kBlockSize + threadIdx.x;
  if (k >= p.index.num_observations) {
    return;  // No barrier follows.
  }
  const int32_t camera_id = p.index.camera_id[k];
  CameraRecord<T> camera;
  LoadRecord(records + camera_id, &camera);
  const int64_t point = p.index.point_id[k];
  T x[3];
  T u[3];
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    const T value = p.jacobian.points[3 * point + i];
    x[i] = fabs(value) < Tame<T>::kLargest ? value : Tame<T>::kNaN;
    u[i] = static_cast<T>(p.point_x[3 * point + i]);
    if (p.jacobian.point_scale != nullptr) {
      u[i] *= p.jacobian.point_scale[3 * point + i];
    }
  }
  Projection<T> projection;
  ProjectTame(camera.state,
              x,
              p.jacobian.cameras + camera_id,
              p.jacobian.points + 3 * point,
              &projection);
  T y[2];
  Forward<kUseCamera, true>(camera, projection, nullptr, u, y);
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const double value = static_cast<double>(y[row]);
    p.y[2 * k + row] = p.accumulate ? p.y[2 * k + row] + value : value;
  }
}

// Squares of the columns of a camera, for CameraChunkKernel. They don't pass
// through a camera map, so blocks are taken as the source gives them.
template <typename Source>
struct CameraNormTerm {
  using T = typename Source::Value;
  static constexpr int C = Source::kCameraDim;
  static constexpr int kRowSize = C;

  Source source;
  const int32_t* camera_id = nullptr;

  template <typename Reader>
  __device__ __forceinline__ void Add(const Reader& /*reader*/,
                                      int64_t /*j*/,
                                      int64_t k,
                                      int32_t point,
                                      int64_t /*camera_end*/,
                                      const int32_t* /*entry_point*/,
                                      const int32_t* /*camera_entry*/,
                                      double* row) const {
    T jc[2 * C];
    source.LoadCamera(k, camera_id[k], point, jc);
#pragma unroll
    for (int i = 0; i < C; ++i) {
      const double a = static_cast<double>(jc[i]);
      const double b = static_cast<double>(jc[C + i]);
      row[i] += a * a + b * b;
    }
  }
};

// out = sum of the rows of a camera's chunks, in ascending order.
// Mapping: one thread per value.
template <int C>
__global__ void SumChunksKernel(int32_t num_cameras,
                                const int32_t* camera_chunk_begin,
                                const double* partial,
                                double* out) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t c = i / C;
  if (c >= num_cameras) {
    return;  // No barrier follows.
  }
  double sum = 0.0;
  for (int32_t chunk = camera_chunk_begin[c]; chunk < camera_chunk_begin[c + 1];
       ++chunk) {
    sum += partial[int64_t{C} * chunk + i % C];
  }
  out[i] = sum;
}

// Mapping: one thread per point. Order: its observations in their order.
template <typename Source>
__global__ void __launch_bounds__(kBlockSize)
    PointNormsKernel(SquaredColumnNormsParams<Source> p) {
  using T = typename Source::Value;
  const int64_t point = int64_t{blockIdx.x} * kBlockSize + threadIdx.x;
  if (point >= p.index.num_points) {
    return;  // No barrier follows.
  }
  double sum[3] = {0.0, 0.0, 0.0};
  const int64_t end = p.index.point_begin[point + 1];
  for (int64_t k = p.index.point_begin[point]; k < end; ++k) {
    T jp[6];
    p.jacobian.LoadPoint(
        k, p.index.camera_id[k], static_cast<int32_t>(point), jp);
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      const double a = static_cast<double>(jp[i]);
      const double b = static_cast<double>(jp[3 + i]);
      sum[i] += a * a + b * b;
    }
  }
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    p.point_x[3 * point + i] = sum[i];
  }
}

// Mapping: one thread per observation, in point order.
template <typename T, int C>
__global__ void __launch_bounds__(kBlockSize)
    ScaleColumnsKernel(ScaleColumnsParams<T, C, kDeviceLayout> p) {
  const int64_t k = int64_t{blockIdx.x} * kBlockSize + threadIdx.x;
  if (k >= p.index.num_observations) {
    return;  // No barrier follows.
  }
  const double* camera_scale =
      p.camera_scale + int64_t{C} * p.index.camera_id[k];
  const double* point_scale = p.point_scale + int64_t{3} * p.index.point_id[k];
#pragma unroll
  for (int i = 0; i < 2 * C; ++i) {
    T& value = p.camera_blocks(k, i);
    value = static_cast<T>(value * camera_scale[i % C]);
  }
#pragma unroll
  for (int i = 0; i < 6; ++i) {
    T& value = p.point_blocks(k, i);
    value = static_cast<T>(value * point_scale[i % 3]);
  }
}

template <typename T, int C>
Status Multiply(
    const RightMultiplyParams<StoredJacobian<T, C, kDeviceLayout>>& params,
    const CudaWorkspaceView& /*workspace*/,
    cudaStream_t stream) {
  return Launch("StoredRightMultiply",
                StoredRightMultiplyKernel<T, C>,
                CeilDivide(params.index.num_observations, kBlockSize),
                kBlockSize,
                0,
                stream,
                params);
}

template <typename T, int C>
Status Multiply(const RightMultiplyParams<RecomputedJacobian<T, C>>& params,
                const CudaWorkspaceView& workspace,
                cudaStream_t stream) {
  auto* records = reinterpret_cast<CameraRecord<T>*>(workspace.local_cameras);
  CERES_EXT_RETURN_IF_ERROR(
      Launch("RecordCameras",
             RecordCamerasKernel<T, C>,
             CeilDivide(int64_t{params.index.num_cameras} * 24, 256),
             256,
             0,
             stream,
             params.jacobian,
             params.index.num_cameras,
             params.camera_x,
             static_cast<const PcgScalars*>(nullptr),
             records));
  return Launch("RecomputedRightMultiply",
                RecomputedRightMultiplyKernel<T, C>,
                CeilDivide(params.index.num_observations, kBlockSize),
                kBlockSize,
                0,
                stream,
                params,
                static_cast<const CameraRecord<T>*>(records));
}

}  // namespace

template <typename Source>
Status RightMultiply(const RightMultiplyParams<Source>& params,
                     const CudaWorkspaceView& workspace,
                     cudaStream_t stream) {
  return Multiply(params, workspace, stream);
}

template <typename Source>
Status SquaredColumnNorms(const SquaredColumnNormsParams<Source>& params,
                          const CudaWorkspaceView& workspace,
                          cudaStream_t stream) {
  constexpr int C = Source::kCameraDim;
  const ObservationIndexView& index = params.index;
  if (params.point_x != nullptr) {
    CERES_EXT_RETURN_IF_ERROR(Launch("PointNorms",
                                     PointNormsKernel<Source>,
                                     CeilDivide(index.num_points, kBlockSize),
                                     kBlockSize,
                                     0,
                                     stream,
                                     params));
  }
  if (params.camera_x == nullptr) {
    return Status();
  }
  CERES_EXT_RETURN_IF_ERROR(
      SumCameraChunks(index,
                      params.jacobian,
                      CameraNormTerm<Source>{params.jacobian, index.camera_id},
                      workspace,
                      stream));
  return Launch("SumChunks",
                SumChunksKernel<C>,
                CeilDivide(int64_t{index.num_cameras} * C, 256),
                256,
                0,
                stream,
                index.num_cameras,
                workspace.camera_chunk_begin,
                static_cast<const double*>(workspace.partial),
                params.camera_x);
}

template <typename T, int C>
Status ScaleColumns(const ScaleColumnsParams<T, C, kDeviceLayout>& params,
                    cudaStream_t stream) {
  return Launch("ScaleColumns",
                ScaleColumnsKernel<T, C>,
                CeilDivide(params.index.num_observations, kBlockSize),
                kBlockSize,
                0,
                stream,
                params);
}

#define CERES_EXT_INSTANTIATE(...)                                       \
  template Status RightMultiply(const RightMultiplyParams<__VA_ARGS__>&, \
                                const CudaWorkspaceView&,                \
                                cudaStream_t);                           \
  template Status SquaredColumnNorms(                                    \
      const SquaredColumnNormsParams<__VA_ARGS__>&,                      \
      const CudaWorkspaceView&,                                          \
      cudaStream_t)

CERES_EXT_INSTANTIATE(StoredJacobian<double, 9, kDeviceLayout>);
CERES_EXT_INSTANTIATE(StoredJacobian<double, 10, kDeviceLayout>);
CERES_EXT_INSTANTIATE(StoredJacobian<float, 9, kDeviceLayout>);
CERES_EXT_INSTANTIATE(StoredJacobian<float, 10, kDeviceLayout>);
CERES_EXT_INSTANTIATE(RecomputedJacobian<double, 9>);
CERES_EXT_INSTANTIATE(RecomputedJacobian<double, 10>);
CERES_EXT_INSTANTIATE(RecomputedJacobian<float, 9>);
CERES_EXT_INSTANTIATE(RecomputedJacobian<float, 10>);
#undef CERES_EXT_INSTANTIATE

template Status ScaleColumns(
    const ScaleColumnsParams<double, 9, kDeviceLayout>&, cudaStream_t);
template Status ScaleColumns(
    const ScaleColumnsParams<double, 10, kDeviceLayout>&, cudaStream_t);
template Status ScaleColumns(const ScaleColumnsParams<float, 9, kDeviceLayout>&,
                             cudaStream_t);
template Status ScaleColumns(
    const ScaleColumnsParams<float, 10, kDeviceLayout>&, cudaStream_t);

}  // namespace ceres_ext::kernels::cuda
