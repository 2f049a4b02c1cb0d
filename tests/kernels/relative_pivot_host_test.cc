// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Relative pivots against Eigen's eigenvalues of the matrix with a unit
// diagonal, and the operations that count degenerate blocks.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "Eigen/Dense"
#include "cuda_kernels/base/relative_pivot.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/ops/degenerate_blocks.h"
#include "gtest/gtest.h"
#include "tests/kernels/run_ok.h"

namespace ceres_ext::kernels {
namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;

constexpr double kEps = std::numeric_limits<double>::epsilon() / 2;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<double> Pack(const MatrixXd& a) {
  std::vector<double> packed;
  for (int i = 0; i < a.rows(); ++i) {
    for (int j = 0; j <= i; ++j) {
      packed.push_back(a(i, j));
    }
  }
  return packed;
}

double PivotOf(const MatrixXd& a) {
  std::vector<double> packed = Pack(a);
  return RelativePivot(packed.data(), static_cast<int>(a.rows()));
}

double SmallestEigenvalue(const MatrixXd& a) {
  const VectorXd scale = a.diagonal().cwiseSqrt().cwiseInverse();
  const MatrixXd h = scale.asDiagonal() * a * scale.asDiagonal();
  return Eigen::SelfAdjointEigenSolver<MatrixXd>(h).eigenvalues()(0);
}

class Random {
 public:
  // rows x columns, of this rank, columns of sizes from 1e-5 to 1e5.
  MatrixXd Jacobian(int rows, int columns, int rank) {
    MatrixXd left(rows, rank);
    MatrixXd right(rank, columns);
    for (MatrixXd* m : {&left, &right}) {
      for (int i = 0; i < m->size(); ++i) {
        m->data()[i] = normal_(generator_);
      }
    }
    MatrixXd j = left * right;
    for (int c = 0; c < columns; ++c) {
      j.col(c) *= std::pow(10.0, exponent_(generator_));
    }
    return j;
  }

