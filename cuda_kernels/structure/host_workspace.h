// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// How the host cuts the points of an index into chunks, and scratch for sums.
//
//   HostWorkspace workspace;
//   Status status = workspace.Setup(index.ref(), &machine);
//   params.index = workspace.index();
//
// A host body reads each Jacobian block once, in point order, one chunk of
// points per task. Sums over the observations of a camera are kept per chunk
// and camera, in a *slot*; then the slots of a camera are added in the order of
// the chunks. Chunks depend on the index alone, so every sum has a fixed order
// for any number of threads.
//
// One call uses a workspace at a time, as for its machine. All memory is taken
// by Setup and ReserveCameraSums.
#ifndef CERES_EXT_CUDA_KERNELS_STRUCTURE_HOST_WORKSPACE_H_
#define CERES_EXT_CUDA_KERNELS_STRUCTURE_HOST_WORKSPACE_H_

#include <cstdint>

#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/model/shape.h"
#include "cuda_kernels/structure/observation_index.h"

namespace ceres_ext::kernels {

class HostWorkspace {
 public:
  // Residuals of an observation at most: those of a direction.
  static constexpr int kMostResiduals = 3;
  // Scratch values per observation of a point: a residual, and two blocks.
  static constexpr int PointScratch(int columns) {
    return kMostResiduals * (1 + BalShape<9>::kE + columns);
  }

  // Cuts the points of the index into chunks and makes room for the sums of one
  // vector per camera, of up to max_columns columns. The views of the index
  // must outlive the workspace, and the workspace its own index().
  Status Setup(const ObservationIndexRef& index,
               HostMachine* machine,
               int max_columns = kMaxCameraColumns);

  // Makes room for row_size sums per slot, where an operation asks for it.
  Status ReserveCameraSums(int row_size);

  // The index, with this workspace.
  const ObservationIndexRef& index() const { return index_; }

  int64_t num_chunks() const { return num_chunks_; }
  // Chunk i owns points chunk_begin()[i] .. chunk_begin()[i + 1] - 1 and slots
  // slot_begin()[i] .. slot_begin()[i + 1] - 1.
  const int32_t* chunk_begin() const { return chunk_begin_.data(); }
  const int32_t* slot_begin() const { return slot_begin_.data(); }
  int64_t num_slots() const { return camera_slot_.size(); }
  // The slot of observation k.
  const int32_t* observation_slot() const { return observation_slot_.data(); }
  // The slots of camera c are camera_slot()[j],
  // camera_slot_begin()[c] <= j < camera_slot_begin()[c + 1], ascending.
  const int32_t* camera_slot_begin() const { return camera_slot_begin_.data(); }
  const int32_t* camera_slot() const { return camera_slot_.data(); }

  // Scratch. num_slots rows of the reserved size.
  double* camera_sums() { return camera_sums_.data(); }
  // PointScratch values per observation of the longest point, per thread.
  double* point_scratch(int thread) {
    return point_scratch_.data() + thread * point_scratch_stride_;
  }
  // kBalLocalCameraDim values per camera, see host_jacobian.h.
  double* local_cameras() { return local_cameras_.data(); }
  // Two values per chunk of points.
  double* chunk_sums() { return chunk_sums_.data(); }

 private:
  Status CutIntoChunks(const ObservationIndexRef& index);
  Status AssignSlots(const ObservationIndexRef& index);

  HostMachine* machine_ = nullptr;
  ObservationIndexRef index_;
  int64_t num_chunks_ = 0;
  int64_t point_scratch_stride_ = 0;
  HostBuffer<int32_t> chunk_begin_;
  HostBuffer<int32_t> slot_begin_;
  HostBuffer<int32_t> observation_slot_;
  HostBuffer<int32_t> camera_slot_begin_;
  HostBuffer<int32_t> camera_slot_;
  HostBuffer<double> camera_sums_;
  HostBuffer<double> point_scratch_;
  HostBuffer<double> local_cameras_;
  HostBuffer<double> chunk_sums_;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_STRUCTURE_HOST_WORKSPACE_H_
