// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Evaluates a program for Ceres's loop: each batch its rows (rows.h), and the
// state x (+) delta.
//
// Cost and gradient are sums over the batches in their order.

#ifndef CERES_EXT_GLUE_EVALUATOR_H_
#define CERES_EXT_GLUE_EVALUATOR_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ceres/evaluation_callback.h"
#include "ceres/evaluator.h"
#include "ceres/execution_summary.h"
#include "ceres/preprocessor.h"
#include "ceres_ext/glue/jacobian.h"
#include "ceres_ext/glue/observation_evaluator.h"
#include "ceres_ext/glue/program_blocks.h"
#include "ceres_ext/glue/rows.h"
#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/base/status.h"

namespace ceres_ext {

template <typename Machine>
class ProgramEvaluator final : public ceres::internal::Evaluator {
 public:
  // The evaluators of the batches in their order: observations, then others.
  // All memory of the solve's evaluations, the Jacobian's included, is taken
  // here. *blocks and *pp outlive the evaluator.
  static std::unique_ptr<ProgramEvaluator> Create(
      const ProgramBlocks<Machine>* blocks,
      std::vector<std::unique_ptr<ObservationEvaluatorBase>> observations,
      std::vector<std::unique_ptr<RowsEvaluator>> others,
      ceres::internal::PreprocessedProblem* pp,
      kernels::Status* status);

  // The Jacobian that Create made; null when asked a second time.
  std::unique_ptr<ceres::internal::SparseMatrix> CreateJacobian() const final;
  // Until CreateJacobian gives it away.
  ProgramJacobian<Machine>* jacobian() { return jacobian_.get(); }

  bool Evaluate(const EvaluateOptions& evaluate_options,
                const double* state,
                double* cost,
                double* residuals,
                double* gradient,
                ceres::internal::SparseMatrix* jacobian) final;

  bool Plus(const double* state,
            const double* delta,
            double* state_plus_delta) const final;

  int NumParameters() const final { return blocks_->num_parameters(); }
  int NumEffectiveParameters() const final { return blocks_->num_columns(); }
  int NumResiduals() const final { return blocks_->num_residuals(); }

  std::map<std::string, ceres::internal::CallStatistics> Statistics()
      const final {
    return execution_summary_.statistics();
  }

  // With the Jacobian, until CreateJacobian gives it away.
  int64_t bytes() const;

 private:
  // Who computes x (+) delta.
  enum class PlusBy { kSum, kMachine, kHost };

  ProgramEvaluator(const ProgramBlocks<Machine>* blocks,
                   ceres::internal::PreprocessedProblem* pp)
      : blocks_(blocks),
        machine_(blocks->machine()),
        program_(pp->reduced_program.get()),
        evaluation_callback_(program_->mutable_evaluation_callback()),
        ceres_context_(pp->problem->context()),
        num_threads_(pp->options.num_threads) {}

  kernels::Status Setup();
  void ChoosePlus();
  std::unique_ptr<ProgramJacobian<Machine>> MakeJacobian(
      kernels::Status* status) const;
  kernels::Status EvaluateRows(const EvaluateOptions& evaluate_options,
                               const double* state,
                               double* residuals,
                               double* gradient,
                               ProgramJacobian<Machine>* jacobian);
  // Reads the evaluations; false where one isn't finite.
  bool Finish(double* cost);
  // Publishes the state where somebody on the host reads it.
  bool PrepareHostState(const EvaluateOptions& evaluate_options,
                        const double* state,
                        bool want_jacobian);
  kernels::Status PlusOnMachine(const double* state,
                                const double* delta,
                                double* state_plus_delta) const;
  kernels::Status PlusOnHost(const double* state,
                             const double* delta,
                             double* state_plus_delta) const;

  const ProgramBlocks<Machine>* blocks_;
  Machine* machine_;
  ceres::internal::Program* program_;
  ceres::EvaluationCallback* evaluation_callback_;
  ceres::internal::ContextImpl* ceres_context_;
  const int num_threads_;
  std::vector<std::unique_ptr<RowsEvaluator>> rows_;
  // Those of rows_ that are observations.
  std::vector<const ObservationEvaluatorBase*> observations_;
  bool needs_host_state_ = false;
  PlusBy plus_by_ = PlusBy::kHost;

  typename Machine::template Buffer<double> residuals_;
  typename Machine::template Buffer<double> e_gradient_;
  typename Machine::template Buffer<double> f_gradient_;
  // The state, where it isn't on the host; state, delta and their sum.
  kernels::HostBuffer<double> host_state_;
  mutable kernels::HostBuffer<double> host_plus_;
  mutable std::unique_ptr<ProgramJacobian<Machine>> jacobian_;
  // For gradients without a Jacobian (line search); made when first asked for.
  std::unique_ptr<ProgramJacobian<Machine>> scratch_jacobian_;
  ceres::internal::ExecutionSummary execution_summary_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_EVALUATOR_H_
