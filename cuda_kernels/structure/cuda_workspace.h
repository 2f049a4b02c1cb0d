// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// How a device cuts an index into tiles of points and chunks of cameras, and
// scratch for sums. HostWorkspace for the device.
//
//   CudaWorkspace workspace;
//   Status status = workspace.Setup(index, {}, &scratch, &context);
//   params.index = workspace.index();
//
// A device body sums over cameras in two steps of fixed order: per tile and
// camera (tile_index.h) or per *camera chunk*, then over the tiles or chunks of
// a camera. A camera chunk is up to CameraChunkLength consecutive entries of
// one camera; every camera has at least one, so that the sums of a camera
// without observations are written as well.
//
// The view is a POD of device pointers. One stream uses a workspace at a time.
// All memory is taken by Setup.
#ifndef CERES_EXT_CUDA_KERNELS_STRUCTURE_CUDA_WORKSPACE_H_
#define CERES_EXT_CUDA_KERNELS_STRUCTURE_CUDA_WORKSPACE_H_

#include <algorithm>
#include <cstdint>

#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_context.h"
#include "cuda_kernels/machine/cuda_sort.h"
#include "cuda_kernels/machine/device_buffer.h"
#include "cuda_kernels/model/shape.h"
#include "cuda_kernels/structure/observation_index.h"
#include "cuda_kernels/structure/tile_index.h"

namespace ceres_ext::kernels {

// Two forms of tile, see cuda/recomputed_tiles.cuh and cuda/stored_tiles.cuh.
// Measurements: docs/measurements/gpu.md.
inline constexpr TileOptions kRecomputedTiles{256, 1536, 7};
inline constexpr TileOptions kRecomputedFloatTiles{256, 1280, 7};
inline constexpr TileOptions kStoredTiles{256, 256, 256, false};

// Measurement: docs/measurements/gpu.md.
inline constexpr int kLongTrack = 64;

// Runs of more than so many entries of a camera that have one point: W of the
// run is a sum that is formed once, where each entry of a shorter one goes
// through the others.
inline constexpr int kLongRepeat = 64;

// For each of them, ascending: the first of its entries, the end, and W.
struct LongRepeats {
  int32_t num_repeats = 0;
  const int64_t* begin = nullptr;  // [num_repeats]
  const int64_t* end = nullptr;    // [num_repeats]
  double* w = nullptr;             // scratch: the F x E values of each

  // The one that has entry j; -1: none has.
  CERES_EXT_HOST_DEVICE int32_t Find(int64_t j) const {
    int32_t low = 0;
    int32_t high = num_repeats;
    while (low < high) {
      const int32_t middle = (low + high) / 2;
      if (begin[middle] <= j) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low > 0 && j < end[low - 1] ? low - 1 : -1;
  }
};

struct CudaWorkspaceRef {
  TileIndexRef recomputed_tiles;
  TileIndexRef stored_tiles;

  int32_t num_chunks = 0;
  const int32_t* chunk_camera = nullptr;        // [num_chunks]
  const int32_t* camera_chunk_begin = nullptr;  // [num_cameras + 1]
  const int32_t* entry_point = nullptr;         // point of camera_entry[j]

  // Points of more than kLongTrack observations, ascending: a warp sums each of
  // them, where a thread sums one of the others.
  int32_t num_long_points = 0;
  const int32_t* long_point = nullptr;  // [num_long_points]
  LongRepeats long_repeats;

  // Scratch, which holds nothing from one operation to the next. partial: one
  // row of a block, packed, and a vector per chunk, or one of a vector per tile
  // camera, for up to max_columns columns. The rows of tile cameras lie where
  // chunks and records of points do: an operation that has written records sums
  // over tiles only when it needs them no more.
  int max_columns = 0;
  double* partial = nullptr;
  double* local_cameras = nullptr;  // CameraRecord, kLocalCamera per camera
  double* point_records = nullptr;  // PointRecord, kPointRecord per point
};

class CudaWorkspace {
 public:
  // Vi and a vector per point (camera_chunks.cuh), in whole 16 bytes.
  static constexpr int kPointRecord =
      (BalShape<9>::kPackedE + BalShape<9>::kE + 1) / 2 * 2;
  static constexpr int kLocalCamera = 24;

  // Values of scratch that chunks take, in whole 16 bytes, and all of it.
  static constexpr int64_t NumChunkValues(int64_t num_chunks, int max_columns) {
    return (num_chunks * (PackedSize(max_columns) + max_columns) + 1) / 2 * 2;
  }
  static constexpr int64_t NumScratchValues(int64_t num_chunks,
                                            int64_t num_tile_cameras,
                                            int64_t num_points,
                                            int max_columns) {
    return std::max(
        NumChunkValues(num_chunks, max_columns) + kPointRecord * num_points,
        num_tile_cameras * max_columns);
  }

  struct Options {
    // Which tiles are made. Without them the bodies that need them return
    // kInvalidArgument.
    bool recomputed_tiles = true;
    bool stored_tiles = true;
    // With fewer observations where a block can't have that much shared memory.
    TileOptions recomputed = kRecomputedTiles;
    TileOptions stored = kStoredTiles;
    // True if points keep their numbers (row_index.h).
    bool keep_point_order = false;
    // True if the pairs are on the device (row_index.h).
    bool cameras_on_device = false;
    bool points_on_device = false;
    // The most columns of a camera that scratch is made for.
    int max_columns = kMaxCameraColumns;

    // The best choice for a Jacobian that is recomputed or stored, in float or
    // in double.
    static Options For(bool recomputed, bool in_float) {
      Options options;
      options.recomputed_tiles = recomputed;
      options.stored_tiles = !recomputed;
      options.recomputed = in_float ? kRecomputedFloatTiles : kRecomputedTiles;
      return options;
    }
  };

  CudaWorkspace() = default;
  CudaWorkspace(const CudaWorkspace&) = delete;
  CudaWorkspace& operator=(const CudaWorkspace&) = delete;

  // index: in device memory. Its views must outlive the workspace, and the
  // workspace its own index().
  Status Setup(const ObservationIndexRef& index,
               const Options& options,
               CudaIndexScratch* scratch,
               CudaContext* context);

  const CudaWorkspaceRef& ref() const { return view_; }
  // The index, with this workspace.
  const ObservationIndexRef& index() const { return index_; }

 private:
  ObservationIndexRef index_;
  CudaWorkspaceRef view_;
  TileIndex recomputed_tiles_;
  TileIndex stored_tiles_;
  DeviceBuffer<int32_t> chunk_camera_;
  DeviceBuffer<int32_t> camera_chunk_begin_;
  DeviceBuffer<int32_t> entry_point_;
  DeviceBuffer<int32_t> long_point_;
  DeviceBuffer<int64_t> repeat_begin_;
  DeviceBuffer<int64_t> repeat_end_;
  DeviceBuffer<double> repeat_w_;
  DeviceBuffer<double> scratch_;
  DeviceBuffer<double> local_cameras_;
};

// Entries per camera chunk: at most 4096, and as few as 256 where there would
// be less than 512 chunks. Measurement: docs/measurements/doors.md.
CERES_EXT_HOST_DEVICE constexpr int64_t CameraChunkLength(
    int64_t num_observations) {
  int64_t length = 4096;
  while (length > 256 && num_observations / length < 512) {
    length /= 2;
  }
  return length;
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_STRUCTURE_CUDA_WORKSPACE_H_
