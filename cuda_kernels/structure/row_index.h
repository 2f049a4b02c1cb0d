// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The observation index of a batch on a machine, ready for operations.
//
//   RowIndex<Machine> index;
//   Status status = index.Setup(pairs, {}, &point_order, &machine);
//   params.index = index.ref();
//
// pairs: in host memory, unless options say otherwise. point_order: if the
// machine renumbers the points so that neighbours are seen by the same cameras,
// point i of the index is the caller's point point_order[i]; empty if they keep
// their numbers, which options can request; may be null. Errors: those of
// ObservationIndex::Build, and memory.
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
    // The most columns of a camera that scratch is made for.
    int max_columns = kMaxCameraColumns;
    // Only on a device:
    bool cameras_on_device = false;
    bool points_on_device = false;
    static Options For(bool /*recomputed*/, bool /*in_float*/) { return {}; }
  };

  Status Setup(const ObservationPairs& pairs,
               const Options& options,
               std::vector<int32_t>* point_order,
               HostMachine* machine) {
    if (point_order != nullptr) {
      point_order->clear();
    }
    CERES_EXT_RETURN_IF_ERROR(index_.Build(pairs, machine->account()));
    return workspace_.Setup(index_.ref(), machine, options.max_columns);
  }
  const ObservationIndexRef& ref() const { return workspace_.index(); }

 private:
  ObservationIndex index_;
  HostWorkspace workspace_;
};

template <>
class RowIndex<CudaMachine> {
 public:
  using Options = CudaWorkspace::Options;

  Status Setup(const ObservationPairs& pairs,
               const Options& options,
               std::vector<int32_t>* point_order,
               CudaMachine* machine);
  const ObservationIndexRef& ref() const { return workspace_.index(); }

 private:
  CudaObservationIndex index_;
  CudaWorkspace workspace_;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_STRUCTURE_ROW_INDEX_H_
