// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Camera vectors into and out of the coordinates a source works in, and the
// second step of a sum over cameras. Included by .cu.cc files only.
//
// As on the host (host_jacobian.h), kernels work in kLocalDim coordinates per
// camera: C columns for stored blocks, 9 local coordinates for recomputed ones;
//   J = J_local G  =>  J p = J_local (G p),  J'y = G' (J_local'y).
#ifndef CERES_EXT_CUDA_KERNELS_CUDA_CAMERA_SUMS_CUH_
#define CERES_EXT_CUDA_KERNELS_CUDA_CAMERA_SUMS_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda_kernels/base/block_view.h"
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/structure/tile_index.h"

namespace ceres_ext::kernels {

// The camera coordinates of a source.
template <typename Source>
struct CameraCoordinates;

template <typename T, int C, BlockLayout kLayout>
struct CameraCoordinates<StoredJacobian<T, C, kLayout>> {
  static constexpr int kLocalDim = C;
  // One column of G.
  __device__ static double Map(const StoredJacobian<T, C, kLayout>&,
                               int32_t,
                               int i,
                               int j) {
    return i == j ? 1.0 : 0.0;
  }
};

template <typename T, int C>
struct CameraCoordinates<RecomputedJacobian<T, C>> {
  static constexpr int kLocalDim = kBalLocalCameraDim;
  __device__ static double Map(const RecomputedJacobian<T, C>& source,
                               int32_t camera,
                               int i,
                               int j) {
    return static_cast<double>(
        source
            .camera_maps[int64_t{kBalLocalCameraDim * C} * camera + i * C + j]);
  }
};

// What is added to the sum of a camera: out_c = G' sum + D_c^2 p_c + U_c p_c,
// or += .
template <int C, BlockLayout kLayout = kDeviceLayout>
struct CameraSumTerms {
  const double* diagonal = nullptr;                   // null: zero
  BlockView<const double, PackedSize(C), kLayout> u;  // null: zero
  const double* p = nullptr;
  bool accumulate = false;
  double* out = nullptr;
};

inline constexpr int kCameraSumBlock = 128;

// out_c from the rows of camera c, kLocalDim values of type T each.
// Mapping: one block per camera; kCameraSumBlock / kLocalDim rows at a time,
// thread (r, j) owns element j of every such row r.
// Order: thread (r, j) adds its rows in ascending order, thread j then adds
// those sums from r = 0 on. Traffic: the rows, once.
template <typename Source, typename T, BlockLayout kLayout>
__global__ void __launch_bounds__(kCameraSumBlock)
    SumTileCamerasKernel(Source source,
                         TileIndexView tiles,
                         const T* partial,
                         CameraSumTerms<Source::kCameraDim, kLayout> terms,
                         const PcgScalars* scalars) {
  constexpr int kLocalDim = CameraCoordinates<Source>::kLocalDim;
  constexpr int C = Source::kCameraDim;
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
    double sum = 0.0;
#pragma unroll 4
    for (int32_t i = tiles.row_begin[c] + r; i < end; i += kRows) {
      sum +=
          static_cast<double>(partial[int64_t{tiles.row[i]} * kLocalDim + j]);
    }
    sums[r][j] = sum;
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
    double value = 0.0;
    if (terms.diagonal != nullptr) {
      const double d = terms.diagonal[at];
      value = d * d * terms.p[at];
    }
    if (terms.u.data != nullptr) {
      for (int i = 0; i < C; ++i) {
        value += terms.u(c, i <= e ? PackedIndex(e, i) : PackedIndex(i, e)) *
                 terms.p[int64_t{C} * c + i];
      }
    }
    for (int i = 0; i < kLocalDim; ++i) {
      value += CameraCoordinates<Source>::Map(source, c, i, e) * local[i];
    }
    terms.out[at] = terms.accumulate ? terms.out[at] + value : value;
  }
}

