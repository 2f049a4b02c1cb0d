// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/structure/row_index.h"

namespace ceres_ext::kernels {

Status RowIndex<CudaMachine>::Setup(int32_t num_cameras,
                                    int32_t num_points,
                                    int64_t num_observations,
                                    const int32_t* camera_ids,
                                    const int32_t* point_ids,
                                    const Options& options,
                                    std::vector<int32_t>* point_order,
                                    CudaMachine* machine) {
  DeviceBuffer<int32_t> cameras;
  DeviceBuffer<int32_t> points;
  CERES_EXT_RETURN_IF_ERROR(
      machine->Upload(num_observations, camera_ids, &cameras));
  CERES_EXT_RETURN_IF_ERROR(
      machine->Upload(num_observations, point_ids, &points));
  CudaIndexScratch scratch;
  DeviceBuffer<int32_t> order;
  if (options.keep_point_order) {
    CERES_EXT_RETURN_IF_ERROR(index_.Build(num_cameras,
                                           num_points,
                                           num_observations,
                                           cameras.data(),
                                           points.data(),
                                           &scratch,
                                           machine->context()));
  } else {
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(num_points, &order));
    CERES_EXT_RETURN_IF_ERROR(index_.BuildOrdered(num_cameras,
                                                  num_points,
                                                  num_observations,
                                                  cameras.data(),
                                                  points.data(),
                                                  order.data(),
                                                  &scratch,
                                                  machine->context()));
  }
  if (point_order != nullptr) {
    CERES_EXT_RETURN_IF_ERROR(order.CopyToHost(point_order));
  }
  return workspace_.Setup(index_.view(), options, &scratch, machine->context());
}

}  // namespace ceres_ext::kernels
