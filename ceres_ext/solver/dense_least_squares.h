// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The least-squares solution of a small dense system by Householder's method
// (Golub and Van Loan, Matrix Computations, algorithm 5.2.1 and section 5.3.2),
// which a square of the matrix's condition does not come into.
#ifndef CERES_EXT_SOLVER_DENSE_LEAST_SQUARES_H_
#define CERES_EXT_SOLVER_DENSE_LEAST_SQUARES_H_

#include <cmath>
#include <cstdint>

namespace ceres_ext::solver {

// The sum of a_i b_i, with four partial sums for vector instructions.
inline double DotProduct(int64_t n, const double* a, const double* b) {
  double sums[4] = {};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    for (int j = 0; j < 4; ++j) {
      sums[j] += a[i + j] * b[i + j];
    }
  }
  for (; i < n; ++i) {
    sums[0] += a[i] * b[i];
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// The x that minimises |A x - b|. a: num_rows x num_columns, column-major, at
// least as many rows as columns; a and b are used up. False if A has not full
// rank, or if a value is not finite.
inline bool SolveDenseLeastSquares(
    int64_t num_rows, int64_t num_columns, double* a, double* b, double* x) {
  for (int64_t k = 0; k < num_columns; ++k) {
    // H = I - v v' / v_k with H a_k = -sign(a_kk) |a_k| e_k, v over a_k.
    double* const v = a + num_rows * k;
    const double squared_norm = DotProduct(num_rows - k, v + k, v + k);
    if (!(squared_norm > 0.0) || !std::isfinite(squared_norm)) {
      return false;
    }
    const double norm = std::copysign(std::sqrt(squared_norm), v[k]);
    for (int64_t i = k; i < num_rows; ++i) {
      v[i] /= norm;
    }
    v[k] += 1.0;
    const auto reflect = [&](double* column) {
      const double factor = DotProduct(num_rows - k, v + k, column + k) / v[k];
      for (int64_t i = k; i < num_rows; ++i) {
        column[i] -= factor * v[i];
      }
    };
    for (int64_t j = k + 1; j < num_columns; ++j) {
      reflect(a + num_rows * j);
    }
    reflect(b);
    x[k] = -norm;  // R's diagonal, until it is solved with
  }
  double sum = 0.0;
  for (int64_t k = num_columns - 1; k >= 0; --k) {
    double value = b[k];
    for (int64_t j = k + 1; j < num_columns; ++j) {
      value -= a[num_rows * j + k] * x[j];
    }
    x[k] = value / x[k];
    sum += x[k];
  }
  return std::isfinite(sum);
}

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_DENSE_LEAST_SQUARES_H_
