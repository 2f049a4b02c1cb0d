// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/structure/shared_rows.h"

namespace ceres_ext::kernels {

Status ListSharedRows(const BlockFamilies& families,
                      const SharedCells& shared,
                      const ObservationIndexRef& index,
                      HostMachine* machine,
                      std::vector<MachineBlockList<HostMachine>>* lists) {
  std::vector<BlockList> made;
  if (!shared.cells.empty()) {
    CERES_EXT_RETURN_IF_ERROR(MakeBlockLists(
        families,
        index.num_observations,
        [&](int64_t k, auto&& fn) {
          const auto view = static_cast<size_t>(index.camera_id[k]);
          for (int32_t c = shared.view_begin[view];
               c < shared.view_begin[view + 1];
               ++c) {
            FamilyCell cell = shared.cells[static_cast<size_t>(c)];
            cell.cell.row = static_cast<int32_t>(k);
            fn(cell);
          }
        },
        index.point_id,
        machine->context(),
        &made));
  }
  return SetupBlockLists(made, machine, lists);
}

}  // namespace ceres_ext::kernels
