// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include <limits>
#include <random>
#include <vector>

#include "ceres_ext/solver/preconditioner/wide_blocks.h"
#include "cuda_kernels/ops/block_rows.h"
#include "cuda_kernels/ops/normal_blocks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/dense_problem.h"
#include "tests/kernels/run_ok.h"

namespace ceres_ext::kernels {
namespace {

template <int N, typename T>
BlockArray<T> Blocks(int64_t num_blocks, T* packed) {
  return PackedBlocks(
      {N, static_cast<int32_t>(num_blocks)}, kHostLayout, packed);
}

template <int N>
int32_t Invert(const std::vector<double>& a,
               const double* diagonal,
               std::vector<double>* inverse,
               HostMachine* machine) {
  InvertBlocksParams<N> params;
  params.n = a.size() / PackedSize(N);
  params.a = Blocks<N>(params.n, a.data());
  params.diagonal = diagonal;
  params.inverse = Blocks<N>(params.n, inverse->data());
  params.may_be_diagonal = true;
  int32_t first_breakdown = Breakdown::kNone;
  params.first_breakdown = &first_breakdown;
  RunOk(params, machine);
  return first_breakdown;
}

TEST(Preconditioner, ByHand) {
  HostMachine machine(2);
  // diag(1, 2, 3) + diag(1, 1, 1)^2, and a zero block.
  std::vector<double> a = {1, 0, 2, 0, 0, 3, 0, 0, 0, 0, 0, 0};
  const double d[] = {1, 1, 1, 2, 0, 0};
  EXPECT_EQ(Invert<3>(a, d, &a, &machine), Breakdown::kNone);
  EXPECT_DOUBLE_EQ(a[0], 0.5);
  EXPECT_DOUBLE_EQ(a[2], 1.0 / 3);
  EXPECT_DOUBLE_EQ(a[5], 0.25);
  EXPECT_DOUBLE_EQ(a[6], 0.25);
  EXPECT_DOUBLE_EQ(a[8], 1.0);

  const double r[] = {2, 3, 4, 4, 5, 6};
  double z[6];
  ApplyBlocksParams<3> apply;
  apply.n = 2;
  apply.a = Blocks<3, const double>(2, a.data());
  apply.r = r;
  apply.z = z;
  RunOk(apply, &machine);
  for (int i = 0; i < 4; ++i) {
    EXPECT_DOUBLE_EQ(z[i], 1.0);
  }
  EXPECT_DOUBLE_EQ(z[4], 5.0);

  PcgScalars scalars;
  scalars.end = PcgEnd::kResidual;
  apply.scalars = &scalars;
  z[0] = -1;
  RunOk(apply, &machine);
  EXPECT_EQ(z[0], -1);
}

TEST(Preconditioner, IndefiniteBlockBecomesItsDiagonal) {
  HostMachine machine(1);
  const std::vector<double> a = {1, 2, 2, 0, 0, 4};
  std::vector<double> inverse(6);
  EXPECT_EQ(Invert<3>(a, nullptr, &inverse, &machine), Breakdown::kNone);
  EXPECT_THAT(inverse, testing::ElementsAre(1, 0, 0.5, 0, 0, 0.25));
}

TEST(Preconditioner, NamesTheFirstBlockThatHasNoDiagonal) {
  HostMachine machine(3);
  const int num_blocks = 3000;
  std::vector<double> a(6 * num_blocks, 0.0);
  std::vector<double> inverse(a.size());
  for (int i = 0; i < num_blocks; ++i) {
    a[6 * i] = a[6 * i + 2] = a[6 * i + 5] = 1.0;
  }
  a[6 * 2999] = -1.0;
  a[6 * 1234 + 2] = std::numeric_limits<double>::quiet_NaN();
  a[6 * 2000 + 5] = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Invert<3>(a, nullptr, &inverse, &machine), 1234);
}

template <int N>
void ApplyMatchesDense(int num_blocks) {
  std::mt19937 generator(N + num_blocks);
  std::normal_distribution<double> normal;
  const auto random = [&](int64_t rows, int64_t columns) -> MatrixXd {
    return MatrixXd::NullaryExpr(
        rows, columns, [&] { return normal(generator); });
  };
  MatrixXd dense = MatrixXd::Zero(N * num_blocks, N * num_blocks);
  const VectorXd d = random(N * num_blocks, 1);
  VectorXd scale = VectorXd::Zero(N * num_blocks);
  for (int i = 0; i < num_blocks; ++i) {
    const MatrixXd j = random(2 * N, N);
    dense.block(N * i, N * i, N, N) = j.transpose() * j;
  }
  std::vector<double> a(PackedSize(N) * num_blocks);
  VectorXd::Map(a.data(), a.size()) = PackedDiagonalBlocks<N>(dense);
  std::vector<double> inverse(a.size());
  HostMachine machine(2);
  EXPECT_EQ(Invert<N>(a, d.data(), &inverse, &machine), Breakdown::kNone);
  const VectorXd r = random(N * num_blocks, 1);
  VectorXd z(N * num_blocks);
  ApplyBlocksParams<N> apply;
  apply.n = num_blocks;
  apply.a = Blocks<N, const double>(num_blocks, inverse.data());
  apply.r = r.data();
  apply.z = z.data();
  RunOk(apply, &machine);
  dense += d.array().square().matrix().asDiagonal();
  VectorXd expected(z.size());
  for (int i = 0; i < num_blocks; ++i) {
    const MatrixXd block = dense.block(N * i, N * i, N, N);
    expected.segment(N * i, N) = block.llt().solve(r.segment(N * i, N));
    const VectorXd values =
        Eigen::SelfAdjointEigenSolver<MatrixXd>(block).eigenvalues();
    // Factor and solve, twice N roundings each, on both sides.
    scale.segment(N * i, N).setConstant(4 * N * kEpsilon * values[N - 1] /
                                        values[0] / values[0] *
                                        r.segment(N * i, N).norm());
  }
  ExpectWithin(z, expected, scale);
}

TEST(Preconditioner, ApplyMatchesDense) {
  for (const int num_blocks : {1, 31, 32, 33}) {
    ApplyMatchesDense<3>(num_blocks);
    ApplyMatchesDense<9>(num_blocks);
    ApplyMatchesDense<10>(num_blocks);
  }
}

TEST(Preconditioner, NoBlocks) {
  HostMachine machine(2);
  std::vector<double> none;
  EXPECT_EQ(Invert<9>(none, nullptr, &none, &machine), Breakdown::kNone);
}

TEST(Preconditioner, RowOfAnElement) {
  for (int row = 0; row < kMaxBlockColumns; ++row) {
    ASSERT_EQ(PackedRow(PackedIndex(row, 0)), row);
    ASSERT_EQ(PackedRow(PackedIndex(row, row)), row);
  }
}

// Five blocks of N columns: one of full rank, one with a column of zeros, one
// that is indefinite, one with a diagonal below zero, and one not finite.
TEST(Preconditioner, WideBlocks) {
  using solver::WideBlocks;
  EXPECT_FALSE(WideBlocks<HostMachine>::IsWide(128));
  for (const int n : {129, 200}) {
    ASSERT_TRUE(WideBlocks<HostMachine>::IsWide(n));
    constexpr int kNumBlocks = 5;
    std::mt19937 generator(n);
    std::normal_distribution<double> normal;
    const MatrixXd j =
        MatrixXd::NullaryExpr(2 * n, n, [&] { return normal(generator); });
    std::vector<MatrixXd> dense(kNumBlocks, j.transpose() * j);
    dense[1].row(7).setZero();
    dense[1].col(7).setZero();
    dense[2](5, 5) = 1e-3;
    dense[3](n - 1, n - 1) = -1.0;
    dense[4](2, 2) = std::numeric_limits<double>::quiet_NaN();
    std::vector<double> a;
    for (const MatrixXd& block : dense) {
      for (int i = 0; i < n; ++i) {
        a.insert(a.end(), block.col(i).data(), block.col(i).data() + i + 1);
      }
    }
    // The column of zeros and the element below zero are not damped.
    VectorXd d = VectorXd::Constant(kNumBlocks * n, 0.01);
    d[n + 7] = d[4 * n - 1] = 0.0;
    std::vector<double> first;
    for (const int num_threads : {1, 4}) {
      HostMachine machine(num_threads);
      WideBlocks<HostMachine> wide;
      ASSERT_TRUE(wide.Reserve(n, &machine).ok());
      const BlockFamily family = {n, kNumBlocks};
      std::vector<double> inverse(a.size(), -1.0);
      int32_t first_breakdown = Breakdown::kNone;
      InvertBlocksParams<kDynamic> params;
      params.n = kNumBlocks;
      params.columns = n;
      params.a = PackedBlocks<const double>(family, kHostLayout, a.data());
      params.inverse = PackedBlocks(family, kHostLayout, inverse.data());
      params.diagonal = d.data();
      params.may_be_diagonal = true;
      params.first_breakdown = &first_breakdown;
      ASSERT_TRUE(wide.Invert(params).ok());
      EXPECT_EQ(first_breakdown, 3);
      for (int b = 0; b < 3; ++b) {
        const double* const of_block = &inverse[b * PackedSize(n)];
        MatrixXd found(n, n);
        for (int i = 0; i < n; ++i) {
          for (int k = 0; k <= i; ++k) {
            found(i, k) = found(k, i) = of_block[PackedIndex(i, k)];
          }
        }
        MatrixXd damped = dense[b];
        damped.diagonal() += d.segment(b * n, n).cwiseAbs2();
        if (b == 2) {
          damped = MatrixXd(damped.diagonal().asDiagonal());
        } else if (b == 1) {
          damped(7, 7) = 1.0;
        }
        // Factor and inverse, N roundings each (Higham 14.1).
        const VectorXd values =
            Eigen::SelfAdjointEigenSolver<MatrixXd>(damped).eigenvalues();
        const double bound =
            4 * n * kEpsilon * values[n - 1] / (values[0] * values[0]);
        EXPECT_LE((found - damped.inverse()).cwiseAbs().maxCoeff(), bound)
            << n << " columns, block " << b;
      }
      inverse.resize(static_cast<size_t>(3 * PackedSize(n)));
      if (first.empty()) {
        first = inverse;
      }
      EXPECT_EQ(inverse, first) << num_threads << " threads";
    }
  }
}

}  // namespace
}  // namespace ceres_ext::kernels
