// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/under_ceres/sparse_factorization.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ceres/compressed_row_sparse_matrix.h"
#include "ceres/linear_solver.h"
#include "ceres/sparse_cholesky.h"
#include "ceres/types.h"
#include "ceres_ext/plan/factor_work.h"

namespace ceres_ext {
namespace {

using ceres::internal::CompressedRowSparseMatrix;
using ceres::internal::LinearSolverTerminationType;
using kernels::Status;
using kernels::StatusCode;

// By the first row of each block.
BlockPattern PatternOf(const CompressedRowSparseMatrix& lower) {
  const auto& blocks = lower.row_blocks();
  const int num_blocks = static_cast<int>(blocks.size());
  BlockPattern pattern;
  std::vector<int> block_of(lower.num_rows());
  for (int i = 0; i < num_blocks; ++i) {
    pattern.size.push_back(blocks[i].size);
    std::fill_n(&block_of[blocks[i].position], blocks[i].size, i);
  }
  for (int i = 0; i < num_blocks; ++i) {
    const int row = blocks[i].position;
    for (int k = lower.rows()[row]; k < lower.rows()[row + 1]; ++k) {
      const int j = block_of[lower.cols()[k]];
      if (k == lower.rows()[row] || j != block_of[lower.cols()[k - 1]]) {
        pattern.cells.emplace_back(i, j);
      }
    }
  }
  return pattern;
}

class CeresSparseFactorization final : public solver::SparseFactorization {
 public:
  explicit CeresSparseFactorization(
      std::unique_ptr<ceres::internal::SparseCholesky> cholesky)
      : cholesky_(std::move(cholesky)) {}

  Status Analyze(const kernels::LowerCsr& csr,
                 const std::vector<int32_t>& block_begin) final {
    if (csr.num_values > std::numeric_limits<int>::max()) {
      return {StatusCode::kUnsupported,
              "A sparse Schur complement of " + std::to_string(csr.num_values) +
                  " values; on the host at most 2147483647 are supported."};
    }
    const int n = static_cast<int>(csr.n);
    matrix_ = std::make_unique<CompressedRowSparseMatrix>(
        n, n, static_cast<int>(csr.num_values));
    matrix_->set_storage_type(
        CompressedRowSparseMatrix::StorageType::LOWER_TRIANGULAR);
    std::copy_n(csr.row_begin, csr.n + 1, matrix_->mutable_rows());
    std::copy_n(csr.column, csr.num_values, matrix_->mutable_cols());
    // Ceres does not know blocks without unknowns.
    for (size_t i = 0; i + 1 < block_begin.size(); ++i) {
      if (block_begin[i + 1] > block_begin[i]) {
        matrix_->mutable_row_blocks()->emplace_back(
            block_begin[i + 1] - block_begin[i], block_begin[i]);
      }
    }
    *matrix_->mutable_col_blocks() = matrix_->row_blocks();
    return {};
  }

  solver::FactorSize EstimateSize() const final {
    return SizeOfFactor(PatternOf(*matrix_));
  }

  Status Factorize(const double* values, bool* failed) final {
    std::copy_n(values, matrix_->num_nonzeros(), matrix_->mutable_values());
    return ToStatus(
        [&](std::string* message) {
          return cholesky_->Factorize(matrix_.get(), message);
        },
        failed);
  }

  Status Solve(const double* b, double* x) final {
    bool failed = false;
    CERES_EXT_RETURN_IF_ERROR(ToStatus(
        [&](std::string* message) { return cholesky_->Solve(b, x, message); },
        &failed));
    return failed ? Status(StatusCode::kNumericalFailure,
                           "The sparse factorisation has no solution.")
                  : Status();
  }

 private:
  template <typename Function>
  static Status ToStatus(const Function& function, bool* failed) {
    std::string message;
    const LinearSolverTerminationType type = function(&message);
    *failed = type == LinearSolverTerminationType::FAILURE;
    return type == LinearSolverTerminationType::FATAL_ERROR
               ? Status(StatusCode::kUnsupported,
                        "The sparse factorisation failed: " + message)
               : Status();
  }

  std::unique_ptr<ceres::internal::SparseCholesky> cholesky_;
  std::unique_ptr<CompressedRowSparseMatrix> matrix_;
};

}  // namespace

std::shared_ptr<solver::SparseFactorization> CreateSparseFactorization(
    const ceres::Solver::Options& options) {
  const ceres::SparseLinearAlgebraLibraryType library =
      options.sparse_linear_algebra_library_type;
  if ((library != ceres::SUITE_SPARSE && library != ceres::EIGEN_SPARSE) ||
      !ceres::IsSparseLinearAlgebraLibraryTypeAvailable(library)) {
    return nullptr;
  }
  ceres::internal::LinearSolver::Options of_cholesky;
  of_cholesky.sparse_linear_algebra_library_type = library;
  of_cholesky.ordering_type =
      options.linear_solver_ordering_type == ceres::NESDIS
          ? ceres::internal::OrderingType::NESDIS
          : ceres::internal::OrderingType::AMD;
  return std::make_shared<CeresSparseFactorization>(
      ceres::internal::SparseCholesky::Create(of_cholesky));
}

}  // namespace ceres_ext
