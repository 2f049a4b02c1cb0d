// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The search along the projected step of a window with bounds. The whole step
// is the candidate already, and each trial replaces it. For the derivative of a
// trial Form evaluates it as x. The next Form is at x again, whatever the
// verdict. A phase of its own, so that windows without bounds pay nothing.
#ifndef CERES_EXT_SMALL_WINDOW_SEARCH_H_
#define CERES_EXT_SMALL_WINDOW_SEARCH_H_

#include <cfloat>
#include <cstdint>

#include "ceres_ext/small/window/form.h"
#include "ceres_ext/small/window/rows.h"
#include "ceres_ext/small/window/step.h"
#include "ceres_ext/small/window/team_window.h"
#include "ceres_ext/solver/step_search.h"

namespace ceres_ext {
namespace window {

// The derivative g'd along the step d, with the gradient of the last Form, and
// the largest element of d. Each block computes them alone.
template <typename W>
CERES_EXT_WINDOW_CALL void Differentiate(W& w,
                                         double* derivative,
                                         double* max_norm) {
  double sum[1] = {0.0};
  double largest[1] = {0.0};
  const auto add = [&](double gradient, double step) {
    sum[0] += gradient * step;
    Largest(step, largest);
  };
  for (int c = w.rank(); c < w.n; c += w.size()) {
    add(w.gradient[c], w.step[c]);
  }
  for (int e = w.rank(); e < 3 * w.counts.num_points; e += w.size()) {
    add(w.PointGradient(0)[e], w.PointStep(0)[e]);
  }
  w.team->Sum(sum);
  w.team->BlockMax(largest);
  *derivative = sum[0];
  *max_norm = largest[0];
}

// Makes x (+) scale d the candidate.
template <typename W>
CERES_EXT_WINDOW_CALL void TryStep(W& w, double scale, Step* step) {
  double unused_x_norm = 0.0;
  double step_norm = 0.0;
  for (int i = w.rank(); i < w.counts.num_cameras; i += w.size()) {
    double delta[W::kColumns];
    for (int c = 0; c < W::kColumns; ++c) {
      delta[c] = scale * w.step[W::kColumns * i + c];
    }
    PlaceCamera(w, i, delta, &unused_x_norm, &step_norm);
  }
  w.team->Barrier();
  bool is_finite = true;
  bool is_evaluated = true;
  const Step trial = SumItems(
      w,
      unused_x_norm,
      step_norm,
      &is_finite,
      &is_evaluated,
      [&](int p, double* item) {
        const double* const x = w.PointOf(p);
        double moved[3] = {x[0], x[1], x[2]};
        for (int a = 0; p < w.counts.num_points && a < 3; ++a) {
          moved[a] = w.BoundPoint(p, a, x[a] + scale * w.PointStep(p)[a]);
          w.records[WindowScratch::kRecord * int64_t{p} + a] = moved[a];
          item[3] += (x[a] - moved[a]) * (x[a] - moved[a]);
        }
        for (int k = w.point_begin[p]; k < w.point_begin[p + 1]; ++k) {
          is_evaluated &= AddCost(w, k, moved, item + 1);
        }
      });
  step->cost = trial.cost;
  step->step_norm = trial.step_norm;
}

// Copies between x and its place in scratch. The cameras are the first block's.
template <typename W>
CERES_EXT_WINDOW void CopyState(W& w, bool saves) {
  const int num_values = W::kCamera * w.counts.num_cameras;
  const auto copy = [&](int first, int stride, int n, double* x, double* kept) {
    for (int e = first; e < n; e += stride) {
      *(saves ? kept + e : x + e) = *(saves ? x + e : kept + e);
    }
  };
  if (w.block() == 0) {
    copy(w.rank(), w.size(), num_values, w.cameras, w.Saved());
  }
  copy(w.Member(),
       w.NumMembers(),
       3 * w.counts.num_points,
       w.points,
       w.Saved() + num_values);
}

// Cost and derivative at the candidate.
template <typename W>
CERES_EXT_WINDOW_CALL Linearization LinearizeTrial(W& w, double* derivative) {
  CopyState(w, /*saves=*/true);
  w.team->Join();
  Accept(w);
  const Linearization at_trial =
      Form(w, /*is_first=*/false, /*only_gradient=*/true);
  double unused_max_norm;
  Differentiate(w, derivative, &unused_max_norm);
  // Other blocks may still read the trial.
  w.team->Join();
  CopyState(w, /*saves=*/false);
  w.team->Join();
  Prepare(w);
  return at_trial;
}

// *step is the whole step, and becomes the one at which the search ends. All
// threads decide alike, since they have the same numbers.
template <typename W>
CERES_EXT_WINDOW_CALL void SearchStep(W& w,
                                      const StepSearchOptions& options,
                                      Step* step) {
  using Next = StepSearch::Next;
  double derivative;
  double max_norm;
  Differentiate(w, &derivative, &max_norm);
  StepSearch search(options, w.region->cost(), derivative, max_norm);
  Next next = search.AddCost(step->cost < DBL_MAX, step->cost);
  while (next == Next::kCost || next == Next::kDerivative) {
    if (next == Next::kCost) {
      TryStep(w, search.step_size(), step);
      next = search.AddCost(step->cost < DBL_MAX, step->cost);
    } else {
      const Linearization at_trial = LinearizeTrial(w, &derivative);
      next = search.AddDerivative(
          at_trial.is_evaluated, at_trial.cost, derivative);
    }
  }
  if (next == Next::kFailed) {
    TryStep(w, 1.0, step);
  }
}

}  // namespace window
}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_WINDOW_SEARCH_H_
