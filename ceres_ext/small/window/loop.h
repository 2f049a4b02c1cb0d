// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A whole Levenberg-Marquardt solve of a window by one team: a thread block of
// a device, a cluster of them, or threads of the host, which are blocks of one
// thread. The only copy of the arithmetic.
//
// Form, chunk by chunk, with Jacobians that never leave a block's memory:
//
//   per row    r, Jc, Jp, corrected by the loss
//   per point  V = Jp'Jp + D^2 = L L'
//   per row    A = Jp L^-T,  r' = r - A L^-1 Jp'r
//   per tile   S_ij += sum over points of Jc_i' (I - A_i A_j') Jc_j,
//              b_i  -= sum over rows of Jc_i' r',
//              where I is there for rows of the same camera alone
//
// S and L are block-sparse: only the pairs of the pattern (window.h) are read
// and written. The others are zero, so they change no sum.
//
// A thread owns a tile of S, so that each sum has one order: that of the rows.
// Then S + D^2 = L L' with b as its last row, which makes forward substitution
// a part of the factorisation; steps of points, the model's change, the
// candidate's cost, and the decision (solver/trust_region.h). If values have
// bounds, steps end within them and are searched (search.h).
//
// Several blocks deal out chunks and points. A chunk's part of S goes to main
// memory, then all blocks add the parts in the order of the chunks. Warps write
// the sums of their rows' costs, and those of their points, to main memory, and
// each block adds them in one order. So the bits do not depend on the number of
// blocks. Cameras, the sums over them and the decisions are each block's own,
// the same in all. The first block factorises S.
//
// If there are priors, all blocks evaluate them by turns into main memory. Then
// S gets their J'J in the first block, and each block adds them to its own
// sums; a thread owns an element, and adds in the order of the priors.
//
// Marginal priors are A d + b. All blocks compute d and its derivative D of
// each pose, then [J r] = [A D, A d + b], a warp a row. The first block adds
// J'J to S, a thread a tile, in the order of the rows.
//
// Traffic: of main memory 28 bytes a row and 24 a point in each of three
// passes, and 120 a point for its L and step.
//
// Rows are those of BAL (bal_rows.h) or of another class with these functions.
//
// In mixed precision rows of a chunk and their sums are of float: its S has
// rounding of 6e-8 of S's diagonal before the points are eliminated, so where
// D^2 is small S may have no factor, and steps lead past the minimum. A step
// that is not accepted, because it can't be made, is too long, or the loop
// would end with it, is made again in double, and so are all that follow.
// Points are eliminated in double, and residuals and costs are.
//
// A Team has rank() < size() and Barrier() of a block, block() < num_blocks(),
// and Join(), a barrier of all blocks. Sum (over a block, in one order),
// BlockMax and Max (over all blocks; NaN if one is) give their result to all
// threads and are barriers too. WarpSum gives it to the first thread of a warp.
// A team also has warp_size(), Or on bits, FirstBit, InverseSqrt and SumSlices
// (over neighbours of a warp, in one order). Own says that a pointer is into
// the block's memory. A tile of S has kTile<columns> columns. It has
// kTall<columns> rows when points are added, kTile rows when columns of a
// camera are subtracted, and kHigh<columns> rows when columns of a panel are.
// See below for kWidth<tile>. A team that kKeepsRows has rows(), memory of all
// rows of the window, where they stay until the step is taken. With one that
// kRepeats, cameras may see a point several times: the table has the last row,
// and earlier() the row before each, or kNoRow.
#ifndef CERES_EXT_SMALL_WINDOW_LOOP_H_
#define CERES_EXT_SMALL_WINDOW_LOOP_H_

#include <cstdint>

#include "ceres_ext/small/window/factor.h"
#include "ceres_ext/small/window/form.h"
#include "ceres_ext/small/window/search.h"
#include "ceres_ext/small/window/step.h"
#include "ceres_ext/small/window/team_window.h"
#include "ceres_ext/solver/step_search.h"
#include "ceres_ext/solver/trust_region.h"

