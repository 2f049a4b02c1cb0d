// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Inverses of diagonal blocks and products with them, on every machine.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "Eigen/Dense"
#include "ceres_ext/solver/preconditioner/wide_blocks.h"
#include "cuda_kernels/ops/block_rows.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/machine_test.h"

namespace ceres_ext::kernels {
namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;
using Doubles = std::vector<double>;

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

class PreconditionerTest : public MachineTest {
 protected:
  template <int N, typename T>
  static BlockArray<T> Blocks(int64_t num_blocks, T* packed) {
    return PackedBlocks(
        {N, static_cast<int32_t>(num_blocks)}, Machine::kLayout, packed);
  }

  // a, in host layout, becomes its inverse, by another array or in place. The
  // first block that has none. diagonal: empty for none.
  template <int N>
  int32_t Invert(const Doubles& diagonal, Doubles* a, bool in_place = true) {
    auto on_a = Upload(InLayout(*a, PackedSize(N)));
    auto other = Poisoned<double>(on_a.size());
    auto& inverse = in_place ? on_a : other;
    const auto on_diagonal = Upload(diagonal);
    auto first = Upload(std::vector<int32_t>{Breakdown::kNone});
    InvertBlocksParams<N> params;
    params.n = on_a.size() / PackedSize(N);
    params.a = Blocks<N, const double>(params.n, on_a.data());
    params.diagonal = diagonal.empty() ? nullptr : on_diagonal.data();
    params.inverse = Blocks<N>(params.n, inverse.data());
    params.may_be_diagonal = true;
    params.first_breakdown = first.data();
    RunOk(params);
    *a = FromLayout(Download(inverse), PackedSize(N));
    return Download(first)[0];
  }

  // z = inverse r, by scalars, if z is `before` at first.
  template <int N>
  Doubles Apply(const Doubles& inverse,
                const Doubles& r,
                const Doubles& before,
                const PcgScalars& scalars = {}) {
    const auto on_inverse = Upload(InLayout(inverse, PackedSize(N)));
    const auto on_r = Upload(r);
    const auto on_scalars = Upload(std::vector<PcgScalars>{scalars});
    ApplyBlocksParams<N> params;
    params.n = static_cast<int64_t>(r.size()) / N;
    params.a = Blocks<N, const double>(params.n, on_inverse.data());
    params.r = on_r.data();
    params.scalars = on_scalars.data();
    return Repeat({{static_cast<int64_t>(r.size()), 1, &before}},
                  [&](const std::vector<double*>& out) {
                    params.z = out[0];
                    return kernels::Run(params, machine());
                  })[0];
  }

  template <int N>
  void ExpectInverses(int num_blocks);
};

TEST_F(PreconditionerTest, ByHand) {
  // diag(1, 2, 3) + diag(1, 1, 1)^2, and a zero block.
  Doubles a = {1, 0, 2, 0, 0, 3, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(Invert<3>({1, 1, 1, 2, 0, 0}, &a), Breakdown::kNone);
  EXPECT_DOUBLE_EQ(a[0], 0.5);
  EXPECT_DOUBLE_EQ(a[2], 1.0 / 3);
  EXPECT_DOUBLE_EQ(a[5], 0.25);
  EXPECT_DOUBLE_EQ(a[6], 0.25);
  EXPECT_DOUBLE_EQ(a[8], 1.0);

  const Doubles r = {2, 3, 4, 4, 5, 6};
  const Doubles before(6, -1.0);
  const Doubles z = Apply<3>(a, r, before);
  for (int i = 0; i < 4; ++i) {
    EXPECT_DOUBLE_EQ(z[i], 1.0);
  }
  EXPECT_DOUBLE_EQ(z[4], 5.0);

  PcgScalars ended;
  ended.end = PcgEnd::kResidual;
  EXPECT_EQ(Apply<3>(a, r, before, ended), before);
}

TEST_F(PreconditionerTest, IndefiniteBlockBecomesItsDiagonal) {
  Doubles a = {1, 2, 2, 0, 0, 4};
  EXPECT_EQ(Invert<3>({}, &a, /*in_place=*/false), Breakdown::kNone);
  EXPECT_THAT(a, testing::ElementsAre(1, 0, 0.5, 0, 0, 0.25));
}

TEST_F(PreconditionerTest, NamesTheFirstBlockThatHasNoDiagonal) {
  const int num_blocks = 3000;
  Doubles a(6 * num_blocks, 0.0);
  for (int i = 0; i < num_blocks; ++i) {
    a[6 * i] = a[6 * i + 2] = a[6 * i + 5] = 1.0;
  }
  a[6 * 2999] = -1.0;
  a[6 * 1234 + 2] = std::numeric_limits<double>::quiet_NaN();
  a[6 * 2000 + 5] = std::numeric_limits<double>::infinity();
  EXPECT_EQ(Invert<3>({}, &a, /*in_place=*/false), 1234);
}

TEST_F(PreconditionerTest, NoBlocks) {
  Doubles none;
  EXPECT_EQ(Invert<9>({}, &none), Breakdown::kNone);
}

// Blocks B'B + I of random B, and D. Block 3 is zero, without D. Block 50 has a
// positive diagonal and is indefinite; of block 59 D^2 alone is left, and of
// block 60, which has no D, nothing.
template <int N>
void PreconditionerTest::ExpectInverses(int num_blocks) {
  const auto random = RandomVector(N * N * num_blocks, 51);
  Doubles diagonal = RandomVector(N * num_blocks, 53);
  const Doubles r = RandomVector(N * num_blocks, 52);
  Doubles a(static_cast<size_t>(PackedSize(N)) * num_blocks);
  Doubles expected(a.size());
  std::vector<Running<double>> running(a.size());
  for (int b = 0; b < num_blocks; ++b) {
    const Eigen::Map<const MatrixXd> factor(&random[N * N * b], N, N);
    MatrixXd block = factor.transpose() * factor + MatrixXd::Identity(N, N);
    Eigen::Map<VectorXd> d(&diagonal[N * b], N);
    block *= b == 3 ? 0.0 : b == 59 || b == 60 ? -1.0 : 1.0;
    if (b == 3 || b == 60) {
      d.setZero();
    }
    if (b == 50) {
      block(1, 0) = block(0, 1) = 1e3;
    }
    MatrixXd damped = block;
    damped.diagonal() += d.cwiseAbs2();
    if (b == 3) {
      damped.setIdentity();
    } else if (b == 50) {
      damped = MatrixXd(damped.diagonal().asDiagonal());
    } else if (b == 59) {
      damped = MatrixXd(d.cwiseAbs2().asDiagonal());
    }
    const MatrixXd inverse = damped.llt().solve(MatrixXd::Identity(N, N));
    for (int i = 0; i < N; ++i) {
      for (int j = 0; j <= i; ++j) {
        a[PackedSize(N) * b + PackedIndex(i, j)] = block(i, j);
        expected[PackedSize(N) * b + PackedIndex(i, j)] = inverse(i, j);
      }
    }
    // A is exact except for the addition of D^2.
    const VectorXd squares =
        b == 60 ? VectorXd(VectorXd::Ones(N)) : VectorXd(damped.diagonal());
    RunningInverse<N>(&expected[PackedSize(N) * b],
                      squares.data(),
                      kEpsilon,
                      &running[PackedSize(N) * b]);
  }
  EXPECT_EQ(Invert<N>(diagonal, &a), num_blocks > 60 ? 60 : Breakdown::kNone);
  // The block without an inverse may hold anything.
  for (Doubles* values : {&a, &expected}) {
    if (num_blocks > 60) {
      std::fill_n(values->begin() + 60 * PackedSize(N), PackedSize(N), 0.0);
    }
  }
  EXPECT_TRUE(Close(a, expected, running));

  const Doubles z = Apply<N>(expected, r, Doubles(r.size(), -1.0));
  std::vector<Running<double>> running_z(z.size());
  Doubles expected_z;
  for (size_t at = 0; at < z.size(); ++at) {
    const size_t b = at / N;
    const int i = static_cast<int>(at % N);
    for (int j = 0; j < N; ++j) {
      const int element = j <= i ? PackedIndex(i, j) : PackedIndex(j, i);
      running_z[at] += Running<double>(expected[PackedSize(N) * b + element]) *
                       Running<double>(r[N * b + j]);
    }
    expected_z.push_back(running_z[at].value);
  }
  EXPECT_TRUE(Close(z, expected_z, running_z));
}

TEST_F(PreconditionerTest, Inverses) {
  for (const int num_blocks : {1, 31, 32, 33, 67}) {
    SCOPED_TRACE(num_blocks);
    ExpectInverses<3>(num_blocks);
    ExpectInverses<9>(num_blocks);
    ExpectInverses<10>(num_blocks);
  }
}

#ifndef CERES_EXT_TEST_ON_CUDA
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

#endif

}  // namespace
}  // namespace ceres_ext::kernels
