// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Which linear solver of Ceres's options this library replaces, and by which of
// its own.

#ifndef CERES_EXT_PLAN_SOLVER_CHOICE_H_
#define CERES_EXT_PLAN_SOLVER_CHOICE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "ceres/solver.h"
#include "ceres/types.h"
#include "ceres_ext/options.h"
#include "ceres_ext/plan/device_choice.h"
#include "ceres_ext/solver/step_options.h"

namespace ceres_ext {

// True if the type is Ceres's Cholesky factorisation of J'J + D^2. The step is
// the same with any independent blocks eliminated first, which is a part of
// that factorisation.
inline bool IsNormalCholesky(ceres::LinearSolverType type) {
  return type == ceres::DENSE_NORMAL_CHOLESKY ||
         type == ceres::SPARSE_NORMAL_CHOLESKY;
}
// True if the type is one of those whose step is exact here, by a
// factorisation.
inline bool IsFactorized(ceres::LinearSolverType type) {
  return type == ceres::DENSE_SCHUR || type == ceres::SPARSE_SCHUR ||
         IsNormalCholesky(type);
}
inline bool IsIterative(ceres::LinearSolverType type) {
  return type == ceres::ITERATIVE_SCHUR || type == ceres::CGNR;
}

// True if PCG has a second level, from the start or once it pays.
inline bool HasSecondLevel(PreconditionerChoice preconditioner) {
  return preconditioner == PRECONDITIONER_TWO_LEVEL ||
         preconditioner == PRECONDITIONER_AUTO;
}

// True if S is formed as a matrix: for a factorisation or for products.
inline bool NeedsSchurMatrix(const ceres::Solver::Options& options) {
  return IsFactorized(options.linear_solver_type) ||
         (options.linear_solver_type == ceres::ITERATIVE_SCHUR &&
          options.use_explicit_schur_complement);
}

// "SPARSE_SCHUR", "ITERATIVE_SCHUR with JACOBI"
std::string LinearSolverName(const ceres::Solver::Options& options);

// Makes *solver_options ask for the linear solver that Options::linear_solver
// and preconditioner choose, without what only a factorisation has; with
// dogleg, AUTO chooses exact steps. False if that is the program's already.
bool ChooseLinearSolver(const Options& options,
                        ceres::Solver::Options* solver_options);

// True if the linear solver that was chosen in place of the given one may be
// faster, or stock Ceres must not solve. num_columns: of the given one's
// matrix; 0: not known. work: with the chosen one.
bool GainsByChoice(const Options& options,
                   ceres::LinearSolverType given,
                   int num_columns,
                   const std::function<SolveWork()>& work);

// A problem of more residuals is not small.
inline constexpr int64_t kMostSmallResiduals = 6000;
// True if LINEAR_SOLVER_AUTO solves a problem by QR of its Jacobian as a small
// dense matrix (under_ceres/small_solve.h), by the residuals and tangent
// columns of its reduced program.
bool IsSmallSolve(const Options& options,
                  const ceres::Solver::Options& solver_options,
                  int64_t num_residuals,
                  int64_t num_columns);

// The reason why stock Ceres solves by its own Cholesky factorisation of J'J,
// as it is given, a clause; empty: it doesn't, or the user asks for this
// library.
std::string WhyStockNormal(const Options& options,
                           const ceres::Solver::Options& solver_options,
                           NormalWork work);

// The residuals of a problem, and the columns of its S, up to which exact steps
// on the host form S by eliminated blocks (solver/cholesky/small_schur.h).
inline constexpr int64_t kMostSmallSchurResiduals = 1 << 13;
inline constexpr int64_t kMostSmallSchurColumns = 300;
// True if a problem that is as small may have such steps. Its rows are then
// general ones, also on a device, so that a solve that a device fails to
// complete has the bits of the host's.
bool MayHaveSmallSchur(const Options& options,
                       const ceres::Solver::Options& solver_options);

// The reason why the linear solve is Ceres's whatever the problem is, a clause;
// empty: it isn't. Ceres's CGNR on CUDA, which it alone knows to be there, is
// not asked for.
std::string WhyLeftToCeres(const Options& options,
                           const ceres::Solver::Options& solver_options);

// The loop of a kind of small problem: Levenberg-Marquardt without a limit of
// time, or with all strategies and limits.
enum class SmallLoop { kPlain, kAny };
// The reason why small problems are not windows or fits of such a loop with
// these options, a clause; empty: they may be.
std::string WhyNotSmall(const Options& options,
                        const ceres::Solver::Options& solver_options,
                        SmallLoop loop);
bool HasTimeLimit(const ceres::Solver::Options& options);

solver::Factorization ToFactorization(SchurFactorizationType type);

// For options that this library replaces.
solver::StepOptions ToStepOptions(const Options& options,
                                  const ceres::Solver::Options& solver_options);

}  // namespace ceres_ext

#endif  // CERES_EXT_PLAN_SOLVER_CHOICE_H_
