// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Sums over the observations of a camera, taken in the order of the camera:
// for blocks per camera that are too large to meet in a tile. Included by
// .cu.cc files only.
#ifndef CERES_EXT_CUDA_KERNELS_CUDA_CAMERA_CHUNKS_CUH_
#define CERES_EXT_CUDA_KERNELS_CUDA_CAMERA_CHUNKS_CUH_

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "cuda_kernels/base/block_ref.h"
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

template <typename T, typename Shape, BlockLayout kLayout>
class CameraJacobianReader<StoredJacobian<T, Shape, kLayout>> {
 public:
  __device__ CameraJacobianReader(
      const StoredJacobian<T, Shape, kLayout>& source, int32_t /*camera*/)
      : source_(source) {}
  __device__ __forceinline__ void Load(int64_t k,
                                       int32_t /*point*/,
                                       T* jc,
                                       T* jp) const {
#pragma unroll
    for (int i = 0; i < Shape::kFSize; ++i) {
      jc[i] = source_.camera_blocks(k, i);
    }
    if (jp != nullptr) {
#pragma unroll
      for (int i = 0; i < Shape::kESize; ++i) {
        jp[i] = source_.point_blocks(k, i);
      }
    }
  }

 private:
  const StoredJacobian<T, Shape, kLayout>& source_;
};

// The blocks of observation k, whose point is at x, in local coordinates; Jp,
// which may be null, without the scale of its point.
template <typename T, int C, bool kScaledRows>
__device__ __forceinline__ void RecomputeBlocks(
    const RecomputedJacobian<T, C, kScaledRows>& source,
    const CameraState<T>& camera,
    const T* x,
    int64_t k,
    T* jc,
    T* jp) {
  Projection<T> projection;
  ProjectForProducts(camera, x, &projection);
  CameraJacobian(camera, projection, jc);
  source.template ScaleRows<2 * kBalLocalCameraDim>(k, jc);
  if (jp != nullptr) {
    PointJacobian(camera, projection, jp);
    source.template ScaleRows<6>(k, jp);
  }
}

template <typename T, int C, bool kScaledRows>
class CameraJacobianReader<RecomputedJacobian<T, C, kScaledRows>> {
 public:
  __device__ CameraJacobianReader(
      const RecomputedJacobian<T, C, kScaledRows>& source, int32_t camera)
      : source_(source), camera_(source.cameras[camera]) {}
  __device__ __forceinline__ void Load(int64_t k,
                                       int32_t point,
                                       T* jc,
                                       T* jp) const {
    const T* at = source_.points + int64_t{3} * point;
    const T x[3] = {at[0], at[1], at[2]};
    RecomputeBlocks(source_, camera_, x, k, jc, jp);
    if (jp != nullptr) {
      source_.ScalePointBlock(point, jp);
    }
  }

 private:
  const RecomputedJacobian<T, C, kScaledRows>& source_;
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
    CameraChunkKernel(ObservationIndexRef index,
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
  const int64_t length = CameraChunkLength(index.num_observations);
  const int64_t begin = index.camera_begin[camera] +
                        length * (chunk - camera_chunk_begin[camera]);
  const int64_t camera_end = index.camera_begin[camera + 1];
  const int64_t end = begin + length < camera_end ? begin + length : camera_end;
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
  for (int i = static_cast<int>(threadIdx.x); i < kRowSize; i += kChunkBlock) {
    double sum = 0.0;
    for (int w = 0; w < kNumWarps; ++w) {
      sum += rows[w][i];
    }
    partial[int64_t{kRowSize} * chunk + i] = sum;
  }
}

// The data of a point that the camera sums of the eliminated system need, in
// one piece, because they read points in camera order. Vi, packed, then Vi g_p,
// then zero where that makes whole accesses of 16 bytes.
template <int E>
struct alignas(16) PointRecord {
  static constexpr int kSize = (PackedSize(E) + E + 1) / 2 * 2;
  double values[kSize];

  __device__ __forceinline__ double* v_inverse() { return values; }
  __device__ __forceinline__ const double* v_inverse() const { return values; }
  __device__ __forceinline__ double* step() { return values + PackedSize(E); }
  __device__ __forceinline__ const double* step() const {
    return values + PackedSize(E);
  }
};

// U and g, or, with kEliminated, S and s (ops/normal_blocks.h), in the Local
// shape: row = packed matrix where kMatrix, then vector.
template <typename T, typename Shape, bool kMatrix, bool kEliminated>
struct NormalTerm {
  static constexpr int R = Shape::kNumResiduals;
  static constexpr int E = Shape::kE;
  static constexpr int F = Shape::kF;
  static constexpr int kMatrixSize = kMatrix ? Shape::kPackedF : 0;
  static constexpr int kRowSize = kMatrixSize + F;