 private:
  std::mt19937 generator_{3};
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> exponent_{-5.0, 5.0};
};

TEST(RelativePivot, ByHand) {
  double one[] = {3.0};
  EXPECT_EQ(RelativePivot(one, 1), 1.0);
  double orthogonal[] = {4, 0, 9};
  EXPECT_EQ(RelativePivot(orthogonal, 2), 1.0);
  // 1 - 2^2 / (4 2)
  double half[] = {4, 2, 2};
  EXPECT_NEAR(RelativePivot(half, 2), 0.5, 4 * kEps);
  double singular[] = {1, 1, 1};
  EXPECT_EQ(RelativePivot(singular, 2), 0.0);
}

TEST(RelativePivot, ZeroColumnsAndWhatIsNotFinite) {
  double zero[] = {4, 0, 0, 0, 0, 2};
  EXPECT_EQ(RelativePivot(zero, 3), 0.0);
  double least[] = {4, 0, kZeroColumn};
  EXPECT_EQ(RelativePivot(least, 2), 0.0);
  double small[] = {4, 0, 2 * kZeroColumn};
  EXPECT_EQ(RelativePivot(small, 2), 1.0);
  double diagonal[] = {kNaN, 0, 1};
  EXPECT_EQ(RelativePivot(diagonal, 2), 0.0);
  double beside[] = {1, kNaN, 1};
  EXPECT_EQ(RelativePivot(beside, 2), 0.0);
  double infinite[] = {1, 0, kInfinity};
  EXPECT_EQ(RelativePivot(infinite, 2), 0.0);
  double large[] = {1e300, 0, 1e300};
  EXPECT_EQ(RelativePivot(large, 2), 1.0);
}

// lambda_min(H) <= r <= (4^n + 6n - 1) / 9 lambda_min(H): the elements of L are
// at most one, and so |L^-1|^2 is at most that (Lawson and Hanson 1974). Both
// sides are off by n sqrt(m) u of the unit diagonal, 8 times that for the
// largest of many.
TEST(RelativePivot, BoundsTheSmallestEigenvalue) {
  Random random;
  for (const int n : {1, 2, 3, 6, 9, 10, 18}) {
    for (const int rows : {n, n + 1, 3 * n, 40 * n}) {
      const MatrixXd j = random.Jacobian(rows, n, n);
      const MatrixXd a = j.transpose() * j;
      const double rounding = 8 * n * std::sqrt(rows) * kEps;
      const double least = SmallestEigenvalue(a);
      const double pivot = PivotOf(a);
      EXPECT_GE(pivot, least - rounding) << n << ", " << rows;
      EXPECT_LE(pivot, (std::pow(4.0, n) + 6 * n - 1) / 9 * least + rounding)
          << n << ", " << rows;
      // In other units it is the same.
      const MatrixXd scaled = random.Jacobian(1, n, 1).asDiagonal();
      EXPECT_NEAR(PivotOf(scaled * a * scaled), pivot, rounding + 1e-9 * pivot)
          << n << ", " << rows;
    }
  }
}

TEST(RelativePivot, FindsRankDeficientBlocks) {
  Random random;
  for (const int n : {2, 3, 6, 9, 10, 18}) {
    for (const int rows : {n - 1, n, 10 * n, 1000 * n}) {
      for (int rank = 1; rank < n; ++rank) {
        const MatrixXd j = random.Jacobian(rows, n, std::min(rank, rows));
        EXPECT_LE(PivotOf(j.transpose() * j), kDegeneratePivot)
            << n << ", " << rows << ", " << rank;
      }
    }
  }
}

// The combination of columns that vanishes has next to nothing of the last one.
// Pivots in the order of the columns would be 1e-10 and, as rounding, 1e-6.
TEST(RelativePivot, TakesTheLargestPivotFirst) {
  MatrixXd j(40, 3);
  j.col(0) = Random().Jacobian(40, 1, 1).col(0).normalized();
  j.col(2) = VectorXd::LinSpaced(40, -1.0, 1.0);
  j.col(1) = j.col(0) + 1e-5 * j.col(2);
  EXPECT_LE(PivotOf(j.transpose() * j), kDegeneratePivot);
}

// A direction that has a part of 1e-5 of its own, against one of 1e-8.
TEST(RelativePivot, HasAThreshold) {
  for (const double part : {1e-5, 1e-8}) {
    MatrixXd j = MatrixXd::Zero(3, 2);
    j(0, 0) = 1.0;
    j(0, 1) = 1.0;
    j(1, 1) = part;
    EXPECT_EQ(PivotOf(j.transpose() * j) <= kDegeneratePivot, part < 1e-6);
  }
}

class DegenerateBlocksTest : public testing::Test {
 protected:
  // Judges blocks of two columns, continuous elements.
  DegenerateRecord Judge(std::vector<double> a,
                         const std::vector<double>& padding) {
    const auto n = static_cast<int64_t>(a.size()) / 3;
    DegenerateRecord record;
    record.count = -1;
    JudgeBlocksParams judge;
    judge.n = n;
    judge.columns = 2;
    judge.a = {a.data(), 1, n};
    judge.padding = padding.empty() ? nullptr : padding.data();
    judge.record = &record;
    RunOk(judge, &machine_);
    RunOk(FindWorstBlockParams{n, {a.data(), 1, n}, &record}, &machine_);
    return record;
  }
  HostMachine machine_{3};
};

TEST_F(DegenerateBlocksTest, CountsThemAndFindsTheFirstOfTheWorst) {
  for (const int64_t n : {1, 255, 256, 257, 5000}) {
    // Unit matrices.
    std::vector<double> a(3 * n, 1.0);
    std::fill_n(a.begin() + n, n, 0.0);
    EXPECT_EQ(Judge(a, {}).count, 0) << n;
    EXPECT_EQ(Judge(a, {}).severity, 0.0) << n;
    // 1 - (1 - 2^-43)^2 = 2^-42 to rounding.
    for (const int64_t i : {n / 3, n / 2, n - 1}) {
      a[n + i] = 1.0 - std::ldexp(1.0, -43);
    }
    const DegenerateRecord three = Judge(a, {});
    EXPECT_EQ(three.count, n == 1 ? 1 : 3);
    EXPECT_EQ(three.block, n / 3);
    EXPECT_NEAR(three.relative_pivot(), std::ldexp(1.0, -42), 4 * kEps);
    // Rank one, and a zero column: nothing is worse.
    a[n + n / 2] = 1.0;
    a[2 * n + n - 1] = 0.0;
    const DegenerateRecord worst = Judge(a, {});
    EXPECT_EQ(worst.count, n == 1 ? 1 : 3);
    EXPECT_EQ(worst.block, n / 2);
    EXPECT_EQ(worst.relative_pivot(), 0.0);
  }
  EXPECT_EQ(Judge({}, {}).count, 0);
}

TEST_F(DegenerateBlocksTest, PaddingIsNoZeroColumn) {
  // Two blocks without a second column.
  const std::vector<double> a = {4, 4, 0, 0, 0, 0};
  EXPECT_EQ(Judge(a, {}).count, 2);
  const DegenerateRecord one = Judge(a, {0, 1, 0, 0});
  EXPECT_EQ(one.count, 1);
  EXPECT_EQ(one.block, 1);
  EXPECT_EQ(Judge(a, {0, 1, 0, 1}).count, 0);
}

}  // namespace
}  // namespace ceres_ext::kernels
