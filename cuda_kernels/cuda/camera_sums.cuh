// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Camera vectors into and out of the coordinates a source works in, and the
// second step of a sum over cameras. Included by .cu.cc files only.
//
// As on the host (host_jacobian.h), kernels work in the Local shape of a
// source: its columns for stored blocks, 9 local coordinates for recomputed
// ones;
//   J = J_local G  =>  J p = J_local (G p),  J'y = G' (J_local'y).
#ifndef CERES_EXT_CUDA_KERNELS_CUDA_CAMERA_SUMS_CUH_
#define CERES_EXT_CUDA_KERNELS_CUDA_CAMERA_SUMS_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/base/term_sum.h"
#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/structure/tile_index.h"

namespace ceres_ext::kernels {

// The camera coordinates of a source.
template <typename Source>
struct CameraCoordinates;

template <typename T, typename Shape, BlockLayout kLayout>
struct CameraCoordinates<StoredJacobian<T, Shape, kLayout>> {
  using Local = Shape;
  // One column of G.
  __device__ static double Map(const StoredJacobian<T, Shape, kLayout>&,
                               int32_t,
                               int i,
                               int j) {
    return i == j ? 1.0 : 0.0;
  }
};

template <typename T, int C, bool kScaledRows>
struct CameraCoordinates<RecomputedJacobian<T, C, kScaledRows>> {
  using Local = BalShape<kBalLocalCameraDim>;
  __device__ static double Map(
      const RecomputedJacobian<T, C, kScaledRows>& source,
      int32_t camera,
      int i,
      int j) {
    return source
        .camera_maps[int64_t{kBalLocalCameraDim * C} * camera + i * C + j];
  }
};

// The terms added to the sum of a camera: out_c = G' sum + D_c^2 p_c, or += .
struct CameraSumTerms {
  const double* diagonal = nullptr;  // null: zero
  const double* p = nullptr;
  bool accumulate = false;
  double* out = nullptr;

  // For camera c, the F values at `at` of p.
  template <int F>
  __device__ double Term(int32_t /*c*/, int64_t at) const {
    if (diagonal == nullptr) {
      return 0.0;
    }
    const double d = diagonal[at];
    return d * d * p[at];
  }
};

inline constexpr int kCameraSumBlock = 128;

// out_c from the rows of camera c, kLocalDim values of type T each.
// Mapping: one block per camera; kCameraSumBlock / kLocalDim rows at a time,
// thread (r, j) owns element j of every such row r.
// Order: thread (r, j) adds its rows in ascending order, thread j then adds
// those sums from r = 0 on. Traffic: the rows, once.
// Terms: CameraSumTerms, or what has more of them.
template <typename Source, typename T, typename Terms>
__global__ void __launch_bounds__(kCameraSumBlock)
    SumTileCamerasKernel(Source source,
                         TileIndexRef tiles,
                         const T* partial,
                         Terms terms,
                         const PcgScalars* scalars) {
  constexpr int kLocalDim = CameraCoordinates<Source>::Local::kF;
  constexpr int C = Source::Shape::kF;
  constexpr int kRows = kCameraSumBlock / kLocalDim;
  __shared__ double sums[kRows][kLocalDim];
  __shared__ double local[kLocalDim];
  if (PcgHasEnded(scalars)) {
    return;  // The whole block leaves.
  }
  const int32_t c = static_cast<int32_t>(blockIdx.x);
  const int r = static_cast<int>(threadIdx.x) / kLocalDim;
  const int j = static_cast<int>(threadIdx.x) % kLocalDim;
  if (r < kRows) {
    const int32_t end = tiles.row_begin[c + 1];
    TermSum<T> sum;
#pragma unroll 4
    for (int32_t i = tiles.row_begin[c] + r; i < end; i += kRows) {
      sum.Add(partial[int64_t{tiles.row[i]} * kLocalDim + j]);
    }
    sums[r][j] = sum.value();
  }
  __syncthreads();  // Element j of all rows is summed by one thread.
  if (threadIdx.x < kLocalDim) {
    double sum = 0.0;
    for (int i = 0; i < kRows; ++i) {
      sum += sums[i][j];
    }
    local[j] = sum;
  }
  __syncthreads();  // G' needs all of `local`.
  if (threadIdx.x < C) {
    const int e = static_cast<int>(threadIdx.x);
    const int64_t at = int64_t{C} * c + e;
    double value = terms.template Term<C>(c, at);
    for (int i = 0; i < kLocalDim; ++i) {
      value += CameraCoordinates<Source>::Map(source, c, i, e) * local[i];
    }
    terms.out[at] = terms.accumulate ? terms.out[at] + value : value;
  }
}

template <typename Source, typename T, typename Terms>
Status SumTileCameras(const Source& source,
                      int32_t num_cameras,
                      const TileIndexRef& tiles,
                      const T* partial,
                      const Terms& terms,
                      const PcgScalars* scalars,
                      CudaMachine* machine) {
  return Launch("SumTileCameras",
                SumTileCamerasKernel<Source, T, Terms>,
                {num_cameras, kCameraSumBlock},
                machine->stream(),
                source,
                tiles,
                partial,
                terms,
                scalars);
}

// The parts of an operation on tiles, combined into a mode. With y_k per
// observation and s_p, x_p per point:
//   y_k = [b_k] [+- Jc p_c] [+ Jp x_p]
//   s_p = sum_k Jp' y_k
//   x_p = -Vi_p s_p                            (eliminate)
//   q_c = sum_k Jc' (y_k + Jp x_p), or sum_k Jc' Jp x_p  (eliminated part)
enum TileMode : int {
  kUseB = 1,        // y starts as b_k
  kUseCamera = 2,   // y += Jc p_c; with kUseB: y -= Jc p_c
  kUsePoint = 4,    // y += Jp x_p, x given
  kEliminate = 8,   // x_p = -Vi_p s_p enters q; with kPointOut: out = Vi_p s_p
  kCameraOut = 16,  // q is wanted
  kPointOut = 32,   // without kEliminate: out = s_p + D_p^2 x_p, or +=
  kEliminatedPart = 64,  // with kEliminate: q goes without y_k
};
inline constexpr int kSchurProductMode = kUseCamera | kEliminate | kCameraOut;
inline constexpr int kEliminatedPartMode = kSchurProductMode | kEliminatedPart;
inline constexpr int kBackSubstituteMode =
    kUseB | kUseCamera | kEliminate | kPointOut;
inline constexpr int kNormalProductMode =
    kUseCamera | kUsePoint | kCameraOut | kPointOut;
inline constexpr int kLeftMultiplyMode = kUseB | kCameraOut | kPointOut;

// The inputs and outputs of a tile kernel beside tiles and Jacobian.
template <int E, BlockLayout kLayout = kDeviceLayout>
struct TileOperands {
  const int64_t* point_begin = nullptr;
  const double* b = nullptr;  // R per observation
  BlockRef<const double, PackedSize(E), kLayout> v_inverse;
  const double* point_x = nullptr;         // x given, E per point
  const double* point_diagonal = nullptr;  // D_p; null: zero
  double* point_out = nullptr;             // E per point; null: not wanted
  bool accumulate = false;
  const PcgScalars* scalars = nullptr;
};

template <int kMode, int E, BlockLayout kLayout>
__device__ __forceinline__ void LoadInverse(
    const TileOperands<E, kLayout>& operands, int64_t point, double* v) {
  if constexpr ((kMode & kEliminate) != 0) {
#pragma unroll
    for (int i = 0; i < PackedSize(E); ++i) {
      v[i] = operands.v_inverse(point, i);
    }
  }
}

// The point's half: what happens between the sum s and its use. With
// kEliminate, x is set to x_p, the motion of the point that the camera half
// sees; element e
// of Vi is v[stride e].
template <int kMode, int E, BlockLayout kLayout>
__device__ __forceinline__ void FinishPoint(
    const TileOperands<E, kLayout>& operands,
    int64_t point,
    const double* v,
    int stride,
    const double* s,
    double* x) {
  if constexpr ((kMode & kEliminate) != 0) {
    double packed[PackedSize(E)];
#pragma unroll
    for (int i = 0; i < PackedSize(E); ++i) {
      packed[i] = v[i * stride];
    }
#pragma unroll
    for (int i = 0; i < E; ++i) {
      double sum = packed[PackedIndex(i, 0)] * s[0];
#pragma unroll
      for (int j = 1; j < E; ++j) {
        sum += packed[j <= i ? PackedIndex(i, j) : PackedIndex(j, i)] * s[j];
      }
      x[i] = sum;
    }
    if constexpr ((kMode & kPointOut) != 0) {
#pragma unroll
      for (int i = 0; i < E; ++i) {
        operands.point_out[E * point + i] = x[i];
      }
    }
#pragma unroll
    for (int i = 0; i < E; ++i) {
      x[i] = -x[i];
    }
  } else if constexpr ((kMode & kPointOut) != 0) {
    if (operands.point_out != nullptr) {
#pragma unroll
      for (int i = 0; i < E; ++i) {
        double value = s[i];
        if constexpr ((kMode & kUsePoint) != 0) {
          if (operands.point_diagonal != nullptr) {
            const double d = operands.point_diagonal[E * point + i];
            value += d * d * operands.point_x[E * point + i];
          }
        }
        if (operands.accumulate) {
          value += operands.point_out[E * point + i];
        }
        operands.point_out[E * point + i] = value;
      }
    }
  }
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_CUDA_CAMERA_SUMS_CUH_
