// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Evaluates a residual batch for Ceres's loop: cost, residuals, gradient and
// the Jacobian in tangent columns, with manifolds (state_model.h), constant
// blocks and loss functions (losses.h).
//
// With Jc the derivative by a camera's 9 local coordinates, map_c its camera
// map and T_p the derivative of a point by its tangent:
//
//   residual  r_k                         cost = 1/2 sum rho(|r_k|^2)
//   Jacobian  [Jp T_p, Jc map_c]          corrected for the loss as Ceres does
//   gradient  J'r
//
// The order of sums does not depend on threads or runs.

#ifndef CERES_EXT_GLUE_EVALUATOR_H_
#define CERES_EXT_GLUE_EVALUATOR_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "ceres/evaluation_callback.h"
#include "ceres/evaluator.h"
#include "ceres/execution_summary.h"
#include "ceres/preprocessor.h"
#include "ceres_ext/glue/batch_shape.h"
#include "ceres_ext/glue/jacobian.h"
#include "ceres_ext/glue/losses.h"
#include "ceres_ext/glue/program_import.h"
#include "ceres_ext/glue/state_model.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/ops/evaluate.h"

namespace ceres_ext {

template <typename Machine, typename T, int C>
class BatchEvaluator final : public ceres::internal::Evaluator {
 public:
  // Takes the constants and losses of `structure`; its tables are in *shape.
  // All memory of the solve's evaluations, the Jacobian's included, is taken
  // here. *shape and *pp outlive the evaluator. kUnsupported, with the reason,
  // for what the Machine or the kind of Jacobian doesn't know:
  // JACOBIAN_RECOMPUTED takes neither losses nor manifolds on points.
  static std::unique_ptr<BatchEvaluator> Create(
      JacobianType jacobian_type,
      const BatchStructure& structure,
      const BatchShape<Machine>* shape,
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

  int NumParameters() const final { return shape_->num_parameters(); }
  int NumEffectiveParameters() const final { return shape_->num_columns(); }
  int NumResiduals() const final { return shape_->num_residuals(); }

  std::map<std::string, ceres::internal::CallStatistics> Statistics()
      const final {
    return execution_summary_.statistics();
  }

  // With the Jacobian, until CreateJacobian gives it away.
  int64_t bytes() const;

 private:
  template <typename Value>
  using Buffer = typename Machine::template Buffer<Value>;
  using Jacobian = BatchJacobian<Machine, T, C>;

  BatchEvaluator(JacobianType jacobian_type,
                 const BatchShape<Machine>* shape,
                 ceres::internal::PreprocessedProblem* pp);

  kernels::Status Setup(const BatchStructure& structure,
                        ceres::internal::PreprocessedProblem* pp);
  kernels::Status PrepareCameras(bool want_maps);
  kernels::Status EvaluateCost(bool apply_loss,
                               bool correct_residuals,
                               double* residuals);
  kernels::Status EvaluateJacobian(bool apply_loss,
                                   bool want_gradient,
                                   double* residuals,
                                   Jacobian* jacobian);
  kernels::Status EvaluateRecomputedJacobian(bool want_gradient,
                                             double* residuals,
                                             Jacobian* jacobian);
  kernels::Status MultiplyGradient(const Jacobian& jacobian,
                                   const double* residuals);
  // Reads the Evaluation; false where it isn't finite.
  bool Finish(double* cost);

  const JacobianType jacobian_type_;
  const BatchShape<Machine>* shape_;
  Machine* machine_;
  ceres::internal::Program* program_;
  ceres::EvaluationCallback* evaluation_callback_;
  StateModel<Machine> state_model_;
  LossModel<Machine> loss_model_;

  Buffer<double> observations_;  // measured position, per observation
  Buffer<kernels::CameraState<double>> camera_states_;
  Buffer<double> camera_maps_;
  Buffer<double> residuals_;
  Buffer<double> camera_gradient_;
  Buffer<double> point_gradient_;
  Buffer<kernels::Evaluation> evaluation_;
  mutable std::unique_ptr<Jacobian> jacobian_;
  // For gradients without a Jacobian (line search); made when first asked for.
  std::unique_ptr<Jacobian> scratch_jacobian_;
  ceres::internal::ExecutionSummary execution_summary_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_EVALUATOR_H_
