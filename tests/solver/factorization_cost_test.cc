// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The expected times of factorisations against those measured on an H200
// (docs/measurements/study_exact_tuning.md) and on a host.

#include "ceres_ext/solver/cholesky/factorization_cost.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <vector>

#include "gtest/gtest.h"

namespace ceres_ext::solver {
namespace {

const kernels::MachineRates kRates;

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
    const double ratio = DenseFactorizationSeconds(of.n, kRates) / of.seconds;
    EXPECT_GT(ratio, 0.8) << of.n;
    EXPECT_LT(ratio, 1.25) << of.n;
  }
  const auto expect_near = [](const Sparse& of) {
    const double ratio =
        SparseFactorizationSeconds(of.num_factor_values, of.num_flops, kRates) /
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
          SparseMayBeFaster(sparse.n, sparse.num_values, kRates) &&
          SparseIsFaster(
              sparse.n, sparse.num_factor_values, sparse.num_flops, kRates);
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
  EXPECT_FALSE(SparseMayBeFaster(4000, 40000, kRates));
  EXPECT_TRUE(SparseMayBeFaster(6000, 60000, kRates));
  EXPECT_FALSE(SparseMayBeFaster(15507, 15507ll * 7753, kRates));
}

// A factor of float is for cards with slow double and matrices of thousands of
// columns: an iteration has its own price.
TEST(FactorizationCost, FloatIsForSlowDouble) {
  const kernels::MachineRates slow = kernels::RatesOfRatio(64);
  for (const int64_t n : {0, 1, 900, 100000}) {
    EXPECT_FALSE(FloatFactorIsFaster(n, kRates)) << n;
    EXPECT_EQ(FloatFactorIsFaster(n, slow), n > 10000) << n;
  }
}

// If double is slow, a full matrix is affected more.
TEST(FactorizationCost, SlowDoubleIsForSparse) {
  const kernels::MachineRates slow = kernels::RatesOfRatio(64);
  EXPECT_GT(DenseFactorizationSeconds(4392, slow),
            4.0 * DenseFactorizationSeconds(4392, kRates));
  const Sparse& sparse = kProbe[0];
  EXPECT_LT(SparseFactorizationSeconds(
                sparse.num_factor_values, sparse.num_flops, slow),
            DenseFactorizationSeconds(sparse.n, slow));
  EXPECT_GT(SparseFactorizationSeconds(
                sparse.num_factor_values, sparse.num_flops, kRates),
            DenseFactorizationSeconds(sparse.n, kRates));
  // An unknown ratio is taken for the best.
  EXPECT_EQ(DenseFactorizationSeconds(4392, kernels::RatesOfRatio(0)),
            DenseFactorizationSeconds(4392, kRates));
  // A factor of float does not take double's time.
  EXPECT_EQ(DenseFactorizationSeconds(4392, slow, /*float_factor=*/true),
            DenseFactorizationSeconds(4392, kRates));
}

// The lower triangle of the cells that are set, each of size x size values.
class Pattern {
 public:
  Pattern(int64_t num_blocks,
          int64_t size,
          const std::function<bool(int64_t, int64_t)>& is_set) {
    for (int64_t row = 0; row < num_blocks * size; ++row) {
      for (int64_t column = 0; column <= row; ++column) {
        if (is_set(row / size, column / size)) {
          column_.push_back(static_cast<int32_t>(column));
        }
      }
      row_begin_.push_back(static_cast<int64_t>(column_.size()));
    }
  }
  kernels::LowerCsr csr() const {
    return {static_cast<int64_t>(row_begin_.size()) - 1,
            row_begin_.back(),
            row_begin_.data(),
            column_.data()};
  }

 private:
  std::vector<int64_t> row_begin_ = {0};
  std::vector<int32_t> column_;
};

constexpr double kNever = 1e300;

// Products of tiles of a dense factorisation, by hand.
TEST(HostFactorizationCost, CountsTilesThatAreNotZero) {
  constexpr int64_t kTile = 64;
  const auto products = [](int64_t num_tiles, const auto& is_set) {
    const Pattern pattern(num_tiles, kTile, [&](int64_t i, int64_t j) {
      return i == j || is_set(i, j);
    });
    kernels::HostDenseCholesky::Tiles tiles;
    const double seconds = HostDenseSeconds(pattern.csr(), kNever, &tiles);
    const auto num_set =
        static_cast<double>(std::count(tiles.begin(), tiles.end(), 1));
    return (seconds - kHostSecondsPerDenseValue * kTile * kTile * num_set) /
           HostSecondsPerTileProduct(kTile * num_tiles);
  };
  EXPECT_NEAR(products(4, [](int64_t, int64_t) { return false; }), 0.0, 1e-9);
  // Panels with 3, 2 and 1 tiles below the diagonal.
  EXPECT_NEAR(products(4, [](int64_t, int64_t) { return true; }), 10.0, 1e-9);
  EXPECT_NEAR(
      products(4, [](int64_t i, int64_t j) { return i == j + 1; }), 3.0, 1e-9);
  // An arrow fills nothing where it comes last, and all where it comes first.
  EXPECT_NEAR(
      products(5, [](int64_t i, int64_t) { return i == 4; }), 4.0, 1e-9);
  EXPECT_NEAR(
      products(5, [](int64_t, int64_t j) { return j == 0; }), 20.0, 1e-9);
}

// It ends early where it is known that it takes too long.
TEST(HostFactorizationCost, EndsEarly) {
  const Pattern pattern(300, 6, [](int64_t, int64_t) { return true; });
  kernels::HostDenseCholesky::Tiles tiles;
  const double all = HostDenseSeconds(pattern.csr(), kNever, &tiles);
  const double enough = 0.5 * all;
  const double early = HostDenseSeconds(pattern.csr(), enough, &tiles);
  EXPECT_GE(early, enough);
  EXPECT_LT(early, all);
}

// Matrices of blocks of 3 in milliseconds of one thread: what the factor has by
// approximate minimum degree, dense with all its zeros set and read, and by
// SuiteSparse.
struct Measured {
  int64_t n;
  FactorSize size;
  double products;  // of tiles
  double dense;
  double sparse;
};
constexpr Measured kMeasured[] = {
    {600, {5.37e3, 4.82e4}, 9, 0.549, 0.08},     // band2
    {600, {5.37e3, 4.82e4}, 165, 2.16, 0.078},   // shuffled band2
    {999, {2.66e4, 7.16e5}, 15, 1.33, 0.639},    // band8
    {999, {2.67e4, 7.17e5}, 680, 9.25, 0.637},   // shuffled band8
    {999, {1.05e5, 2.37e7}, 680, 9.21, 9.27},    // random2
    {999, {3.79e5, 2e8}, 680, 9.22, 65.8},       // random20
    {972, {4e4, 2.04e6}, 15, 1.21, 1.36},        // grid
    {999, {8.19e4, 8.43e6}, 43, 1.64, 4.64},     // local
    {1890, {1.72e5, 1.58e7}, 85, 8.8, 12.4},     // band30
    {1890, {1.69e5, 4.61e7}, 4285, 67.1, 18.6},  // random1
    {1890, {3.48e5, 1.57e8}, 4411, 68.6, 62},    // random2
    {1890, {7.8e5, 5.76e8}, 4495, 74, 202},      // random6
    {1890, {4.51e4, 1.08e6}, 85, 6.33, 1.07},    // arrow
    {1875, {1.01e5, 7.71e6}, 85, 6.11, 3.82},    // grid
    {3000, {2.7e4, 2.43e5}, 16950, 273, 0.379},  // shuffled band2
    {3000, {2.75e5, 2.54e7}, 136, 18.5, 16.1},   // band30
    {3000, {3.9e5, 1.77e8}, 16324, 309, 62.5},   // random1
    {3000, {1.83e6, 2.12e9}, 17250, 330, 739},   // random6
};

// At most a fifth more than the better, and both within a factor of two.
TEST(HostFactorizationCost, ChoosesTheBetter) {
  int num_sparse = 0;
  for (const Measured& of : kMeasured) {
    const auto n = static_cast<double>(of.n);
    const double dense = 1e3 * (0.5 * kHostSecondsPerDenseValue * n * n +
                                HostSecondsPerTileProduct(of.n) * of.products);
    const double sparse = 1e3 * HostSparseSeconds(of.size);
    EXPECT_GT(dense, 0.5 * of.dense) << of.n << ", " << of.size.num_values;
    EXPECT_LT(dense, 2.0 * of.dense) << of.n << ", " << of.size.num_values;
    EXPECT_GT(sparse, 0.5 * of.sparse) << of.n << ", " << of.size.num_values;
    EXPECT_LT(sparse, 2.0 * of.sparse) << of.n << ", " << of.size.num_values;
    const bool is_sparse = sparse < dense;
    num_sparse += is_sparse ? 1 : 0;
    EXPECT_LE(is_sparse ? of.sparse : of.dense,
              1.2 * std::min(of.sparse, of.dense))
        << of.n << ", " << of.size.num_values;
  }
  EXPECT_GE(num_sparse, 5);
  EXPECT_LE(num_sparse, static_cast<int>(std::size(kMeasured)) - 5);
}

// The pattern of a full matrix, and of one of few columns, is not listed.
TEST(HostFactorizationCost, FullAndSmallAreDense) {
  EXPECT_FALSE(SparseMayBeFasterOnHost(0, 0));
  EXPECT_FALSE(SparseMayBeFasterOnHost(6, 21));
  EXPECT_FALSE(SparseMayBeFasterOnHost(100, 500));
  EXPECT_FALSE(SparseMayBeFasterOnHost(1890, 1890 * 945));
  EXPECT_FALSE(SparseMayBeFasterOnHost(20000, 200000000));
  EXPECT_TRUE(SparseMayBeFasterOnHost(1890, 33000));
}

}  // namespace
}  // namespace ceres_ext::solver