template <typename Source, typename T, BlockLayout kLayout>
Status SumTileCameras(const Source& source,
                      int32_t num_cameras,
                      const TileIndexView& tiles,
                      const T* partial,
                      const CameraSumTerms<Source::kCameraDim, kLayout>& terms,
                      const PcgScalars* scalars,
                      CudaMachine* machine) {
  return Launch("SumTileCameras",
                SumTileCamerasKernel<Source, T, kLayout>,
                num_cameras,
                kCameraSumBlock,
                0,
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
//   q_c = sum_k Jc' (y_k + Jp x_p)
enum TileMode : int {
  kUseB = 1,        // y starts as b_k
  kUseCamera = 2,   // y += Jc p_c; with kUseB: y -= Jc p_c
  kUsePoint = 4,    // y += Jp x_p, x given
  kEliminate = 8,   // x_p = -Vi_p s_p enters q; with kPointOut: out = Vi_p s_p
  kCameraOut = 16,  // q is wanted
  kPointOut = 32,   // without kEliminate: out = s_p + D_p^2 x_p, or +=
};
inline constexpr int kSchurProductMode = kUseCamera | kEliminate | kCameraOut;
inline constexpr int kBackSubstituteMode =
    kUseB | kUseCamera | kEliminate | kPointOut;
inline constexpr int kNormalProductMode =
    kUseCamera | kUsePoint | kCameraOut | kPointOut;
inline constexpr int kLeftMultiplyMode = kUseB | kCameraOut | kPointOut;

// What a tile kernel reads and writes beside tiles and Jacobian.
template <BlockLayout kLayout>
struct TileOperandsIn {
  const int64_t* point_begin = nullptr;
  const double* b = nullptr;  // 2 per observation
  BlockView<const double, 6, kLayout> v_inverse;
  const double* point_x = nullptr;         // x given, 3 per point
  const double* point_diagonal = nullptr;  // D_p; null: zero
  // Explicit W only: s_p is replaced by g_p - s_p; out += V_p x_p. Null: not.
  const double* point_gradient = nullptr;
  BlockView<const double, 6, kLayout> v;
  double* point_out = nullptr;  // 3 per point; null: not wanted
  bool accumulate = false;
  const PcgScalars* scalars = nullptr;
};
using TileOperands = TileOperandsIn<kDeviceLayout>;

template <int kMode, BlockLayout kLayout>
__device__ __forceinline__ void LoadInverse(
    const TileOperandsIn<kLayout>& operands, int64_t point, double* v) {
  if constexpr ((kMode & kEliminate) != 0) {
#pragma unroll
    for (int i = 0; i < 6; ++i) {
      v[i] = operands.v_inverse(point, i);
    }
  }
}

// The point's half: what happens between the sum s and its use. With
// kEliminate, x is set to x_p, the motion of the point that the camera half
// sees; element e
// of Vi is v[stride e]. s is changed.
template <int kMode, BlockLayout kLayout>
__device__ __forceinline__ void FinishPoint(
    const TileOperandsIn<kLayout>& operands,
    int64_t point,
    const double* v,
    int stride,
    double* s,
    double* x) {
  if (operands.point_gradient != nullptr) {
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      s[i] = operands.point_gradient[3 * point + i] - s[i];
    }
  }
  if constexpr ((kMode & kEliminate) != 0) {
    const double v1 = v[stride];
    const double v3 = v[3 * stride];
    const double v4 = v[4 * stride];
    x[0] = v[0] * s[0] + v1 * s[1] + v3 * s[2];
    x[1] = v1 * s[0] + v[2 * stride] * s[1] + v4 * s[2];
    x[2] = v3 * s[0] + v4 * s[1] + v[5 * stride] * s[2];
    if constexpr ((kMode & kPointOut) != 0) {
#pragma unroll
      for (int i = 0; i < 3; ++i) {
        operands.point_out[3 * point + i] = x[i];
      }
    }
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      x[i] = -x[i];
    }
  } else if constexpr ((kMode & kPointOut) != 0) {
    if (operands.point_out != nullptr) {
#pragma unroll
      for (int i = 0; i < 3; ++i) {
        double value = s[i];
        if constexpr ((kMode & kUsePoint) != 0) {
          if (operands.v.data != nullptr) {
            for (int j = 0; j < 3; ++j) {
              value +=
                  operands.v(point,
                             j <= i ? PackedIndex(i, j) : PackedIndex(j, i)) *
                  operands.point_x[3 * point + j];
            }
          }
          if (operands.point_diagonal != nullptr) {
            const double d = operands.point_diagonal[3 * point + i];
            value += d * d * operands.point_x[3 * point + i];
          }
        }
        if (operands.accumulate) {
          value += operands.point_out[3 * point + i];
        }
        operands.point_out[3 * point + i] = value;
      }
    }
  }
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_CUDA_CAMERA_SUMS_CUH_
