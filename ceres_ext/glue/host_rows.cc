// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/host_rows.h"

#include <utility>
#include <vector>

#include "ceres_ext/glue/machines.h"
#include "cuda_kernels/structure/block_rows.h"

namespace ceres_ext {

using kernels::Status;

template <typename Machine>
std::unique_ptr<HostRowsJacobian<Machine>> HostRowsJacobian<Machine>::Create(
    const ProgramBlocks<Machine>* blocks, Status* status) {
  std::unique_ptr<HostRowsJacobian> jacobian(new HostRowsJacobian(blocks));
  Machine* machine = blocks->machine();
  *status = machine->Allocate(blocks->rows()->num_values(), &jacobian->values_);
  if (status->ok()) {
    *status = jacobian->batch_.Setup(
        blocks->rows(), blocks->blocks(), jacobian->values_.data(), machine);
  }
  return status->ok() ? std::move(jacobian) : nullptr;
}

template <typename Machine>
Status HostRowsJacobian<Machine>::SetZero() {
  return blocks_->machine()->SetZero(values_.size(), values_.data());
}

template <typename Machine>
Status HostRowsJacobian<Machine>::ForEachValue(const Visit& visit) const {
  std::vector<double> values(values_.size());
  CERES_EXT_RETURN_IF_ERROR(blocks_->machine()->Download(
      values_.size(), values_.data(), values.data()));
  const kernels::BlockRowsBuilder& rows = *blocks_->host_rows();
  // Where a column of the family vectors stands in Ceres's.
  const auto columns = [](const kernels::BlockFamilies& families,
                          const auto& tables) {
    std::vector<int> column(families.num_values());
    for (int i = 0; i < families.size(); ++i) {
      for (int64_t b = 0; b < families[i].num_blocks; ++b) {
        for (int j = 0; j < families[i].size; ++j) {
          column[families[i].value_begin + families[i].size * b + j] =
              tables[i].table().tangent_offset[b] + j;
        }
      }
    }
    return column;
  };
  const std::vector<int> e = columns(blocks_->blocks().e, blocks_->e());
  const std::vector<int> f = columns(blocks_->blocks().f, blocks_->f());
  for (int64_t k = 0; k < rows.num_rows(); ++k) {
    for (int32_t row = rows.row_begin()[k]; row < rows.row_begin()[k + 1];
         ++row) {
      const int64_t i = row - rows.row_begin()[k];
      for (int32_t c = rows.cell_begin()[k]; c < rows.cell_begin()[k + 1];
           ++c) {
        const kernels::RowCell& cell = rows.cells()[c];
        for (int j = 0; j < cell.size; ++j) {
          visit(row,
                (cell.eliminated != 0 ? e : f)[cell.column + j],
                values[cell.value + i * cell.size + j]);
        }
      }
    }
  }
  return {};
}

template <typename Machine>
std::unique_ptr<HostRows<Machine>> HostRows<Machine>::Create(
    const ceres::internal::Program& program,
    const ProgramStructure& structure,
    const ProgramBlocks<Machine>* blocks,
    kernels::HostContext* host_context,
    SolveRecord* record,
    Status* status) {
  std::unique_ptr<HostRows> rows(new HostRows(blocks, record));
  const kernels::BlockRowsBuilder& index = *blocks->host_rows();
  std::vector<int32_t> order;
  for (const int32_t i : index.row_order()) {
    order.push_back(structure.host_rows[i]);
  }
  *status = rows->evaluation_.Setup(
      program, order, structure.is_eliminated, host_context);
  if constexpr (!kIsHost<Machine>) {
    if (status->ok()) {
      *status = rows->residuals_.Allocate(index.num_residuals());
    }
    if (status->ok()) {
      *status = rows->values_.Allocate(index.num_values());
    }
  }
  return status->ok() ? std::move(rows) : nullptr;
}

template <typename Machine>
Status HostRows<Machine>::Evaluate(const RowsRequest& request) {
  CERES_EXT_RETURN_IF_ERROR(evaluation_.Publish(request.host_state));
  const kernels::BlockRowsBuilder& index = *blocks_->host_rows();
  auto* jacobian = static_cast<HostRowsJacobian<Machine>*>(request.jacobian);
  double* const machine_residuals = request.residuals != nullptr
                                        ? request.residuals
                                        : request.scratch_residuals;
  double* residuals = machine_residuals;
  double* values = jacobian == nullptr ? nullptr : jacobian->values();
  if constexpr (!kIsHost<Machine>) {
    residuals = residuals_.data();
    values = values_.data();
  }
  HostEvaluation::PlaceOf residuals_of;
  if (request.residuals != nullptr || request.want_gradient) {
    residuals_of = [&](int64_t k) { return residuals + index.row_begin()[k]; };
  }
  HostEvaluation::PlaceOf values_of;
  if (jacobian != nullptr) {
    values_of = [&](int64_t k) {
      const int32_t cell = index.cell_begin()[k];
      // A row without cells has no place of its own.
      return cell == index.cell_begin()[k + 1]
                 ? values
                 : values + index.cells()[cell].value;
    };
  }
  CERES_EXT_RETURN_IF_ERROR(evaluation_.Evaluate(0,
                                                 index.num_rows(),
                                                 request.apply_loss,
                                                 residuals_of,
                                                 values_of,
                                                 /*e_values=*/0));
  if constexpr (!kIsHost<Machine>) {
    ScopedSeconds timer(&record_->import_time_in_seconds);
    Machine* machine = blocks_->machine();
    if (residuals_of) {
      CERES_EXT_RETURN_IF_ERROR(machine->Upload(
          residuals_.size(), residuals_.data(), machine_residuals));
    }
    if (values_of) {
      CERES_EXT_RETURN_IF_ERROR(
          machine->Upload(values_.size(), values_.data(), jacobian->values()));
    }
  }
  return request.want_gradient
             ? jacobian->batch()->LeftMultiplyAndAccumulate(
                   machine_residuals, request.e_gradient, request.f_gradient)
             : Status();
}

#define CERES_EXT_INSTANTIATE(Machine)      \
  template class HostRowsJacobian<Machine>; \
  template class HostRows<Machine>;
CERES_EXT_FOR_EACH_MACHINE(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext
