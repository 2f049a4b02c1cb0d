// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The inexact-step solver as the Ceres linear solver of PATH_FULL: it reads the
// Jacobian of a residual batch where it lies.

#ifndef CERES_EXT_GLUE_BATCH_LINEAR_SOLVER_H_
#define CERES_EXT_GLUE_BATCH_LINEAR_SOLVER_H_

#include <cstdint>
#include <memory>

#include "ceres/linear_solver.h"
#include "ceres_ext/glue/batch_jacobian.h"
#include "ceres_ext/glue/solve_record.h"
#include "ceres_ext/glue/step_vectors.h"
#include "ceres_ext/options.h"
#include "ceres_ext/solver/inexact_solver_host.h"
#include "cuda_kernels/status.h"

namespace ceres_ext {

template <int C>
class BatchLinearSolver final
    : public ceres::internal::TypedLinearSolver<BatchJacobian<C>> {
 public:
  using LinearSolver = ceres::internal::LinearSolver;

  // All memory of the solve is taken here. *shape and *record outlive the
  // solver.
  static std::unique_ptr<BatchLinearSolver> Create(
      const Options& ext_options,
      const LinearSolver::Options& options,
      BatchShape* shape,
      SolveRecord* record,
      kernels::Status* status);

  int64_t memory_bytes() const;

 private:
  BatchLinearSolver(BatchShape* shape, SolveRecord* record)
      : shape_(shape), record_(record) {}

  LinearSolver::Summary SolveImpl(
      BatchJacobian<C>* A,
      const double* b,
      const LinearSolver::PerSolveOptions& per_solve_options,
      double* x) final;

  BatchShape* shape_;
  SolveRecord* record_;
  StepVectors vectors_;
  // One of them is set up, by Options::jacobian.
  solver::InexactSolver<solver::HostBackend, typename BatchJacobian<C>::Stored>
      stored_solver_;
  solver::InexactSolver<solver::HostBackend,
                        typename BatchJacobian<C>::Recomputed>
      recomputed_solver_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_BATCH_LINEAR_SOLVER_H_
