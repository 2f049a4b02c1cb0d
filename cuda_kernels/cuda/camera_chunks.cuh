// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Sums over the observations of a camera, taken in the order of the camera:
// for blocks per camera that are too large to meet in a tile. Included by
// .cu.cc files only.
#ifndef CERES_EXT_CUDA_KERNELS_CUDA_CAMERA_CHUNKS_CUH_
#define CERES_EXT_CUDA_KERNELS_CUDA_CAMERA_CHUNKS_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda_kernels/base/block_view.h"
#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/cuda/camera_sums.cuh"
#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/model/bal_model.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/structure/cuda_workspace.h"

namespace ceres_ext::kernels {

inline constexpr int kChunkBlock = 128;

// The Jacobian of one camera's observations in local coordinates, with what is
// the camera's kept in registers.
template <typename Source>
class CameraJacobianReader;

template <typename T, int C, BlockLayout kLayout>
class CameraJacobianReader<StoredJacobian<T, C, kLayout>> {
 public:
  static constexpr int kLocalDim = C;
  __device__ CameraJacobianReader(const StoredJacobian<T, C, kLayout>& source,
                                  int32_t /*camera*/)
      : source_(source) {}
  __device__ __forceinline__ void Load(int64_t k,
                                       int32_t /*point*/,
                                       T* jc,
                                       T* jp) const {
#pragma unroll
    for (int i = 0; i < 2 * C; ++i) {
      jc[i] = source_.camera_blocks(k, i);
    }
    if (jp != nullptr) {
#pragma unroll
      for (int i = 0; i < 6; ++i) {
        jp[i] = source_.point_blocks(k, i);
      }
    }
  }

 private:
  const StoredJacobian<T, C, kLayout>& source_;
};

template <typename T, int C>
class CameraJacobianReader<RecomputedJacobian<T, C>> {
 public:
  static constexpr int kLocalDim = kBalLocalCameraDim;
  __device__ CameraJacobianReader(const RecomputedJacobian<T, C>& source,
                                  int32_t camera)
      : source_(source), camera_(source.cameras[camera]) {}
  __device__ __forceinline__ void Load(int64_t /*k*/,
                                       int32_t point,
                                       T* jc,
                                       T* jp) const {
    const T* at = source_.points + int64_t{3} * point;
    const T x[3] = {at[0], at[1], at[2]};
    Projection<T> projection;
    ProjectForProducts(camera_, x, &projection);
    CameraJacobian(camera_, projection, jc);
    if (jp != nullptr) {
      PointJacobian(camera_, projection, jp);
      source_.ScalePointBlock(point, jp);
    }
  }

 private:
  const RecomputedJacobian<T, C>& source_;
  const CameraState<T> camera_;
};

// One step of WarpSumArray: v[0 .. 2 kHalf) to v[0 .. kHalf). Lanes with the
// bit keep the upper half of the array, lanes without it the lower half.
template <int kHalf>
__device__ __forceinline__ void HalveOverWarp(int lane, double* v) {
  constexpr int kBit = kHalf / 2;
  const bool upper = (lane & kBit) != 0;
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    const double send = upper ? v[i] : v[i + kHalf];
    const double keep = upper ? v[i + kHalf] : v[i];
    v[i] = keep + __shfl_xor_sync(kFullWarp, send, kBit);
  }
  if constexpr (kHalf > 2) {
    HalveOverWarp<kHalf / 2>(lane, v);
  }
}

// out[i] = sum of values[i] over the lanes of a full warp, i < kSize <= 64, by
// halving the array at every step: 62 exchanges instead of the 320 of 64
// separate sums. Lane l writes out[2 l] and out[2 l + 1]. Order: a fixed tree
// over the lanes.
template <int kSize>
__device__ __forceinline__ void WarpSumArray(const double* values,
                                             double* out) {
  static_assert(kSize <= 64, "two per lane");
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  double v[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) {
    v[i] = i < kSize ? values[i] : 0.0;
  }
  HalveOverWarp<32>(lane, v);
  if (2 * lane < kSize) {
    out[2 * lane] = v[0];
  }
  if (2 * lane + 1 < kSize) {
    out[2 * lane + 1] = v[1];
  }
}

