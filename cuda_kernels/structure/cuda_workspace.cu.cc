// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/structure/cuda_workspace.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_sort.h"

namespace ceres_ext::kernels {

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
  }

  CERES_EXT_RETURN_IF_ERROR(
      camera_chunk_begin_.Allocate(context, num_cameras + 1));
  CERES_EXT_RETURN_IF_ERROR(camera_chunk_begin_.SetZero());
  int32_t* const chunk_end = camera_chunk_begin_.data() + 1;
  const int64_t chunk_length = CameraChunkLength(index.num_observations);
  CERES_EXT_RETURN_IF_ERROR(
      ForEach("CountChunks", num_cameras, stream, [=] __device__(int64_t c) {
        const int64_t n = index.camera_begin[c + 1] - index.camera_begin[c];
        chunk_end[c] =
            n == 0 ? 1 : static_cast<int32_t>(CeilDivide(n, chunk_length));
      }));
  CERES_EXT_RETURN_IF_ERROR(InclusiveSum(
      num_cameras, chunk_end, &view_.num_chunks, scratch, context));
  CERES_EXT_RETURN_IF_ERROR(chunk_camera_.Allocate(context, view_.num_chunks));
  int32_t* const chunk_camera = chunk_camera_.data();
  CERES_EXT_RETURN_IF_ERROR(
      ForEach("FillChunks", num_cameras, stream, [=] __device__(int64_t c) {
        for (int32_t i = chunk_end[c - 1]; i < chunk_end[c]; ++i) {
          chunk_camera[i] = static_cast<int32_t>(c);
        }
      }));
  CERES_EXT_RETURN_IF_ERROR(
      entry_point_.Allocate(context, index.num_observations));
  int32_t* const entry_point = entry_point_.data();
  CERES_EXT_RETURN_IF_ERROR(ForEach(
      "EntryPoint", index.num_observations, stream, [=] __device__(int64_t j) {
        entry_point[j] = index.point_id[index.camera_entry[j]];
      }));
  view_.chunk_camera = chunk_camera;
  view_.camera_chunk_begin = camera_chunk_begin_.data();
  view_.entry_point = entry_point;

  // Long points: flags, their sums, and the list.
  DeviceBuffer<int32_t> long_numbers;
  CERES_EXT_RETURN_IF_ERROR(long_numbers.Allocate(context, index.num_points));
  int32_t* const number = long_numbers.data();
  CERES_EXT_RETURN_IF_ERROR(ForEach(
      "FlagLongPoints", index.num_points, stream, [=] __device__(int64_t p) {
        number[p] = index.point_begin[p + 1] - index.point_begin[p] > kLongTrack
                        ? 1
                        : 0;
      }));
  CERES_EXT_RETURN_IF_ERROR(InclusiveSum(
      index.num_points, number, &view_.num_long_points, scratch, context));
  CERES_EXT_RETURN_IF_ERROR(
      long_point_.Allocate(context, view_.num_long_points));
  int32_t* const long_point = long_point_.data();
  CERES_EXT_RETURN_IF_ERROR(ForEach(
      "ListLongPoints", index.num_points, stream, [=] __device__(int64_t p) {
        if (number[p] != (p == 0 ? 0 : number[p - 1])) {
          long_point[number[p] - 1] = static_cast<int32_t>(p);
        }
      }));
  view_.long_point = long_point;

  view_.max_columns = options.max_columns;
  const int64_t chunk_values =
      NumChunkValues(view_.num_chunks, options.max_columns);
  CERES_EXT_RETURN_IF_ERROR(
      scratch_.Allocate(context,
                        NumScratchValues(view_.num_chunks,
                                         num_tile_cameras,
                                         index.num_points,
                                         options.max_columns)));
  CERES_EXT_RETURN_IF_ERROR(
      local_cameras_.Allocate(context, num_cameras * kLocalCamera));
  view_.partial = scratch_.data();
  view_.local_cameras = local_cameras_.data();
  view_.point_records = scratch_.data() + chunk_values;
  return Status();
}

}  // namespace ceres_ext::kernels
