// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The device bodies of J x, for stored blocks, and of column norms, for any
// layout. Included by .cu.cc files that instantiate them.
#ifndef CERES_EXT_CUDA_KERNELS_CUDA_JACOBIAN_PRODUCTS_IMPL_CUH_
#define CERES_EXT_CUDA_KERNELS_CUDA_JACOBIAN_PRODUCTS_IMPL_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/cuda/camera_chunks.cuh"
#include "cuda_kernels/cuda/point_tasks.cuh"
#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/ops/jacobian_products.h"

namespace ceres_ext::kernels {

inline constexpr int kProductBlock = 128;

// y_k = Jc x_c + Jp x_p with stored blocks.
// Mapping: one thread per observation, in point order. Order: columns from 0.
template <typename Source>
__global__ void __launch_bounds__(kProductBlock)
    StoredRightMultiplyKernel(RightMultiplyParams<Source> p) {
  using Shape = typename Source::Shape;
  constexpr int R = Shape::kNumResiduals;
  constexpr int E = Shape::kE;
  constexpr int C = Shape::kF;
  const int64_t k = int64_t{blockIdx.x} * kProductBlock + threadIdx.x;
  if (k >= p.index.num_observations) {
    return;  // No barrier follows.
  }
  const double* camera_x = p.camera_x + int64_t{C} * p.index.camera_id[k];
  const double* point_x = p.point_x + int64_t{E} * p.index.point_id[k];
#pragma unroll
  for (int row = 0; row < R; ++row) {
    double sum = 0.0;
#pragma unroll
    for (int i = 0; i < C; ++i) {
      sum += static_cast<double>(p.jacobian.camera_blocks(k, row * C + i)) *
             camera_x[i];
    }
#pragma unroll
    for (int i = 0; i < E; ++i) {
      sum += static_cast<double>(p.jacobian.point_blocks(k, row * E + i)) *
             point_x[i];
    }
    p.y[R * k + row] = p.accumulate ? p.y[R * k + row] + sum : sum;
  }
}

// The square of a column of R values, N apart.
template <int R, int N, typename T>
__device__ __forceinline__ double SquaredColumnNorm(const T* column) {
  const double first = static_cast<double>(column[0]);
  double sum = first * first;
#pragma unroll
  for (int r = 1; r < R; ++r) {
    const double value = static_cast<double>(column[N * r]);
    sum += value * value;
  }
  return sum;
}

// Squares of the columns of a camera, for CameraChunkKernel. They don't pass
// through a camera map, so blocks are taken as the source gives them.
template <typename Source>
struct CameraNormTerm {
  using T = typename Source::Value;
  using Shape = typename Source::Shape;
  static constexpr int C = Shape::kF;
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
    T jc[Shape::kFSize];
    source.LoadCamera(k, camera_id[k], point, jc);
#pragma unroll
    for (int i = 0; i < C; ++i) {
      row[i] += SquaredColumnNorm<Shape::kNumResiduals, C>(jc + i);
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

// Mapping, order: as PointBlocksKernel.
template <bool kLong, typename Source>
__global__ void __launch_bounds__(kPointTaskBlock)
    PointNormsKernel(SquaredColumnNormsParams<Source> p, PointTasks tasks) {
  using T = typename Source::Value;
  using Shape = typename Source::Shape;
  constexpr int E = Shape::kE;
  const PointTask task = MakePointTask<kLong>(p.index, tasks);
  if (task.point < 0) {
    return;  // The whole warp leaves; no barrier follows.
  }
  double sum[E] = {};
  for (int64_t k = task.begin; k < task.end; k += task.stride) {
    T jp[Shape::kESize];
    p.jacobian.LoadPoint(
        k, p.index.camera_id[k], static_cast<int32_t>(task.point), jp);
#pragma unroll
    for (int i = 0; i < E; ++i) {
      sum[i] += SquaredColumnNorm<Shape::kNumResiduals, E>(jp + i);
    }
  }
  if constexpr (kLong) {
#pragma unroll
    for (double& value : sum) {
      value = WarpSum(value);
    }
    if (threadIdx.x % kWarpSize != 0) {
      return;  // No barrier follows.
    }
  }
#pragma unroll
  for (int i = 0; i < E; ++i) {
    p.point_x[E * task.point + i] = sum[i];
  }
}

// Queues it. A source of a module is an overload.
template <typename Source>
Status PointNorms(const SquaredColumnNormsParams<Source>& params,
                  CudaMachine* machine) {
  return LaunchPointTasks("PointNorms",
                          PointNormsKernel<false, Source>,
                          PointNormsKernel<true, Source>,
                          params.index,
                          machine,
                          params);
}

// Stored sources; recomputed ones are specialisations.
template <typename Source>
Status Run(const RightMultiplyParams<Source>& params, CudaMachine* machine) {
  return Launch(
      "StoredRightMultiply",
      StoredRightMultiplyKernel<Source>,
      {CeilDivide(params.index.num_observations, kProductBlock), kProductBlock},
      machine->stream(),
      params);
}

template <typename Source>
Status Run(const SquaredColumnNormsParams<Source>& params,
           CudaMachine* machine) {
  constexpr int C = Source::Shape::kF;
  const ObservationIndexRef& index = params.index;
  if (params.point_x != nullptr) {
    CERES_EXT_RETURN_IF_ERROR(PointNorms(params, machine));
  }
  if (params.camera_x == nullptr) {
    return Status();
  }
  CERES_EXT_RETURN_IF_ERROR(
      SumCameraChunks(index,
                      params.jacobian,
                      CameraNormTerm<Source>{params.jacobian, index.camera_id},
                      machine));
  return Launch("SumChunks",
                SumChunksKernel<C>,
                {CeilDivide(int64_t{index.num_cameras} * C, 256), 256},
                machine->stream(),
                index.num_cameras,
                index.cuda_workspace->camera_chunk_begin,
                static_cast<const double*>(index.cuda_workspace->partial),
                params.camera_x);
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_CUDA_JACOBIAN_PRODUCTS_IMPL_CUH_
