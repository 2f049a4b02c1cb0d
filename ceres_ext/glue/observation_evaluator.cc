// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/observation_evaluator.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "ceres/manifold.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/glue/losses.h"
#include "ceres_ext/glue/machines.h"
#include "ceres_ext/glue/observation_jacobian.h"
#include "cuda_kernels/ops/block_table.h"
#include "cuda_kernels/ops/evaluate.h"
#include "cuda_kernels/ops/jacobian_products.h"
#include "cuda_kernels/ops/vectors.h"

namespace ceres_ext {
namespace {

using kernels::Status;

// Observations that a thread works on at a time.
constexpr int64_t kGrain = 2048;

// The state of a batch of observations: from Ceres's state vector to cameras,
// points and the derivatives of their manifolds, and, on a device, x (+) delta
// of the cameras.
//
// On the host every ceres::Manifold is called. A device knows blocks without
// manifold, constant blocks, ceres::SubsetManifold and, for cameras, the
// product of QuaternionManifold and EuclideanManifold<6>; others are refused.
template <typename Machine>
class StateModel {
 public:
  // *observations outlive the model. kUnsupported, with the reason, for a
  // manifold that the Machine doesn't know.
  Status Setup(BatchModelKind kind,
               const ObservationBlocks<Machine>* observations) {
    observations_ = observations;
    parameters_ = kind == BatchModelKind::kBalAngleAxis
                      ? kernels::CameraParameters::kAngleAxis
                      : kernels::CameraParameters::kQuaternion;
    const BlockTable& cameras = observations->cameras();
    const BlockTable& points = observations->points();
    Machine* machine = observations->machine;
    const int64_t num_points = points.size();
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(
        int64_t{cameras.ambient_size} * cameras.size(), &cameras_));
    CERES_EXT_RETURN_IF_ERROR(machine->Allocate(3 * num_points, &points_));
    if (cameras.HasManifold() || cameras.HasPadding() ||
        cameras.ambient_size != cameras.padded_size) {
      const int64_t size = TangentSize() * cameras.size();
      CERES_EXT_RETURN_IF_ERROR(machine->Allocate(size, &tangents_));
      CERES_EXT_RETURN_IF_ERROR(machine->SetZero(size, tangents_.data()));
    }
    if (points.HasPadding()) {
      std::vector<double> scale(3 * num_points, 1.0);
      for (int64_t p = 0; p < num_points; ++p) {
        if (points.constant_value[p] != nullptr) {
          std::fill_n(&scale[3 * p], 3, 0.0);
        }
      }
      CERES_EXT_RETURN_IF_ERROR(
          machine->Upload(3 * num_points, scale.data(), &point_scale_));
    }
    if constexpr (kIsHost<Machine>) {
      const int64_t size = points.HasManifold() ? 9 * num_points : 0;
      CERES_EXT_RETURN_IF_ERROR(machine->Allocate(size, &point_tangents_));
      return machine->SetZero(size, point_tangents_.data());
    } else {
      return SetupDeviceTangents();
    }
  }

  // Reads a state and, where they are wanted, the derivatives of manifolds.
  // kNumericalFailure where a manifold fails.
  Status Update(const double* state, bool want_tangents) {
    Machine* machine = observations_->machine;
    CERES_EXT_RETURN_IF_ERROR(kernels::Run(
        kernels::GatherStateParams{
            observations_->camera_table(), state, cameras_.data()},
        machine));
    CERES_EXT_RETURN_IF_ERROR(kernels::Run(
        kernels::GatherStateParams{
            observations_->point_table(), state, points_.data()},
        machine));
    if (!want_tangents) {
      return {};
    }
    if constexpr (kIsHost<Machine>) {
      return UpdateHostTangents();
    } else {
      if (camera_kinds_.size() == 0) {
        return {};
      }
      kernels::CameraTangentsParams params;
      params.num_cameras = observations_->cameras().size();
      params.ambient_size = observations_->cameras().ambient_size;
      params.padded_size = observations_->cameras().padded_size;
      params.kind = camera_kinds_.data();
      params.cameras = cameras_.data();
      params.tangents = tangents_.data();
      return kernels::Run(params, machine);
    }
  }

