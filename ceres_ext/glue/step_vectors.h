// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// What the linear solvers of the glue have in common: the damping D and the
// step x between Ceres's vectors and padded ones, and options and results
// between Ceres's types and the solver's.

#ifndef CERES_EXT_GLUE_STEP_VECTORS_H_
#define CERES_EXT_GLUE_STEP_VECTORS_H_

#include <cstdint>
#include <string>

#include "ceres/linear_solver.h"
#include "ceres_ext/glue/batch_shape.h"
#include "ceres_ext/glue/solve_record.h"
#include "ceres_ext/options.h"
#include "ceres_ext/solver/inexact_solver_options.h"
#include "cuda_kernels/base/status.h"

namespace ceres_ext {

template <typename Machine>
class StepVectors {
 public:
  // *shape outlives this object.
  kernels::Status Allocate(const BatchShape<Machine>* shape);

  // D: Ceres's, or null for zero. Padding is damped by one, so that its step is
  // zero.
  kernels::Status SetDiagonal(const double* D);
  const double* camera_diagonal() const { return camera_diagonal_.data(); }
  const double* point_diagonal() const { return point_diagonal_.data(); }

  // The solver's result, and from there to Ceres's x.
  double* camera_step() { return camera_step_.data(); }
  double* point_step() { return point_step_.data(); }
  kernels::Status GetStep(double* x) const;

  int64_t bytes() const;

 private:
  const BatchShape<Machine>* shape_ = nullptr;
  typename Machine::template Buffer<double> camera_diagonal_;
  typename Machine::template Buffer<double> point_diagonal_;
  typename Machine::template Buffer<double> camera_step_;
  typename Machine::template Buffer<double> point_step_;
};

// options: those of Ceres that this library supports (BundlePlugin).
solver::InexactSolverOptions ToInexactSolverOptions(
    const Options& ext_options,
    const ceres::internal::LinearSolver::Options& options);

// "Schur, implicit W, stored Jacobian (double), SCHUR_JACOBI".
std::string MethodName(const Options& ext_options,
                       const ceres::internal::LinearSolver::Options& options);

// Adds the solve's times and iterations to *record.
ceres::internal::LinearSolver::Summary ToCeresSummary(
    const solver::InexactSolverSummary& summary, SolveRecord* record);

// A linear solve that an error ended: FATAL_ERROR with the message.
ceres::internal::LinearSolver::Summary FatalError(
    const kernels::Status& status);

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_STEP_VECTORS_H_
