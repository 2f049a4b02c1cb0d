// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Operations on tiles (TileMode, cuda/camera_sums.cuh) with blocks read from
// memory. Included by .cu.cc files only.
#ifndef CERES_EXT_CUDA_KERNELS_CUDA_STORED_TILES_CUH_
#define CERES_EXT_CUDA_KERNELS_CUDA_STORED_TILES_CUH_

#include <cstdint>

#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/base/term_sum.h"
#include "cuda_kernels/cuda/camera_sums.cuh"
#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/structure/cuda_workspace.h"
#include "cuda_kernels/structure/tile_index.h"

namespace ceres_ext::kernels {

inline constexpr int kStoredBlock = 256;
// Thread blocks per multiprocessor that registers are limited for. Three
// instead of two in double: 5 to 20 % off all operations on tiles, although the
// products with S and J'J spill 100 to 150 B (docs/measurements/gpu.md). Above
// 10 columns, where the blocks of a row alone are 72 registers and more, two
// and three.
template <typename T, int F>
inline constexpr int kStoredMinBlocks = (sizeof(T) == sizeof(double) ? 3 : 4) -
                                        (F > 10 ? 1 : 0);

// Values from one vector of F in shared memory to the next: odd, so that
// threads of a warp find theirs in different banks.
template <int F>
inline constexpr int kSharedStride = F | 1;

// One observation in the registers of its thread. A type of these has
//   Source                    what it is read from
//   kMinBlocks                thread blocks per multiprocessor that registers
//                             are limited for
//   Operands, Terms           TileOperands and CameraSumTerms, or one's own
//   Load(source, k)           reads it, once
//   Forward<mode>(p, u, b)    takes y_k's parts, p = p_c and u = x_p given
//   ToPoint(s)                s += what the observation gives its point
//   ToCamera<mode>(u, q)      q += what it gives its camera, u = motion
template <typename SourceIn>
struct JacobianBlocks {
  using Source = SourceIn;
  using Value = typename Source::Value;
  using T = Value;
  using Shape = typename Source::Shape;
  static constexpr BlockLayout kLayout = Source::kLayout;
  static constexpr int R = Shape::kNumResiduals;
  static constexpr int E = Shape::kE;
  static constexpr int F = Shape::kF;
  static constexpr int kMinBlocks = kStoredMinBlocks<T, F>;
  using Operands = TileOperands<E, kLayout>;
  using Terms = CameraSumTerms;

  T jc[Shape::kFSize];
  T jp[Shape::kESize];
  T y[R];

  __device__ __forceinline__ void Load(const Source& source, int64_t k) {
    // Streamed: they are not read again before they have left the cache.
#pragma unroll
    for (int i = 0; i < Shape::kFSize; ++i) {
      jc[i] = __ldcs(&source.camera_blocks(k, i));
    }
#pragma unroll
    for (int i = 0; i < Shape::kESize; ++i) {
      jp[i] = __ldcs(&source.point_blocks(k, i));
    }
  }

  template <int kMode>
  __device__ __forceinline__ void Forward(const T* p,
                                          const T* u,
                                          const double* b) {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      y[r] = T(0);
    }
    if constexpr ((kMode & kUseCamera) != 0) {
#pragma unroll
      for (int i = 0; i < F; ++i) {
#pragma unroll
        for (int r = 0; r < R; ++r) {
          y[r] += jc[F * r + i] * p[i];
        }
      }
    }
    if constexpr ((kMode & kUseB) != 0) {
      constexpr T kSign = (kMode & kUseCamera) != 0 ? T(-1) : T(1);
#pragma unroll
      for (int r = 0; r < R; ++r) {
        y[r] = static_cast<T>(b[r]) + kSign * y[r];
      }
    }
    if constexpr ((kMode & kUsePoint) != 0) {
      MatrixMultiplyAndAccumulate<R, E>(jp, u, y);
    }
  }

  template <typename A>
  __device__ __forceinline__ void ToPoint(A* s) const {
#pragma unroll
    for (int i = 0; i < E; ++i) {
      T sum = jp[i] * y[0];
#pragma unroll
      for (int r = 1; r < R; ++r) {
        sum += jp[E * r + i] * y[r];
      }
      s[i] += sum;
    }
  }

  template <int kMode, typename A>
  __device__ __forceinline__ void ToCamera(const T* u, A* q) {
    if constexpr ((kMode & kEliminatedPart) != 0) {
#pragma unroll
      for (int r = 0; r < R; ++r) {
        y[r] = T(0);
      }
    }
    if constexpr ((kMode & kEliminate) != 0) {
      MatrixMultiplyAndAccumulate<R, E>(jp, u, y);
    }
#pragma unroll
    for (int i = 0; i < F; ++i) {
      T sum = jc[i] * y[0];
#pragma unroll
      for (int r = 1; r < R; ++r) {
        sum += jc[F * r + i] * y[r];
      }
      q[i] += sum;
    }
  }
};

// The blocks of a source.
template <typename Source>
struct BlocksOf;
template <typename T, typename Shape, BlockLayout kLayout>
struct BlocksOf<StoredJacobian<T, Shape, kLayout>> {
  using Type = JacobianBlocks<StoredJacobian<T, Shape, kLayout>>;
};

template <typename Blocks>
struct StoredTileParams {
  using T = typename Blocks::Value;
  TileIndexRef tiles;
  const uint32_t* position = nullptr;  // TileIndexRef::position
  const int32_t* point_id = nullptr;
  typename Blocks::Operands operands;
  typename Blocks::Source source;
  const double* camera_p = nullptr;  // F per camera
  T* partial = nullptr;  // F per tile camera; null: cameras not wanted
};

// A long tile (tile_index.h). Mapping: a thread owns tile cameras; the block
// sums over the point. Blocks are read twice.
template <typename Blocks, int kMode>
__device__ void StoredLongTile(const StoredTileParams<Blocks>& p,
                               int64_t point,
                               int32_t camera_begin,
                               int32_t camera_end) {
  using T = typename Blocks::Value;
  using Shape = typename Blocks::Shape;
  constexpr int R = Shape::kNumResiduals;
  constexpr int E = Shape::kE;
  constexpr int C = Shape::kF;
  __shared__ double motion[E];
  const TileIndexRef& tiles = p.tiles;
  T given[E] = {};
  if constexpr ((kMode & kUsePoint) != 0) {
    for (int i = 0; i < E; ++i) {
      given[i] = static_cast<T>(p.operands.point_x[E * point + i]);
    }
  }
  const auto for_each = [&](auto&& fn) {
    for (int32_t c = camera_begin + static_cast<int32_t>(threadIdx.x);
         c < camera_end;
         c += kStoredBlock) {
      T camera_p[C] = {};
      if constexpr ((kMode & kUseCamera) != 0) {
        for (int i = 0; i < C; ++i) {
          camera_p[i] = static_cast<T>(
              p.camera_p[int64_t{C} * tiles.tile_camera_id[c] + i]);
        }
      }
      fn(c,
         camera_p,
         tiles.segment[tiles.tile_camera_segment[c]].slot_begin,
         tiles.segment[tiles.tile_camera_segment[c + 1]].slot_begin);
    }
  };
  double sum[E] = {};
  for_each([&](int32_t, const T* camera_p, int32_t begin, int32_t end) {
    for (int32_t k = begin; k < end; ++k) {
      Blocks blocks;
      blocks.Load(p.source, k);
      blocks.template Forward<kMode>(
          camera_p, given, p.operands.b + int64_t{R} * k);
      blocks.ToPoint(sum);
    }
  });
  for (int i = 0; i < E; ++i) {
    sum[i] = BlockSum<kStoredBlock>(sum[i]);
  }
  if (threadIdx.x == 0) {
    double x[E];
    double v[Shape::kPackedE] = {};
    LoadInverse<kMode>(p.operands, point, v);
    FinishPoint<kMode>(p.operands, point, v, 1, sum, x);
    if constexpr ((kMode & kEliminate) != 0) {
      for (int i = 0; i < E; ++i) {
        motion[i] = x[i];
      }
    }
  }
  if constexpr ((kMode & kCameraOut) != 0) {
    if (p.partial == nullptr) {
      return;  // The whole block leaves.
    }
    __syncthreads();  // The motion is the work of thread 0.
    T moved[E] = {};
    if constexpr ((kMode & kEliminate) != 0) {
      for (int i = 0; i < E; ++i) {
        moved[i] = static_cast<T>(motion[i]);
      }
    }
    for_each([&](int32_t c, const T* camera_p, int32_t begin, int32_t end) {
      double q[C] = {};
      for (int32_t k = begin; k < end; ++k) {
        Blocks blocks;
        blocks.Load(p.source, k);
        blocks.template Forward<kMode>(
            camera_p, given, p.operands.b + int64_t{R} * k);
        blocks.template ToCamera<kMode>(moved, q);
      }
      for (int i = 0; i < C; ++i) {
        p.partial[int64_t{C} * c + i] = static_cast<T>(q[i]);
      }
    });
  }
}

