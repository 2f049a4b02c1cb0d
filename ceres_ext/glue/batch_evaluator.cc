// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/batch_evaluator.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ceres/casts.h"
#include "cuda_kernels/jacobian_products_kernels.h"
#include "cuda_kernels/robust_loss.h"
#include "glog/logging.h"

namespace ceres_ext {
namespace {

using kernels::Status;

// Observations of which a thread corrects the Jacobian at a time, and over
// which a partial cost is summed.
constexpr int64_t kGrain = 2048;

}  // namespace

template <int C>
BatchEvaluator<C>::BatchEvaluator(JacobianType jacobian_type,
                                  const BatchStructure& structure,
                                  BatchShape* shape,
                                  ceres::internal::PreprocessedProblem* pp)
    : jacobian_type_(jacobian_type),
      shape_(shape),
      program_(pp->reduced_program.get()),
      ceres_context_(pp->problem->context()),
      num_threads_(pp->options.num_threads),
      evaluation_callback_(program_->mutable_evaluation_callback()),
      camera_parameters_(structure.kind == BatchModelKind::kBalAngleAxis
                             ? kernels::CameraParameters::kAngleAxis
                             : kernels::CameraParameters::kQuaternion),
      num_parameters_(program_->NumParameters()),
      has_point_manifold_(shape->points.HasManifold()) {}

template <int C>
std::unique_ptr<BatchEvaluator<C>> BatchEvaluator<C>::Create(
    JacobianType jacobian_type,
    const BatchStructure& structure,
    BatchShape* shape,
    ceres::internal::PreprocessedProblem* pp,
    Status* status) {
  std::unique_ptr<BatchEvaluator> evaluator(
      new BatchEvaluator(jacobian_type, structure, shape, pp));
  *status = evaluator->Allocate(structure);
  return status->ok() ? std::move(evaluator) : nullptr;
}

template <int C>
Status BatchEvaluator<C>::Allocate(const BatchStructure& structure) {
  const BlockTable& cameras = shape_->cameras;
  const BlockTable& points = shape_->points;
  const kernels::ObservationIndexView& index = shape_->index.view();
  const int64_t n = index.num_observations;

  CERES_EXT_RETURN_IF_ERROR(observations_.Allocate(2 * n));
  for (int64_t k = 0; k < n; ++k) {
    std::copy_n(&structure.observations[2 * int64_t{index.input_id[k]}],
                2,
                observations_.data() + 2 * k);
  }
  if (!structure.loss.empty()) {
    loss_.resize(n);
    for (int64_t k = 0; k < n; ++k) {
      loss_[k] = structure.loss[index.input_id[k]];
    }
  }

  const int64_t num_cameras = cameras.size();
  const int64_t num_points = points.size();
  CERES_EXT_RETURN_IF_ERROR(
      cameras_.Allocate(cameras.ambient_size * num_cameras));
  CERES_EXT_RETURN_IF_ERROR(points_.Allocate(3 * num_points));
  CERES_EXT_RETURN_IF_ERROR(camera_states_.Allocate(num_cameras));
  CERES_EXT_RETURN_IF_ERROR(camera_maps_.Allocate(9 * C * num_cameras));
  if (cameras.HasManifold() || cameras.HasPadding() ||
      cameras.ambient_size != C) {
    CERES_EXT_RETURN_IF_ERROR(
        camera_tangents_.Allocate(cameras.ambient_size * C * num_cameras, 0.0));
  }
  if (has_point_manifold_) {
    CERES_EXT_RETURN_IF_ERROR(point_tangents_.Allocate(9 * num_points, 0.0));
  }
  if (points.HasPadding()) {
    CERES_EXT_RETURN_IF_ERROR(point_scale_.Allocate(3 * num_points, 1.0));
    for (int64_t p = 0; p < num_points; ++p) {
      if (points.constant_value[p] != nullptr) {
        std::fill_n(point_scale_.data() + 3 * p, 3, 0.0);
      }
    }
  }
  CERES_EXT_RETURN_IF_ERROR(residuals_.Allocate(2 * n));
  CERES_EXT_RETURN_IF_ERROR(camera_gradient_.Allocate(C * num_cameras));
  CERES_EXT_RETURN_IF_ERROR(point_gradient_.Allocate(3 * num_points));
  CERES_EXT_RETURN_IF_ERROR(partial_costs_.Allocate((n + kGrain - 1) / kGrain));
  Status status;
  jacobian_ = BatchJacobian<C>::Create(jacobian_type_, shape_, &status);
  return status;
}

template <int C>
std::unique_ptr<ceres::internal::SparseMatrix>
BatchEvaluator<C>::CreateJacobian() const {
  return std::move(jacobian_);
}

template <int C>
int BatchEvaluator<C>::NumResiduals() const {
  return static_cast<int>(2 * shape_->index.view().num_observations);
}

template <int C>
bool BatchEvaluator<C>::Plus(const double* state,
                             const double* delta,
                             double* state_plus_delta) const {
  return program_->Plus(
      state, delta, state_plus_delta, ceres_context_, num_threads_);
}

template <int C>
bool BatchEvaluator<C>::Prepare(const double* state, bool want_maps) {
  const BlockTable& cameras = shape_->cameras;
  const BlockTable& points = shape_->points;
  cameras.GatherState(state, cameras_.data(), shape_->context);
  points.GatherState(state, points_.data(), shape_->context);

  if (want_maps && camera_tangents_.size() > 0) {
    const int rows = cameras.ambient_size;
    double plus_jacobian[10 * 10];
    for (int64_t c = 0; c < cameras.size(); ++c) {
      double* tangent = camera_tangents_.data() + c * rows * C;
      const int columns = cameras.tangent_size[c];
      if (cameras.manifold[c] == nullptr) {
        for (int i = 0; i < columns; ++i) {
          tangent[i * C + i] = 1.0;
        }
        continue;
      }
      if (!cameras.manifold[c]->PlusJacobian(cameras_.data() + c * rows,
                                             plus_jacobian)) {
        LOG(WARNING) << "Manifold::PlusJacobian failed for a camera.";
        return false;
      }
      for (int i = 0; i < rows; ++i) {
        std::copy_n(plus_jacobian + i * columns, columns, tangent + i * C);
      }
    }
  }
  if (want_maps && has_point_manifold_) {
    double plus_jacobian[3 * 3];
    for (int64_t p = 0; p < points.size(); ++p) {
      double* tangent = point_tangents_.data() + 9 * p;
      const int columns = points.tangent_size[p];
      if (points.manifold[p] == nullptr) {
        for (int i = 0; i < columns; ++i) {
          tangent[3 * i + i] = 1.0;
        }
        continue;
      }
      if (!points.manifold[p]->PlusJacobian(points_.data() + 3 * p,
                                            plus_jacobian)) {
        LOG(WARNING) << "Manifold::PlusJacobian failed for a point.";
        return false;
      }
      for (int i = 0; i < 3; ++i) {
        std::copy_n(plus_jacobian + i * columns, columns, tangent + 3 * i);
      }
    }
  }

  kernels::PrepareCamerasParams<double, C> params;
  params.num_cameras = cameras.size();
  params.parameters = camera_parameters_;
  params.cameras = cameras_.data();
  params.tangent = camera_tangents_.data();
  params.states = camera_states_.data();
  params.maps = want_maps ? camera_maps_.data() : nullptr;
  const Status status =
      kernels::reference::PrepareCameras(params, shape_->context);
  LOG_IF(ERROR, !status.ok()) << status.message;
  return status.ok();
}

template <int C>
bool BatchEvaluator<C>::Evaluate(const EvaluateOptions& evaluate_options,
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
    if (!program_->StateVectorToParameterBlocks(state)) {
      return false;
    }
    program_->CopyParameterBlockStateToUserState();
    evaluation_callback_->PrepareForEvaluation(
        want_jacobian, evaluate_options.new_evaluation_point);
  }

