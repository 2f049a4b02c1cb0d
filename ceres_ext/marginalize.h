// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Drops blocks from a problem and keeps what its residual blocks say about the
// others, as a prior (ceres_ext/marginal_prior.h): the oldest keyframe of a
// window with its points, for example.
//
//   std::vector<uint8_t> old_poses = {1, 0, 0, 0}, old_points = ...;
//   ceres_ext::BlocksToDrop drop;
//   drop.parameter_is_dropped = {old_poses.data(), old_points.data()};
//   ceres_ext::Marginal marginal;
//   std::string error;
//   if (!ceres_ext::Marginalize(problem, drop, &marginal, &error)) { ... }
//   // Leave out the blocks and all their residual blocks, and add
//   // marginal.prior on marginal.blocks.
//
// The prior has the residual blocks that depend on a dropped block, priors
// among them, and no others. It is the minimum over the dropped blocks of
// 1/2 |J d + r|^2, with r and J corrected for the loss as Ceres does.
//
// First estimates. A block that a prior of the problem has is linearised at
// that prior's reference, which the new prior takes over; if several priors
// have it, at that of the first. All other blocks are linearised at their
// values. r is always that of the current values. Directions that the residual
// blocks do not observe (the pose of the whole map, its scale, the yaw) stay
// unobserved, because each block has one linearisation point in all priors.
//
// Method. Householder's QR with column pivoting, block by block, small ones
// first; J'J is never formed, so its eigenvalues are never negative. A column
// counts as dependent if what others leave of it is at most rank_tolerance
// times its norm in J. A dropped block may have dependent columns. Bounds are
// ignored.
//
// Determinism: the same bits from call to call, in any batch, and with any
// number of threads.

#ifndef CERES_EXT_MARGINALIZE_H_
#define CERES_EXT_MARGINALIZE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ceres/problem.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/marginal_prior.h"

namespace ceres_ext {

struct BlocksToDrop {
  // For each parameter array, 1 for each block to drop; null, or an empty
  // vector: none. A constant block has no columns, but its residual blocks are
  // in the prior.
  std::vector<const uint8_t*> parameter_is_dropped;
  // For each array of residual blocks, 1 for each that the prior leaves out
  // although it depends on a dropped block; null, or an empty vector: none. So
  // a keyframe goes without an edge to each point that stays.
  std::vector<const uint8_t*> residual_is_cut;
  // Range: 0 < rank_tolerance < 1. Rounding leaves some 1e-15 times the root of
  // the number of rows of a dependent column. Remainders within the tolerance
  // are set to zero, so that the prior observes directions that the residual
  // blocks do not observe by no more than that.
  double rank_tolerance = 1e-11;

  // True if there may be blocks to drop.
  bool any() const { return !parameter_is_dropped.empty(); }
};

struct Marginal {
  // A block that the prior is on.
  struct Block {
    int parameters = 0;  // the number that AddParameters returned
    int64_t block = 0;
  };

  // Null if no residual block says anything about a block that stays.
  std::shared_ptr<BlockMarginalPrior> prior;
  // In the order of the arrays. All vary.
  std::vector<Block> blocks;
  // Residual blocks in the prior.
  int64_t num_rows = 0;
  // Columns of the dropped blocks, and how many of them are independent.
  int num_dropped_columns = 0;
  int dropped_rank = 0;
  // Cost of the minimum over the dropped blocks and those that stay.
  double least_cost = 0.0;
  // In a batch: why there is none; empty otherwise.
  std::string message;
};

// Makes the prior of a problem at its current values. Returns false, with a
// sentence in *error (may be null), if the problem or the flags are not valid,
// an array is on a device, a residual block cannot be evaluated, or a value is
// not finite. Throws nothing, and changes no values.
bool Marginalize(const ArrayProblem& problem,
                 const BlocksToDrop& drop,
                 Marginal* marginal,
                 std::string* error);

// The same of a `ceres::Problem`. *blocks gets the blocks that the prior is on,
// in its order; Marginal::blocks is empty. Also returns false if a block to
// drop is not in the problem.
//
//   std::vector<double*> blocks;
//   ceres_ext::Marginalize(&problem, {old_pose, p0, p1}, &marginal, &blocks,
//                          &error);
//   for (double* old : {old_pose, p0, p1}) problem.RemoveParameterBlock(old);
//   problem.AddResidualBlock(marginal.prior.get(), nullptr, blocks);
bool Marginalize(const ceres::Problem& problem,
                 const std::vector<double*>& to_drop,
                 Marginal* marginal,
                 std::vector<double*>* blocks,
                 std::string* error);

}  // namespace ceres_ext

#endif  // CERES_EXT_MARGINALIZE_H_
