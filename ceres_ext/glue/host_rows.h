// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Rows that Ceres evaluates: any cost function, loss and manifold, on the
// threads of the host. Their Jacobian is a general batch
// (ceres_ext/solver/general_batch.h); values and residuals go to the machine in
// the order of its index.
//
// A cost function that returns false, or whose numbers aren't finite, makes the
// evaluation fail, as in Ceres; so does one that throws. The order of sums does
// not depend on threads or runs.

#ifndef CERES_EXT_GLUE_HOST_ROWS_H_
#define CERES_EXT_GLUE_HOST_ROWS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ceres/program.h"
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
  static std::unique_ptr<HostRows> Create(ceres::internal::Program* program,
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
    evaluation->cost = cost_;
    return {};
  }
  int64_t bytes() const final {
    return residuals_.bytes() + values_.bytes() + scratch_.bytes() +
           costs_.bytes();
  }

 private:
  HostRows(ceres::internal::Program* program,
           const ProgramBlocks<Machine>* blocks,
           kernels::HostContext* host_context,
           SolveRecord* record)
      : program_(program),
        blocks_(blocks),
        host_context_(host_context),
        record_(record) {}

  kernels::Status Setup(const ProgramStructure& structure);
  // Points the parameter blocks of the rows at the state.
  kernels::Status Publish(const double* host_state);
  // values: null, the cost alone.
  kernels::Status EvaluateRows(bool apply_loss,
                               double* residuals,
                               double* values);

  ceres::internal::Program* program_;
  const ProgramBlocks<Machine>* blocks_;
  kernels::HostContext* host_context_;
  SolveRecord* record_;

  // In the order of the index.
  std::vector<const ceres::internal::ResidualBlock*> rows_;
  std::vector<int> eliminated_;  // which of the row's blocks is; -1: none
  // The varying parameter blocks of the rows, and their state, one after the
  // other: where each begins in it. Ceres's blocks keep its address.
  ceres::internal::Program used_;
  std::vector<int64_t> state_begin_;
  kernels::HostBuffer<double> state_;
  int64_t scratch_size_ = 0;
  double cost_ = 0.0;
  kernels::HostBuffer<double> costs_;    // per task
  kernels::HostBuffer<double> scratch_;  // per thread
  // What crosses to a device; empty on the host.
  kernels::HostBuffer<double> residuals_;
  kernels::HostBuffer<double> values_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_HOST_ROWS_H_
