// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The device body of SchurComplement for any source and layout. Included by
// .cu.cc files that instantiate it.
//
// A warp owns a block of S, or a chunk of one that is long. It takes 32
// couplings at a time: each lane makes Jc_k and (Jp_k Vi Jp_l') Jc_l of one of
// them, which meet in shared memory; then the lanes share the elements of the
// block out among them and add the products of all 32.
#ifndef CERES_EXT_CUDA_KERNELS_CUDA_SCHUR_COMPLEMENT_IMPL_CUH_
#define CERES_EXT_CUDA_KERNELS_CUDA_SCHUR_COMPLEMENT_IMPL_CUH_

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/cuda/camera_chunks.cuh"
#include "cuda_kernels/cuda/normal_blocks_impl.cuh"
#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/ops/schur_complement.h"

namespace ceres_ext::kernels {

inline constexpr int kRecordBlock = 64;

// records[k] of stored blocks (CouplingRecord).
// Mapping: one thread per observation; the block writes its records in whole
// lines. Traffic per observation: the blocks, 4 B of id, 48 B of Vi, which come
// from a cache where neighbours have the same point; the record.
template <typename Source, BlockLayout kLayout>
__global__ void __launch_bounds__(kRecordBlock) RecordObservationsKernel(
    SchurComplementParams<Source, kLayout> p,
    CouplingRecord<typename Source::Value, typename Source::Shape>* records) {
  using T = typename Source::Value;
  using Shape = typename Source::Shape;
  using Record = CouplingRecord<T, Shape>;
  constexpr int R = Shape::kNumResiduals;
  constexpr int E = Shape::kE;
  __shared__ Record shared[kRecordBlock];
  const int64_t first = int64_t{blockIdx.x} * kRecordBlock;
  const int64_t k = first + threadIdx.x;
  if (k < p.index.num_observations) {
    Record& record = shared[threadIdx.x];
    const int32_t point = p.index.point_id[k];
    T jp[Shape::kESize];
    p.jacobian.LoadCamera(k, 0, point, record.blocks);
    p.jacobian.LoadPoint(k, 0, point, jp);
    double v_inverse[Shape::kPackedE];
#pragma unroll
    for (int e = 0; e < Shape::kPackedE; ++e) {
      v_inverse[e] = p.v_inverse(point, e);
    }
#pragma unroll
    for (int r = 0; r < R; ++r) {
      double row[E];
#pragma unroll
      for (int e = 0; e < E; ++e) {
        record.blocks[Shape::kFSize + E * r + e] = jp[E * r + e];
        row[e] = static_cast<double>(jp[E * r + e]);
      }
      SymmetricMultiply<E>(v_inverse, row, record.jp_vi + E * r);
    }
  }
  __syncthreads();  // Records are written by other threads than have made them.
  struct alignas(16) Word {
    double values[2];
  };
  constexpr int64_t kWords = sizeof(Record) / sizeof(Word);
  const int64_t left = p.index.num_observations - first;
  const int64_t num_words =
      kWords * (left < kRecordBlock ? left : kRecordBlock);
  Word* const to = reinterpret_cast<Word*>(records + first);
  const Word* const from = reinterpret_cast<const Word*>(shared);
  for (int64_t w = threadIdx.x; w < num_words; w += kRecordBlock) {
    to[w] = from[w];
  }
}

// The data that a coupling of recomputed blocks needs from its point, in one
// piece: s Vi s, packed, with the scale s of the point, then the point.
struct alignas(16) CouplingPoint {
  static constexpr int kSize = PackedSize(3) + 3;
  double values[kSize + 1];

  __device__ __forceinline__ const double* v_inverse() const { return values; }
  __device__ __forceinline__ const double* x() const {
    return values + PackedSize(3);
  }
};
static_assert(sizeof(CouplingPoint) <=
              sizeof(double) * CudaWorkspace::kPointRecord);

// Mapping: one thread per point.
template <typename Source, BlockLayout kLayout>
__global__ void __launch_bounds__(kPointBlock)
    RecordCouplingPointsKernel(SchurComplementParams<Source, kLayout> p,
                               CouplingPoint* points) {
  const int64_t point = int64_t{blockIdx.x} * kPointBlock + threadIdx.x;
  if (point >= p.index.num_points) {
    return;  // No barrier follows.
  }
  CouplingPoint record;
  record.values[CouplingPoint::kSize] = 0.0;
  double scale[3];
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    const int64_t at = 3 * point + i;
    record.values[PackedSize(3) + i] =
        static_cast<double>(p.jacobian.points[at]);
    scale[i] = p.jacobian.point_scale == nullptr
                   ? 1.0
                   : static_cast<double>(p.jacobian.point_scale[at]);
  }
#pragma unroll
  for (int i = 0; i < 3; ++i) {
#pragma unroll
    for (int j = 0; j <= i; ++j) {
      const int at = PackedIndex(i, j);
      record.values[at] = scale[i] * p.v_inverse(point, at) * scale[j];
    }
  }
  points[point] = record;
}

// The data that a block of S needs from its cameras if blocks are recomputed:
// the state, and for each column of the map the rows that are not zero, begin
// .. end - 1.
template <typename T>
struct alignas(16) CouplingCamera {
  static constexpr int kState = 15;
  static constexpr int kMaxColumns = 16;
  T state[kState + 1];  // CameraState
  uint8_t begin[kMaxColumns];
  uint8_t end[kMaxColumns];
};
static_assert(sizeof(CameraState<double>) ==
              sizeof(double) * CouplingCamera<double>::kState);
static_assert(sizeof(CouplingCamera<double>) <=
              sizeof(double) * CudaWorkspace::kLocalCamera);

// Mapping: kMaxColumns threads per camera, one for each value of the state and
// each column of the map.
template <typename Source>
__global__ void __launch_bounds__(kPointBlock) RecordCouplingCamerasKernel(
    Source source,
    int32_t num_cameras,
    CouplingCamera<typename Source::Value>* cameras) {
  using T = typename Source::Value;
  using Camera = CouplingCamera<T>;
  constexpr int C = Source::Shape::kF;
  static_assert(C <= Camera::kMaxColumns);
  const int64_t i = int64_t{blockIdx.x} * kPointBlock + threadIdx.x;
  const int64_t c = i / Camera::kMaxColumns;
  const int e = static_cast<int>(i % Camera::kMaxColumns);
  if (c >= num_cameras) {
    return;  // No barrier follows.
  }
  cameras[c].state[e] = e < Camera::kState
                            ? reinterpret_cast<const T*>(source.cameras + c)[e]
                            : T(0);
  int begin = kBalLocalCameraDim;
  int end = 0;
  for (int row = 0; e < C && row < kBalLocalCameraDim; ++row) {
    if (source.camera_maps[(kBalLocalCameraDim * c + row) * C + e] != 0.0) {
      begin = row < begin ? row : begin;
      end = row + 1;
    }
  }
  cameras[c].begin[e] = static_cast<uint8_t>(begin);
  cameras[c].end[e] = static_cast<uint8_t>(end);
}

// to[i] = from[i], i < kSize, in accesses of 16 bytes; `from` is aligned to
// them, and what is read behind its end is there.
template <int kSize, typename T, typename U>
__device__ __forceinline__ void LoadAligned(const T* from, U* to) {
  constexpr int kPerWord = 16 / sizeof(T);
  struct alignas(16) Word {
    T values[kPerWord];
  };
#pragma unroll
  for (int w = 0; w < (kSize + kPerWord - 1) / kPerWord; ++w) {
    const Word word = reinterpret_cast<const Word*>(from)[w];
#pragma unroll
    for (int i = 0; i < kPerWord; ++i) {
      if (kPerWord * w + i < kSize) {
        to[kPerWord * w + i] = static_cast<U>(word.values[i]);
      }
    }
  }
}

// The data that a block of S needs from the observations of its couplings, in
// the Local shape: Jc and Jp Vi of the first, Jc and Jp of the second.
template <typename Source, BlockLayout kLayout>
class CouplingReader;

template <typename T, typename Shape, BlockLayout kLayout>
class CouplingReader<StoredJacobian<T, Shape, kLayout>, kLayout> {
 public:
  using Source = StoredJacobian<T, Shape, kLayout>;
  using Record = CouplingRecord<T, Shape>;

  // records: of the observations.
  __device__ CouplingReader(const SchurComplementParams<Source, kLayout>& /*p*/,
                            const void* records,
                            const void* /*cameras*/,
                            int32_t /*i*/,
                            int32_t /*j*/)
      : records_(static_cast<const Record*>(records)) {}

  using Coupling = int64_t;

  __device__ __forceinline__ void Load(const CouplingIndexRef& couplings,
                                       int64_t at,
                                       Coupling* coupling) const {
    *coupling = couplings.coupling[at];
  }
  __device__ __forceinline__ void First(Coupling coupling,
                                        double* jc,
                                        double* jp_vi) const {
    const Record& record = records_[FirstOfCoupling(coupling)];
    LoadAligned<Shape::kESize>(record.jp_vi, jp_vi);
    LoadAligned<Shape::kFSize>(record.blocks, jc);
  }
  __device__ __forceinline__ void Second(Coupling coupling,
                                         double* jc,
                                         double* jp) const {
    double blocks[Shape::kFSize + Shape::kESize];
    LoadAligned<Shape::kFSize + Shape::kESize>(
        records_[SecondOfCoupling(coupling)].blocks, blocks);
#pragma unroll
    for (int i = 0; i < Shape::kFSize; ++i) {
      jc[i] = blocks[i];
    }
#pragma unroll
    for (int i = 0; i < Shape::kESize; ++i) {
      jp[i] = blocks[Shape::kFSize + i];
    }
  }

 private:
  const Record* const records_;
};

template <typename T, int C, bool kScaledRows, BlockLayout kLayout>
class CouplingReader<RecomputedJacobian<T, C, kScaledRows>, kLayout> {
 public:
  using Source = RecomputedJacobian<T, C, kScaledRows>;
  using Shape = BalShape<kBalLocalCameraDim>;

  struct Coupling {
    int64_t observations = 0;  // with scaled rows
    CouplingPoint point;
  };

  // records: of the points; cameras: their records.
  // Cameras are read where they are needed, from a cache that is near: two of
  // them in registers would leave room for fewer warps.
  __device__ CouplingReader(const SchurComplementParams<Source, kLayout>& p,
                            const void* records,
                            const void* cameras,
                            int32_t i,
                            int32_t j)
      : point_id_(p.index.point_id),
        points_(static_cast<const CouplingPoint*>(records)),
        jacobian_(p.jacobian),
        first_(static_cast<const CouplingCamera<T>*>(cameras) + i),
        second_(static_cast<const CouplingCamera<T>*>(cameras) + j) {}

  // Coupling `at` of the index.
  __device__ __forceinline__ void Load(const CouplingIndexRef& couplings,
                                       int64_t at,
                                       Coupling* coupling) const {
    int32_t point;
    if constexpr (kScaledRows) {
      coupling->observations = couplings.coupling[at];
      point = point_id_[FirstOfCoupling(coupling->observations)];
    } else {
      point = couplings.point[at];
    }
    LoadAligned<CouplingPoint::kSize>(points_[point].values,
                                      coupling->point.values);
  }
  __device__ __forceinline__ void First(const Coupling& coupling,
                                        double* jc,
                                        double* jp_vi) const {
    double jp[Shape::kESize];
    Project(*first_,
            FirstOfCoupling(coupling.observations),
            coupling.point,
            jc,
            jp);
#pragma unroll
    for (int r = 0; r < Shape::kNumResiduals; ++r) {
      SymmetricMultiply<Shape::kE>(coupling.point.v_inverse(),
                                   jp + Shape::kE * r,
                                   jp_vi + Shape::kE * r);
    }
  }
  __device__ __forceinline__ void Second(const Coupling& coupling,
                                         double* jc,
                                         double* jp) const {
    Project(*second_,
            SecondOfCoupling(coupling.observations),
            coupling.point,
            jc,
            jp);
  }

 private:
  // The blocks of observation k, Jp without the scale of its point.
  __device__ __forceinline__ void Project(const CouplingCamera<T>& camera,
                                          int64_t k,
                                          const CouplingPoint& point,
                                          double* jc,
                                          double* jp) const {
    T values[CouplingCamera<T>::kState];
    LoadAligned<CouplingCamera<T>::kState>(camera.state, values);
    CameraState<T> state;
#pragma unroll
    for (int i = 0; i < 9; ++i) {
      state.R[i] = values[i];
    }
    T x[3];
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      state.t[i] = values[9 + i];
      x[i] = static_cast<T>(point.x()[i]);
    }
    state.f = values[12];
    state.k1 = values[13];
    state.k2 = values[14];
    T local_jc[Shape::kFSize];
    T local_jp[Shape::kESize];
    RecomputeBlocks(jacobian_, state, x, k, local_jc, local_jp);
#pragma unroll
    for (int i = 0; i < Shape::kFSize; ++i) {
      jc[i] = static_cast<double>(local_jc[i]);
    }
#pragma unroll
    for (int i = 0; i < Shape::kESize; ++i) {
      jp[i] = static_cast<double>(local_jp[i]);
    }
  }

  const int32_t* const point_id_;
  const CouplingPoint* const points_;
  const Source& jacobian_;
  const CouplingCamera<T>* const first_;
  const CouplingCamera<T>* const second_;
};

// How a warp shares out a block of F x F: a lane owns a tile of kSide x kSide
// elements of it, and as many groups of lanes as there is room for take every
// kGroups-th coupling.
template <int F>
struct CouplingTiles {
  static constexpr int kSide = F % 3 == 0 ? F / 3 : F % 4 == 0 ? F / 4 : F / 2;
  static constexpr int kAcross = F / kSide;
  static constexpr int kLanes = kAcross * kAcross;
  static constexpr int kGroups = kWarpSize / kLanes;
  static_assert(kAcross * kSide == F && kGroups > 0);
};

