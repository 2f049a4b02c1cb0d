// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/host_rows.h"

#include <algorithm>
#include <future>
#include <system_error>

#include "ceres_ext/glue/machines.h"
#include "ceres_ext/glue/scoped_seconds.h"
#include "ceres_ext/solver/general_batch.h"
#include "cuda_kernels/structure/block_rows.h"

namespace ceres_ext {

using kernels::Status;

template <typename Machine>
Status HostRows<Machine>::SetupRows(const HostRowsInput<Machine>& input,
                                    const std::vector<int32_t>& rows,
                                    int64_t num_residuals,
                                    int64_t chunk,
                                    int e_values) {
  blocks_ = input.blocks;
  summary_ = input.summary;
  num_rows_ = static_cast<int64_t>(rows.size());
  num_residuals_ = num_residuals;
  chunk_ = chunk;
  e_values_ = e_values;
  CERES_EXT_RETURN_IF_ERROR(evaluation_.Setup(*input.program,
                                              rows,
                                              input.structure->is_eliminated,
                                              input.host_context));
  return kIsHost<Machine> ? Status() : residuals_.Allocate(num_residuals);
}

template <typename Machine>
Status HostRows<Machine>::EvaluateChunks(
    const RowsRequest& request, const HostEvaluation::PlaceOf& residuals_of) {
  RowsJacobian* const jacobian = request.jacobian;
  // The chunk before is on its way to a device while this one is evaluated.
  std::future<Status> on_its_way;
  Status status;
  for (int64_t begin = 0; begin < num_rows_ && status.ok(); begin += chunk_) {
    const int64_t end = std::min(begin + chunk_, num_rows_);
    status = evaluation_.Evaluate(begin,
                                  end,
                                  request.apply_loss,
                                  residuals_of,
                                  ValuesOf(begin, jacobian),
                                  e_values_);
    if (kIsHost<Machine>) {
      status = status.ok() ? Store(begin, end, jacobian) : status;
      continue;
    }
    ScopedSeconds timer(&summary_->import_time_in_seconds);
    if (on_its_way.valid()) {
      const Status before = on_its_way.get();
      status = status.ok() ? before : status;
    }
    if (!status.ok()) {
      break;
    }
    const auto store = [=] { return Store(begin, end, jacobian); };
    if (end < num_rows_) {
      try {
        on_its_way = std::async(std::launch::async, store);
        continue;
      } catch (const std::system_error&) {  // No thread is to be had.
      }
    }
    status = store();
  }
  return status;
}

template <typename Machine>
Status HostRows<Machine>::Evaluate(const RowsRequest& request) {
  CERES_EXT_RETURN_IF_ERROR(evaluation_.Publish(request.host_state));
  double* const machine_residuals = request.residuals != nullptr
                                        ? request.residuals
                                        : request.scratch_residuals;
  double* const residuals =
      kIsHost<Machine> ? machine_residuals : residuals_.data();
  HostEvaluation::PlaceOf residuals_of;
  if (request.residuals != nullptr || request.want_gradient) {
    residuals_of = [=](int64_t k) { return residuals + FirstResidual(k); };
  }
  CERES_EXT_RETURN_IF_ERROR(
      request.jacobian != nullptr
          ? EvaluateChunks(request, residuals_of)
          : evaluation_.Evaluate(
                0, num_rows_, request.apply_loss, residuals_of, {}, 0));
  if constexpr (!kIsHost<Machine>) {
    if (residuals_of) {
      ScopedSeconds timer(&summary_->import_time_in_seconds);
      CERES_EXT_RETURN_IF_ERROR(
          machine()->Upload(num_residuals_, residuals, machine_residuals));
    }
  }
  if (!request.want_gradient) {
    return {};
  }
  if (owns_points_) {
    CERES_EXT_RETURN_IF_ERROR(machine()->SetZero(
        blocks_->blocks().e[0].num_values(), request.e_gradient));
  }
  return request.jacobian->batch()->LeftMultiplyAndAccumulate(
      machine_residuals, request.e_gradient, request.f_gradient);
}

namespace {

template <typename Machine>
class GeneralRowsJacobian final : public RowsJacobian {
 public:
  // *blocks outlives the Jacobian.
  Status Setup(const ProgramBlocks<Machine>* blocks) {
    blocks_ = blocks;
    Machine* machine = blocks->machine();
    CERES_EXT_RETURN_IF_ERROR(
        machine->Allocate(blocks->rows()->num_values(), &values_));
    return batch_.Setup(
        blocks->rows(), blocks->blocks(), values_.data(), machine);
  }

  solver::Batch* batch() final { return &batch_; }
  Status ScaleColumns(const double* e, const double* f) final {
    return batch_.ScaleColumns(e, f);
  }
  Status SetZero() final {
    return blocks_->machine()->SetZero(values_.size(), values_.data());
  }
  Status ForEachValue(const Visit& visit) const final {
    std::vector<double> values(values_.size());
    CERES_EXT_RETURN_IF_ERROR(blocks_->machine()->Download(
        values_.size(), values_.data(), values.data()));
    const kernels::BlockRowsBuilder& rows = *blocks_->host_rows();
    const std::vector<int> e = Columns(blocks_->blocks().e, blocks_->e());
    const std::vector<int> f = Columns(blocks_->blocks().f, blocks_->f());
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

  double* values() { return values_.data(); }

 private:
  // Where a column of the family vectors stands in Ceres's.
  static std::vector<int> Columns(
      const kernels::BlockFamilies& families,
      const std::vector<FamilyTable<Machine>>& tables) {
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
  }

  const ProgramBlocks<Machine>* blocks_ = nullptr;
  typename Machine::template Buffer<double> values_;
  solver::GeneralBatch<Machine> batch_;
};

// In one chunk, which on the host is the Jacobian.
template <typename Machine>
class GeneralRows final : public HostRows<Machine> {
 public:
  using Jacobian = GeneralRowsJacobian<Machine>;

  Status Setup(const HostRowsInput<Machine>& input) {
    index_ = input.blocks->host_rows();
    std::vector<int32_t> rows;
    for (const int32_t i : index_->row_order()) {
      rows.push_back(input.structure->host_rows[i]);
    }
    CERES_EXT_RETURN_IF_ERROR(this->SetupRows(input,
                                              rows,
                                              index_->num_residuals(),
                                              this->kOneChunk,
                                              /*e_values=*/0));
    return kIsHost<Machine> ? Status()
                            : this->values_.Allocate(index_->num_values());
  }

  Status CreateJacobian(std::unique_ptr<RowsJacobian>* jacobian) const final {
    return MakeAndSetUp<Jacobian>(jacobian, &this->blocks());
  }

 private:
  int64_t FirstResidual(int64_t row) const final {
    return index_->row_begin()[row];
  }
  HostEvaluation::PlaceOf ValuesOf(int64_t /*begin*/,
                                   RowsJacobian* jacobian) final {
    double* const values = kIsHost<Machine>
                               ? static_cast<Jacobian*>(jacobian)->values()
                               : this->values_.data();
    return [this, values](int64_t k) {
      const int32_t cell = index_->cell_begin()[k];
      // A row without cells has no place of its own.
      return cell == index_->cell_begin()[k + 1]
                 ? values
                 : values + index_->cells()[cell].value;
    };
  }
  Status Store(int64_t /*begin*/,
               int64_t /*end*/,
               RowsJacobian* jacobian) final {
    return kIsHost<Machine> ? Status()
                            : this->machine()->Upload(
                                  this->values_.size(),
                                  this->values_.data(),
                                  static_cast<Jacobian*>(jacobian)->values());
  }

  const kernels::BlockRowsBuilder* index_ = nullptr;
};

}  // namespace

template <typename Machine>
Status CreateGeneralRows(const HostRowsInput<Machine>& input,
                         std::unique_ptr<RowsEvaluator>* rows) {
  return MakeAndSetUp<GeneralRows<Machine>>(rows, input);
}

#define CERES_EXT_INSTANTIATE(Machine)        \
  template class HostRows<Machine>;           \
  template Status CreateGeneralRows<Machine>( \
      const HostRowsInput<Machine>& input,    \
      std::unique_ptr<RowsEvaluator>* rows);
CERES_EXT_FOR_EACH_MACHINE(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext
