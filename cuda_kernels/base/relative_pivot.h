// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Which blocks A = J'J of the normal equations are rank-deficient, so that
// damping alone makes them definite.
//
// Let H be A scaled to a unit diagonal, H_ij = A_ij / sqrt(A_ii A_jj): it does
// not depend on the units of the parameters or on Ceres's column scaling, and
// Ceres's damping D_i^2 = A_ii / radius adds 1 / radius to it. In H = L D L',
// the largest remaining pivot first, the last pivot r is the part of the last
// column's square that lies outside of the span of the others, 1 for orthogonal
// columns. r = 1 / (H^-1)_nn >= lambda_min(H), and r exceeds lambda_min by a
// modest factor of n alone, since no pivot before is smaller. This is the
// *relative pivot* of A; A is rank-deficient where it is zero.
//
// In doubles, an element of A, a sum of m products, is off by some
// sqrt(m) u sqrt(A_ii A_jj), u = 2^-53 (Higham and Mary 2019), hence H by
// n sqrt(m) u in norm, and so r of a matrix that is singular: 1e-12 for n = 9
// columns and m = 10^6 residuals. Blocks stored in float turn each column by at
// most 6e-8, which adds n (6e-8)^2 = 3e-14. So A is indistinguishable from a
// rank-deficient matrix if r <= 1e-12. That is an angle of 1e-6 between
// columns: a point whose rays are parallel to a thousandth of a pixel. Along
// that direction the damped block is damping alone while the radius is below 1
// / r.
//
// A column whose square is at most 1e-22 counts as zero. It is rounding where
// other columns of its block are of ordinary size, and damping is more than
// that in all of a solve with Ceres's defaults: min_lm_diagonal = 1e-6 over
// max_trust_region_radius = 1e16.
#ifndef CERES_EXT_CUDA_KERNELS_BASE_RELATIVE_PIVOT_H_
#define CERES_EXT_CUDA_KERNELS_BASE_RELATIVE_PIVOT_H_

#include <cmath>

#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/base/small_matrix.h"

namespace ceres_ext::kernels {

// Relative pivots of at most this are those of degenerate blocks.
inline constexpr double kDegeneratePivot = 1e-12;
// Squares of columns that count as zero.
inline constexpr double kZeroColumn = 1e-22;

// The relative pivot of the packed matrix a, n x n, which is used up: from 0 to
// 1, 0 also where a column counts as zero or an element is not finite.
template <typename Matrix>
CERES_EXT_HOST_DEVICE inline double RelativePivot(Matrix a, int n) {
  for (int i = 0; i < n; ++i) {
    const double square = a[PackedIndex(i, i)];
    // Written so that NaN fails.
    if (!(square > kZeroColumn) || std::isinf(square)) {
      return 0.0;
    }
  }
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < i; ++j) {
      a[PackedIndex(i, j)] /=
          sqrt(a[PackedIndex(i, i)]) * sqrt(a[PackedIndex(j, j)]);
    }
  }
  for (int i = 0; i < n; ++i) {
    a[PackedIndex(i, i)] = 1.0;
  }
  // Below what rounding leaves of a pivot.
  constexpr double kDone = -1.0;
  double last = 1.0;
  for (int step = 0; step < n; ++step) {
    int p = -1;
    for (int i = 0; i < n; ++i) {
      const double pivot = a[PackedIndex(i, i)];
      if (pivot != kDone && (p < 0 || pivot > last)) {
        p = i;
        last = pivot;
      }
    }
    if (!(last > 0.0)) {
      return 0.0;
    }
    a[PackedIndex(p, p)] = kDone;
    for (int i = 0; i < n; ++i) {
      if (a[PackedIndex(i, i)] == kDone) {
        continue;
      }
      const double factor =
          a[i > p ? PackedIndex(i, p) : PackedIndex(p, i)] / last;
      for (int j = 0; j <= i; ++j) {
        if (a[PackedIndex(j, j)] != kDone) {
          a[PackedIndex(i, j)] -=
              factor * a[j > p ? PackedIndex(j, p) : PackedIndex(p, j)];
        }
      }
    }
  }
  return last;
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_BASE_RELATIVE_PIVOT_H_
