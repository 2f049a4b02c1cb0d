// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The marginal prior of dense rows in quadruple precision, by Householder's QR
// of all dropped columns at once: a reference for ceres_ext/marginalize.h,
// which has another order, precision and pivots.

#ifndef CERES_EXT_TESTS_FRONT_QUAD_MARGINAL_H_
#define CERES_EXT_TESTS_FRONT_QUAD_MARGINAL_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace ceres_ext {

#ifdef __SIZEOF_FLOAT128__
__extension__ typedef __float128 Quad;
#else
using Quad = long double;  // quadruple where there is no other
#endif

inline Quad Sqrt(Quad x) {
  if (!(x > 0)) {
    return 0;
  }
  Quad root = std::sqrt(static_cast<double>(x));
  for (int i = 0; i < 3; ++i) {
    root = (root + x / root) / 2;  // 53, 106, 113 bits
  }
  return root;
}

// Columns of a matrix.
using QuadMatrix = std::vector<std::vector<Quad>>;

inline Quad Dot(const std::vector<Quad>& a,
                const std::vector<Quad>& b,
                size_t first = 0) {
  Quad sum = 0;
  for (size_t i = first; i < a.size(); ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

// Columns 0 to num_pivots - 1 become upper triangular, with column pivoting,
// and all columns are multiplied by Q'. As in double, a column is dependent if
// what others leave of it is at most 1e-11 times its norm, since J is in
// double, and that of a prior has the rounding of another QR. Returns the rank;
// order: of the pivots.
inline size_t TriangulariseInQuad(size_t num_pivots,
                                  QuadMatrix* a,
                                  std::vector<size_t>* order) {
  order->resize(num_pivots);
  std::iota(order->begin(), order->end(), size_t{0});
  std::vector<Quad> norms;
  for (const auto& column : *a) {
    norms.push_back(Sqrt(Dot(column, column)));
  }
  const size_t num_rows = a->empty() ? 0 : (*a)[0].size();
  size_t rank = 0;
  for (; rank < std::min(num_pivots, num_rows); ++rank) {
    size_t best = num_pivots;
    Quad most = 1e-11;
    for (size_t j = rank; j < num_pivots; ++j) {
      const Quad norm = Sqrt(Dot((*a)[j], (*a)[j], rank));
      if (norms[j] > 0 && norm / norms[j] > most) {
        best = j;
        most = norm / norms[j];
      }
    }
    if (best == num_pivots) {
      break;
    }
    std::swap((*a)[rank], (*a)[best]);
    std::swap(norms[rank], norms[best]);
    std::swap((*order)[rank], (*order)[best]);
    std::vector<Quad> v = (*a)[rank];
    const Quad norm = Sqrt(Dot(v, v, rank));
    v[rank] += v[rank] < 0 ? -norm : norm;
    const Quad square = Dot(v, v, rank);
    for (size_t j = rank; j < a->size(); ++j) {
      const Quad factor = 2 * Dot(v, (*a)[j], rank) / square;
      for (size_t i = rank; i < num_rows; ++i) {
        (*a)[j][i] -= factor * v[i];
      }
    }
  }
  return rank;
}

// The remainder of rows over dropped columns, columns that stay, and r.
struct QuadMarginal {
  // a: columns, those dropped first, r last.
  QuadMarginal(size_t num_dropped, const QuadMatrix& a) {
    QuadMatrix q = a;
    std::vector<size_t> order;
    rank = TriangulariseInQuad(num_dropped, &q, &order);
    const size_t num_rows = a[0].size();
    for (size_t j = num_dropped; j < a.size(); ++j) {
      rest.emplace_back(q[j].begin() + static_cast<int64_t>(rank), q[j].end());
      // The solution y of R y = -q over the independent columns.
      std::vector<Quad> y(rank);
      Quad size = Sqrt(Dot(a[j], a[j]));
      column_norms.push_back(static_cast<double>(size));
      for (size_t i = rank; i-- > 0;) {
        Quad value = -q[j][i];
        for (size_t k = i + 1; k < rank; ++k) {
          value -= q[k][i] * y[k];
        }
        y[i] = value / q[i][i];
        const auto& column = a[order[i]];
        size += Sqrt(Dot(column, column)) * (y[i] < 0 ? -y[i] : y[i]);
      }
      sizes.push_back(static_cast<double>(size));
    }
    // Householder's QR in double is exact for columns that differ by at most
    // gamma times their norms, with gamma a small multiple of m n eps (Higham,
    // theorem 19.4). There are up to three QRs of a row one after the other:
    // of the points, of the block, and the last.
    gamma = 10.0 * static_cast<double>(num_rows * a.size()) *
            std::numeric_limits<double>::epsilon();
  }

  size_t num_columns() const { return rest.size() - 1; }
  // Element of H or, for j = num_columns(), of the gradient.
  double Product(size_t i, size_t j) const {
    return static_cast<double>(Dot(rest[i], rest[j]));
  }
  // Its largest error in double. The marginal of J is min_y |J_d y + J_k x|^2.
  // Changes of J by gamma change J_d y + J_k x by at most gamma times
  // sizes = |J_k| + sum |J_d| |y|, and the product of two such vectors as
  // below.
  double Tolerance(size_t i, size_t j) const {
    const double of_i = std::sqrt(Product(i, i));
    const double of_j = std::sqrt(Product(j, j));
    return gamma *
           (of_i * sizes[j] + of_j * sizes[i] + gamma * sizes[i] * sizes[j]);
  }

  size_t rank = 0;  // of the dropped columns
  QuadMatrix rest;  // columns that stay, and r
  std::vector<double> sizes;
  std::vector<double> column_norms;  // of J, of the columns of `rest`
  double gamma = 0.0;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_FRONT_QUAD_MARGINAL_H_
