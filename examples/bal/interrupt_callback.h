// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A solve that a signal ends after the current iteration, see interrupt.h.

#ifndef EXAMPLES_BAL_INTERRUPT_CALLBACK_H_
#define EXAMPLES_BAL_INTERRUPT_CALLBACK_H_

#include "ceres/iteration_callback.h"
#include "ceres/solver.h"

namespace ceres_ext::bal {

class InterruptCallback final : public ceres::IterationCallback {
 public:
  // Ends the solve if a signal has come.
  ceres::CallbackReturnType operator()(
      const ceres::IterationSummary& iteration) override;

  // To be called after the solve. If a signal ended it and the solution is
  // usable, the parameter blocks hold the best state: returns true, and the
  // summary becomes that of a solve without convergence.
  bool WasInterrupted(ceres::Solver::Summary* summary) const;

 private:
  bool is_interrupted_ = false;
};

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_INTERRUPT_CALLBACK_H_