  // What Update wrote.
  BatchState state() const {
    return {parameters_,
            cameras_.data(),
            tangents_.data(),
            points_.data(),
            point_scale_.data()};
  }

  // The operation that moves the cameras; state, delta and result are the
  // caller's. On a device alone.
  kernels::PlusParams PlusCameras() const {
    kernels::PlusParams params;
    params.table = observations_->camera_table();
    params.kind = camera_kinds_.data();
    params.linear = tangents_.data();
    return params;
  }

  // Whether points have manifolds. Their derivatives, 3 x 3 per point, padded
  // by zero columns, are in host memory.
  bool has_point_tangents() const { return point_tangents_.size() > 0; }
  const double* point_tangents() const { return point_tangents_.data(); }

 private:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  // Values in the matrix of a camera.
  int64_t TangentSize() const {
    const BlockTable& cameras = observations_->cameras();
    return int64_t{cameras.ambient_size} * cameras.padded_size;
  }

  // Writes the derivative of block i's manifold at `value` into the first
  // columns of `tangent` (ambient x padded, zero beyond).
  static Status WriteTangent(const char* what,
                             const BlockTable& table,
                             int32_t i,
                             const double* value,
                             double* tangent) {
    const int columns = table.tangent_size[i];
    const int stride = table.padded_size;
    if (table.manifold[i] == nullptr) {
      for (int j = 0; j < columns; ++j) {
        tangent[j * stride + j] = 1.0;
      }
      return {};
    }
    double plus_jacobian[10 * 10];
    if (!table.manifold[i]->PlusJacobian(value, plus_jacobian)) {
      return {kernels::StatusCode::kNumericalFailure,
              std::string("Manifold::PlusJacobian failed for ") + what + " " +
                  std::to_string(i) + "."};
    }
    for (int j = 0; j < table.ambient_size; ++j) {
      std::copy_n(plus_jacobian + j * columns, columns, tangent + j * stride);
    }
    return {};
  }

  Status SetupDeviceTangents() {
    using kernels::ManifoldKind;
    const BlockTable& cameras = observations_->cameras();
    if (observations_->points().HasManifold()) {
      return {kernels::StatusCode::kUnsupported, "a point has a manifold"};
    }
    if (tangents_.size() == 0) {
      return {};
    }
    // The matrices of linear manifolds are the same everywhere; those of
    // quaternions are overwritten by every Update.
    std::vector<double> tangents(tangents_.size(), 0.0);
    std::vector<ManifoldKind> kinds(cameras.size(), ManifoldKind::kLinear);
    bool has_quaternion = false;
    std::vector<double> somewhere(cameras.ambient_size, 0.0);
    somewhere[0] = 1.0;
    for (int32_t c = 0; c < cameras.size(); ++c) {
      const ceres::Manifold* manifold = cameras.manifold[c];
      const bool is_quaternion =
          parameters_ == kernels::CameraParameters::kQuaternion &&
          dynamic_cast<const BalCameraManifold*>(manifold) != nullptr;
      if (manifold != nullptr && !is_quaternion &&
          dynamic_cast<const ceres::SubsetManifold*>(manifold) == nullptr) {
        return {kernels::StatusCode::kUnsupported,
                "camera " + std::to_string(c) +
                    " has a manifold that the device doesn't know"};
      }
      double* tangent = tangents.data() + TangentSize() * c;
      CERES_EXT_RETURN_IF_ERROR(
          WriteTangent("camera", cameras, c, somewhere.data(), tangent));
      if (is_quaternion) {
        kinds[c] = ManifoldKind::kQuaternion;
        has_quaternion = true;
        std::fill_n(tangent, 4 * cameras.padded_size, 0.0);
      }
    }
    Machine* machine = observations_->machine;
    CERES_EXT_RETURN_IF_ERROR(
        machine->Upload(tangents_.size(), tangents.data(), tangents_.data()));
    return has_quaternion
               ? machine->Upload(cameras.size(), kinds.data(), &camera_kinds_)
               : Status();
  }

