// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/evaluator.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>
#include <vector>

#include "ceres/casts.h"
#include "ceres/program.h"
#include "ceres_ext/glue/machines.h"
#include "cuda_kernels/ops/block_table.h"
#include "cuda_kernels/ops/jacobian_products.h"
#include "glog/logging.h"

namespace ceres_ext {

using kernels::Status;
using kernels::StatusCode;

namespace {

// Observations that a thread works on at a time.
constexpr int64_t kGrain = 2048;

}  // namespace

template <typename Machine, typename T, int C>
BatchEvaluator<Machine, T, C>::BatchEvaluator(
    JacobianType jacobian_type,
    const BatchShape<Machine>* shape,
    ceres::internal::PreprocessedProblem* pp)
    : jacobian_type_(jacobian_type),
      shape_(shape),
      machine_(shape->machine()),
      program_(pp->reduced_program.get()),
      evaluation_callback_(program_->mutable_evaluation_callback()) {}

template <typename Machine, typename T, int C>
std::unique_ptr<BatchEvaluator<Machine, T, C>>
BatchEvaluator<Machine, T, C>::Create(JacobianType jacobian_type,
                                      const BatchStructure& structure,
                                      const BatchShape<Machine>* shape,
                                      ceres::internal::PreprocessedProblem* pp,
                                      Status* status) {
  std::unique_ptr<BatchEvaluator> evaluator(
      new BatchEvaluator(jacobian_type, shape, pp));
  *status = evaluator->Setup(structure, pp);
  return status->ok() ? std::move(evaluator) : nullptr;
}

template <typename Machine, typename T, int C>
Status BatchEvaluator<Machine, T, C>::Setup(
    const BatchStructure& structure, ceres::internal::PreprocessedProblem* pp) {
  if (jacobian_type_ == JACOBIAN_RECOMPUTED &&
      (!structure.loss.empty() || shape_->points().HasManifold())) {
    return {StatusCode::kUnsupported,
            "jacobian RECOMPUTED takes no loss and no manifold on points"};
  }
  CERES_EXT_RETURN_IF_ERROR(state_model_.Setup(structure.kind, shape_, pp));
  CERES_EXT_RETURN_IF_ERROR(loss_model_.Setup(structure.loss, shape_));

  const int64_t n = shape_->index().num_observations;
  {
    Buffer<double> observations;
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Upload(2 * n, structure.observations.data(), &observations));
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(2 * n, &observations_));
    CERES_EXT_RETURN_IF_ERROR(
        kernels::Run(kernels::GatherPairsParams{n,
                                                shape_->index().input_id,
                                                observations.data(),
                                                observations_.data()},
                     machine_));
  }

  const int64_t num_cameras = shape_->cameras().size();
  CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(num_cameras, &camera_states_));
  CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(
      kernels::kBalLocalCameraDim * C * num_cameras, &camera_maps_));
  CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(2 * n, &residuals_));
  CERES_EXT_RETURN_IF_ERROR(
      machine_->Allocate(C * num_cameras, &camera_gradient_));
  CERES_EXT_RETURN_IF_ERROR(
      machine_->Allocate(shape_->points().padded_values(), &point_gradient_));
  CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(1, &evaluation_));
  Status status;
  jacobian_ = Jacobian::Create(jacobian_type_, shape_, &status);
  return status;
}

template <typename Machine, typename T, int C>
std::unique_ptr<ceres::internal::SparseMatrix>
BatchEvaluator<Machine, T, C>::CreateJacobian() const {
  return std::move(jacobian_);
}

template <typename Machine, typename T, int C>
bool BatchEvaluator<Machine, T, C>::Plus(const double* state,
                                         const double* delta,
                                         double* state_plus_delta) const {
  const Status status = state_model_.Plus(state, delta, state_plus_delta);
  LOG_IF(WARNING, !status.ok()) << status.message;
  return status.ok();
}

template <typename Machine, typename T, int C>
Status BatchEvaluator<Machine, T, C>::PrepareCameras(bool want_maps) {
  const BatchState state = state_model_.state();
  kernels::PrepareCamerasParams<double, C> params;
  params.num_cameras = shape_->cameras().size();
  params.parameters = state.parameters;
  params.cameras = state.cameras;
  params.tangent = state.tangents;
  params.states = camera_states_.data();
  params.maps = want_maps ? camera_maps_.data() : nullptr;
  return kernels::Run(params, machine_);
}

template <typename Machine, typename T, int C>
bool BatchEvaluator<Machine, T, C>::Evaluate(
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

  if (evaluation_callback_ != nullptr) {
    // The callback reads the user's state, and Ceres's blocks read this copy.
    std::vector<double> host_state(NumParameters());
    const Status status =
        machine_->Download(NumParameters(), state, host_state.data());
    if (!status.ok() ||
        !program_->StateVectorToParameterBlocks(host_state.data())) {
      return false;
    }
    program_->CopyParameterBlockStateToUserState();
    evaluation_callback_->PrepareForEvaluation(
        want_jacobian, evaluate_options.new_evaluation_point);
  }

  const auto evaluate = [&]() -> Status {
    CERES_EXT_RETURN_IF_ERROR(state_model_.Update(state, want_jacobian));
    CERES_EXT_RETURN_IF_ERROR(PrepareCameras(want_jacobian));
    const bool apply_loss =
        evaluate_options.apply_loss_function && !loss_model_.empty();
    double* all_residuals =
        residuals != nullptr ? residuals : residuals_.data();
    if (!want_jacobian) {
      // Losses need the residuals; nothing else does.
      return EvaluateCost(apply_loss,
                          /*correct_residuals=*/residuals != nullptr,
                          apply_loss ? all_residuals : residuals);
    }
    auto* batch_jacobian =
        jacobian != nullptr ? ceres::down_cast<Jacobian*>(jacobian) : nullptr;
    if (batch_jacobian == nullptr) {
      if (scratch_jacobian_ == nullptr) {
        Status status;
        scratch_jacobian_ = Jacobian::Create(jacobian_type_, shape_, &status);
        CERES_EXT_RETURN_IF_ERROR(status);
      }
      batch_jacobian = scratch_jacobian_.get();
    }
    CERES_EXT_RETURN_IF_ERROR(
        jacobian_type_ == JACOBIAN_STORED
            ? EvaluateJacobian(apply_loss,
                               gradient != nullptr,
                               all_residuals,
                               batch_jacobian)
            : EvaluateRecomputedJacobian(
                  gradient != nullptr, all_residuals, batch_jacobian));
    return gradient != nullptr
               ? shape_->Scatter(
                     camera_gradient_.data(), point_gradient_.data(), gradient)
               : Status();
  };
  const Status status = evaluate();
  if (!status.ok()) {
    LOG(ERROR) << "Evaluation failed: " << status.message;
    return false;
  }
  return Finish(cost);
}

template <typename Machine, typename T, int C>
bool BatchEvaluator<Machine, T, C>::Finish(double* cost) {
  kernels::Evaluation evaluation;
  const Status status = machine_->Read(evaluation_.data(), &evaluation);
  if (!status.ok()) {
    LOG(ERROR) << "Evaluation failed: " << status.message;
    return false;
  }
  *cost = evaluation.cost;
  if (evaluation.num_not_finite > 0) {
    LOG(WARNING) << "Residual or Jacobian of " << evaluation.num_not_finite
                 << " observations is not finite: a point is at the optical "
                    "centre of a camera, or a parameter is out of range.";
    return false;
  }
  if (!std::isfinite(evaluation.cost)) {
    LOG(ERROR) << "Accumulated cost = " << evaluation.cost
               << " is not a finite number. Evaluation failed.";
    return false;
  }
  return true;
}

template <typename Machine, typename T, int C>
Status BatchEvaluator<Machine, T, C>::EvaluateCost(bool apply_loss,
                                                   bool correct_residuals,
                                                   double* residuals) {
  kernels::EvaluateCostParams params;
  params.index = shape_->index();
  params.cameras = camera_states_.data();
  params.points = state_model_.state().points;
  params.observations = observations_.data();
  params.residuals = residuals;
  params.evaluation = evaluation_.data();
  CERES_EXT_RETURN_IF_ERROR(kernels::Run(params, machine_));
  return apply_loss ? loss_model_.template Correct<T, C>(
                          {}, correct_residuals, residuals, evaluation_.data())
                    : Status();
}

template <typename Machine, typename T, int C>
Status BatchEvaluator<Machine, T, C>::EvaluateJacobian(bool apply_loss,
                                                       bool want_gradient,
                                                       double* residuals,
                                                       Jacobian* jacobian) {
  const BatchState state = state_model_.state();
  kernels::EvaluateJacobianParams<T, C, Machine::kLayout> params;
  params.index = shape_->index();
  params.cameras = camera_states_.data();
  params.camera_maps = camera_maps_.data();
  params.points = state.points;
  params.point_scale = state.point_scale;
  params.observations = observations_.data();
  params.residuals = residuals;
  params.camera_blocks = jacobian->camera_blocks();
  params.point_blocks = jacobian->point_blocks();
  const bool blocks_change = apply_loss || state_model_.has_point_tangents();
  if (want_gradient && !blocks_change) {
    params.camera_gradient = camera_gradient_.data();
    params.point_gradient = point_gradient_.data();
  }
  params.evaluation = evaluation_.data();
  CERES_EXT_RETURN_IF_ERROR(kernels::Run(params, machine_));

  if constexpr (kIsHost<Machine>) {
    if (state_model_.has_point_tangents()) {
      // Jp = Jp T_p
      const kernels::ObservationIndexView& index = shape_->index();
      machine_->context()->ParallelFor(
          index.num_observations, kGrain, [&](int64_t begin, int64_t end) {
            for (int64_t k = begin; k < end; ++k) {
              const double* tangent = state_model_.point_tangents() +
                                      9 * int64_t{index.point_id[k]};
              T* jp = &params.point_blocks(k, 0);
              for (int row = 0; row < 2; ++row, jp += 3) {
                const T old[3] = {jp[0], jp[1], jp[2]};
                for (int j = 0; j < 3; ++j) {
                  jp[j] = static_cast<T>(old[0] * tangent[j] +
                                         old[1] * tangent[3 + j] +
                                         old[2] * tangent[6 + j]);
                }
              }
            }
          });
    }
  }
  if (apply_loss) {
    CERES_EXT_RETURN_IF_ERROR((loss_model_.template Correct<T, C>(
        {params.camera_blocks, params.point_blocks},
        /*correct_residuals=*/true,
        residuals,
        evaluation_.data())));
  }
  return want_gradient && blocks_change ? MultiplyGradient(*jacobian, residuals)
                                        : Status();
}

template <typename Machine, typename T, int C>
Status BatchEvaluator<Machine, T, C>::EvaluateRecomputedJacobian(
    bool want_gradient, double* residuals, Jacobian* jacobian) {
  CERES_EXT_RETURN_IF_ERROR(EvaluateCost(
      /*apply_loss=*/false, /*correct_residuals=*/false, residuals));
  CERES_EXT_RETURN_IF_ERROR(jacobian->SetState(state_model_.state()));
  if (!want_gradient) {
    return {};
  }
  // J'r in double, whatever the Jacobian's type.
  const BatchState state = state_model_.state();
  kernels::LeftMultiplyParams<kernels::RecomputedJacobian<double, C>> params;
  params.index = shape_->index();
  params.jacobian = {camera_states_.data(),
                     camera_maps_.data(),
                     state.points,
                     state.point_scale};
  params.y = residuals;
  params.camera_x = camera_gradient_.data();
  params.point_x = point_gradient_.data();
  return kernels::Run(params, machine_);
}

// g = J'r
template <typename Machine, typename T, int C>
Status BatchEvaluator<Machine, T, C>::MultiplyGradient(
    const Jacobian& jacobian, const double* residuals) {
  return jacobian.WithSource([&](auto source) {
    kernels::LeftMultiplyParams<decltype(source)> params;
    params.index = shape_->index();
    params.jacobian = source;
    params.y = residuals;
    params.camera_x = camera_gradient_.data();
    params.point_x = point_gradient_.data();
    return kernels::Run(params, machine_);
  });
}

template <typename Machine, typename T, int C>
int64_t BatchEvaluator<Machine, T, C>::bytes() const {
  return state_model_.bytes() + loss_model_.bytes() + observations_.bytes() +
         camera_states_.bytes() + camera_maps_.bytes() + residuals_.bytes() +
         camera_gradient_.bytes() + point_gradient_.bytes() +
         (jacobian_ != nullptr ? jacobian_->bytes() : 0);
}

#define CERES_EXT_INSTANTIATE(Machine, T, C) \
  template class BatchEvaluator<Machine, T, C>;
CERES_EXT_FOR_EACH_BATCH(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext
