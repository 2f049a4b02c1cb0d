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

// Makes H = I - v v' / v_0 with H a = y e_0, v over a; returns y, which is
// -sign(a_0) |a|. squared_norm: |a|^2, more than zero.
inline double MakeReflector(int64_t n, double squared_norm, double* a) {
  const double norm = std::copysign(std::sqrt(squared_norm), a[0]);
  for (int64_t i = 0; i < n; ++i) {
    a[i] /= norm;
  }
  a[0] += 1.0;
  return -norm;
}

// column = H column.
inline void Reflect(int64_t n, const double* v, double* column) {
  const double factor = DotProduct(n, v, column) / v[0];
  for (int64_t i = 0; i < n; ++i) {
    column[i] -= factor * v[i];
  }
}

// The x that minimises |A x - b|. a: num_rows x num_columns, column-major, at
// least as many rows as columns; a and b are used up. False if A has not full
// rank, or if a value is not finite.
inline bool SolveDenseLeastSquares(
    int64_t num_rows, int64_t num_columns, double* a, double* b, double* x) {
  for (int64_t k = 0; k < num_columns; ++k) {
    const int64_t n = num_rows - k;
    double* const v = a + num_rows * k + k;
    const double squared_norm = DotProduct(n, v, v);
    if (!(squared_norm > 0.0) || !std::isfinite(squared_norm)) {
      return false;
    }
    x[k] = MakeReflector(n, squared_norm, v);  // R's diagonal, until the end
    for (int64_t j = k + 1; j < num_columns; ++j) {
      Reflect(n, v, a + num_rows * j + k);
    }
    Reflect(n, v, b + k);
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
