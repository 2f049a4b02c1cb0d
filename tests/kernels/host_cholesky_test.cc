// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "cuda_kernels/machine/host_cholesky.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "Eigen/Core"
#include "gtest/gtest.h"

namespace ceres_ext::kernels {
namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;

constexpr int64_t kTile = HostDenseCholesky::kTile;
constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
// Elements above the diagonal have no meaning, and are not read.
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// B B' + 0.1 I, where row i of B has elements up to `band` columns left of it.
MatrixXd RandomMatrix(int64_t n, int64_t band, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(-1.0, 1.0);
  MatrixXd b = MatrixXd::Zero(n, n);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = std::max<int64_t>(0, i - band); j <= i; ++j) {
      b(i, j) = uniform(random);
    }
  }
  return b * b.transpose() + 0.1 * MatrixXd::Identity(n, n);
}

// As the caller has it: the lower triangle, zeros behind the columns.
std::vector<double> Stored(const MatrixXd& a) {
  const int64_t n = a.rows();
  const int64_t stride = HostDenseCholesky::Stride(n);
  std::vector<double> stored(static_cast<size_t>(stride * n), 0.0);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) {
      stored[stride * j + i] = i < j ? kNaN : a(i, j);
    }
  }
  return stored;
}

struct Solved {
  int64_t failed_order = -1;
  std::vector<double> l;
  VectorXd x;
};

Solved Solve(const MatrixXd& a, const VectorXd& b, int num_threads) {
  HostMachine machine(num_threads);
  HostDenseCholesky cholesky;
  EXPECT_TRUE(cholesky.Setup(a.rows(), &machine).ok());
  Solved solved;
  solved.l = Stored(a);
  EXPECT_TRUE(cholesky.QueueFactorization(solved.l.data()).ok());
  EXPECT_TRUE(cholesky.ReadFailedOrder(&solved.failed_order).ok());
  solved.x.resize(a.rows());
  if (solved.failed_order == 0) {
    EXPECT_TRUE(cholesky.Solve(b.data(), solved.x.data()).ok());
  }
  return solved;
}

// Higham, Accuracy and Stability of Numerical Algorithms, theorem 10.4: |A x -
// b| <= (3 n + 1) u |L| |L'| |x|, where row i of |L| |L'| is at most sqrt(a_ii
// a_jj).
void ExpectSolves(const MatrixXd& a, const VectorXd& b, const VectorXd& x) {
  const VectorXd d = a.diagonal().cwiseSqrt();
  const double y = d.dot(x.cwiseAbs());
  const double n = static_cast<double>(a.rows());
  const VectorXd r = a * x - b;
  for (int64_t i = 0; i < a.rows(); ++i) {
    EXPECT_LE(std::abs(r[i]), (3 * n + 1) * kEpsilon * d[i] * y) << i;
  }
}

TEST(HostDenseCholesky, Solves) {
  for (const int64_t n : {int64_t{1},
                          int64_t{2},
                          int64_t{7},
                          int64_t{8},
                          int64_t{9},
                          kTile - 1,
                          kTile,
                          kTile + 1,
                          2 * kTile,
                          2 * kTile + 3,
                          3 * kTile + 37}) {
    for (const int64_t band : {int64_t{3}, int64_t{40}, n}) {
      SCOPED_TRACE(testing::Message() << n << " columns, band " << band);
      const MatrixXd a = RandomMatrix(n, band, 7);
      const VectorXd b = VectorXd::LinSpaced(n, -1.0, 2.0);
      const Solved solved = Solve(a, b, 1);
      ASSERT_EQ(solved.failed_order, 0);
      ExpectSolves(a, b, solved.x);
    }
  }
}

// Columns at the edges of groups and tiles; zeros at their beginning; and the
// part from the first value on alone.
TEST(HostDenseCholesky, SolvesColumns) {
  for (const int64_t n : {int64_t{1}, int64_t{9}, kTile, 2 * kTile + 3}) {
    for (const int64_t num_columns :
         {int64_t{0}, int64_t{1}, int64_t{31}, int64_t{32}, int64_t{33}}) {
      SCOPED_TRACE(testing::Message() << n << ", " << num_columns);
      const MatrixXd a = RandomMatrix(n, n, 7);
      std::vector<double> l = Stored(a);
      MatrixXd b = MatrixXd::Random(n, num_columns);
      b.topRows(n / 2).setZero();
      MatrixXd first;
      for (const int num_threads : {1, 3}) {
        HostMachine machine(num_threads);
        HostDenseCholesky cholesky;
        MatrixXd x = b;
        std::vector<double> factor = l;
        ASSERT_TRUE(cholesky.Setup(n, &machine).ok());
        ASSERT_FALSE(cholesky.SolveColumns(num_columns, false, x.data()).ok());
        ASSERT_TRUE(cholesky.QueueFactorization(factor.data()).ok());
        ASSERT_TRUE(cholesky.SolveColumns(num_columns, false, x.data()).ok());
        for (int64_t j = 0; j < num_columns; ++j) {
          ExpectSolves(a, b.col(j), x.col(j));
        }
        MatrixXd lower = b;
        ASSERT_TRUE(
            cholesky.SolveColumns(num_columns, true, lower.data()).ok());
        EXPECT_EQ(lower.bottomRows(n - n / 2), x.bottomRows(n - n / 2));
        if (num_threads == 1) {
          first = x;
        }
        EXPECT_EQ(x, first);
      }
    }
  }
}

TEST(HostDenseCholesky, HasTheSameBitsOnAnyNumberOfThreads) {
  const int64_t n = 5 * kTile + 11;
  const MatrixXd a = RandomMatrix(n, n, 3);
  const VectorXd b = VectorXd::LinSpaced(n, -1.0, 2.0);
  const Solved one = Solve(a, b, 1);
  for (const int num_threads : {2, 3, 8}) {
    const Solved other = Solve(a, b, num_threads);
    EXPECT_EQ(other.x, one.x);
    for (int64_t j = 0; j < n; ++j) {
      const int64_t begin = HostDenseCholesky::Stride(n) * j;
      for (int64_t i = j; i < n; ++i) {
        ASSERT_EQ(other.l[begin + i], one.l[begin + i]) << i << ", " << j;
      }
    }
  }
}

// The order that is to blame, in the first panel and behind it.
TEST(HostDenseCholesky, NamesTheRowWithoutAPivot) {
  const int64_t n = 2 * kTile + 9;
  for (const int64_t row : {int64_t{0}, int64_t{5}, kTile, n - 1}) {
    for (const double value :
         {0.0, -1.0, kNaN, std::numeric_limits<double>::infinity()}) {
      SCOPED_TRACE(testing::Message() << row << ", " << value);
      MatrixXd a = RandomMatrix(n, n, 5);
      a.row(row).setZero();
      a.col(row).setZero();
      a(row, row) = value;
      EXPECT_EQ(Solve(a, VectorXd::Ones(n), 2).failed_order, row + 1);
    }
  }
}

TEST(HostDenseCholesky, TakesNothingOfNoColumns) {
  HostMachine machine(2);
  HostDenseCholesky cholesky;
  ASSERT_TRUE(cholesky.Setup(0, &machine).ok());
  EXPECT_TRUE(cholesky.QueueFactorization(nullptr).ok());
  int64_t failed_order = -1;
  EXPECT_TRUE(cholesky.ReadFailedOrder(&failed_order).ok());
  EXPECT_EQ(failed_order, 0);
}

TEST(HostDenseCholesky, NeedsAFactorToSolve) {
  HostMachine machine(1);
  HostDenseCholesky cholesky;
  ASSERT_TRUE(cholesky.Setup(3, &machine).ok());
  double x[3] = {1.0, 2.0, 3.0};
  EXPECT_EQ(cholesky.Solve(x, x).code, StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ceres_ext::kernels
