// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "cuda_kernels/machine/host_context.h"
#include "cuda_kernels/structure/block_families.h"
#include "cuda_kernels/structure/block_rows.h"
#include "gtest/gtest.h"

namespace ceres_ext::kernels {
namespace {

// One family of blocks; row i has a cell of block block_of_row[i].
std::vector<BlockList> MakeLists(int num_blocks,
                                 const std::vector<int32_t>& block_of_row,
                                 const int32_t* pair_of_row,
                                 HostContext* context) {
  BlockFamilies families;
  families.Add(3, num_blocks);
  std::vector<BlockList> lists;
  EXPECT_TRUE(MakeBlockLists(
                  families,
                  static_cast<int64_t>(block_of_row.size()),
                  [&](int64_t i, auto&& fn) {
                    const auto row = static_cast<int32_t>(i);
                    fn(FamilyCell{0, block_of_row[i], {3 * i, row, 3}});
                  },
                  pair_of_row,
                  context,
                  &lists)
                  .ok());
  return lists;
}

// The cells block by block in the order of their rows, cut so that neighbours
// of one pair stay together, the same for any number of threads.
TEST(BlockLists, SegmentsKeepPairsTogether) {
  constexpr int kRows = 400000;  // more than kFewCells
  constexpr int kBlocks = 7;
  std::mt19937 generator(1);
  std::vector<int32_t> block_of_row(kRows);
  std::vector<int32_t> pair_of_row(kRows);
  int32_t pair = 0;
  for (int i = 0; i < kRows; ++i) {
    // No row has block 3, and some have no pair.
    const auto block = static_cast<int32_t>(generator() % (kBlocks - 1));
    block_of_row[i] = block < 3 ? block : block + 1;
    pair += generator() % 5 == 0 ? 1 : 0;
    pair_of_row[i] = pair % 11 == 0 ? -1 : pair;
  }
  // A pair of more rows than several segments.
  std::fill_n(pair_of_row.begin() + 1000, 5000, kRows);

  HostContext one(1);
  HostContext four(4);
  const BlockList* expected = nullptr;
  std::vector<BlockList> of_each[3];
  for (HostContext* context :
       {static_cast<HostContext*>(nullptr), &one, &four}) {
    std::vector<BlockList>& lists = of_each[context == nullptr            ? 0
                                            : context->num_threads() == 1 ? 1
                                                                          : 2];
    lists = MakeLists(kBlocks, block_of_row, pair_of_row.data(), context);
    ASSERT_EQ(lists.size(), 1u);
    const BlockList& list = lists[0];
    EXPECT_EQ(list.block, (std::vector<int32_t>{0, 1, 2, 4, 5, 6}));
    ASSERT_EQ(list.cells.size(), kRows);
    const BlockCell* const cells = list.cells.data();
    const auto block_at = [&](int64_t c) { return block_of_row[cells[c].row]; };
    for (int64_t c = 1; c < kRows; ++c) {
      ASSERT_LE(block_at(c - 1), block_at(c));
      ASSERT_TRUE(block_at(c - 1) < block_at(c) ||
                  cells[c - 1].row < cells[c].row);
    }
    const std::vector<int64_t>& begin = list.segment_begin;
    ASSERT_EQ(static_cast<int64_t>(begin.size()), list.sizes.num_segments + 1);
    EXPECT_EQ(begin.front(), 0);
    EXPECT_EQ(begin.back(), kRows);
    int64_t longest = 0;
    for (size_t s = 1; s < begin.size(); ++s) {
      ASSERT_LT(begin[s - 1], begin[s]);
      longest = std::max(longest, begin[s] - begin[s - 1]);
      ASSERT_EQ(block_at(begin[s - 1]), block_at(begin[s] - 1));
      if (s + 1 < begin.size() &&
          block_at(begin[s] - 1) == block_at(begin[s])) {
        const int32_t before = pair_of_row[cells[begin[s] - 1].row];
        ASSERT_TRUE(before < 0 || before != pair_of_row[cells[begin[s]].row]);
      }
    }
    // The long pair has about a sixth of 5000 cells of a block.
    EXPECT_GT(longest, 2 * kSegmentCells);
    EXPECT_LT(longest, 5000);
    expected = expected == nullptr ? &list : expected;
    EXPECT_EQ(begin, expected->segment_begin);
    EXPECT_EQ(list.levels, expected->levels);
  }
}

// Without pairs all segments of a block but the last have as many cells.
TEST(BlockLists, SegmentsWithoutPairs) {
  HostContext context(2);
  const std::vector<int32_t> block_of_row(1000, 2);
  const std::vector<BlockList> lists =
      MakeLists(4, block_of_row, nullptr, &context);
  ASSERT_EQ(lists.size(), 1u);
  const std::vector<int64_t>& begin = lists[0].segment_begin;
  ASSERT_EQ(begin.size(), 64u);
  for (size_t s = 0; s < 63; ++s) {
    EXPECT_EQ(begin[s], static_cast<int64_t>(kSegmentOfFewCells * s));
  }
  EXPECT_EQ(begin[63], 1000);
}

TEST(BlockLists, NoCells) {
  BlockFamilies families;
  families.Add(3, 1000);
  std::vector<BlockList> lists(2);
  ASSERT_TRUE(MakeBlockLists(families, {}, nullptr, &lists).ok());
  EXPECT_TRUE(lists.empty());
}

}  // namespace
}  // namespace ceres_ext::kernels
