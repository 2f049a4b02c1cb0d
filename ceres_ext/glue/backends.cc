// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/backends.h"

#include "cuda_kernels/buffer.h"

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
  CERES_EXT_RETURN_IF_ERROR(index_storage_.Build(num_cameras,
                                                 num_points,
                                                 num_observations,
                                                 cameras.data(),
                                                 points.data(),
                                                 &scratch_,
                                                 context));

  // The same observations under new point numbers.
  kernels::DeviceBuffer<int32_t> order;
  kernels::DeviceBuffer<int32_t> rank;
  CERES_EXT_RETURN_IF_ERROR(order.Allocate(context, num_points));
  CERES_EXT_RETURN_IF_ERROR(rank.Allocate(context, num_points));
  CERES_EXT_RETURN_IF_ERROR(kernels::OrderPointsByCamera(
      index_storage_.view(), order.data(), rank.data(), &scratch_, context));
  point_order->resize(num_points);
  std::vector<int32_t> host_rank(num_points);
  const int64_t point_bytes = num_points * sizeof(int32_t);
  CERES_EXT_RETURN_IF_ERROR(
      context->CopyToHost(point_order->data(), order.data(), point_bytes));
  CERES_EXT_RETURN_IF_ERROR(
      context->CopyToHost(host_rank.data(), rank.data(), point_bytes));
  kernels::HostBuffer<int32_t> ranked;
  CERES_EXT_RETURN_IF_ERROR(ranked.Allocate(num_observations));
  host_context_.ParallelFor(
      num_observations, int64_t{1} << 16, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          ranked.data()[i] = host_rank[point_ids[i]];
        }
      });
  CERES_EXT_RETURN_IF_ERROR(
      context->CopyToDevice(points.data(), ranked.data(), id_bytes));
  CERES_EXT_RETURN_IF_ERROR(index_storage_.Build(num_cameras,
                                                 num_points,
                                                 num_observations,
                                                 cameras.data(),
                                                 points.data(),
                                                 &scratch_,
                                                 context));
  CERES_EXT_RETURN_IF_ERROR(
      Setup(index_storage_.view(), workspace_options_, &scratch_, context));
  scratch_ = kernels::CudaIndexScratch();
  return {};
}

#endif  // CERES_EXT_WITH_CUDA

}  // namespace ceres_ext
