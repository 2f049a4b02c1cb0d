// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include <algorithm>
#include <limits>
#include <random>

#include "Eigen/Dense"
#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/base/small_matrix.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ceres_ext::kernels {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(SmallMatrix, Packed) {
  EXPECT_EQ(PackedSize(3), 6);
  EXPECT_EQ(PackedSize(9), 45);
  EXPECT_EQ(PackedSize(kMaxBlockColumns), 536854528);
  EXPECT_EQ(PackedSize(int64_t{65536}), int64_t{2147516416});
  EXPECT_EQ(PackedIndex(0, 0), 0);
  EXPECT_EQ(PackedIndex(1, 0), 1);
  EXPECT_EQ(PackedIndex(2, 1), 4);
}

// [4 2; 2 2]^-1 = [0.5 -0.5; -0.5 1], times (1, 3)' = (-1, 2.5)'
TEST(SmallMatrix, InverseByHand) {
  double a[] = {4, 2, 2};
  ASSERT_TRUE(InvertSymmetric<2>(a));
  EXPECT_THAT(a, testing::ElementsAre(0.5, -0.5, 1.0));
  const double x[] = {1, 3};
  double y[2];
  SymmetricMultiply<2>(a, x, y);
  EXPECT_THAT(y, testing::ElementsAre(-1.0, 2.5));
}

// L = [1 0 0; 2 1 0; 1 -1 1], D = diag(1, 2, 4): A = L D L',
// L^-1 = [1 0 0; -2 1 0; -3 1 1], A^-1 = L^-T D^-1 L^-1.
TEST(SmallMatrix, InverseByHand3) {
  double a[] = {1, 2, 6, 1, 0, 7};
  ASSERT_TRUE(InvertSymmetric<3>(a));
  EXPECT_THAT(a,
              testing::ElementsAre(
                  1 + 2 + 2.25, -1 - 0.75, 0.5 + 0.25, -0.75, 0.25, 0.25));
}

TEST(SmallMatrix, BreaksDown) {
  double indefinite[] = {1, 2, 1};
  EXPECT_FALSE(InvertSymmetric<2>(indefinite));
  double singular[] = {1, 1, 1};
  EXPECT_FALSE(InvertSymmetric<2>(singular));
  double negative[] = {-1, 0, 1};
  EXPECT_FALSE(InvertSymmetric<2>(negative));
  double nan[] = {1, kNaN, 1};
  EXPECT_FALSE(InvertSymmetric<2>(nan));
  double infinite[] = {kInfinity, 0, 1};
  EXPECT_FALSE(InvertSymmetric<2>(infinite));
}

// A = J'J + D^2 with two columns that differ by less than rounding, as those of
// a point close to a camera's plane: D^2 is lost beside the squares.
TEST(SmallMatrix, DefiniteButForRounding) {
  const double a00 = 1e40 + 1e3;
  double a[] = {a00, 1e40, a00, 0.0, 0.0, 2.0};
  double unknown[6];
  std::copy_n(a, 6, unknown);
  EXPECT_FALSE(InvertSymmetric<3>(unknown));
  ASSERT_TRUE(InvertSymmetric<3>(a, 3, /*is_definite=*/true));
  // The first unknown takes the whole step of both.
  const double g[] = {1e20, 1e20, 4.0};
  double step[3];
  SymmetricMultiply<3>(a, g, step);
  EXPECT_DOUBLE_EQ(step[0], 1e-20);
  EXPECT_EQ(step[1], 0.0);
  EXPECT_EQ(step[2], 2.0);

  // Second pivots of -u, 2 u = N u and 8 u. 1 replaces the first two.
  constexpr double kU = std::numeric_limits<double>::epsilon() / 2;
  for (const double pivot : {-kU, 2 * kU, 8 * kU}) {
    double b[] = {1.0, 1.0, 1.0 + pivot};
    ASSERT_TRUE(InvertSymmetric<kDynamic>(b, 2, /*is_definite=*/true));
    const double inverse = pivot <= 2 * kU ? 1.0 : 1.0 / pivot;
    EXPECT_NEAR(b[0], 1.0 + inverse, 4 * kU * (1.0 + inverse));
    EXPECT_NEAR(b[1], -inverse, 4 * kU * inverse);
    EXPECT_NEAR(b[2], inverse, 4 * kU * inverse);
  }

  for (const double value : {kNaN, kInfinity, -1.0}) {
    double broken[] = {1.0, 0.0, value};
    EXPECT_FALSE(InvertSymmetric<2>(broken, 2, /*is_definite=*/true));
  }
  double overflows[] = {1e-300, 1e300, 1e300};
  EXPECT_FALSE(InvertSymmetric<2>(overflows, 2, /*is_definite=*/true));
}

