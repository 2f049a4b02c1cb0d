// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "ceres_ext/solver/rank_revealing_qr.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "ceres_ext/solver/dense_least_squares.h"
#include "cuda_kernels/base/simd.h"

namespace ceres_ext::solver {
namespace {

using kernels::kSimdLanes;
using kernels::SimdDoubles;

// Reflect (dense_least_squares.h) of columns num_rows apart, and |column|^2 of
// what is left of each without its first element. kN columns at a time read v
// once.
CERES_EXT_SIMD_CLONES void ReflectColumns(int64_t n,
                                          const double* v,
                                          int64_t num_rows,
                                          int64_t num_columns,
                                          double* a,
                                          double* squares) {
  constexpr int kN = 4;
  const int64_t end = 1 + (n - 1) / kSimdLanes * kSimdLanes;
  for (int64_t j = 0; j < num_columns; j += kN, a += kN * num_rows) {
    // The last one again where there are fewer.
    const int m = static_cast<int>(std::min<int64_t>(kN, num_columns - j));
    double* column[kN];
    for (int k = 0; k < kN; ++k) {
      column[k] = a + num_rows * std::min(k, m - 1);
    }
    SimdDoubles sums[kN] = {};
    for (int64_t i = 1; i < end; i += kSimdLanes) {
      const SimdDoubles x = *reinterpret_cast<const SimdDoubles*>(v + i);
      for (int k = 0; k < kN; ++k) {
        sums[k] += x * *reinterpret_cast<const SimdDoubles*>(column[k] + i);
      }
    }
    double factors[kN];
    for (int k = 0; k < kN; ++k) {
      double sum = v[0] * column[k][0];
      for (int l = 0; l < kSimdLanes; ++l) {
        sum += sums[k][l];
      }
      for (int64_t i = end; i < n; ++i) {
        sum += v[i] * column[k][i];
      }
      factors[k] = sum / v[0];
    }
    for (int k = 0; k < m; ++k) {
      double* const to = column[k];
      const double factor = factors[k];
      SimdDoubles of_squares = {};
      to[0] -= factor * v[0];
      for (int64_t i = 1; i < end; i += kSimdLanes) {
        SimdDoubles& x = *reinterpret_cast<SimdDoubles*>(to + i);
        const SimdDoubles y =
            x - factor * *reinterpret_cast<const SimdDoubles*>(v + i);
        x = y;
        of_squares += y * y;
      }
      double sum = 0.0;
      for (int l = 0; l < kSimdLanes; ++l) {
        sum += of_squares[l];
      }
      for (int64_t i = end; i < n; ++i) {
        to[i] -= factor * v[i];
        sum += to[i] * to[i];
      }
      squares[j + k] = sum;
    }
  }
}

}  // namespace

int64_t EliminateColumns(int64_t num_rows,
                         int64_t num_columns,
                         int64_t num_pivots,
                         const double* norms,
                         double tolerance,
                         double* a,
                         std::vector<int64_t>* order) {
  order->resize(num_pivots);
  std::iota(order->begin(), order->end(), 0);
  // Each is of what is left of a column.
  std::vector<double> squares(num_columns);
  for (int64_t j = 0; j < num_pivots; ++j) {
    const double* const column = a + num_rows * j;
    squares[j] = DotProduct(num_rows, column, column);
  }
  int64_t rank = 0;
  for (; rank < std::min(num_rows, num_pivots); ++rank) {
    int64_t best = -1;
    double most = tolerance;
    for (int64_t j = rank; j < num_pivots; ++j) {
      if (!std::isfinite(squares[j])) {
        return -1;
      }
      const double norm = norms[(*order)[j]];
      const double ratio = norm > 0.0 ? std::sqrt(squares[j]) / norm : 0.0;
      if (ratio > most && squares[j] > 0.0) {
        best = j;
        most = ratio;
      }
    }
    if (best < 0) {
      break;
    }
    if (best != rank) {
      std::swap((*order)[rank], (*order)[best]);
      std::swap(squares[rank], squares[best]);
      std::swap_ranges(
          a + num_rows * rank, a + num_rows * (rank + 1), a + num_rows * best);
    }
    const int64_t n = num_rows - rank;
    double* const v = a + num_rows * rank + rank;
    const double diagonal = MakeReflector(n, squares[rank], v);
    ReflectColumns(n,
                   v,
                   num_rows,
                   num_columns - rank - 1,
                   v + num_rows,
                   squares.data() + rank + 1);
    v[0] = diagonal;
    std::fill(v + 1, v + n, 0.0);
  }
  for (int64_t j = rank; j < num_pivots; ++j) {
    std::fill(a + num_rows * j + rank, a + num_rows * (j + 1), 0.0);
  }
  return rank;
}

}  // namespace ceres_ext::solver
