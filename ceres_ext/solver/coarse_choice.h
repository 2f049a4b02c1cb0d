// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Whether PCG has a second level (preconditioner/coarse_space.h). At the start
// of a solve there is nothing to gain; once steps take hundreds of iterations,
// it takes a tenth of them. So a step begins without, and gets it when it has
// taken as many iterations as making it costs: it never costs much more than
// twice the cheaper way. The next steps begin with it. By counts alone, so that
// the same problem has the same steps in every run.
#ifndef CERES_EXT_SOLVER_COARSE_CHOICE_H_
#define CERES_EXT_SOLVER_COARSE_CHOICE_H_

#include <algorithm>

namespace ceres_ext::solver {

class CoarseChoice {
 public:
  // after: iterations of a step; 0: all steps begin with it; below 0: never.
  void Setup(int after) {
    *this = CoarseChoice();
    after_ = after;
    is_on_ = after == 0;
  }
  void Disable() { Setup(-1); }

  bool MayBeOn() const { return after_ >= 0; }
  // Whether the next step begins with it.
  bool IsOn() const { return is_on_; }
  // Iterations without it at most.
  int MaxNumIterations(int of_pcg) const {
    return after_ > 0 ? std::min(after_, of_pcg) : of_pcg;
  }
  // A step has reached MaxNumIterations() without it and goes on with it.
  void SwitchOn() {
    is_on_ = true;
    first_ = 0;
    num_rejected_ = 0;
  }
  // A step has taken so many iterations with it. is_same_linearization: the one
  // before was rejected. Whether its vectors are to be made again: iterations
  // have doubled since.
  bool NoteStep(int num_iterations, bool is_same_linearization) {
    num_rejected_ = is_same_linearization ? num_rejected_ + 1 : 0;
    if (after_ > 0 && num_rejected_ >= kMostRejected) {
      is_on_ = false;  // More damping makes PCG's work easy.
      return false;
    }
    if (first_ == 0) {
      first_ = std::max(num_iterations, kLeastIterations);
      return false;
    }
    if (num_iterations < 2 * first_) {
      return false;
    }
    first_ = 0;
    return true;
  }

  // PCG's estimate of what is left to gain means nothing after one or two
  // iterations.
  static constexpr int kLeastIterations = 4;

 private:
  static constexpr int kMostRejected = 2;

  int after_ = -1;
  bool is_on_ = false;
  int first_ = 0;  // iterations of the first step with these vectors
  int num_rejected_ = 0;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_COARSE_CHOICE_H_
