// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The steps of points, the candidate, and what they change.
#ifndef CERES_EXT_SMALL_WINDOW_STEP_H_
#define CERES_EXT_SMALL_WINDOW_STEP_H_

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "ceres_ext/small/window/priors.h"
#include "ceres_ext/small/window/rows.h"
#include "ceres_ext/small/window/team_window.h"

namespace ceres_ext {
namespace window {

struct Step {
  double model_cost_change = 0.0;
  double cost = DBL_MAX;
  double x_norm = 0.0;
  double step_norm = 0.0;
};

// One thread reads the flag; its value goes to all blocks with those of Max.
template <typename W>
CERES_EXT_WINDOW double IsStopped(const W& w) {
  if (w.Member() != 0) {
    return 0.0;
  }
  TrustRegionOptions flag;
  flag.stop = w.stop;
  return flag.IsStopped() ? 1.0 : 0.0;
}

template <typename W>
CERES_EXT_WINDOW void SetStopped(W& w, double value) {
  if (w.rank() == 0) {
    *w.is_stopped = value != 0.0 ? 1 : 0;
  }
}

// Linearizes row k at x: `columns` gets the corrected [Jp | Jc step], 2 x 4,
// and `r` the corrected residual.
template <typename W>
CERES_EXT_WINDOW void Linear(
    const W& w, int k, const double* x, double* r, double* columns) {
  const int camera = w.camera[k];
  const typename W::State& state = w.StateOf(camera);
  const typename W::Projection p = w.model.Project(k, state, x);
  w.model.Residual(state, p, w.observed + 2 * int64_t{k}, r);
  double jacobian[6];
  w.model.PointJacobian(state, p, jacobian);
  double moved[2] = {};
  if (camera < w.counts.num_cameras) {
    w.model.CameraMultiply(
        state, p, w.local_steps + TeamLayout::kLocal * camera, moved);
  }
  for (int i = 0; i < 2; ++i) {
    for (int a = 0; a < 3; ++a) {
      columns[4 * i + a] = jacobian[3 * i + a];
    }
    columns[4 * i + 3] = moved[i];
  }
  const double squared_norm = r[0] * r[0] + r[1] * r[1];
  double rho[3];
  w.loss.Evaluate(k, squared_norm, rho);
  if (!kernels::LossCorrector::IsIdentity(rho)) {
    const kernels::LossCorrector corrector(squared_norm, rho);
    corrector.template CorrectJacobian<2, 4>(r, columns);
    corrector.template CorrectResidual<2>(r);
  }
}

// Moves camera i by delta to new_cameras.
template <typename W>
CERES_EXT_WINDOW void PlaceCamera(
    W& w, int i, const double* delta, double* x_norm, double* step_norm) {
  const double* const x = w.cameras + W::kCamera * i;
  double moved[W::kCamera];
  MoveCamera(w, i, delta, moved);
  for (int e = 0; e < W::kCamera; ++e) {
    if (w.block() == 0) {
      w.new_cameras[W::kCamera * i + e] = moved[e];
    }
    if (w.model.IsPartOfState(w.column_mask[i], e)) {
      *x_norm += x[e] * x[e];
    }
    *step_norm += (x[e] - moved[e]) * (x[e] - moved[e]);
  }
  w.new_states[i] = w.model.Prepare(moved, nullptr);
}

// Moves the cameras to new_cameras.
template <typename W>
CERES_EXT_WINDOW void MoveCameras(W& w, double* x_norm, double* step_norm) {
  for (int i = w.rank(); i < w.counts.num_cameras; i += w.size()) {
    const double* const delta = w.step + W::kColumns * i;
    PlaceCamera(w, i, delta, x_norm, step_norm);
    const double* const map = w.rotation_maps + 12 * i;
    double* const local = w.local_steps + TeamLayout::kLocal * i;
    for (int a = 0; a < 3; ++a) {
      double sum = 0.0;
      for (int c = 0; c < W::kTurn; ++c) {
        sum += map[W::kTurn * a + c] * delta[c];
      }
      local[a] = sum;
    }
    for (int c = 3; c < TeamLayout::kLocal; ++c) {
      const int column = c - 3 + W::kTurn;
      local[c] = column < W::kColumns ? delta[column] : 0.0;
    }
  }
  w.team->Barrier();
}

// Adds the cost of row k at the new cameras and a point. False if it is not
// finite.
template <typename W>
CERES_EXT_WINDOW bool AddCost(const W& w,
                              int k,
                              const double* point,
                              double* cost) {
  const int camera = w.camera[k];
  const typename W::State& state =
      camera < w.counts.num_cameras ? w.new_states[camera] : w.StateOf(camera);
  double r[2];
  w.model.Evaluate(k, state, point, w.observed + 2 * int64_t{k}, r);
  double rho[3];
  w.loss.Evaluate(k, r[0] * r[0] + r[1] * r[1], rho);
  *cost += 0.5 * rho[0];
  return kernels::AllFinite(r, 2);
}

// Moves point p by `step`; adds the items of its move.
template <typename W>
CERES_EXT_WINDOW void MovePoint(
    W& w, int p, const double* step, double* moved, double* item) {
  const double* const x = w.PointOf(p);
  double* const record = w.records + WindowScratch::kRecord * int64_t{p};
  for (int a = 0; a < 3; ++a) {
    moved[a] = x[a] + step[a];
    if (w.HasBounds()) {
      w.PointStep(p)[a] = step[a];
      moved[a] = w.BoundPoint(p, a, moved[a]);
    }
    record[a] = moved[a];
    item[2] += x[a] * x[a];
    item[3] += (x[a] - moved[a]) * (x[a] - moved[a]);
  }
}

// Adds the change of a row by the model to an item.
CERES_EXT_WINDOW void AddChange(double change, double r, double* item) {
  *item -= change * (r + 0.5 * change);
}

// Moves point p; adds its items.
template <typename W>
CERES_EXT_WINDOW void StepOfPoint(
    W& w, int p, double* item, bool* is_finite, bool* is_evaluated) {
  const double* const x = w.PointOf(p);
  double step[3] = {};
  double moved[3] = {x[0], x[1], x[2]};
  const int begin = w.point_begin[p];
  const int end = w.point_begin[p + 1];
  if (p < w.counts.num_points) {
    double* const record = w.records + WindowScratch::kRecord * int64_t{p};
    // -L^-T (L^-1 g + L^-1 Jp'Jc step)
    for (int k = begin; k < end; ++k) {
      double r[2];
      double columns[8];
      Linear(w, k, x, r, columns);
      for (int a = 0; a < 3; ++a) {
        step[a] -= columns[a] * columns[3] + columns[4 + a] * columns[7];
      }
    }
    LowerSolve(record + 6, step);
    for (int a = 0; a < 3; ++a) {
      step[a] -= record[12 + a];
    }
    UpperSolve(record + 6, step);
    *is_finite &= kernels::AllFinite(step, 3);
    MovePoint(w, p, step, moved, item);
  }
  for (int k = begin; k < end; ++k) {
    double r[2];
    double columns[8];
    Linear(w, k, x, r, columns);
    for (int i = 0; i < 2; ++i) {
      const double* const j = columns + 4 * i;
      AddChange(
          j[3] + j[0] * step[0] + j[1] * step[1] + j[2] * step[2], r[i], item);
    }
    *is_evaluated &= AddCost(w, k, moved, item + 1);
  }
}

// The same from rows that were kept, [Jc, A, r]. Their r', which is not needed
// any more, is replaced by Jc step.
template <typename W>
CERES_EXT_WINDOW void StepOfKeptPoint(
    W& w, int p, double* item, bool* is_finite, bool* is_evaluated) {
  const double* const x = w.PointOf(p);
  double moved[3] = {x[0], x[1], x[2]};
  const int begin = w.point_begin[p];
  const int end = w.point_begin[p + 1];
  double* const rows = w.team->rows();
  // L' times the step of the point: -(L^-1 g + sum of A'Jc step).
  double turned[3] = {};
  for (int k = begin; k < end; ++k) {
    double* const row = rows + int64_t{W::kRow} * k;
    const int camera = w.camera[k];
    const double* const a = row + W::kPointJacobian;
    double* const by_camera = row + W::kReduced;
    by_camera[0] = 0.0;
    by_camera[1] = 0.0;
    if (camera < w.counts.num_cameras) {
      const double* const delta = w.step + W::kColumns * camera;
      for (int c = 0; c < W::kColumns; ++c) {
        by_camera[0] += row[W::Place(0, c)] * delta[c];
        by_camera[1] += row[W::Place(1, c)] * delta[c];
      }
    }
    for (int e = 0; e < 3; ++e) {
      turned[e] -= a[e] * by_camera[0] + a[3 + e] * by_camera[1];
    }
  }
  if (p < w.counts.num_points) {
    const double* const record =
        w.records + WindowScratch::kRecord * int64_t{p};
    double step[3];
    for (int e = 0; e < 3; ++e) {
      turned[e] -= record[12 + e];
      step[e] = turned[e];
    }
    UpperSolve(record + 6, step);
    *is_finite &= kernels::AllFinite(step, 3);
    MovePoint(w, p, step, moved, item);
  }
  for (int k = begin; k < end; ++k) {
    const double* const row = rows + int64_t{W::kRow} * k;
    for (int i = 0; i < 2; ++i) {
      const double* const a = row + W::kPointJacobian + 3 * i;
      AddChange(row[W::kReduced + i] + a[0] * turned[0] + a[1] * turned[1] +
                    a[2] * turned[2],
                row[W::kResidual + i],
                item);
    }
    *is_evaluated &= AddCost(w, k, moved, item + 1);
  }
}

// The items of all points, priors and the norms of the cameras become a step.
// add_items(p, items) adds those of a point.
template <typename W, typename Function>
CERES_EXT_WINDOW_PART Step SumItems(W& w,
                                    double x_norm,
                                    double step_norm,
                                    bool* is_finite,
                                    bool* is_evaluated,
                                    const Function& add_items) {
  const double is_stopped = IsStopped(w);
  // A warp has neighbouring points, whichever block it is of.
  const int lane = w.rank() % w.warp_size();
  const int num_points = w.counts.all_points();
  for (int p = w.Member(); p - lane < num_points; p += w.NumMembers()) {
    double of_point[WindowScratch::kItem] = {};
    if (p < num_points) {
      add_items(p, of_point);
    }
    double* const item =
        w.items + WindowScratch::kItem * int64_t{p / w.warp_size()};
    for (int e = 0; e < WindowScratch::kItem; ++e) {
      const double sum = w.team->WarpSum(of_point[e]);
      if (lane == 0) {
        item[e] = sum;
      }
    }
  }
  if constexpr (W::Rows::kHasPriors) {
    // The first block has written the cameras' candidate.
    for (int k = w.rank(); k < w.counts.num_priors && w.block() == 0;
         k += w.size()) {
      *is_evaluated &= StepOfPrior(w, k);
    }
    if (w.counts.num_marginals > 0 && w.block() == 0) {
      *is_evaluated &= StepOfMarginals(w);
    }
  }
  double worst[3] = {
      *is_finite ? 0.0 : 1.0, *is_evaluated ? 0.0 : 1.0, is_stopped};
  w.team->Max(worst);
  SetStopped(w, worst[2]);
  double costs[3] = {0.0, 0.0, x_norm};
  double norm[1] = {step_norm};
  for (int i = w.rank(); i < (num_points + w.warp_size() - 1) / w.warp_size();
       i += w.size()) {
    const double* const item = w.items + WindowScratch::kItem * int64_t{i};
    for (int e = 0; e < 3; ++e) {
      costs[e] += item[e];
    }
    norm[0] += item[3];
  }
  if constexpr (W::Rows::kHasPriors) {
    for (int k = w.rank(); k < w.counts.num_priors; k += w.size()) {
      costs[0] += w.PriorRecord(k)[kPriorItem];
      costs[1] += w.PriorRecord(k)[kPriorItem + 1];
    }
    for (int e = w.rank(); e < w.counts.num_marginal_rows; e += w.size()) {
      costs[0] += w.MarginalItem(e)[0];
      costs[1] += w.MarginalItem(e)[1];
    }
  }
  w.team->Sum(costs);
  w.team->Sum(norm);
  using std::sqrt;
  Step result;
  result.x_norm = sqrt(costs[2]);
  result.step_norm = sqrt(norm[0]);
  result.model_cost_change = worst[0] == 0.0 ? costs[0] : 0.0;
  result.cost = worst[1] == 0.0 ? costs[1] : DBL_MAX;
  return result;
}

// Moves points and cameras to the candidate, and computes the change by the
// model and the cost.
template <typename W>
CERES_EXT_WINDOW_PHASE Step TakeStep(W& w) {
  double x_norm = 0.0;
  double step_norm = 0.0;
  bool is_finite = true;
  bool is_evaluated = true;
  MoveCameras(w, &x_norm, &step_norm);
  return SumItems(w,
                  x_norm,
                  step_norm,
                  &is_finite,
                  &is_evaluated,
                  [&](int p, double* item) {
                    if constexpr (W::Team::kKeepsRows) {
                      StepOfKeptPoint(w, p, item, &is_finite, &is_evaluated);
                    } else {
                      StepOfPoint(w, p, item, &is_finite, &is_evaluated);
                    }
                  });
}

template <typename W>
CERES_EXT_WINDOW_PHASE void Accept(W& w) {
  for (int e = w.rank();
       e < W::kCamera * w.counts.num_cameras && w.block() == 0;
       e += w.size()) {
    w.cameras[e] = w.new_cameras[e];
  }
  for (int p = w.Member(); p < w.counts.num_points; p += w.NumMembers()) {
    for (int a = 0; a < 3; ++a) {
      w.points[3 * int64_t{p} + a] =
          w.records[WindowScratch::kRecord * int64_t{p} + a];
    }
  }
  w.team->Join();
  Prepare(w);
}

}  // namespace window
}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_WINDOW_STEP_H_
