// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The index of couplings (coupling_index.h) built on the device, with the same
// bits as the host's. Sorts are stable and over the bits in use, and sums are
// of integers.
#ifndef CERES_EXT_CUDA_KERNELS_STRUCTURE_CUDA_COUPLING_INDEX_H_
#define CERES_EXT_CUDA_KERNELS_STRUCTURE_CUDA_COUPLING_INDEX_H_

#include <cstdint>

#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/machine/device_buffer.h"
#include "cuda_kernels/structure/coupling_index.h"
#include "cuda_kernels/structure/observation_index.h"

namespace ceres_ext::kernels {

// Couplings are sorted by slabs of whole rows of S that have this many together
// at most, or by one row: what a sort takes beside them, 40 bytes each, has
// then a limit.
inline constexpr int64_t kCouplingSlab = int64_t{1} << 24;

class CudaCouplingIndex {
 public:
  // index: in device memory. slab: kCouplingSlab, or another number of
  // couplings, at least one. Waits for the stream once a slab. On an error the
  // index is empty.
  Status Build(const ObservationIndexRef& index,
               CouplingList list,
               CudaMachine* machine,
               int64_t slab = kCouplingSlab);

  // Valid until the next Build or the end of the object.
  const CouplingIndexRef& ref() const { return view_; }

 private:
  CouplingIndexRef view_;
  DeviceBuffer<int64_t> row_begin_;
  DeviceBuffer<int32_t> row_;
  DeviceBuffer<int32_t> column_;
  DeviceBuffer<int64_t> coupling_begin_;
  DeviceBuffer<int64_t> coupling_;
  DeviceBuffer<int32_t> point_;
  DeviceBuffer<CouplingChunk> chunk_;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_STRUCTURE_CUDA_COUPLING_INDEX_H_