namespace ceres_ext {
namespace window {

// The first thread of each block decides, and all threads get the result and
// the state of the region.
template <typename W, typename Function>
CERES_EXT_WINDOW int32_t Decide(W& w, const Function& function) {
  if (w.rank() == 0) {
    *w.verdict = static_cast<int32_t>(function());
  }
  w.team->Barrier();
  const int32_t verdict = *w.verdict;
  w.team->Barrier();
  return verdict;
}

template <typename W>
CERES_EXT_WINDOW void ReadStop(W& w) {
  double stopped[1] = {IsStopped(w)};
  w.team->Max(stopped);
  SetStopped(w, stopped[0]);
}

// True if the window leaves float for double. The same for all threads.
template <typename W>
CERES_EXT_WINDOW bool LeaveFloat(W& w) {
  if (!w.is_mixed) {
    return false;
  }
  w.team->Barrier();
  if (w.rank() == 0) {
    w.is_mixed = false;
  }
  w.team->Barrier();
  return true;
}

template <typename W>
CERES_EXT_WINDOW void CopyPattern(W& w) {
  const int num_cameras = w.counts.num_cameras;
  const int num_pairs = w.counts.num_pairs;
  for (int e = w.rank(); e < PatternWords(num_cameras) * num_cameras;
       e += w.size()) {
    w.pattern[e] = w.Window::pattern[e];
  }
  for (int e = w.rank(); e < num_pairs; e += w.size()) {
    w.pairs[e] = w.Window::pairs[e];
    w.below[e] = w.Window::below[e];
  }
  for (int e = w.rank(); e <= num_cameras; e += w.size()) {
    w.below_begin[e] = w.Window::below_begin[e];
  }
}

template <typename W>
CERES_EXT_WINDOW void Run(W& w, const LoopOptions& options) {
  if (w.rank() == 0) {
    w.stop = options.stop;  // Member() 0 reads it.
    // Each block decides, so all have to see the same flag.
    TrustRegionOptions of_block = options;
    of_block.stop = w.is_stopped;
    *w.region = TrustRegion(of_block);
  }
  for (int i = w.Member(); i < w.counts.num_constant_cameras;
       i += w.NumMembers()) {
    w.constant_states[i] =
        w.model.Prepare(w.constant_cameras + W::kCamera * i, nullptr);
  }
  CopyPattern(w);
  ReadStop(w);
  Prepare(w);
  bool is_first = true;
  bool is_new = true;  // x, since the last Form
  while (true) {
    const Linearization at_x = Form(w, is_first, /*only_gradient=*/false);
    const auto begin_or_linearize = [&] {
      const double gradient = at_x.gradient_max_norm;
      return is_first
                 ? w.region->Begin(at_x.is_evaluated, at_x.cost, gradient)
                 : w.region->Linearize(at_x.is_evaluated, at_x.cost, gradient);
    };
    if (is_new && Decide(w, begin_or_linearize) == 0) {
      break;
    }
    is_first = false;
    is_new = false;
    const bool is_solved = at_x.is_solvable && SolveCameras(w);
    Step step;
    if (is_solved) {
      step = TakeStep(w);
      if (w.HasBounds() && step.model_cost_change > 0.0 &&
          options.search.max_num_iterations > 0) {
        SearchStep(w, options.search, &step);
      }
    } else {
      ReadStop(w);
    }
    if (!is_solved || !(step.model_cost_change > 0.0)) {
      if (LeaveFloat(w)) {
        continue;
      }
      if (Decide(w, [&] { return w.region->RejectInvalidStep(); }) == 0) {
        break;
      }
      continue;
    }
    const auto verdict = static_cast<TrustRegion::Verdict>(Decide(w, [&] {
      const TrustRegion before = *w.region;
      const TrustRegion::Verdict of_step = w.region->Judge(
          step.model_cost_change, step.cost, step.x_norm, step.step_norm);
      if (w.is_mixed && of_step != TrustRegion::Verdict::kAccepted) {
        *w.region = before;
      }
      return static_cast<int32_t>(of_step);
    }));
    if (verdict == TrustRegion::Verdict::kAccepted) {
      Accept(w);
      is_new = true;
    } else if (LeaveFloat(w)) {
      continue;
    } else if (verdict != TrustRegion::Verdict::kRejected) {
      break;
    }
  }
  if (w.Member() == 0) {
    w.result->region = *w.region;
  }
  w.team->Barrier();
}

}  // namespace window
}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_WINDOW_LOOP_H_
