// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/interrupt_callback.h"

#include <string>

#include "ceres/types.h"
#include "examples/bal/interrupt.h"

namespace ceres_ext::bal {

ceres::CallbackReturnType InterruptCallback::operator()(
    const ceres::IterationSummary&) {
  is_interrupted_ = IsInterrupted();
  return is_interrupted_ ? ceres::SOLVER_TERMINATE_SUCCESSFULLY
                         : ceres::SOLVER_CONTINUE;
}

bool InterruptCallback::WasInterrupted(ceres::Solver::Summary* summary) const {
  if (!is_interrupted_ || !summary->IsSolutionUsable()) {
    return false;
  }
  summary->termination_type = ceres::NO_CONVERGENCE;
  summary->message = "Interrupted after iteration " +
                     std::to_string(summary->iterations.back().iteration) + ".";
  return true;
}

}  // namespace ceres_ext::bal
