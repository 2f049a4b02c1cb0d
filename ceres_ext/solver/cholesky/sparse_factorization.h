// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Cholesky's factorisation of a sparse symmetric matrix on the host, by a
// library that the caller brings: the solver has none of its own.
#ifndef CERES_EXT_SOLVER_CHOLESKY_SPARSE_FACTORIZATION_H_
#define CERES_EXT_SOLVER_CHOLESKY_SPARSE_FACTORIZATION_H_

#include <cstdint>
#include <vector>

#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_sparse_cholesky.h"

namespace ceres_ext::solver {

// Values and work of a factor.
struct FactorSize {
  double num_values = 0.0;
  double num_flops = 0.0;  // products that are summed
};

// One thread at a time.
class SparseFactorization {
 public:
  virtual ~SparseFactorization() = default;

  // The pattern of all matrices to come; its arrays outlive the object. Rows
  // and columns are in blocks, which begin with block_begin[i] and end with the
  // last element.
  virtual kernels::Status Analyze(const kernels::LowerCsr& csr,
                                  const std::vector<int32_t>& block_begin) = 0;
  // About what the factor will have, after Analyze.
  virtual FactorSize EstimateSize() const = 0;
  // *failed: there is no factor, since the matrix is not positive definite.
  virtual kernels::Status Factorize(const double* values, bool* failed) = 0;
  // x = A^-1 b; x is not b.
  virtual kernels::Status Solve(const double* b, double* x) = 0;
};

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_CHOLESKY_SPARSE_FACTORIZATION_H_
