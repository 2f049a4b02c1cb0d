// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Decides whether the next step is by PCG or exact, if both are available. The
// unit of cost is an iteration of PCG. Costs are estimates that depend on
// counts alone (plan/device_choice.h), so the same problem has the same steps
// in every run and for any number of threads.
//
// PCG may take as many iterations as the exact step costs, and once as many as
// S as a matrix costs to set up. So a step never costs much more than twice the
// cheaper way (the ski rental problem: A. R. Karlin et al., "Competitive snoopy
// caching", Algorithmica 3, 1988). A step that PCG does not solve in time is
// exact, and so are some that follow; then PCG is tried again, each time after
// twice as many. A limit of PCG's own that is lower than the exact step's cost
// ends steps that are less accurate than they should be. Their iterations count
// too, and once they have cost as much as an exact step, a step is exact.
#ifndef CERES_EXT_SOLVER_STEP_CHOICE_H_
#define CERES_EXT_SOLVER_STEP_CHOICE_H_

#include <algorithm>
#include <cstdint>

namespace ceres_ext::solver {

class StepChoice {
 public:
  // exact, setup: what the exact step costs, and what S as a matrix costs once.
  // max_num_iterations: PCG's own limit.
  void Setup(int64_t exact, int64_t setup, int max_num_iterations) {
    *this = StepChoice();
    exact_ = exact;
    setup_ = setup;
    max_num_iterations_ = max_num_iterations;
  }
  // Exact steps are not available.
  void UsePcgAlone() {
    is_pcg_alone_ = true;
    num_exact_to_come_ = 0;
  }

  // True if the next step is exact at once.
  bool IsExact() const { return num_exact_to_come_ > 0; }
  // Iterations that PCG may take for it else.
  int MaxNumIterations() const {
    return is_pcg_alone_ ? max_num_iterations_
                         : static_cast<int>(std::min<int64_t>(
                               max_num_iterations_, exact_ + setup_));
  }
  // PCG has ended. is_at_limit: at MaxNumIterations(). True if the step is to
  // be exact instead.
  bool NotePcg(int num_iterations, bool is_at_limit) {
    if (is_pcg_alone_) {
      return false;
    }
    if (!is_at_limit) {
      setup_ -= std::clamp<int64_t>(num_iterations - exact_, 0, setup_);
      return false;
    }
    wasted_ += num_iterations;
    if (wasted_ < exact_ + setup_) {
      return false;
    }
    wasted_ = 0;
    setup_ = 0;
    num_exact_to_come_ = num_exact_;
    num_exact_ = std::min(2 * num_exact_, kMostExact);
    return true;
  }
  void NoteExact() { --num_exact_to_come_; }

 private:
  static constexpr int kFirstExact = 4;
  static constexpr int kMostExact = 1 << 20;

  int64_t exact_ = 0;
  int64_t setup_ = 0;   // what is left of it
  int64_t wasted_ = 0;  // iterations of steps that ended at PCG's limit
  int max_num_iterations_ = 0;
  int num_exact_to_come_ = 0;
  int num_exact_ = kFirstExact;  // of the next time
  bool is_pcg_alone_ = false;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_STEP_CHOICE_H_
