// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/view_rows.h"

#include <algorithm>
#include <future>
#include <system_error>
#include <utility>
#include <vector>

#include "ceres_ext/glue/machines.h"
#include "cuda_kernels/ops/jacobian_products.h"

namespace ceres_ext {

using kernels::Status;

template <typename Machine, typename T, int C>
std::unique_ptr<ViewRowsJacobian<Machine, T, C>>
ViewRowsJacobian<Machine, T, C>::Create(const ViewBlocks<Machine>* rows,
                                        const solver::ProblemBlocks& blocks,
                                        Status* status) {
  std::unique_ptr<ViewRowsJacobian> jacobian(new ViewRowsJacobian(rows));
  *status = jacobian->Setup(blocks);
  return status->ok() ? std::move(jacobian) : nullptr;
}

template <typename Machine, typename T, int C>
Status ViewRowsJacobian<Machine, T, C>::Setup(
    const solver::ProblemBlocks& blocks) {
  Machine* machine = rows_->machine;
  const int64_t n = rows_->index().num_observations;
  // Points are the first family (program_import.h).
  e_begin_ = blocks.e[0].value_begin;
  CERES_EXT_RETURN_IF_ERROR(
      machine->Allocate(Shape::kFSize * n, &camera_blocks_));
  CERES_EXT_RETURN_IF_ERROR(
      machine->Allocate(Shape::kESize * n, &point_blocks_));
  return batch_.Setup(
      rows_->index(),
      &rows_->views,
      0,
      blocks,
      Source{{camera_blocks_.data(), n}, {point_blocks_.data(), n}},
      machine);
}

template <typename Machine, typename T, int C>
Status ViewRowsJacobian<Machine, T, C>::ScaleColumns(const double* e,
                                                     const double* f) {
  kernels::ScaleColumnsParams<T, Shape, Machine::kLayout> params;
  params.index = rows_->index();
  params.camera_blocks = camera_blocks();
  params.point_blocks = point_blocks();
  CERES_EXT_RETURN_IF_ERROR(batch_.GatherColumns(f, &params.camera_scale));
  params.point_scale = e + e_begin_;
  return kernels::Run(params, rows_->machine);
}

template <typename Machine, typename T, int C>
Status ViewRowsJacobian<Machine, T, C>::SetZero() {
  CERES_EXT_RETURN_IF_ERROR(
      rows_->machine->SetZero(camera_blocks_.size(), camera_blocks_.data()));
  return rows_->machine->SetZero(point_blocks_.size(), point_blocks_.data());
}

template <typename Machine, typename T, int C>
Status ViewRowsJacobian<Machine, T, C>::ForEachValue(const Visit& visit) const {
  Machine* machine = rows_->machine;
  const kernels::ObservationIndexView& index = rows_->index();
  const int64_t n = index.num_observations;
  const auto download = [machine](int64_t size, const auto* from, auto* to) {
    to->resize(size);
    return machine->Download(size, from, to->data());
  };
  std::vector<int32_t> view_id;
  std::vector<int32_t> point_id;
  std::vector<T> f;
  std::vector<T> e;
  CERES_EXT_RETURN_IF_ERROR(download(n, index.camera_id, &view_id));
  CERES_EXT_RETURN_IF_ERROR(download(n, index.point_id, &point_id));
  CERES_EXT_RETURN_IF_ERROR(
      download(camera_blocks_.size(), camera_blocks_.data(), &f));
  CERES_EXT_RETURN_IF_ERROR(
      download(point_blocks_.size(), point_blocks_.data(), &e));
  const Source source{{f.data(), n}, {e.data(), n}};
  const BlockTable& points = rows_->points();
  for (int64_t k = 0; k < n; ++k) {
    for (int r = 0; r < Shape::kNumResiduals; ++r) {
      const int64_t row = Shape::kNumResiduals * k + r;
      for (int j = 0; j < points.tangent_size[point_id[k]]; ++j) {
        visit(row,
              points.tangent_offset[point_id[k]] + j,
              source.point_blocks(k, Shape::kE * r + j));
      }
      const std::vector<int>& columns = rows_->program_columns[view_id[k]];
      for (size_t j = 0; j < columns.size(); ++j) {
        visit(row,
              columns[j],
              source.camera_blocks(k, C * r + static_cast<int>(j)));
      }
    }
  }
  return {};
}

template <typename Machine, typename T, int C>
std::unique_ptr<RowsEvaluator> ViewRows<Machine, T, C>::Create(
    const ceres::internal::Program& program,
    const ProgramStructure& structure,
    const ViewBlocks<Machine>* rows,
    const solver::ProblemBlocks& blocks,
    kernels::HostContext* host_context,
    SolveRecord* record,
    Status* status) {
  std::unique_ptr<ViewRows> evaluator(new ViewRows(rows, blocks, record));
  const auto setup = [&]() -> Status {
    Machine* machine = rows->machine;
    const int64_t n = rows->index().num_observations;
    std::vector<int32_t> order(n);
    CERES_EXT_RETURN_IF_ERROR(
        machine->Download(n, rows->index().input_id(), order.data()));
    for (int32_t& i : order) {
      i = structure.views.rows[i];
    }
    CERES_EXT_RETURN_IF_ERROR(evaluator->evaluation_.Setup(
        program, order, structure.is_eliminated, host_context));
    const int64_t chunk = std::min(kChunk, n);
    CERES_EXT_RETURN_IF_ERROR(evaluator->values_.Allocate(
        Pack::kStride * (n > kChunk ? kNumBuffers * kChunk : n)));
    if constexpr (!kIsHost<Machine>) {
      CERES_EXT_RETURN_IF_ERROR(
          evaluator->residuals_.Allocate(Shape::kNumResiduals * n));
      CERES_EXT_RETURN_IF_ERROR(machine->Allocate(Pack::kStride * chunk,
                                                  &evaluator->machine_values_));
    }
    return {};
  };
  *status = setup();
  return status->ok() ? std::move(evaluator) : nullptr;
}

template <typename Machine, typename T, int C>
Status ViewRows<Machine, T, C>::PackChunk(int64_t begin,
                                          int64_t end,
                                          const double* values,
                                          Jacobian* jacobian) {
  Machine* machine = rows_->machine;
  Pack pack;
  pack.n = end - begin;
  pack.begin = begin;
  pack.index = rows_->index();
  pack.e_size = rows_->point_table().tangent_size;
  pack.columns = rows_->columns.data();
  pack.rows = values;
  if constexpr (!kIsHost<Machine>) {
    CERES_EXT_RETURN_IF_ERROR(machine->context()->Activate());
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(
        Pack::kStride * pack.n, values, machine_values_.data()));
    pack.rows = machine_values_.data();
  }
  pack.camera_blocks = jacobian->camera_blocks();
  pack.point_blocks = jacobian->point_blocks();
  return kernels::Run(pack, machine);
}

