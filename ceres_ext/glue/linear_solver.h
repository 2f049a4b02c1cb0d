// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The step solver as a Ceres linear solver: it reads the Jacobian of a program
// where it lies.

#ifndef CERES_EXT_GLUE_LINEAR_SOLVER_H_
#define CERES_EXT_GLUE_LINEAR_SOLVER_H_

#include <map>
#include <string>
#include <vector>

#include "ceres/execution_summary.h"
#include "ceres/linear_solver.h"
#include "ceres/types.h"
#include "ceres_ext/glue/caller_state.h"
#include "ceres_ext/glue/failure.h"
#include "ceres_ext/glue/jacobian.h"
#include "ceres_ext/glue/program_blocks.h"
#include "ceres_ext/options.h"
#include "ceres_ext/solver/step_solver.h"
#include "ceres_ext/summary.h"
#include "cuda_kernels/base/status.h"

namespace ceres_ext {

// Whether the type is one of those whose step is exact here, by a factorisation
// on a device.
inline bool IsFactorized(ceres::LinearSolverType type) {
  return type == ceres::DENSE_SCHUR || type == ceres::SPARSE_SCHUR;
}

// Whether S is formed as a matrix, on a device alone: for a factorisation or
// for products.
inline bool NeedsSchurMatrix(const ceres::Solver::Options& options) {
  return IsFactorized(options.linear_solver_type) ||
         (options.linear_solver_type == ceres::ITERATIVE_SCHUR &&
          options.use_explicit_schur_complement);
}

// False for a preconditioner that this library leaves to Ceres.
bool ToPreconditionerType(ceres::PreconditionerType type,
                          solver::PreconditionerType* result);

// Of options that this library supports.
solver::InexactSolverOptions ToInexactSolverOptions(
    const Options& ext_options,
    const ceres::internal::LinearSolver::Options& options);

// Why a device can't factorise in the way that is asked for, for want of a
// library; empty: it can.
std::string WhyNoFactorization(SchurFactorizationType type);

template <typename Machine>
class ProgramLinearSolver final : public ceres::internal::LinearSolver {
 public:
  using LinearSolver = ceres::internal::LinearSolver;
  using Jacobian = ProgramJacobian<Machine>;

  // *jacobian is the only one that the solver will be given. The state is that
  // of *program, or *caller_state where that is not null. All outlive the
  // solver.
  ProgramLinearSolver(const ProgramBlocks<Machine>* blocks,
                      const Jacobian* jacobian,
                      const ceres::internal::Program* program,
                      const CallerState* caller_state,
                      Failure* failure,
                      ceres_ext::Summary* record)
      : blocks_(blocks),
        jacobian_(jacobian),
        program_(program),
        caller_state_(caller_state),
        failure_(failure),
        record_(record) {}

  // Once, before anything else. All memory of the solve is taken here. Of
  // DENSE_SCHUR and SPARSE_SCHUR the step is exact, by a factorisation.
  // recomputed_views: the Jacobian of the rows of views is. options: those of
  // Ceres that this library supports (BundlePlugin).
  kernels::Status Setup(const ceres_ext::Options& ext_options,
                        bool recomputed_views,
                        const LinearSolver::Options& options);

  // FATAL_ERROR, which ends Ceres's loop, once *failure has happened.
  LinearSolver::Summary Solve(
      ceres::internal::LinearOperator* A,
      const double* b,
      const LinearSolver::PerSolveOptions& per_solve_options,
      double* x) final;
  std::map<std::string, ceres::internal::CallStatistics> Statistics()
      const final;

 private:
  kernels::Status SolveUnguarded(
      const double* b,
      const LinearSolver::PerSolveOptions& per_solve_options,
      double* x,
      LinearSolver::Summary* summary);

  // Says in the record why S has become a dense matrix.
  void NoteReplacedMatrix();
  // Notes in the record which blocks are degenerate at the start.
  kernels::Status FindDegenerateBlocks();
  // Of each value of F, whether it is an unknown.
  kernels::Status FindUnknowns(std::vector<unsigned char>* f_varies) const;
  // What the record says of them.
  ceres_ext::DegenerateBlocks Named(
      const solver::DegenerateBlocks& degenerate,
      const std::vector<FamilyTable<Machine>>& families) const;

  const ProgramBlocks<Machine>* blocks_;
  const Jacobian* jacobian_;
  const ceres::internal::Program* program_;
  const CallerState* caller_state_;
  Failure* failure_;
  ceres_ext::Summary* record_;
  ceres::internal::CallStatistics calls_;
  solver::StepSolver<Machine> solver_;
  // Of the cost.
  double model_cost_tolerance_ = 0.0;
  ForcingSequenceType forcing_sequence_ = FORCING_SEQUENCE_CONSTANT;
  // Of the Jacobian that was solved with last.
  int last_evaluation_ = 0;
  // The part of the record's method that names S, where it is factorised.
  std::string matrix_name_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_LINEAR_SOLVER_H_
