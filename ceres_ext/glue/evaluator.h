// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Evaluates a program for Ceres's loop: each batch its rows (rows.h), and the
// state x (+) delta.
//
// Cost and gradient are sums over the batches in their order.

#ifndef CERES_EXT_GLUE_EVALUATOR_H_
#define CERES_EXT_GLUE_EVALUATOR_H_

#include <atomic>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ceres/casts.h"
#include "ceres/evaluation_callback.h"
#include "ceres/evaluator.h"
#include "ceres/execution_summary.h"
#include "ceres/parameter_block.h"
#include "ceres/preprocessor.h"
#include "ceres/program.h"
#include "ceres_ext/glue/block_manifolds.h"
#include "ceres_ext/glue/block_table.h"
#include "ceres_ext/glue/failure.h"
#include "ceres_ext/glue/jacobian.h"
#include "ceres_ext/glue/machines.h"
#include "ceres_ext/glue/program_blocks.h"
#include "ceres_ext/glue/rows.h"
#include "ceres_ext/glue/scoped_seconds.h"
#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_context.h"
#include "cuda_kernels/ops/block_table.h"
#include "cuda_kernels/ops/vectors.h"
#include "glog/logging.h"

namespace ceres_ext {

template <typename Machine>
class ProgramEvaluator final : public ceres::internal::Evaluator {
 public:
  // *blocks, *pp, *host_context and *failure outlive the evaluator.
  // program_is_shell: the Program of *pp has none of the blocks
  // (array_import.h).
  ProgramEvaluator(const ProgramBlocks<Machine>* blocks,
                   bool program_is_shell,
                   ceres::internal::PreprocessedProblem* pp,
                   kernels::HostContext* host_context,
                   Failure* failure)
      : blocks_(blocks),
        program_is_shell_(program_is_shell),
        host_context_(host_context),
        failure_(failure),
        machine_(blocks->machine()),
        program_(pp->reduced_program.get()),
        evaluation_callback_(program_->mutable_evaluation_callback()) {}

  // Once, before anything else. rows: the evaluators of the batches in their
  // order. All memory of the solve's evaluations, the Jacobian's included, is
  // taken here.
  kernels::Status Setup(std::vector<std::unique_ptr<RowsEvaluator>> rows) {
    rows_ = std::move(rows);
    CERES_EXT_RETURN_IF_ERROR(ChoosePlus());
    for (const auto& part : rows_) {
      if (part->CostTakesScratch()) {
        CERES_EXT_RETURN_IF_ERROR(AllocateScratch());
      }
    }
    needs_host_state_ = evaluation_callback_ != nullptr;
    for (const auto& part : rows_) {
      needs_host_state_ |= part->num_host_rows() > 0;
    }
    if (!kIsHost<Machine>) {
      if (needs_host_state_) {
        CERES_EXT_RETURN_IF_ERROR(host_state_.Allocate(NumParameters()));
      }
      if (plus_by_ == PlusBy::kHost) {
        CERES_EXT_RETURN_IF_ERROR(host_plus_.Allocate(
            2 * int64_t{NumParameters()} + NumEffectiveParameters()));
      }
    }
    return MakeJacobian(&jacobian_);
  }

  // The Jacobian that Setup made; null when asked a second time.
  std::unique_ptr<ceres::internal::SparseMatrix> CreateJacobian() const final {
    return std::move(jacobian_);
  }
  // Blocks that vary and whose manifold a device leaves to the host, and the
  // type of the first.
  int num_host_manifolds() const {
    return kIsHost<Machine> ? 0 : manifolds_.num_called();
  }
  std::string host_manifold_type() const {
    return kIsHost<Machine> ? "" : manifolds_.called_type();
  }
  // Room for NumResiduals() values that an evaluation may use; null: none. What
  // is not kept over an evaluation may stand there too.
  double* scratch_residuals() { return scratch_residuals_.data(); }
  // Until CreateJacobian gives it away.
  ProgramJacobian<Machine>* jacobian() { return jacobian_.get(); }

