// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "cuda_kernels/machine/host_cholesky.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "Eigen/Cholesky"
#include "Eigen/Core"
#include "Eigen/Eigenvalues"
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
// A Schur complement of no columns has no memory.
TEST(HostDenseCholesky, SolvesAnEmptySystem) {
  HostMachine machine(1);
  HostDenseCholesky cholesky;
  ASSERT_TRUE(cholesky.Setup(0, &machine).ok());
  ASSERT_TRUE(cholesky.QueueFactorization(nullptr).ok());
  EXPECT_TRUE(cholesky.Solve(nullptr, nullptr).ok());
  EXPECT_TRUE(cholesky.SolveColumns(0, false, nullptr).ok());
}

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

// Tiles that are said to be zero are neither read nor written: they hold NaN
// here. All results have the bits of a matrix whose zeros are looked for.
TEST(HostDenseCholesky, LeavesOutTilesThatAreSaidToBeZero) {
  const int64_t n = 5 * kTile + 11;
  const int64_t stride = HostDenseCholesky::Stride(n);
  const int64_t num_tiles = HostDenseCholesky::NumTiles(n);
  for (const bool is_arrow : {false, true}) {
    SCOPED_TRACE(is_arrow);
    MatrixXd a = RandomMatrix(n, 40, 3);
    if (is_arrow) {
      a = MatrixXd(n * VectorXd::Ones(n).asDiagonal());
      a.bottomRows(kTile).setConstant(0.25);
      a.rightCols(kTile).setConstant(0.25);
      a.diagonal().setConstant(static_cast<double>(n));
    }
    HostDenseCholesky::Tiles tiles(static_cast<size_t>(num_tiles * num_tiles),
                                   0);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j <= i; ++j) {
        tiles[num_tiles * (i / kTile) + j / kTile] |= a(i, j) != 0.0 ? 1 : 0;
      }
    }
    HostDenseCholesky::AddFill(1000, &tiles);
    std::vector<double> stored = Stored(a);
    int num_left_out = 0;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j <= i; ++j) {
        if (tiles[num_tiles * (i / kTile) + j / kTile] == 0) {
          stored[stride * j + i] = kNaN;
          ++num_left_out;
        }
      }
    }
    EXPECT_GT(num_left_out, 0);
    const VectorXd b = VectorXd::LinSpaced(n, -1.0, 2.0);
    HostMachine machine(2);
    HostDenseCholesky with;
    HostDenseCholesky without;
    std::vector<double> looked_for = Stored(a);
    ASSERT_TRUE(with.Setup(n, &machine, tiles).ok());
    ASSERT_TRUE(without.Setup(n, &machine).ok());
    // A second time, after an inversion.
    for (int round = 0; round < 2; ++round) {
      std::vector<double> values = stored;
      std::vector<double> expected = looked_for;
      ASSERT_TRUE(with.QueueFactorization(values.data()).ok());
      ASSERT_TRUE(without.QueueFactorization(expected.data()).ok());
      VectorXd x(n);
      VectorXd expected_x(n);
      ASSERT_TRUE(with.Solve(b.data(), x.data()).ok());
      ASSERT_TRUE(without.Solve(b.data(), expected_x.data()).ok());
      EXPECT_EQ(x, expected_x);
      ExpectSolves(a, b, x);
      MatrixXd columns = MatrixXd::Identity(n, 40);
      MatrixXd expected_columns = columns;
      ASSERT_TRUE(with.SolveColumns(40, false, columns.data()).ok());
      ASSERT_TRUE(
          without.SolveColumns(40, false, expected_columns.data()).ok());
      EXPECT_EQ(columns, expected_columns);
      ASSERT_TRUE(with.Invert().ok());
      ASSERT_TRUE(without.Invert().ok());
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t i = 0; i < n; ++i) {
          ASSERT_EQ(values[stride * j + i], expected[stride * j + i]);
        }
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

struct Inverse {
  std::vector<double> values;  // as they are stored
  MatrixXd z;
  MatrixXd of_columns;  // of SolveColumns
};

Inverse Invert(const MatrixXd& a, const MatrixXd& b, int num_threads) {
  HostMachine machine(num_threads);
  HostDenseCholesky cholesky;
  Inverse inverse;
  inverse.values = Stored(a);
  inverse.of_columns = b;
  EXPECT_TRUE(cholesky.Setup(a.rows(), &machine).ok());
  EXPECT_EQ(cholesky.Invert().code, StatusCode::kInvalidArgument);
  EXPECT_TRUE(cholesky.QueueFactorization(inverse.values.data()).ok());
  EXPECT_TRUE(cholesky.Invert().ok());
  EXPECT_TRUE(
      cholesky.SolveColumns(b.cols(), true, inverse.of_columns.data()).ok());
  EXPECT_EQ(cholesky.Invert().code, StatusCode::kInvalidArgument);
  EXPECT_EQ(
      cholesky.Solve(inverse.of_columns.data(), inverse.of_columns.data()).code,
      StatusCode::kInvalidArgument);
  inverse.z = Eigen::Map<const MatrixXd, 0, Eigen::OuterStride<>>(
      inverse.values.data(),
      a.rows(),
      a.rows(),
      Eigen::OuterStride<>(HostDenseCholesky::Stride(a.rows())));
  return inverse;
}

