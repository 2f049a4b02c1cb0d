// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Cameras and points whose block of the normal equations is rank-deficient
// without damping, by the rule of the solver
// (cuda_kernels/base/relative_pivot.h): U = sum Jc'Jc of a camera, V = sum
// Jp'Jp of a point.

#ifndef EXAMPLES_BAL_DEGENERATE_H_
#define EXAMPLES_BAL_DEGENERATE_H_

#include <cstdint>
#include <vector>

#include "problem_io/bal_problem.h"

namespace ceres_ext::bal {

struct DegenerateBlock {
  bool is_camera = false;
  int32_t id = 0;     // in the problem as it was given
  int32_t round = 0;  // in which it was found, from 1 on
  // When it was found.
  int64_t num_observations = 0;
  double relative_pivot = 0.0;
};

// Removes all degenerate cameras and points of a problem with 9-parameter
// cameras, with their observations, round after round until there is none:
// without a camera, a point may be left with one observation. A point with an
// observation whose residual or Jacobian is not finite is degenerate. Those
// that stay keep their order and values. Returns what was removed, by round,
// cameras before points, by id.
std::vector<DegenerateBlock> RemoveDegenerate(BalProblem* problem);

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_DEGENERATE_H_
