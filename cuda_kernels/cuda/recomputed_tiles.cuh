// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Operations on tiles (TileMode, cuda/camera_sums.cuh) with the Jacobian
// recomputed from camera and point: nothing per observation is read but 4 B of
// slot and, where there is one, its row scale. Included by .cu.cc files only.
#ifndef CERES_EXT_CUDA_KERNELS_CUDA_RECOMPUTED_TILES_CUH_
#define CERES_EXT_CUDA_KERNELS_CUDA_RECOMPUTED_TILES_CUH_

#include <algorithm>
#include <cstdint>
#include <limits>

#include "cuda_kernels/base/term_sum.h"
#include "cuda_kernels/cuda/camera_sums.cuh"
#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/model/bal_model.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/structure/cuda_workspace.h"
#include "cuda_kernels/structure/tile_index.h"

namespace ceres_ext::kernels {

// Threads per block and blocks per multiprocessor that registers are limited
// for. Measurement: docs/measurements/gpu.md.
template <typename T>
inline constexpr int kRecomputedBlock = sizeof(T) == sizeof(double) ? 192 : 128;
template <typename T>
inline constexpr int kRecomputedMinBlocks = sizeof(T) == sizeof(double) ? 3 : 7;

// State and local vector of a camera in one record, so that a thread gets all
// of it by accesses of 16 bytes.
template <typename T>
struct alignas(16) CameraRecord {
  CameraState<T> state;
  T local[kBalLocalCameraDim];  // G p
};
static_assert(sizeof(CameraRecord<double>) == 24 * sizeof(double));
static_assert(sizeof(CameraRecord<float>) == 24 * sizeof(float));

// Cameras and points are *tame* where all their values are below kLargest; an
// observation of a tame camera and point is tame where its depth and, in float,
// its place in the image are within bounds as well. Then every entry of its
// Jacobian is finite, by the powers of 2 below, and ProjectForProducts would
// keep it: tile kernels omit its tests.
//   double, kLargest 2^40, depth 2^-40: |r| < 2^82, |(x, y)| < 2^123,
//   distortion < 2^535, M < 2^616, P [r]x < 2^825, columns of k2 < 2^660.
//   float, kLargest 2^20 (R: 2), depth 2^-20, |x| + |y| < 8: |r| < 2^23,
//   distortion < 2^35, M < 2^77, P [r]x < 2^105.
template <typename T>
struct Tame;
template <>
struct Tame<double> {
  static constexpr double kLargest = 1099511627776.0;
  static constexpr double kSmallestDepth = 1.0 / 1099511627776.0;
  static constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
};
template <>
struct Tame<float> {
  static constexpr float kLargest = 1048576.0f;
  static constexpr float kSmallestDepth = 1.0f / 1048576.0f;
  static constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
};

// As ProjectForProducts. camera: the record, whose t.z is NaN if the camera
// is not tame; x: the point, NaN if it is not tame. state, point: the
// camera and point as they are, read in the other cases only.
template <typename T>
__device__ __forceinline__ void ProjectTame(const CameraState<T>& camera,
                                            const T* x,
                                            const CameraState<T>* state,
                                            const T* point,
                                            Projection<T>* projection) {
  *projection = Project(camera, x);
  const T depth = projection->r[2] + camera.t[2];
  bool tame = fabs(depth) > Tame<T>::kSmallestDepth;
  if constexpr (sizeof(T) == sizeof(float)) {
    constexpr T kDepthNoise = 4 * internal::Limits<T>::kEpsilon;
    tame = tame &&
           fabs(depth) >
               kDepthNoise * (fabs(projection->r[2]) + fabs(camera.t[2])) &&
           fabs(projection->x) + fabs(projection->y) < T(8);
  }
  if (!tame) {
    const CameraState<T> whole = *state;
    const T position[3] = {point[0], point[1], point[2]};
    ProjectForProducts(whole, position, projection);
  }
}

// records_c = (state_c, G_c p_c); p null: zero.
// Mapping: one thread per value of a record. Traffic: under 1 KB per camera.
template <typename T, int C, bool kScaledRows>
__global__ void RecordCamerasKernel(
    RecomputedJacobian<T, C, kScaledRows> source,
    int32_t num_cameras,
    const double* p,
    const PcgScalars* scalars,
    CameraRecord<T>* records) {
  constexpr int kValues = 24;
  constexpr int kState = kValues - kBalLocalCameraDim;
  constexpr int kDepthTranslation = 11;
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t c = i / kValues;
  const int e = static_cast<int>(i % kValues);
  if (c >= num_cameras || PcgHasEnded(scalars)) {
    return;  // No barrier follows.
  }
  T value = T(0);
  if (e < kState) {
    const T* state = reinterpret_cast<const T*>(source.cameras + c);
    value = state[e];
    if (e == kDepthTranslation) {
      bool tame = true;
      for (int j = 0; j < kState; ++j) {
        const T largest =
            sizeof(T) == sizeof(float) && j < 9 ? T(2) : Tame<T>::kLargest;
        tame = tame && fabs(state[j]) < largest;
      }
      value = tame ? value : Tame<T>::kNaN;
    }
  } else if (p != nullptr) {
    const double* map =
        source.camera_maps + (kBalLocalCameraDim * c + e - kState) * C;
    double sum = 0.0;
    for (int j = 0; j < C; ++j) {
      sum += map[j] * p[C * c + j];
    }
    value = static_cast<T>(sum);
  }
  reinterpret_cast<T*>(records)[i] = value;
}

template <typename T, int C, bool kScaledRows>
Status RecordCameras(const ObservationIndexRef& index,
                     const RecomputedJacobian<T, C, kScaledRows>& source,
                     const double* p,
                     const PcgScalars* scalars,
                     CudaMachine* machine,
                     const CameraRecord<T>** records) {
  auto* const to =
      reinterpret_cast<CameraRecord<T>*>(index.cuda_workspace->local_cameras);
  *records = to;
  return Launch("RecordCameras",
                RecordCamerasKernel<T, C, kScaledRows>,
                {CeilDivide(int64_t{index.num_cameras} * 24, 256), 256},
                machine->stream(),
                source,
                index.num_cameras,
                p,
                scalars,
                to);
}

template <typename T>
struct RecomputedTileParams {
  TileIndexRef tiles;
  TileOperands<3> operands;
  const CameraRecord<T>* records = nullptr;
  const CameraState<T>* cameras = nullptr;
  const T* points = nullptr;       // 3 per point
  const T* point_scale = nullptr;  // 3 per point; null: one
  T* partial = nullptr;          // 9 per tile camera; null: cameras not wanted
  const T* row_scale = nullptr;  // one per observation
};

// The first camera of the tile whose segments and those of all cameras after
// it up to segment `end` make one round. Every thread asks.
__device__ __forceinline__ int FirstCameraOfRound(const TileIndexRef& tiles,
                                                  const TileHeader& header,
                                                  int last_camera,
                                                  int end) {
  int low = 0;
  int high = last_camera;
  while (low < high) {
    const int middle = (low + high) / 2;
    const int first = tiles.tile_camera_segment[header.camera_begin + middle] -
                      header.segment_begin;
    if (end - first <= tiles.round_segments) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

template <bool kWithLocal, typename T>
__device__ __forceinline__ void LoadRecord(const CameraRecord<T>* from,
                                           CameraRecord<T>* to) {
  struct alignas(16) Chunk {
    T values[16 / sizeof(T)];
  };
  constexpr int kNumValues = kWithLocal ? 24 : 15;
  constexpr int kChunks = (kNumValues * static_cast<int>(sizeof(T)) + 15) / 16;
  const Chunk* chunks = reinterpret_cast<const Chunk*>(from);
  T values[24];
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const Chunk chunk = chunks[i];
#pragma unroll
    for (int j = 0; j < static_cast<int>(16 / sizeof(T)); ++j) {
      values[i * static_cast<int>(16 / sizeof(T)) + j] = chunk.values[j];
    }
  }
#pragma unroll
  for (int i = 0; i < 9; ++i) {
    to->state.R[i] = values[i];
    if constexpr (kWithLocal) {
      to->local[i] = values[15 + i];
    }
  }
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    to->state.t[i] = values[9 + i];
  }
  to->state.f = values[12];
  to->state.k1 = values[13];
  to->state.k2 = values[14];
}

// The mode of y_k in the sums over cameras.
CERES_EXT_HOST_DEVICE constexpr int CameraHalf(int mode) {
  return (mode & kEliminatedPart) != 0 ? mode & ~kUseCamera : mode;
}

// y_k of TileMode, with the motion u of the point where kWithPoint; with
// kScaledRows s y_k of rows scaled by s, which J' takes that isn't scaled.
template <int kMode, bool kWithPoint, bool kScaledRows, typename T>
__device__ __forceinline__ void Forward(const CameraRecord<T>& camera,
                                        const Projection<T>& projection,
                                        const double* b,
                                        const T* u,
                                        T s,
                                        T* y) {
  static_assert(!kWithPoint || (kMode & kUseB) == 0,
                "b is scaled once, what else y_k is of twice");
  y[0] = T(0);
  y[1] = T(0);
  if constexpr ((kMode & kUseCamera) != 0) {
    CameraMultiply(camera.state, projection, camera.local, y);
    if constexpr (kScaledRows && (kMode & kUseB) != 0) {
      y[0] *= s;
      y[1] *= s;
    }
  }
  if constexpr ((kMode & kUseB) != 0) {
    constexpr T kSign = (kMode & kUseCamera) != 0 ? T(-1) : T(1);
    y[0] = static_cast<T>(b[0]) + kSign * y[0];
    y[1] = static_cast<T>(b[1]) + kSign * y[1];
  }
  if constexpr (kWithPoint) {
    T yp[2];
    PointMultiply(camera.state, projection, u, yp);
    y[0] += yp[0];
    y[1] += yp[1];
  }
  if constexpr (kScaledRows) {
    const T factor = (kMode & kUseB) != 0 ? s : s * s;
    y[0] *= factor;
    y[1] *= factor;
  }
}

// Two values, moved by one access.
template <typename T>
struct alignas(2 * sizeof(T)) Pair {
  T a;
  T b;
};

// True if the camera half finds y_k in shared memory, where it costs more to
// compute than to keep.
CERES_EXT_HOST_DEVICE constexpr bool KeepsProducts(int mode) {
  return (CameraHalf(mode) & kUseCamera) != 0 && (mode & kCameraOut) != 0;
}

// s_k; 1 where kScaledRows is false.
template <bool kScaledRows, typename T>
__device__ __forceinline__ T RowScale(const RecomputedTileParams<T>& p,
                                      int64_t k) {
  if constexpr (kScaledRows) {
    return p.row_scale[k];
  }
  return T(1);
}

// fn(c, camera, projection, first slot, end of the slots) of the thread's tile
// cameras of a long tile, whose point is at x.
template <typename T, typename Function>
__device__ __forceinline__ void ForEachCameraOfLongTile(
    const RecomputedTileParams<T>& p,
    const TileHeader& header,
    const T* x,
    const Function& fn) {
  const TileIndexRef& tiles = p.tiles;
  const int32_t camera_end = header.camera_begin + header.num_cameras;
  for (int32_t c = header.camera_begin + static_cast<int32_t>(threadIdx.x);
       c < camera_end;
       c += kRecomputedBlock<T>) {
    CameraRecord<T> camera;
    LoadRecord<true>(p.records + tiles.tile_camera_id[c], &camera);
    const int32_t end =
        tiles.segment[tiles.tile_camera_segment[c + 1]].slot_begin;
    Projection<T> projection;
    ProjectTame(camera.state,
                x,
                p.cameras + tiles.tile_camera_id[c],
                p.points + int64_t{3} * header.point_begin,
                &projection);
    fn(c,
       camera,
       projection,
       tiles.segment[tiles.tile_camera_segment[c]].slot_begin,
       end);
  }
}

// s_p of a long tile, summed by the block, and what follows from it; with
// kEliminate thread 0 writes the motion of the point. given: x_p, scaled.
template <int kMode, bool kScaledRows, typename T>
__device__ __forceinline__ void SumPointOfLongTile(
    const RecomputedTileParams<T>& p,
    const TileHeader& header,
    const T* x,
    const T* scale,
    const T* given,
    double* motion) {
  double sum[3] = {0.0, 0.0, 0.0};
  ForEachCameraOfLongTile(
      p,
      header,
      x,
      [&](int32_t,
          const CameraRecord<T>& camera,
          const Projection<T>& projection,
          int32_t begin,
          int32_t end) {
        for (int32_t k = begin; k < end; ++k) {
          T y[2];
          Forward<kMode, (kMode & kUsePoint) != 0, kScaledRows>(
              camera,
              projection,
              p.operands.b + int64_t{2} * k,
              given,
              RowScale<kScaledRows>(p, k),
              y);
          PointTransposeMultiplyAndAccumulate(camera.state, projection, y, sum);
        }
      });
  for (int i = 0; i < 3; ++i) {
    sum[i] =
        BlockSum<kRecomputedBlock<T>>(sum[i]) * static_cast<double>(scale[i]);
  }
  if (threadIdx.x == 0) {
    const int64_t point = header.point_begin;
    double out[3];
    double v[6] = {};
    LoadInverse<kMode>(p.operands, point, v);
    FinishPoint<kMode>(p.operands, point, v, 1, sum, out);
    if constexpr ((kMode & kEliminate) != 0) {
      for (int i = 0; i < 3; ++i) {
        motion[i] = out[i];
      }
    }
  }
}

// Row c of partial = sum of Jc' (y_k + Jp x_p) over tile camera c of a long
// tile. given: x_p, scaled.
template <int kMode, bool kScaledRows, typename T>
__device__ __forceinline__ void SumCamerasOfLongTile(
    const RecomputedTileParams<T>& p,
    const TileHeader& header,
    const T* x,
    const T* given) {
  ForEachCameraOfLongTile(
      p,
      header,
      x,
      [&](int32_t c,
          const CameraRecord<T>& camera,
          const Projection<T>& projection,
          int32_t begin,
          int32_t end) {
        double local[9] = {};
        for (int32_t k = begin; k < end; ++k) {
          T y[2];
          Forward<CameraHalf(kMode),
                  (kMode & (kUsePoint | kEliminate)) != 0,
                  kScaledRows>(camera,
                               projection,
                               p.operands.b + int64_t{2} * k,
                               given,
                               RowScale<kScaledRows>(p, k),
                               y);
          CameraTransposeMultiplyAndAccumulate(
              camera.state, projection, y, local);
        }
        for (int i = 0; i < 9; ++i) {
          p.partial[int64_t{9} * c + i] = static_cast<T>(local[i]);
        }
      });
}

// A long tile (tile_index.h): one point, as many observations as it has.
// Mapping: a thread owns tile cameras; the block sums over the point.
template <typename T, int kMode, bool kScaledRows>
__device__ void RecomputedLongTile(const RecomputedTileParams<T>& p,
                                   const TileHeader& header) {
  __shared__ double motion[3];
  const int64_t point = header.point_begin;
  T x[3];
  T scale[3];
  for (int i = 0; i < 3; ++i) {
    x[i] = p.points[3 * point + i];
    scale[i] = p.point_scale == nullptr ? T(1) : p.point_scale[3 * point + i];
  }
  T given[3] = {T(0), T(0), T(0)};
  if constexpr ((kMode & kUsePoint) != 0) {
    for (int i = 0; i < 3; ++i) {
      given[i] = static_cast<T>(p.operands.point_x[3 * point + i]) * scale[i];
    }
  }
  SumPointOfLongTile<kMode, kScaledRows>(p, header, x, scale, given, motion);
  if constexpr ((kMode & kCameraOut) != 0) {
    if (p.partial == nullptr) {
      return;  // The whole block leaves.
    }
    __syncthreads();  // The motion is the work of thread 0.
    if constexpr ((kMode & kEliminate) != 0) {
      for (int i = 0; i < 3; ++i) {
        given[i] = static_cast<T>(motion[i]) * scale[i];
      }
    }
    SumCamerasOfLongTile<kMode, kScaledRows>(p, header, x, given);
  }
}

// Row c of `rows` = sum of the 9-vectors of the segments of tile camera c,
// those from first[c] up to first[c + 1], of which first_segment = first[0] is
// at `vectors`. A warp sums 32 cameras. No other warp reads their vectors, so
// it puts the sums in that place before it writes them out side by side. Order:
// that of the segments. Every thread of the block calls it; it begins with a
// barrier.
template <typename T>
__device__ __forceinline__ void SumSegments(const int32_t* first,
                                            int num_cameras,
                                            int first_segment,
                                            T* vectors,
                                            T* rows) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  int c = static_cast<int>(threadIdx.x);
  int begin = 0;
  int end = 0;
  const auto load_range = [&] {
    if (c < num_cameras) {
      begin = first[c] - first_segment;
      end = first[c + 1] - first_segment;
    }
  };
  load_range();     // Not to wait for it after the barrier.
  __syncthreads();  // A camera's segments belong to several threads.
  for (; c - lane < num_cameras; c += kRecomputedBlock<T>) {
    if (c != static_cast<int>(threadIdx.x)) {
      load_range();
    }
    const bool has_camera = c < num_cameras;
    TermSum<T> sum[9];
    if (has_camera) {
      for (int k = begin; k < end; ++k) {
#pragma unroll
        for (int i = 0; i < 9; ++i) {
          sum[i].Add(vectors[9 * k + i]);
        }
      }
    }
    T* const sums = vectors + 9 * __shfl_sync(kFullWarp, begin, 0);
    __syncwarp();  // All lanes have read.
    if (has_camera) {
#pragma unroll
      for (int i = 0; i < 9; ++i) {
        sums[9 * lane + i] = sum[i].rounded();
      }
    }
    __syncwarp();  // All lanes have written.
    const int left = num_cameras - (c - lane);
    const int num_values = 9 * (left < kWarpSize ? left : kWarpSize);
    for (int i = lane; i < num_values; i += kWarpSize) {
      rows[int64_t{9} * (c - lane) + i] = sums[i];
    }
  }
}

// The data of a tile that a block keeps in shared memory.
template <typename T>
struct RecomputedTileMemory {
  Pair<T>* products;  // y of the slots, with KeepsProducts
  T* positions;       // 3 per point; NaN: not tame
  T* motions;         // 3 per point
  T* vectors;         // 3 per observation, then 9 per segment of a round
};

// A segment in the registers of its thread. `loaded`, its number in the tile or
// -1 for none, is not a member: the products with S would spill 12 B more.
template <typename T>
struct LoadedSegment {
  CameraRecord<T> camera;
  TileTask task;
};

// Loads segment `number` of the tile, without p of its camera unless
// kWithLocal.
template <bool kWithLocal, typename T>
__device__ __forceinline__ void LoadSegment(const RecomputedTileParams<T>& p,
                                            const TileHeader& header,
                                            int number,
                                            LoadedSegment<T>* segment,
                                            int* loaded) {
  segment->task = p.tiles.task[header.segment_begin + number];
  LoadRecord<kWithLocal>(p.records + segment->task.camera, &segment->camera);
  *loaded = number;
}

// Brings the points to shared memory, and asks for their Vi, needed a barrier
// later: a line of 16 points of each element.
template <int kMode, typename T>
__device__ __forceinline__ void LoadPoints(
    const RecomputedTileParams<T>& p,
    const TileHeader& header,
    const RecomputedTileMemory<T>& memory) {
  const int thread = static_cast<int>(threadIdx.x);
  const int32_t point_begin = header.point_begin;
  const int num_points = header.num_points;
  if constexpr ((kMode & kEliminate) != 0) {
    for (int i = thread; i < 6 * ((num_points + 15) / 16);
         i += kRecomputedBlock<T>) {
      PrefetchToL2(&p.operands.v_inverse(point_begin + i / 6 * 16, i % 6));
    }
  }
  for (int i = thread; i < 3 * num_points; i += kRecomputedBlock<T>) {
    const T value = p.points[int64_t{3} * point_begin + i];
    memory.positions[i] =
        fabs(value) < Tame<T>::kLargest ? value : Tame<T>::kNaN;
    if constexpr ((kMode & kUsePoint) != 0) {
      const int64_t at = int64_t{3} * point_begin + i;
      const T scale = p.point_scale == nullptr ? T(1) : p.point_scale[at];
      memory.motions[i] = static_cast<T>(p.operands.point_x[at]) * scale;
    }
  }
}

