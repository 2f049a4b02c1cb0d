// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/rows/observation_evaluator.h"

#include <cstdint>

#include "ceres_ext/base/machines.h"
#include "ceres_ext/base/type_name.h"
#include "ceres_ext/blocks/loss_model.h"
#include "ceres_ext/rows/observation_jacobian.h"
#include "ceres_ext/rows/state_model.h"
#include "cuda_kernels/ops/block_table.h"
#include "cuda_kernels/ops/evaluate.h"
#include "cuda_kernels/ops/jacobian_products.h"
#include "cuda_kernels/ops/manifolds.h"
#include "cuda_kernels/ops/robust_losses.h"
#include "cuda_kernels/ops/vectors.h"

namespace ceres_ext {
namespace {

using kernels::Status;

template <typename Machine, typename T, int C>
class ObservationEvaluator final : public BatchEvaluator {
 public:
  Status Setup(JacobianType jacobian_type,
               const ObservationTable& rows,
               const ObservationBlocks<Machine>* observations,
               const solver::ProblemBlocks* blocks,
               kernels::HostContext* host_context,
               Summary* summary) {
    jacobian_type_ = jacobian_type;
    observations_ = observations;
    blocks_ = blocks;
    machine_ = observations->machine;
    CERES_EXT_RETURN_IF_ERROR(state_model_.Setup(rows.kind, observations_));
    CERES_EXT_RETURN_IF_ERROR(
        rows.common_loss != nullptr
            ? loss_model_.Setup(
                  *rows.common_loss, rows.size(), host_context, machine_)
            : loss_model_.Setup(rows.loss, host_context, *observations_));
    if (rows.weights.size() > 0) {
      Buffer<double> weights;
      CERES_EXT_RETURN_IF_ERROR(GatherInOrder<1>(rows.weights, &weights));
      loss_model_.TakeWeights(rows.size(), std::move(weights));
    }
    loss_model_.Report(summary);
    if (loss_model_.calls_user()) {
      CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(
          observations_->index().num_observations, &squared_norms_));
    }
    CERES_EXT_RETURN_IF_ERROR(
        GatherInOrder<2>(rows.observations, &measurements_));
    const int64_t num_cameras = observations_->cameras().size();
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(num_cameras, &camera_states_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(
        kernels::kBalLocalCameraDim * C * num_cameras, &camera_maps_));
    return machine_->AllocateResult(&evaluation_);
  }

  int64_t num_residuals() const final {
    return 2 * observations_->index().num_observations;
  }

  // Losses need the residuals; nothing else does.
  bool CostTakesScratch() const final { return !loss_model_.empty(); }

  Status CreateJacobian(std::unique_ptr<BatchJacobian>* jacobian) const final {
    return WithJacobianType([&](auto type) {
      return MakeAndSetUp<typename decltype(type)::Type>(
          jacobian, observations_, *blocks_);
    });
  }

  Status Evaluate(const EvaluationRequest& request) final {
    const bool want_jacobian = request.jacobian != nullptr;
    CERES_EXT_RETURN_IF_ERROR(
        state_model_.Update(request.state, want_jacobian));
    CERES_EXT_RETURN_IF_ERROR(PrepareCameras(want_jacobian));
    const bool apply_loss = request.apply_loss && !loss_model_.empty();
    if (apply_loss && (want_jacobian || request.residuals != nullptr)) {
      CERES_EXT_RETURN_IF_ERROR(loss_model_.CheckFactors());
    }
    double* const all_residuals = request.residuals != nullptr
                                      ? request.residuals
                                      : request.scratch_residuals;
    if (!want_jacobian) {
      return EvaluateCost(apply_loss,
                          /*correct_residuals=*/request.residuals != nullptr,
                          apply_loss ? all_residuals : request.residuals);
    }
    const auto evaluate = [&](auto* jacobian) -> Status {
      auto* batch = jacobian->batch();
      if (!request.want_gradient) {
        return EvaluateJacobian(apply_loss, all_residuals, jacobian, {});
      }
      // Points are the first family (import/problem_structure.h).
      double* const points = request.e_gradient;
      Gradient gradient;
      gradient.points = batch->owns_points() ? points : batch->point_scratch();
      gradient.cameras = request.f_gradient +
                         blocks_->f[observations_->camera_family].value_begin;
      CERES_EXT_RETURN_IF_ERROR(
          EvaluateJacobian(apply_loss, all_residuals, jacobian, gradient));
      return batch->owns_points()
                 ? Status()
                 : kernels::Run(
                       kernels::AddVectorsParams{blocks_->e[0].num_values(),
                                                 points,
                                                 gradient.points,
                                                 points},
                       machine_);
    };
    return WithJacobianType([&](auto type) {
      return evaluate(
          static_cast<typename decltype(type)::Type*>(request.jacobian));
    });
  }

  Status Read(kernels::Evaluation* evaluation) final {
    return machine_->ReadResult(evaluation_, evaluation);
  }

 private:
  template <typename Value>
  using Buffer = typename Machine::template Buffer<Value>;

  // kSize values of each observation, in the order of the index.
  template <int kSize>
  Status GatherInOrder(const InputArray<double>& values,
                       Buffer<double>* in_order) {
    const kernels::ObservationIndexRef& index = observations_->index();
    Buffer<double> as_given;
    const double* from = values.data();
    if (!values.on_device()) {
      CERES_EXT_RETURN_IF_ERROR(
          machine_->Upload(values.size(), values.data(), &as_given));
      from = as_given.data();
    }
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(values.size(), in_order));
    return kernels::Run(
        kernels::GatherTuplesParams<kSize>{
            index.num_observations, index.input_id(), from, in_order->data()},
        machine_);
  }
  using Shape = kernels::BalShape<C>;
  using Stored = StoredBatchJacobian<
      Machine,
      solver::ObservationBatch<
          Machine,
          kernels::StoredJacobian<T, Shape, Machine::kLayout>>>;
  template <bool kScaledRows>
  using Recomputed = RecomputedObservationJacobian<Machine, T, C, kScaledRows>;

  // fn of an object whose Type is that of the Jacobian.
  template <typename TypeIn>
  struct OfType {
    using Type = TypeIn;
  };
  template <typename Function>
  Status WithJacobianType(Function&& fn) const {
    if (jacobian_type_ == JACOBIAN_STORED) {
      return fn(OfType<Stored>());
    }
    return loss_model_.empty() ? fn(OfType<Recomputed<false>>())
                               : fn(OfType<Recomputed<true>>());
  }

  // The place of J'r of cameras and points, or null.
  struct Gradient {
    double* points = nullptr;
    double* cameras = nullptr;
  };

  Status PrepareCameras(bool want_maps) {
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

  Status EvaluateCost(bool apply_loss,
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
    return apply_loss ? CorrectForLoss({}, correct_residuals, residuals)
                      : Status();
  }

  // Calls the losses of these residuals, if the host does. corrects: residuals
  // are corrected for them.
  Status CallLosses(const double* residuals, bool corrects) {
    if (!loss_model_.calls_user()) {
      return {};
    }
    CERES_EXT_RETURN_IF_ERROR(kernels::Run(
        kernels::SquaredNormsParams{observations_->index().num_observations,
                                    Shape::kNumResiduals,
                                    residuals,
                                    squared_norms_.data()},
        machine_));
    return loss_model_.UpdateRho(squared_norms_.data(), corrects);
  }

  // Sets the cost to 1/2 sum rho, and corrects residuals and blocks where they
  // are wanted.
  Status CorrectForLoss(
      const kernels::LossCorrection<T, Shape, Machine::kLayout>& correction,
      bool correct_residuals,
      double* residuals) {
    CERES_EXT_RETURN_IF_ERROR(CallLosses(residuals, correct_residuals));
    kernels::CorrectForLossParams<T, Shape, Machine::kLayout> params;
    params.n = observations_->index().num_observations;
    params.loss = loss_model_.ref();
    params.residuals = residuals;
    params.corrected_residuals = correct_residuals ? residuals : nullptr;
    params.correction = correction;
    params.evaluation = evaluation_.data();
    return kernels::Run(params, machine_);
  }

  Status EvaluateJacobian(bool apply_loss,
                          double* residuals,
                          Stored* jacobian,
                          const Gradient& gradient) {
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
    const double* const point_tangents = state_model_.point_tangents();
    const bool blocks_change = apply_loss || point_tangents != nullptr;
    if (!blocks_change) {
      params.camera_gradient = gradient.cameras;
      params.point_gradient = gradient.points;
    }
    params.evaluation = evaluation_.data();
    CERES_EXT_RETURN_IF_ERROR(kernels::Run(params, machine_));

    if (point_tangents != nullptr) {
      CERES_EXT_RETURN_IF_ERROR(kernels::Run(
          kernels::ApplyPointTangentsParams<T, Machine::kLayout>{
              params.index.num_observations,
              params.index.point_id,
              point_tangents,
              params.point_blocks},
          machine_));
    }
    if (apply_loss) {
      CERES_EXT_RETURN_IF_ERROR(
          CorrectForLoss({params.camera_blocks, params.point_blocks},
                         /*correct_residuals=*/true,
                         residuals));
    }
    return blocks_change
               ? MultiplyGradient(jacobian->source(), residuals, gradient)
               : Status();
  }

  template <bool kScaledRows>
  Status EvaluateJacobian([[maybe_unused]] bool apply_loss,
                          double* residuals,
                          Recomputed<kScaledRows>* jacobian,
                          const Gradient& gradient) {
    CERES_EXT_RETURN_IF_ERROR(EvaluateCost(
        /*apply_loss=*/false, /*correct_residuals=*/false, residuals));
    const BatchState state = state_model_.state();
    CERES_EXT_RETURN_IF_ERROR(jacobian->SetState(state));
    [[maybe_unused]] const int64_t n = observations_->index().num_observations;
    if constexpr (kScaledRows) {
      kernels::ScaleRowsForLossParams<T> params;
      params.n = n;
      if (apply_loss) {
        CERES_EXT_RETURN_IF_ERROR(CallLosses(residuals, /*corrects=*/true));
        params.loss = loss_model_.ref();
      }
      params.residuals = residuals;
      params.row_scale = jacobian->row_scale();
      params.evaluation = evaluation_.data();
      CERES_EXT_RETURN_IF_ERROR(kernels::Run(params, machine_));
    }
    // J'r in double, whatever the Jacobian's type; scaled rows have rho' r.
    CERES_EXT_RETURN_IF_ERROR(MultiplyGradient(
        kernels::RecomputedJacobian<double, C>{camera_states_.data(),
                                               camera_maps_.data(),
                                               state.points,
                                               state.point_scale},
        residuals,
        gradient));
    if constexpr (kScaledRows) {
      return kernels::Run(
          kernels::UnscaleResidualsParams<T>{
              n, jacobian->row_scale(), residuals},
          machine_);
    }
    return {};
  }

  // g = J'r
  template <typename Source>
  Status MultiplyGradient(const Source& jacobian,
                          const double* residuals,
                          const Gradient& gradient) {
    if (gradient.cameras == nullptr) {
      return {};
    }
    kernels::LeftMultiplyParams<Source> params;
    params.index = observations_->index();
    params.jacobian = jacobian;
    params.y = residuals;
    params.camera_x = gradient.cameras;
    params.point_x = gradient.points;
    return kernels::Run(params, machine_);
  }

  JacobianType jacobian_type_ = JACOBIAN_STORED;
  const ObservationBlocks<Machine>* observations_ = nullptr;
  const solver::ProblemBlocks* blocks_ = nullptr;
  Machine* machine_ = nullptr;
  StateModel<Machine> state_model_;
  LossModel<Machine> loss_model_;

  // |r|^2 per observation, for losses that the host calls.
  Buffer<double> squared_norms_;
  Buffer<double> measurements_;  // measured position, per observation
  Buffer<kernels::CameraState<double>> camera_states_;
  Buffer<double> camera_maps_;
  typename Machine::template Result<kernels::Evaluation> evaluation_;
};

}  // namespace

std::string WhyNotRecomputed(const ObservationTable& rows,
                             const BlockTable& points,
                             bool points_have_other_rows,
                             kernels::HostContext* host_context) {
  const ceres::LossFunction* const loss =
      rows.common_loss != nullptr
          ? FindNotConcave({rows.common_loss}, host_context)
          : FindNotConcave(rows.loss, host_context);
  if (loss != nullptr) {
    return "only losses of Ceres with rho' >= 0 and rho'' <= 0, but not " +
           TypeName(*loss);
  }
  const ceres::Manifold* const manifold = points.FindNoSubset();
  if (manifold != nullptr) {
    return "only ceres::SubsetManifold on points, but not " +
           TypeName(*manifold);
  }
  return points_have_other_rows && points.HasManifold()
             ? "no manifolds on points beside residual blocks of other cost "
               "functions"
             : "";
}

template <typename Machine>
Status CreateObservationEvaluator(
    bool recomputed,
    bool mixed,
    const ObservationTable& rows,
    const ObservationBlocks<Machine>* observations,
    const solver::ProblemBlocks& blocks,
    kernels::HostContext* host_context,
    Summary* summary,
    std::unique_ptr<BatchEvaluator>* evaluator) {
  const auto make = [&](auto value, auto columns) {
    return MakeAndSetUp<
        ObservationEvaluator<Machine, decltype(value), columns>>(
        evaluator,
        recomputed ? JACOBIAN_RECOMPUTED : JACOBIAN_STORED,
        rows,
        observations,
        &blocks,
        host_context,
        summary);
  };
  return WithBlockType<Machine>(mixed, [&](auto value) {
    return WithCameraColumns(
        observations->cameras().padded_size,
        [&](auto columns) { return make(value, columns); });
  });
}

#define CERES_EXT_INSTANTIATE(Machine)                   \
  template decltype(CreateObservationEvaluator<Machine>) \
      CreateObservationEvaluator<Machine>;
CERES_EXT_FOR_EACH_MACHINE(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext
