// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/structure/cuda_workspace.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_sort.h"

namespace ceres_ext::kernels {
namespace {

constexpr int kBlockSize = 256;

// num_chunks[c] = chunks of camera c. One thread per camera.
__global__ void CountChunksKernel(ObservationIndexView index,
                                  int32_t* num_chunks) {
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= index.num_cameras) {
    return;  // No barrier follows.
  }
  const int64_t n = index.camera_begin[c + 1] - index.camera_begin[c];
  num_chunks[c] =
      n == 0 ? 1 : static_cast<int32_t>((n + kCameraChunk - 1) / kCameraChunk);
}

// end[c] holds the inclusive sums of the counts.
__global__ void FillChunksKernel(int32_t num_cameras,
                                 const int32_t* end,
                                 int32_t* chunk_camera) {
  const int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (c >= num_cameras) {
    return;  // No barrier follows.
  }
  for (int32_t i = c == 0 ? 0 : end[c - 1]; i < end[c]; ++i) {
    chunk_camera[i] = static_cast<int32_t>(c);
  }
}

__global__ void EntryPointKernel(ObservationIndexView index,
                                 int32_t* entry_point) {
  const int64_t j = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (j >= index.num_observations) {
    return;  // No barrier follows.
  }
  entry_point[j] = index.point_id[index.camera_entry[j]];
}

// One block per tile: inverts `slot` and notes the camera within the tile.
__global__ void StoredPositionKernel(ObservationIndexView index,
                                     TileIndexView tiles,
                                     uint32_t* position) {
  const int32_t* point_begin = tiles.tile_point_begin + blockIdx.x;
  const int64_t begin = index.point_begin[point_begin[0]];
  const int64_t end = index.point_begin[point_begin[1]];
  if (end - begin > tiles.max_observations) {
    return;  // A long tile has no use for it; no barrier follows.
  }
  const int32_t first_camera = tiles.tile_camera_begin[blockIdx.x];
  const int32_t end_camera = tiles.tile_camera_begin[blockIdx.x + 1];
  for (int32_t c = first_camera + static_cast<int32_t>(threadIdx.x);
       c < end_camera;
       c += static_cast<int32_t>(blockDim.x)) {
    const int32_t slot_begin =
        tiles.segment[tiles.tile_camera_segment[c]].slot_begin;
    const int32_t slot_end =
        tiles.segment[tiles.tile_camera_segment[c + 1]].slot_begin;
    for (int32_t s = slot_begin; s < slot_end; ++s) {
      position[begin + (tiles.slot[s] & 0xffff)] =
          static_cast<uint32_t>(c - first_camera) << 16 |
          static_cast<uint32_t>(s - begin);
    }
  }
}

}  // namespace

Status CudaWorkspace::ListLongPoints(const ObservationIndexView& index,
                                     CudaIndexScratch* scratch,
                                     CudaContext* context) {
  // Room for as many as there can be.
  CERES_EXT_RETURN_IF_ERROR(
      long_point_.Allocate(context, index.num_observations / (kLongTrack + 1)));
  CERES_EXT_RETURN_IF_ERROR(scratch->counts.Allocate(context, 1));
  CERES_EXT_RETURN_IF_ERROR(SelectLongGroups(index.point_begin,
                                             index.num_points,
                                             kLongTrack,
                                             long_point_.data(),
                                             scratch->counts.data(),
                                             &scratch->sort,
                                             context));
  view_.long_point = long_point_.data();
  return scratch->counts.CopyToHost(&view_.num_long_points);
}

Status CudaWorkspace::Setup(const ObservationIndexView& index,
                            const Options& options,
                            CudaIndexScratch* scratch,
                            CudaContext* context) {
  const cudaStream_t stream = context->stream();
  const int64_t num_cameras = index.num_cameras;
  view_ = CudaWorkspaceView();
  index_ = index;
  index_.cuda_workspace = &view_;
  int64_t num_tile_cameras = 0;
  if (options.recomputed_tiles) {
    TileOptions tiles = options.recomputed;
    while (RecomputedTileBytes(tiles) > context->shared_memory_per_block() &&
           tiles.max_observations > 256) {
      tiles.max_observations -= 256;
    }
    CERES_EXT_RETURN_IF_ERROR(
        recomputed_tiles_.Build(index, tiles, scratch, context));
    view_.recomputed_tiles = recomputed_tiles_.view();
    num_tile_cameras = view_.recomputed_tiles.num_tile_cameras;
  }
  if (options.stored_tiles) {
    CERES_EXT_RETURN_IF_ERROR(
        stored_tiles_.Build(index, options.stored, scratch, context));
    view_.stored_tiles = stored_tiles_.view();
    num_tile_cameras = std::max(num_tile_cameras,
                                int64_t{view_.stored_tiles.num_tile_cameras});
    CERES_EXT_RETURN_IF_ERROR(
        stored_position_.Allocate(context, index.num_observations));
    CERES_EXT_RETURN_IF_ERROR(Launch("StoredPosition",
                                     StoredPositionKernel,
                                     view_.stored_tiles.num_tiles,
                                     128,
                                     0,
                                     stream,
                                     index,
                                     view_.stored_tiles,
                                     stored_position_.data()));
    view_.stored_position = stored_position_.data();
  }

  CERES_EXT_RETURN_IF_ERROR(
      camera_chunk_begin_.Allocate(context, num_cameras + 1));
  CERES_EXT_RETURN_IF_ERROR(camera_chunk_begin_.SetZero());
  int32_t* chunk_end = camera_chunk_begin_.data() + 1;
  CERES_EXT_RETURN_IF_ERROR(Launch("CountChunks",
                                   CountChunksKernel,
                                   CeilDivide(num_cameras, kBlockSize),
                                   kBlockSize,
                                   0,
                                   stream,
                                   index,
                                   chunk_end));
  CERES_EXT_RETURN_IF_ERROR(
      InclusiveSum(chunk_end, chunk_end, num_cameras, &scratch->sort, context));
  CERES_EXT_RETURN_IF_ERROR(
      context->CopyToHost(&view_.num_chunks,
                          camera_chunk_begin_.data() + num_cameras,
                          sizeof(int32_t)));
  CERES_EXT_RETURN_IF_ERROR(chunk_camera_.Allocate(context, view_.num_chunks));
  CERES_EXT_RETURN_IF_ERROR(Launch("FillChunks",
                                   FillChunksKernel,
                                   CeilDivide(num_cameras, kBlockSize),
                                   kBlockSize,
                                   0,
                                   stream,
                                   index.num_cameras,
                                   chunk_end,
                                   chunk_camera_.data()));
  CERES_EXT_RETURN_IF_ERROR(
      entry_point_.Allocate(context, index.num_observations));
  CERES_EXT_RETURN_IF_ERROR(
      Launch("EntryPoint",
             EntryPointKernel,
             CeilDivide(index.num_observations, kBlockSize),
             kBlockSize,
             0,
             stream,
             index,
             entry_point_.data()));
  view_.chunk_camera = chunk_camera_.data();
  view_.camera_chunk_begin = camera_chunk_begin_.data();
  view_.entry_point = entry_point_.data();

  CERES_EXT_RETURN_IF_ERROR(ListLongPoints(index, scratch, context));

  CERES_EXT_RETURN_IF_ERROR(
      partial_.Allocate(context,
                        std::max(int64_t{view_.num_chunks} * kMaxRow,
                                 num_tile_cameras * LargestShape::kF)));
  CERES_EXT_RETURN_IF_ERROR(local_cameras_.Allocate(context, num_cameras * 24));
  CERES_EXT_RETURN_IF_ERROR(point_records_.Allocate(
      context, int64_t{CudaWorkspace::kPointRecord} * index.num_points));
  view_.partial = partial_.data();
  view_.local_cameras = local_cameras_.data();
  view_.point_records = point_records_.data();
  return Status();
}

}  // namespace ceres_ext::kernels
