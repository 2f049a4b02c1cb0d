// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/structure/row_index.h"

namespace ceres_ext::kernels {

Status RowIndex<CudaMachine>::Setup(const ObservationPairs& pairs,
                                    const Options& options,
                                    std::vector<int32_t>* point_order,
                                    CudaMachine* machine) {
  DeviceBuffer<int32_t> cameras;
  DeviceBuffer<int32_t> points;
  ObservationPairs on_device = pairs;
  if (!options.cameras_on_device) {
    CERES_EXT_RETURN_IF_ERROR(
        machine->Upload(pairs.num_observations, pairs.camera, &cameras));
    on_device.camera = cameras.data();
  }
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(pairs.num_observations, &points));
  if (!options.points_on_device) {
    CERES_EXT_RETURN_IF_ERROR(
        machine->Upload(pairs.num_observations, pairs.point, points.data()));
    on_device.point = points.data();
  }
  CudaIndexScratch scratch;
  DeviceBuffer<int32_t> order;
  if (options.keep_point_order) {
    CERES_EXT_RETURN_IF_ERROR(
        index_.Build(on_device, &scratch, machine->context()));
  } else {
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(pairs.num_points, &order));
    CERES_EXT_RETURN_IF_ERROR(index_.BuildOrdered(
        on_device, points.data(), order.data(), &scratch, machine->context()));
  }
  if (point_order != nullptr) {
    CERES_EXT_RETURN_IF_ERROR(order.CopyToHost(point_order));
  }
  return workspace_.Setup(index_.ref(), options, &scratch, machine->context());
}

}  // namespace ceres_ext::kernels
