// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Ends that Ceres calls CONVERGENCE and that are not a minimum.
//
// Near the plane of a camera the cost is not smooth: a step that moves a point
// across it costs 1e30 and is rejected, and so are all that follow until the
// trust region is tiny. A step then changes cost and state so little that a
// tolerance is met, whatever the gradient is.

#ifndef CERES_EXT_UNDER_CERES_NO_MINIMUM_H_
#define CERES_EXT_UNDER_CERES_NO_MINIMUM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ceres/solver.h"
#include "ceres_ext/summary.h"

namespace ceres_ext {

// True if a solve by Levenberg-Marquardt has ended with CONVERGENCE because its
// trust region is small. With a radius R < 1e-2 the damping D^2 = diag(J'J) / R
// outweighs J'J, so a step is -R diag(J'J)^-1 g and the model gains R g'
// diag(J'J)^-1 g. At a minimum nearly nothing is left to be gained; here it is
// more than 1e-3 of the cost at R = 1.
bool EndsAtNoMinimum(const ceres::Solver::Summary& summary);

// Says so, for a summary whose solve has ended there.
std::string NoMinimumText(const ceres::Solver::Summary& summary,
                          int64_t num_runaway_trials,
                          int64_t num_runaway_residuals);

// Sets the numbers of the blocks by name(DegenerateBlocks*), which names
// `worst`.
template <typename Name>
void NameBlocks(const Name& name, std::vector<RunawayResidual>* residuals) {
  for (RunawayResidual& residual : *residuals) {
    for (RunawayResidual::Block& block : residual.blocks) {
      DegenerateBlocks named;
      named.count = 1;
      named.worst = block.values;
      name(&named);
      block.parameters = named.worst_parameters;
      block.block = named.worst_block;
    }
  }
}

}  // namespace ceres_ext

#endif  // CERES_EXT_UNDER_CERES_NO_MINIMUM_H_
