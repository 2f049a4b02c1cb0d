// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Covariances of small problems in extended precision.

#ifndef CERES_EXT_TESTS_COMMON_EXACT_COVARIANCE_H_
#define CERES_EXT_TESTS_COMMON_EXACT_COVARIANCE_H_

#include <limits>
#include <map>
#include <vector>

#include "Eigen/Core"
#include "Eigen/Dense"
#include "ceres/crs_matrix.h"
#include "ceres/problem.h"
#include "gtest/gtest.h"

namespace ceres_ext {

// (J'J)^-1 of some blocks of a problem in extended precision, and the relative
// error that the inverse of a Cholesky factor of it may have: n eps times the
// largest of the diagonal of J'J times that of the inverse, by which columns
// that nearly depend on each other are measured.
inline Eigen::MatrixXd CovarianceOf(const std::vector<double*>& wanted,
                                    ceres::Problem* problem,
                                    double* error) {
  using Matrix = Eigen::Matrix<long double, Eigen::Dynamic, Eigen::Dynamic>;
  ceres::Problem::EvaluateOptions options;
  std::vector<int> columns;
  int num_columns = 0;
  std::vector<double*> all;
  problem->GetParameterBlocks(&all);
  std::map<double*, int> first;
  for (double* const block : all) {
    if (!problem->IsParameterBlockConstant(block)) {
      options.parameter_blocks.push_back(block);
      first[block] = num_columns;
      num_columns += problem->ParameterBlockTangentSize(block);
    }
  }
  ceres::CRSMatrix crs;
  EXPECT_TRUE(problem->Evaluate(options, nullptr, nullptr, nullptr, &crs));
  Matrix j = Matrix::Zero(crs.num_rows, crs.num_cols);
  for (int i = 0; i < crs.num_rows; ++i) {
    for (int e = crs.rows[i]; e < crs.rows[i + 1]; ++e) {
      j(i, crs.cols[e]) = crs.values[e];
    }
  }
  const Matrix h = j.transpose() * j;
  const Matrix inverse =
      h.ldlt().solve(Matrix::Identity(num_columns, num_columns));
  *error = static_cast<double>(
      h.diagonal().cwiseProduct(inverse.diagonal()).maxCoeff() * num_columns *
      std::numeric_limits<double>::epsilon());
  for (double* const block : wanted) {
    for (int c = 0; c < problem->ParameterBlockTangentSize(block); ++c) {
      columns.push_back(first.at(block) + c);
    }
  }
  const auto n = static_cast<int>(columns.size());
  Eigen::MatrixXd covariance(n, n);
  for (int a = 0; a < n; ++a) {
    for (int b = 0; b < n; ++b) {
      covariance(a, b) = static_cast<double>(inverse(columns[a], columns[b]));
    }
  }
  return covariance;
}

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_COMMON_EXACT_COVARIANCE_H_