  const double* b = nullptr;               // R per observation; null: no vector
  const PointRecord<E>* points = nullptr;  // eliminated only
  LongRepeats repeats;                     // eliminated only, with W

  template <typename Reader>
  __device__ __forceinline__ void Add(const Reader& reader,
                                      int64_t j,
                                      int64_t k,
                                      int32_t point,
                                      int64_t camera_end,
                                      const int32_t* entry_point,
                                      const int32_t* camera_entry,
                                      double* row) const {
    T jc[Shape::kFSize];
    T jp[Shape::kESize];
    PointRecord<E> record;
    if constexpr (kEliminated) {
      record = points[point];
    }
    reader.Load(k, point, jc, kEliminated ? jp : nullptr);
    if (b != nullptr) {
      double y[R];
      Residual(k, jp, record, y);
      MatrixTransposeMultiplyAndAccumulate<R, F>(jc, y, row + kMatrixSize);
    }
    if constexpr (kMatrix) {
      double m[R * R];
      if constexpr (kEliminated) {
        if (const double* const w = LongRepeatOf(j); w != nullptr) {
          AddOfLongRepeat(jc, jp, record, w, row);
          return;
        }
        Remainder(jp, record, m);
      }
#pragma unroll
      for (int i = 0; i < F; ++i) {
        double t[R];  // column i of m Jc
        double column[R];
#pragma unroll
        for (int r = 0; r < R; ++r) {
          column[r] = static_cast<double>(jc[F * r + i]);
        }
        MultiplyByRemainder(m, column, t);
#pragma unroll
        for (int e = 0; e <= i; ++e) {
          double sum = t[0] * static_cast<double>(jc[e]);
#pragma unroll
          for (int r = 1; r < R; ++r) {
            sum += t[r] * static_cast<double>(jc[F * r + e]);
          }
          row[PackedIndex(i, e)] += sum;
        }
      }
      if constexpr (kEliminated) {
        // Repeated pairs are adjacent: W of the pair is a sum, and W Vi W' has
        // a term for each two of them. This entry adds its own terms with those
        // that follow.
        for (int64_t next = j + 1;
             next < camera_end && entry_point[next] == point;
             ++next) {
          AddRepeated(reader, k, camera_entry[next], point, row);
        }
      }
    }
  }

  // W of the long repeat that entry j is in; null: it is in none.
  __device__ __forceinline__ const double* LongRepeatOf(int64_t j) const {
    const int32_t repeat = repeats.Find(j);
    return repeat < 0 ? nullptr : repeats.w + int64_t{F * E} * repeat;
  }

  // y = Jp Vi, R x E.
  __device__ __forceinline__ static void MultiplyByInverse(
      const T* jp, const PointRecord<E>& record, double* y) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      double x[E];
#pragma unroll
      for (int e = 0; e < E; ++e) {
        x[e] = static_cast<double>(jp[E * r + e]);
      }
      SymmetricMultiply<E>(record.v_inverse(), x, y + E * r);
    }
  }
  // Column i of Jc - Jp Vi W', x being that of Jc.
  __device__ __forceinline__ static void SubtractW(
      const double* x, const double* y, const double* w, int i, double* t) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      t[r] = x[r];
