// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Rows of two residuals, one point and any other blocks, that Ceres evaluates
// (host_evaluation.h), as observations of views: their Jacobian has the layout
// and the operations of observations (ceres_ext/solver/view_batch.h). Chunks of
// rows go to the machine while the next are evaluated.

#ifndef CERES_EXT_GLUE_VIEW_ROWS_H_
#define CERES_EXT_GLUE_VIEW_ROWS_H_

#include <cstdint>
#include <memory>

#include "ceres/program.h"
#include "ceres_ext/glue/host_evaluation.h"
#include "ceres_ext/glue/program_blocks.h"
#include "ceres_ext/glue/program_import.h"
#include "ceres_ext/glue/rows.h"
#include "ceres_ext/glue/solve_record.h"
#include "ceres_ext/solver/view_batch.h"
#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_context.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/ops/views.h"

namespace ceres_ext {

template <typename Machine, typename T, int C>
class ViewRowsJacobian final : public RowsJacobian {
 public:
  using Shape = kernels::BalShape<C>;
  using Source = kernels::StoredJacobian<T, Shape, Machine::kLayout>;

  // *rows outlives the Jacobian.
  static std::unique_ptr<ViewRowsJacobian> Create(
      const ViewBlocks<Machine>* rows,
      const solver::ProblemBlocks& blocks,
      kernels::Status* status);

  kernels::BlockView<T, Shape::kFSize, Machine::kLayout> camera_blocks() {
    return {camera_blocks_.data(), rows_->index().num_observations};
  }
  kernels::BlockView<T, Shape::kESize, Machine::kLayout> point_blocks() {
    return {point_blocks_.data(), rows_->index().num_observations};
  }

  solver::Batch* batch() final { return &batch_; }
  kernels::Status ScaleColumns(const double* e, const double* f) final;
  kernels::Status SetZero() final;
  kernels::Status ForEachValue(const Visit& visit) const final;
  int64_t num_nonzeros() const final { return rows_->num_nonzeros; }
  int64_t bytes() const final {
    return camera_blocks_.bytes() + point_blocks_.bytes();
  }

 private:
  explicit ViewRowsJacobian(const ViewBlocks<Machine>* rows) : rows_(rows) {}
  kernels::Status Setup(const solver::ProblemBlocks& blocks);

  const ViewBlocks<Machine>* rows_;
  int64_t e_begin_ = 0;
  typename Machine::template Buffer<T> camera_blocks_;
  typename Machine::template Buffer<T> point_blocks_;
  solver::ViewBatch<Machine, Source> batch_;
};

template <typename Machine, typename T, int C>
class ViewRows final : public RowsEvaluator {
 public:
  // structure: what *rows was set up from. *rows, blocks, *host_context and
  // *record outlive the evaluator.
  static std::unique_ptr<RowsEvaluator> Create(
      const ceres::internal::Program& program,
      const ProgramStructure& structure,
      const ViewBlocks<Machine>* rows,
      const solver::ProblemBlocks& blocks,
      kernels::HostContext* host_context,
      SolveRecord* record,
      kernels::Status* status);

  int64_t num_residuals() const final {
    return Shape::kNumResiduals * rows_->index().num_observations;
  }
  bool needs_host_state() const final { return true; }
  std::unique_ptr<RowsJacobian> CreateJacobian(
      kernels::Status* status) const final {
    return Jacobian::Create(rows_, blocks_, status);
  }
  kernels::Status Evaluate(const RowsRequest& request) final;
  kernels::Status Read(kernels::Evaluation* evaluation) final {
    *evaluation = kernels::Evaluation();
    evaluation->cost = evaluation_.cost();
    return {};
  }
  int64_t bytes() const final {
    return evaluation_.bytes() + values_.bytes() + residuals_.bytes();
  }

 private:
  using Shape = kernels::BalShape<C>;
  using Jacobian = ViewRowsJacobian<Machine, T, C>;
  using Pack = kernels::PackRowsParams<T, Shape, Machine::kLayout>;
  // Rows of a chunk: 13 to 14 MB, which a device takes in half a millisecond.
  static constexpr int64_t kChunk = 1 << 16;
  static constexpr int kNumBuffers = 2;

  ViewRows(const ViewBlocks<Machine>* rows,
           const solver::ProblemBlocks& blocks,
           SolveRecord* record)
      : rows_(rows), blocks_(blocks), record_(record) {}

  kernels::Status EvaluateChunks(const RowsRequest& request,
                                 const HostEvaluation::PlaceOf& residuals_of);
  // Brings rows begin .. end - 1 into the Jacobian.
  kernels::Status PackChunk(int64_t begin,
                            int64_t end,
                            const double* values,
                            Jacobian* jacobian);

  const ViewBlocks<Machine>* rows_;
  const solver::ProblemBlocks& blocks_;
  SolveRecord* record_;
  HostEvaluation evaluation_;
  // Chunks on the host, and one on the machine where that is another.
  kernels::HostBuffer<double> values_;
  kernels::HostBuffer<double> residuals_;
  typename Machine::template Buffer<double> machine_values_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_VIEW_ROWS_H_