  // Serially: a user's manifold need not be thread safe.
  Status UpdateHostTangents() {
    const BlockTable& cameras = observations_->cameras();
    const BlockTable& points = observations_->points();
    for (int32_t c = 0; tangents_.size() > 0 && c < cameras.size(); ++c) {
      CERES_EXT_RETURN_IF_ERROR(
          WriteTangent("camera",
                       cameras,
                       c,
                       cameras_.data() + int64_t{cameras.ambient_size} * c,
                       tangents_.data() + TangentSize() * c));
    }
    for (int32_t p = 0; has_point_tangents() && p < points.size(); ++p) {
      CERES_EXT_RETURN_IF_ERROR(
          WriteTangent("point",
                       points,
                       p,
                       points_.data() + int64_t{3} * p,
                       point_tangents_.data() + int64_t{9} * p));
    }
    return {};
  }

  const ObservationBlocks<Machine>* observations_ = nullptr;
  kernels::CameraParameters parameters_ = kernels::CameraParameters::kAngleAxis;

  Buffer<double> cameras_;      // ambient
  Buffer<double> tangents_;     // ambient x C per camera; empty: identity
  Buffer<double> points_;       // 3 per point
  Buffer<double> point_scale_;  // 0 for constant points; empty: all one
  // Host only.
  kernels::HostBuffer<double> point_tangents_;
  // Device only; empty: all kLinear.
  Buffer<kernels::ManifoldKind> camera_kinds_;
};

template <typename Machine, typename T, int C>
class ObservationEvaluator final : public RowsEvaluator {
 public:
  Status Setup(JacobianType jacobian_type,
               const ObservationRows& rows,
               const ObservationBlocks<Machine>* observations,
               const solver::ProblemBlocks* blocks) {
    jacobian_type_ = jacobian_type;
    observations_ = observations;
    blocks_ = blocks;
    machine_ = observations->machine;
    if (jacobian_type_ == JACOBIAN_RECOMPUTED &&
        (!rows.loss.empty() || observations_->points().HasManifold())) {
      return {kernels::StatusCode::kUnsupported,
              "jacobian RECOMPUTED takes no loss and no manifold on points"};
    }
    CERES_EXT_RETURN_IF_ERROR(state_model_.Setup(rows.kind, observations_));
    CERES_EXT_RETURN_IF_ERROR(loss_model_.Setup(rows.loss, observations_));
    {
      const kernels::ObservationIndexView& index = observations_->index();
      const int64_t n = index.num_observations;
      Buffer<double> measurements;
      CERES_EXT_RETURN_IF_ERROR(
          machine_->Upload(2 * n, rows.observations.data(), &measurements));
      CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(2 * n, &measurements_));
      CERES_EXT_RETURN_IF_ERROR(kernels::Run(
          kernels::GatherPairsParams{
              n, index.input_id(), measurements.data(), measurements_.data()},
          machine_));
    }
    const int64_t num_cameras = observations_->cameras().size();
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(num_cameras, &camera_states_));
    CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(
        kernels::kBalLocalCameraDim * C * num_cameras, &camera_maps_));
    return machine_->Allocate(1, &evaluation_);
  }

  int64_t num_residuals() const final {
    return 2 * observations_->index().num_observations;
  }

  Status CreateJacobian(std::unique_ptr<RowsJacobian>* jacobian) const final {
    return jacobian_type_ == JACOBIAN_STORED
               ? MakeAndSetUp<Stored>(jacobian, observations_, *blocks_)
               : MakeAndSetUp<Recomputed>(jacobian, observations_, *blocks_);
  }

  Status Evaluate(const RowsRequest& request) final {
    const bool want_jacobian = request.jacobian != nullptr;
    CERES_EXT_RETURN_IF_ERROR(
        state_model_.Update(request.state, want_jacobian));
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
    const auto evaluate = [&](auto* jacobian) -> Status {
      auto* batch = jacobian->batch();
      if (!request.want_gradient) {
        return EvaluateJacobian(apply_loss, all_residuals, jacobian, {});
      }
      // Points are the first family (program_import.h).
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
    return jacobian_type_ == JACOBIAN_STORED
               ? evaluate(static_cast<Stored*>(request.jacobian))
               : evaluate(static_cast<Recomputed*>(request.jacobian));
  }

  Status Read(kernels::Evaluation* evaluation) final {
    return machine_->Read(evaluation_.data(), evaluation);
  }
  bool GetPlus(kernels::PlusParams* params) const final {
    *params = state_model_.PlusCameras();
    return true;
  }

 private:
  template <typename Value>
  using Buffer = typename Machine::template Buffer<Value>;
  using Shape = kernels::BalShape<C>;
  using Stored =
      StoredRows<Machine,
                 solver::ObservationBatch<
                     Machine,
                     kernels::StoredJacobian<T, Shape, Machine::kLayout>>>;
  using Recomputed = RecomputedRows<Machine, T, C>;
  // Where J'r of cameras and points is set; null: not wanted.
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
    return apply_loss
               ? loss_model_.template Correct<T, Shape>(
                     {}, correct_residuals, residuals, evaluation_.data())
               : Status();
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
    const bool blocks_change = apply_loss || state_model_.has_point_tangents();
    if (!blocks_change) {
      params.camera_gradient = gradient.cameras;
      params.point_gradient = gradient.points;
    }
    params.evaluation = evaluation_.data();
    CERES_EXT_RETURN_IF_ERROR(kernels::Run(params, machine_));

    if constexpr (kIsHost<Machine>) {
      if (state_model_.has_point_tangents()) {
        // Jp = Jp T_p
        machine_->context()->ParallelFor(
            params.index.num_observations,
            kGrain,
            [&](int64_t begin, int64_t end) {
              for (int64_t k = begin; k < end; ++k) {
                const double* tangent = state_model_.point_tangents() +
                                        9 * int64_t{params.index.point_id[k]};
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
      CERES_EXT_RETURN_IF_ERROR((loss_model_.template Correct<T, Shape>(
          {params.camera_blocks, params.point_blocks},
          /*correct_residuals=*/true,
          residuals,
          evaluation_.data())));
    }
    return blocks_change
               ? MultiplyGradient(jacobian->source(), residuals, gradient)
               : Status();
  }

  Status EvaluateJacobian(bool /*apply_loss*/,
                          double* residuals,
                          Recomputed* jacobian,
                          const Gradient& gradient) {
    CERES_EXT_RETURN_IF_ERROR(EvaluateCost(
        /*apply_loss=*/false, /*correct_residuals=*/false, residuals));
    const BatchState state = state_model_.state();
    CERES_EXT_RETURN_IF_ERROR(jacobian->SetState(state));
    // J'r in double, whatever the Jacobian's type.
    return MultiplyGradient(
        kernels::RecomputedJacobian<double, C>{camera_states_.data(),
                                               camera_maps_.data(),
                                               state.points,
                                               state.point_scale},
        residuals,
        gradient);
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

  Buffer<double> measurements_;  // measured position, per observation
  Buffer<kernels::CameraState<double>> camera_states_;
  Buffer<double> camera_maps_;
  Buffer<kernels::Evaluation> evaluation_;
};

}  // namespace

template <typename Machine>
Status CreateObservationEvaluator(
    const Options& options,
    const ObservationRows& rows,
    const ObservationBlocks<Machine>* observations,
    const solver::ProblemBlocks& blocks,
    std::unique_ptr<RowsEvaluator>* evaluator) {
  return WithBlockType<Machine>(
      options.precision == PRECISION_MIXED,
      observations->cameras().padded_size,
      [&](auto value, auto columns) {
        return MakeAndSetUp<
            ObservationEvaluator<Machine, decltype(value), columns>>(
            evaluator, options.jacobian, rows, observations, &blocks);
      });
}

#define CERES_EXT_INSTANTIATE(Machine)                 \
  template Status CreateObservationEvaluator<Machine>( \
      const Options& options,                          \
      const ObservationRows& rows,                     \
      const ObservationBlocks<Machine>* observations,  \
      const solver::ProblemBlocks& blocks,             \
      std::unique_ptr<RowsEvaluator>* evaluator);
CERES_EXT_FOR_EACH_MACHINE(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext
