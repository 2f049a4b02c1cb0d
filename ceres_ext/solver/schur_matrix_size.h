// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The sizes of S as a matrix and of its factor.
#ifndef CERES_EXT_SOLVER_SCHUR_MATRIX_SIZE_H_
#define CERES_EXT_SOLVER_SCHUR_MATRIX_SIZE_H_

#include <cstdint>
#include <string>

#include "cuda_kernels/base/status.h"
#include "cuda_kernels/structure/block_families.h"

namespace ceres_ext::solver {

struct SchurMatrixSize {
  bool is_factorized = false;
  bool is_sparse = false;
  bool is_float = false;  // the factor
  int64_t num_unknowns = 0;
  // In the lower triangle of a sparse S, including diagonal ones.
  int64_t num_blocks = 0;
  int64_t num_values = 0;         // of S, with those behind the columns
  int64_t num_factor_values = 0;  // of a sparse factor
};

// The reason why S has no factor. value: of F, where the leading minor ends
// that is not positive; below 0: that is unknown.
inline kernels::Status NoFactor(const kernels::BlockFamilies& f,
                                int64_t value) {
  std::string where;
  if (value >= 0) {
    const auto place = f.PlaceOf(value);
    where = " at column " + std::to_string(place.column) + " of block " +
            std::to_string(place.block) +
            " of those that are not eliminated and have " +
            std::to_string(f[place.family].size) + " columns";
  }
  return {kernels::StatusCode::kNumericalFailure,
          "The Schur complement is not positive definite" + where + "."};
}
// The reason why the V + D_e^2 of an eliminated block, the first of its family
// that is singular, has no inverse.
inline kernels::Status NoInverse(bool is_shared, int32_t block, bool damped) {
  return {kernels::StatusCode::kNumericalFailure,
          "E'E + D^2 of " +
              std::string(is_shared ? "eliminated block " : "point ") +
              std::to_string(block) +
              (damped ? " is not finite." : " is not positive definite.")};
}

// S^-1, dense and column-major, both triangles of it.
struct SchurInverse {
  const double* values = nullptr;
  int64_t stride = 0;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_SCHUR_MATRIX_SIZE_H_
