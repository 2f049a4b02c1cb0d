// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Summary::method: how steps are computed.

#ifndef CERES_EXT_SESSION_METHOD_NAME_H_
#define CERES_EXT_SESSION_METHOD_NAME_H_

#include <string>

#include "ceres_ext/plan/solve_plan.h"
#include "ceres_ext/solver/schur_matrix_size.h"

namespace ceres_ext {

// Which rows there are, and of which of them the Jacobian is recomputed.
struct RowKinds {
  bool observations = false;
  bool views = false;
  bool recomputed_views = false;
  bool general = false;
};

// ", Cholesky (double) of S as a dense matrix (n = 144, 0.166 MB)", ", Cholesky
// (double) of S as a sparse matrix (n = 144, 100 blocks, 12 % of its elements,
// 0.166 MB, factor 1.2 MB)", or, of products alone, ", products by S as a
// sparse matrix (n = 144, 100 blocks, 12 % of its elements, 0.166 MB)".
std::string MatrixName(const solver::SchurMatrixSize& size);

// "Schur, implicit W, stored Jacobian (double), SCHUR_JACOBI", or, where
// `matrix` is not null, that in place of "implicit W", of a factorisation
// without a preconditioner. Rows of any shape are stored in double, and those
// of views recomputed in double.
std::string MethodName(const SolvePlan& plan,
                       const RowKinds& rows,
                       int num_merged_blocks,
                       const solver::SchurMatrixSize* matrix);

}  // namespace ceres_ext

#endif  // CERES_EXT_SESSION_METHOD_NAME_H_
