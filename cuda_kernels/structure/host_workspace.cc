// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/structure/host_workspace.h"

#include <algorithm>

#include "cuda_kernels/model/bal_model.h"

namespace ceres_ext::kernels {
namespace {

// A chunk has this many observations and points together, or more where the
// index would give more than about kMaxNumChunks chunks: slots are at most
// chunks x cameras, and their sums shall stay small beside the Jacobian.
constexpr int64_t kMinChunkSize = 512;
constexpr int64_t kMaxNumChunks = 256;

}  // namespace

Status HostWorkspace::Setup(const ObservationIndexRef& index,
                            HostMachine* machine,
                            int max_columns) {
  machine_ = machine;
  index_ = index;
  index_.host_workspace = this;
  CERES_EXT_RETURN_IF_ERROR(CutIntoChunks(index));
  CERES_EXT_RETURN_IF_ERROR(AssignSlots(index));
  int64_t max_point_observations = 0;
  for (int32_t p = 0; p < index.num_points; ++p) {
    max_point_observations =
        std::max(max_point_observations,
                 index.point_begin[p + 1] - index.point_begin[p]);
  }
  // Whole cache lines per thread.
  point_scratch_stride_ =
      (PointScratch(max_columns) * max_point_observations + 15) / 8 * 8;
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(
      point_scratch_stride_ * machine->context()->num_threads(),
      &point_scratch_));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(
      int64_t{kBalLocalCameraDim} * index.num_cameras, &local_cameras_));
  CERES_EXT_RETURN_IF_ERROR(
      machine->Allocate(num_slots() * max_columns, &camera_sums_));
  return machine->Allocate(2 * num_chunks_, &chunk_sums_);
}

Status HostWorkspace::CutIntoChunks(const ObservationIndexRef& index) {
  const int64_t total = index.num_observations + index.num_points;
  const int64_t size = std::max(kMinChunkSize, total / kMaxNumChunks);
  // Two neighbouring chunks together exceed `size`.
  CERES_EXT_RETURN_IF_ERROR(
      machine_->Allocate(2 * (total / size) + 4, &chunk_begin_));
  num_chunks_ = 0;
  int64_t filled = 0;
  for (int32_t p = 0; p < index.num_points; ++p) {
    const int64_t point_size =
        1 + index.point_begin[p + 1] - index.point_begin[p];
    if (num_chunks_ == 0 || filled + point_size > size) {
      chunk_begin_.data()[num_chunks_++] = p;
      filled = 0;
    }
    filled += point_size;
  }
  chunk_begin_.data()[num_chunks_] = index.num_points;
  return {};
}

Status HostWorkspace::AssignSlots(const ObservationIndexRef& index) {
  HostBuffer<int32_t> last_slot;  // For each camera.
  CERES_EXT_RETURN_IF_ERROR(last_slot.Allocate(index.num_cameras, -1));
  CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(num_chunks_ + 1, &slot_begin_));
  CERES_EXT_RETURN_IF_ERROR(
      machine_->Allocate(index.num_observations, &observation_slot_));
  CERES_EXT_RETURN_IF_ERROR(
      machine_->Allocate(int64_t{index.num_cameras} + 1, &camera_slot_begin_));
  std::fill_n(camera_slot_begin_.data(), camera_slot_begin_.size(), 0);
  int32_t* count = camera_slot_begin_.data() + 1;

  int32_t num_slots = 0;
  slot_begin_.data()[0] = 0;
  for (int64_t i = 0; i < num_chunks_; ++i) {
    const int64_t end = index.point_begin[chunk_begin_.data()[i + 1]];
    for (int64_t k = index.point_begin[chunk_begin_.data()[i]]; k < end; ++k) {
      const int32_t camera = index.camera_id[k];
      if (last_slot.data()[camera] < slot_begin_.data()[i]) {
        last_slot.data()[camera] = num_slots++;
        ++count[camera];
      }
      observation_slot_.data()[k] = last_slot.data()[camera];
    }
    slot_begin_.data()[i + 1] = num_slots;
  }
  CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(num_slots, &camera_slot_));

  for (int32_t c = 0; c < index.num_cameras; ++c) {
    camera_slot_begin_.data()[c + 1] += camera_slot_begin_.data()[c];
  }
  HostBuffer<int32_t> next;
  CERES_EXT_RETURN_IF_ERROR(next.Allocate(index.num_cameras));
  std::copy_n(camera_slot_begin_.data(), index.num_cameras, next.data());
  int32_t next_slot = 0;
  for (int64_t k = 0; k < index.num_observations; ++k) {
    // Slots are numbered by their first observation.
    if (observation_slot_.data()[k] == next_slot) {
      camera_slot_.data()[next.data()[index.camera_id[k]]++] = next_slot++;
    }
  }
  return {};
}

Status HostWorkspace::ReserveCameraSums(int row_size) {
  const int64_t n = num_slots() * row_size;
  return n <= camera_sums_.size() ? Status()
                                  : machine_->Allocate(n, &camera_sums_);
}

}  // namespace ceres_ext::kernels