#pragma unroll
      for (int e = 0; e < E; ++e) {
        t[r] -= y[E * r + e] * w[E * i + e];
      }
    }
  }
  // S += Jc' (Jc - Jp Vi W'), which over all entries of the repeat is
  // sum of Jc'Jc - W Vi W'.
  __device__ __forceinline__ static void AddOfLongRepeat(
      const T* jc,
      const T* jp,
      const PointRecord<E>& record,
      const double* w,
      double* row) {
    double y[R * E];
    MultiplyByInverse(jp, record, y);
#pragma unroll
    for (int i = 0; i < F; ++i) {
      double x[R];
      double t[R];
#pragma unroll
      for (int r = 0; r < R; ++r) {
        x[r] = static_cast<double>(jc[F * r + i]);
      }
      SubtractW(x, y, w, i, t);
#pragma unroll
      for (int e = 0; e <= i; ++e) {
        double sum = 0.0;
#pragma unroll
        for (int r = 0; r < R; ++r) {
          sum += t[r] * static_cast<double>(jc[F * r + e]);
        }
        row[PackedIndex(i, e)] += sum;
      }
    }
  }

  // y = b - Jp Vi g_p, or b.
  __device__ __forceinline__ void Residual(int64_t k,
                                           const T* jp,
                                           const PointRecord<E>& record,
                                           double* y) const {
#pragma unroll
    for (int i = 0; i < R; ++i) {
      y[i] = b[R * k + i];
    }
    if constexpr (kEliminated) {
#pragma unroll
      for (int i = 0; i < R; ++i) {
        double sum = static_cast<double>(jp[E * i]) * record.step()[0];
#pragma unroll
        for (int e = 1; e < E; ++e) {
          sum += static_cast<double>(jp[E * i + e]) * record.step()[e];
        }
        y[i] -= sum;
      }
    }
  }

  // m = I - Jp Vi Jp', of which the upper triangle is used.
  __device__ __forceinline__ static void Remainder(
      const T* jp, const PointRecord<E>& record, double* m) {
    Couple(jp, record.v_inverse(), jp, m);
#pragma unroll
    for (int i = 0; i < R; ++i) {
#pragma unroll
      for (int e = 0; e < R; ++e) {
        m[R * i + e] = (i == e ? 1.0 : 0.0) - m[R * i + e];
      }
    }
  }

  // t = m x, or x.
  __device__ __forceinline__ static void MultiplyByRemainder(const double* m,
                                                             const double* x,
                                                             double* t) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      if constexpr (kEliminated) {
        t[r] = m[r] * x[0];
#pragma unroll
        for (int q = 1; q < R; ++q) {
          t[r] += m[r <= q ? R * r + q : R * q + r] * x[q];
        }
      } else {
        t[r] = x[r];
      }
    }
  }

  // q = a Vi b', R x R.
  __device__ __forceinline__ static void Couple(const T* a,
                                                const double* v,
                                                const T* b,
                                                double* q) {
#pragma unroll
    for (int i = 0; i < R; ++i) {
      double t[E];  // Vi b_i
#pragma unroll
      for (int e = 0; e < E; ++e) {
        t[e] = v[PackedIndex(e, 0)] * static_cast<double>(b[E * i]);
#pragma unroll
        for (int f = 1; f < E; ++f) {
          t[e] += v[f <= e ? PackedIndex(e, f) : PackedIndex(f, e)] *
                  static_cast<double>(b[E * i + f]);
        }
      }
#pragma unroll
      for (int r = 0; r < R; ++r) {
        double sum = static_cast<double>(a[E * r]) * t[0];
#pragma unroll
        for (int e = 1; e < E; ++e) {
          sum += static_cast<double>(a[E * r + e]) * t[e];
        }
        q[R * r + i] = sum;
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
    T jc[Shape::kFSize];
    T nc[Shape::kFSize];
    double q[R * R];
    {
      T jp[Shape::kESize];
      T np[Shape::kESize];
      reader.Load(k, point, jc, jp);
      reader.Load(other, point, nc, np);
      Couple(jp, points[point].v_inverse(), np, q);
    }
#pragma unroll
    for (int i = 0; i < F; ++i) {
#pragma unroll
      for (int e = 0; e <= i; ++e) {
        double sum = 0.0;
#pragma unroll
        for (int r = 0; r < R; ++r) {
#pragma unroll
          for (int s = 0; s < R; ++s) {
            sum += q[R * r + s] * (static_cast<double>(jc[F * r + i]) *
                                       static_cast<double>(nc[F * s + e]) +
                                   static_cast<double>(jc[F * r + e]) *
                                       static_cast<double>(nc[F * s + i]));
          }
        }
        row[PackedIndex(i, e)] -= sum;
      }
    }
  }
};

// right -= Jp Vi Np' Nc of a staged entry, in every second column from `half` on,
// N being the other entry `other`. Everything is read again: it is rare.
template <typename Term, typename Source, typename Staged>
__device__ __forceinline__ void AddRepeated(
    const Source& source,
    const typename Source::Value* jp,
    const PointRecord<Term::E>& record,
    int32_t other,
    int half,
    int slot,
    Staged& right) {
  constexpr int R = Term::R;
  constexpr int F = Term::F;
  typename Source::Value np[Source::Shape::kESize];
  source.LoadPoint(other, 0, 0, np);
  double q[R * R];
  Term::Couple(jp, record.v_inverse(), np, q);
  for (int column = half; column < F; column += 2) {
    for (int r = 0; r < R; ++r) {
      double sum = 0.0;
      for (int s = 0; s < R; ++s) {
        sum += q[R * r + s] *
               static_cast<double>(source.camera_blocks(other, F * s + column));
      }
      right[r][column][slot] -= sum;
    }
  }
}

// Entries that a block stages at a time, two threads each.
inline constexpr int kStagedEntries = kChunkBlock / 2;

// Stages entry j of the camera, whose entries are camera_begin .. camera_end -
// 1: two threads each write every second column of Jc to `left` and of m Jc to
// `right`, the first of them y as well.
template <bool kEliminated,
          typename Source,
          typename Term,
          typename Left,
          typename Right>
__device__ __forceinline__ void StageEntry(const ObservationIndexRef& index,
                                           const Source& source,
                                           const Term& term,
                                           const int32_t* entry_point,
                                           int32_t camera,
                                           int64_t camera_begin,
                                           int64_t camera_end,
                                           int64_t j,
                                           Left& left,
                                           Right& right) {
  constexpr int R = Term::R;
  constexpr int F = Term::F;
  const int half = static_cast<int>(threadIdx.x) % 2;
  const int slot = static_cast<int>(threadIdx.x) / 2;
  const int32_t k = index.camera_entry[j];
  const int32_t point = entry_point[j];
  typename Source::Value jp[Source::Shape::kESize];
  PointRecord<Term::E> record;
  double m[R * R];
  if constexpr (kEliminated) {
    record = term.points[point];
    source.LoadPoint(k, camera, point, jp);
    Term::Remainder(jp, record, m);
  }
  if (half == 0) {
    double y[R] = {};
    if (term.b != nullptr) {
      term.Residual(k, jp, record, y);
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
      right[r][F][slot] = y[r];
    }
  }
  const bool repeats =
      kEliminated && ((j > camera_begin && entry_point[j - 1] == point) ||
                      (j + 1 < camera_end && entry_point[j + 1] == point));
#pragma unroll
  for (int c = 0; c < (F + 1) / 2; ++c) {
    const int column = 2 * c + half;
    if (column < F) {
      double x[R];
      double t[R];
#pragma unroll
      for (int r = 0; r < R; ++r) {
        x[r] = static_cast<double>(source.camera_blocks(k, F * r + column));
      }
      Term::MultiplyByRemainder(m, x, t);
#pragma unroll
      for (int r = 0; r < R; ++r) {
        left[r][column][slot] = x[r];
        right[r][column][slot] = t[r];
      }
    }
  }
  if (const double* const w = repeats ? term.LongRepeatOf(j) : nullptr;
      w != nullptr) {
    double y[R * Term::E];
    Term::MultiplyByInverse(jp, record, y);
#pragma unroll 1
    for (int column = half; column < F; column += 2) {
      double x[R];
      double t[R];
#pragma unroll
      for (int r = 0; r < R; ++r) {
        x[r] = left[r][column][slot];
      }
      Term::SubtractW(x, y, w, column, t);
#pragma unroll
      for (int r = 0; r < R; ++r) {
        right[r][column][slot] = t[r];
      }
    }
  } else if (repeats) {
    // W of the pair is a sum over its entries: each adds what the others have
    // of it.
    for (int64_t other = j - 1;
         other >= camera_begin && entry_point[other] == point;
         --other) {
      AddRepeated<Term>(
          source, jp, record, index.camera_entry[other], half, slot, right);
    }
    for (int64_t other = j + 1;
         other < camera_end && entry_point[other] == point;
         ++other) {
      AddRepeated<Term>(
          source, jp, record, index.camera_entry[other], half, slot, right);
    }
  }
}

// CameraChunkKernel with a NormalTerm with a matrix, of stored blocks whose row of
// sums is more than a thread has registers for.
// Mapping: one block per chunk. Two threads bring an entry to shared memory, the
// columns of Jc and of m Jc and y; then each thread has elements of the row.
// Order: the chunk's entries ascending. Traffic: CameraChunkKernel's.
template <typename Source, bool kEliminated>
__global__ void __launch_bounds__(kChunkBlock) StagedCameraChunkKernel(
    ObservationIndexRef index,
    Source source,
    NormalTerm<typename Source::Value, typename Source::Shape, true, kEliminated>
        term,
    const int32_t* chunk_camera,
    const int32_t* camera_chunk_begin,
    const int32_t* entry_point,
    double* partial) {
  using Term = decltype(term);
  constexpr int R = Term::R;
  constexpr int F = Term::F;
  constexpr int kRowSize = Term::kRowSize;
  constexpr int kElements = (kRowSize + kChunkBlock - 1) / kChunkBlock;
  // One more than entries: threads of a warp read one entry of several columns.
  __shared__ double left[R][F][kStagedEntries + 1];
  __shared__ double right[R][F + 1][kStagedEntries + 1];
  const int32_t chunk = static_cast<int32_t>(blockIdx.x);
  const int32_t camera = chunk_camera[chunk];
  const int64_t camera_begin = index.camera_begin[camera];
  const int64_t camera_end = index.camera_begin[camera + 1];
  const int64_t length = CameraChunkLength(index.num_observations);
  const int64_t begin =
      camera_begin + length * (chunk - camera_chunk_begin[camera]);
  const int64_t end = begin + length < camera_end ? begin + length : camera_end;
  const int thread = static_cast<int>(threadIdx.x);
  // Elements of the row: column i of Jc with column e of m Jc, or with y.
  double sum[kElements];
  int i[kElements];
  int e[kElements];
#pragma unroll
  for (int n = 0; n < kElements; ++n) {
    const int at = thread + n * kChunkBlock;
    sum[n] = 0.0;
    i[n] = 0;
    if (at < Term::kMatrixSize) {
      while (PackedIndex(i[n] + 1, 0) <= at) {
        ++i[n];
      }
      e[n] = at - PackedIndex(i[n], 0);
    } else {
      i[n] = at < kRowSize ? at - Term::kMatrixSize : 0;
      e[n] = F;
    }
  }
  const int slot = thread / 2;
  for (int64_t stage = begin; stage < end; stage += kStagedEntries) {
    const int64_t j = stage + slot;
    if (j < end) {
      StageEntry<kEliminated>(index,
                              source,
                              term,
                              entry_point,
                              camera,
                              camera_begin,
                              camera_end,
                              j,
                              left,
                              right);
    }
    __syncthreads();  // The entries are there.
    const int count = static_cast<int>(
        end - stage < kStagedEntries ? end - stage : kStagedEntries);
    for (int s = 0; s < count; ++s) {
#pragma unroll
      for (int n = 0; n < kElements; ++n) {
        double product = left[0][i[n]][s] * right[0][e[n]][s];
#pragma unroll
        for (int r = 1; r < R; ++r) {
          product += left[r][i[n]][s] * right[r][e[n]][s];
        }
        sum[n] += product;
      }
    }
    __syncthreads();  // They may be replaced.
  }
#pragma unroll
  for (int n = 0; n < kElements; ++n) {
    const int at = thread + n * kChunkBlock;
    if (at < kRowSize) {
      partial[int64_t{kRowSize} * chunk + at] = sum[n];
    }
  }
}

// Mapping: one block of 64 threads per camera. Sums the rows of the camera's
// chunks in ascending order, then matrix = G' A G, packed, and vector = G' a.
template <typename Source, bool kMatrix, BlockLayout kLayout>
__global__ void __launch_bounds__(64) FinishCameraBlocksKernel(
    Source source,
    const int32_t* camera_chunk_begin,
    const double* partial,
    BlockRef<double, Source::Shape::kPackedF, kLayout> matrix,
    double* vector) {
  constexpr int kLocalDim = CameraCoordinates<Source>::Local::kF;
  constexpr int C = Source::Shape::kF;
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
    if (matrix.data == nullptr) {
      return;  // No barrier follows.
    }
    int row = 0;
    for (int at = static_cast<int>(threadIdx.x); at < PackedSize(C); at += 64) {
      while (PackedIndex(row + 1, 0) <= at) {
        ++row;
      }
      const int column = at - PackedIndex(row, 0);
      double value = 0.0;
      for (int i = 0; i < kLocalDim; ++i) {
        double a = 0.0;  // (A G)_{i, column}
        for (int e = 0; e < kLocalDim; ++e) {
          a += sums[e <= i ? PackedIndex(i, e) : PackedIndex(e, i)] *
               CameraCoordinates<Source>::Map(source, c, e, column);
        }
        value += CameraCoordinates<Source>::Map(source, c, i, row) * a;
      }
      matrix(c, at) = value;
    }
  }
}

// The kernel of a source and a term: staged from 11 columns on (5 million
// observations on an H200: 18 columns 2.9 ms against 7.3, 12 columns 2.4 against
// 2.8, but 10 columns 2.1 against 1.8).
template <typename Source, typename Term, typename = void>
struct CameraChunk {
  static constexpr auto kKernel = CameraChunkKernel<Source, Term>;
};
template <typename T, typename Shape, BlockLayout kLayout, bool kEliminated>
struct CameraChunk<StoredJacobian<T, Shape, kLayout>,
                   NormalTerm<T, Shape, true, kEliminated>,
                   std::enable_if_t<(Shape::kF > 10)>> {
  static constexpr auto kKernel =
      StagedCameraChunkKernel<StoredJacobian<T, Shape, kLayout>, kEliminated>;
};

// W = sum of Jc'Jp over the entries of each long repeat.
// Mapping: one block per repeat; a thread strides over its entries and keeps W
// in registers. Order: a thread's entries ascending; a tree over the warp; warps
// from 0 on. Traffic: the blocks of the entries, W.
template <typename Source, typename Shape>
__global__ void __launch_bounds__(kChunkBlock)
    SumLongRepeatsKernel(ObservationIndexRef index,
                         Source source,
                         LongRepeats repeats,
                         const int32_t* entry_point) {
  using T = typename Source::Value;
  constexpr int R = Shape::kNumResiduals;
  constexpr int E = Shape::kE;
  constexpr int kSize = Shape::kF * E;
  constexpr int kNumWarps = kChunkBlock / kWarpSize;
  __shared__ double sums[kNumWarps][kSize];
  const int64_t begin = repeats.begin[blockIdx.x];
  const int64_t end = repeats.end[blockIdx.x];
  const int32_t point = entry_point[begin];
  const CameraJacobianReader<Source> reader(
      source, index.camera_id[index.camera_entry[begin]]);
  double w[kSize] = {};
  for (int64_t j = begin + threadIdx.x; j < end; j += kChunkBlock) {
    T jc[Shape::kFSize];
    T jp[Shape::kESize];
    reader.Load(index.camera_entry[j], point, jc, jp);
#pragma unroll
    for (int i = 0; i < Shape::kF; ++i) {
#pragma unroll
      for (int e = 0; e < E; ++e) {
#pragma unroll
        for (int r = 0; r < R; ++r) {
          w[E * i + e] += static_cast<double>(jc[Shape::kF * r + i]) *
                          static_cast<double>(jp[E * r + e]);
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kSize; ++i) {
    const double sum = WarpSum(w[i]);
    if (threadIdx.x % kWarpSize == 0) {
      sums[threadIdx.x / kWarpSize][i] = sum;
    }
  }
  __syncthreads();  // Warps meet.
  for (int i = static_cast<int>(threadIdx.x); i < kSize; i += kChunkBlock) {
    double sum = 0.0;
    for (int warp = 0; warp < kNumWarps; ++warp) {
      sum += sums[warp][i];
    }
    repeats.w[int64_t{kSize} * blockIdx.x + i] = sum;
  }
}

// Queues it. A source of a module is an overload.
template <typename Shape, typename Source>
Status SumLongRepeats(const ObservationIndexRef& index,
                      const Source& source,
                      CudaMachine* machine) {
  const CudaWorkspaceRef& workspace = *index.cuda_workspace;
  return Launch("SumLongRepeats",
                SumLongRepeatsKernel<Source, Shape>,
                {workspace.long_repeats.num_repeats, kChunkBlock},
                machine->stream(),
                index,
                source,
                workspace.long_repeats,
                workspace.entry_point);
}

// A source of a module is an overload.
template <typename Source, typename Term>
Status SumCameraChunks(const ObservationIndexRef& index,
                       const Source& source,
                       const Term& term,
                       CudaMachine* machine) {
  return Launch("CameraChunk",
                CameraChunk<Source, Term>::kKernel,
                {index.cuda_workspace->num_chunks, kChunkBlock},
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
