// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The inexact-step solver as the Ceres linear solver of PATH_FULL: it reads the
// Jacobian of a residual batch where it lies.

#ifndef CERES_EXT_GLUE_LINEAR_SOLVER_H_
#define CERES_EXT_GLUE_LINEAR_SOLVER_H_

#include <cstdint>
#include <memory>

#include "ceres/linear_solver.h"
#include "ceres_ext/glue/batch_shape.h"
#include "ceres_ext/glue/jacobian.h"
#include "ceres_ext/glue/machines.h"
#include "ceres_ext/glue/solve_record.h"
#include "ceres_ext/glue/step_vectors.h"
#include "ceres_ext/options.h"
#include "ceres_ext/solver/inexact_solver.h"
#include "cuda_kernels/base/status.h"

namespace ceres_ext {

template <typename Machine, typename T, int C>
class BatchLinearSolver final
    : public ceres::internal::TypedLinearSolver<BatchJacobian<Machine, T, C>> {
 public:
  using LinearSolver = ceres::internal::LinearSolver;
  using Jacobian = BatchJacobian<Machine, T, C>;

  // All memory of the solve is taken here. *shape and *record outlive the
  // solver.
  static std::unique_ptr<BatchLinearSolver> Create(
      const ceres_ext::Options& ext_options,
      const LinearSolver::Options& options,
      const BatchShape<Machine>* shape,
      SolveRecord* record,
      kernels::Status* status);

  int64_t bytes() const;

 private:
  BatchLinearSolver(const BatchShape<Machine>* shape, SolveRecord* record)
      : shape_(shape), record_(record) {}

  LinearSolver::Summary SolveImpl(
      Jacobian* A,
      const double* b,
      const LinearSolver::PerSolveOptions& per_solve_options,
      double* x) final;

  const BatchShape<Machine>* shape_;
  SolveRecord* record_;
  StepVectors<Machine> vectors_;
  // One of them is set up, by Options::jacobian.
  solver::InexactSolver<Machine, typename Jacobian::Stored> stored_solver_;
  solver::InexactSolver<Machine, typename Jacobian::Recomputed>
      recomputed_solver_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_LINEAR_SOLVER_H_
