// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Decides when PCG has a second level (preconditioner/coarse_space.h). At the
// start of a solve there is nothing to gain; once steps take hundreds of
// iterations, it takes a tenth of them. So it is made when all steps together
// have taken as many iterations as making it costs: a solve never costs much
// more than twice the cheaper way. From then on steps begin with it, until some
// in a row are rejected: with more damping PCG does well alone. A step that
// then takes more iterations than the second level costs continues with it. By
// counts alone, so that the same problem has the same steps in every run.
#ifndef CERES_EXT_SOLVER_COARSE_CHOICE_H_
#define CERES_EXT_SOLVER_COARSE_CHOICE_H_

#include <algorithm>

namespace ceres_ext::solver {

class CoarseChoice {
 public:
  // after: iterations of all steps after which it is made; 0 if all steps begin
  // with it; below 0: there is none. again: iterations that a step with it
  // costs beside its own, once it is made.
  void Setup(int after, int again) {
    *this = CoarseChoice();
    after_ = after;
    again_ = again;
    is_on_ = is_made_ = after == 0;
  }
  void Disable() { Setup(-1, 0); }

  bool MayBeOn() const { return after_ >= 0; }
  // True if the next step begins with it.
  bool IsOn() const { return is_on_; }
  // Iterations of the next step without it at most.
  int MaxNumIterations(int of_pcg) const {
    if (after_ <= 0) {
      return of_pcg;
    }
    return std::min(of_pcg,
                    std::max(is_made_ ? again_ : after_ - num_without_, 1));
  }
  // A step has taken so many iterations without it. True if the step continues
  // with it: it has not ended, and these were MaxNumIterations().
  bool NoteStepWithout(int num_iterations, bool has_ended) {
    if (after_ <= 0) {
      return false;
    }
    num_without_ += num_iterations;
    const bool is_due = !is_made_ && num_without_ >= after_;
    if (!has_ended || is_due) {
      is_on_ = is_made_ = true;
      first_ = 0;
      num_rejected_ = 0;
    }
    return !has_ended;
  }
  // A step has taken so many iterations with it. is_same_linearization: the one
  // before was rejected. True if its vectors are to be made again: iterations
  // have doubled since.
  bool NoteStep(int num_iterations, bool is_same_linearization) {
    num_rejected_ = is_same_linearization ? num_rejected_ + 1 : 0;
    if (after_ > 0 && num_rejected_ >= kMostRejected) {
      is_on_ = false;
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
  int again_ = 0;
  int num_without_ = 0;  // iterations
  bool is_made_ = false;
  bool is_on_ = false;
  int first_ = 0;  // iterations of the first step with these vectors
  int num_rejected_ = 0;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_COARSE_CHOICE_H_
