// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// From the arrays of a BalProblem to a ceres::Problem and its solution.

#ifndef EXAMPLES_BAL_SOLVE_BAL_H_
#define EXAMPLES_BAL_SOLVE_BAL_H_

#include <ostream>

#include "ceres/loss_function.h"
#include "ceres/manifold.h"
#include "ceres/problem.h"
#include "ceres/solver.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/options.h"
#include "ceres_ext/summary.h"
#include "problem_io/bal_part.h"
#include "problem_io/bal_problem.h"

namespace ceres_ext::bal {

enum CostFunctionType {
  COST_FUNCTION_ANALYTIC,
  COST_FUNCTION_AUTODIFF,
  COST_FUNCTION_DEVICE_AUTODIFF,
};

// The input of the solver.
enum ProblemType {
  // A ceres_ext::ArrayProblem, where it can be: analytic derivatives, this
  // library and no inner iterations; else a ceres::Problem.
  PROBLEM_ARRAYS,
  PROBLEM_CERES,
};

enum LinearSolverOrdering { ORDERING_USER, ORDERING_AUTOMATIC };

// Which blocks inner iterations refine, and in which order.
enum InnerIterationBlocks {
  INNER_AUTOMATIC,
  INNER_CAMERAS,
  INNER_POINTS,
  INNER_CAMERAS_POINTS,
  INNER_POINTS_CAMERAS,
};

struct SolveBalOptions {
  CostFunctionType cost_function = COST_FUNCTION_ANALYTIC;
  ProblemType problem = PROBLEM_ARRAYS;

  // Huber's loss with a width of one pixel on every observation.
  bool robustify = false;

  // Keep the quaternions of 10-parameter cameras at unit length.
  bool use_manifolds = false;

  // ORDERING_USER: points are eliminated first, then cameras, as they are with
  // arrays in any case.
  LinearSolverOrdering ordering = ORDERING_USER;
  InnerIterationBlocks inner_iteration_blocks = INNER_AUTOMATIC;

  // The ProgressLine that reports the building of a ceres::Problem; null for
  // none.
  std::ostream* progress = nullptr;

  // Without its orderings, which follow from the two fields above.
  ceres::Solver::Options solver_options;
  ceres_ext::Options ext_options;
};

// Adds one residual block per observation. The blocks point into *problem,
// whose arrays have to outlive *ceres_problem and stay where they are.
void BuildCeresProblem(const SolveBalOptions& options,
                       BalProblem* problem,
                       ceres::Problem* ceres_problem);

// The arrays of *problem, which stay where they are, with *loss and *manifold
// of 10-parameter cameras, which outlive the result; each may be null. part:
// null, or the points of this process, as KeepPart leaves the problem.
ArrayProblem BuildArrayProblem(ceres::LossFunction* loss,
                               ceres::Manifold* manifold,
                               BalProblem* problem,
                               const BalPart* part = nullptr);

// Refines cameras and points of *problem, with this library or, if
// options.ext_options.enabled is false, with Ceres alone.
// *build_time_in_seconds is the time of BuildCeresProblem and of the orderings,
// 0 where there is no ceres::Problem.
void SolveBal(const SolveBalOptions& options,
              BalProblem* problem,
              ceres_ext::Summary* summary,
              double* build_time_in_seconds);

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_SOLVE_BAL_H_
