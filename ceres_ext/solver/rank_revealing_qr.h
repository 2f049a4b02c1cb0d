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

#include <cstdint>
#include <vector>

namespace ceres_ext::solver {

// a: num_rows x num_columns, column-major, is replaced by Q'a with its first
// num_pivots columns in *order, upper triangular as far as their rank r:
//
//   r independent columns   R above the diagonal, zero below
//   the other pivots        zero below row r
//   the other columns       Q'a
//
// A column j is dependent if what others leave of it is at most tolerance *
// norms[j]. Returns r; -1 if a value is not finite. Has the same bits with
// every instruction set.
int64_t EliminateColumns(int64_t num_rows,
                         int64_t num_columns,
                         int64_t num_pivots,
                         const double* norms,
                         double tolerance,
                         double* a,
                         std::vector<int64_t>* order);

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_RANK_REVEALING_QR_H_