// partial row of each chunk = sum over its entries of Term.
//
// Term has
//   kRowSize
//   Add(reader, j, k, point, camera_end, entry_point, camera_entry, row)
//             adds entry j, observation k of `point`, to row
// Mapping: one block per chunk; a thread strides over its entries and keeps the
// row in registers.
// Order: a thread's entries ascending; a tree over the warp; warps from 0 on.
template <typename Source, typename Term>
__global__ void __launch_bounds__(kChunkBlock)
    CameraChunkKernel(ObservationIndexView index,
                      Source source,
                      Term term,
                      const int32_t* chunk_camera,
                      const int32_t* camera_chunk_begin,
                      const int32_t* entry_point,
                      double* partial) {
  constexpr int kRowSize = Term::kRowSize;
  constexpr int kNumWarps = kChunkBlock / kWarpSize;
  __shared__ double rows[kNumWarps][kRowSize];
  const int32_t chunk = static_cast<int32_t>(blockIdx.x);
  const int32_t camera = chunk_camera[chunk];
  const int64_t begin =
      index.camera_begin[camera] +
      int64_t{kCameraChunk} * (chunk - camera_chunk_begin[camera]);
  const int64_t camera_end = index.camera_begin[camera + 1];
  const int64_t end =
      begin + kCameraChunk < camera_end ? begin + kCameraChunk : camera_end;
  const CameraJacobianReader<Source> reader(source, camera);
  double row[kRowSize];
#pragma unroll
  for (int i = 0; i < kRowSize; ++i) {
    row[i] = 0.0;
  }
  // The ids of an entry are asked for while the one before is at work.
  int64_t j = begin + threadIdx.x;
  int32_t next_k = j < end ? index.camera_entry[j] : 0;
  int32_t next_point = j < end ? entry_point[j] : 0;
  for (; j < end; j += kChunkBlock) {
    const int32_t k = next_k;
    const int32_t point = next_point;
    if (j + kChunkBlock < end) {
      next_k = index.camera_entry[j + kChunkBlock];
      next_point = entry_point[j + kChunkBlock];
    }
    term.Add(
        reader, j, k, point, camera_end, entry_point, index.camera_entry, row);
  }
  WarpSumArray<(kRowSize < 64 ? kRowSize : 64)>(row,
                                                rows[threadIdx.x / kWarpSize]);
#pragma unroll
  for (int i = 64; i < kRowSize; ++i) {
    const double sum = WarpSum(row[i]);
    if (threadIdx.x % kWarpSize == 0) {
      rows[threadIdx.x / kWarpSize][i] = sum;
    }
  }
  __syncthreads();  // Warps meet.
  if (threadIdx.x < kRowSize) {
    double sum = 0.0;
    for (int w = 0; w < kNumWarps; ++w) {
      sum += rows[w][threadIdx.x];
    }
    partial[int64_t{kRowSize} * chunk + threadIdx.x] = sum;
  }
}

// What the camera sums of the eliminated system ask of a point, in one piece:
// they come to points in the order of a camera.
struct alignas(16) PointRecord {
  double v_inverse[6];  // packed
  double step[3];       // Vi g_p
  double unused;
};

// U and g, or, with kEliminated, S and s (ops/normal_blocks.h), in local
// coordinates: row = packed matrix where kMatrix, then vector.
template <typename T, int kLocalDim, bool kMatrix, bool kEliminated>
struct NormalTerm {
  static constexpr int kMatrixSize = kMatrix ? PackedSize(kLocalDim) : 0;
  static constexpr int kRowSize = kMatrixSize + kLocalDim;

  const double* b = nullptr;            // 2 per observation; null: no vector
  const PointRecord* points = nullptr;  // eliminated only

