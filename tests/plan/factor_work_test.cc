// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The work of factors of S, from the pattern of its blocks: against a symbolic
// factorisation of all elements.

#include "ceres_ext/plan/factor_work.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "ceres_ext/plan/device_choice.h"
#include "cuda_kernels/base/machine_rates.h"
#include "cuda_kernels/machine/host_cholesky.h"
#include "gtest/gtest.h"

namespace ceres_ext {
namespace {

constexpr int64_t kTile = kernels::HostDenseCholesky::kTile;

int64_t NumColumns(const BlockPattern& pattern) {
  int64_t n = 0;
  for (const int32_t size : pattern.size) {
    n += size;
  }
  return n;
}

// The tiles of the factor, by eliminating tile columns one after the other from
// the elements.
solver::FactorWork TilesOfElements(const BlockPattern& pattern) {
  const int64_t n = NumColumns(pattern);
  const int64_t num_tiles = (n + kTile - 1) / kTile;
  std::vector<int64_t> block_of;
  for (size_t b = 0; b < pattern.size.size(); ++b) {
    block_of.insert(block_of.end(), pattern.size[b], static_cast<int64_t>(b));
  }
  std::vector<std::vector<bool>> coupled(
      pattern.size.size(), std::vector<bool>(pattern.size.size(), false));
  for (const auto& [i, j] : pattern.cells) {
    coupled[i][j] = true;
  }
  std::vector<std::vector<bool>> is_set(num_tiles,
                                        std::vector<bool>(num_tiles, false));
  for (int64_t i = 0; i < n; ++i) {
    is_set[i / kTile][i / kTile] = true;
    for (int64_t j = 0; j <= i; ++j) {
      if (coupled[block_of[i]][block_of[j]]) {
        is_set[i / kTile][j / kTile] = true;
      }
    }
  }
  solver::FactorWork work;
  for (int64_t k = 0; k < num_tiles; ++k) {
    for (int64_t i = k + 1; i < num_tiles; ++i) {
      for (int64_t j = k + 1; j <= i; ++j) {
        if (is_set[i][k] && is_set[j][k]) {
          is_set[i][j] = true;
          ++work.num_tile_products;
        }
      }
    }
  }
  for (const auto& row : is_set) {
    work.num_tiles +=
        static_cast<double>(std::count(row.begin(), row.end(), true));
  }
  return work;
}

TEST(FactorWork, TilesAreThoseOfTheElements) {
  std::mt19937 random(7);
  for (int k = 0; k < 60; ++k) {
    BlockPattern pattern;
    const int num_blocks = 1 + static_cast<int>(random() % 90);
    for (int b = 0; b < num_blocks; ++b) {
      pattern.size.push_back(1 + static_cast<int32_t>(random() % 16));
    }
    const int reach = 1 + static_cast<int>(random() % 30);
    for (int i = 0; i < num_blocks; ++i) {
      pattern.cells.emplace_back(i, i);
      for (int j = 0; j < i; ++j) {
        // Bands, and a few cells anywhere.
        if (i - j < reach || random() % 200 == 0) {
          pattern.cells.emplace_back(i, j);
        }
      }
    }
    const solver::FactorWork expected = TilesOfElements(pattern);
    const solver::FactorWork work = CountFactorWork(pattern);
    EXPECT_EQ(work.num_tiles, expected.num_tiles) << k;
    EXPECT_EQ(work.num_tile_products, expected.num_tile_products) << k;
    const auto n = static_cast<double>(NumColumns(pattern));
    EXPECT_GE(work.sparse.num_values, n);
    EXPECT_LE(work.sparse.num_values, 0.5 * n * (n + 1.0));
    // Cells of the diagonal may be left out.
    BlockPattern without = pattern;
    without.cells.clear();
    for (const auto& cell : pattern.cells) {
      if (cell.first != cell.second) {
        without.cells.push_back(cell);
      }
    }
    EXPECT_EQ(CountFactorWork(without).sparse.num_values,
              work.sparse.num_values)
        << k;
  }
}

TEST(FactorWork, OfNothingIsNothing) {
  const solver::FactorWork work = CountFactorWork({});
  EXPECT_EQ(work.num_tiles, 0.0);
  EXPECT_EQ(work.sparse.num_values, 0.0);
}

// A graph of 1,250 poses along a path, each with a closure 25 poses back: a
// band of 150 columns in 7,500. By its products alone, without its pattern, an
// exact step was taken to cost 427 iterations.
TEST(FactorWork, ExactStepsOfAPathAreCheap) {
  BlockPattern pattern;
  for (int i = 0; i < 1250; ++i) {
    pattern.size.push_back(6);
    for (const int back : {0, 1, 25}) {
      if (i >= back) {
        pattern.cells.emplace_back(i, i - back);
      }
    }
  }
  SolveWork work;
  work.num_values = 72 * 5000;
  work.num_general_rows = 5000;
  work.num_steps = 10;
  work.num_pcg_iterations = 20;
  work.num_factorized_columns = 7500;
  work.num_coupling_products = 81.0 * 12500.0;
  work.has_pairs = true;
  const kernels::MachineRates rates;
  const double without =
      EstimateExactStepCost(work, rates, /*on_device=*/false).step;
  work.factor = CountFactorWork(pattern);
  const double with =
      EstimateExactStepCost(work, rates, /*on_device=*/false).step;
  EXPECT_GT(without, 300.0);
  EXPECT_LT(with, 40.0);
  // In a bad order the sparse factor, which has an order of its own, is taken.
  std::vector<int32_t> place(1250);
  for (int i = 0; i < 1250; ++i) {
    place[i] = 617 * i % 1250;
  }
  for (auto& [i, j] : pattern.cells) {
    const auto [low, high] = std::minmax(place[i], place[j]);
    i = high;
    j = low;
  }
  const solver::FactorWork shuffled = CountFactorWork(pattern);
  EXPECT_GT(shuffled.num_tile_products, 10.0 * work.factor.num_tile_products);
  EXPECT_NEAR(shuffled.sparse.num_values,
              work.factor.sparse.num_values,
              0.3 * work.factor.sparse.num_values);
}

}  // namespace
}  // namespace ceres_ext