// Against an inverse in long double. With H = D^-1 A D^-1, D = sqrt(diag A),
// which the rounding of neither factor nor inverse notices, the error of D Z D
// is at most c n u cond(H) |H^-1| (Du Croz and Higham, Stability of Methods for
// Matrix Inversion, 1992); sums of n products round n u of their size, once in
// each of factor, Y and Z.
TEST(HostDenseCholesky, Inverts) {
  using MatrixXl = Eigen::Matrix<long double, Eigen::Dynamic, Eigen::Dynamic>;
  for (const int64_t n : {int64_t{1},
                          int64_t{7},
                          int64_t{9},
                          kTile - 1,
                          kTile,
                          kTile + 1,
                          2 * kTile,
                          3 * kTile + 17,
                          4 * kTile + 33}) {
    for (const int64_t band : {int64_t{3}, int64_t{40}, n}) {
      SCOPED_TRACE(testing::Message() << n << " columns, band " << band);
      const MatrixXd a = RandomMatrix(n, band, 11);
      const VectorXd d = a.diagonal().cwiseSqrt();
      const MatrixXd h =
          d.cwiseInverse().asDiagonal() * a * d.cwiseInverse().asDiagonal();
      const Eigen::SelfAdjointEigenSolver<MatrixXd> eigen(
          h, Eigen::EigenvaluesOnly);
      const double smallest = eigen.eigenvalues()(0);
      const double largest = eigen.eigenvalues()(n - 1);
      const double u = 0.5 * kEpsilon;
      const double bound =
          3.0 * static_cast<double>(n) * u * largest / smallest / smallest;
      const MatrixXd b = MatrixXd::Random(n, n < kTile ? 1 : 35);
      const Inverse inverse = Invert(a, b, 2);
      const MatrixXl expected =
          a.cast<long double>().llt().solve(MatrixXl::Identity(n, n));
      const MatrixXl difference = inverse.z.cast<long double>() - expected;
      EXPECT_LE((d.cast<long double>().asDiagonal() * difference *
                 d.cast<long double>().asDiagonal())
                    .cwiseAbs()
                    .maxCoeff(),
                bound);
      EXPECT_EQ(inverse.z, inverse.z.transpose());
      // Zeros are still behind the columns.
      const int64_t stride = HostDenseCholesky::Stride(n);
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t i = n; i < stride; ++i) {
          ASSERT_EQ(inverse.values[stride * j + i], 0.0);
        }
      }
      // Sums of n products.
      const MatrixXd most = inverse.z.cwiseAbs() * b.cwiseAbs();
      const MatrixXd x = inverse.z * b;
      EXPECT_TRUE(((inverse.of_columns - x).array().abs() <=
                   2.0 * static_cast<double>(n) * kEpsilon * most.array())
                      .all());
    }
  }
}

TEST(HostDenseCholesky, InvertsToTheSameBitsOnAnyNumberOfThreads) {
  for (const int64_t n : {kTile + 1, 5 * kTile + 11}) {
    for (const int64_t band : {int64_t{5}, n}) {
      const MatrixXd a = RandomMatrix(n, band, 3);
      const MatrixXd b = MatrixXd::Random(n, 9);
      const Inverse one = Invert(a, b, 1);
      for (const int num_threads : {2, 3, 5}) {
        const Inverse other = Invert(a, b, num_threads);
        EXPECT_EQ(other.values, one.values);
        EXPECT_EQ(other.of_columns, one.of_columns);
      }
    }
  }
}

// A factor that failed has no inverse; the next one has.
TEST(HostDenseCholesky, InvertsAfterAFailure) {
  const int64_t n = kTile + 3;
  HostMachine machine(2);
  HostDenseCholesky cholesky;
  ASSERT_TRUE(cholesky.Setup(n, &machine).ok());
  std::vector<double> a = Stored(-MatrixXd::Identity(n, n));
  ASSERT_TRUE(cholesky.QueueFactorization(a.data()).ok());
  EXPECT_EQ(cholesky.Invert().code, StatusCode::kInvalidArgument);
  for (int i = 0; i < 2; ++i) {
    a = Stored(4.0 * MatrixXd::Identity(n, n));
    ASSERT_TRUE(cholesky.QueueFactorization(a.data()).ok());
    ASSERT_TRUE(cholesky.Invert().ok());
    EXPECT_EQ(a[0], 0.25);
    EXPECT_EQ(a[HostDenseCholesky::Stride(n) * (n - 1) + n - 1], 0.25);
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
