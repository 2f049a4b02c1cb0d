// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The parts of covariance_blocks.h that need no machine: the limits of blocks,
// and the dense algebra of free directions.

#ifndef CERES_EXT_SESSION_COVARIANCE_ALGEBRA_H_
#define CERES_EXT_SESSION_COVARIANCE_ALGEBRA_H_

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "Eigen/Core"
#include "Eigen/Eigenvalues"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/ops/covariance.h"
#include "cuda_kernels/structure/block_families.h"

namespace ceres_ext {

// Checks the limits of the operations. f_size: columns of each block of F.
inline kernels::Status CheckSizes(const kernels::BlockFamilies& e,
                                  const std::vector<int32_t>& f_size) {
  for (const int32_t size : f_size) {
    if (size > kernels::kMaxCovarianceColumns) {
      return {kernels::StatusCode::kUnsupported,
              "A covariance takes blocks of at most " +
                  std::to_string(kernels::kMaxCovarianceColumns) +
                  " columns; one has " + std::to_string(size) + "."};
    }
  }
  return e.size() > kernels::kMaxCovarianceFamilies
             ? kernels::Status(
                   kernels::StatusCode::kUnsupported,
                   "A covariance takes eliminated blocks of at most " +
                       std::to_string(kernels::kMaxCovarianceFamilies) +
                       " kinds.")
             : kernels::Status();
}

// Makes the columns orthonormal, in two passes of Gram and Schmidt. A column
// that depends on those before it becomes zero.
inline void Orthonormalize(Eigen::MatrixXd* x) {
  for (Eigen::Index j = 0; j < x->cols(); ++j) {
    const double before = x->col(j).norm();
    for (int pass = 0; pass < 2; ++pass) {
      for (Eigen::Index i = 0; i < j; ++i) {
        x->col(j) -= x->col(i).dot(x->col(j)) * x->col(i);
      }
    }
    const double norm = x->col(j).norm();
    constexpr double kDependent = 1e-14;
    if (norm > kDependent * before) {
      x->col(j) /= norm;
    } else {
      x->col(j).setZero();
    }
  }
}

// The smallest p eigenvalues and their vectors of H = s^-1 S s^-1, ascending,
// by inverse iteration in a space of p random vectors. solve(&x):
// x = (S + shift s^2)^-1 x.
template <typename Solve>
kernels::Status FindSmallestEigenvalues(const Eigen::VectorXd& s,
                                        Eigen::Index p,
                                        int num_iterations,
                                        double shift,
                                        const Solve& solve,
                                        Eigen::VectorXd* values,
                                        Eigen::MatrixXd* vectors) {
  const Eigen::Index n = s.size();
  std::mt19937 random(1);
  Eigen::MatrixXd y(n, p);
  for (Eigen::Index j = 0; j < p; ++j) {
    for (Eigen::Index i = 0; i < n; ++i) {
      y(i, j) = static_cast<double>(random()) / 4294967296.0 - 0.5;
    }
  }
  Orthonormalize(&y);
  Eigen::MatrixXd x;
  for (int i = 0; i < num_iterations; ++i) {
    x = s.asDiagonal() * y;
    CERES_EXT_RETURN_IF_ERROR(solve(&x));
    x = s.asDiagonal() * x;
    if (i + 1 < num_iterations) {
      y = x;
      Orthonormalize(&y);
    }
  }
  // The inverse, in the space of y.
  const Eigen::MatrixXd projected = y.transpose() * x;
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> eigen(
      0.5 * (projected + projected.transpose()));
  values->resize(p);
  vectors->resize(n, p);
  for (Eigen::Index j = 0; j < p; ++j) {
    const double inverse = eigen.eigenvalues()(p - 1 - j);
    // Written so that NaN is not an eigenvalue above a tolerance.
    (*values)(j) = inverse > 0.0 ? 1.0 / inverse - shift : 0.0;
    vectors->col(j) = x * eigen.eigenvectors().col(p - 1 - j);
  }
  Orthonormalize(vectors);
  return {};
}

// As many rows as there are columns, by complete pivoting; fewer if the rows
// have no more directions.
inline std::vector<Eigen::Index> PivotRows(Eigen::MatrixXd rows) {
  std::vector<Eigen::Index> pivots;
  while (static_cast<Eigen::Index>(pivots.size()) < rows.cols()) {
    Eigen::Index best = 0;
    const double square = rows.rowwise().squaredNorm().maxCoeff(&best);
    if (!(square > 0.0)) {
      break;
    }
    pivots.push_back(best);
    const Eigen::RowVectorXd direction = rows.row(best) / std::sqrt(square);
    rows -= (rows * direction.transpose()) * direction;
  }
  return pivots;
}

inline void MakeSymmetric(int32_t n, double* block) {
  for (int32_t i = 0; i < n; ++i) {
    for (int32_t j = 0; j < i; ++j) {
      block[n * i + j] = block[n * j + i] =
          0.5 * (block[n * i + j] + block[n * j + i]);
    }
  }
}

// P B P = B - N C' - C N' + N (N'C) N', P = I - N N', C = B N.
class InnerConstraints {
 public:
  // free: N.
  InnerConstraints(const Eigen::MatrixXd& free, Eigen::MatrixXd c)
      : free_(free), c_(std::move(c)), inner_(free_.transpose() * c_) {
    inner_ = 0.5 * (inner_ + inner_.transpose()).eval();
  }

  // Replaces the block of B, row-major, whose rows begin at row `left` of N and
  // whose columns at row `right`.
  void Apply(int32_t left,
             int32_t num_rows,
             int32_t right,
             int32_t num_columns,
             double* values) const {
    const auto n_left = free_.middleRows(left, num_rows);
    const auto n_right = free_.middleRows(right, num_columns);
    const auto c_left = c_.middleRows(left, num_rows);
    const auto c_right = c_.middleRows(right, num_columns);
    Eigen::Map<
        Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>
        block(values, num_rows, num_columns);
    block += n_left * inner_ * n_right.transpose() -
             n_left * c_right.transpose() - c_left * n_right.transpose();
    if (left == right) {
      block = 0.5 * (block + block.transpose()).eval();
    }
  }

 private:
  const Eigen::MatrixXd& free_;
  const Eigen::MatrixXd c_;
  Eigen::MatrixXd inner_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SESSION_COVARIANCE_ALGEBRA_H_
