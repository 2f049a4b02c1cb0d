// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Householder's QR of a dense matrix with column pivoting (Golub and Van Loan,
// Matrix Computations, algorithm 5.4.1), of some columns or all. Columns are
// compared by what is left of them in proportion to their own norms, so that
// units do not matter. Rounding changes each column by at most a small multiple
// of m n eps times its norm (Higham, Accuracy and Stability of Numerical
// Algorithms, theorem 19.4), and each row in proportion to itself if rows with
// large elements come first (Cox and Higham 1998).
#ifndef CERES_EXT_SOLVER_RANK_REVEALING_QR_H_
#define CERES_EXT_SOLVER_RANK_REVEALING_QR_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "ceres_ext/solver/dense_least_squares.h"

namespace ceres_ext::solver {

// a: num_rows x num_columns, column-major, is replaced by Q'a with its first
// num_pivots columns in *order, upper triangular as far as their rank r:
//
//   r independent columns   R above the diagonal, zero below
//   the other pivots        zero below row r
//   the other columns       Q'a
//
// A column j is dependent if what others leave of it is at most tolerance *
// norms[j]. Returns r; -1 if a value is not finite.
inline int64_t EliminateColumns(int64_t num_rows,
                                int64_t num_columns,
                                int64_t num_pivots,
                                const double* norms,
                                double tolerance,
                                double* a,
                                std::vector<int64_t>* order) {
  order->resize(num_pivots);
  std::iota(order->begin(), order->end(), 0);
  int64_t rank = 0;
  for (; rank < std::min(num_rows, num_pivots); ++rank) {
    const int64_t n = num_rows - rank;
    int64_t best = -1;
    double most = tolerance;
    double squared_norm = 0.0;
    for (int64_t j = rank; j < num_pivots; ++j) {
      const double* const column = a + num_rows * j + rank;
      const double square = DotProduct(n, column, column);
      if (!std::isfinite(square)) {
        return -1;
      }
      const double norm = norms[(*order)[j]];
      const double ratio = norm > 0.0 ? std::sqrt(square) / norm : 0.0;
      if (ratio > most && square > 0.0) {
        best = j;
        most = ratio;
        squared_norm = square;
      }
    }
    if (best < 0) {
      break;
    }
    if (best != rank) {
      std::swap((*order)[rank], (*order)[best]);
      std::swap_ranges(
          a + num_rows * rank, a + num_rows * (rank + 1), a + num_rows * best);
    }
    double* const v = a + num_rows * rank + rank;
    const double diagonal = MakeReflector(n, squared_norm, v);
    for (int64_t j = rank + 1; j < num_columns; ++j) {
      Reflect(n, v, a + num_rows * j + rank);
    }
    v[0] = diagonal;
    std::fill(v + 1, v + n, 0.0);
  }
  for (int64_t j = rank; j < num_pivots; ++j) {
    std::fill(a + num_rows * j + rank, a + num_rows * (j + 1), 0.0);
  }
  return rank;
}

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_RANK_REVEALING_QR_H_
