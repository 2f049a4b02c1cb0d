// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The rows of blocks that several views share (views.h), listed block by block
// (BlockListRef). A machine makes the lists from its own index, whose cameras
// are the views: those of a device have the bits of the host's.
#ifndef CERES_EXT_CUDA_KERNELS_STRUCTURE_SHARED_ROWS_H_
#define CERES_EXT_CUDA_KERNELS_STRUCTURE_SHARED_ROWS_H_

#include <cstdint>
#include <vector>

#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/structure/block_families.h"
#include "cuda_kernels/structure/block_rows.h"
#include "cuda_kernels/structure/observation_index.h"

namespace ceres_ext::kernels {

// Every row of view v has the cells view_begin[v] .. view_begin[v + 1] - 1,
// their `row` apart.
struct SharedCells {
  std::vector<int32_t> view_begin{0};
  std::vector<FamilyCell> cells;
};

// Lists the rows of families that have cells, cut so that the rows of a point
// stay together.
Status ListSharedRows(const BlockFamilies& families,
                      const SharedCells& shared,
                      const ObservationIndexRef& index,
                      HostMachine* machine,
                      std::vector<MachineBlockList<HostMachine>>* lists);
// Takes 24 bytes a row for the time of the call, for each block of a family
// that a view has.
Status ListSharedRows(const BlockFamilies& families,
                      const SharedCells& shared,
                      const ObservationIndexRef& index,
                      CudaMachine* machine,
                      std::vector<MachineBlockList<CudaMachine>>* lists);

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_STRUCTURE_SHARED_ROWS_H_
