// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Decides when PCG has a second level (preconditioner/coarse_space.h), and when
// its parts are made again. By counts alone, so that the same problem has the
// same steps in every run.
//
// At the start of a solve there is nothing to gain; once steps take hundreds of
// iterations, it takes a tenth of them. So it is made when all steps together
// have taken a part of the iterations that making it costs, and one step is
// hard: it takes twice as many as forming E costs. Steps become harder
// as the trust region grows, so a hard one is seldom the last. Many short steps
// never have it. From then on all steps begin with it, also those after
// rejected ones (docs/measurements/preconditioners.md).
//
// E is kept from step to step. It is formed again when the iterations that
// steps have taken beyond those of its first step have cost as much; vectors
// are made again when theirs have, if a new E alone did not help.
#ifndef CERES_EXT_SOLVER_COARSE_CHOICE_H_
#define CERES_EXT_SOLVER_COARSE_CHOICE_H_

#include <algorithm>

namespace ceres_ext::solver {

class CoarseChoice {
 public:
  enum class Due { kNothing, kMatrix, kVectors };

  // after: iterations of all steps after which it is made at the earliest; 0 if
  // steps have it from the start; below 0: there is none. again: iterations
  // that forming E costs.
  void Setup(int after, int again) {
    *this = CoarseChoice();
    after_ = after;
    again_ = again;
    is_on_ = after == 0;
  }
  void Disable() { Setup(-1, 0); }

  bool MayBeOn() const { return after_ >= 0; }
  // True if the next step begins with it.
  bool IsOn() const { return is_on_; }
  // Iterations of the next step without it at most. If it is on, that step
  // could not have it.
  int MaxNumIterations(int of_pcg) const {
    if (after_ < 0) {
      return of_pcg;
    }
    const int most =
        is_on_ ? again_ : std::max(after_ - num_without_, kHard * again_);
    return std::min(of_pcg, std::max(most, 1));
  }
  // A step has taken so many iterations without it. True if the step continues
  // with it: it has not ended, and these were MaxNumIterations(). E is then
  // due.
  bool NoteStepWithout(int num_iterations, bool has_ended) {
    if (after_ < 0) {
      return false;
    }
    num_without_ += num_iterations;
    if (!has_ended) {
      is_on_ = true;
      matrix_ = {};
    }
    return !has_ended;
  }
  // A step has taken so many iterations with it. The parts to make again before
  // the next one.
  Due NoteStep(int num_iterations) {
    const int count = std::max(num_iterations, kLeastIterations);
    vectors_.Note(count);
    matrix_.Note(count);
    if (matrix_.first >= 2 * vectors_.first &&
        vectors_.excess >= kVectors * again_) {
      vectors_ = {};
      matrix_ = {};
      return Due::kVectors;
    }
    if (matrix_.excess >= again_) {
      matrix_ = {};
      return Due::kMatrix;
    }
    return Due::kNothing;
  }

  // PCG's estimate of what is left to gain means nothing after one or two
  // iterations.
  static constexpr int kLeastIterations = 4;

 private:
  // A hard step, and making vectors, in E's. With 3 16 cities of 100,000
  // observations take 4,313 iterations, with 2 3,212.
  static constexpr int kHard = 2;
  static constexpr int kVectors = 4;

  // Iterations of the first step since something was made, and how many more
  // all since then took.
  struct Age {
    int first = 0;
    int excess = 0;
    void Note(int count) {
      if (first == 0) {
        first = count;
      }
      excess += std::max(count - first, 0);
    }
  };

  int after_ = -1;
  int again_ = 0;
  int num_without_ = 0;  // iterations
  bool is_on_ = false;
  Age matrix_;
  Age vectors_;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_COARSE_CHOICE_H_
