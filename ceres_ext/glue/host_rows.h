// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Rows of any shape that Ceres evaluates (host_evaluation.h). Their Jacobian is
// a general batch (ceres_ext/solver/general_batch.h); values and residuals go
// to the machine in the order of its index.

#ifndef CERES_EXT_GLUE_HOST_ROWS_H_
#define CERES_EXT_GLUE_HOST_ROWS_H_

#include <cstdint>
#include <memory>

#include "ceres/program.h"
#include "ceres_ext/glue/host_evaluation.h"
#include "ceres_ext/glue/program_blocks.h"
#include "ceres_ext/glue/rows.h"
#include "ceres_ext/glue/solve_record.h"
#include "ceres_ext/solver/general_batch.h"
#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

template <typename Machine>
class HostRowsJacobian final : public RowsJacobian {
 public:
  // *blocks outlives the Jacobian.
  static std::unique_ptr<HostRowsJacobian> Create(
      const ProgramBlocks<Machine>* blocks, kernels::Status* status);

  solver::Batch* batch() final { return &batch_; }
  kernels::Status ScaleColumns(const double* e, const double* f) final {
    return batch_.ScaleColumns(e, f);
  }
  kernels::Status SetZero() final;
  kernels::Status ForEachValue(const Visit& visit) const final;
  int64_t num_nonzeros() const final { return values_.size(); }
  int64_t bytes() const final { return values_.bytes(); }

  double* values() { return values_.data(); }

 private:
  explicit HostRowsJacobian(const ProgramBlocks<Machine>* blocks)
      : blocks_(blocks) {}

  const ProgramBlocks<Machine>* blocks_;
  typename Machine::template Buffer<double> values_;
  solver::GeneralBatch<Machine> batch_;
};

template <typename Machine>
class HostRows final : public RowsEvaluator {
 public:
  // structure: what *blocks was set up from. Everything else outlives the
  // evaluator.
  static std::unique_ptr<HostRows> Create(
      const ceres::internal::Program& program,
      const ProgramStructure& structure,
      const ProgramBlocks<Machine>* blocks,
      kernels::HostContext* host_context,
      SolveRecord* record,
      kernels::Status* status);

  int64_t num_residuals() const final {
    return blocks_->host_rows()->num_residuals();
  }
  bool needs_host_state() const final { return true; }
  std::unique_ptr<RowsJacobian> CreateJacobian(
      kernels::Status* status) const final {
    return HostRowsJacobian<Machine>::Create(blocks_, status);
  }
  kernels::Status Evaluate(const RowsRequest& request) final;
  kernels::Status Read(kernels::Evaluation* evaluation) final {
    *evaluation = kernels::Evaluation();
    evaluation->cost = evaluation_.cost();
    return {};
  }
  int64_t bytes() const final {
    return evaluation_.bytes() + residuals_.bytes() + values_.bytes();
  }

 private:
  HostRows(const ProgramBlocks<Machine>* blocks, SolveRecord* record)
      : blocks_(blocks), record_(record) {}

  const ProgramBlocks<Machine>* blocks_;
  SolveRecord* record_;
  HostEvaluation evaluation_;
  // What crosses to a device; empty on the host.
  kernels::HostBuffer<double> residuals_;
  kernels::HostBuffer<double> values_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_HOST_ROWS_H_
