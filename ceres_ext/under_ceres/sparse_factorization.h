// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The sparse factorisation of the library that Ceres was built with,
// SuiteSparse or Eigen, for Schur complements on the host.

#ifndef CERES_EXT_UNDER_CERES_SPARSE_FACTORIZATION_H_
#define CERES_EXT_UNDER_CERES_SPARSE_FACTORIZATION_H_

#include <memory>

#include "ceres/solver.h"
#include "ceres_ext/solver/cholesky/sparse_factorization.h"

namespace ceres_ext {

// By sparse_linear_algebra_library_type and linear_solver_ordering_type. Null
// if Ceres was built without that library.
std::shared_ptr<solver::SparseFactorization> CreateSparseFactorization(
    const ceres::Solver::Options& options);

}  // namespace ceres_ext

#endif  // CERES_EXT_UNDER_CERES_SPARSE_FACTORIZATION_H_
