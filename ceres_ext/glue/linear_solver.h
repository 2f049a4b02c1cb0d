// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The inexact-step solver as the Ceres linear solver of PATH_FULL: it reads the
// Jacobian of a residual batch where it lies.

#ifndef CERES_EXT_GLUE_LINEAR_SOLVER_H_
#define CERES_EXT_GLUE_LINEAR_SOLVER_H_

#include <cstdint>
#include <memory>

#include "ceres/linear_solver.h"
#include "ceres_ext/glue/backends.h"
#include "ceres_ext/glue/jacobian.h"
#include "ceres_ext/glue/batch_shape.h"
#include "ceres_ext/glue/solve_record.h"
#include "ceres_ext/glue/step_vectors.h"
#include "ceres_ext/options.h"
#include "ceres_ext/solver/inexact_solver.h"
#include "cuda_kernels/base/status.h"

namespace ceres_ext {

template <typename Backend, typename T, int C>
class BatchLinearSolver final
    : public ceres::internal::TypedLinearSolver<BatchJacobian<Backend, T, C>> {
 public:
  using LinearSolver = ceres::internal::LinearSolver;
  using Jacobian = BatchJacobian<Backend, T, C>;

  // All memory of the solve is taken here. *shape and *record outlive the
  // solver.
  static std::unique_ptr<BatchLinearSolver> Create(
      const ceres_ext::Options& ext_options,
      const LinearSolver::Options& options,
      const BatchShape<Backend>* shape,
      SolveRecord* record,
      kernels::Status* status);

  int64_t bytes() const;

 private:
  using SolverBackend = typename Backend::SolverBackend;

  BatchLinearSolver(const BatchShape<Backend>* shape, SolveRecord* record)
      : shape_(shape), record_(record) {}

  LinearSolver::Summary SolveImpl(
      Jacobian* A,
      const double* b,
      const LinearSolver::PerSolveOptions& per_solve_options,
      double* x) final;

  const BatchShape<Backend>* shape_;
  SolveRecord* record_;
  StepVectors<Backend> vectors_;
  // One of them is set up, by Options::jacobian.
  solver::InexactSolver<SolverBackend, typename Jacobian::Stored>
      stored_solver_;
  solver::InexactSolver<SolverBackend, typename Jacobian::Recomputed>
      recomputed_solver_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_LINEAR_SOLVER_H_
