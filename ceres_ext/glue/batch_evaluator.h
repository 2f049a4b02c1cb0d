// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Evaluates a residual batch for Ceres's loop: cost, residuals, gradient and
// the Jacobian in tangent columns, for any manifold on cameras and points,
// constant blocks and loss functions.
//
// With Jc the derivative by a camera's 9 local coordinates, map_c its camera
// map and T_p the derivative of a point by its tangent:
//
//   residual  r_k                         cost = 1/2 sum rho(|r_k|^2)
//   Jacobian  [Jp T_p, Jc map_c]          corrected for the loss as Ceres does
//   gradient  J'r
//
// The order of sums does not depend on the number of threads.

#ifndef CERES_EXT_GLUE_BATCH_EVALUATOR_H_
#define CERES_EXT_GLUE_BATCH_EVALUATOR_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ceres/evaluation_callback.h"
#include "ceres/evaluator.h"
#include "ceres/execution_summary.h"
#include "ceres/preprocessor.h"
#include "ceres_ext/glue/batch_jacobian.h"
#include "ceres_ext/glue/bundle_structure.h"
#include "cuda_kernels/bal_model.h"
#include "cuda_kernels/buffer.h"
#include "cuda_kernels/evaluate_kernels.h"
#include "cuda_kernels/status.h"

namespace ceres_ext {

template <int C>
class BatchEvaluator final : public ceres::internal::Evaluator {
 public:
  // Takes the constants and losses of `structure`; its tables are in *shape.
  // All memory of the solve's evaluations, the Jacobian's included, is taken
  // here. jacobian_type JACOBIAN_RECOMPUTED takes neither losses nor manifolds
  // on points. *shape and *pp outlive the evaluator.
  static std::unique_ptr<BatchEvaluator> Create(
      JacobianType jacobian_type,
      const BatchStructure& structure,
      BatchShape* shape,
      ceres::internal::PreprocessedProblem* pp,
      kernels::Status* status);

  // The Jacobian that Create made; null when asked a second time.
  std::unique_ptr<ceres::internal::SparseMatrix> CreateJacobian() const final;

  bool Evaluate(const EvaluateOptions& evaluate_options,
                const double* state,
                double* cost,
                double* residuals,
                double* gradient,
                ceres::internal::SparseMatrix* jacobian) final;

  bool Plus(const double* state,
            const double* delta,
            double* state_plus_delta) const final;

  int NumParameters() const final { return num_parameters_; }
  int NumEffectiveParameters() const final { return shape_->num_columns; }
  int NumResiduals() const final;

  std::map<std::string, ceres::internal::CallStatistics> Statistics()
      const final {
    return execution_summary_.statistics();
  }

  // With the Jacobian, until CreateJacobian gives it away.
  int64_t memory_bytes() const;

 private:
  BatchEvaluator(JacobianType jacobian_type,
                 const BatchStructure& structure,
                 BatchShape* shape,
                 ceres::internal::PreprocessedProblem* pp);

  kernels::Status Allocate(const BatchStructure& structure);

  // Camera states, camera maps (if wanted) and points of a state. False if a
  // manifold fails.
  bool Prepare(const double* state, bool want_maps);
  bool EvaluateCost(bool apply_loss, double* cost, double* residuals);
  bool EvaluateJacobian(bool apply_loss,
                        double* cost,
                        double* residuals,
                        double* gradient,
                        BatchJacobian<C>* jacobian);
  bool EvaluateRecomputedJacobian(double* cost,
                                  double* residuals,
                                  double* gradient,
                                  BatchJacobian<C>* jacobian);
  void MultiplyGradient(const BatchJacobian<C>& jacobian,
                        const double* residuals);

  // cost = 1/2 sum rho(|r_k|^2). With a Jacobian, corrects it and the residuals
  // for the loss and multiplies point blocks by T_p.
  double Correct(bool apply_loss,
                 double* residuals,
                 BatchJacobian<C>* jacobian);
  bool CheckEvaluation(const kernels::Evaluation& evaluation) const;

  const JacobianType jacobian_type_;
  BatchShape* shape_;
  ceres::internal::Program* program_;
  ceres::internal::ContextImpl* ceres_context_;
  int num_threads_;
  ceres::EvaluationCallback* evaluation_callback_;
  kernels::CameraParameters camera_parameters_;
  int num_parameters_;
  bool has_point_manifold_;

  // Per observation of the index: measured position and loss.
  kernels::HostBuffer<double> observations_;
  std::vector<const ceres::LossFunction*> loss_;

  // The state that was evaluated last.
  kernels::HostBuffer<double> cameras_;
  kernels::HostBuffer<double> points_;
  kernels::HostBuffer<double> camera_tangents_;  // empty: all the identity
  kernels::HostBuffer<double> point_tangents_;   // empty: no point manifold
  kernels::HostBuffer<double> point_scale_;      // empty: no constant point
  kernels::HostBuffer<kernels::CameraState<double>> camera_states_;
  kernels::HostBuffer<double> camera_maps_;

  kernels::HostBuffer<double> residuals_;
  kernels::HostBuffer<double> camera_gradient_;
  kernels::HostBuffer<double> point_gradient_;
  kernels::HostBuffer<double> partial_costs_;
  mutable std::unique_ptr<BatchJacobian<C>> jacobian_;
  // For gradients without a Jacobian (line search); made when first asked for.
  std::unique_ptr<BatchJacobian<C>> scratch_jacobian_;
  ceres::internal::ExecutionSummary execution_summary_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_BATCH_EVALUATOR_H_