// The memory that the threads of a tile share.
template <typename T>
struct StoredTileMemory {
  double* v_inverse;  // packed
  T* motions;         // E per point
  T* camera_vectors;  // F per camera
  int* point_first;
  int* camera_first;
};

// Fills it with all that later phases read of main memory.
template <int kMode, typename Blocks>
__device__ __forceinline__ void LoadTile(
    const StoredTileParams<Blocks>& p,
    const TileHeader& header,
    const StoredTileMemory<typename Blocks::Value>& memory) {
  using T = typename Blocks::Value;
  using Shape = typename Blocks::Shape;
  constexpr int E = Shape::kE;
  constexpr int C = Shape::kF;
  constexpr int kStride = kSharedStride<C>;
  const TileIndexRef& tiles = p.tiles;
  const int thread = static_cast<int>(threadIdx.x);
  const int32_t point_begin = header.point_begin;
  const int num_points = header.num_points;
  const int64_t begin = header.observation_begin;
  if constexpr ((kMode & kEliminate) != 0) {
    for (int i = thread; i < Shape::kPackedE * num_points; i += kStoredBlock) {
      const int e = i / num_points;
      memory.v_inverse[i] =
          p.operands.v_inverse(int64_t{point_begin} + (i - e * num_points), e);
    }
  }
  for (int i = thread; i <= num_points; i += kStoredBlock) {
    memory.point_first[i] = static_cast<int>(
        p.operands.point_begin[int64_t{point_begin} + i] - begin);
  }
  if constexpr ((kMode & kCameraOut) != 0) {
    // Every tile camera is one segment here, the last one ends with the tile.
    for (int i = thread; i <= header.num_cameras; i += kStoredBlock) {
      memory.camera_first[i] =
          tiles.segment[header.segment_begin + i].slot_begin -
          header.observation_begin;
    }
  }
  const int num_camera_values = C * header.num_cameras;
  if constexpr ((kMode & kUseCamera) != 0) {
    for (int i = thread; i < num_camera_values; i += kStoredBlock) {
      memory.camera_vectors[i + i / C * (kStride - C)] = static_cast<T>(
          p.camera_p[int64_t{C} *
                         tiles.tile_camera_id[header.camera_begin + i / C] +
                     i % C]);
    }
  }
  if constexpr ((kMode & kUsePoint) != 0) {
    for (int i = thread; i < E * num_points; i += kStoredBlock) {
      memory.motions[i] =
          static_cast<T>(p.operands.point_x[int64_t{E} * point_begin + i]);
    }
  }
}