// fn(slot, point, observation, s_k, projection) of the slots of a segment, in
// their order. A slot is asked for while the one before is at work.
template <bool kScaledRows, typename T, typename Function>
__device__ __forceinline__ void ForEachSlot(const RecomputedTileParams<T>& p,
                                            const TileHeader& header,
                                            const T* positions,
                                            const LoadedSegment<T>& segment,
                                            const Function& fn) {
  const TileTask& task = segment.task;
  uint32_t next = p.tiles.slot[task.slot_begin];
  for (int32_t slot = task.slot_begin; slot < task.slot_end; ++slot) {
    const uint32_t packed = next;
    if (slot + 1 < task.slot_end) {
      next = p.tiles.slot[slot + 1];
    }
    const int point = static_cast<int>(packed >> 16);
    const int observation = static_cast<int>(packed & 0xffff);
    const T row_scale = RowScale<kScaledRows>(
        p, int64_t{header.observation_begin} + observation);
    Projection<T> projection;
    ProjectTame(segment.camera.state,
                positions + 3 * point,
                p.cameras + task.camera,
                p.points + int64_t{3} * (header.point_begin + point),
                &projection);
    fn(slot, point, observation, row_scale, projection);
  }
}

// y_k, then Jp' y_k at the observation's place in point order.
template <int kMode, bool kScaledRows, typename T>
__device__ __forceinline__ void MultiplyToPoints(
    const RecomputedTileParams<T>& p,
    const TileHeader& header,
    const RecomputedTileMemory<T>& memory,
    LoadedSegment<T>* segment,
    int* loaded) {
  const int64_t begin = header.observation_begin;
  for (int s = static_cast<int>(threadIdx.x); s < header.num_segments;
       s += kRecomputedBlock<T>) {
    if (s != *loaded) {
      LoadSegment<true>(p, header, s, segment, loaded);
    }
    ForEachSlot<kScaledRows>(
        p,
        header,
        memory.positions,
        *segment,
        [&](int32_t slot,
            int point,
            int observation,
            T row_scale,
            const Projection<T>& projection) {
          T y[2];
          Forward<kMode, (kMode & kUsePoint) != 0, kScaledRows>(
              segment->camera,
              projection,
              p.operands.b + 2 * (begin + observation),
              memory.motions + 3 * point,
              row_scale,
              y);
          if constexpr (KeepsProducts(kMode)) {
            memory.products[slot - static_cast<int32_t>(begin)] =
                Pair<T>{y[0], y[1]};
          }
          T u[3] = {T(0), T(0), T(0)};
          PointTransposeMultiplyAndAccumulate(
              segment->camera.state, projection, y, u);
#pragma unroll
          for (int i = 0; i < 3; ++i) {
            memory.vectors[3 * observation + i] = u[i];
          }
        });
  }
}

// The point's half of point i of the tile, whose 3-vectors have this sum.
template <int kMode, typename T>
__device__ __forceinline__ void FinishPointOfTile(
    const RecomputedTileParams<T>& p,
    const TileHeader& header,
    int i,
    const double* v,
    double* sum,
    T* motions) {
  const int64_t point = int64_t{header.point_begin} + i;
  double scale[3] = {1.0, 1.0, 1.0};
  if (p.point_scale != nullptr) {
#pragma unroll
    for (int j = 0; j < 3; ++j) {
      scale[j] = static_cast<double>(p.point_scale[3 * point + j]);
      sum[j] *= scale[j];
    }
  }
  double x[3];
  FinishPoint<kMode>(p.operands, point, v, 1, sum, x);
  if constexpr ((kMode & kEliminate) != 0) {
#pragma unroll
    for (int j = 0; j < 3; ++j) {
      motions[3 * i + j] = static_cast<T>(x[j] * scale[j]);
    }
  }
}

// s_p of the thread's points and what follows from it. Every thread of the
// block calls it; it has a barrier.
template <int kMode, typename T>
__device__ __forceinline__ void SumPoints(
    const RecomputedTileParams<T>& p,
    const TileHeader& header,
    const RecomputedTileMemory<T>& memory) {
  const int thread = static_cast<int>(threadIdx.x);
  const int32_t point_begin = header.point_begin;
  const int64_t begin = header.observation_begin;
  // A point's observations, asked for before the barrier, and those of the
  // next point while one is summed.
  int next_begin = 0;
  int next_end = 0;
  const auto load_range = [&](int i) {
    if (i < header.num_points) {
      next_begin = static_cast<int>(
          p.operands.point_begin[int64_t{point_begin} + i] - begin);
      next_end = static_cast<int>(
          p.operands.point_begin[int64_t{point_begin} + i + 1] - begin);
    }
  };
  load_range(thread);
  __syncthreads();  // A point's observations belong to several threads.

  for (int i = thread; i < header.num_points; i += kRecomputedBlock<T>) {
    const int last = next_end;
    int k = next_begin;
    load_range(i + kRecomputedBlock<T>);
    double v[6] = {};
    LoadInverse<kMode>(p.operands, int64_t{point_begin} + i, v);
    TermSum<T> sums[3];
    for (; k < last; ++k) {
#pragma unroll
      for (int j = 0; j < 3; ++j) {
        sums[j].Add(memory.vectors[3 * k + j]);
      }
    }
    double sum[3] = {sums[0].value(), sums[1].value(), sums[2].value()};
    FinishPointOfTile<kMode>(p, header, i, v, sum, memory.motions);
  }
}

// y_k + Jp x_p, or Jp x_p, of a slot.
template <int kMode, bool kScaledRows, typename T>
__device__ __forceinline__ void ForwardToCamera(
    const RecomputedTileParams<T>& p,
    const RecomputedTileMemory<T>& memory,
    const CameraRecord<T>& camera,
    const Projection<T>& projection,
    int slot,
    int64_t k,
    int point,
    T row_scale,
    T* y) {
  if constexpr (KeepsProducts(kMode)) {
    const Pair<T> product = memory.products[slot];
    y[0] = product.a;
    y[1] = product.b;
    if constexpr ((kMode & kEliminate) != 0) {
      T moved[2];
      PointMultiply(
          camera.state, projection, memory.motions + 3 * point, moved);
      if constexpr (kScaledRows) {
        moved[0] *= row_scale * row_scale;
        moved[1] *= row_scale * row_scale;
      }
      y[0] += moved[0];
      y[1] += moved[1];
    }
  } else {
    Forward<CameraHalf(kMode),
            (kMode & (kUsePoint | kEliminate)) != 0,
            kScaledRows>(camera,
                         projection,
                         p.operands.b + 2 * k,
                         memory.motions + 3 * point,
                         row_scale,
                         y);
  }
}

// Jc' (y_k + Jp x_p) of the thread's segments in a round, last segment first:
// its camera is still there.
template <int kMode, bool kScaledRows, typename T>
__device__ __forceinline__ void MultiplyToCameras(
    const RecomputedTileParams<T>& p,
    const TileHeader& header,
    const RecomputedTileMemory<T>& memory,
    int round_begin,
    int round_end,
    LoadedSegment<T>* segment,
    int* loaded) {
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t begin = header.observation_begin;
  // The last of the thread's segments below the end, if there is one.
  int s = round_end - 1 - thread;
  s = s < 0 ? -1 : thread + s / kRecomputedBlock<T> * kRecomputedBlock<T>;
  for (; s >= round_begin; s -= kRecomputedBlock<T>) {
    if (s != *loaded) {
      LoadSegment<!KeepsProducts(kMode)>(p, header, s, segment, loaded);
    }
    T local[9] = {};
    ForEachSlot<kScaledRows>(p,
                             header,
                             memory.positions,
                             *segment,
                             [&](int32_t slot,
                                 int point,
                                 int observation,
                                 T row_scale,
                                 const Projection<T>& projection) {
                               T y[2];
                               ForwardToCamera<kMode, kScaledRows>(
                                   p,
                                   memory,
                                   segment->camera,
                                   projection,
                                   slot - static_cast<int32_t>(begin),
                                   begin + observation,
                                   point,
                                   row_scale,
                                   y);
                               CameraTransposeMultiplyAndAccumulate(
                                   segment->camera.state, projection, y, local);
                             });
#pragma unroll
    for (int i = 0; i < 9; ++i) {
      memory.vectors[9 * (segment->task.segment - round_begin) + i] = local[i];
    }
  }
}

// Row c of partial = sum of Jc' (y_k + Jp x_p) over tile camera c, in rounds of
// the segments that there is room for, last round first.
template <int kMode, bool kScaledRows, typename T>
__device__ __forceinline__ void SumCameras(
    const RecomputedTileParams<T>& p,
    const TileHeader& header,
    const RecomputedTileMemory<T>& memory,
    LoadedSegment<T>* segment,
    int* loaded) {
  const TileIndexRef& tiles = p.tiles;
  int round_end = header.num_segments;
  int round_camera_end = header.num_cameras;
  while (round_camera_end > 0) {
    int round_begin = 0;
    int round_camera = 0;
    if (round_end > tiles.round_segments) {
      round_camera =
          FirstCameraOfRound(tiles, header, round_camera_end - 1, round_end);
      round_begin =
          tiles.tile_camera_segment[header.camera_begin + round_camera] -
          header.segment_begin;
    }
    MultiplyToCameras<kMode, kScaledRows>(
        p, header, memory, round_begin, round_end, segment, loaded);
    SumSegments(tiles.tile_camera_segment + header.camera_begin + round_camera,
                round_camera_end - round_camera,
                header.segment_begin + round_begin,
                memory.vectors,
                p.partial + 9 * (int64_t{header.camera_begin} + round_camera));
    if (round_camera == 0) {
      return;  // The whole block leaves.
    }
    __syncthreads();  // Vectors are overwritten.
    *loaded = -1;     // Not worth its registers.
    round_end = round_begin;
    round_camera_end = round_camera;
  }
}

// Inputs, outputs: RecomputedTileParams; partial gets J_c' y in local
// coordinates, one row per tile camera.
// Mapping: one block per tile, a thread owns a segment and keeps its camera in
// registers; 3-vectors per observation, then, in rounds, 9-vectors per segment
// meet in shared memory and are summed by the owner of a point or of a tile
// camera.
// Order: over a point's observations in their order; over a tile camera's
// segments in their order. No atomics.
// Traffic: per observation 4 B and, with kScaledRows, 1 T twice; per segment 16
// B and a camera record (L2); per point 3 T of position, 48 B of Vi; per tile
// camera 9 T out.
template <typename T, int kMode, bool kScaledRows>
__global__ void __launch_bounds__(kRecomputedBlock<T>, kRecomputedMinBlocks<T>)
    RecomputedTileKernel(RecomputedTileParams<T> p) {
  constexpr bool kKeepProducts = KeepsProducts(kMode);
  CERES_EXT_DYNAMIC_SHARED(shared);
  if (PcgHasEnded(p.operands.scalars)) {
    return;  // The whole block leaves.
  }
  const TileIndexRef& tiles = p.tiles;
  const int thread = static_cast<int>(threadIdx.x);
  const TileHeader header = tiles.header[static_cast<int>(blockIdx.x)];
  if (header.num_observations > tiles.max_observations) {
    RecomputedLongTile<T, kMode, kScaledRows>(p, header);
    return;  // The whole block leaves.
  }
  RecomputedTileMemory<T> memory;
  memory.products = reinterpret_cast<Pair<T>*>(shared);
  memory.positions = reinterpret_cast<T*>(
      memory.products + (kKeepProducts ? tiles.max_observations : 0));
  memory.motions = memory.positions + 3 * tiles.max_points;
  memory.vectors = memory.motions + 3 * tiles.max_points;
  LoadedSegment<T> segment;
  segment.task = TileTask{};
  int loaded = -1;
  // Before the barrier, so that the wait for the camera overlaps the points'.
  if (thread < header.num_segments) {
    LoadSegment<true>(p, header, thread, &segment, &loaded);
  }
  LoadPoints<kMode>(p, header, memory);
  __syncthreads();  // Points are read by the threads of all their cameras.
  if (kKeepProducts || (kMode & kEliminate) != 0 ||
      p.operands.point_out != nullptr) {
    MultiplyToPoints<kMode, kScaledRows>(p, header, memory, &segment, &loaded);
    SumPoints<kMode>(p, header, memory);
  }
  if constexpr ((kMode & kCameraOut) != 0) {
    if (p.partial == nullptr) {
      return;  // The whole block leaves.
    }
    // Motions go to the threads of all cameras, and vectors are overwritten.
    __syncthreads();
    SumCameras<kMode, kScaledRows>(p, header, memory, &segment, &loaded);
  }
}

// Queues records, tiles and, with kCameraOut, the sums over cameras.
template <int kMode, typename T, int C, bool kScaledRows>
Status TileOperation(const ObservationIndexRef& index,
                     const RecomputedJacobian<T, C, kScaledRows>& source,
                     const double* camera_p,
                     const TileOperands<3>& operands,
                     const CameraSumTerms& terms,
                     CudaMachine* machine) {
  const CudaWorkspaceRef& workspace = *index.cuda_workspace;
  const TileIndexRef& tiles = workspace.recomputed_tiles;
  if (tiles.header == nullptr && index.num_points > 0) {
    return Status(StatusCode::kInvalidArgument,
                  "The workspace has no tiles for recomputed Jacobians.");
  }
  RecomputedTileParams<T> params;
  CERES_EXT_RETURN_IF_ERROR(RecordCameras(
      index, source, camera_p, operands.scalars, machine, &params.records));
  params.tiles = tiles;
  params.operands = operands;
  params.operands.point_begin = index.point_begin;
  params.cameras = source.cameras;
  params.points = source.points;
  params.point_scale = source.point_scale;
  params.row_scale = source.row_scale;
  const bool camera_out = (kMode & kCameraOut) != 0 && terms.out != nullptr;
  params.partial =
      camera_out ? reinterpret_cast<T*>(workspace.partial) : nullptr;
  const int64_t num_vectors = std::max(
      int64_t{3} * tiles.max_observations,
      camera_out
          ? int64_t{9} * std::min(tiles.max_tile_segments, tiles.round_segments)
          : 0);
  CERES_EXT_RETURN_IF_ERROR(
      Launch("RecomputedTile",
             RecomputedTileKernel<T, kMode, kScaledRows>,
             {tiles.num_tiles,
              kRecomputedBlock<T>,
              static_cast<int64_t>(sizeof(T)) *
                  ((KeepsProducts(kMode) ? 2 * tiles.max_observations : 0) +
                   6 * tiles.max_points + num_vectors)},
             machine->stream(),
             params));
  if (!camera_out) {
    return Status();
  }
  return SumTileCameras(source,
                        index.num_cameras,
                        tiles,
                        static_cast<const T*>(params.partial),
                        terms,
                        operands.scalars,
                        machine);
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_CUDA_RECOMPUTED_TILES_CUH_
