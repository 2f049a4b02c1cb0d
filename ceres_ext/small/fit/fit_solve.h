// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A whole Levenberg-Marquardt solve of a fit (fit.h) by one team: a warp of a
// device or a part of one, or a thread of the host. The only copy of the loop.
//
//   H = J'J and g = J'r, a sum over the rows of each lane, then over the lanes
//   (H + D^2) step = -g by Cholesky's method, in the registers of each lane
//   the model's change = (|L^-1 g|^2 + |D step|^2) / 2
//   the cost at x (+) step, and the decision (solver/trust_region.h)
//
// All teams of a warp take the same way through the loop, since its operations
// need all lanes. Those that have nothing to do in a stage add nothing.
//
// A Team has is_first(), Any (over the teams of the warp), FromFirst (the value
// of the first lane), Sum (over the lanes in one order, in all of them) and
// Barrier. A Problem adds the rows of this lane and knows the manifolds; only
// the first lane calls Plus and SetTangents.
#ifndef CERES_EXT_SMALL_FIT_FIT_SOLVE_H_
#define CERES_EXT_SMALL_FIT_FIT_SOLVE_H_

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "ceres_ext/small/fit/fit.h"
#include "ceres_ext/solver/step_search.h"
#include "ceres_ext/solver/trust_region.h"
#include "cuda_kernels/base/host_device.h"

// Elements of arrays in registers have numbers that the compiler knows.
#ifdef __CUDACC__
#define CERES_EXT_FIT_UNROLL _Pragma("unroll")
#else
#define CERES_EXT_FIT_UNROLL
#endif

namespace ceres_ext {

// Data that the lanes of a team share.
template <int kColumns>
struct FitMemory {
  TrustRegion region;
  double x[kColumns];
  double moved[kColumns];
  double step[kColumns];
  double tangents[kColumns * kColumns];
};

// The sums over rows, corrected for the loss.
template <int kColumns>
struct FitSums {
  static constexpr int kTriangle = kColumns * (kColumns + 1) / 2;
  double hessian[kTriangle];  // J'J, the lower triangle row by row
  double gradient[kColumns];  // J'r
  double cost;

  CERES_EXT_HOST_DEVICE static constexpr int At(int r, int c) {
    return r * (r + 1) / 2 + c;
  }

  CERES_EXT_HOST_DEVICE void SetZero() {
    CERES_EXT_FIT_UNROLL
    for (int e = 0; e < kTriangle; ++e) {
      hessian[e] = 0.0;
    }
    CERES_EXT_FIT_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      gradient[c] = 0.0;
    }
    cost = 0.0;
  }
  // Adds one residual and its derivatives.
  CERES_EXT_HOST_DEVICE void Add(double residual, const double* derivatives) {
    CERES_EXT_FIT_UNROLL
    for (int r = 0; r < kColumns; ++r) {
      CERES_EXT_FIT_UNROLL
      for (int c = 0; c <= r; ++c) {
        hessian[At(r, c)] += derivatives[r] * derivatives[c];
      }
      gradient[r] += derivatives[r] * residual;
    }
  }
};

// kIsBounded: some values have bounds. Problem::Plus then ends within them, and
// steps are searched (solver/step_search.h).
template <int kColumns, typename Problem, typename Team, bool kIsBounded>
class FitSolve {
 public:
  CERES_EXT_HOST_DEVICE FitSolve(Problem* problem,
                                 FitMemory<kColumns>* memory,
                                 Team* team)
      : problem_(problem), memory_(memory), team_(team) {}

  // memory->x has the start, and gets the solution. If is_valid is false, the
  // team only takes part. Bit c of used_columns: column c is not always zero.
  CERES_EXT_HOST_DEVICE void Run(const LoopOptions& options,
                                 bool is_valid,
                                 uint32_t used_columns) {
    used_columns_ = used_columns;
    if constexpr (kIsBounded) {
      search_ = options.search;
    }
    sums_.SetZero();
    if (team_->is_first()) {
      memory_->region = TrustRegion(options);
      if (is_valid) {
        problem_->SetTangents(memory_->x);
      }
    }
    team_->Barrier();
    bool runs = is_valid;
    bool is_start = true;
    bool is_new = true;
    while (team_->Any(runs)) {
      if (team_->Any(runs && is_new)) {
        runs = Linearize(runs, is_new, is_start);
        is_start = false;
      }
      const Action action = TakeStep(runs);
      runs = action != Action::kEnd;
      is_new = action == Action::kAccept;
    }
  }

 private:
  using Sums = FitSums<kColumns>;
  enum class Action : int32_t { kEnd, kAccept, kReject };

  // True if the loop continues. Teams whose x is not new keep their sums.
  CERES_EXT_HOST_DEVICE bool Linearize(bool runs, bool is_new, bool is_start) {
    const bool is_due = runs && is_new;
    bool is_evaluated = true;
    if (is_due) {
      sums_.SetZero();
      is_evaluated = problem_->AddRows(memory_->x, &sums_);
    }
    CERES_EXT_FIT_UNROLL
    for (int e = 0; e < Sums::kTriangle; ++e) {
      Reduce(is_due, &sums_.hessian[e]);
    }
    CERES_EXT_FIT_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      Reduce(is_due, &sums_.gradient[c]);
    }
    Reduce(is_due, &sums_.cost);
    is_evaluated = team_->Sum(is_evaluated ? 0.0 : 1.0) == 0.0;
    if (is_due && is_start) {
      CERES_EXT_FIT_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        scale_[c] = memory_->region.Scale(sums_.hessian[Sums::At(c, c)]);
      }
    }
    if (is_due && team_->is_first()) {
      const double largest = LargestChange();
      runs = is_start
                 ? memory_->region.Begin(is_evaluated, sums_.cost, largest)
                 : memory_->region.Linearize(is_evaluated, sums_.cost, largest);
    }
    runs = team_->FromFirst(runs ? 1 : 0) != 0;
    team_->Barrier();
    return runs;
  }

  CERES_EXT_HOST_DEVICE void Reduce(bool is_due, double* value) {
    const double sum = team_->Sum(*value);
    *value = is_due ? sum : *value;
  }

  // The largest element of |x (+) -g - x|; NaN if one is. The first lane only.
  CERES_EXT_HOST_DEVICE double LargestChange() {
    using std::fabs;
    CERES_EXT_FIT_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      memory_->step[c] = -sums_.gradient[c];
    }
    problem_->Plus(memory_->x, memory_->step, memory_->moved);
    double largest = 0.0;
    for (int e = 0; e < kColumns; ++e) {
      const double change = fabs(memory_->x[e] - memory_->moved[e]);
      if (!(change <= largest) && largest == largest) {
        largest = change;
      }
    }
    return largest;
  }

  CERES_EXT_HOST_DEVICE Action TakeStep(bool runs) {
    double step[kColumns];
    double model_cost_change = 0.0;
    const bool is_step =
        runs && Solve(step, &model_cost_change) && model_cost_change > 0.0;
    if (is_step && team_->is_first()) {
      CERES_EXT_FIT_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        memory_->step[c] = step[c];
      }
      problem_->Plus(memory_->x, memory_->step, memory_->moved);
    }
    team_->Barrier();
    double cost = CostOfCandidate(is_step);
    if constexpr (kIsBounded) {
      cost = Search(is_step && search_.max_num_iterations > 0, step, cost);
    }
    auto action = Action::kEnd;
    if (runs && team_->is_first()) {
      action = Decide(is_step, model_cost_change, cost);
    }
    action =
        static_cast<Action>(team_->FromFirst(static_cast<int32_t>(action)));
    team_->Barrier();
    return action;
  }

  // DBL_MAX if it can't be evaluated.
  CERES_EXT_HOST_DEVICE double CostOfCandidate(bool is_due) {
    double cost = 0.0;
    bool is_evaluated = true;
    if (is_due) {
      is_evaluated = problem_->AddCosts(memory_->moved, &cost);
    }
    cost = team_->Sum(cost);
    is_evaluated = team_->Sum(is_evaluated ? 0.0 : 1.0) == 0.0;
    return is_evaluated ? cost : DBL_MAX;
  }

  // Searches along the projected step, whose end is the candidate with this
  // cost. Returns the cost of the candidate at which the search ends.
  CERES_EXT_HOST_DEVICE double Search(bool is_due,
                                      const double* step,
                                      double cost) {
    using Next = StepSearch::Next;
    using std::fabs;
    using std::fmax;
    double max_norm = 0.0;
    for (int c = 0; is_due && c < kColumns; ++c) {
      max_norm = fmax(max_norm, fabs(step[c]));
    }
    // All lanes have the same numbers.
    StepSearch search(search_,
                      memory_->region.cost(),
                      is_due ? DerivativeAlong(step, sums_) : 0.0,
                      max_norm);
    Next next = is_due ? search.AddCost(cost < DBL_MAX, cost) : Next::kDone;
    while (team_->Any(next == Next::kCost || next == Next::kDerivative)) {
      if (team_->Any(next == Next::kDerivative)) {
        LinearizeTrial(step, &next, &search);
      }
      const bool is_trial = next == Next::kCost;
      PlaceCandidate(is_trial, search.step_size(), step);
      const double of_trial = CostOfCandidate(is_trial);
      if (is_trial) {
        cost = of_trial;
        next = search.AddCost(cost < DBL_MAX, cost);
      }
    }
    if (team_->Any(next == Next::kFailed)) {
      PlaceCandidate(next == Next::kFailed, 1.0, step);
      const double of_whole = CostOfCandidate(next == Next::kFailed);
      cost = next == Next::kFailed ? of_whole : cost;
    }
    return cost;
  }

  // The candidate is x (+) scale step.
  CERES_EXT_HOST_DEVICE void PlaceCandidate(bool is_due,
                                            double scale,
                                            const double* step) {
    // Other lanes may read the candidate before.
    team_->Barrier();
    if (is_due && team_->is_first()) {
      for (int c = 0; c < kColumns; ++c) {
        memory_->step[c] = scale * step[c];
      }
      problem_->Plus(memory_->x, memory_->step, memory_->moved);
    }
    team_->Barrier();
  }

  // Cost and derivative at the candidate.
  CERES_EXT_HOST_DEVICE void LinearizeTrial(const double* step,
                                            StepSearch::Next* next,
                                            StepSearch* search) {
    const bool is_due = *next == StepSearch::Next::kDerivative;
    if (is_due && team_->is_first()) {
      problem_->SetTangents(memory_->moved);
    }
    team_->Barrier();
    Sums sums;
    sums.SetZero();
    bool is_evaluated = true;
    if (is_due) {
      is_evaluated = problem_->AddRows(memory_->moved, &sums);
    }
    for (int c = 0; c < kColumns; ++c) {
      sums.gradient[c] = team_->Sum(sums.gradient[c]);
    }
    sums.cost = team_->Sum(sums.cost);
    is_evaluated = team_->Sum(is_evaluated ? 0.0 : 1.0) == 0.0;
    if (is_due) {
      *next = search->AddDerivative(
          is_evaluated, sums.cost, DerivativeAlong(step, sums));
    }
    team_->Barrier();
    if (is_due && team_->is_first()) {
      problem_->SetTangents(memory_->x);
    }
    team_->Barrier();
  }

  CERES_EXT_HOST_DEVICE static double DerivativeAlong(const double* step,
                                                      const Sums& sums) {
    double derivative = 0.0;
    for (int c = 0; c < kColumns; ++c) {
      derivative += sums.gradient[c] * step[c];
    }
    return derivative;
  }

  // The first lane decides, and moves x to an accepted candidate.
  CERES_EXT_HOST_DEVICE Action Decide(bool is_step,
                                      double model_cost_change,
                                      double cost) {
    using std::sqrt;
    if (!is_step) {
      return memory_->region.RejectInvalidStep() ? Action::kReject
                                                 : Action::kEnd;
    }
    double x_norm = 0.0;
    double step_norm = 0.0;
    for (int e = 0; e < kColumns; ++e) {
      const double x = memory_->x[e];
      const double change = x - memory_->moved[e];
      x_norm += x * x;
      step_norm += change * change;
    }
    switch (memory_->region.Judge(
        model_cost_change, cost, sqrt(x_norm), sqrt(step_norm))) {
      case TrustRegion::Verdict::kEnded:
        break;
      case TrustRegion::Verdict::kRejected:
        return Action::kReject;
      case TrustRegion::Verdict::kAccepted:
        for (int e = 0; e < kColumns; ++e) {
          memory_->x[e] = memory_->moved[e];
        }
        problem_->SetTangents(memory_->x);
        return Action::kAccept;
    }
    return Action::kEnd;
  }

  CERES_EXT_HOST_DEVICE bool IsUsed(int c) const {
    return (used_columns_ >> c & 1) != 0;
  }

  // (H + D^2) step = -g. False if H + D^2 is not positive definite or the step
  // is not finite.
  CERES_EXT_HOST_DEVICE bool Solve(double* step, double* model_cost_change) {
    using std::sqrt;
    double l[Sums::kTriangle];
    double damping[kColumns];
    CERES_EXT_FIT_UNROLL
    for (int r = 0; r < kColumns; ++r) {
      CERES_EXT_FIT_UNROLL
      for (int c = 0; c < r; ++c) {
        l[Sums::At(r, c)] = sums_.hessian[Sums::At(r, c)];
      }
      const double squared_norm = sums_.hessian[Sums::At(r, r)];
      damping[r] = IsUsed(r)
                       ? memory_->region.SquaredDamping(squared_norm, scale_[r])
                       : 0.0;
      l[Sums::At(r, r)] = IsUsed(r) ? squared_norm + damping[r] : 1.0;
      step[r] = -sums_.gradient[r];
    }
    // L has 1 / L(c, c) on its diagonal; `step` becomes L^-1 (-g).
    bool is_definite = true;
    double change = 0.0;
    CERES_EXT_FIT_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      is_definite = is_definite && l[Sums::At(c, c)] > 0.0;
      const double inverse = 1.0 / sqrt(l[Sums::At(c, c)]);
      l[Sums::At(c, c)] = inverse;
      step[c] *= inverse;
      change += step[c] * step[c];
      CERES_EXT_FIT_UNROLL
      for (int r = c + 1; r < kColumns; ++r) {
        l[Sums::At(r, c)] *= inverse;
        step[r] -= l[Sums::At(r, c)] * step[c];
      }
      CERES_EXT_FIT_UNROLL
      for (int r = c + 1; r < kColumns; ++r) {
        CERES_EXT_FIT_UNROLL
        for (int t = c + 1; t <= r; ++t) {
          l[Sums::At(r, t)] -= l[Sums::At(r, c)] * l[Sums::At(t, c)];
        }
      }
    }
    double sum = 0.0;
    CERES_EXT_FIT_UNROLL
    for (int c = kColumns - 1; c >= 0; --c) {
      step[c] *= l[Sums::At(c, c)];
      CERES_EXT_FIT_UNROLL
      for (int t = 0; t < c; ++t) {
        step[t] -= l[Sums::At(c, t)] * step[c];
      }
      change += damping[c] * step[c] * step[c];
      sum += step[c];
    }
    *model_cost_change = 0.5 * change;
    // Infinite or NaN minus itself is NaN.
    return is_definite &&
           sum - sum == 0.0;  // NOLINT(misc-redundant-expression)
  }

  Problem* const problem_;
  FitMemory<kColumns>* const memory_;
  Team* const team_;
  uint32_t used_columns_ = 0;
  StepSearchOptions search_;  // if kIsBounded
  Sums sums_;
  double scale_[kColumns];
};

}  // namespace ceres_ext

#undef CERES_EXT_FIT_UNROLL

#endif  // CERES_EXT_SMALL_FIT_FIT_SOLVE_H_
