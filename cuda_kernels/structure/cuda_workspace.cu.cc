// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/structure/cuda_workspace.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_sort.h"

namespace ceres_ext::kernels {

namespace {

// Cuts the entries of each camera into chunks.
Status CutCameraChunks(const ObservationIndexRef& index,
                       CudaIndexScratch* scratch,
                       CudaContext* context,
                       DeviceBuffer<int32_t>* camera_chunk_begin,
                       DeviceBuffer<int32_t>* chunk_cameras,
                       CudaWorkspaceRef* view) {
  const cudaStream_t stream = context->stream();
  const int64_t num_cameras = index.num_cameras;
  CERES_EXT_RETURN_IF_ERROR(
      camera_chunk_begin->Allocate(context, num_cameras + 1));
  CERES_EXT_RETURN_IF_ERROR(camera_chunk_begin->SetZero());
  int32_t* const chunk_end = camera_chunk_begin->data() + 1;
  const int64_t chunk_length = CameraChunkLength(index.num_observations);
  CERES_EXT_RETURN_IF_ERROR(
      ForEach("CountChunks", num_cameras, stream, [=] __device__(int64_t c) {
        const int64_t n = index.camera_begin[c + 1] - index.camera_begin[c];
        chunk_end[c] =
            n == 0 ? 1 : static_cast<int32_t>(CeilDivide(n, chunk_length));
      }));
  CERES_EXT_RETURN_IF_ERROR(InclusiveSum(
      num_cameras, chunk_end, &view->num_chunks, &scratch->sort, context));
  CERES_EXT_RETURN_IF_ERROR(chunk_cameras->Allocate(context, view->num_chunks));
  int32_t* const chunk_camera = chunk_cameras->data();
  view->chunk_camera = chunk_camera;
  view->camera_chunk_begin = camera_chunk_begin->data();
  return ForEach("FillChunks", num_cameras, stream, [=] __device__(int64_t c) {
    for (int32_t i = chunk_end[c - 1]; i < chunk_end[c]; ++i) {
      chunk_camera[i] = static_cast<int32_t>(c);
    }
  });
}

// entry_point[j] = the point of entry j of the cameras.
Status FillEntryPoints(const ObservationIndexRef& index,
                       int32_t* entry_point,
                       cudaStream_t stream) {
  return ForEach(
      "EntryPoint", index.num_observations, stream, [=] __device__(int64_t j) {
        entry_point[j] = index.point_id[index.camera_entry[j]];
      });
}

// Lists the points of more than kLongTrack observations; numbers: scratch.
Status ListLongPoints(const ObservationIndexRef& index,
                      CudaIndexScratch* scratch,
                      CudaContext* context,
                      DeviceBuffer<int32_t>* numbers,
                      DeviceBuffer<int32_t>* long_points,
                      CudaWorkspaceRef* view) {
  const cudaStream_t stream = context->stream();
  CERES_EXT_RETURN_IF_ERROR(numbers->Allocate(context, index.num_points));
  int32_t* const number = numbers->data();
  CERES_EXT_RETURN_IF_ERROR(ForEach(
      "FlagLongPoints", index.num_points, stream, [=] __device__(int64_t p) {
        number[p] = index.point_begin[p + 1] - index.point_begin[p] > kLongTrack
                        ? 1
                        : 0;
      }));
  CERES_EXT_RETURN_IF_ERROR(InclusiveSum(index.num_points,
                                         number,
                                         &view->num_long_points,
                                         &scratch->sort,
                                         context));
  CERES_EXT_RETURN_IF_ERROR(
      long_points->Allocate(context, view->num_long_points));
  int32_t* const long_point = long_points->data();
  view->long_point = long_point;
  return ForEach(
      "ListLongPoints", index.num_points, stream, [=] __device__(int64_t p) {
        if (number[p] != (p == 0 ? 0 : number[p - 1])) {
          long_point[number[p] - 1] = static_cast<int32_t>(p);
        }
      });
}

// True if two entries have the same camera and point.
__device__ __forceinline__ bool IsSamePair(const ObservationIndexRef& index,
                                           const int32_t* entry_point,
                                           int64_t a,
                                           int64_t b) {
  return entry_point[a] == entry_point[b] &&
         index.camera_id[index.camera_entry[a]] ==
             index.camera_id[index.camera_entry[b]];
}

// Lists the runs of more than kLongRepeat entries of a camera and a point.
Status ListLongRepeats(const ObservationIndexRef& index,
                       const int32_t* entry_point,
                       CudaIndexScratch* scratch,
                       CudaContext* context,
                       DeviceBuffer<int64_t>* begins,
                       DeviceBuffer<int64_t>* ends,
                       LongRepeats* repeats) {
  const int64_t n = index.num_observations;
  const cudaStream_t stream = context->stream();
  DeviceBuffer<int32_t> numbers;
  CERES_EXT_RETURN_IF_ERROR(numbers.Allocate(context, n));
  int32_t* const number = numbers.data();
  CERES_EXT_RETURN_IF_ERROR(
      ForEach("FlagLongRepeats", n, stream, [=] __device__(int64_t j) {
        // Entries of a camera are sorted by point.
        const bool is_first =
            j == 0 || !IsSamePair(index, entry_point, j - 1, j);
        const bool is_long = j + kLongRepeat < n &&
                             IsSamePair(index, entry_point, j, j + kLongRepeat);
        number[j] = is_first && is_long ? 1 : 0;
      }));
  CERES_EXT_RETURN_IF_ERROR(
      InclusiveSum(n, number, &repeats->num_repeats, &scratch->sort, context));
  CERES_EXT_RETURN_IF_ERROR(begins->Allocate(context, repeats->num_repeats));
  CERES_EXT_RETURN_IF_ERROR(ends->Allocate(context, repeats->num_repeats));
  repeats->begin = begins->data();
  repeats->end = ends->data();
  if (repeats->num_repeats == 0) {
    return Status();
  }
  int64_t* const begin = begins->data();
  int64_t* const end = ends->data();
  return ForEach("ListLongRepeats", n, stream, [=] __device__(int64_t j) {
    if (number[j] == (j == 0 ? 0 : number[j - 1])) {
      return;
    }
    const int64_t camera = index.camera_id[index.camera_entry[j]];
    int64_t low = j;
    int64_t high = index.camera_begin[camera + 1];
    while (low < high) {  // The first entry of a later point.
      const int64_t middle = (low + high) / 2;
      if (entry_point[middle] > entry_point[j]) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    begin[number[j] - 1] = j;
    end[number[j] - 1] = low;
  });
}

}  // namespace

Status CudaWorkspace::Setup(const ObservationIndexRef& index,
                            const Options& options,
                            CudaIndexScratch* scratch,
                            CudaContext* context) {
  const int64_t num_cameras = index.num_cameras;
  view_ = CudaWorkspaceRef();
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
    view_.recomputed_tiles = recomputed_tiles_.ref();
    num_tile_cameras = view_.recomputed_tiles.num_tile_cameras;
  }
  if (options.stored_tiles) {
    CERES_EXT_RETURN_IF_ERROR(
        stored_tiles_.Build(index, options.stored, scratch, context));
    view_.stored_tiles = stored_tiles_.ref();
    num_tile_cameras = std::max(num_tile_cameras,
                                int64_t{view_.stored_tiles.num_tile_cameras});
  }

  CERES_EXT_RETURN_IF_ERROR(CutCameraChunks(
      index, scratch, context, &camera_chunk_begin_, &chunk_camera_, &view_));
  CERES_EXT_RETURN_IF_ERROR(
      entry_point_.Allocate(context, index.num_observations));
  int32_t* const entry_point = entry_point_.data();
  CERES_EXT_RETURN_IF_ERROR(
      FillEntryPoints(index, entry_point, context->stream()));
  view_.entry_point = entry_point;
  DeviceBuffer<int32_t> numbers;
  CERES_EXT_RETURN_IF_ERROR(
      ListLongPoints(index, scratch, context, &numbers, &long_point_, &view_));
  view_.long_repeats = LongRepeats();
  if (view_.num_long_points > 0) {  // kLongTrack is no more than kLongRepeat.
    CERES_EXT_RETURN_IF_ERROR(ListLongRepeats(index,
                                              entry_point,
                                              scratch,
                                              context,
                                              &repeat_begin_,
                                              &repeat_end_,
                                              &view_.long_repeats));
  }
  CERES_EXT_RETURN_IF_ERROR(
      repeat_w_.Allocate(context,
                         int64_t{view_.long_repeats.num_repeats} *
                             options.max_columns * BalShape<9>::kE));
  view_.long_repeats.w = repeat_w_.data();
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
