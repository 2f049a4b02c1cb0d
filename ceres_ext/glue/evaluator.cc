// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/evaluator.h"

#include <cmath>
#include <utility>

#include "ceres/casts.h"
#include "ceres/problem_impl.h"
#include "ceres/program.h"
#include "ceres_ext/glue/machines.h"
#include "cuda_kernels/ops/block_table.h"
#include "cuda_kernels/ops/vectors.h"
#include "glog/logging.h"

namespace ceres_ext {

using kernels::Status;
using kernels::StatusCode;

template <typename Machine>
std::unique_ptr<ProgramEvaluator<Machine>> ProgramEvaluator<Machine>::Create(
    const ProgramBlocks<Machine>* blocks,
    std::vector<std::unique_ptr<ObservationEvaluatorBase>> observations,
    std::vector<std::unique_ptr<RowsEvaluator>> others,
    ceres::internal::PreprocessedProblem* pp,
    Status* status) {
  std::unique_ptr<ProgramEvaluator> evaluator(new ProgramEvaluator(blocks, pp));
  for (auto& rows : observations) {
    evaluator->observations_.push_back(rows.get());
    evaluator->rows_.push_back(std::move(rows));
  }
  for (auto& rows : others) {
    evaluator->rows_.push_back(std::move(rows));
  }
  *status = evaluator->Setup();
  return status->ok() ? std::move(evaluator) : nullptr;
}

template <typename Machine>
Status ProgramEvaluator<Machine>::Setup() {
  ChoosePlus();
  const solver::ProblemBlocks& blocks = blocks_->blocks();
  CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(NumResiduals(), &residuals_));
  CERES_EXT_RETURN_IF_ERROR(
      machine_->Allocate(blocks.e.num_values(), &e_gradient_));
  CERES_EXT_RETURN_IF_ERROR(
      machine_->Allocate(blocks.f.num_values(), &f_gradient_));
  for (const auto& rows : rows_) {
    needs_host_state_ |= rows->needs_host_state();
  }
  if (!kIsHost<Machine>) {
    if (needs_host_state_ || evaluation_callback_ != nullptr) {
      CERES_EXT_RETURN_IF_ERROR(host_state_.Allocate(NumParameters()));
    }
    if (plus_by_ == PlusBy::kHost) {
      CERES_EXT_RETURN_IF_ERROR(host_plus_.Allocate(
          2 * int64_t{NumParameters()} + NumEffectiveParameters()));
    }
  }
  Status status;
  jacobian_ = MakeJacobian(&status);
  return status;
}

// Manifolds and bounds are Ceres's; a machine that isn't the host does what it
// can itself.
template <typename Machine>
void ProgramEvaluator<Machine>::ChoosePlus() {
  plus_by_ = PlusBy::kHost;
  if (kIsHost<Machine> || program_->IsBoundsConstrained()) {
    return;
  }
  const auto has_manifold = [](const auto& table) {
    return table.table().HasManifold();
  };
  bool any = false;
  bool others = false;
  for (const auto& table : blocks_->e()) {
    others |= has_manifold(table);
  }
  for (int i = 0; i < static_cast<int>(blocks_->f().size()); ++i) {
    const bool has = has_manifold(blocks_->f()[i]);
    any |= has;
    const bool is_camera =
        blocks_->blocks().f_owner[i] != solver::ProblemBlocks::kShared;
    others |= has && !is_camera;
  }
  if (others) {
    return;
  }
  plus_by_ = !any && NumParameters() == NumEffectiveParameters()
                 ? PlusBy::kSum
                 : PlusBy::kMachine;
}

template <typename Machine>
std::unique_ptr<ProgramJacobian<Machine>>
ProgramEvaluator<Machine>::MakeJacobian(Status* status) const {
  std::vector<std::unique_ptr<RowsJacobian>> parts;
  for (const auto& rows : rows_) {
    parts.push_back(rows->CreateJacobian(status));
    if (!status->ok()) {
      return nullptr;
    }
  }
  return ProgramJacobian<Machine>::Create(blocks_, std::move(parts), status);
}

template <typename Machine>
std::unique_ptr<ceres::internal::SparseMatrix>
ProgramEvaluator<Machine>::CreateJacobian() const {
  return std::move(jacobian_);
}

template <typename Machine>
bool ProgramEvaluator<Machine>::PrepareHostState(
    const EvaluateOptions& evaluate_options,
    const double* state,
    bool want_jacobian) {
  if (!needs_host_state_ && evaluation_callback_ == nullptr) {
    return true;
  }
  const double* host_state = state;
  if constexpr (!kIsHost<Machine>) {
    const Status status =
        machine_->Download(NumParameters(), state, host_state_.data());
    if (!status.ok()) {
      LOG(ERROR) << "Evaluation failed: " << status.message;
      return false;
    }
    host_state = host_state_.data();
  }
  if (evaluation_callback_ != nullptr) {
    // The callback reads the user's state, and Ceres's blocks read this copy.
    if (!program_->StateVectorToParameterBlocks(host_state)) {
      return false;
    }
    program_->CopyParameterBlockStateToUserState();
    evaluation_callback_->PrepareForEvaluation(
        want_jacobian, evaluate_options.new_evaluation_point);
  }
  return true;
}

template <typename Machine>
bool ProgramEvaluator<Machine>::Evaluate(
    const EvaluateOptions& evaluate_options,
    const double* state,
    double* cost,
    double* residuals,
    double* gradient,
    ceres::internal::SparseMatrix* jacobian) {
  using ceres::internal::ScopedExecutionTimer;
  const bool want_jacobian = gradient != nullptr || jacobian != nullptr;
  ScopedExecutionTimer total_timer("Evaluator::Total", &execution_summary_);
  ScopedExecutionTimer call_type_timer(
      want_jacobian ? "Evaluator::Jacobian" : "Evaluator::Residual",
      &execution_summary_);
  if (!PrepareHostState(evaluate_options, state, want_jacobian)) {
    return false;
  }
  auto* program_jacobian =
      jacobian != nullptr
          ? ceres::down_cast<ProgramJacobian<Machine>*>(jacobian)
          : nullptr;
  Status status;
  if (want_jacobian && program_jacobian == nullptr) {
    if (scratch_jacobian_ == nullptr) {
      scratch_jacobian_ = MakeJacobian(&status);
    }
    program_jacobian = scratch_jacobian_.get();
  }
  if (status.ok()) {
    status = EvaluateRows(
        evaluate_options, state, residuals, gradient, program_jacobian);
  }
  if (!status.ok()) {
    // A cost function that can't be evaluated somewhere is no error of the
    // program.
    if (status.code == StatusCode::kNumericalFailure) {
      LOG(WARNING) << status.message;
    } else {
      LOG(ERROR) << "Evaluation failed: " << status.message;
    }
    return false;
  }
  return Finish(cost);
}

template <typename Machine>
Status ProgramEvaluator<Machine>::EvaluateRows(
    const EvaluateOptions& evaluate_options,
    const double* state,
    double* residuals,
    double* gradient,
    ProgramJacobian<Machine>* jacobian) {
  RowsRequest request;
  request.state = state;
  request.host_state = kIsHost<Machine> ? state : host_state_.data();
  request.apply_loss = evaluate_options.apply_loss_function;
  request.want_gradient = gradient != nullptr;
  if (request.want_gradient) {
    request.e_gradient = e_gradient_.data();
    request.f_gradient = f_gradient_.data();
    CERES_EXT_RETURN_IF_ERROR(
        blocks_->SetSharedToZero(request.e_gradient, request.f_gradient));
  }
  int64_t begin = 0;
  for (size_t i = 0; i < rows_.size(); ++i) {
    request.residuals = residuals == nullptr ? nullptr : residuals + begin;
    request.scratch_residuals = residuals_.data() + begin;
    request.jacobian =
        jacobian == nullptr ? nullptr : jacobian->part(static_cast<int>(i));
    CERES_EXT_RETURN_IF_ERROR(rows_[i]->Evaluate(request));
    begin += rows_[i]->num_residuals();
  }
  return gradient == nullptr
             ? Status()
             : blocks_->Scatter(
                   e_gradient_.data(), f_gradient_.data(), gradient);
}

template <typename Machine>
bool ProgramEvaluator<Machine>::Finish(double* cost) {
  kernels::Evaluation sum;
  for (const auto& rows : rows_) {
    kernels::Evaluation evaluation;
    const Status status = rows->Read(&evaluation);
    if (!status.ok()) {
      LOG(ERROR) << "Evaluation failed: " << status.message;
      return false;
    }
    sum.cost += evaluation.cost;
    sum.num_not_finite += evaluation.num_not_finite;
  }
  *cost = sum.cost;
  if (sum.num_not_finite > 0) {
    LOG(WARNING) << "Residual or Jacobian of " << sum.num_not_finite
                 << " observations is not finite: a point is at the optical "
                    "centre of a camera, or a parameter is out of range.";
    return false;
  }
  if (!std::isfinite(sum.cost)) {
    LOG(ERROR) << "Accumulated cost = " << sum.cost
               << " is not a finite number. Evaluation failed.";
    return false;
  }
  return true;
}

template <typename Machine>
bool ProgramEvaluator<Machine>::Plus(const double* state,
                                     const double* delta,
                                     double* state_plus_delta) const {
  Status status;
  switch (plus_by_) {
    case PlusBy::kSum:
      status = kernels::Run(
          kernels::AddVectorsParams{
              NumParameters(), state, delta, state_plus_delta},
          machine_);
      break;
    case PlusBy::kMachine:
      status = PlusOnMachine(state, delta, state_plus_delta);
      break;
    case PlusBy::kHost:
      status = PlusOnHost(state, delta, state_plus_delta);
      break;
  }
  LOG_IF(WARNING, !status.ok()) << status.message;
  return status.ok();
}

template <typename Machine>
Status ProgramEvaluator<Machine>::PlusOnMachine(
    const double* state, const double* delta, double* state_plus_delta) const {
  const auto plus = [&](kernels::PlusParams params) {
    params.state = state;
    params.delta = delta;
    params.state_plus_delta = state_plus_delta;
    return kernels::Run(params, machine_);
  };
  for (const ObservationEvaluatorBase* rows : observations_) {
    CERES_EXT_RETURN_IF_ERROR(plus(rows->PlusCameras()));
  }
  const auto plus_family = [&](const FamilyTable<Machine>& family) {
    kernels::PlusParams params;
    params.table = family.view();
    return plus(params);
  };
  for (const auto& family : blocks_->e()) {
    CERES_EXT_RETURN_IF_ERROR(plus_family(family));
  }
  for (size_t i = 0; i < blocks_->f().size(); ++i) {
    if (blocks_->blocks().f_owner[i] == solver::ProblemBlocks::kShared) {
      CERES_EXT_RETURN_IF_ERROR(plus_family(blocks_->f()[i]));
    }
  }
  return {};
}

template <typename Machine>
Status ProgramEvaluator<Machine>::PlusOnHost(const double* state,
                                             const double* delta,
                                             double* state_plus_delta) const {
  const auto plus = [&](const double* x, const double* d, double* sum) {
    return program_->Plus(x, d, sum, ceres_context_, num_threads_)
               ? Status()
               : Status(StatusCode::kNumericalFailure,
                        "Manifold::Plus failed.");
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

template <typename Machine>
int64_t ProgramEvaluator<Machine>::bytes() const {
  int64_t sum = residuals_.bytes() + e_gradient_.bytes() + f_gradient_.bytes() +
                host_state_.bytes() + host_plus_.bytes() +
                (jacobian_ != nullptr ? jacobian_->bytes() : 0);
  for (const auto& rows : rows_) {
    sum += rows->bytes();
  }
  return sum;
}

#define CERES_EXT_INSTANTIATE(Machine) template class ProgramEvaluator<Machine>;
CERES_EXT_FOR_EACH_MACHINE(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext
