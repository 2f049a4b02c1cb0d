// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include <limits>
#include <random>
#include <vector>

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

}  // namespace
}  // namespace ceres_ext::kernels
