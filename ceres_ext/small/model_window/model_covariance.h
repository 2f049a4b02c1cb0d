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

// A covariance with a larger relative error is refused.
inline constexpr double kMostCovarianceError = 0.01;

// Column c of L^-1, S = L L', from row c on, by a warp. The square of its
// length.
template <typename Team>
CERES_EXT_HOST_DEVICE double InvertFactor(const ModelWindow& w,
                                          int c,
                                          Team* team,
                                          double* to) {
  constexpr int kWarp = Team::kWarp;
  const int lane = team->rank() % kWarp;
  const int n = w.counts.num_columns;
  for (int r = c + lane; r < n; r += kWarp) {
    to[r] = r == c ? 1.0 : 0.0;
  }
  team->WarpBarrier();
  double sum = 0.0;
  for (int t = c; t < n; ++t) {
    const double* const column = w.SchurColumn(t) - t;
    const double value = to[t] * column[t];
    sum += value * value;
    team->WarpBarrier();  // All lanes have read it.
    for (int r = t + lane; r < n; r += kWarp) {
      to[r] = r == t ? value : to[r] - column[r] * value;
    }
    team->WarpBarrier();
  }
  return sum;
}

// The number of this thread's columns c that others nearly explain. With e the
// rounding of H = J'J in proportion to its diagonal, n eps for n columns, the
// inverse is wrong by e times the largest of H_cc (H^-1)_cc.
template <typename Team>
CERES_EXT_HOST_DEVICE double CountDependentColumns(const ModelWindow& w,
                                                   Team* team) {
  constexpr int kE = kMaxEliminatedColumns;
  constexpr int kWarp = Team::kWarp;
  const double rounding = DBL_EPSILON * w.num_all_columns();
  const auto is_dependent = [rounding](double of_h, double of_inverse) {
    return !(rounding * of_h * of_inverse <= kMostCovarianceError);
  };
  double count = 0.0;
  // Columns of blocks that are eliminated count within their block.
  for (int e = team->rank(); e < w.counts.num_eliminated; e += team->size()) {
    for (int c = 0; c < w.blocks[e].num_columns; ++c) {
      const double inverse_pivot = w.factors[9 * e + 4 * c];
      count +=
          is_dependent(w.diagonal[kE * e + c], inverse_pivot * inverse_pivot)
              ? 1.0
              : 0.0;
    }
  }
  // As many warps as have memory.
  const int warp = team->rank() / kWarp;
  const int all = team->size() / kWarp;
  const int num_warps = all < w.counts.num_wanted ? all : w.counts.num_wanted;
  for (int c = warp; warp < num_warps && c < w.counts.num_columns;
       c += num_warps) {
    const double of_inverse = InvertFactor(
        w, c, team, w.inverse + int64_t{warp} * w.counts.num_columns);
    count +=
        is_dependent(w.diagonal[w.first_other() + c], of_inverse) ? 1.0 : 0.0;
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
  for (int r = lane; r < c; r += kWarp) {
    to[r] = 0.0;
  }
  InvertFactor(w, c, team, to);
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
