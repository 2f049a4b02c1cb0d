// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Householder's QR with column pivoting: what it leaves is Q'A for an
// orthogonal Q, so that products of columns stay.
#include "ceres_ext/solver/rank_revealing_qr.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "Eigen/Dense"
#include "gtest/gtest.h"

namespace ceres_ext::solver {
namespace {

constexpr double kTolerance = 1e-11;

Eigen::MatrixXd RandomMatrix(int64_t num_rows,
                             int64_t num_columns,
                             std::mt19937* random) {
  std::normal_distribution<double> normal;
  return Eigen::MatrixXd::NullaryExpr(
      num_rows, num_columns, [&] { return normal(*random); });
}

std::vector<double> NormsOf(const Eigen::MatrixXd& a, int64_t num_pivots) {
  std::vector<double> norms;
  for (int64_t j = 0; j < num_pivots; ++j) {
    norms.push_back(a.col(j).norm());
  }
  return norms;
}

// Eliminates `a` and checks the result. Returns the rank.
int64_t Check(const Eigen::MatrixXd& a, int64_t num_pivots) {
  const int64_t m = a.rows();
  const int64_t n = a.cols();
  const std::vector<double> norms = NormsOf(a, num_pivots);
  Eigen::MatrixXd left = a;
  std::vector<int64_t> order;
  const int64_t rank = EliminateColumns(
      m, n, num_pivots, norms.data(), kTolerance, left.data(), &order);
  EXPECT_GE(rank, 0);
  EXPECT_LE(rank, std::min(m, num_pivots));
  std::vector<int64_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (int64_t j = 0; j < num_pivots; ++j) {
    EXPECT_EQ(sorted[j], j);
  }
  Eigen::MatrixXd ordered = a;
  for (int64_t j = 0; j < num_pivots; ++j) {
    ordered.col(j) = a.col(order[j]);
    for (int64_t i = std::min(j + 1, rank); i < m; ++i) {
      EXPECT_EQ(left(i, j), 0.0) << i << ", " << j;
    }
  }
  // Higham, theorem 19.4, and what is set to zero.
  const double relative = 16.0 * static_cast<double>(m + 1) *
                              static_cast<double>(n + 1) * DBL_EPSILON +
                          4.0 * kTolerance;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      EXPECT_NEAR(left.col(i).dot(left.col(j)),
                  ordered.col(i).dot(ordered.col(j)),
                  relative * ordered.col(i).norm() * ordered.col(j).norm())
          << m << " x " << n << ", " << i << ", " << j;
    }
  }
  return rank;
}

TEST(RankRevealingQr, KeepsProductsOfColumns) {
  std::mt19937 random(1);
  // Around the number of lanes, and of columns that are taken at once.
  for (const int64_t m : {0, 1, 2, 7, 8, 9, 10, 16, 17, 18, 41}) {
    for (const int64_t n : {1, 2, 3, 4, 5, 6, 9, 14}) {
      for (const int64_t num_pivots : {int64_t{0}, n / 2, n}) {
        EXPECT_EQ(Check(RandomMatrix(m, n, &random), num_pivots),
                  std::min(m, num_pivots));
      }
    }
  }
}

TEST(RankRevealingQr, FindsTheRankWhateverTheUnits) {
  std::mt19937 random(2);
  std::uniform_real_distribution<double> exponent(-8.0, 8.0);
  for (int64_t k = 0; k < 40; ++k) {
    const int64_t m = 3 + k;
    const int64_t n = 3 + k % 9;
    const int64_t rank = 1 + k % std::min(m, n);
    Eigen::MatrixXd a =
        RandomMatrix(m, rank, &random) * RandomMatrix(rank, n, &random);
    for (int64_t j = 0; j < n; ++j) {
      a.col(j) *= std::pow(10.0, exponent(random));
    }
    EXPECT_EQ(Check(a, n), rank);
  }
  Eigen::MatrixXd zero = Eigen::MatrixXd::Zero(5, 3);
  EXPECT_EQ(Check(zero, 3), 0);
  zero.col(1).setOnes();
  EXPECT_EQ(Check(zero, 3), 1);
}

// Rows that are large change the others by their rounding alone.
TEST(RankRevealingQr, SmallRowsKeepTheirDigitsBelowLargeOnes) {
  std::mt19937 random(3);
  Eigen::MatrixXd a = RandomMatrix(20, 4, &random);
  a.topRows(2) *= 1e10;
  const std::vector<double> norms = NormsOf(a, 4);
  Eigen::MatrixXd left = a;
  std::vector<int64_t> order;
  ASSERT_EQ(
      EliminateColumns(20, 4, 4, norms.data(), kTolerance, left.data(), &order),
      4);
  // R's last rows are the factor of what the large ones leave.
  const Eigen::Matrix<long double, Eigen::Dynamic, Eigen::Dynamic> exact =
      a.cast<long double>();
  Eigen::Matrix<long double, Eigen::Dynamic, Eigen::Dynamic> ordered = exact;
  for (int j = 0; j < 4; ++j) {
    ordered.col(j) = exact.col(order[j]);
  }
  const Eigen::HouseholderQR<
      Eigen::Matrix<long double, Eigen::Dynamic, Eigen::Dynamic>>
      qr(ordered);
  for (int i = 0; i < 4; ++i) {
    for (int j = i; j < 4; ++j) {
      const auto expected = static_cast<double>(fabsl(qr.matrixQR()(i, j)));
      const double row = static_cast<double>(
          qr.matrixQR().row(i).tail(4 - i).cwiseAbs().maxCoeff());
      EXPECT_NEAR(std::fabs(left(i, j)), expected, 1e-12 * row)
          << i << ", " << j;
    }
  }
}

TEST(RankRevealingQr, RefusesValuesThatAreNotFinite) {
  std::mt19937 random(4);
  for (const double value : {std::numeric_limits<double>::quiet_NaN(),
                             std::numeric_limits<double>::infinity()}) {
    for (int64_t j = 0; j < 3; ++j) {
      Eigen::MatrixXd a = RandomMatrix(9, 5, &random);
      const std::vector<double> norms = NormsOf(a, 3);
      a(4, j) = value;
      std::vector<int64_t> order;
      EXPECT_EQ(
          EliminateColumns(9, 5, 3, norms.data(), kTolerance, a.data(), &order),
          -1);
    }
  }
}

}  // namespace
}  // namespace ceres_ext::solver
