// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The inverse of S of a model window (model_solve.h), whose factor is without
// D^2.
#ifndef CERES_EXT_SMALL_MODEL_WINDOW_MODEL_COVARIANCE_H_
#define CERES_EXT_SMALL_MODEL_WINDOW_MODEL_COVARIANCE_H_

#include <cfloat>
#include <cstdint>

#include "ceres_ext/small/model_window/model_window.h"
#include "cuda_kernels/base/host_device.h"

namespace ceres_ext {

// This thread's columns that others explain: the square of what they leave
// is rounding. Rounding adds up to the number of columns, times that of a
// product; one sum more has the rows of a column.
template <typename Team>
CERES_EXT_HOST_DEVICE double CountDependentColumns(const ModelWindow& w,
                                                   const Team& team) {
  constexpr int kE = kMaxEliminatedColumns;
  const double tolerance = 10.0 * DBL_EPSILON * w.num_all_columns();
  double count = 0.0;
  for (int e = team.rank(); e < w.counts.num_eliminated; e += team.size()) {
    for (int c = 0; c < w.blocks[e].num_columns; ++c) {
      const double inverse_pivot = w.factors[9 * e + 4 * c];
      count += 1.0 > tolerance * w.diagonal[kE * e + c] * inverse_pivot *
                           inverse_pivot
                   ? 0.0
                   : 1.0;
    }
  }
  for (int c = team.rank(); c < w.counts.num_columns; c += team.size()) {
    const double inverse_pivot = *w.SchurColumn(c);
    count += 1.0 > tolerance * w.diagonal[w.first_other() + c] * inverse_pivot *
                         inverse_pivot
                 ? 0.0
                 : 1.0;
  }
  return count;
}

// Column c of S^-1, by a warp.
template <typename Team>
CERES_EXT_HOST_DEVICE void InvertSchur(const ModelWindow& w,
                                       int c,
                                       Team* team,
                                       double* to) {
  constexpr int kWarp = Team::kWarp;
  const int lane = team->rank() % kWarp;
  const int n = w.counts.num_columns;
  for (int r = lane; r < n; r += kWarp) {
    to[r] = r == c ? 1.0 : 0.0;
  }
  team->WarpBarrier();
  for (int t = c; t < n; ++t) {
    const double* const column = w.SchurColumn(t) - t;
    const double value = to[t] * column[t];
    team->WarpBarrier();  // All lanes have read it.
    for (int r = t + lane; r < n; r += kWarp) {
      to[r] = r == t ? value : to[r] - column[r] * value;
    }
    team->WarpBarrier();
  }
  for (int t = n - 1; t >= 0; --t) {
    const double* const column = w.SchurColumn(t) - t;
    double sum = 0.0;
    for (int r = t + 1 + lane; r < n; r += kWarp) {
      sum += column[r] * to[r];
    }
    sum = team->WarpSum(sum);
    if (lane == 0) {
      to[t] = (to[t] - sum) * column[t];
    }
    team->WarpBarrier();
  }
}

// Writes the covariance of the columns that are wanted.
template <typename Team>
CERES_EXT_HOST_DEVICE void WriteModelCovariance(const ModelWindow& w,
                                                Team* team) {
  constexpr int kWarp = Team::kWarp;
  const int n = w.counts.num_wanted;
  const int64_t num_columns = w.counts.num_columns;
  for (int k = team->rank() / kWarp; k < n; k += team->size() / kWarp) {
    InvertSchur(w, w.wanted[k], team, w.inverse + num_columns * k);
  }
  team->Barrier();
  for (int e = team->rank(); e < n * n; e += team->size()) {
    // The matrix is symmetric, to the bit.
    const int k = e / n < e % n ? e / n : e % n;
    const int l = e / n < e % n ? e % n : e / n;
    w.covariance[e] = w.inverse[num_columns * k + w.wanted[l]];
  }
}

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_MODEL_WINDOW_MODEL_COVARIANCE_H_
