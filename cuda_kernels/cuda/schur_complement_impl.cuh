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

#include "cuda_kernels/base/block_view.h"
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

// What a coupling of recomputed blocks asks of its point, in one piece: s Vi s,
// packed, with the scale s of the point, then the point.
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

// to[i] = from[i], i < kSize, in accesses of 16 bytes; `from` is aligned to
// them, and what is read behind its end is there.
template <int kSize, typename T>
__device__ __forceinline__ void LoadAligned(const T* from, double* to) {
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
        to[kPerWord * w + i] = static_cast<double>(word.values[i]);
      }
    }
  }
}

// What a block of S needs of the observations of its couplings, in the Local
// shape: Jc and Jp Vi of the first, Jc and Jp of the second.
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
                            int32_t /*i*/,
                            int32_t /*j*/)
      : records_(static_cast<const Record*>(records)) {}

  struct Point {};

  __device__ __forceinline__ void Load(int64_t /*k*/, Point* /*point*/) const {}
  __device__ __forceinline__ void First(int64_t k,
                                        const Point& /*point*/,
                                        double* jc,
                                        double* jp_vi) const {
    LoadAligned<Shape::kESize>(records_[k].jp_vi, jp_vi);
    LoadAligned<Shape::kFSize>(records_[k].blocks, jc);
  }
  __device__ __forceinline__ void Second(int64_t l,
                                         const Point& /*point*/,
                                         double* jc,
                                         double* jp) const {
    double blocks[Shape::kFSize + Shape::kESize];
    LoadAligned<Shape::kFSize + Shape::kESize>(records_[l].blocks, blocks);
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
  using Point = CouplingPoint;

  // records: of the points.
  // Cameras are read where they are needed, from a cache that is near: two of
  // them in registers would leave room for fewer warps.
  __device__ CouplingReader(const SchurComplementParams<Source, kLayout>& p,
                            const void* records,
                            int32_t i,
                            int32_t j)
      : point_id_(p.index.point_id),
        points_(static_cast<const Point*>(records)),
        jacobian_(p.jacobian),
        i_(i),
        j_(j) {}

  __device__ __forceinline__ void Load(int64_t k, Point* point) const {
    LoadAligned<Point::kSize>(points_[point_id_[k]].values, point->values);
  }
  __device__ __forceinline__ void First(int64_t k,
                                        const Point& point,
                                        double* jc,
                                        double* jp_vi) const {
    double jp[Shape::kESize];
    Project(i_, k, point, jc, jp);
#pragma unroll
    for (int r = 0; r < Shape::kNumResiduals; ++r) {
      SymmetricMultiply<Shape::kE>(
          point.v_inverse(), jp + Shape::kE * r, jp_vi + Shape::kE * r);
    }
  }
  __device__ __forceinline__ void Second(int64_t l,
                                         const Point& point,
                                         double* jc,
                                         double* jp) const {
    Project(j_, l, point, jc, jp);
  }

 private:
  // The blocks of observation k, Jp without the scale of its point.
  __device__ __forceinline__ void Project(int32_t camera,
                                          int64_t k,
                                          const Point& point,
                                          double* jc,
                                          double* jp) const {
    const CameraState<T> state = jacobian_.cameras[camera];
    T x[3];
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      x[i] = static_cast<T>(point.x()[i]);
    }
    Projection<T> projection;
    ProjectForProducts(state, x, &projection);
    T local_jc[Shape::kFSize];
    T local_jp[Shape::kESize];
    CameraJacobian(state, projection, local_jc);
    PointJacobian(state, projection, local_jp);
    jacobian_.template ScaleRows<Shape::kFSize>(k, local_jc);
    jacobian_.template ScaleRows<Shape::kESize>(k, local_jp);
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
  const Point* const points_;
  const Source& jacobian_;
  const int32_t i_;
  const int32_t j_;
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
  static constexpr int kRows = 2 * Shape::kFSize;
  static constexpr int kStride = kWarpSize + 1;
  // Warps of a block: their stages fit into what a kernel may declare.
  static constexpr int kWarps = Shape::kF <= 10 ? 4 : 2;
  double values[kRows * kStride];
};

