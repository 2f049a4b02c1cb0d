// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/structure/tile_index.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_sort.h"

namespace ceres_ext::kernels {
namespace {

constexpr int kBlockSize = 256;

// Points are cut into chunks of this many; within a chunk tiles are filled one
// after the other. A chunk costs at most one half-empty tile.
constexpr int64_t kPointsPerChunk = 8192;

// Where the tile that begins at point p ends: the furthest q <= end with at
// most max_points points and max_observations observations, at least p + 1.
__device__ int32_t TileEnd(const int64_t* point_begin,
                           int32_t p,
                           int32_t end,
                           const TileOptions& options) {
  const int64_t most = point_begin[p] + options.max_observations;
  int32_t low = p + 1;
  int32_t high = options.max_points < end - p ? p + options.max_points : end;
  while (low < high) {
    const int32_t middle = low + (high - low + 1) / 2;
    if (point_begin[middle] <= most) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// One thread per chunk. tile_point_begin null: num_tiles[chunk] = its number of
// tiles. Else: writes their first points from num_tiles[chunk - 1] on, where
// num_tiles holds the inclusive sums.
__global__ void CutTilesKernel(ObservationIndexView index,
                               TileOptions options,
                               int64_t num_chunks,
                               int32_t* num_tiles,
                               int32_t* tile_point_begin) {
  const int64_t chunk = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (chunk >= num_chunks) {
    return;  // No barrier follows.
  }
  const int64_t begin = chunk * kPointsPerChunk;
  const int64_t end = begin + kPointsPerChunk < index.num_points
                          ? begin + kPointsPerChunk
                          : index.num_points;
  int32_t tile =
      tile_point_begin == nullptr || chunk == 0 ? 0 : num_tiles[chunk - 1];
  for (int32_t p = static_cast<int32_t>(begin); p < end;) {
    if (tile_point_begin != nullptr) {
      tile_point_begin[tile] = p;
    }
    ++tile;
    p = TileEnd(index.point_begin, p, static_cast<int32_t>(end), options);
  }
  if (tile_point_begin == nullptr) {
    num_tiles[chunk] = tile;
  } else if (chunk == num_chunks - 1) {
    tile_point_begin[tile] = index.num_points;
  }
}

// keys = (tile, camera), values = position. One block per tile.
__global__ void MakeTileKeysKernel(ObservationIndexView index,
                                   const int32_t* tile_point_begin,
                                   int camera_bits,
                                   uint64_t* keys,
                                   int32_t* values) {
  const int64_t begin = index.point_begin[tile_point_begin[blockIdx.x]];
  const int64_t end = index.point_begin[tile_point_begin[blockIdx.x + 1]];
  for (int64_t k = begin + threadIdx.x; k < end; k += blockDim.x) {
    keys[k] = uint64_t{blockIdx.x} << camera_bits |
              static_cast<uint64_t>(index.camera_id[k]);
    values[k] = static_cast<int32_t>(k);
  }
}

// flags[s] = 1 where slot s is the first of a tile camera.
__global__ void FlagTileCamerasKernel(int64_t num_observations,
                                      const uint64_t* keys,
                                      int32_t* flags) {
  const int64_t s = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (s >= num_observations) {
    return;  // No barrier follows.
  }
  flags[s] = s == 0 || keys[s] != keys[s - 1];
}

// tile_camera[s] holds the inclusive sums of the flags. Writes the first slot
// of each tile camera, and keys and values for the rows of the cameras.
__global__ void ListTileCamerasKernel(int64_t num_observations,
                                      const uint64_t* keys,
                                      const int32_t* tile_camera,
                                      int camera_bits,
                                      int32_t* first_slot,
                                      int32_t* tile_camera_id,
                                      uint64_t* row_keys,
                                      int32_t* row_values) {
  const int64_t s = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (s >= num_observations) {
    return;  // No barrier follows.
  }
  const int32_t c = tile_camera[s] - 1;
  if (s > 0 && tile_camera[s - 1] - 1 == c) {
    return;  // Not the first of its tile camera; no barrier follows.
  }
  first_slot[c] = static_cast<int32_t>(s);
  const uint64_t camera = keys[s] & ((uint64_t{1} << camera_bits) - 1);
  tile_camera_id[c] = static_cast<int32_t>(camera);
  row_keys[c] = camera;
  row_values[c] = c;
}

// flags[s] = 1 where slot s is the first of a segment.
__global__ void FlagSegmentsKernel(int64_t num_observations,
                                   const int32_t* tile_camera,
                                   const int32_t* first_slot,
                                   int32_t segment_length,
                                   int32_t* flags) {
  const int64_t s = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (s >= num_observations) {
    return;  // No barrier follows.
  }
  flags[s] = (s - first_slot[tile_camera[s] - 1]) % segment_length == 0;
}

// Everything that is per slot, segment and tile camera; segment_number holds
// the inclusive sums of the flags above. Thread num_observations writes the
// ends.
__global__ void FillTilesKernel(ObservationIndexView index,
                                TileIndexView tiles,
                                const uint64_t* keys,
                                const int32_t* position,
                                const int32_t* tile_camera,
                                const int32_t* segment_number,
                                int camera_bits,
                                TileSegment* segment,
                                uint32_t* slot,
                                int32_t* tile_camera_segment,
                                int32_t* tile_segment_begin,
                                int32_t* tile_camera_begin) {
  const int64_t n = index.num_observations;
  const int64_t s = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (s > n) {
    return;  // No barrier follows.
  }
  // Tiles without observations begin where the next one with some does.
  const int64_t previous_tile =
      s == 0 ? -1 : static_cast<int64_t>(keys[s - 1] >> camera_bits);
  const int64_t tile =
      s == n ? tiles.num_tiles : static_cast<int64_t>(keys[s] >> camera_bits);
  const int32_t c = s == n ? tiles.num_tile_cameras : tile_camera[s] - 1;
  const int32_t g = s == n ? tiles.num_segments : segment_number[s] - 1;
  for (int64_t t = previous_tile + 1; t <= tile; ++t) {
    tile_segment_begin[t] = g;
    tile_camera_begin[t] = c;
  }
  const bool first_of_segment = s == 0 || s == n || segment_number[s - 1] <= g;
  if (first_of_segment) {
    const int32_t camera =
        s == n ? 0
               : static_cast<int32_t>(keys[s] &
                                      ((uint64_t{1} << camera_bits) - 1));
    segment[g] = TileSegment{camera, static_cast<int32_t>(s)};
  }
  if (s == 0 || s == n || tile_camera[s - 1] <= c) {
    tile_camera_segment[c] = g;
  }
  if (s == n) {
    return;  // No barrier follows.
  }
  const int32_t first_point = tiles.tile_point_begin[tile];
  const int64_t begin = index.point_begin[first_point];
  const int64_t end = index.point_begin[tiles.tile_point_begin[tile + 1]];
  slot[s] =
      end - begin > tiles.max_observations
          ? 0u
          : static_cast<uint32_t>(index.point_id[position[s]] - first_point)
                    << 16 |
                static_cast<uint32_t>(position[s] - begin);
}

// keys = (tile, decreasing length), the length left out where a tile keeps the
// order of its segments; values = segment. One block per tile.
__global__ void MakeTaskKeysKernel(TileIndexView tiles,
                                   int length_bits,
                                   uint64_t* keys,
                                   int32_t* values) {
  const int32_t begin = tiles.tile_segment_begin[blockIdx.x];
  const int32_t end = tiles.tile_segment_begin[blockIdx.x + 1];
  const bool sorted = end - begin <= tiles.round_segments;
  for (int32_t g = begin + static_cast<int32_t>(threadIdx.x); g < end;
       g += static_cast<int32_t>(blockDim.x)) {
    const int32_t length =
        tiles.segment[g + 1].slot_begin - tiles.segment[g].slot_begin;
    keys[g] = uint64_t{blockIdx.x} << length_bits |
              static_cast<uint64_t>(sorted ? tiles.segment_length - length : 0);
    values[g] = g;
  }
}

// Task i of all tiles is segment order[i]. One thread per task.
__global__ void FillTasksKernel(TileIndexView tiles,
                                const uint64_t* keys,
                                int length_bits,
                                const int32_t* order,
                                TileTask* task) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= tiles.num_segments) {
    return;  // No barrier follows.
  }
  const int32_t g = order[i];
  const TileSegment segment = tiles.segment[g];
  task[i] = TileTask{segment.camera,
                     segment.slot_begin,
                     tiles.segment[g + 1].slot_begin,
                     g - tiles.tile_segment_begin[keys[i] >> length_bits]};
}

// begin[g] = number of sorted keys below g, as in the observation index.
__global__ void RowBeginKernel(int32_t n,
                               const uint64_t* keys,
                               int32_t num_cameras,
                               int32_t* begin) {
  const int64_t k = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (k > n) {
    return;  // No barrier follows.
  }
  const int64_t previous = k == 0 ? -1 : static_cast<int64_t>(keys[k - 1]);
  const int64_t last = k == n ? num_cameras : static_cast<int64_t>(keys[k]);
  for (int64_t g = previous + 1; g <= last; ++g) {
    begin[g] = static_cast<int32_t>(k);
  }
}

// Headers; most[0], most[1] = most segments and tile cameras of a tile that is
// not long. Maxima of integers: the order of the atomics does not matter.
__global__ void TileHeadersKernel(ObservationIndexView index,
                                  TileIndexView tiles,
                                  TileHeader* headers,
                                  int32_t* most) {
  const int64_t t = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (t >= tiles.num_tiles) {
    return;  // No barrier follows.
  }
  TileHeader header;
  header.point_begin = tiles.tile_point_begin[t];
  header.num_points = tiles.tile_point_begin[t + 1] - header.point_begin;
  const int64_t begin = index.point_begin[header.point_begin];
  header.observation_begin = static_cast<int32_t>(begin);
  header.num_observations = static_cast<int32_t>(
      index.point_begin[tiles.tile_point_begin[t + 1]] - begin);
  header.segment_begin = tiles.tile_segment_begin[t];
  header.num_segments = tiles.tile_segment_begin[t + 1] - header.segment_begin;
  header.camera_begin = tiles.tile_camera_begin[t];
  header.num_cameras = tiles.tile_camera_begin[t + 1] - header.camera_begin;
  headers[t] = header;
  if (header.num_observations > tiles.max_observations) {
    return;  // A long tile; no barrier follows.
  }
  atomicMax(&most[0], header.num_segments);
  atomicMax(&most[1], header.num_cameras);
}

}  // namespace

Status TileIndex::BuildTasks(CudaIndexScratch* scratch, CudaContext* context) {
  const cudaStream_t stream = context->stream();
  const int64_t num_segments = view_.num_segments;
  const int length_bits = NumBits(int64_t{view_.segment_length});
  CERES_EXT_RETURN_IF_ERROR(task_.Allocate(context, num_segments));
  CERES_EXT_RETURN_IF_ERROR(Launch("MakeTaskKeys",
                                   MakeTaskKeysKernel,
                                   view_.num_tiles,
                                   kBlockSize,
                                   0,
                                   stream,
                                   view_,
                                   length_bits,
                                   scratch->keys_in.data(),
                                   scratch->values_in.data()));
  CERES_EXT_RETURN_IF_ERROR(SortPairs(scratch->keys_in.data(),
                                      scratch->keys_out.data(),
                                      scratch->values_in.data(),
                                      scratch->values_out.data(),
                                      num_segments,
                                      NumBits(view_.num_tiles) + length_bits,
                                      &scratch->sort,
                                      context));
  CERES_EXT_RETURN_IF_ERROR(
      Launch("FillTasks",
             FillTasksKernel,
             CeilDivide(num_segments, kBlockSize),
             kBlockSize,
             0,
             stream,
             view_,
             static_cast<const uint64_t*>(scratch->keys_out.data()),
             length_bits,
             static_cast<const int32_t*>(scratch->values_out.data()),
             task_.data()));
  view_.task = task_.data();
  return Status();
}

Status TileIndex::Build(const ObservationIndexView& index,
                        const TileOptions& options,
                        CudaIndexScratch* scratch,
                        CudaContext* context) {
  if (options.max_points < 1 || options.max_points > 65536 ||
      options.max_observations < 1 || options.max_observations > 65536 ||
      options.segment_length < 1) {
    return Status(StatusCode::kInvalidArgument,
                  "A tile holds 1 to 65536 points and observations and its "
                  "segments at least 1 observation.");
  }
  const cudaStream_t stream = context->stream();
  const int64_t n = index.num_observations;
  view_ = TileIndexView();
  view_.max_points = options.max_points;
  view_.max_observations = options.max_observations;
  view_.segment_length = options.segment_length;
  view_.round_segments =
      std::max(options.max_observations / 3,
               static_cast<int32_t>(CeilDivide(options.max_observations,
                                               options.segment_length)));

  // Tiles.
  const int64_t num_chunks = CeilDivide(index.num_points, kPointsPerChunk);
  DeviceBuffer<int32_t> num_tiles;
  CERES_EXT_RETURN_IF_ERROR(num_tiles.Allocate(context, num_chunks + 2));
  CERES_EXT_RETURN_IF_ERROR(num_tiles.SetZero());
  const auto cut_tiles = [&](int32_t* tile_point_begin) {
    return Launch("CutTiles",
                  CutTilesKernel,
                  CeilDivide(num_chunks, 32),
                  32,
                  0,
                  stream,
                  index,
                  options,
                  num_chunks,
                  num_tiles.data(),
                  tile_point_begin);
  };
  CERES_EXT_RETURN_IF_ERROR(cut_tiles(nullptr));
  CERES_EXT_RETURN_IF_ERROR(InclusiveSum(
      num_tiles.data(), num_tiles.data(), num_chunks, &scratch->sort, context));
  if (num_chunks > 0) {
    CERES_EXT_RETURN_IF_ERROR(context->CopyToHost(
        &view_.num_tiles, num_tiles.data() + num_chunks - 1, sizeof(int32_t)));
  }
  CERES_EXT_RETURN_IF_ERROR(
      tile_point_begin_.Allocate(context, int64_t{view_.num_tiles} + 1));
  CERES_EXT_RETURN_IF_ERROR(tile_point_begin_.SetZero());
  CERES_EXT_RETURN_IF_ERROR(cut_tiles(tile_point_begin_.data()));
  view_.tile_point_begin = tile_point_begin_.data();

  // Slots: sort by (tile, camera); stable, so a camera's slots keep the order
  // of their points.
  const int camera_bits = NumBits(index.num_cameras);
  CERES_EXT_RETURN_IF_ERROR(scratch->keys_in.Allocate(context, n));
  CERES_EXT_RETURN_IF_ERROR(scratch->keys_out.Allocate(context, n));
  CERES_EXT_RETURN_IF_ERROR(scratch->values_in.Allocate(context, n));
  CERES_EXT_RETURN_IF_ERROR(scratch->values_out.Allocate(context, n));
  CERES_EXT_RETURN_IF_ERROR(Launch("MakeTileKeys",
                                   MakeTileKeysKernel,
                                   view_.num_tiles,
                                   kBlockSize,
                                   0,
                                   stream,
                                   index,
                                   tile_point_begin_.data(),
                                   camera_bits,
                                   scratch->keys_in.data(),
                                   scratch->values_in.data()));
  CERES_EXT_RETURN_IF_ERROR(SortPairs(scratch->keys_in.data(),
                                      scratch->keys_out.data(),
                                      scratch->values_in.data(),
                                      scratch->values_out.data(),
                                      n,
                                      NumBits(view_.num_tiles) + camera_bits,
                                      &scratch->sort,
                                      context));
  const uint64_t* keys = scratch->keys_out.data();
  const int32_t* position = scratch->values_out.data();

  // Tile cameras.
  const int64_t num_blocks = CeilDivide(n, kBlockSize);
  DeviceBuffer<int32_t> tile_camera;
  CERES_EXT_RETURN_IF_ERROR(tile_camera.Allocate(context, n));
  CERES_EXT_RETURN_IF_ERROR(Launch("FlagTileCameras",
                                   FlagTileCamerasKernel,
                                   num_blocks,
                                   kBlockSize,
                                   0,
                                   stream,
                                   n,
                                   keys,
                                   tile_camera.data()));
  CERES_EXT_RETURN_IF_ERROR(InclusiveSum(
      tile_camera.data(), tile_camera.data(), n, &scratch->sort, context));
  if (n > 0) {
    CERES_EXT_RETURN_IF_ERROR(context->CopyToHost(
        &view_.num_tile_cameras, tile_camera.data() + n - 1, sizeof(int32_t)));
  }
  DeviceBuffer<int32_t> first_slot;
  DeviceBuffer<uint64_t> row_keys;
  DeviceBuffer<int32_t> row_values;
  CERES_EXT_RETURN_IF_ERROR(
      first_slot.Allocate(context, view_.num_tile_cameras));
  CERES_EXT_RETURN_IF_ERROR(row_keys.Allocate(context, view_.num_tile_cameras));
  CERES_EXT_RETURN_IF_ERROR(
      row_values.Allocate(context, view_.num_tile_cameras));
  CERES_EXT_RETURN_IF_ERROR(
      tile_camera_id_.Allocate(context, view_.num_tile_cameras));
  CERES_EXT_RETURN_IF_ERROR(Launch("ListTileCameras",
                                   ListTileCamerasKernel,
                                   num_blocks,
                                   kBlockSize,
                                   0,
                                   stream,
                                   n,
                                   keys,
                                   tile_camera.data(),
                                   camera_bits,
                                   first_slot.data(),
                                   tile_camera_id_.data(),
                                   row_keys.data(),
                                   row_values.data()));
  view_.tile_camera_id = tile_camera_id_.data();

  // Segments.
  DeviceBuffer<int32_t> segment_number;
  CERES_EXT_RETURN_IF_ERROR(segment_number.Allocate(context, n));
  CERES_EXT_RETURN_IF_ERROR(Launch("FlagSegments",
                                   FlagSegmentsKernel,
                                   num_blocks,
                                   kBlockSize,
                                   0,
                                   stream,
                                   n,
                                   tile_camera.data(),
                                   first_slot.data(),
                                   options.segment_length,
                                   segment_number.data()));
  CERES_EXT_RETURN_IF_ERROR(InclusiveSum(segment_number.data(),
                                         segment_number.data(),
                                         n,
                                         &scratch->sort,
                                         context));
  if (n > 0) {
    CERES_EXT_RETURN_IF_ERROR(context->CopyToHost(
        &view_.num_segments, segment_number.data() + n - 1, sizeof(int32_t)));
  }
  CERES_EXT_RETURN_IF_ERROR(
      segment_.Allocate(context, int64_t{view_.num_segments} + 1));
  CERES_EXT_RETURN_IF_ERROR(slot_.Allocate(context, n));
  CERES_EXT_RETURN_IF_ERROR(tile_camera_segment_.Allocate(
      context, int64_t{view_.num_tile_cameras} + 1));
  CERES_EXT_RETURN_IF_ERROR(
      tile_segment_begin_.Allocate(context, int64_t{view_.num_tiles} + 1));
  CERES_EXT_RETURN_IF_ERROR(
      tile_camera_begin_.Allocate(context, int64_t{view_.num_tiles} + 1));
  CERES_EXT_RETURN_IF_ERROR(Launch("FillTiles",
                                   FillTilesKernel,
                                   CeilDivide(n + 1, kBlockSize),
                                   kBlockSize,
                                   0,
                                   stream,
                                   index,
                                   view_,
                                   keys,
                                   position,
                                   tile_camera.data(),
                                   segment_number.data(),
                                   camera_bits,
                                   segment_.data(),
                                   slot_.data(),
                                   tile_camera_segment_.data(),
                                   tile_segment_begin_.data(),
                                   tile_camera_begin_.data()));
  view_.segment = segment_.data();
  view_.slot = slot_.data();
  view_.tile_camera_segment = tile_camera_segment_.data();
  view_.tile_segment_begin = tile_segment_begin_.data();
  view_.tile_camera_begin = tile_camera_begin_.data();

  if (options.tasks) {
    CERES_EXT_RETURN_IF_ERROR(BuildTasks(scratch, context));
  }

  // Rows of the cameras.
  CERES_EXT_RETURN_IF_ERROR(row_.Allocate(context, view_.num_tile_cameras));
  CERES_EXT_RETURN_IF_ERROR(
      row_begin_.Allocate(context, int64_t{index.num_cameras} + 1));
  CERES_EXT_RETURN_IF_ERROR(SortPairs(row_keys.data(),
                                      scratch->keys_in.data(),
                                      row_values.data(),
                                      row_.data(),
                                      view_.num_tile_cameras,
                                      camera_bits,
                                      &scratch->sort,
                                      context));
  CERES_EXT_RETURN_IF_ERROR(
      Launch("RowBegin",
             RowBeginKernel,
             CeilDivide(int64_t{view_.num_tile_cameras} + 1, kBlockSize),
             kBlockSize,
             0,
             stream,
             view_.num_tile_cameras,
             scratch->keys_in.data(),
             index.num_cameras,
             row_begin_.data()));
  view_.row_begin = row_begin_.data();
  view_.row = row_.data();

  // Headers and maxima.
  CERES_EXT_RETURN_IF_ERROR(num_tiles.SetZero());
  CERES_EXT_RETURN_IF_ERROR(header_.Allocate(context, view_.num_tiles));
  CERES_EXT_RETURN_IF_ERROR(Launch("TileHeaders",
                                   TileHeadersKernel,
                                   CeilDivide(view_.num_tiles, kBlockSize),
                                   kBlockSize,
                                   0,
                                   stream,
                                   index,
                                   view_,
                                   header_.data(),
                                   num_tiles.data()));
  view_.header = header_.data();
  int32_t most[2];
  CERES_EXT_RETURN_IF_ERROR(
      context->CopyToHost(most, num_tiles.data(), sizeof(most)));
  view_.max_tile_segments = most[0];
  view_.max_tile_cameras = most[1];
  return Status();
}

}  // namespace ceres_ext::kernels
