// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Decides whether the next step is loose: by PCG that stops after two or three
// iterations. One of the first steps that is rejected tells that the problem is
// far from its model there: points with outliers, or a start that is off. From
// such starts accurate steps come to an end 0.5 to 5 % above that of loose ones
// (docs/measurements/preconditioners.md). It depends on what steps have shown
// alone, so the same problem has the same steps in every run.
#ifndef CERES_EXT_SOLVER_LOOSE_STEPS_H_
#define CERES_EXT_SOLVER_LOOSE_STEPS_H_

#include <algorithm>

namespace ceres_ext::solver {

class LooseSteps {
 public:
  // PCG's q_tolerance of these steps.
  static constexpr double kQTolerance = 0.9;

  // num_first: from so many linearisations a rejected step counts. num_loose:
  // on so many linearisations from there on, all steps are loose; 0: none.
  void Setup(int num_first, int num_loose) {
    *this = LooseSteps();
    num_first_ = num_first;
    num_loose_ = num_loose;
  }

  // Before each step. is_same_linearization: the one before was rejected. True
  // if this one is loose.
  bool IsNext(bool is_same_linearization) {
    if (!is_same_linearization) {
      ++num_linearizations_;
      num_left_ = std::max(num_left_ - 1, 0);
    } else if (num_linearizations_ <= num_first_) {
      num_first_ = 0;
      num_left_ = num_loose_;
    }
    return num_left_ > 0;
  }

 private:
  int num_first_ = 0;  // 0: it has begun
  int num_loose_ = 0;
  int num_linearizations_ = 0;
  int num_left_ = 0;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_LOOSE_STEPS_H_