  template <typename Reader>
  __device__ __forceinline__ void Add(const Reader& reader,
                                      int64_t j,
                                      int64_t k,
                                      int32_t point,
                                      int64_t camera_end,
                                      const int32_t* entry_point,
                                      const int32_t* camera_entry,
                                      double* row) const {
    T jc[2 * kLocalDim];
    T jp[6];
    PointRecord record;
    if constexpr (kEliminated) {
      record = points[point];
    }
    reader.Load(k, point, jc, kEliminated ? jp : nullptr);
    if (b != nullptr) {
      double y[2] = {b[2 * k], b[2 * k + 1]};
      if constexpr (kEliminated) {
        const double* step = record.step;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          y[i] -= static_cast<double>(jp[3 * i]) * step[0] +
                  static_cast<double>(jp[3 * i + 1]) * step[1] +
                  static_cast<double>(jp[3 * i + 2]) * step[2];
        }
      }
#pragma unroll
      for (int i = 0; i < kLocalDim; ++i) {
        row[kMatrixSize + i] += static_cast<double>(jc[i]) * y[0] +
                                static_cast<double>(jc[kLocalDim + i]) * y[1];
      }
    }
    if constexpr (kMatrix) {
      double m[3] = {1.0, 0.0, 1.0};
      if constexpr (kEliminated) {
        // I - Jp Vi Jp'.
        double q[4];
        Couple(jp, record.v_inverse, jp, q);
        m[0] -= q[0];
        m[1] -= q[1];
        m[2] -= q[3];
      }
#pragma unroll
      for (int i = 0; i < kLocalDim; ++i) {
        const double a = static_cast<double>(jc[i]);
        const double c = static_cast<double>(jc[kLocalDim + i]);
        const double t0 = kEliminated ? m[0] * a + m[1] * c : a;
        const double t1 = kEliminated ? m[1] * a + m[2] * c : c;
#pragma unroll
        for (int e = 0; e <= i; ++e) {
          row[PackedIndex(i, e)] += t0 * static_cast<double>(jc[e]) +
                                    t1 * static_cast<double>(jc[kLocalDim + e]);
        }
      }
      if constexpr (kEliminated) {
        // Repeated pairs stand next to each other: W of the pair is a sum, and
        // W Vi W' has a term for each two of them. This entry adds its own
        // terms with those that follow.
        for (int64_t next = j + 1;
             next < camera_end && entry_point[next] == point;
             ++next) {
          AddRepeated(reader, k, camera_entry[next], point, row);
        }
      }
    }
  }

  // q = a Vi b', 2 x 2.
  __device__ __forceinline__ static void Couple(const T* a,
                                                const double* v,
                                                const T* b,
                                                double* q) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const double b0 = static_cast<double>(b[3 * i]);
      const double b1 = static_cast<double>(b[3 * i + 1]);
      const double b2 = static_cast<double>(b[3 * i + 2]);
      const double t0 = v[0] * b0 + v[1] * b1 + v[3] * b2;
      const double t1 = v[1] * b0 + v[2] * b1 + v[4] * b2;
      const double t2 = v[3] * b0 + v[4] * b1 + v[5] * b2;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        q[2 * e + i] = static_cast<double>(a[3 * e]) * t0 +
                       static_cast<double>(a[3 * e + 1]) * t1 +
                       static_cast<double>(a[3 * e + 2]) * t2;
      }
    }
  }

  // S -= Jc' (Jp Vi Np') Nc + its transpose, N the other observation. Reads
  // everything again: rare, and nothing is kept for it.
  template <typename Reader>
  __device__ __forceinline__ void AddRepeated(const Reader& reader,
                                              int64_t k,
                                              int64_t other,
                                              int32_t point,
                                              double* row) const {
    T jc[2 * kLocalDim];
    T nc[2 * kLocalDim];
    double q[4];
    {
      T jp[6];
      T np[6];
      reader.Load(k, point, jc, jp);
      reader.Load(other, point, nc, np);
      Couple(jp, points[point].v_inverse, np, q);
    }
#pragma unroll
    for (int i = 0; i < kLocalDim; ++i) {
      const double n0 = static_cast<double>(nc[i]);
      const double n1 = static_cast<double>(nc[kLocalDim + i]);
      const double j0 = static_cast<double>(jc[i]);
      const double j1 = static_cast<double>(jc[kLocalDim + i]);
#pragma unroll
      for (int e = 0; e <= i; ++e) {
        const double ne0 = static_cast<double>(nc[e]);
        const double ne1 = static_cast<double>(nc[kLocalDim + e]);
        const double je0 = static_cast<double>(jc[e]);
        const double je1 = static_cast<double>(jc[kLocalDim + e]);
        row[PackedIndex(i, e)] -=
            j0 * (q[0] * ne0 + q[1] * ne1) + j1 * (q[2] * ne0 + q[3] * ne1) +
            n0 * (q[0] * je0 + q[2] * je1) + n1 * (q[1] * je0 + q[3] * je1);
      }
    }
  }
};

// Mapping: one block of 64 threads per camera. Sums the rows of the camera's
// chunks in ascending order, then matrix = G' A G, packed, and vector = G' a.
template <typename Source, bool kMatrix, BlockLayout kLayout>
__global__ void __launch_bounds__(64) FinishCameraBlocksKernel(
    Source source,
    const int32_t* camera_chunk_begin,
    const double* partial,
    BlockView<double, PackedSize(Source::kCameraDim), kLayout> matrix,
    double* vector) {
  constexpr int kLocalDim = CameraCoordinates<Source>::kLocalDim;
  constexpr int C = Source::kCameraDim;
  constexpr int kMatrixSize = kMatrix ? PackedSize(kLocalDim) : 0;
  constexpr int kRowSize = kMatrixSize + kLocalDim;
  __shared__ double sums[kRowSize];
  const int32_t c = static_cast<int32_t>(blockIdx.x);
  for (int e = static_cast<int>(threadIdx.x); e < kRowSize; e += 64) {
    double sum = 0.0;
    for (int32_t chunk = camera_chunk_begin[c];
         chunk < camera_chunk_begin[c + 1];
         ++chunk) {
      sum += partial[int64_t{kRowSize} * chunk + e];
    }
    sums[e] = sum;
  }
  __syncthreads();  // G' A G needs all of A.
  if (vector != nullptr && threadIdx.x < C) {
    const int j = static_cast<int>(threadIdx.x);
    double sum = 0.0;
    for (int i = 0; i < kLocalDim; ++i) {
      sum += CameraCoordinates<Source>::Map(source, c, i, j) *
             sums[kMatrixSize + i];
    }
    vector[int64_t{C} * c + j] = sum;
  }
  if constexpr (kMatrix) {
    if (matrix.data == nullptr || threadIdx.x >= PackedSize(C)) {
      return;  // No barrier follows.
    }
    int row = 0;
    while (PackedIndex(row + 1, 0) <= static_cast<int>(threadIdx.x)) {
      ++row;
    }
    const int column = static_cast<int>(threadIdx.x) - PackedIndex(row, 0);
    double value = 0.0;
    for (int i = 0; i < kLocalDim; ++i) {
      double a = 0.0;  // (A G)_{i, column}
      for (int e = 0; e < kLocalDim; ++e) {
        a += sums[e <= i ? PackedIndex(i, e) : PackedIndex(e, i)] *
             CameraCoordinates<Source>::Map(source, c, e, column);
      }
      value += CameraCoordinates<Source>::Map(source, c, i, row) * a;
    }
    matrix(c, static_cast<int>(threadIdx.x)) = value;
  }
}

template <typename Source, typename Term>
Status SumCameraChunks(const ObservationIndexView& index,
                       const Source& source,
                       const Term& term,
                       CudaMachine* machine) {
  return Launch("CameraChunk",
                CameraChunkKernel<Source, Term>,
                index.cuda_workspace->num_chunks,
                kChunkBlock,
                0,
                machine->stream(),
                index,
                source,
                term,
                index.cuda_workspace->chunk_camera,
                index.cuda_workspace->camera_chunk_begin,
                index.cuda_workspace->entry_point,
                index.cuda_workspace->partial);
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_CUDA_CAMERA_CHUNKS_CUH_