// Definite blocks keep their bits.
TEST(SmallMatrix, DefiniteKeepsItsBits) {
  std::mt19937 generator(3);
  std::normal_distribution<double> normal;
  for (int trial = 0; trial < 100; ++trial) {
    const Eigen::MatrixXd j =
        Eigen::MatrixXd::NullaryExpr(4, 3, [&] { return normal(generator); });
    const Eigen::MatrixXd dense = j.transpose() * j;
    double a[6];
    for (int i = 0; i < 3; ++i) {
      for (int k = 0; k <= i; ++k) {
        a[PackedIndex(i, k)] = dense(i, k);
      }
    }
    double definite[6];
    std::copy_n(a, 6, definite);
    ASSERT_TRUE(InvertSymmetric<3>(a));
    ASSERT_TRUE(InvertSymmetric<3>(definite, 3, /*is_definite=*/true));
    EXPECT_THAT(definite, testing::ElementsAreArray(a));
  }
}

TEST(SmallMatrix, ZeroColumnCountsAsUnitColumn) {
  double a[] = {4, 0, 0, 0, 0, 2};
  ASSERT_TRUE(InvertSymmetric<3>(a));
  EXPECT_EQ(a[0], 0.25);
  EXPECT_EQ(a[2], 1.0);
  EXPECT_EQ(a[5], 0.5);
}

TEST(SmallMatrix, InvertDiagonal) {
  const double* const no_d = nullptr;
  double a[] = {4, 9, 0, 7, 8, 2};
  ASSERT_TRUE(InvertDiagonal<3>(no_d, a));
  EXPECT_THAT(a, testing::ElementsAre(0.25, 0, 1, 0, 0, 0.5));
  double negative[] = {1, 0, -1e-300};
  EXPECT_FALSE(InvertDiagonal<2>(no_d, negative));
  double nan[] = {kNaN, 0, 1};
  EXPECT_FALSE(InvertDiagonal<2>(no_d, nan));
}

TEST(SmallMatrix, InvertDiagonalRaisesToD) {
  const double d[] = {0.5, 2, 3};
  double a[] = {-1, 9, 1, 7, 8, 10};
  ASSERT_TRUE(InvertDiagonal<3>(d, a));
  EXPECT_THAT(a, testing::ElementsAre(4, 0, 0.25, 0, 0, 0.1));
  double nan[] = {1, 0, kNaN};
  EXPECT_FALSE(InvertDiagonal<2>(d, nan));
  const double undamped[] = {1, 0};
  double negative[] = {1, 0, -1};
  EXPECT_FALSE(InvertDiagonal<2>(undamped, negative));
}

template <int N>
void InverseMatchesEigen() {
  std::mt19937 generator(N);
  std::normal_distribution<double> normal;
  for (int trial = 0; trial < 20; ++trial) {
    const Eigen::MatrixXd j = Eigen::MatrixXd::NullaryExpr(
        3 * N, N, [&] { return normal(generator); });
    const Eigen::MatrixXd dense = j.transpose() * j;
    double a[PackedSize(N)];
    for (int i = 0; i < N; ++i) {
      for (int k = 0; k <= i; ++k) {
        a[PackedIndex(i, k)] = dense(i, k);
      }
    }
    ASSERT_TRUE(InvertSymmetric<N>(a));
    const Eigen::MatrixXd inverse = dense.inverse();
    const Eigen::VectorXd values =
        Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd>(dense).eigenvalues();
    // Both inverses are off by at most about N terms, twice, times the
    // condition number.
    const double bound = 4 * N * std::numeric_limits<double>::epsilon() *
                         values[N - 1] / values[0] / values[0];
    for (int i = 0; i < N; ++i) {
      for (int k = 0; k <= i; ++k) {
        EXPECT_NEAR(a[PackedIndex(i, k)], inverse(i, k), bound);
      }
    }
  }
}

TEST(SmallMatrix, InverseMatchesEigen3) { InverseMatchesEigen<3>(); }
TEST(SmallMatrix, InverseMatchesEigen9) { InverseMatchesEigen<9>(); }
TEST(SmallMatrix, InverseMatchesEigen10) { InverseMatchesEigen<10>(); }

TEST(BlockRef, Layouts) {
  int values[6] = {0, 1, 2, 3, 4, 5};
  const BlockRef<int, 3, BlockLayout::kBlockContiguous> contiguous{values, 2};
  EXPECT_EQ(contiguous(1, 0), 3);
  EXPECT_EQ(contiguous(1, 2), 5);
  const BlockRef<int, 3, BlockLayout::kContinuousElement> element{values, 2};
  EXPECT_EQ(element(1, 0), 1);
  EXPECT_EQ(element(1, 2), 5);
  const BlockRef<const int, 3, BlockLayout::kContinuousElement> readonly =
      element;
  EXPECT_EQ(readonly(0, 1), 2);
  EXPECT_EQ(readonly.size(), 6);
}

}  // namespace
}  // namespace ceres_ext::kernels
