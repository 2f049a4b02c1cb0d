// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Building a problem in the patched Ceres, whose parameter blocks are found
// without the map.

#include <algorithm>
#include <random>
#include <vector>

#include "ceres/problem.h"
#include "gtest/gtest.h"
#include "tests/patches/difference_cost_function.h"

namespace ceres_ext {
namespace {

TEST(BuildingAProblem, FindsBlocksThatWereRemovedAndAddedAgain) {
  constexpr int kNum = 5000;
  std::vector<double> values(3 * kNum, 1.0);
  Difference cost_function;
  ceres::Problem::Options options;
  options.cost_function_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
  options.enable_fast_removal = true;
  ceres::Problem problem(options);
  const auto block = [&](int i) { return &values[3 * i]; };
  std::mt19937 random(4);
  // For each block its size; 0 if it is not in the problem.
  std::vector<int> sizes(kNum, 0);
  int num_rows = 0;
  for (int round = 0; round < 60000; ++round) {
    const int a = static_cast<int>(random() % kNum);
    const int b = static_cast<int>(random() % kNum);
    if (random() % 8 == 0) {
      if (sizes[a] != 0) {
        std::vector<ceres::ResidualBlockId> rows;
        problem.GetResidualBlocksForParameterBlock(block(a), &rows);
        num_rows -= static_cast<int>(rows.size());
        problem.RemoveParameterBlock(block(a));
        sizes[a] = 0;
      }
    } else if (a != b && (sizes[a] == 0 || sizes[a] == 3) &&
               (sizes[b] == 0 || sizes[b] == 2)) {
      const ceres::ResidualBlockId row =
          problem.AddResidualBlock(&cost_function, nullptr, block(a), block(b));
      sizes[a] = 3;
      sizes[b] = 2;
      ++num_rows;
      std::vector<double*> blocks;
      problem.GetParameterBlocksForResidualBlock(row, &blocks);
      ASSERT_EQ(blocks, (std::vector<double*>{block(a), block(b)}));
    }
  }
  EXPECT_EQ(problem.NumResidualBlocks(), num_rows);
  int num_blocks = 0;
  for (int i = 0; i < kNum; ++i) {
    ASSERT_EQ(problem.HasParameterBlock(block(i)), sizes[i] != 0);
    if (sizes[i] != 0) {
      ++num_blocks;
      ASSERT_EQ(problem.ParameterBlockSize(block(i)), sizes[i]);
    }
  }
  EXPECT_EQ(problem.NumParameterBlocks(), num_blocks);
  EXPECT_GT(num_blocks, kNum / 2);
  std::vector<double*> listed;
  problem.GetParameterBlocks(&listed);
  EXPECT_TRUE(std::is_sorted(listed.begin(), listed.end()));
}

TEST(BuildingAProblemDeathTest, StillFindsAliasesAndOtherSizes) {
  std::vector<double> values(6000, 1.0);
  ceres::Problem problem;
  for (int i = 0; i < 2000; ++i) {
    problem.AddParameterBlock(&values[3 * i], 3);
    problem.AddParameterBlock(&values[3 * i], 3);
  }
  EXPECT_DEATH(problem.AddParameterBlock(&values[301], 2), "Aliasing detected");
  EXPECT_DEATH(problem.AddParameterBlock(&values[300], 2),
               "different block sizes");
}

}  // namespace
}  // namespace ceres_ext