template <typename Machine, typename T, int C>
Status ViewRows<Machine, T, C>::EvaluateChunks(
    const RowsRequest& request, const HostEvaluation::PlaceOf& residuals_of) {
  const int64_t n = rows_->index().num_observations;
  auto* jacobian = static_cast<Jacobian*>(request.jacobian);
  if (jacobian == nullptr) {
    return evaluation_.Evaluate(0, n, request.apply_loss, residuals_of, {}, 0);
  }
  // The chunk before is on its way to a device while this one is evaluated.
  std::future<Status> on_its_way;
  const auto wait = [&]() -> Status {
    ScopedSeconds timer(&record_->import_time_in_seconds);
    return on_its_way.valid() ? on_its_way.get() : Status();
  };
  Status status;
  for (int64_t begin = 0; begin < n && status.ok(); begin += kChunk) {
    const int64_t end = std::min(begin + kChunk, n);
    double* const values =
        values_.data() + begin / kChunk % kNumBuffers * Pack::kStride * kChunk;
    status = evaluation_.Evaluate(
        begin,
        end,
        request.apply_loss,
        residuals_of,
        [=](int64_t k) { return values + Pack::kStride * (k - begin); },
        Shape::kESize);
    const Status before = wait();
    if (status.ok()) {
      status = before;
    }
    if (!status.ok()) {
      break;
    }
    if constexpr (kIsHost<Machine>) {
      status = PackChunk(begin, end, values, jacobian);
    } else {
      try {
        on_its_way = std::async(std::launch::async, [=] {
          return PackChunk(begin, end, values, jacobian);
        });
      } catch (const std::system_error&) {  // No thread is to be had.
        status = PackChunk(begin, end, values, jacobian);
      }
    }
  }
  const Status last = wait();
  return status.ok() ? last : status;
}

template <typename Machine, typename T, int C>
Status ViewRows<Machine, T, C>::Evaluate(const RowsRequest& request) {
  CERES_EXT_RETURN_IF_ERROR(evaluation_.Publish(request.host_state));
  Machine* machine = rows_->machine;
  double* const machine_residuals = request.residuals != nullptr
                                        ? request.residuals
                                        : request.scratch_residuals;
  double* const residuals =
      kIsHost<Machine> ? machine_residuals : residuals_.data();
  HostEvaluation::PlaceOf residuals_of;
  if (request.residuals != nullptr || request.want_gradient) {
    residuals_of = [=](int64_t k) {
      return residuals + Shape::kNumResiduals * k;
    };
  }
  CERES_EXT_RETURN_IF_ERROR(EvaluateChunks(request, residuals_of));
  if constexpr (!kIsHost<Machine>) {
    if (residuals_of) {
      ScopedSeconds timer(&record_->import_time_in_seconds);
      CERES_EXT_RETURN_IF_ERROR(
          machine->Upload(residuals_.size(), residuals, machine_residuals));
    }
  }
  if (!request.want_gradient) {
    return {};
  }
  if (blocks_.e_owner[0] != solver::ProblemBlocks::kShared) {
    CERES_EXT_RETURN_IF_ERROR(
        machine->SetZero(blocks_.e[0].num_values(),
                         request.e_gradient + blocks_.e[0].value_begin));
  }
  return request.jacobian->batch()->LeftMultiplyAndAccumulate(
      machine_residuals, request.e_gradient, request.f_gradient);
}

#define CERES_EXT_INSTANTIATE(Machine, T, C)      \
  template class ViewRowsJacobian<Machine, T, C>; \
  template class ViewRows<Machine, T, C>;
CERES_EXT_FOR_EACH_BATCH(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext
