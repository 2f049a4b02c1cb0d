// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/host_rows.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <utility>

#include "ceres/parameter_block.h"
#include "ceres/residual_block.h"
#include "ceres_ext/glue/machines.h"
#include "cuda_kernels/structure/block_rows.h"
#include "glog/logging.h"

namespace ceres_ext {

using ceres::internal::ParameterBlock;
using ceres::internal::ResidualBlock;
using kernels::Status;
using kernels::StatusCode;

namespace {

// Rows that a thread evaluates at a time: some tens of microseconds of
// autodiff.
constexpr int64_t kRowsPerTask = 64;
constexpr int64_t kBlocksPerTask = 1 << 12;

}  // namespace

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
    ceres::internal::Program* program,
    const ProgramStructure& structure,
    const ProgramBlocks<Machine>* blocks,
    kernels::HostContext* host_context,
    SolveRecord* record,
    Status* status) {
  std::unique_ptr<HostRows> rows(
      new HostRows(program, blocks, host_context, record));
  *status = rows->Setup(structure);
  return status->ok() ? std::move(rows) : nullptr;
}

template <typename Machine>
Status HostRows<Machine>::Setup(const ProgramStructure& structure) {
  const kernels::BlockRowsBuilder& index = *blocks_->host_rows();
  const int64_t n = index.num_rows();
  std::vector<char> is_used(program_->NumParameterBlocks(), 0);
  rows_.resize(n);
  eliminated_.assign(n, -1);
  int64_t state_size = 0;
  for (int64_t k = 0; k < n; ++k) {
    const ResidualBlock* row =
        program_->residual_blocks()[structure.host_rows[index.row_order()[k]]];
    rows_[k] = row;
    scratch_size_ =
        std::max<int64_t>(scratch_size_, row->NumScratchDoublesForEvaluate());
    for (int j = 0; j < row->NumParameterBlocks(); ++j) {
      ParameterBlock* block = row->parameter_blocks()[j];
      if (!block->IsConstant() &&
          structure.is_eliminated[block->index()] != 0) {
        eliminated_[k] = j;
      }
      if (!block->IsConstant() && is_used[block->index()] == 0) {
        is_used[block->index()] = 1;
        used_.mutable_parameter_blocks()->push_back(block);
        state_begin_.push_back(state_size);
        state_size += block->Size();
      }
    }
  }
  CERES_EXT_RETURN_IF_ERROR(state_.Allocate(state_size));
  // Whole cache lines per thread.
  scratch_size_ = (scratch_size_ + 15) / 8 * 8;
  CERES_EXT_RETURN_IF_ERROR(
      scratch_.Allocate(scratch_size_ * host_context_->num_threads()));
  CERES_EXT_RETURN_IF_ERROR(
      costs_.Allocate((n + kRowsPerTask - 1) / kRowsPerTask));
  if constexpr (!kIsHost<Machine>) {
    CERES_EXT_RETURN_IF_ERROR(residuals_.Allocate(index.num_residuals()));
    CERES_EXT_RETURN_IF_ERROR(values_.Allocate(index.num_values()));
  }
  return {};
}

template <typename Machine>
Status HostRows<Machine>::Publish(const double* host_state) {
  const auto& blocks = used_.parameter_blocks();
  host_context_->ParallelFor(static_cast<int64_t>(blocks.size()),
                             kBlocksPerTask,
                             [&](int64_t begin, int64_t end) {
                               for (int64_t i = begin; i < end; ++i) {
                                 std::copy_n(
                                     host_state + blocks[i]->state_offset(),
                                     blocks[i]->Size(),
                                     state_.data() + state_begin_[i]);
                               }
                             });
  // Serially: a user's PlusJacobian need not be thread safe.
  return used_.StateVectorToParameterBlocks(state_.data())
             ? Status()
             : Status(StatusCode::kNumericalFailure,
                      "Manifold::PlusJacobian failed.");
}

