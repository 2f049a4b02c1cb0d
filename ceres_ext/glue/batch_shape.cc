// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/batch_shape.h"

#include <algorithm>
#include <vector>

#include "ceres_ext/glue/machines.h"

namespace ceres_ext {

using kernels::Status;

template <typename Machine>
Status MachineTable<Machine>::Upload(const BlockTable& table,
                                     Machine* machine) {
  const int64_t n = table.size();
  const auto upload = [machine, n](const auto& values, auto* buffer) -> Status {
    return machine->Upload(n, values.data(), buffer);
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
    CERES_EXT_RETURN_IF_ERROR(
        machine->Upload(num_values, values.data(), &constant_values_));
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

template <typename Machine>
int64_t MachineTable<Machine>::bytes() const {
  return tangent_offset_.bytes() + tangent_size_.bytes() +
         state_offset_.bytes() + constant_values_.bytes();
}

template <typename Machine>
Status BatchShape<Machine>::Setup(int num_columns,
                                  int num_parameters,
                                  const BundleStructure& structure,
                                  const typename Index::Options& index_options,
                                  kernels::HostContext* host_context,
                                  Machine* machine) {
  machine_ = machine;
  num_columns_ = num_columns;
  num_parameters_ = num_parameters;
  std::vector<int32_t> point_order;
  CERES_EXT_RETURN_IF_ERROR(index_.Setup(structure.cameras.size(),
                                         structure.points.size(),
                                         structure.num_observations(),
                                         structure.camera_id.data(),
                                         structure.point_id.data(),
                                         index_options,
                                         &point_order,
                                         machine));
  cameras_ = structure.cameras;
  points_ = structure.points;
  if (!point_order.empty()) {
    points_.Permute(point_order, host_context);
  }
  CERES_EXT_RETURN_IF_ERROR(camera_table_.Upload(cameras_, machine));
  return point_table_.Upload(points_, machine);
}

template <typename Machine>
Status BatchShape<Machine>::Gather(const double* vector,
                                   double padding,
                                   double* camera_padded,
                                   double* point_padded) const {
  CERES_EXT_RETURN_IF_ERROR(kernels::Run(
      kernels::GatherTangentParams{
          camera_table(), vector, padding, camera_padded},
      machine_));
  return kernels::Run(
      kernels::GatherTangentParams{
          point_table(), vector, padding, point_padded},
      machine_);
}

template <typename Machine>
Status BatchShape<Machine>::Scatter(const double* camera_padded,
                                    const double* point_padded,
                                    double* vector) const {
  CERES_EXT_RETURN_IF_ERROR(kernels::Run(
      kernels::ScatterTangentParams{camera_table(), camera_padded, vector},
      machine_));
  return kernels::Run(
      kernels::ScatterTangentParams{point_table(), point_padded, vector},
      machine_);
}

template <typename Machine>
int64_t BatchShape<Machine>::bytes() const {
  return index_.bytes() + camera_table_.bytes() + point_table_.bytes() +
         cameras_.MemoryBytes() + points_.MemoryBytes();
}

#define CERES_EXT_INSTANTIATE(Machine)  \
  template class MachineTable<Machine>; \
  template class BatchShape<Machine>;
CERES_EXT_FOR_EACH_MACHINE(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext
