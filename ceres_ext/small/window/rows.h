// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Rows of a window and its points: evaluation, elimination.
#ifndef CERES_EXT_SMALL_WINDOW_ROWS_H_
#define CERES_EXT_SMALL_WINDOW_ROWS_H_

#include <cmath>
#include <cstdint>

#include "ceres_ext/small/window/team_window.h"
#include "ceres_ext/small/window/window.h"
#include "cuda_kernels/model/bal_model.h"
#include "cuda_kernels/model/robust_loss.h"

namespace ceres_ext {
namespace window {

// y = L^-1 y
CERES_EXT_WINDOW void LowerSolve(const double* l, double* y) {
  y[0] *= l[0];
  y[1] = (y[1] - l[1] * y[0]) * l[2];
  y[2] = (y[2] - l[3] * y[0] - l[4] * y[1]) * l[5];
}

// y = L^-T y
CERES_EXT_WINDOW void UpperSolve(const double* l, double* y) {
  y[2] *= l[5];
  y[1] = (y[1] - l[4] * y[2]) * l[2];
  y[0] = (y[0] - l[1] * y[1] - l[3] * y[2]) * l[0];
}

// *largest = max(*largest, |value|), NaN where value is.
CERES_EXT_WINDOW void Largest(double value, double* largest) {
  using std::fabs;
  if (!(fabs(value) <= *largest) && *largest == *largest) {
    *largest = fabs(value);
  }
}

// moved = x (+) delta of camera i, within its bounds.
template <typename W>
CERES_EXT_WINDOW void MoveCamera(const W& w,
                                 int i,
                                 const double* delta,
                                 double* moved) {
  w.model.Plus(w.column_mask[i], w.cameras + W::kCamera * i, delta, moved);
  for (int e = 0; w.HasBounds() && e < W::kCamera; ++e) {
    moved[e] = w.BoundCamera(i, e, moved[e]);
  }
}

// Computes the states of the cameras, and the derivatives of their turns by
// columns.
template <typename W>
CERES_EXT_WINDOW void Prepare(W& w) {
  for (int i = w.rank(); i < w.counts.num_cameras; i += w.size()) {
    w.states[i] =
        w.model.Prepare(w.cameras + W::kCamera * i, w.rotation_maps + 12 * i);
  }
  w.team->Barrier();
}

// Writes row k's residual and Jacobians to its place in the chunk, and its
// cost to *cost. False if a value is not finite.
template <typename W, typename T>
CERES_EXT_WINDOW bool EvaluateRow(W& w, int k, T* row, double* cost) {
  const int camera = w.camera[k];
  const int point = w.point[k];
  const typename W::State& state = w.StateOf(camera);
  const typename W::Projection p = w.model.Project(k, state, w.PointOf(point));
  double r[2];
  w.model.Residual(state, p, w.observed + 2 * int64_t{k}, r);
  bool is_finite = kernels::AllFinite(r, 2);
  double jacobian[2 * W::kColumns] = {};
  if (camera < w.counts.num_cameras) {
    double local[2 * TeamLayout::kLocal];
    w.model.CameraJacobian(state, p, local);
    is_finite = is_finite && kernels::AllFinite(local, 18);
    const double* const map = w.rotation_maps + 12 * camera;
    const int mask = w.column_mask[camera];
    for (int i = 0; i < 2; ++i) {
      const double* const of_row = local + TeamLayout::kLocal * i;
      for (int c = 0; c < W::kColumns; ++c) {
        const double value =
            c < W::kTurn ? of_row[0] * map[c] + of_row[1] * map[W::kTurn + c] +
                               of_row[2] * map[2 * W::kTurn + c]
                         : of_row[3 + c - W::kTurn];
        jacobian[W::kColumns * i + c] = (mask >> c & 1) != 0 ? value : 0.0;
      }
    }
  }
  double by_point[6] = {};
  if (point < w.counts.num_points) {
    w.model.PointJacobian(state, p, by_point);
    is_finite = is_finite && kernels::AllFinite(by_point, 6);
  }
  const double squared_norm = r[0] * r[0] + r[1] * r[1];
  double rho[3];
  w.loss.Evaluate(k, squared_norm, rho);
  *cost = 0.5 * rho[0];
  if (!kernels::LossCorrector::IsIdentity(rho)) {
    const kernels::LossCorrector corrector(squared_norm, rho);
    corrector.template CorrectJacobian<2, W::kColumns>(r, jacobian);
    corrector.template CorrectJacobian<2, 3>(r, by_point);
    corrector.template CorrectResidual<2>(r);
  }
  for (int i = 0; i < 2; ++i) {
    for (int c = 0; c < W::kColumns; ++c) {
      row[W::Place(i, c)] = static_cast<T>(jacobian[W::kColumns * i + c]);
    }
  }
  for (int e = 0; e < 6; ++e) {
    row[W::kPointJacobian + e] = static_cast<T>(by_point[e]);
  }
  for (int i = 0; i < 2; ++i) {
    row[W::kResidual + i] = static_cast<T>(r[i]);
    row[W::kReduced + i] = static_cast<T>(r[i]);
  }
  return is_finite;
}

// Computes L and L^-1 g of point p, whose rows are at `row`, and writes them
// to its record and to `factor`. False if V is not positive definite.
template <typename W, typename T>
CERES_EXT_WINDOW bool FactorizePoint(W& w,
                                     int p,
                                     int num_rows,
                                     bool is_first,
                                     const T* row,
                                     double* factor,
                                     double* gradient_max) {
  double v[6] = {};
  double g[3] = {};
  for (int k = 0; k < num_rows; ++k) {
    for (int i = 0; i < 2; ++i) {
      const T* const of_row = row + W::kRow * k;
      double j[3];
      for (int a = 0; a < 3; ++a) {
        j[a] = static_cast<double>(of_row[W::kPointJacobian + 3 * i + a]);
      }
      const auto r = static_cast<double>(of_row[W::kResidual + i]);
      v[0] += j[0] * j[0];
      v[1] += j[1] * j[0];
      v[2] += j[1] * j[1];
      v[3] += j[2] * j[0];
      v[4] += j[2] * j[1];
      v[5] += j[2] * j[2];
      for (int a = 0; a < 3; ++a) {
        g[a] += j[a] * r;
      }
    }
  }
  double* const record = w.records + WindowScratch::kRecord * int64_t{p};
  const double* const x = w.points + 3 * int64_t{p};
  constexpr int kDiagonal[3] = {0, 2, 5};
  for (int a = 0; a < 3; ++a) {
    double moved = x[a] - g[a];
    if (w.HasBounds()) {
      w.PointGradient(p)[a] = g[a];
      moved = w.BoundPoint(p, a, moved);
    }
    Largest(x[a] - moved, gradient_max);
    const double squared_norm = v[kDiagonal[a]];
    double* const scale = record + 3 + a;
    if (is_first) {
      *scale = w.region->Scale(squared_norm);
    }
    v[kDiagonal[a]] += w.region->SquaredDamping(squared_norm, *scale);
  }
  // L as 1 / l00, l10, 1 / l11, l20, l21, 1 / l22.
  double l[6];
  l[0] = W::Team::InverseSqrt(v[0]);
  l[1] = v[1] * l[0];
  l[3] = v[3] * l[0];
  const double d1 = v[2] - l[1] * l[1];
  l[2] = W::Team::InverseSqrt(d1);
  l[4] = (v[4] - l[3] * l[1]) * l[2];
  const double d2 = v[5] - l[3] * l[3] - l[4] * l[4];
  l[5] = W::Team::InverseSqrt(d2);
  LowerSolve(l, g);
  for (int e = 0; e < 6; ++e) {
    record[6 + e] = l[e];
    factor[e] = l[e];
  }
  for (int a = 0; a < 3; ++a) {
    record[12 + a] = g[a];
    factor[6 + a] = g[a];
  }
  return v[0] > 0.0 && d1 > 0.0 && d2 > 0.0;
}

// Replaces Jp by A and computes r', with the result of FactorizePoint.
template <typename W, typename T>
CERES_EXT_WINDOW void EliminateFromRow(const double* factor, T* row) {
  for (int i = 0; i < 2; ++i) {
    double a[3];
    for (int e = 0; e < 3; ++e) {
      a[e] = static_cast<double>(row[W::kPointJacobian + 3 * i + e]);
    }
    LowerSolve(factor, a);
    for (int e = 0; e < 3; ++e) {
      row[W::kPointJacobian + 3 * i + e] = static_cast<T>(a[e]);
    }
    row[W::kReduced + i] =
        static_cast<T>(static_cast<double>(row[W::kResidual + i]) -
                       a[0] * factor[6] - a[1] * factor[7] - a[2] * factor[8]);
  }
}

}  // namespace window
}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_WINDOW_ROWS_H_