template <typename Machine>
Status HostRows<Machine>::EvaluateRows(bool apply_loss,
                                       double* residuals,
                                       double* values) {
  const kernels::BlockRowsBuilder& index = *blocks_->host_rows();
  std::mutex mutex;
  // The first row that failed, and what it threw.
  int64_t failed = index.num_rows();
  std::string thrown;
  host_context_->ParallelFor(
      index.num_rows(),
      kRowsPerTask,
      [&](int64_t begin, int64_t end, int thread) {
        std::vector<double*> jacobians;
        double* const scratch = scratch_.data() + scratch_size_ * thread;
        double sum = 0.0;
        for (int64_t k = begin; k < end; ++k) {
          const ResidualBlock& row = *rows_[k];
          bool ok = false;
          std::string what;
          try {
            double cost = 0.0;
            if (values != nullptr) {
              // Cells stand in the order of the row's blocks, but for the
              // eliminated one, which comes first.
              jacobians.assign(row.NumParameterBlocks(), nullptr);
              int32_t cell = index.cell_begin()[k];
              const int eliminated = eliminated_[k];
              if (eliminated >= 0) {
                jacobians[eliminated] = values + index.cells()[cell++].value;
              }
              for (int j = 0; j < row.NumParameterBlocks(); ++j) {
                if (j != eliminated &&
                    !row.parameter_blocks()[j]->IsConstant()) {
                  jacobians[j] = values + index.cells()[cell++].value;
                }
              }
            }
            ok = row.Evaluate(apply_loss,
                              &cost,
                              residuals == nullptr
                                  ? nullptr
                                  : residuals + index.row_begin()[k],
                              values == nullptr ? nullptr : jacobians.data(),
                              scratch);
            sum += cost;
          } catch (const std::exception& exception) {
            what = exception.what();
          } catch (...) {
            what = "something that is no std::exception";
          }
          if (!ok) {
            const std::lock_guard<std::mutex> lock(mutex);
            if (k < failed) {
              failed = k;
              thrown = what;
            }
            return;
          }
        }
        costs_.data()[begin / kRowsPerTask] = sum;
      });
  if (failed < index.num_rows()) {
    return {
        StatusCode::kNumericalFailure,
        "The cost function of residual block " +
            std::to_string(rows_[failed]->index()) +
            (thrown.empty() ? " can't be evaluated." : " threw: " + thrown)};
  }
  cost_ = 0.0;
  for (int64_t i = 0; i < costs_.size(); ++i) {
    cost_ += costs_.data()[i];
  }
  return {};
}

template <typename Machine>
Status HostRows<Machine>::Evaluate(const RowsRequest& request) {
  CERES_EXT_RETURN_IF_ERROR(Publish(request.host_state));
  auto* jacobian = static_cast<HostRowsJacobian<Machine>*>(request.jacobian);
  const bool want_residuals =
      request.residuals != nullptr || request.want_gradient;
  double* const residuals = request.residuals != nullptr
                                ? request.residuals
                                : request.scratch_residuals;
  if constexpr (kIsHost<Machine>) {
    CERES_EXT_RETURN_IF_ERROR(
        EvaluateRows(request.apply_loss,
                     want_residuals ? residuals : nullptr,
                     jacobian == nullptr ? nullptr : jacobian->values()));
  } else {
    CERES_EXT_RETURN_IF_ERROR(
        EvaluateRows(request.apply_loss,
                     want_residuals ? residuals_.data() : nullptr,
                     jacobian == nullptr ? nullptr : values_.data()));
    ScopedSeconds timer(&record_->import_time_in_seconds);
    Machine* machine = blocks_->machine();
    if (want_residuals) {
      CERES_EXT_RETURN_IF_ERROR(
          machine->Upload(residuals_.size(), residuals_.data(), residuals));
    }
    if (jacobian != nullptr) {
      CERES_EXT_RETURN_IF_ERROR(
          machine->Upload(values_.size(), values_.data(), jacobian->values()));
    }
  }
  return request.want_gradient
             ? jacobian->batch()->LeftMultiplyAndAccumulate(
                   residuals, request.e_gradient, request.f_gradient)
             : Status();
}

#define CERES_EXT_INSTANTIATE(Machine)      \
  template class HostRowsJacobian<Machine>; \
  template class HostRows<Machine>;
CERES_EXT_FOR_EACH_MACHINE(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext
