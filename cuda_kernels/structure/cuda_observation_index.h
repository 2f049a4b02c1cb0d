// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The observation index (observation_index.h) built on the device, with the
// same bits as the host's, and the order of points that makes tiles
// (tile_index.h) of few cameras.
//
// Both sorts are stable radix sorts over the bits in use, every sum is of
// integers: the result does not depend on the run.
#ifndef CERES_EXT_CUDA_KERNELS_STRUCTURE_CUDA_OBSERVATION_INDEX_H_
#define CERES_EXT_CUDA_KERNELS_STRUCTURE_CUDA_OBSERVATION_INDEX_H_

#include <cstdint>

#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_context.h"
#include "cuda_kernels/machine/cuda_sort.h"
#include "cuda_kernels/machine/device_buffer.h"
#include "cuda_kernels/structure/observation_index.h"

namespace ceres_ext::kernels {

class CudaObservationIndex {
 public:
  // pairs: in device memory. kInvalidArgument names the first observation out
  // of range. Waits for the stream once, to know that.
  Status Build(const ObservationPairs& pairs,
               CudaIndexScratch* scratch,
               CudaContext* context);

  // Like Build, with points that are renumbered in the order of
  // OrderPointsByCamera: point i of the index is the caller's point
  // point_order[i]. point_order: device memory, num_points, written.
  // new_points: the new numbers of pairs.point, which may be the same memory.
  Status BuildOrdered(const ObservationPairs& pairs,
                      int32_t* new_points,
                      int32_t* point_order,
                      CudaIndexScratch* scratch,
                      CudaContext* context);

  // Valid as long as this object lives and is not built again.
  const ObservationIndexRef& ref() const { return view_; }

 private:
  ObservationIndexRef view_;
  DeviceBuffer<int64_t> point_begin_;
  DeviceBuffer<int64_t> camera_begin_;
  DeviceBuffer<int32_t> camera_id_;
  DeviceBuffer<int32_t> point_id_;
  DeviceBuffer<int32_t> camera_entry_;
};

// The place of cell (x, y) of a grid of 2^bits x 2^bits cells on Hilbert's
// curve through them (Hilbert 1891), from (0, 0) to (2^bits - 1, 0):
// consecutive cells share a side, so cells close on the curve are close in the
// grid.
CERES_EXT_HOST_DEVICE inline uint64_t HilbertIndex(uint32_t x,
                                                   uint32_t y,
                                                   int bits) {
  uint64_t index = 0;
  for (int i = bits - 1; i >= 0; --i) {
    const uint32_t right = x >> i & 1u;
    const uint32_t up = y >> i & 1u;
    index = index << 2 | ((3u * right) ^ up);
    if (up == 0) {
      // The lower quarters are mirrored at a diagonal.
      const uint32_t flip = 0u - right;
      const uint32_t swapped = x ^ flip;
      x = y ^ flip;
      y = swapped;
    }
  }
  return index;
}

// An order of the points in which neighbours are seen by the same cameras:
// along Hilbert's curve through the pairs (first camera, last camera), in cells
// of kPointOrderGroup cameras each way, then by decreasing number of
// observations, so that the threads of a warp sum equally long points. Points
// without observations come last.
//   point_order[r]: the point of rank r; point_rank: its inverse.
// Both in device memory, num_points each (docs/measurements/gpu.md).
inline constexpr int kPointOrderGroup = 4;
Status OrderPointsByCamera(const ObservationIndexRef& index,
                           int32_t* point_order,
                           int32_t* point_rank,
                           CudaIndexScratch* scratch,
                           CudaContext* context);

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_STRUCTURE_CUDA_OBSERVATION_INDEX_H_
