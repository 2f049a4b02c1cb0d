// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The sizes of S as a matrix and of its factor.
#ifndef CERES_EXT_SOLVER_SCHUR_MATRIX_SIZE_H_
#define CERES_EXT_SOLVER_SCHUR_MATRIX_SIZE_H_

#include <cstdint>

namespace ceres_ext::solver {

struct SchurMatrixSize {
  bool is_factorized = false;
  bool is_sparse = false;
  int64_t num_unknowns = 0;
  // In the lower triangle of a sparse S, including diagonal ones.
  int64_t num_blocks = 0;
  int64_t num_values = 0;         // of S, with those behind the columns
  int64_t num_factor_values = 0;  // of a sparse factor
};

// S^-1, dense and column-major, both triangles of it.
struct SchurInverse {
  const double* values = nullptr;
  int64_t stride = 0;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_SCHUR_MATRIX_SIZE_H_
