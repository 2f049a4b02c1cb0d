// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The expected times of factorisations against those measured on an H200
// (docs/measurements/study_exact_tuning.md).

#include "ceres_ext/solver/cholesky/factorization_cost.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "gtest/gtest.h"

namespace ceres_ext::solver {
namespace {

constexpr int kRatio = 2;

// Time of a factorisation and a solve.
struct Dense {
  int64_t n;
  double seconds;
};
constexpr Dense kDense[] = {{936, 0.532e-3},
                            {4392, 2.73e-3},
                            {8136, 8.45e-3},
                            {15507, 39.8e-3},
                            {16002, 37.4e-3},
                            {41265, 570e-3}};

struct Sparse {
  int64_t n;
  int64_t num_values;
  int64_t num_factor_values;
  int64_t num_flops;
  double seconds;
};
// Graphs made for it, with cuDSS alone.
constexpr Sparse kProbe[] = {
    {4500, 1155852, 3315009, 2469367833, 6.24e-3},
    {15507, 1909188, 5063560, 1908238163, 7.34e-3},
    {15507, 3590019, 12318954, 12135232231, 17.7e-3},
    {15507, 8258292, 32036437, 78208676438, 39.4e-3},
    {15507, 20073600, 89415463, 572815670638, 84.8e-3},
    {41265, 9620793, 46916346, 84344719259, 44.8e-3},
    {41265, 33413733, 177985937, 1122988351610, 150.5e-3}};
// This library's solves, which do not report the operations.
constexpr Sparse kSolves[] = {{15507, 1700000, 3500000, 0, 3.02e-3},
                              {15507, 4550000, 7750000, 0, 8.45e-3},
                              {15507, 4562500, 7562500, 0, 6.94e-3},
                              {15507, 7112500, 11150000, 0, 14.0e-3},
                              {15507, 47000000, 93500000, 0, 105e-3},
                              {41265, 18875000, 33375000, 0, 32.7e-3}};

TEST(FactorizationCost, IsNearWhatWasMeasured) {
  for (const Dense& of : kDense) {
    const double ratio = DenseFactorizationSeconds(of.n, kRatio) / of.seconds;
    EXPECT_GT(ratio, 0.8) << of.n;
    EXPECT_LT(ratio, 1.25) << of.n;
  }
  const auto expect_near = [](const Sparse& of) {
    const double ratio =
        SparseFactorizationSeconds(of.num_factor_values, of.num_flops, kRatio) /
        of.seconds;
    EXPECT_GT(ratio, 0.7) << of.num_factor_values;
    EXPECT_LT(ratio, 1.6) << of.num_factor_values;
  };
  std::for_each(std::begin(kProbe), std::end(kProbe), expect_near);
  std::for_each(std::begin(kSolves), std::end(kSolves), expect_near);
}

// If both were measured the choice is at most a fifth slower than the better
// one.
TEST(FactorizationCost, ChoosesTheBetter) {
  int num_sparse = 0;
  int num_dense = 0;
  const auto choose = [&](const Sparse& sparse) {
    for (const Dense& dense : kDense) {
      if (dense.n != sparse.n && !(dense.n == 4392 && sparse.n == 4500)) {
        continue;
      }
      const bool is_sparse =
          SparseMayBeFaster(sparse.n, sparse.num_values, kRatio) &&
          SparseIsFaster(
              sparse.n, sparse.num_factor_values, sparse.num_flops, kRatio);
      const double chosen = is_sparse ? sparse.seconds : dense.seconds;
      EXPECT_LE(chosen, 1.2 * std::min(sparse.seconds, dense.seconds))
          << sparse.n << ", " << sparse.num_values;
      ++(is_sparse ? num_sparse : num_dense);
    }
  };
  std::for_each(std::begin(kProbe), std::end(kProbe), choose);
  std::for_each(std::begin(kSolves), std::end(kSolves), choose);
  EXPECT_GE(num_sparse, 9);
  EXPECT_GE(num_dense, 3);
}

// Nothing is analysed where there is nothing to gain.
TEST(FactorizationCost, SmallIsDense) {
  EXPECT_FALSE(SparseMayBeFaster(4000, 40000, kRatio));
  EXPECT_TRUE(SparseMayBeFaster(6000, 60000, kRatio));
  EXPECT_FALSE(SparseMayBeFaster(15507, 15507ll * 7753, kRatio));
}

// If double is slow, a full matrix is affected more.
TEST(FactorizationCost, SlowDoubleIsForSparse) {
  EXPECT_GT(DenseFactorizationSeconds(4392, 64),
            4.0 * DenseFactorizationSeconds(4392, kRatio));
  const Sparse& sparse = kProbe[0];
  EXPECT_LT(SparseFactorizationSeconds(
                sparse.num_factor_values, sparse.num_flops, 64),
            DenseFactorizationSeconds(sparse.n, 64));
  EXPECT_GT(SparseFactorizationSeconds(
                sparse.num_factor_values, sparse.num_flops, kRatio),
            DenseFactorizationSeconds(sparse.n, kRatio));
  // An unknown ratio is taken for the best.
  EXPECT_EQ(DenseFactorizationSeconds(4392, 0),
            DenseFactorizationSeconds(4392, kRatio));
}

}  // namespace
}  // namespace ceres_ext::solver