  bool Evaluate(const EvaluateOptions& evaluate_options,
                const double* state,
                double* cost,
                double* residuals,
                double* gradient,
                ceres::internal::SparseMatrix* jacobian) final {
    const bool want_jacobian = gradient != nullptr || jacobian != nullptr;
    auto& of_type = want_jacobian ? jacobian_calls_ : residual_calls_;
    const ScopedSeconds total_timer(&total_calls_.time);
    const ScopedSeconds timer(&of_type.time);
    ++total_calls_.calls;
    ++of_type.calls;
    return !failure_->has_happened() && failure_->Guard(false, [&] {
      failure_->Explain("");
      return EvaluateUnguarded(
          evaluate_options, state, cost, residuals, gradient, jacobian);
    });
  }

  bool Plus(const double* state,
            const double* delta,
            double* state_plus_delta) const final {
    return !failure_->has_happened() && failure_->Guard(false, [&] {
      const CurrentMachine<Machine> current(machine_);
      const kernels::Status status =
          !current.status().ok() ? current.status()
          : plus_by_ == PlusBy::kHost
              ? PlusOnHost(state, delta, state_plus_delta)
          : plus_by_ == PlusBy::kMachine
              ? PlusOnMachine(state, delta, state_plus_delta)
              : kernels::Run(
                    kernels::AddVectorsParams{
                        NumParameters(), state, delta, state_plus_delta},
                    machine_);
      return Ok(status);
    });
  }

  int NumParameters() const final { return blocks_->num_parameters(); }
  int NumEffectiveParameters() const final { return blocks_->num_columns(); }
  int NumResiduals() const final { return blocks_->num_residuals(); }

  std::map<std::string, ceres::internal::CallStatistics> Statistics()
      const final {
    using Calls = std::map<std::string, ceres::internal::CallStatistics>;
    return failure_->Guard(Calls(), [&] {
      return Calls{{"Evaluator::Total", total_calls_},
                   {"Evaluator::Residual", residual_calls_},
                   {"Evaluator::Jacobian", jacobian_calls_}};
    });
  }

 private:
  using Buffer = typename Machine::template Buffer<double>;
  using Jacobian = ProgramJacobian<Machine>;
  // Who computes x (+) delta.
  enum class PlusBy { kSum, kMachine, kHost };

  bool EvaluateUnguarded(const EvaluateOptions& evaluate_options,
                         const double* state,
                         double* cost,
                         double* residuals,
                         double* gradient,
                         ceres::internal::SparseMatrix* jacobian) {
    const bool want_jacobian = gradient != nullptr || jacobian != nullptr;
    if (!PrepareHostState(evaluate_options, state, want_jacobian)) {
      return false;
    }
    auto* program_jacobian =
        jacobian != nullptr
            ? ceres::down_cast<ProgramJacobian<Machine>*>(jacobian)
            : nullptr;
    const CurrentMachine<Machine> current(machine_);
    kernels::Status status = current.status();
    if (want_jacobian && program_jacobian == nullptr) {
      if (status.ok() && scratch_jacobian_ == nullptr) {
        status = MakeJacobian(&scratch_jacobian_);
      }
      program_jacobian = scratch_jacobian_.get();
    }
    if (status.ok()) {
      status = EvaluateRows(
          evaluate_options, state, residuals, gradient, program_jacobian);
    }
    if (!Ok(status) || !Finish(cost)) {
      return false;
    }
    if (program_jacobian != nullptr) {
      program_jacobian->NoteEvaluation(*cost);
    }
    return true;
  }

  // On the host all is Ceres's, elsewhere bounds are.
  kernels::Status ChoosePlus() {
    if (kIsHost<Machine> && !program_is_shell_) {
      return {};
    }
    std::vector<BlockManifold> blocks;
    for (const auto* families : {&blocks_->e(), &blocks_->f()}) {
      for (const auto& family : *families) {
        if (family.table().HasManifold()) {
          AppendBlocks(family.table(), &blocks);
        } else {
          plain_families_.push_back(&family.view());
        }
      }
    }
    if (!program_->IsBoundsConstrained()) {
      plus_by_ = blocks.empty() && NumParameters() == NumEffectiveParameters()
                     ? PlusBy::kSum
                     : PlusBy::kMachine;
    }
    return manifolds_.Setup(blocks, /*wants_tangents=*/false, machine_);
  }

  static void AppendBlocks(const BlockTable& table,
                           std::vector<BlockManifold>* blocks) {
    for (int32_t i = 0; i < table.size(); ++i) {
      if (table.state_offset(i) >= 0) {
        const ceres::Manifold* manifold = table.manifold(i);
        blocks->push_back({manifold,
                           table.state_offset(i),
                           table.tangent_offset(i),
                           manifold != nullptr ? manifold->AmbientSize()
                                               : table.tangent_size(i),
                           table.tangent_size(i)});
      }
    }
  }

  kernels::Status MakeJacobian(std::unique_ptr<Jacobian>* jacobian) const {
    std::vector<std::unique_ptr<RowsJacobian>> parts(rows_.size());
    for (size_t i = 0; i < rows_.size(); ++i) {
      CERES_EXT_RETURN_IF_ERROR(rows_[i]->CreateJacobian(&parts[i]));
    }
    return MakeAndSetUp<Jacobian>(
        jacobian, blocks_, std::move(parts), failure_);
  }

  // Publishes the state where somebody on the host reads it.
  bool PrepareHostState(const EvaluateOptions& evaluate_options,
                        const double* state,
                        bool want_jacobian) {
    if (!needs_host_state_) {
      return true;
    }
    if constexpr (!kIsHost<Machine>) {
      const CurrentMachine<Machine> current(machine_);
      if (!Ok(current.status()) ||
          !Ok(machine_->Download(NumParameters(), state, host_state_.data()))) {
        return false;
      }
    }
    if (evaluation_callback_ != nullptr) {
      // The callback reads the user's state, and Ceres's blocks read this copy.
      if (!program_->StateVectorToParameterBlocks(HostState(state))) {
        return false;
      }
      program_->CopyParameterBlockStateToUserState();
      evaluation_callback_->PrepareForEvaluation(
          want_jacobian, evaluate_options.new_evaluation_point);
    }
    return true;
  }

  const double* HostState(const double* state) const {
    return kIsHost<Machine> ? state : host_state_.data();
  }

  kernels::Status AllocateScratch() {
    return scratch_residuals_.size() == 0
               ? machine_->Allocate(NumResiduals(), &scratch_residuals_)
               : kernels::Status();
  }

  kernels::Status EvaluateRows(const EvaluateOptions& evaluate_options,
                               const double* state,
                               double* residuals,
                               double* gradient,
                               Jacobian* jacobian) {
    RowsRequest request;
    request.state = state;
    request.host_state = HostState(state);
    request.apply_loss = evaluate_options.apply_loss_function;
    request.want_gradient = gradient != nullptr;
    if (request.want_gradient) {
      request.e_gradient = blocks_->working().e;
      request.f_gradient = blocks_->working().f;
      CERES_EXT_RETURN_IF_ERROR(
          blocks_->SetSharedToZero(request.e_gradient, request.f_gradient));
    }
    if (jacobian != nullptr && residuals == nullptr) {
      // No step of the trust-region loop asks for this.
      CERES_EXT_RETURN_IF_ERROR(AllocateScratch());
    }
    int64_t begin = 0;
    for (size_t i = 0; i < rows_.size(); ++i) {
      request.residuals = residuals == nullptr ? nullptr : residuals + begin;
      request.scratch_residuals = scratch_residuals_.size() == 0
                                      ? nullptr
                                      : scratch_residuals_.data() + begin;
      request.jacobian =
          jacobian == nullptr ? nullptr : jacobian->part(static_cast<int>(i));
      CERES_EXT_RETURN_IF_ERROR(rows_[i]->Evaluate(request));
      begin += rows_[i]->num_residuals();
    }
    return gradient == nullptr
               ? kernels::Status()
               : blocks_->Scatter(
                     request.e_gradient, request.f_gradient, gradient);
  }

  // Reads the evaluations; false where one isn't finite.
  bool Finish(double* cost) {
    kernels::Evaluation sum;
    for (const auto& rows : rows_) {
      kernels::Evaluation evaluation;
      if (!Ok(rows->Read(&evaluation))) {
        return false;
      }
      sum.cost += evaluation.cost;
      sum.num_not_finite += evaluation.num_not_finite;
    }
    *cost = sum.cost;
    if (sum.num_not_finite > 0) {
      return Ok({kernels::StatusCode::kNumericalFailure,
                 "Residual or Jacobian of " +
                     std::to_string(sum.num_not_finite) +
                     " observations is not finite: a point is at the optical "
                     "centre of a camera, or a parameter is out of range."});
    }
    if (!std::isfinite(sum.cost)) {
      return Ok({kernels::StatusCode::kNumericalFailure,
                 "Accumulated cost = " + std::to_string(sum.cost) +
                     " is not a finite number. Evaluation failed."});
    }
    return true;
  }

  // A cost function or manifold that can't be evaluated somewhere is no error
  // of the program, and Ceres may find a way on.
  bool Ok(const kernels::Status& status) const {
    if (status.code == kernels::StatusCode::kNumericalFailure) {
      LOG_IF(WARNING, failure_->is_logged()) << status.message;
      failure_->Explain(status.message);
    } else if (!status.ok()) {
      LOG_IF(ERROR, failure_->is_logged())
          << "Evaluation failed: " << status.message;
      failure_->Set(status);
    }
    return status.ok();
  }

  kernels::Status PlusOnMachine(const double* state,
                                const double* delta,
                                double* state_plus_delta) const {
    for (const kernels::BlockTableView* family : plain_families_) {
      CERES_EXT_RETURN_IF_ERROR(kernels::Run(
          kernels::PlusParams{*family, state, delta, state_plus_delta},
          machine_));
    }
    return manifolds_.Plus(state, delta, state_plus_delta);
  }

  kernels::Status PlusOnHost(const double* state,
                             const double* delta,
                             double* state_plus_delta) const {
    const auto plus = [&](const double* x, const double* d, double* sum) {
      std::string what;
      return Succeeds([&] { return PlusOfCeres(x, d, sum); }, &what)
                 ? kernels::Status()
                 : kernels::Status(kernels::StatusCode::kNumericalFailure,
                                   "Manifold::Plus " + what);
    };
    if constexpr (kIsHost<Machine>) {
      return plus(state, delta, state_plus_delta);
    } else {
      double* const x = host_plus_.data();
      double* const d = x + NumParameters();
      double* const sum = d + NumEffectiveParameters();
      CERES_EXT_RETURN_IF_ERROR(machine_->Download(NumParameters(), state, x));
      CERES_EXT_RETURN_IF_ERROR(
          machine_->Download(NumEffectiveParameters(), delta, d));
      CERES_EXT_RETURN_IF_ERROR(plus(x, d, sum));
      return machine_->Upload(NumParameters(), sum, state_plus_delta);
    }
  }

  // Program::Plus on threads from which what a user's manifold throws gets
  // here.
  bool PlusOfCeres(const double* x, const double* delta, double* sum) const {
    constexpr int64_t kBlocksPerTask = 1 << 10;  // some 20 us
    const auto& all = program_->parameter_blocks();
    std::atomic<bool> ok{true};
    host_context_->ParallelFor(
        static_cast<int64_t>(all.size()),
        kBlocksPerTask,
        [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const int state = all[i]->state_offset();
            if (!all[i]->Plus(
                    x + state, delta + all[i]->delta_offset(), sum + state)) {
              ok = false;
            }
          }
        });
    return ok;
  }

  const ProgramBlocks<Machine>* blocks_;
  const bool program_is_shell_;
  kernels::HostContext* host_context_;
  Failure* failure_;
  Machine* machine_;
  ceres::internal::Program* program_;
  ceres::EvaluationCallback* evaluation_callback_;
  std::vector<std::unique_ptr<RowsEvaluator>> rows_;
  // By rows or by the callback.
  bool needs_host_state_ = false;
  PlusBy plus_by_ = PlusBy::kHost;
  // Not on the host: families without manifolds, and the blocks of others.
  std::vector<const kernels::BlockTableView*> plain_families_;
  mutable BlockManifolds<Machine> manifolds_;

  Buffer scratch_residuals_;
  // The state, where it isn't on the host; state, delta and their sum.
  kernels::HostBuffer<double> host_state_;
  mutable kernels::HostBuffer<double> host_plus_;
  mutable std::unique_ptr<Jacobian> jacobian_;
  // For gradients without a Jacobian (line search); made when first asked for.
  std::unique_ptr<Jacobian> scratch_jacobian_;
  // Ceres's own timers take memory when they stop.
  ceres::internal::CallStatistics total_calls_;
  ceres::internal::CallStatistics residual_calls_;
  ceres::internal::CallStatistics jacobian_calls_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_EVALUATOR_H_