// Inputs, outputs: StoredTileParams; partial gets Jc' y, one row per tile
// camera.
// Mapping: one block per tile, one thread per observation in point order, which
// keeps its blocks in registers for both halves; 3-vectors, then C-vectors per
// observation meet in shared memory and are summed by the owner of a point or
// of an element of a tile camera.
// Order: over a point's observations in their order; over a tile camera's
// observations in their order. No atomics.
// Traffic: per observation its blocks, once and coalesced, 8 B of ids and
// places; per point 48 B of Vi; per tile camera 8 C B in, C T out.
template <typename Blocks, int kMode>
__global__ void __launch_bounds__(kStoredBlock, Blocks::kMinBlocks)
    StoredTileKernel(StoredTileParams<Blocks> p) {
  using T = typename Blocks::Value;
  using Shape = typename Blocks::Shape;
  constexpr int R = Shape::kNumResiduals;
  constexpr int E = Shape::kE;
  constexpr int C = Shape::kF;
  constexpr int kStride = kSharedStride<C>;
  CERES_EXT_DYNAMIC_SHARED(shared);
  if (PcgHasEnded(p.operands.scalars)) {
    return;  // The whole block leaves.
  }
  const TileIndexRef& tiles = p.tiles;
  const int thread = static_cast<int>(threadIdx.x);
  const int tile = static_cast<int>(blockIdx.x);
  const TileHeader header = tiles.header[tile];
  const int32_t point_begin = header.point_begin;
  const int num_points = header.num_points;
  const int32_t camera_begin = header.camera_begin;
  const int32_t camera_end = camera_begin + header.num_cameras;
  const int64_t begin = header.observation_begin;
  if (header.num_observations > tiles.max_observations) {
    StoredLongTile<Blocks, kMode>(p, point_begin, camera_begin, camera_end);
    return;  // The whole block leaves.
  }
  const bool active = thread < header.num_observations;
  const int64_t k = begin + thread;
  Blocks blocks;
  uint32_t position = 0;
  int point = 0;
  if (active) {
    blocks.Load(p.source, k);
    position = p.position[k];
    point = p.point_id[k] - point_begin;
  }

  // All that later phases ask of memory is asked for now.
  double* const v_inverse = reinterpret_cast<double*>(shared);
  T* const vectors = reinterpret_cast<T*>(
      v_inverse +
      ((kMode & kEliminate) != 0 ? Shape::kPackedE * tiles.max_points : 0));
  T* const motions = vectors + kStride * kStoredBlock;
  T* const camera_vectors = motions + E * tiles.max_points;
  int* const point_first = reinterpret_cast<int*>(
      camera_vectors +
      ((kMode & kUseCamera) != 0 ? kStride * tiles.max_tile_cameras : 0));
  int* const camera_first = point_first + tiles.max_points + 1;
  const StoredTileMemory<T> memory{
      v_inverse, motions, camera_vectors, point_first, camera_first};
  LoadTile<kMode>(p, header, memory);
  if constexpr ((kMode & (kUseCamera | kUsePoint)) != 0) {
    __syncthreads();  // Camera and point vectors are read by many threads.
  }
  if (active) {
    blocks.template Forward<kMode>(
        camera_vectors + kStride * static_cast<int>(position >> 16),
        motions + E * point,
        p.operands.b + R * k);
    T s[E] = {};
    blocks.ToPoint(s);
#pragma unroll
    for (int i = 0; i < E; ++i) {
      vectors[E * thread + i] = s[i];
    }
  }
  __syncthreads();  // A point's observations belong to several threads.

  for (int i = thread; i < num_points; i += kStoredBlock) {
    const int64_t id = int64_t{point_begin} + i;
    const int last = point_first[i + 1];
    TermSum<T> sums[E];
    for (int o = point_first[i]; o < last; ++o) {
#pragma unroll
      for (int j = 0; j < E; ++j) {
        sums[j].Add(vectors[E * o + j]);
      }
    }
    double sum[E];
#pragma unroll
    for (int j = 0; j < E; ++j) {
      sum[j] = sums[j].value();
    }
    double x[E];
    FinishPoint<kMode>(p.operands, id, v_inverse + i, num_points, sum, x);
    if constexpr ((kMode & kEliminate) != 0) {
#pragma unroll
      for (int j = 0; j < E; ++j) {
        motions[E * i + j] = static_cast<T>(x[j]);
      }
    }
  }
  if constexpr ((kMode & kCameraOut) != 0) {
    if (p.partial == nullptr) {
      return;  // The whole block leaves.
    }
    // Motions go to many threads, and vectors are overwritten.
    __syncthreads();
    if (active) {
      T q[C] = {};
      blocks.template ToCamera<kMode>(motions + E * point, q);
      T* const out = vectors + kStride * static_cast<int>(position & 0xffff);
#pragma unroll
      for (int i = 0; i < C; ++i) {
        out[i] = q[i];
      }
    }
    __syncthreads();  // A camera's observations belong to several threads.
    const int num_camera_values = C * header.num_cameras;
    for (int i = thread; i < num_camera_values; i += kStoredBlock) {
      const int last = camera_first[i / C + 1];
      TermSum<T> sum;
      for (int s = camera_first[i / C]; s < last; ++s) {
        sum.Add(vectors[kStride * s + i % C]);
      }
      p.partial[int64_t{C} * camera_begin + i] = sum.rounded();
    }
  }
}

// Queues the tiles. Blocks of a module are an overload.
template <int kMode, typename Blocks>
Status LaunchTiles(const StoredTileParams<Blocks>& params,
                   int64_t num_bytes,
                   CudaMachine* machine) {
  return Launch("StoredTile",
                StoredTileKernel<Blocks, kMode>,
                {params.tiles.num_tiles, kStoredBlock, num_bytes},
                machine->stream(),
                params);
}

// Queues tiles and, with kCameraOut, the sums over cameras.
template <int kMode,
          typename Source,
          typename Blocks = typename BlocksOf<Source>::Type>
Status TileOperation(const ObservationIndexRef& index,
                     const Source& source,
                     const double* camera_p,
                     const typename Blocks::Operands& operands,
                     const typename Blocks::Terms& terms,
                     CudaMachine* machine) {
  using T = typename Blocks::Value;
  using Shape = typename Blocks::Shape;
  constexpr int E = Shape::kE;
  constexpr int C = Shape::kF;
  constexpr int kStride = kSharedStride<C>;
  const CudaWorkspaceRef& workspace = *index.cuda_workspace;
  const TileIndexRef& tiles = workspace.stored_tiles;
  if (tiles.position == nullptr && index.num_observations > 0) {
    return Status(StatusCode::kInvalidArgument,
                  "The workspace has no tiles for stored blocks.");
  }
  if (C > workspace.max_columns) {
    return Status(StatusCode::kInvalidArgument,
                  "The workspace has scratch for fewer columns.");
  }
  if (tiles.max_observations > kStoredBlock ||
      tiles.segment_length < tiles.max_observations) {
    return Status(StatusCode::kInvalidArgument,
                  "Tiles for stored blocks hold at most 256 observations, and "
                  "as many a segment.");
  }
  StoredTileParams<Blocks> params;
  params.tiles = tiles;
  params.position = tiles.position;
  params.point_id = index.point_id;
  params.operands = operands;
  params.operands.point_begin = index.point_begin;
  params.source = source;
  params.camera_p = camera_p;
  const bool camera_out = (kMode & kCameraOut) != 0 && terms.out != nullptr;
  params.partial =
      camera_out ? reinterpret_cast<T*>(workspace.partial) : nullptr;
  const int64_t num_values =
      kStride * kStoredBlock + E * tiles.max_points +
      ((kMode & kUseCamera) != 0 ? kStride * tiles.max_tile_cameras : 0);
  const int64_t num_bytes =
      num_values * static_cast<int64_t>(sizeof(T)) +
      ((kMode & kEliminate) != 0 ? 8 * Shape::kPackedE * tiles.max_points : 0) +
      4 * (tiles.max_points + 1 + tiles.max_tile_cameras + 1);
  CERES_EXT_RETURN_IF_ERROR(LaunchTiles<kMode>(params, num_bytes, machine));
  if (!camera_out) {
    return Status();
  }
  return SumTileCameras(StoredJacobian<T, Shape, Blocks::kLayout>(),
                        index.num_cameras,
                        tiles,
                        static_cast<const T*>(params.partial),
                        terms,
                        operands.scalars,
                        machine);
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_CUDA_STORED_TILES_CUH_
