// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Operations on tiles (TileMode, cuda/camera_sums.cuh) with blocks read from
// memory: Jacobians, or W. Included by .cu.cc files only.
#ifndef CERES_EXT_CUDA_KERNELS_CUDA_STORED_TILES_CUH_
#define CERES_EXT_CUDA_KERNELS_CUDA_STORED_TILES_CUH_

#include <cstdint>

#include "cuda_kernels/base/block_view.h"
#include "cuda_kernels/cuda/camera_sums.cuh"
#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/structure/cuda_workspace.h"
#include "cuda_kernels/structure/tile_index.h"

namespace ceres_ext::kernels {

inline constexpr int kStoredBlock = 256;

// One observation in the registers of its thread. A type of these has
//   Source                    what it is read from
//   Load(source, k)           reads it, once
//   Forward<mode>(p, u, b)    takes y_k's parts, p = p_c and u = x_p given
//   ToPoint(s)                s += what the observation gives its point
//   ToCamera<mode>(u, q)      q += what it gives its camera, u = motion
template <typename SourceIn>
struct JacobianBlocks {
  using Source = SourceIn;
  using Value = typename Source::Value;
  using T = Value;
  static constexpr int C = Source::kCameraDim;
  static constexpr int kCameraDim = C;
  static constexpr BlockLayout kLayout = Source::kLayout;

  T jc[2 * C];
  T jp[6];
  T y[2];

  __device__ __forceinline__ void Load(const Source& source, int64_t k) {
    // Streamed: nobody reads them again before they have left the cache.
#pragma unroll
    for (int i = 0; i < 2 * C; ++i) {
      jc[i] = __ldcs(&source.camera_blocks(k, i));
    }
#pragma unroll
    for (int i = 0; i < 6; ++i) {
      jp[i] = __ldcs(&source.point_blocks(k, i));
    }
  }

  template <int kMode>
  __device__ __forceinline__ void Forward(const T* p,
                                          const T* u,
                                          const double* b) {
    y[0] = T(0);
    y[1] = T(0);
    if constexpr ((kMode & kUseCamera) != 0) {
#pragma unroll
      for (int i = 0; i < C; ++i) {
        y[0] += jc[i] * p[i];
        y[1] += jc[C + i] * p[i];
      }
    }
    if constexpr ((kMode & kUseB) != 0) {
      constexpr T kSign = (kMode & kUseCamera) != 0 ? T(-1) : T(1);
      y[0] = static_cast<T>(b[0]) + kSign * y[0];
      y[1] = static_cast<T>(b[1]) + kSign * y[1];
    }
    if constexpr ((kMode & kUsePoint) != 0) {
      AddPoint(u);
    }
  }

  __device__ __forceinline__ void AddPoint(const T* u) {
    y[0] += jp[0] * u[0] + jp[1] * u[1] + jp[2] * u[2];
    y[1] += jp[3] * u[0] + jp[4] * u[1] + jp[5] * u[2];
  }

  template <typename A>
  __device__ __forceinline__ void ToPoint(A* s) const {
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      s[i] += jp[i] * y[0] + jp[3 + i] * y[1];
    }
  }

  template <int kMode, typename A>
  __device__ __forceinline__ void ToCamera(const T* u, A* q) {
    if constexpr ((kMode & kEliminate) != 0) {
      AddPoint(u);
    }
#pragma unroll
    for (int i = 0; i < C; ++i) {
      q[i] += jc[i] * y[0] + jc[C + i] * y[1];
    }
  }
};

// W_k alone: s_p = sum W_k' p_c, q_c = sum W_k x_p. U and V come in through
// CameraSumTerms and TileOperands.
template <typename T, int C, BlockLayout kLayoutIn>
struct CouplingBlocks {
  using Value = T;
  using Source = BlockView<const T, 3 * C, kLayoutIn>;
  static constexpr int kCameraDim = C;
  static constexpr BlockLayout kLayout = kLayoutIn;

  T w[3 * C];
  T s_k[3];
  T given[3];

  __device__ __forceinline__ void Load(const Source& source, int64_t k) {
#pragma unroll
    for (int i = 0; i < 3 * C; ++i) {
      w[i] = __ldcs(&source(k, i));
    }
  }

  template <int kMode>
  __device__ __forceinline__ void Forward(const T* p,
                                          const T* u,
                                          const double*) {
#pragma unroll
    for (int j = 0; j < 3; ++j) {
      s_k[j] = T(0);
      if constexpr ((kMode & kUsePoint) != 0) {
        given[j] = u[j];
      }
    }
#pragma unroll
    for (int i = 0; i < C; ++i) {
#pragma unroll
      for (int j = 0; j < 3; ++j) {
        s_k[j] += w[3 * i + j] * p[i];
      }
    }
  }

  template <typename A>
  __device__ __forceinline__ void ToPoint(A* s) const {
#pragma unroll
    for (int j = 0; j < 3; ++j) {
      s[j] += s_k[j];
    }
  }

  template <int kMode, typename A>
  __device__ __forceinline__ void ToCamera(const T* u, A* q) {
    const T* x = (kMode & kEliminate) != 0 ? u : given;
#pragma unroll
    for (int i = 0; i < C; ++i) {
      q[i] += w[3 * i] * x[0] + w[3 * i + 1] * x[1] + w[3 * i + 2] * x[2];
    }
  }
};

// The blocks of a source.
template <typename Source>
struct BlocksOf;
template <typename T, int C, BlockLayout kLayout>
struct BlocksOf<StoredJacobian<T, C, kLayout>> {
  using Type = JacobianBlocks<StoredJacobian<T, C, kLayout>>;
};
template <typename T, int kSize, BlockLayout kLayout>
struct BlocksOf<BlockView<const T, kSize, kLayout>> {
  using Type = CouplingBlocks<T, kSize / 3, kLayout>;
};

template <typename Blocks>
struct StoredTileParams {
  using T = typename Blocks::Value;
  TileIndexView tiles;
  const uint32_t* position = nullptr;  // CudaWorkspaceView::stored_position
  const int32_t* point_id = nullptr;
  TileOperandsIn<Blocks::kLayout> operands;
  typename Blocks::Source source;
  const double* camera_p = nullptr;  // C per camera
  T* partial = nullptr;  // C per tile camera; null: cameras not wanted
};

// A long tile (tile_index.h). Mapping: a thread owns tile cameras; the block
// sums over the point. Blocks are read twice.
template <typename Blocks, int kMode>
__device__ void StoredLongTile(const StoredTileParams<Blocks>& p,
                               int64_t point,
                               int32_t camera_begin,
                               int32_t camera_end) {
  using T = typename Blocks::Value;
  constexpr int C = Blocks::kCameraDim;
  __shared__ double motion[3];
  const TileIndexView& tiles = p.tiles;
  T given[3] = {T(0), T(0), T(0)};
  if constexpr ((kMode & kUsePoint) != 0) {
    for (int i = 0; i < 3; ++i) {
      given[i] = static_cast<T>(p.operands.point_x[3 * point + i]);
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
  double sum[3] = {0.0, 0.0, 0.0};
  for_each([&](int32_t, const T* camera_p, int32_t begin, int32_t end) {
    for (int32_t k = begin; k < end; ++k) {
      Blocks blocks;
      blocks.Load(p.source, k);
      blocks.template Forward<kMode>(
          camera_p, given, p.operands.b + int64_t{2} * k);
      blocks.ToPoint(sum);
    }
  });
  for (int i = 0; i < 3; ++i) {
    sum[i] = BlockSum<kStoredBlock>(sum[i]);
  }
  if (threadIdx.x == 0) {
    double x[3];
    double v[6] = {};
    LoadInverse<kMode>(p.operands, point, v);
    FinishPoint<kMode>(p.operands, point, v, 1, sum, x);
    if constexpr ((kMode & kEliminate) != 0) {
      for (int i = 0; i < 3; ++i) {
        motion[i] = x[i];
      }
    }
  }
  if constexpr ((kMode & kCameraOut) != 0) {
    if (p.partial == nullptr) {
      return;  // The whole block leaves.
    }
    __syncthreads();  // The motion is the work of thread 0.
    T moved[3] = {T(0), T(0), T(0)};
    if constexpr ((kMode & kEliminate) != 0) {
      for (int i = 0; i < 3; ++i) {
        moved[i] = static_cast<T>(motion[i]);
      }
    }
    for_each([&](int32_t c, const T* camera_p, int32_t begin, int32_t end) {
      double q[C] = {};
      for (int32_t k = begin; k < end; ++k) {
        Blocks blocks;
        blocks.Load(p.source, k);
        blocks.template Forward<kMode>(
            camera_p, given, p.operands.b + int64_t{2} * k);
        blocks.template ToCamera<kMode>(moved, q);
      }
      for (int i = 0; i < C; ++i) {
        p.partial[int64_t{C} * c + i] = static_cast<T>(q[i]);
      }
    });
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
__global__ void __launch_bounds__(
    kStoredBlock, sizeof(typename Blocks::Value) == sizeof(double) ? 2 : 4)
    StoredTileKernel(StoredTileParams<Blocks> p) {
  using T = typename Blocks::Value;
  constexpr int C = Blocks::kCameraDim;
  CERES_EXT_DYNAMIC_SHARED(shared);
  if (PcgHasEnded(p.operands.scalars)) {
    return;  // The whole block leaves.
  }
  const TileIndexView& tiles = p.tiles;
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
  double* const v_inverse = reinterpret_cast<double*>(shared);  // 6 per point
  T* const vectors = reinterpret_cast<T*>(
      v_inverse + ((kMode & kEliminate) != 0 ? 6 * tiles.max_points : 0));
  T* const motions = vectors + C * kStoredBlock;             // 3 per point
  T* const camera_vectors = motions + 3 * tiles.max_points;  // C per camera
  int* const point_first = reinterpret_cast<int*>(
      camera_vectors +
      ((kMode & kUseCamera) != 0 ? C * tiles.max_tile_cameras : 0));
  int* const camera_first = point_first + tiles.max_points + 1;
  if constexpr ((kMode & kEliminate) != 0) {
    for (int i = thread; i < 6 * num_points; i += kStoredBlock) {
      const int e = i / num_points;
      v_inverse[i] =
          p.operands.v_inverse(int64_t{point_begin} + (i - e * num_points), e);
    }
  }
  for (int i = thread; i <= num_points; i += kStoredBlock) {
    point_first[i] = static_cast<int>(
        p.operands.point_begin[int64_t{point_begin} + i] - begin);
  }
  if constexpr ((kMode & kCameraOut) != 0) {
    // Every tile camera is one segment here, the last one ends with the tile.
    for (int i = thread; i <= header.num_cameras; i += kStoredBlock) {
      camera_first[i] = tiles.segment[header.segment_begin + i].slot_begin -
                        header.observation_begin;
    }
  }
  const int num_camera_values = C * (camera_end - camera_begin);
  if constexpr ((kMode & kUseCamera) != 0) {
    for (int i = thread; i < num_camera_values; i += kStoredBlock) {
      camera_vectors[i] = static_cast<T>(
          p.camera_p[int64_t{C} * tiles.tile_camera_id[camera_begin + i / C] +
                     i % C]);
    }
  }
  if constexpr ((kMode & kUsePoint) != 0) {
    for (int i = thread; i < 3 * num_points; i += kStoredBlock) {
      motions[i] =
          static_cast<T>(p.operands.point_x[int64_t{3} * point_begin + i]);
    }
  }
  if constexpr ((kMode & (kUseCamera | kUsePoint)) != 0) {
    __syncthreads();  // Camera and point vectors are read by many threads.
  }
  if (active) {
    blocks.template Forward<kMode>(
        camera_vectors + C * static_cast<int>(position >> 16),
        motions + 3 * point,
        p.operands.b + 2 * k);
    T s[3] = {T(0), T(0), T(0)};
    blocks.ToPoint(s);
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      vectors[3 * thread + i] = s[i];
    }
  }
  __syncthreads();  // A point's observations belong to several threads.

  for (int i = thread; i < num_points; i += kStoredBlock) {
    const int64_t id = int64_t{point_begin} + i;
    const int last = point_first[i + 1];
    double sum[3] = {0.0, 0.0, 0.0};
    for (int o = point_first[i]; o < last; ++o) {
#pragma unroll
      for (int j = 0; j < 3; ++j) {
        sum[j] += static_cast<double>(vectors[3 * o + j]);
      }
    }
    double x[3];
    FinishPoint<kMode>(p.operands, id, v_inverse + i, num_points, sum, x);
    if constexpr ((kMode & kEliminate) != 0) {
#pragma unroll
      for (int j = 0; j < 3; ++j) {
        motions[3 * i + j] = static_cast<T>(x[j]);
      }
    }
  }
  if constexpr ((kMode & kCameraOut) != 0) {
    if (p.partial == nullptr) {
      return;  // The whole block leaves.
    }
    // Motions go to many threads, and vectors are used anew.
    __syncthreads();
    if (active) {
      T q[C] = {};
      blocks.template ToCamera<kMode>(motions + 3 * point, q);
      T* const out = vectors + C * static_cast<int>(position & 0xffff);
#pragma unroll
      for (int i = 0; i < C; ++i) {
        out[i] = q[i];
      }
    }
    __syncthreads();  // A camera's observations belong to several threads.
    for (int i = thread; i < num_camera_values; i += kStoredBlock) {
      const int last = camera_first[i / C + 1];
      double sum = 0.0;
      for (int s = camera_first[i / C]; s < last; ++s) {
        sum += static_cast<double>(vectors[C * s + i % C]);
      }
      p.partial[int64_t{C} * camera_begin + i] = static_cast<T>(sum);
    }
  }
}

// Queues tiles and, with kCameraOut, the sums over cameras.
// source: StoredJacobian, or W.
template <int kMode,
          typename Source,
          typename Blocks = typename BlocksOf<Source>::Type>
Status TileOperation(
    const ObservationIndexView& index,
    const Source& source,
    const double* camera_p,
    const TileOperandsIn<Blocks::kLayout>& operands,
    const CameraSumTerms<Blocks::kCameraDim, Blocks::kLayout>& terms,
    CudaMachine* machine) {
  using T = typename Blocks::Value;
  constexpr int C = Blocks::kCameraDim;
  const CudaWorkspaceView& workspace = *index.cuda_workspace;
  const TileIndexView& tiles = workspace.stored_tiles;
  if (tiles.tile_point_begin == nullptr && index.num_points > 0) {
    return Status(StatusCode::kInvalidArgument,
                  "The workspace has no tiles for stored blocks.");
  }
  if (tiles.max_observations > kStoredBlock ||
      tiles.segment_length < tiles.max_observations) {
    return Status(StatusCode::kInvalidArgument,
                  "Tiles for stored blocks hold at most 256 observations, and "
                  "as many a segment.");
  }
  StoredTileParams<Blocks> params;
  params.tiles = tiles;
  params.position = workspace.stored_position;
  params.point_id = index.point_id;
  params.operands = operands;
  params.operands.point_begin = index.point_begin;
  params.source = source;
  params.camera_p = camera_p;
  const bool camera_out = (kMode & kCameraOut) != 0 && terms.out != nullptr;
  params.partial =
      camera_out ? reinterpret_cast<T*>(workspace.partial) : nullptr;
  const int64_t num_values =
      C * kStoredBlock + 3 * tiles.max_points +
      ((kMode & kUseCamera) != 0 ? C * tiles.max_tile_cameras : 0);
  const int64_t num_bytes =
      num_values * static_cast<int64_t>(sizeof(T)) +
      ((kMode & kEliminate) != 0 ? 48 * tiles.max_points : 0) +
      4 * (tiles.max_points + 1 + tiles.max_tile_cameras + 1);
  CERES_EXT_RETURN_IF_ERROR(Launch("StoredTile",
                                   StoredTileKernel<Blocks, kMode>,
                                   tiles.num_tiles,
                                   kStoredBlock,
                                   num_bytes,
                                   machine->stream(),
                                   params));
  if (!camera_out) {
    return Status();
  }
  return SumTileCameras(StoredJacobian<T, C, Blocks::kLayout>(),
                        index.num_cameras,
                        tiles,
                        static_cast<const T*>(params.partial),
                        terms,
                        operands.scalars,
                        machine);
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_CUDA_STORED_TILES_CUH_
