// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Which camera sees which point, grouped by point and by camera.
//
//   ObservationIndex index;
//   Status status = index.Build({num_cameras, num_points, n, camera, point});
//   const ObservationIndexRef view = index.ref();
//
// Observations are sorted by (point, camera, input position). The place k of an
// observation in that order is its place in every array with one block per
// observation, so residual and Jacobian of a point lie together. Cameras list
// the places of their observations, ascending.
//
// Pairs may repeat; cameras and points may have no observation.
#ifndef CERES_EXT_CUDA_KERNELS_STRUCTURE_OBSERVATION_INDEX_H_
#define CERES_EXT_CUDA_KERNELS_STRUCTURE_OBSERVATION_INDEX_H_

#include <cstdint>

#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/base/status.h"

namespace ceres_ext::kernels {

class HostWorkspace;
struct CudaWorkspaceRef;

// The input of an index: one camera and one point per observation, in any
// order, in the memory of its builder.
struct ObservationPairs {
  int32_t num_cameras = 0;
  int32_t num_points = 0;
  int64_t num_observations = 0;
  const int32_t* camera = nullptr;
  const int32_t* point = nullptr;
};

// Passed to kernels by value; owns nothing.
struct ObservationIndexRef {
  int32_t num_cameras = 0;
  int32_t num_points = 0;
  int64_t num_observations = 0;

  // Observations of point p are the places point_begin[p] ..
  // point_begin[p + 1] - 1.
  const int64_t* point_begin = nullptr;  // num_points + 1
  const int32_t* camera_id = nullptr;    // num_observations
  const int32_t* point_id = nullptr;     // num_observations

  // Observations of camera c are the places camera_entry[j],
  // camera_begin[c] <= j < camera_begin[c + 1], ascending.
  const int64_t* camera_begin = nullptr;  // num_cameras + 1
  const int32_t* camera_entry = nullptr;  // num_observations, and input_id()

  // How the machine that the index is for cuts its work; in host memory.
  union {
    HostWorkspace* host_workspace = nullptr;
    const CudaWorkspaceRef* cuda_workspace;
  };

  // The position of observation k in the caller's order. No kernel asks, so it
  // has no address of its own: it follows camera_entry in memory.
  const int32_t* input_id() const { return camera_entry + num_observations; }
};
// Parameters of kernels are copied for each launch: an index of 80 bytes made
// one that is bound by memory 3 % slower.
static_assert(sizeof(ObservationIndexRef) <= 64);

// The index in host memory. Building takes linear time (counting sorts) and one
// thread; the result depends on the input alone.
class ObservationIndex {
 public:
  // kInvalidArgument: a negative size, or an id out of range; the message names
  // the first one. kUnsupported: more than 2^31 - 1 observations. On an error
  // the index is empty. account: of memory (HostBuffer::Allocate).
  Status Build(const ObservationPairs& pairs, int64_t* account = nullptr);

  // Valid until the next Build or the end of the object.
  const ObservationIndexRef& ref() const { return view_; }

 private:
  ObservationIndexRef view_;
  HostBuffer<int64_t> point_begin_;
  HostBuffer<int32_t> camera_id_;
  HostBuffer<int32_t> point_id_;
  HostBuffer<int64_t> camera_begin_;
  HostBuffer<int32_t> camera_entry_;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_STRUCTURE_OBSERVATION_INDEX_H_
