// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Tiles: runs of consecutive points that one block of threads works on, with
// what the block needs to touch each observation once and yet sum in a fixed
// order over points and over cameras.
//
//   points of a tile       from header[t].point_begin on, header[t].num_points
//   their observations     consecutive, since observations are sorted by point
//   slots of a tile        the same observations sorted by (camera, point,
//                          input); slot s of the tile is number
//                          point_begin[first point] + s over all tiles
//   segment                up to segment_length consecutive slots of one
//                          camera: the work of one thread
//   tasks of a tile        its segments in the order in which threads take
//                          them: by decreasing length, so that the threads of a
//                          warp end together; tiles of more than round_segments
//                          keep the order of the segments
//   tile camera            all segments of one camera in the tile; sums over
//                          them are stored one row per tile camera
//   rows of a camera       its tile cameras in ascending order; a second kernel
//                          adds them
//
// A tile holds at most max_points points and max_observations observations. A
// point with more observations than that is a tile of its own, a *long tile*.
//
// POD of device pointers, passed by value.
#ifndef CERES_EXT_CUDA_KERNELS_STRUCTURE_TILE_INDEX_H_
#define CERES_EXT_CUDA_KERNELS_STRUCTURE_TILE_INDEX_H_

#include <cstdint>

#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_context.h"
#include "cuda_kernels/machine/cuda_sort.h"
#include "cuda_kernels/machine/device_buffer.h"
#include "cuda_kernels/structure/observation_index.h"

namespace ceres_ext::kernels {

struct TileOptions {
  int32_t max_points = 256;         // At most 65536.
  int32_t max_observations = 1024;  // At most 65536.
  int32_t segment_length = 4;
  bool tasks = true;  // whether they are wanted, or positions
};

// Bytes of shared memory that a tile of recomputed Jacobians takes at most
// (cuda/recomputed_tiles.cuh) in double, with segments of 3 or more: products
// and 3-vectors of the observations, positions and motions of the points.
inline int64_t RecomputedTileBytes(const TileOptions& options) {
  return 8 * (int64_t{5} * options.max_observations +
              int64_t{6} * options.max_points);
}

struct TileSegment {
  int32_t camera;
  int32_t slot_begin;  // Ends where the next segment begins.
};

// A segment as a thread asks for it, in one access.
struct alignas(16) TileTask {
  int32_t camera;
  int32_t slot_begin;
  int32_t slot_end;
  int32_t segment;  // within the tile
};

// All that a block asks first, in one access of 32 bytes.
struct alignas(16) TileHeader {
  int32_t point_begin;
  int32_t num_points;
  int32_t observation_begin;  // of observations and of slots
  int32_t num_observations;
  int32_t segment_begin;
  int32_t num_segments;
  int32_t camera_begin;  // of tile cameras
  int32_t num_cameras;
};

struct TileIndexRef {
  int32_t num_tiles = 0;
  int32_t num_segments = 0;
  int32_t num_tile_cameras = 0;
  int32_t max_points = 0;
  int32_t max_observations = 0;
  int32_t segment_length = 0;
  // A block sums the segments of a tile over its cameras in rounds of at most
  // this many, so that tiles of scattered points need no more shared memory
  // than others: as many 9-vectors as there is room for 3-vectors of
  // observations, and at least all segments of one camera.
  int32_t round_segments = 0;
  // Most segments and tile cameras in a tile that is not long.
  int32_t max_tile_segments = 0;
  int32_t max_tile_cameras = 0;

  // [num_tiles + 1]; of the last one, the begins. Null: there are no tiles.
  const TileHeader* header = nullptr;
  const TileSegment* segment = nullptr;  // [num_segments + 1]
  const TileTask* task = nullptr;        // [num_segments] or null
  // Per slot: point within the tile << 16 | observation within the tile in
  // point order. In a long tile: 0, since its only point is point 0 and its
  // observations are slots in both orders.
  const uint32_t* slot = nullptr;  // [num_observations]
  // Per observation: tile camera within the tile << 16 | slot within the tile.
  // Not for long tiles; null if there are tasks.
  const uint32_t* position = nullptr;            // [num_observations]
  const int32_t* tile_camera_id = nullptr;       // [num_tile_cameras]
  const int32_t* tile_camera_segment = nullptr;  // [num_tile_cameras + 1]
  const int32_t* row_begin = nullptr;            // [num_cameras + 1]
  const int32_t* row = nullptr;                  // [num_tile_cameras]
};

class TileIndex {
 public:
  // index: in device memory. Waits for the stream, to learn the sizes.
  Status Build(const ObservationIndexRef& index,
               const TileOptions& options,
               CudaIndexScratch* scratch,
               CudaContext* context);

  // Valid as long as this object lives and is not built again.
  const TileIndexRef& ref() const { return view_; }

 private:
  TileIndexRef view_;
  DeviceBuffer<TileHeader> header_;
  DeviceBuffer<TileSegment> segment_;
  DeviceBuffer<TileTask> task_;
  DeviceBuffer<uint32_t> slot_;
  DeviceBuffer<uint32_t> position_;
  DeviceBuffer<int32_t> tile_camera_id_;
  DeviceBuffer<int32_t> tile_camera_segment_;
  DeviceBuffer<int32_t> row_begin_;
  DeviceBuffer<int32_t> row_;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_STRUCTURE_TILE_INDEX_H_
