// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/batch_shape.h"

#include <algorithm>
#include <vector>

#include "ceres_ext/glue/backends.h"

namespace ceres_ext {

using kernels::Status;

template <typename Backend>
Status MachineTable<Backend>::Upload(const BlockTable& table,
                                     Backend* backend) {
  const int64_t n = table.size();
  const auto upload = [backend, n](const auto& values, auto* buffer) -> Status {
    CERES_EXT_RETURN_IF_ERROR(backend->Allocate(n, buffer));
    return backend->Upload(n, values.data(), buffer->data());
  };
  CERES_EXT_RETURN_IF_ERROR(upload(table.tangent_offset, &tangent_offset_));
  CERES_EXT_RETURN_IF_ERROR(upload(table.tangent_size, &tangent_size_));
  CERES_EXT_RETURN_IF_ERROR(upload(table.state_offset, &state_offset_));
  const bool has_constants =
      std::any_of(table.constant_value.begin(),
                  table.constant_value.end(),
                  [](const double* value) { return value != nullptr; });
  if (has_constants) {
    const int64_t num_values = n * table.ambient_size;
    std::vector<double> values(num_values, 0.0);
    for (int64_t i = 0; i < n; ++i) {
      if (table.constant_value[i] != nullptr) {
        std::copy_n(table.constant_value[i],
                    table.ambient_size,
                    values.data() + i * table.ambient_size);
      }
    }
    CERES_EXT_RETURN_IF_ERROR(backend->Allocate(num_values, &constant_values_));
    CERES_EXT_RETURN_IF_ERROR(
        backend->Upload(num_values, values.data(), constant_values_.data()));
  }
  view_.num_blocks = table.size();
  view_.padded_size = table.padded_size;
  view_.ambient_size = table.ambient_size;
  view_.tangent_offset = tangent_offset_.data();
  view_.tangent_size = tangent_size_.data();
  view_.state_offset = state_offset_.data();
  view_.constant_values = constant_values_.data();
  return {};
}

template <typename Backend>
int64_t MachineTable<Backend>::bytes() const {
  return tangent_offset_.bytes() + tangent_size_.bytes() +
         state_offset_.bytes() + constant_values_.bytes();
}

template <typename Backend>
Status BatchShape<Backend>::Setup(int num_columns,
                                  int num_parameters,
                                  const BundleStructure& structure,
                                  Backend* backend) {
  backend_ = backend;
  num_columns_ = num_columns;
  num_parameters_ = num_parameters;
  std::vector<int32_t> point_order;
  CERES_EXT_RETURN_IF_ERROR(backend->SetupIndex(structure.cameras.size(),
                                                structure.points.size(),
                                                structure.num_observations(),
                                                structure.camera_id.data(),
                                                structure.point_id.data(),
                                                &point_order));
  cameras_ = structure.cameras;
  points_ = structure.points;
  if (!point_order.empty()) {
    points_.Permute(point_order, backend->host_context());
  }
  CERES_EXT_RETURN_IF_ERROR(camera_table_.Upload(cameras_, backend));
  return point_table_.Upload(points_, backend);
}

template <typename Backend>
Status BatchShape<Backend>::Gather(const double* vector,
                                   double padding,
                                   double* camera_padded,
                                   double* point_padded) const {
  CERES_EXT_RETURN_IF_ERROR(backend_->Run(kernels::GatherTangentParams{
      camera_table(), vector, padding, camera_padded}));
  return backend_->Run(kernels::GatherTangentParams{
      point_table(), vector, padding, point_padded});
}

template <typename Backend>
Status BatchShape<Backend>::Scatter(const double* camera_padded,
                                    const double* point_padded,
                                    double* vector) const {
  CERES_EXT_RETURN_IF_ERROR(backend_->Run(
      kernels::ScatterTangentParams{camera_table(), camera_padded, vector}));
  return backend_->Run(
      kernels::ScatterTangentParams{point_table(), point_padded, vector});
}

template <typename Backend>
int64_t BatchShape<Backend>::bytes() const {
  return camera_table_.bytes() + point_table_.bytes() + cameras_.MemoryBytes() +
         points_.MemoryBytes();
}

template class MachineTable<HostMachine>;
template class BatchShape<HostMachine>;
#ifdef CERES_EXT_WITH_CUDA
template class MachineTable<CudaMachine>;
template class BatchShape<CudaMachine>;
#endif

}  // namespace ceres_ext
