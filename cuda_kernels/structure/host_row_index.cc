// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/structure/row_index.h"

namespace ceres_ext::kernels {

Status RowIndex<HostMachine>::Setup(int32_t num_cameras,
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

}  // namespace ceres_ext::kernels
