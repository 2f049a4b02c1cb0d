// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/structure/tile_index.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_sort.h"

namespace ceres_ext::kernels {
namespace {

// Points are cut into chunks of this many; within a chunk tiles are filled one
// after the other. A chunk costs at most one half-empty tile.
constexpr int64_t kPointsPerChunk = 8192;

// The end of the tile that begins at point p: the furthest q <= end with at
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

// Header null: num_tiles[chunk] = its number of tiles. Otherwise: writes their
// first points from num_tiles[chunk - 1] on, where num_tiles holds the
// inclusive sums.
Status CutTiles(const ObservationIndexRef& index,
                const TileOptions& options,
                int32_t* num_tiles,
                TileHeader* header,
                cudaStream_t stream) {
  const int64_t num_chunks = CeilDivide(index.num_points, kPointsPerChunk);
  const auto cut_chunk = [=] __device__(int64_t chunk) {
    const auto begin = static_cast<int32_t>(chunk * kPointsPerChunk);
    const int32_t end = chunk == num_chunks - 1
                            ? index.num_points
                            : begin + static_cast<int32_t>(kPointsPerChunk);
    int32_t tile = header == nullptr || chunk == 0 ? 0 : num_tiles[chunk - 1];
    for (int32_t p = begin; p < end; ++tile) {
      if (header != nullptr) {
        header[tile].point_begin = p;
      }
      p = TileEnd(index.point_begin, p, end, options);
    }
    if (header == nullptr) {
      num_tiles[chunk] = tile;
    } else if (chunk == num_chunks - 1) {
      header[tile].point_begin = index.num_points;
    }
  };
  return ForEach("CutTiles", num_chunks, stream, cut_chunk);
}

// Tasks: segments sorted by (tile, decreasing length), the length left out
// where a tile keeps the order of its segments.
Status FillTasks(const TileIndexRef& tiles,
                 TileTask* task,
                 CudaIndexScratch* scratch,
                 CudaContext* context) {
  const int length_bits = NumBits(int64_t{tiles.segment_length});
  uint64_t* const keys = scratch->keys_in.data();
  int32_t* const values = scratch->values_in.data();
  CERES_EXT_RETURN_IF_ERROR(ForEachBlock(
      "MakeTaskKeys",
      tiles.num_tiles,
      context->stream(),
      [=] __device__(int32_t tile, int32_t thread) {
        const int32_t begin = tiles.header[tile].segment_begin;
        const int32_t end = tiles.header[tile + 1].segment_begin;
        const bool sorted = end - begin <= tiles.round_segments;
        for (int32_t g = begin + thread; g < end; g += kForEachBlock) {
          const int32_t length =
              tiles.segment[g + 1].slot_begin - tiles.segment[g].slot_begin;
          keys[g] =
              static_cast<uint64_t>(tile) << length_bits |
              static_cast<uint64_t>(sorted ? tiles.segment_length - length : 0);
          values[g] = g;
        }
      }));
  CERES_EXT_RETURN_IF_ERROR(SortPairs(tiles.num_segments,
                                      NumBits(tiles.num_tiles) + length_bits,
                                      scratch->values_out.data(),
                                      scratch,
                                      context));
  const uint64_t* const sorted_keys = scratch->keys_out.data();
  const int32_t* const order = scratch->values_out.data();
  return ForEach("FillTasks",
                 tiles.num_segments,
                 context->stream(),
                 [=] __device__(int64_t i) {
                   const int32_t g = order[i];
                   const int64_t tile = sorted_keys[i] >> length_bits;
                   task[i] = TileTask{tiles.segment[g].camera,
                                      tiles.segment[g].slot_begin,
                                      tiles.segment[g + 1].slot_begin,
                                      g - tiles.header[tile].segment_begin};
                 });
}

TileIndexRef WithoutTiles(const TileOptions& options) {
  TileIndexRef tiles;
  tiles.max_points = options.max_points;
  tiles.max_observations = options.max_observations;
  tiles.segment_length = options.segment_length;
  tiles.round_segments =
      std::max(options.max_observations / 3,
               static_cast<int32_t>(CeilDivide(options.max_observations,
                                               options.segment_length)));
  return tiles;
}

// Data per slot while the index is built.
struct TileSlots {
  int camera_bits = 0;
  DeviceBuffer<int32_t> tile_camera;  // 1 + that of the slot
  DeviceBuffer<int32_t> first_slot;   // of each tile camera
  DeviceBuffer<int32_t> segment;      // 1 + that of the slot
};

// The arrays of slots, segments and tile cameras.
struct TileArrays {
  TileHeader* header;
  TileSegment* segment;
  uint32_t* slot;
  uint32_t* position;  // null: not wanted
  const int32_t* tile_camera_id;
  int32_t* tile_camera_segment;
};

// The first points of the tiles; num_tiles: one per chunk of points.
Status MakeTiles(const ObservationIndexRef& index,
                 const TileOptions& options,
                 CudaIndexScratch* scratch,
                 CudaContext* context,
                 DeviceBuffer<int32_t>* num_tiles,
                 DeviceBuffer<TileHeader>* header,
                 TileIndexRef* view) {
  const cudaStream_t stream = context->stream();
  const int64_t num_chunks = CeilDivide(index.num_points, kPointsPerChunk);
  CERES_EXT_RETURN_IF_ERROR(num_tiles->Allocate(context, num_chunks));
  CERES_EXT_RETURN_IF_ERROR(
      CutTiles(index, options, num_tiles->data(), nullptr, stream));
  CERES_EXT_RETURN_IF_ERROR(InclusiveSum(num_chunks,
                                         num_tiles->data(),
                                         &view->num_tiles,
                                         &scratch->sort,
                                         context));
  CERES_EXT_RETURN_IF_ERROR(
      header->Allocate(context, int64_t{view->num_tiles} + 1));
  CERES_EXT_RETURN_IF_ERROR(header->SetZero());
  CERES_EXT_RETURN_IF_ERROR(
      CutTiles(index, options, num_tiles->data(), header->data(), stream));
  view->header = header->data();
  return Status();
}

// Sorts observations by (tile, camera), to scratch->keys_out and values_out;
// stable, so a camera's slots keep the order of their points.
Status SortSlots(const ObservationIndexRef& index,
                 const TileIndexRef& tiles,
                 int camera_bits,
                 CudaIndexScratch* scratch,
                 CudaContext* context) {
  const int64_t n = index.num_observations;
  const TileHeader* const header = tiles.header;
  CERES_EXT_RETURN_IF_ERROR(scratch->Reserve(n, context));
  uint64_t* const keys_in = scratch->keys_in.data();
  int32_t* const values_in = scratch->values_in.data();
  CERES_EXT_RETURN_IF_ERROR(ForEachBlock(
      "MakeTileKeys",
      tiles.num_tiles,
      context->stream(),
      [=] __device__(int32_t tile, int32_t thread) {
        const int64_t end = index.point_begin[header[tile + 1].point_begin];
        for (int64_t k = index.point_begin[header[tile].point_begin] + thread;
             k < end;
             k += kForEachBlock) {
          keys_in[k] = static_cast<uint64_t>(tile) << camera_bits |
                       static_cast<uint64_t>(index.camera_id[k]);
          values_in[k] = static_cast<int32_t>(k);
        }
      }));
  return SortPairs(n,
                   NumBits(tiles.num_tiles) + camera_bits,
                   scratch->values_out.data(),
                   scratch,
                   context);
}

// Numbers the tile cameras, of which keys and values become those of the rows
// of the cameras.
Status ListTileCameras(int64_t n,
                       CudaIndexScratch* scratch,
                       CudaContext* context,
                       TileSlots* slots,
                       DeviceBuffer<int32_t>* tile_camera_ids,
                       TileIndexRef* view) {
  const cudaStream_t stream = context->stream();
  const uint64_t* const keys = scratch->keys_out.data();
  CERES_EXT_RETURN_IF_ERROR(slots->tile_camera.Allocate(context, n));
  int32_t* const tile_camera = slots->tile_camera.data();
  CERES_EXT_RETURN_IF_ERROR(
      ForEach("FlagTileCameras", n, stream, [=] __device__(int64_t s) {
        tile_camera[s] = s == 0 || keys[s] != keys[s - 1] ? 1 : 0;
      }));
  CERES_EXT_RETURN_IF_ERROR(InclusiveSum(
      n, tile_camera, &view->num_tile_cameras, &scratch->sort, context));
  CERES_EXT_RETURN_IF_ERROR(
      slots->first_slot.Allocate(context, view->num_tile_cameras));
  CERES_EXT_RETURN_IF_ERROR(
      tile_camera_ids->Allocate(context, view->num_tile_cameras));
  const int camera_bits = slots->camera_bits;
  uint64_t* const keys_in = scratch->keys_in.data();
  int32_t* const values_in = scratch->values_in.data();
  int32_t* const first_slot = slots->first_slot.data();
  int32_t* const tile_camera_id = tile_camera_ids->data();
  view->tile_camera_id = tile_camera_id;
  return ForEach("ListTileCameras", n, stream, [=] __device__(int64_t s) {
    const int32_t c = tile_camera[s] - 1;
    if (s > 0 && tile_camera[s - 1] - 1 == c) {
      return;  // Not the first of its tile camera.
    }
    const uint64_t camera = keys[s] & ((uint64_t{1} << camera_bits) - 1);
    first_slot[c] = static_cast<int32_t>(s);
    tile_camera_id[c] = static_cast<int32_t>(camera);
    keys_in[c] = camera;
    values_in[c] = c;
  });
}

Status NumberSegments(int64_t n,
                      int32_t segment_length,
                      CudaIndexScratch* scratch,
                      CudaContext* context,
                      TileSlots* slots,
                      TileIndexRef* view) {
  CERES_EXT_RETURN_IF_ERROR(slots->segment.Allocate(context, n));
  const int32_t* const tile_camera = slots->tile_camera.data();
  const int32_t* const first_slot = slots->first_slot.data();
  int32_t* const segment_number = slots->segment.data();
  CERES_EXT_RETURN_IF_ERROR(
      ForEach("FlagSegments", n, context->stream(), [=] __device__(int64_t s) {
        const int64_t within = s - first_slot[tile_camera[s] - 1];
        segment_number[s] = within % segment_length == 0 ? 1 : 0;
      }));
  return InclusiveSum(
      n, segment_number, &view->num_segments, &scratch->sort, context);
}

// Writes everything that is per slot, segment and tile camera. Thread n writes
// the ends.
Status FillTiles(const ObservationIndexRef& index,
                 const TileIndexRef& tiles,
                 const TileSlots& slots,
                 const CudaIndexScratch& scratch,
                 const TileArrays& to,
                 cudaStream_t stream) {
  const int64_t n = index.num_observations;
  const uint64_t* const keys = scratch.keys_out.data();
  const int32_t* const place = scratch.values_out.data();
  const int camera_bits = slots.camera_bits;
  const int32_t* const tile_camera = slots.tile_camera.data();
  const int32_t* const segment_number = slots.segment.data();
  return ForEach("FillTiles", n + 1, stream, [=] __device__(int64_t s) {
    // Tiles without observations begin where the next one with some does.
    const int64_t previous_tile =
        s == 0 ? -1 : static_cast<int64_t>(keys[s - 1] >> camera_bits);
    const int64_t tile =
        s == n ? tiles.num_tiles : static_cast<int64_t>(keys[s] >> camera_bits);
    const int32_t c = s == n ? tiles.num_tile_cameras : tile_camera[s] - 1;
    const int32_t g = s == n ? tiles.num_segments : segment_number[s] - 1;
    for (int64_t t = previous_tile + 1; t <= tile; ++t) {
      to.header[t].segment_begin = g;
      to.header[t].camera_begin = c;
    }
    if (s == 0 || s == n || tile_camera[s - 1] <= c) {
      to.tile_camera_segment[c] = g;
    }
    if (s == 0 || s == n || segment_number[s - 1] <= g) {
      to.segment[g] = TileSegment{s == n ? 0 : to.tile_camera_id[c],
                                  static_cast<int32_t>(s)};
    }
    if (s == n) {
      return;
    }
    const int32_t first_point = to.header[tile].point_begin;
    const int64_t begin = index.point_begin[first_point];
    const int64_t end = index.point_begin[to.header[tile + 1].point_begin];
    if (end - begin > tiles.max_observations) {
      to.slot[s] = 0;
      return;
    }
    const int32_t k = place[s];
    to.slot[s] = static_cast<uint32_t>(index.point_id[k] - first_point) << 16 |
                 static_cast<uint32_t>(k - begin);
    if (to.position != nullptr) {
      to.position[k] = static_cast<uint32_t>(c + 1 - tile_camera[begin]) << 16 |
                       static_cast<uint32_t>(s - begin);
    }
  });
}

// Groups the tile cameras by camera.
Status GroupRows(int32_t num_tile_cameras,
                 int32_t num_cameras,
                 int camera_bits,
                 CudaIndexScratch* scratch,
                 CudaContext* context,
                 int32_t* row,
                 int32_t* row_begin) {
  CERES_EXT_RETURN_IF_ERROR(
      SortPairs(num_tile_cameras, camera_bits, row, scratch, context));
  return GroupBegins(
      num_tile_cameras, 0, num_cameras, row_begin, *scratch, context);
}

// The rest of the headers, and maxima of tiles that are not long. They are
// integers: the order of the atomics does not matter.
Status FillHeaders(const ObservationIndexRef& index,
                   TileHeader* header,
                   CudaIndexScratch* scratch,
                   cudaStream_t stream,
                   TileIndexRef* view) {
  CERES_EXT_RETURN_IF_ERROR(scratch->counts.SetZero());
  int32_t* const most = scratch->counts.data();
  const TileIndexRef tiles = *view;
  CERES_EXT_RETURN_IF_ERROR(ForEach(
      "TileHeaders", tiles.num_tiles, stream, [=] __device__(int64_t t) {
        TileHeader& h = header[t];
        const TileHeader& next = header[t + 1];
        h.num_points = next.point_begin - h.point_begin;
        h.observation_begin =
            static_cast<int32_t>(index.point_begin[h.point_begin]);
        h.num_observations =
            static_cast<int32_t>(index.point_begin[next.point_begin]) -
            h.observation_begin;
        h.num_segments = next.segment_begin - h.segment_begin;
        h.num_cameras = next.camera_begin - h.camera_begin;
        if (h.num_observations <= tiles.max_observations) {
          atomicMax(&most[0], h.num_segments);
          atomicMax(&most[1], h.num_cameras);
        }
      }));
  int32_t most_on_host[2];
  CERES_EXT_RETURN_IF_ERROR(scratch->counts.CopyToHost(most_on_host));
  view->max_tile_segments = most_on_host[0];
  view->max_tile_cameras = most_on_host[1];
  return Status();
}

}  // namespace

Status TileIndex::Build(const ObservationIndexRef& index,
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
  const int64_t n = index.num_observations;
  view_ = WithoutTiles(options);
  DeviceBuffer<int32_t> num_tiles;
  CERES_EXT_RETURN_IF_ERROR(MakeTiles(
      index, options, scratch, context, &num_tiles, &header_, &view_));
  TileSlots slots;
  slots.camera_bits = NumBits(index.num_cameras);
  CERES_EXT_RETURN_IF_ERROR(
      SortSlots(index, view_, slots.camera_bits, scratch, context));
  CERES_EXT_RETURN_IF_ERROR(
      ListTileCameras(n, scratch, context, &slots, &tile_camera_id_, &view_));
  CERES_EXT_RETURN_IF_ERROR(NumberSegments(
      n, options.segment_length, scratch, context, &slots, &view_));
  CERES_EXT_RETURN_IF_ERROR(
      segment_.Allocate(context, int64_t{view_.num_segments} + 1));
  CERES_EXT_RETURN_IF_ERROR(slot_.Allocate(context, n));
  CERES_EXT_RETURN_IF_ERROR(position_.Allocate(context, options.tasks ? 0 : n));
  CERES_EXT_RETURN_IF_ERROR(tile_camera_segment_.Allocate(
      context, int64_t{view_.num_tile_cameras} + 1));
  const TileArrays arrays{header_.data(),
                          segment_.data(),
                          slot_.data(),
                          options.tasks ? nullptr : position_.data(),
                          tile_camera_id_.data(),
                          tile_camera_segment_.data()};
  CERES_EXT_RETURN_IF_ERROR(
      FillTiles(index, view_, slots, *scratch, arrays, context->stream()));
  view_.segment = arrays.segment;
  view_.slot = arrays.slot;
  view_.position = arrays.position;
  view_.tile_camera_segment = arrays.tile_camera_segment;
  CERES_EXT_RETURN_IF_ERROR(row_.Allocate(context, view_.num_tile_cameras));
  CERES_EXT_RETURN_IF_ERROR(
      row_begin_.Allocate(context, int64_t{index.num_cameras} + 1));
  CERES_EXT_RETURN_IF_ERROR(GroupRows(view_.num_tile_cameras,
                                      index.num_cameras,
                                      slots.camera_bits,
                                      scratch,
                                      context,
                                      row_.data(),
                                      row_begin_.data()));
  view_.row_begin = row_begin_.data();
  view_.row = row_.data();
  if (options.tasks) {
    CERES_EXT_RETURN_IF_ERROR(task_.Allocate(context, view_.num_segments));
    CERES_EXT_RETURN_IF_ERROR(FillTasks(view_, task_.data(), scratch, context));
    view_.task = task_.data();
  }
  return FillHeaders(index, header_.data(), scratch, context->stream(), &view_);
}

}  // namespace ceres_ext::kernels