  if (!Prepare(state, want_jacobian)) {
    return false;
  }
  const bool apply_loss =
      evaluate_options.apply_loss_function && !loss_.empty();
  if (residuals == nullptr) {
    residuals = residuals_.data();
  }
  if (!want_jacobian) {
    return EvaluateCost(apply_loss, cost, residuals);
  }
  auto* batch_jacobian = jacobian != nullptr
                             ? ceres::down_cast<BatchJacobian<C>*>(jacobian)
                             : nullptr;
  if (batch_jacobian == nullptr) {
    if (scratch_jacobian_ == nullptr) {
      Status status;
      scratch_jacobian_ =
          BatchJacobian<C>::Create(jacobian_type_, shape_, &status);
      if (!status.ok()) {
        LOG(ERROR) << status.message;
        return false;
      }
    }
    batch_jacobian = scratch_jacobian_.get();
  }
  const bool valid =
      jacobian_type_ == JACOBIAN_STORED
          ? EvaluateJacobian(
                apply_loss, cost, residuals, gradient, batch_jacobian)
          : EvaluateRecomputedJacobian(
                cost, residuals, gradient, batch_jacobian);
  if (valid && gradient != nullptr) {
    shape_->cameras.Scatter(camera_gradient_.data(), gradient, shape_->context);
    shape_->points.Scatter(point_gradient_.data(), gradient, shape_->context);
  }
  return valid;
}

template <int C>
bool BatchEvaluator<C>::CheckEvaluation(
    const kernels::Evaluation& evaluation) const {
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

template <int C>
bool BatchEvaluator<C>::EvaluateCost(bool apply_loss,
                                     double* cost,
                                     double* residuals) {
  kernels::Evaluation evaluation;
  kernels::EvaluateCostParams params;
  params.index = shape_->index.view();
  params.cameras = camera_states_.data();
  params.points = points_.data();
  params.observations = observations_.data();
  params.residuals = residuals;
  params.evaluation = &evaluation;
  kernels::reference::EvaluateCost(params, shape_->backend.workspace());
  if (apply_loss && evaluation.num_not_finite == 0) {
    evaluation.cost = Correct(apply_loss, residuals, /*jacobian=*/nullptr);
  }
  *cost = evaluation.cost;
  return CheckEvaluation(evaluation);
}

template <int C>
bool BatchEvaluator<C>::EvaluateJacobian(bool apply_loss,
                                         double* cost,
                                         double* residuals,
                                         double* gradient,
                                         BatchJacobian<C>* jacobian) {
  kernels::Evaluation evaluation;
  kernels::EvaluateJacobianParams<double, C, kernels::kHostLayout> params;
  params.index = shape_->index.view();
  params.cameras = camera_states_.data();
  params.camera_maps = camera_maps_.data();
  params.points = points_.data();
  params.point_scale = point_scale_.data();
  params.observations = observations_.data();
  params.residuals = residuals;
  params.camera_blocks = jacobian->camera_blocks();
  params.point_blocks = jacobian->point_blocks();
  const bool must_correct = apply_loss || has_point_manifold_;
  if (gradient != nullptr && !must_correct) {
    params.camera_gradient = camera_gradient_.data();
    params.point_gradient = point_gradient_.data();
  }
  params.evaluation = &evaluation;
  kernels::reference::EvaluateJacobian(params, shape_->backend.workspace());

  if (must_correct && evaluation.num_not_finite == 0) {
    evaluation.cost = Correct(apply_loss, residuals, jacobian);
    if (gradient != nullptr) {
      MultiplyGradient(*jacobian, residuals);
    }
  }
  *cost = evaluation.cost;
  return CheckEvaluation(evaluation);
}

template <int C>
bool BatchEvaluator<C>::EvaluateRecomputedJacobian(double* cost,
                                                   double* residuals,
                                                   double* gradient,
                                                   BatchJacobian<C>* jacobian) {
  if (!EvaluateCost(/*apply_loss=*/false, cost, residuals)) {
    return false;
  }
  jacobian->SetState(camera_states_.data(),
                     camera_maps_.data(),
                     points_.data(),
                     point_scale_.data());
  if (gradient != nullptr) {
    MultiplyGradient(*jacobian, residuals);
  }
  return true;
}

// g = J'r
template <int C>
void BatchEvaluator<C>::MultiplyGradient(const BatchJacobian<C>& jacobian,
                                         const double* residuals) {
  jacobian.WithSource([&](auto source) {
    kernels::LeftMultiplyParams<decltype(source)> params;
    params.index = shape_->index.view();
    params.jacobian = source;
    params.y = residuals;
    params.camera_x = camera_gradient_.data();
    params.point_x = point_gradient_.data();
    kernels::reference::LeftMultiply(params, shape_->backend.workspace());
  });
}

template <int C>
double BatchEvaluator<C>::Correct(bool apply_loss,
                                  double* residuals,
                                  BatchJacobian<C>* jacobian) {
  const kernels::ObservationIndexView& index = shape_->index.view();
  shape_->context->ParallelFor(
      index.num_observations, kGrain, [&](int64_t begin, int64_t end) {
        double chunk_cost = 0.0;
        for (int64_t k = begin; k < end; ++k) {
          double* r = residuals + 2 * k;
          const double squared_norm = r[0] * r[0] + r[1] * r[1];
          const ceres::LossFunction* loss = apply_loss ? loss_[k] : nullptr;
          double rho[3] = {squared_norm, 1.0, 0.0};
          if (loss != nullptr) {
            loss->Evaluate(squared_norm, rho);
          }
          chunk_cost += 0.5 * rho[0];
          if (jacobian == nullptr) {
            continue;
          }
          const auto camera_blocks = jacobian->camera_blocks();
          const auto point_blocks = jacobian->point_blocks();
          if (has_point_manifold_) {
            // Jp T_p
            const double* tangent =
                point_tangents_.data() + 9 * int64_t{index.point_id[k]};
            for (int row = 0; row < 2; ++row) {
              double product[3] = {0.0, 0.0, 0.0};
              for (int i = 0; i < 3; ++i) {
                for (int j = 0; j < 3; ++j) {
                  product[j] +=
                      point_blocks(k, 3 * row + i) * tangent[3 * i + j];
                }
              }
              for (int j = 0; j < 3; ++j) {
                point_blocks(k, 3 * row + j) = product[j];
              }
            }
          }
          if (loss != nullptr) {
            const kernels::LossCorrector corrector(squared_norm, rho);
            corrector.template CorrectJacobian<2, C>(r, &camera_blocks(k, 0));
            corrector.template CorrectJacobian<2, 3>(r, &point_blocks(k, 0));
            corrector.template CorrectResidual<2>(r);
          }
        }
        partial_costs_.data()[begin / kGrain] = chunk_cost;
      });
  double cost = 0.0;
  for (int64_t i = 0; i < partial_costs_.size(); ++i) {
    cost += partial_costs_.data()[i];
  }
  return cost;
}

template <int C>
int64_t BatchEvaluator<C>::memory_bytes() const {
  return observations_.bytes() +
         static_cast<int64_t>(loss_.size() * sizeof(loss_[0])) +
         cameras_.bytes() + points_.bytes() + camera_tangents_.bytes() +
         point_tangents_.bytes() + point_scale_.bytes() +
         camera_states_.bytes() + camera_maps_.bytes() + residuals_.bytes() +
         camera_gradient_.bytes() + point_gradient_.bytes() +
         partial_costs_.bytes() +
         (jacobian_ != nullptr ? jacobian_->memory_bytes() : 0);
}

template class BatchEvaluator<9>;
template class BatchEvaluator<10>;

}  // namespace ceres_ext