// The shared memory of a warp: a column for each coupling of a batch, Jc_k and
// then m Jc_l. A column more than there are lanes, so that lanes that read
// elements below each other meet other banks.
template <typename Shape>
struct CouplingStage {
  static constexpr int kColumns = 2 * Shape::kF;
  static constexpr int kStride = kWarpSize + 1;
  // Warps of a block: their stages fit into what a kernel may declare.
  static constexpr int kWarps = Shape::kF <= 10 ? 4 : 2;
  // A column of Jc_k or m Jc_l.
  struct alignas(Shape::kNumResiduals == 2 ? 16 : 8) Column {
    double rows[Shape::kNumResiduals];
  };
  Column columns[kColumns * kStride];

  // The sums take the same place.
  __device__ __forceinline__ double* values() {
    return reinterpret_cast<double*>(columns);
  }
};

// Columns a of Jc_k and b of m Jc_l, m = Jp_k Vi Jp_l', of a coupling, written
// by the lane that the columns are of.
template <typename Reader, typename Shape>
__device__ __forceinline__ void StageCoupling(
    const Reader& reader,
    const typename Reader::Coupling& coupling,
    int lane,
    CouplingStage<Shape>* stage) {
  constexpr int R = Shape::kNumResiduals;
  constexpr int E = Shape::kE;
  constexpr int F = Shape::kF;
  constexpr int kStride = CouplingStage<Shape>::kStride;
  using Column = typename CouplingStage<Shape>::Column;
  Column* const columns = stage->columns;
  double jc[R * F];
  double jp_vi[R * E];
  reader.First(coupling, jc, jp_vi);
#pragma unroll
  for (int a = 0; a < F; ++a) {
    Column entry;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      entry.rows[r] = jc[F * r + a];
    }
    columns[kStride * a + lane] = entry;
  }
  double jp[R * E];
  reader.Second(coupling, jc, jp);
  double m[R * R];
#pragma unroll
  for (int r = 0; r < R; ++r) {
#pragma unroll
    for (int q = 0; q < R; ++q) {
      m[R * r + q] = jp_vi[E * r] * jp[E * q];
#pragma unroll
      for (int e = 1; e < E; ++e) {
        m[R * r + q] += jp_vi[E * r + e] * jp[E * q + e];
      }
    }
  }
#pragma unroll
  for (int b = 0; b < F; ++b) {
    Column entry;
#pragma unroll
    for (int r = 0; r < R; ++r) {
      entry.rows[r] = m[R * r] * jc[b];
#pragma unroll
      for (int q = 1; q < R; ++q) {
        entry.rows[r] += m[R * r + q] * jc[F * q + b];
      }
    }
    columns[kStride * (F + b) + lane] = entry;
  }
}

// tile += the products of a staged coupling, of which `first` is the column of
// the tile's row 0 and `second` that of its column 0.
template <typename Shape>
__device__ __forceinline__ void AddStagedCoupling(
    const typename CouplingStage<Shape>::Column* first,
    const typename CouplingStage<Shape>::Column* second,
    double* tile) {
  constexpr int R = Shape::kNumResiduals;
  constexpr int kStride = CouplingStage<Shape>::kStride;
  constexpr int kSide = CouplingTiles<Shape::kF>::kSide;
  using Column = typename CouplingStage<Shape>::Column;
  Column right[kSide];
#pragma unroll
  for (int b = 0; b < kSide; ++b) {
    right[b] = second[kStride * b];
  }
#pragma unroll
  for (int a = 0; a < kSide; ++a) {
    const Column left = first[kStride * a];
#pragma unroll
    for (int b = 0; b < kSide; ++b) {
#pragma unroll
      for (int r = 0; r < R; ++r) {
        tile[kSide * a + b] += left.rows[r] * right[b].rows[r];
      }
    }
  }
}

// stage.values[a + F b] = element (a, b) of the sum over couplings begin ..
// end - 1 of Jc_k' (Jp_k Vi Jp_l') Jc_l.
// Order: group g of lanes adds couplings begin + 32 s + g, + kGroups, ... in
// ascending order; then the groups from 0 on.
template <typename Source, BlockLayout kLayout, typename Shape>
__device__ __forceinline__ void SumCouplings(
    const SchurComplementParams<Source, kLayout>& p,
    const void* records,
    const void* cameras,
    int32_t i,
    int32_t j,
    int64_t begin,
    int64_t end,
    CouplingStage<Shape>* stage) {
  constexpr int F = Shape::kF;
  constexpr int kStride = CouplingStage<Shape>::kStride;
  using Reader = CouplingReader<Source, kLayout>;
  using Tiles = CouplingTiles<F>;
  constexpr int kSide = Tiles::kSide;
  static_assert(Tiles::kGroups * F * F * sizeof(double) <=
                sizeof(CouplingStage<Shape>));
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int group = lane / Tiles::kLanes;
  const int row = lane % Tiles::kLanes / Tiles::kAcross * kSide;
  const int column = lane % Tiles::kAcross * kSide;
  double* const values = stage->values();
  const Reader reader(p, records, cameras, i, j);
  double tile[kSide * kSide] = {};
  for (int64_t base = begin; base < end; base += kWarpSize) {
    const int count =
        end - base < kWarpSize ? static_cast<int>(end - base) : kWarpSize;
    if (lane < count) {
      typename Reader::Coupling coupling;
      reader.Load(p.couplings, base + lane, &coupling);
      StageCoupling(reader, coupling, lane, stage);
    }
    __syncwarp();  // Lanes read what others have made.
    if (group < Tiles::kGroups) {
      for (int t = group; t < count; t += Tiles::kGroups) {
        AddStagedCoupling<Shape>(stage->columns + kStride * row + t,
                                 stage->columns + kStride * (F + column) + t,
                                 tile);
      }
    }
    __syncwarp();  // The stage is written again.
  }
  if (group < Tiles::kGroups) {
#pragma unroll
    for (int a = 0; a < kSide; ++a) {
#pragma unroll
      for (int b = 0; b < kSide; ++b) {
        values[F * F * group + row + a + F * (column + b)] =
            tile[kSide * a + b];
      }
    }
  }
  __syncwarp();  // Groups meet.
  for (int q = lane; q < F * F; q += kWarpSize) {
    double sum = values[q];
    for (int g = 1; g < Tiles::kGroups; ++g) {
      sum += values[F * F * g + q];
    }
    values[q] = sum;
  }
  __syncwarp();  // The sums are read by other lanes.
}

// Element (a, b) of block `block`, whose cameras are i and j.
template <typename Params>
__device__ __forceinline__ void StoreElement(const Params& p,
                                             int64_t block,
                                             int32_t i,
                                             int32_t j,
                                             int a,
                                             int b,
                                             double value) {
  constexpr int C = Params::Shape::kF;
  const int32_t u = p.unknowns.id[int64_t{C} * i + a];
  const int32_t v = p.unknowns.id[int64_t{C} * j + b];
  if (u >= 0 && v >= 0) {
    p.target.At(u, v, block, p.unknowns.begin[j]) = value;
  }
}

// values[e] = sum over rows f of (row e of a matrix, element f) G_(f, column)
// for rows e = first, first + kLanes, ...: kRows of them, element (e, f) at
// matrix[kRowStride * e + kColumnStride * f]. G: the map of camera c.
// Order: rows of the column of G that are not zero, ascending.
template <int kRows,
          int kLanes,
          int kRowStride,
          int kColumnStride,
          typename Source>
__device__ __forceinline__ void MultiplyByMapColumn(
    const Source& source,
    const CouplingCamera<typename Source::Value>* cameras,
    int32_t c,
    int column,
    int first,
    const double* matrix,
    double* values) {
  constexpr int kAtOnce = 3;  // rows of G that are read together
#pragma unroll
  for (int e = 0; kLanes * e < kRows; ++e) {
    values[e] = 0.0;
  }
  const int end = cameras[c].end[column];
  for (int f = cameras[c].begin[column]; f < end; f += kAtOnce) {
    double map[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      map[u] = f + u < end
                   ? CameraCoordinates<Source>::Map(source, c, f + u, column)
                   : 0.0;
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
#pragma unroll
      for (int e = 0; kLanes * e < kRows; ++e) {
        const int row = first + kLanes * e;
        if (f + u < end && row < kRows) {
          values[e] +=
              matrix[kRowStride * row + kColumnStride * (f + u)] * map[u];
        }
      }
    }
  }
}

