// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/observation_evaluator.h"

#include <utility>

#include "ceres_ext/glue/machines.h"
#include "cuda_kernels/ops/block_table.h"
#include "cuda_kernels/ops/jacobian_products.h"
#include "cuda_kernels/ops/vectors.h"

namespace ceres_ext {

using kernels::Status;
using kernels::StatusCode;

namespace {

// Observations that a thread works on at a time.
constexpr int64_t kGrain = 2048;

}  // namespace

template <typename Machine, typename T, int C>
ObservationEvaluator<Machine, T, C>::ObservationEvaluator(
    JacobianType jacobian_type,
    const ObservationBlocks<Machine>* observations,
    const solver::ProblemBlocks& blocks)
    : jacobian_type_(jacobian_type),
      observations_(observations),
      blocks_(blocks),
      machine_(observations->machine) {}

template <typename Machine, typename T, int C>
std::unique_ptr<ObservationEvaluator<Machine, T, C>>
ObservationEvaluator<Machine, T, C>::Create(
    JacobianType jacobian_type,
    const ObservationRows& rows,
    const ObservationBlocks<Machine>* observations,
    const solver::ProblemBlocks& blocks,
    Status* status) {
  std::unique_ptr<ObservationEvaluator> evaluator(
      new ObservationEvaluator(jacobian_type, observations, blocks));
  *status = evaluator->Setup(rows);
  return status->ok() ? std::move(evaluator) : nullptr;
}

template <typename Machine, typename T, int C>
Status ObservationEvaluator<Machine, T, C>::Setup(const ObservationRows& rows) {
  if (jacobian_type_ == JACOBIAN_RECOMPUTED &&
      (!rows.loss.empty() || observations_->points().HasManifold())) {
    return {StatusCode::kUnsupported,
            "jacobian RECOMPUTED takes no loss and no manifold on points"};
  }
  CERES_EXT_RETURN_IF_ERROR(state_model_.Setup(rows.kind, observations_));
  CERES_EXT_RETURN_IF_ERROR(loss_model_.Setup(rows.loss, observations_));

  const int64_t n = observations_->index().num_observations;
  {
    Buffer<double> measurements;
    CERES_EXT_RETURN_IF_ERROR(
        machine_->Upload(2 * n, rows.observations.data(), &measurements));
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(2 * n, &measurements_));
    CERES_EXT_RETURN_IF_ERROR(kernels::Run(
        kernels::GatherPairsParams{n,
                                   observations_->index().input_id(),
                                   measurements.data(),
                                   measurements_.data()},
        machine_));
  }
  const int64_t num_cameras = observations_->cameras().size();
  CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(num_cameras, &camera_states_));
  CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(
      kernels::kBalLocalCameraDim * C * num_cameras, &camera_maps_));
  return machine_->Allocate(1, &evaluation_);
}

template <typename Machine, typename T, int C>
std::unique_ptr<RowsJacobian>
ObservationEvaluator<Machine, T, C>::CreateJacobian(Status* status) const {
  return Jacobian::Create(jacobian_type_, observations_, blocks_, status);
}

template <typename Machine, typename T, int C>
Status ObservationEvaluator<Machine, T, C>::PrepareCameras(bool want_maps) {
  const BatchState state = state_model_.state();
  kernels::PrepareCamerasParams<double, C> params;
  params.num_cameras = observations_->cameras().size();
  params.parameters = state.parameters;
  params.cameras = state.cameras;
  params.tangent = state.tangents;
  params.states = camera_states_.data();
  params.maps = want_maps ? camera_maps_.data() : nullptr;
  return kernels::Run(params, machine_);
}

template <typename Machine, typename T, int C>
Status ObservationEvaluator<Machine, T, C>::Evaluate(
    const RowsRequest& request) {
  const bool want_jacobian = request.jacobian != nullptr;
  CERES_EXT_RETURN_IF_ERROR(state_model_.Update(request.state, want_jacobian));
  CERES_EXT_RETURN_IF_ERROR(PrepareCameras(want_jacobian));
  const bool apply_loss = request.apply_loss && !loss_model_.empty();
  double* const all_residuals = request.residuals != nullptr
                                    ? request.residuals
                                    : request.scratch_residuals;
  if (!want_jacobian) {
    // Losses need the residuals; nothing else does.
    return EvaluateCost(apply_loss,
                        /*correct_residuals=*/request.residuals != nullptr,
                        apply_loss ? all_residuals : request.residuals);
  }
  auto* jacobian = static_cast<Jacobian*>(request.jacobian);
  double* points = nullptr;
  double* cameras = nullptr;
  if (request.want_gradient) {
    points = jacobian->owns_points()
                 ? request.e_gradient + blocks_.e[0].value_begin
                 : jacobian->point_scratch();
    cameras = request.f_gradient +
              blocks_.f[observations_->camera_family].value_begin;
  }
  CERES_EXT_RETURN_IF_ERROR(
      jacobian_type_ == JACOBIAN_STORED
          ? EvaluateJacobian(
                apply_loss, all_residuals, jacobian, points, cameras)
          : EvaluateRecomputedJacobian(
                all_residuals, jacobian, points, cameras));
  if (points == nullptr || jacobian->owns_points()) {
    return {};
  }
  double* const sum = request.e_gradient + blocks_.e[0].value_begin;
  return kernels::Run(
      kernels::AddVectorsParams{blocks_.e[0].num_values(), sum, points, sum},
      machine_);
}

template <typename Machine, typename T, int C>
Status ObservationEvaluator<Machine, T, C>::EvaluateCost(bool apply_loss,
                                                         bool correct_residuals,
                                                         double* residuals) {
  kernels::EvaluateCostParams params;
  params.index = observations_->index();
  params.cameras = camera_states_.data();
  params.points = state_model_.state().points;
  params.observations = measurements_.data();
  params.residuals = residuals;
  params.evaluation = evaluation_.data();
  CERES_EXT_RETURN_IF_ERROR(kernels::Run(params, machine_));
  return apply_loss ? loss_model_.template Correct<T, C>(
                          {}, correct_residuals, residuals, evaluation_.data())
                    : Status();
}

template <typename Machine, typename T, int C>
Status ObservationEvaluator<Machine, T, C>::EvaluateJacobian(
    bool apply_loss,
    double* residuals,
    Jacobian* jacobian,
    double* point_gradient,
    double* camera_gradient) {
  const BatchState state = state_model_.state();
  kernels::EvaluateJacobianParams<T, C, Machine::kLayout> params;
  params.index = observations_->index();
  params.cameras = camera_states_.data();
  params.camera_maps = camera_maps_.data();
  params.points = state.points;
  params.point_scale = state.point_scale;
  params.observations = measurements_.data();
  params.residuals = residuals;
  params.camera_blocks = jacobian->camera_blocks();
  params.point_blocks = jacobian->point_blocks();
  const bool want_gradient = camera_gradient != nullptr;
  const bool blocks_change = apply_loss || state_model_.has_point_tangents();
  if (want_gradient && !blocks_change) {
    params.camera_gradient = camera_gradient;
    params.point_gradient = point_gradient;
  }
  params.evaluation = evaluation_.data();
  CERES_EXT_RETURN_IF_ERROR(kernels::Run(params, machine_));

  if constexpr (kIsHost<Machine>) {
    if (state_model_.has_point_tangents()) {
      // Jp = Jp T_p
      const kernels::ObservationIndexView& index = observations_->index();
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
  return want_gradient && blocks_change
             ? MultiplyGradient(
                   *jacobian, residuals, point_gradient, camera_gradient)
             : Status();
}

template <typename Machine, typename T, int C>
Status ObservationEvaluator<Machine, T, C>::EvaluateRecomputedJacobian(
    double* residuals,
    Jacobian* jacobian,
    double* point_gradient,
    double* camera_gradient) {
  CERES_EXT_RETURN_IF_ERROR(EvaluateCost(
      /*apply_loss=*/false, /*correct_residuals=*/false, residuals));
  CERES_EXT_RETURN_IF_ERROR(jacobian->SetState(state_model_.state()));
  if (camera_gradient == nullptr) {
    return {};
  }
  // J'r in double, whatever the Jacobian's type.
  const BatchState state = state_model_.state();
  kernels::LeftMultiplyParams<kernels::RecomputedJacobian<double, C>> params;
  params.index = observations_->index();
  params.jacobian = {camera_states_.data(),
                     camera_maps_.data(),
                     state.points,
                     state.point_scale};
  params.y = residuals;
  params.camera_x = camera_gradient;
  params.point_x = point_gradient;
  return kernels::Run(params, machine_);
}

// g = J'r
template <typename Machine, typename T, int C>
Status ObservationEvaluator<Machine, T, C>::MultiplyGradient(
    const Jacobian& jacobian,
    const double* residuals,
    double* point_gradient,
    double* camera_gradient) {
  return jacobian.WithSource([&](auto source) {
    kernels::LeftMultiplyParams<decltype(source)> params;
    params.index = observations_->index();
    params.jacobian = source;
    params.y = residuals;
    params.camera_x = camera_gradient;
    params.point_x = point_gradient;
    return kernels::Run(params, machine_);
  });
}

template <typename Machine, typename T, int C>
int64_t ObservationEvaluator<Machine, T, C>::bytes() const {
  return state_model_.bytes() + loss_model_.bytes() + measurements_.bytes() +
         camera_states_.bytes() + camera_maps_.bytes();
}

#define CERES_EXT_INSTANTIATE(Machine, T, C) \
  template class ObservationEvaluator<Machine, T, C>;
CERES_EXT_FOR_EACH_BATCH(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext
