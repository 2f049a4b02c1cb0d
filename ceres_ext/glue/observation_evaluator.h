// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Evaluates a batch of observations: cost, residuals, gradient and the Jacobian
// in tangent columns, with manifolds (state_model.h), constant blocks and loss
// functions (losses.h).
//
// With Jc the derivative by a camera's 9 local coordinates, map_c its camera
// map and T_p the derivative of a point by its tangent:
//
//   residual  r_k                         cost = 1/2 sum rho(|r_k|^2)
//   Jacobian  [Jp T_p, Jc map_c]          corrected for the loss as Ceres does
//   gradient  J'r
//
// The order of sums does not depend on threads or runs.

#ifndef CERES_EXT_GLUE_OBSERVATION_EVALUATOR_H_
#define CERES_EXT_GLUE_OBSERVATION_EVALUATOR_H_

#include <cstdint>
#include <memory>

#include "ceres_ext/glue/losses.h"
#include "ceres_ext/glue/observation_jacobian.h"
#include "ceres_ext/glue/program_blocks.h"
#include "ceres_ext/glue/program_import.h"
#include "ceres_ext/glue/rows.h"
#include "ceres_ext/glue/state_model.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/ops/evaluate.h"

namespace ceres_ext {

// What a device does itself to the state: x (+) delta of the cameras.
class ObservationEvaluatorBase : public RowsEvaluator {
 public:
  virtual int camera_family() const = 0;
  virtual kernels::PlusParams PlusCameras() const = 0;
};

template <typename Machine, typename T, int C>
class ObservationEvaluator final : public ObservationEvaluatorBase {
 public:
  // Takes the constants and losses of `rows`. All memory of evaluations is
  // taken here. *observations and what blocks refers to outlive the evaluator.
  // kUnsupported, with the reason, for what the Machine or the kind of Jacobian
  // doesn't know: JACOBIAN_RECOMPUTED takes neither losses nor manifolds on
  // points.
  static std::unique_ptr<ObservationEvaluator> Create(
      JacobianType jacobian_type,
      const ObservationRows& rows,
      const ObservationBlocks<Machine>* observations,
      const solver::ProblemBlocks& blocks,
      kernels::Status* status);

  int64_t num_residuals() const final {
    return 2 * observations_->index().num_observations;
  }
  bool needs_host_state() const final { return false; }
  std::unique_ptr<RowsJacobian> CreateJacobian(
      kernels::Status* status) const final;
  kernels::Status Evaluate(const RowsRequest& request) final;
  kernels::Status Read(kernels::Evaluation* evaluation) final {
    return machine_->Read(evaluation_.data(), evaluation);
  }
  int camera_family() const final { return observations_->camera_family; }
  kernels::PlusParams PlusCameras() const final {
    return state_model_.PlusCameras();
  }
  int64_t bytes() const final;

 private:
  template <typename Value>
  using Buffer = typename Machine::template Buffer<Value>;
  using Jacobian = ObservationJacobian<Machine, T, C>;

  ObservationEvaluator(JacobianType jacobian_type,
                       const ObservationBlocks<Machine>* observations,
                       const solver::ProblemBlocks& blocks);

  kernels::Status Setup(const ObservationRows& rows);
  kernels::Status PrepareCameras(bool want_maps);
  kernels::Status EvaluateCost(bool apply_loss,
                               bool correct_residuals,
                               double* residuals);
  // The gradients are set.
  kernels::Status EvaluateJacobian(bool apply_loss,
                                   double* residuals,
                                   Jacobian* jacobian,
                                   double* point_gradient,
                                   double* camera_gradient);
  kernels::Status EvaluateRecomputedJacobian(double* residuals,
                                             Jacobian* jacobian,
                                             double* point_gradient,
                                             double* camera_gradient);
  kernels::Status MultiplyGradient(const Jacobian& jacobian,
                                   const double* residuals,
                                   double* point_gradient,
                                   double* camera_gradient);

  const JacobianType jacobian_type_;
  const ObservationBlocks<Machine>* observations_;
  const solver::ProblemBlocks& blocks_;
  Machine* machine_;
  StateModel<Machine> state_model_;
  LossModel<Machine> loss_model_;

  Buffer<double> measurements_;  // measured position, per observation
  Buffer<kernels::CameraState<double>> camera_states_;
  Buffer<double> camera_maps_;
  Buffer<kernels::Evaluation> evaluation_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_OBSERVATION_EVALUATOR_H_
