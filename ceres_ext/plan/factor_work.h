// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The work of factorising a symmetric matrix, counted from the pattern of its
// blocks alone: for an estimate before anything of the matrix is set up.
#ifndef CERES_EXT_PLAN_FACTOR_WORK_H_
#define CERES_EXT_PLAN_FACTOR_WORK_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "ceres_ext/solver/cholesky/factorization_cost.h"

namespace ceres_ext {

// A matrix in blocks of full cells.
struct BlockPattern {
  std::vector<int32_t> size;  // columns of each block
  // Cells (i, j) on and below the diagonal, i >= j, none of them twice. Cells
  // of the diagonal may be left out.
  std::vector<std::pair<int32_t, int32_t>> cells;
};

// The sparse factor whose blocks are ordered by approximate minimum degree, as
// SuiteSparse and Eigen order them.
solver::FactorSize SizeOfFactor(const BlockPattern& pattern);

// The dense one in the order of the blocks.
solver::FactorWork CountFactorWork(const BlockPattern& pattern);

}  // namespace ceres_ext

#endif  // CERES_EXT_PLAN_FACTOR_WORK_H_
