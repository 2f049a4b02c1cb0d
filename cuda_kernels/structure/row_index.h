// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The observation index of a batch on a machine, ready for operations.
//
//   RowIndex<Machine> index;
//   Status status = index.Setup(num_cameras, num_points, n, camera_ids,
//                               point_ids, {}, &point_order, &machine);
//   params.index = index.view();
//
// camera_ids, point_ids: one of each per observation, in host memory and any
// order. point_order: where the machine numbers the points anew, so that
// neighbours are seen by the same cameras, point i of the index is point
// point_order[i] of the caller; empty where they keep their numbers, which
// options can ask for; may be null. Errors: those of ObservationIndex::Build,
// and memory.
#ifndef CERES_EXT_CUDA_KERNELS_STRUCTURE_ROW_INDEX_H_
#define CERES_EXT_CUDA_KERNELS_STRUCTURE_ROW_INDEX_H_

#include <cstdint>
#include <vector>

#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/structure/cuda_observation_index.h"
#include "cuda_kernels/structure/cuda_workspace.h"
#include "cuda_kernels/structure/host_workspace.h"
#include "cuda_kernels/structure/observation_index.h"

namespace ceres_ext::kernels {

template <typename Machine>
class RowIndex;

template <>
class RowIndex<HostMachine> {
 public:
  struct Options {
    bool keep_point_order = false;  // As they always do on the host.
  };

  Status Setup(int32_t num_cameras,
               int32_t num_points,
               int64_t num_observations,
               const int32_t* camera_ids,
               const int32_t* point_ids,
               const Options& /*options*/,
               std::vector<int32_t>* point_order,
               HostMachine* machine) {
    if (point_order != nullptr) {
      point_order->clear();
    }
    CERES_EXT_RETURN_IF_ERROR(index_.Build(
        num_cameras, num_points, num_observations, camera_ids, point_ids));
    return workspace_.Setup(index_.view(), machine);
  }
  const ObservationIndexView& view() const { return workspace_.index(); }
  // Of the index and of scratch.
  int64_t bytes() const { return index_.bytes() + workspace_.bytes(); }

 private:
  ObservationIndex index_;
  HostWorkspace workspace_;
};

template <>
class RowIndex<CudaMachine> {
 public:
  using Options = CudaWorkspace::Options;

  Status Setup(int32_t num_cameras,
               int32_t num_points,
               int64_t num_observations,
               const int32_t* camera_ids,
               const int32_t* point_ids,
               const Options& options,
               std::vector<int32_t>* point_order,
               CudaMachine* machine);
  const ObservationIndexView& view() const { return workspace_.index(); }
  // The context counts its memory.
  int64_t bytes() const { return 0; }

 private:
  CudaObservationIndex index_;
  CudaWorkspace workspace_;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_STRUCTURE_ROW_INDEX_H_
