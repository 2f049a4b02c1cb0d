// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A solve that can be stopped, saved on the way and gone on with.

#ifndef EXAMPLES_BAL_SEGMENTED_SOLVE_H_
#define EXAMPLES_BAL_SEGMENTED_SOLVE_H_

#include <functional>
#include <limits>

#include "ceres/problem.h"
#include "ceres/solver.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/options.h"
#include "ceres_ext/summary.h"

namespace ceres_ext::bal {

// Where a trust-region loop stands after its best accepted step. With the
// parameters there, it is all that Levenberg-Marquardt needs to go on: its
// factor for rejected steps is back at its first value after each accepted one.
// Steps that were rejected since are tried again. Ceres computes its Jacobi
// scaling anew, which changes steps by rounding, and more only where the
// damping of a parameter is at its bounds. Dogleg, nonmonotonic steps and inner
// iterations have a memory besides, which starts anew.
struct SolveProgress {
  int num_iterations = 0;
  double trust_region_radius =
      ceres::Solver::Options().initial_trust_region_radius;
};

struct SolveControl {
  // Where the solve begins and, if its solution is usable, where it ends.
  SolveProgress progress;

  // Asked after every iteration; true ends the solve with NO_CONVERGENCE and
  // its best state, and sets was_interrupted.
  std::function<bool()> is_interrupted;
  bool was_interrupted = false;

  // Called with the state in the user's parameter blocks, after the first
  // accepted step that comes so many seconds after the start or the last call.
  std::function<void(const SolveProgress&)> save;
  double seconds_between_saves = std::numeric_limits<double>::infinity();
};

// ceres_ext::Solve under control. The state comes to the user's blocks where a
// solve ends, and a callback that wants it in every iteration would cost a copy
// in each; so the solve ends for each call of save and another one starts,
// which costs one set-up and one evaluation. The summary is that of the whole,
// with iterations numbered on from control->progress.
// options.max_num_iterations counts those before the start too.
void SolveInSegments(const ceres::Solver::Options& options,
                     const ceres_ext::Options& ext_options,
                     ceres::Problem* problem,
                     SolveControl* control,
                     ceres_ext::Summary* summary);
void SolveInSegments(const ceres::Solver::Options& options,
                     const ceres_ext::Options& ext_options,
                     ArrayProblem* problem,
                     SolveControl* control,
                     ceres_ext::Summary* summary);

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_SEGMENTED_SOLVE_H_
