// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/backends.h"

namespace ceres_ext {

using kernels::Status;

Status HostMachine::SetupIndex(int32_t num_cameras,
                               int32_t num_points,
                               int64_t num_observations,
                               const int32_t* camera_ids,
                               const int32_t* point_ids,
                               std::vector<int32_t>* point_order) {
  point_order->clear();
  CERES_EXT_RETURN_IF_ERROR(index_storage_.Build(
      num_cameras, num_points, num_observations, camera_ids, point_ids));
  return Setup(index_storage_.view(), &context_);
}

#ifdef CERES_EXT_WITH_CUDA

Status CudaMachine::SetupIndex(int32_t num_cameras,
                               int32_t num_points,
                               int64_t num_observations,
                               const int32_t* camera_ids,
                               const int32_t* point_ids,
                               std::vector<int32_t>* point_order) {
  kernels::CudaContext* context = owned_context.get();
  kernels::DeviceBuffer<int32_t> cameras;
  kernels::DeviceBuffer<int32_t> points;
  CERES_EXT_RETURN_IF_ERROR(cameras.Allocate(context, num_observations));
  CERES_EXT_RETURN_IF_ERROR(points.Allocate(context, num_observations));
  const int64_t id_bytes = num_observations * sizeof(int32_t);
  CERES_EXT_RETURN_IF_ERROR(
      context->CopyToDevice(cameras.data(), camera_ids, id_bytes));
  CERES_EXT_RETURN_IF_ERROR(
      context->CopyToDevice(points.data(), point_ids, id_bytes));
  kernels::DeviceBuffer<int32_t> order;
  CERES_EXT_RETURN_IF_ERROR(order.Allocate(context, num_points));
  CERES_EXT_RETURN_IF_ERROR(index_storage_.BuildOrdered(num_cameras,
                                                        num_points,
                                                        num_observations,
                                                        cameras.data(),
                                                        points.data(),
                                                        order.data(),
                                                        &scratch_,
                                                        context));
  CERES_EXT_RETURN_IF_ERROR(order.CopyToHost(point_order));
  CERES_EXT_RETURN_IF_ERROR(
      Setup(index_storage_.view(), workspace_options_, &scratch_, context));
  scratch_ = kernels::CudaIndexScratch();
  return {};
}

#endif  // CERES_EXT_WITH_CUDA

}  // namespace ceres_ext