// stage.values[F a + b] = element (a, b) of the sum over couplings begin ..
// end - 1 of Jc_k' (Jp_k Vi Jp_l') Jc_l.
// Order: group g of lanes adds couplings begin + 32 s + g, + kGroups, ... in
// ascending order; then the groups from 0 on.
template <typename Source, BlockLayout kLayout, typename Shape>
__device__ __forceinline__ void SumCouplings(
    const SchurComplementParams<Source, kLayout>& p,
    const void* records,
    int32_t i,
    int32_t j,
    int64_t begin,
    int64_t end,
    CouplingStage<Shape>* stage) {
  constexpr int R = Shape::kNumResiduals;
  constexpr int E = Shape::kE;
  constexpr int F = Shape::kF;
  constexpr int kStride = CouplingStage<Shape>::kStride;
  using Tiles = CouplingTiles<F>;
  constexpr int kSide = Tiles::kSide;
  static_assert(Tiles::kGroups * F * F <=
                CouplingStage<Shape>::kRows * kStride);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int group = lane / Tiles::kLanes;
  const int row = lane % Tiles::kLanes / Tiles::kAcross * kSide;
  const int column = lane % Tiles::kAcross * kSide;
  double* const values = stage->values;
  const CouplingReader<Source, kLayout> reader(p, records, i, j);
  double tile[kSide * kSide] = {};
  for (int64_t base = begin; base < end; base += kWarpSize) {
    const int count =
        end - base < kWarpSize ? static_cast<int>(end - base) : kWarpSize;
    if (lane < count) {
      const int64_t coupling = p.couplings.coupling[base + lane];
      const int64_t k = FirstOfCoupling(coupling);
      typename CouplingReader<Source, kLayout>::Point point;
      reader.Load(k, &point);
      double jc[R * F];
      double jp_vi[R * E];
      reader.First(k, point, jc, jp_vi);
#pragma unroll
      for (int e = 0; e < R * F; ++e) {
        values[kStride * e + lane] = jc[e];
      }
      double jp[R * E];
      reader.Second(SecondOfCoupling(coupling), point, jc, jp);
#pragma unroll
      for (int r = 0; r < R; ++r) {
        double m[R];  // Row r of Jp_k Vi Jp_l'.
#pragma unroll
        for (int q = 0; q < R; ++q) {
          m[q] = jp_vi[E * r] * jp[E * q];
#pragma unroll
          for (int e = 1; e < E; ++e) {
            m[q] += jp_vi[E * r + e] * jp[E * q + e];
          }
        }
#pragma unroll
        for (int b = 0; b < F; ++b) {
          double sum = m[0] * jc[b];
#pragma unroll
          for (int q = 1; q < R; ++q) {
            sum += m[q] * jc[F * q + b];
          }
          values[kStride * (R * F + F * r + b) + lane] = sum;
        }
      }
    }
    __syncwarp();  // Lanes read what others have made.
    if (group < Tiles::kGroups) {
      for (int t = group; t < count; t += Tiles::kGroups) {
#pragma unroll
        for (int r = 0; r < R; ++r) {
          double right[kSide];
#pragma unroll
          for (int b = 0; b < kSide; ++b) {
            right[b] = values[kStride * (R * F + F * r + column + b) + t];
          }
#pragma unroll
          for (int a = 0; a < kSide; ++a) {
            const double left = values[kStride * (F * r + row + a) + t];
#pragma unroll
            for (int b = 0; b < kSide; ++b) {
              tile[kSide * a + b] += left * right[b];
            }
          }
        }
      }
    }
    __syncwarp();  // The stage is written again.
  }
  if (group < Tiles::kGroups) {
#pragma unroll
    for (int a = 0; a < kSide; ++a) {
#pragma unroll
      for (int b = 0; b < kSide; ++b) {
        values[F * F * group + F * (row + a) + column + b] =
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

// S_ij = -G_i' sum G_j, where stage.values are the sum. Mapping: the lanes of a
// warp share the elements. Ends with the stage in use.
template <typename Source, BlockLayout kLayout, typename Shape>
__device__ __forceinline__ void StoreBlock(
    const SchurComplementParams<Source, kLayout>& p,
    int64_t block,
    int32_t i,
    int32_t j,
    CouplingStage<Shape>* stage) {
  constexpr int C = Source::Shape::kF;
  constexpr int F = Shape::kF;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const double* const sum = stage->values;
  if constexpr (!IsRecomputed<Source>::value) {
    for (int q = lane; q < C * C; q += kWarpSize) {
      StoreElement(p, block, i, j, q / C, q % C, -sum[q]);
    }
  } else {
    using Coordinates = CameraCoordinates<Source>;
    double* const product = stage->values + F * F;  // sum G_j, F x C
    for (int q = lane; q < F * C; q += kWarpSize) {
      double value = 0.0;
      for (int f = 0; f < F; ++f) {
        value +=
            sum[F * (q / C) + f] * Coordinates::Map(p.jacobian, j, f, q % C);
      }
      product[q] = value;
    }
    __syncwarp();  // Rows of the product are read by other lanes.
    for (int q = lane; q < C * C; q += kWarpSize) {
      double value = 0.0;
      for (int e = 0; e < F; ++e) {
        value +=
            Coordinates::Map(p.jacobian, i, e, q / C) * product[C * e + q % C];
      }
      StoreElement(p, block, i, j, q / C, q % C, -value);
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

// Blocks of the kernel below that are to fit on a processor: with stored
// Jacobians one more than the compiler makes room for takes 0.97 times as long,
// with recomputed ones 1.01 to 1.06 times (H200, venice-1778 and 488 cameras).
template <typename Source>
inline constexpr int kMinCouplingBlocks =
    CouplingStage<typename CameraCoordinates<Source>::Local>::kWarps < 4 ? 1
    : IsRecomputed<Source>::value                                        ? 4
                                                                         : 5;

// Blocks of S of up to kCouplingChunk couplings; kLong: the sums of chunks of
// the others, to partial, F * F each.
// Mapping: one warp per block or chunk. Order: SumCouplings.
// Traffic per coupling, in sectors: 8 B; stored: two records, but for parts of
// each (384 B of 480 at 9 columns in double); recomputed: 4 B of id, a point
// and its Vi.
template <bool kLong, typename Source, BlockLayout kLayout>
__global__ void __launch_bounds__(
    kWarpSize* CouplingStage<typename CameraCoordinates<Source>::Local>::kWarps,
    kMinCouplingBlocks<Source>)
    CouplingBlocksKernel(SchurComplementParams<Source, kLayout> p,
                         const void* records,
                         double* partial) {
  using Shape = typename CameraCoordinates<Source>::Local;
  using Stage = CouplingStage<Shape>;
  constexpr int F = Shape::kF;
  __shared__ Stage stages[Stage::kWarps];
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int64_t task = int64_t{blockIdx.x} * Stage::kWarps + warp;
  const CouplingIndexView& couplings = p.couplings;
  if (task >= (kLong ? couplings.num_chunks : couplings.num_blocks)) {
    return;  // The whole warp leaves; no barrier of the block follows.
  }
  const int64_t block = kLong ? couplings.chunk[task].block : task;
  int64_t begin = couplings.coupling_begin[block];
  int64_t end = couplings.coupling_begin[block + 1];
  const int32_t i = couplings.row[block];
  const int32_t j = couplings.column[block];
  if constexpr (kLong) {
    begin = couplings.chunk[task].begin;
    end = end - begin < kCouplingChunk ? end : begin + kCouplingChunk;
  } else if (end - begin > kCouplingChunk) {
    return;  // As above.
  }
  if (i == j) {
    StoreDiagonalBlock(p, block, i);
    return;  // As above.
  }
  Stage* const stage = &stages[warp];
  SumCouplings(p, records, i, j, begin, end, stage);
  if constexpr (kLong) {
    for (int q = static_cast<int>(threadIdx.x) % kWarpSize; q < F * F;
         q += kWarpSize) {
      partial[F * F * task + q] = stage->values[q];
    }
  } else {
    StoreBlock(p, block, i, j, stage);
  }
}

// Blocks of S that were summed by chunks.
// Mapping: one warp per chunk, of which those that are a block's first work.
// Order: the chunks of a block from the first on.
template <typename Source, BlockLayout kLayout>
__global__ void __launch_bounds__(
    kWarpSize* CouplingStage<typename CameraCoordinates<Source>::Local>::kWarps)
    FinishLongBlocksKernel(SchurComplementParams<Source, kLayout> p,
                           const double* partial) {
  using Shape = typename CameraCoordinates<Source>::Local;
  using Stage = CouplingStage<Shape>;
  constexpr int F = Shape::kF;
  __shared__ Stage stages[Stage::kWarps];
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int64_t task = int64_t{blockIdx.x} * Stage::kWarps + warp;
  const CouplingIndexView& couplings = p.couplings;
  if (task >= couplings.num_chunks) {
    return;  // The whole warp leaves; no barrier of the block follows.
  }
  const int64_t block = couplings.chunk[task].block;
  const int64_t begin = couplings.coupling_begin[block];
  if (couplings.chunk[task].begin != begin) {
    return;  // As above.
  }
  const int64_t num_chunks =
      CeilDivide(couplings.coupling_begin[block + 1] - begin, kCouplingChunk);
  Stage* const stage = &stages[warp];
  for (int q = static_cast<int>(threadIdx.x) % kWarpSize; q < F * F;
       q += kWarpSize) {
    double sum = 0.0;
    for (int64_t c = task; c < task + num_chunks; ++c) {
      sum += partial[F * F * c + q];
    }
    stage->values[q] = sum;
  }
  __syncwarp();  // The sums are read by other lanes.
  StoreBlock(p, block, couplings.row[block], couplings.column[block], stage);
}

template <typename Source, BlockLayout kLayout>
Status Run(const SchurComplementParams<Source, kLayout>& params,
           CudaMachine* machine) {
  using Shape = typename Source::Shape;
  using Stage = CouplingStage<typename CameraCoordinates<Source>::Local>;
  using Scratch = internal::CouplingScratch<Source>;
  const ObservationIndexView& index = params.index;
  const CouplingIndexView& couplings = params.couplings;
  const int64_t n = params.unknowns.num_unknowns;
  if (params.scratch == nullptr &&
      ScratchBytes<Source>(index.num_observations, couplings.num_chunks) > 0) {
    return Status(StatusCode::kInvalidArgument,
                  "The Schur complement needs ScratchBytes of scratch.");
  }
  if (params.target.row_begin == nullptr) {
    if (params.target.stride < n) {
      return Status(StatusCode::kInvalidArgument,
                    "A dense Schur complement of " + std::to_string(n) +
                        " unknowns needs columns of as many values, not " +
                        std::to_string(params.target.stride) + ".");
    }
    CERES_EXT_RETURN_IF_ERROR(
        machine->SetZero(params.target.stride * n, params.target.values));
  }
  const void* records = nullptr;
  if constexpr (IsRecomputed<Source>::value) {
    auto* const points =
        reinterpret_cast<CouplingPoint*>(index.cuda_workspace->point_records);
    CERES_EXT_RETURN_IF_ERROR(
        Launch("RecordCouplingPoints",
               RecordCouplingPointsKernel<Source, kLayout>,
               CeilDivide(index.num_points, kPointBlock),
               kPointBlock,
               0,
               machine->stream(),
               params,
               points));
    records = points;
  } else {
    auto* const observations =
        reinterpret_cast<CouplingRecord<typename Source::Value, Shape>*>(
            params.scratch);
    CERES_EXT_RETURN_IF_ERROR(
        Launch("RecordObservations",
               RecordObservationsKernel<Source, kLayout>,
               CeilDivide(index.num_observations, kRecordBlock),
               kRecordBlock,
               0,
               machine->stream(),
               params,
               observations));
    records = observations;
  }
  double* const partial = reinterpret_cast<double*>(
      params.scratch + Scratch::kRecord * index.num_observations);
  CERES_EXT_RETURN_IF_ERROR(
      Launch("CouplingBlocks",
             CouplingBlocksKernel<false, Source, kLayout>,
             CeilDivide(couplings.num_blocks, Stage::kWarps),
             kWarpSize * Stage::kWarps,
             0,
             machine->stream(),
             params,
             records,
             partial));
  CERES_EXT_RETURN_IF_ERROR(
      Launch("CouplingChunks",
             CouplingBlocksKernel<true, Source, kLayout>,
             CeilDivide(couplings.num_chunks, Stage::kWarps),
             kWarpSize * Stage::kWarps,
             0,
             machine->stream(),
             params,
             records,
             partial));
  return Launch("FinishLongBlocks",
                FinishLongBlocksKernel<Source, kLayout>,
                CeilDivide(couplings.num_chunks, Stage::kWarps),
                kWarpSize * Stage::kWarps,
                0,
                machine->stream(),
                params,
                static_cast<const double*>(partial));
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_CUDA_SCHUR_COMPLEMENT_IMPL_CUH_