// S_ij = -G_i' sum G_j, where stage.values are the sum. Mapping: the lanes of a
// warp share the elements, those of a column next to each other; with maps a
// lane has one column of G at a time. Ends with the stage in use.
template <typename Source, BlockLayout kLayout, typename Shape>
__device__ __forceinline__ void StoreBlock(
    const SchurComplementParams<Source, kLayout>& p,
    const void* cameras,
    int64_t block,
    int32_t i,
    int32_t j,
    CouplingStage<Shape>* stage) {
  constexpr int C = Source::Shape::kF;
  constexpr int F = Shape::kF;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const double* const sum = stage->values();
  if constexpr (!IsRecomputed<Source>::value) {
    for (int q = lane; q < C * C; q += kWarpSize) {
      StoreElement(p, block, i, j, q % C, q / C, -sum[q]);
    }
  } else {
    constexpr int kLanes = kWarpSize / C;  // that share a column
    const auto* const camera =
        static_cast<const CouplingCamera<typename Source::Value>*>(cameras);
    const int column = lane % C;
    const int first = lane / C;
    double* const product = stage->values() + F * F;  // sum G_j, F x C
    if (first < kLanes) {
      double values[(F + kLanes - 1) / kLanes];
      MultiplyByMapColumn<F, kLanes, 1, F>(
          p.jacobian, camera, j, column, first, sum, values);
#pragma unroll
      for (int e = 0; kLanes * e < F; ++e) {
        if (first + kLanes * e < F) {
          product[first + kLanes * e + F * column] = values[e];
        }
      }
    }
    __syncwarp();  // Columns of the product are read by other lanes.
    if (first < kLanes) {
      double values[(C + kLanes - 1) / kLanes];  // of a row of S_ij
      MultiplyByMapColumn<C, kLanes, F, 1>(
          p.jacobian, camera, i, column, first, product, values);
#pragma unroll
      for (int b = 0; kLanes * b < C; ++b) {
        if (first + kLanes * b < C) {
          StoreElement(p, block, i, j, column, first + kLanes * b, -values[b]);
        }
      }
    }
  }
}

// S_ii = S_c + D_c^2.
template <typename Params>
__device__ __forceinline__ void StoreDiagonalBlock(const Params& p,
                                                   int64_t block,
                                                   int32_t i) {
  constexpr int C = Params::Shape::kF;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  for (int q = lane; q < C * C; q += kWarpSize) {
    const int a = q / C;
    const int b = q % C;
    if (b > a) {
      continue;
    }
    double value = p.schur_diagonal(i, PackedIndex(a, b));
    if (a == b && p.camera_diagonal != nullptr) {
      const double d = p.camera_diagonal[int64_t{C} * i + a];
      value += d * d;
    }
    StoreElement(p, block, i, i, a, b, value);
  }
}

// Zeros in rows u_begin .. u_end - 1 of columns v_begin .. v_end - 1. Mapping:
// the lanes of a warp, along the columns.
__device__ __forceinline__ void StoreZeros(const SchurTarget& target,
                                           int64_t u_begin,
                                           int64_t u_end,
                                           int64_t v_begin,
                                           int64_t v_end) {
  const int rows = static_cast<int>(u_end - u_begin);
  if (rows == 0) {
    return;
  }
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  int u = lane % rows;
  int64_t v = v_begin + lane / rows;
  while (v < v_end) {
    target.values[target.stride * v + u_begin + u] = 0.0;
    u += kWarpSize % rows;
    v += kWarpSize / rows;
    if (u >= rows) {
      u -= rows;
      ++v;
    }
  }
}

// Zeros of a dense S from the block before `block` in its row, or from the
// begin of the row, up to it; with a diagonal block those behind its columns.
template <typename Params>
__device__ __forceinline__ void StoreZerosBefore(const Params& p,
                                                 int64_t block,
                                                 int32_t i,
                                                 int32_t j) {
  const int32_t* const begin = p.unknowns.begin;
  const int32_t before =
      block == p.couplings.row_begin[i] ? 0 : p.couplings.column[block - 1] + 1;
  if (before < j) {
    StoreZeros(p.target, begin[i], begin[i + 1], begin[before], begin[j]);
  }
  if (i == j) {
    StoreZeros(p.target,
               p.unknowns.num_unknowns,
               p.target.stride,
               begin[i],
               begin[i + 1]);
  }
}

// Blocks of the kernel below that are to fit on a processor: with stored
// Jacobians one more than the compiler makes room for takes 0.97 times as long,
// with recomputed ones 1.01 to 1.06 times (H200, venice-1778 and 488 cameras).
template <typename Source>
inline constexpr int kMinCouplingBlocks =
    CouplingStage<typename CameraCoordinates<Source>::Local>::kWarps < 4 ? 1
    : IsRecomputed<Source>::value                                        ? 4
                                                                         : 5;

// The sums of chunks of blocks of more than chunk_size() couplings, to partial,
// F * F each, and all other blocks of S, with the zeros between blocks where S
// is dense. Mapping: one warp per chunk or block. Order: SumCouplings. Traffic
// per coupling, in sectors; stored: 8 B and two records, except parts of each
// (384 B of 480 at 9 columns in double); recomputed: 4 B of id, a point and its
// Vi, and with scaled rows 8 B.
template <typename Source, BlockLayout kLayout>
__global__ void __launch_bounds__(
    kWarpSize* CouplingStage<typename CameraCoordinates<Source>::Local>::kWarps,
    kMinCouplingBlocks<Source>)
    CouplingBlocksKernel(SchurComplementParams<Source, kLayout> p,
                         const void* records,
                         const void* cameras,
                         double* partial) {
  using Shape = typename CameraCoordinates<Source>::Local;
  using Stage = CouplingStage<Shape>;
  constexpr int F = Shape::kF;
  __shared__ Stage stages[Stage::kWarps];
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int64_t task = int64_t{blockIdx.x} * Stage::kWarps + warp;
  const CouplingIndexRef& couplings = p.couplings;
  if (task >= couplings.num_chunks + couplings.num_blocks) {
    return;  // The whole warp leaves; no barrier of the block follows.
  }
  const int64_t chunk_size = couplings.chunk_size();
  const bool is_chunk = task < couplings.num_chunks;
  const int64_t block =
      is_chunk ? couplings.chunk[task].block : task - couplings.num_chunks;
  int64_t begin = couplings.coupling_begin[block];
  int64_t end = couplings.coupling_begin[block + 1];
  const int32_t i = couplings.row[block];
  const int32_t j = couplings.column[block];
  if (is_chunk) {
    begin = couplings.chunk[task].begin;
    end = end - begin < chunk_size ? end : begin + chunk_size;
  }
  if (!is_chunk && p.target.row_begin == nullptr) {
    StoreZerosBefore(p, block, i, j);
  }
  // One condition, so that bounds and cameras are read at the same time.
  if ((i == j) | (end - begin > chunk_size)) {
    if (i == j) {
      StoreDiagonalBlock(p, block, i);
    }
    return;  // As above.
  }
  Stage* const stage = &stages[warp];
  SumCouplings(p, records, cameras, i, j, begin, end, stage);
  if (is_chunk) {
    for (int q = static_cast<int>(threadIdx.x) % kWarpSize; q < F * F;
         q += kWarpSize) {
      partial[F * F * task + q] = stage->values()[q];
    }
  } else {
    StoreBlock(p, cameras, block, i, j, stage);
  }
}

// Blocks of S that were summed by chunks.
// Mapping: one warp per chunk, of which those that are a block's first work.
// Order: the chunks of a block from the first on.
template <typename Source, BlockLayout kLayout>
__global__ void __launch_bounds__(
    kWarpSize* CouplingStage<typename CameraCoordinates<Source>::Local>::kWarps)
    FinishLongBlocksKernel(SchurComplementParams<Source, kLayout> p,
                           const void* cameras,
                           const double* partial) {
  using Shape = typename CameraCoordinates<Source>::Local;
  using Stage = CouplingStage<Shape>;
  constexpr int F = Shape::kF;
  __shared__ Stage stages[Stage::kWarps];
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int64_t task = int64_t{blockIdx.x} * Stage::kWarps + warp;
  const CouplingIndexRef& couplings = p.couplings;
  if (task >= couplings.num_chunks) {
    return;  // The whole warp leaves; no barrier of the block follows.
  }
  const int64_t block = couplings.chunk[task].block;
  const int64_t begin = couplings.coupling_begin[block];
  if (couplings.chunk[task].begin != begin) {
    return;  // As above.
  }
  const int64_t num_chunks = CeilDivide(
      couplings.coupling_begin[block + 1] - begin, couplings.chunk_size());
  Stage* const stage = &stages[warp];
  for (int q = static_cast<int>(threadIdx.x) % kWarpSize; q < F * F;
       q += kWarpSize) {
    double sum = 0.0;
    for (int64_t c = task; c < task + num_chunks; ++c) {
      sum += partial[F * F * c + q];
    }
    stage->values()[q] = sum;
  }
  __syncwarp();  // The sums are read by other lanes.
  StoreBlock(
      p, cameras, block, couplings.row[block], couplings.column[block], stage);
}

// Queues the zeros of a dense target beside the family's blocks, which write
// their own.
template <typename Source, BlockLayout kLayout>
Status ZeroOtherFamilies(const SchurComplementParams<Source, kLayout>& params,
                         CudaMachine* machine) {
  const SchurTarget target = params.target;
  const int64_t n = params.unknowns.num_unknowns;
  const int64_t first = params.unknowns.family_begin;
  const int64_t last = params.unknowns.family_end;
  if (last - first >= n) {
    return {};
  }
  return ForEachBlock("ZeroOtherFamilies",
                      n,
                      machine->stream(),
                      [=] __device__(int32_t column, int32_t thread) {
                        const bool is_mine = column >= first && column < last;
                        const int64_t begin = is_mine ? last : column;
                        const int64_t end = is_mine ? n : target.stride;
                        for (int64_t u = begin + thread; u < end;
                             u += kForEachBlock) {
                          target.values[target.stride * column + u] = 0.0;
                        }
                      });
}

// Queues the records of the observations or, where blocks are recomputed, of
// the points, and of the cameras then.
template <typename Source, BlockLayout kLayout>
Status RecordForCouplings(const SchurComplementParams<Source, kLayout>& params,
                          CudaMachine* machine,
                          const void** records,
                          const void** cameras) {
  using Scratch = internal::CouplingScratch<Source>;
  const ObservationIndexRef& index = params.index;
  if constexpr (IsRecomputed<Source>::value) {
    using T = typename Source::Value;
    auto* const states = reinterpret_cast<CouplingCamera<T>*>(
        index.cuda_workspace->local_cameras);
    CERES_EXT_RETURN_IF_ERROR(Launch(
        "RecordCouplingCameras",
        RecordCouplingCamerasKernel<Source>,
        {CeilDivide(int64_t{CouplingCamera<T>::kMaxColumns} * index.num_cameras,
                    kPointBlock),
         kPointBlock},
        machine->stream(),
        params.jacobian,
        index.num_cameras,
        states));
    *cameras = states;
    auto* const points =
        reinterpret_cast<CouplingPoint*>(index.cuda_workspace->point_records);
    *records = points;
    return Launch("RecordCouplingPoints",
                  RecordCouplingPointsKernel<Source, kLayout>,
                  {CeilDivide(index.num_points, kPointBlock), kPointBlock},
                  machine->stream(),
                  params,
                  points);
  } else if constexpr (Scratch::kRecord == 0) {
    return {};
  } else {
    auto* const observations = reinterpret_cast<
        CouplingRecord<typename Source::Value, typename Source::Shape>*>(
        params.scratch);
    *records = observations;
    return Launch(
        "RecordObservations",
        RecordObservationsKernel<Source, kLayout>,
        {CeilDivide(index.num_observations, kRecordBlock), kRecordBlock},
        machine->stream(),
        params,
        observations);
  }
}

template <typename Source, BlockLayout kLayout>
Status Run(const SchurComplementParams<Source, kLayout>& params,
           CudaMachine* machine) {
  using Stage = CouplingStage<typename CameraCoordinates<Source>::Local>;
  using Scratch = internal::CouplingScratch<Source>;
  const ObservationIndexRef& index = params.index;
  const CouplingIndexRef& couplings = params.couplings;
  const int64_t n = params.unknowns.num_unknowns;
  if (params.scratch == nullptr &&
      ScratchBytes<Source>(index.num_observations, couplings.num_chunks) > 0) {
    return Status(StatusCode::kInvalidArgument,
                  "The Schur complement needs ScratchBytes of scratch.");
  }
  CERES_EXT_RETURN_IF_ERROR(CheckCouplings(params));
  if (params.target.row_begin == nullptr) {
    if (params.target.stride < n) {
      return Status(StatusCode::kInvalidArgument,
                    "A dense Schur complement of " + std::to_string(n) +
                        " unknowns needs columns of as many values, not " +
                        std::to_string(params.target.stride) + ".");
    }
    CERES_EXT_RETURN_IF_ERROR(ZeroOtherFamilies(params, machine));
  }
  const void* records = nullptr;
  const void* cameras = nullptr;
  CERES_EXT_RETURN_IF_ERROR(
      RecordForCouplings(params, machine, &records, &cameras));
  double* const partial = reinterpret_cast<double*>(
      params.scratch + Scratch::kRecord * index.num_observations);
  CERES_EXT_RETURN_IF_ERROR(Launch(
      "CouplingBlocks",
      CouplingBlocksKernel<Source, kLayout>,
      {CeilDivide(couplings.num_chunks + couplings.num_blocks, Stage::kWarps),
       kWarpSize * Stage::kWarps},
      machine->stream(),
      params,
      records,
      cameras,
      partial));
  return Launch("FinishLongBlocks",
                FinishLongBlocksKernel<Source, kLayout>,
                {CeilDivide(couplings.num_chunks, Stage::kWarps),
                 kWarpSize * Stage::kWarps},
                machine->stream(),
                params,
                cameras,
                static_cast<const double*>(partial));
}

#define CERES_EXT_INSTANTIATE_COMPLEMENT(...) \
  template Status Run(                        \
      const SchurComplementParams<__VA_ARGS__, kDeviceLayout>&, CudaMachine*);

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_CUDA_SCHUR_COMPLEMENT_IMPL_CUH_
