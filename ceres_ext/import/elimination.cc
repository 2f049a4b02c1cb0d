// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/import/elimination.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <utility>

#include "ceres_ext/import/problem_structure.h"

namespace ceres_ext {

namespace {

// Which blocks occur in a row together: neighbours.
class BlockGraph {
 public:
  // is_left_out: as for IndependentSet. Both outlive the graph.
  BlockGraph(const ProblemRows& rows, const std::vector<uint8_t>& is_left_out)
      : rows_(rows),
        is_left_out_(is_left_out),
        begin_(static_cast<size_t>(rows.num_blocks()) + 1, 0) {
    const int32_t n = rows.num_blocks();
    for (int64_t i = 0; i < rows.size(); ++i) {
      ForEachBlock(i, [&](int32_t b) { ++begin_[b + 1]; });
    }
    std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
    rows_of_.resize(begin_[n]);
    std::vector<int64_t> end(begin_.begin(), begin_.end() - 1);
    for (int64_t i = 0; i < rows.size(); ++i) {
      ForEachBlock(
          i, [&](int32_t b) { rows_of_[end[b]++] = static_cast<int32_t>(i); });
    }
  }

  // Calls fn(index) of neighbours of block b, some of them several times, and
  // of the block itself.
  template <typename Function>
  void ForEachNeighbor(int b, Function&& fn) const {
    for (int64_t k = begin_[b]; k < begin_[b + 1]; ++k) {
      ForEachBlock(rows_of_[k], fn);
    }
  }

  // The sum of of_block(index) over each block and its neighbours.
  template <typename Function>
  std::vector<int64_t> Sum(Function&& of_block) const {
    const int32_t n = rows_.num_blocks();
    std::vector<int64_t> sums(n, 0);
    std::vector<int32_t> seen_by(n, -1);
    for (int b = 0; b < n; ++b) {
      ForEachNeighbor(b, [&](int other) {
        if (seen_by[other] != b) {
          seen_by[other] = b;
          sums[b] += of_block(other);
        }
      });
    }
    return sums;
  }

  // Takes blocks by their rank, where that is equal in the order of the state,
  // unless a neighbour has been taken. Without those of more than max_size
  // tangent dimensions.
  std::vector<uint8_t> Take(const std::vector<int64_t>& rank,
                            int max_size) const {
    const int32_t n = rows_.num_blocks();
    std::vector<int32_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return rank[a] < rank[b];
    });
    std::vector<uint8_t> is_taken(n, 0);
    std::vector<uint8_t> has_taken_neighbor(n, 0);
    for (const int32_t b : order) {
      if (has_taken_neighbor[b] == 0) {
        is_taken[b] = 1;
        ForEachNeighbor(b, [&](int other) { has_taken_neighbor[other] = 1; });
      }
    }
    for (int b = 0; b < n; ++b) {
      if (rows_.block(b).tangent_size > max_size ||
          (!is_left_out_.empty() && is_left_out_[b] != 0)) {
        is_taken[b] = 0;
      }
    }
    return is_taken;
  }

 private:
  // fn(index) of each varying block of the row.
  template <typename Function>
  void ForEachBlock(int64_t row, Function&& fn) const {
    for (const int32_t block : rows_.BlocksOf(row)) {
      if (block != BlockOfRow::kConstant &&
          (is_left_out_.empty() || is_left_out_[block] == 0)) {
        fn(block);
      }
    }
  }

  const ProblemRows& rows_;
  const std::vector<uint8_t>& is_left_out_;
  std::vector<int64_t> begin_;  // of the rows of each block
  std::vector<int32_t> rows_of_;
};

// Rows of a point and other blocks are observations of views, so that of blocks
// with equally many neighbours small ones come first. Poses with intrinsics of
// their own and points that are constant: 6 images and 8,000 points take 0.6 to
// 0.7 of the time if the intrinsics are eliminated.
std::vector<uint8_t> TakeByNeighbors(const BlockGraph& graph,
                                     const ProblemRows& rows,
                                     int max_size) {
  std::vector<int64_t> rank = graph.Sum([](int32_t) { return 1; });
  for (size_t b = 0; b < rank.size(); ++b) {
    const VaryingBlock block = rows.block(static_cast<int32_t>(b));
    rank[b] = 2 * rank[b] + (block.tangent_size > kPointSize ? 1 : 0);
  }
  return graph.Take(rank, max_size);
}

std::vector<int64_t> ColumnsWithNeighbors(const BlockGraph& graph,
                                          const ProblemRows& rows) {
  return graph.Sum([&](int32_t b) { return rows.block(b).tangent_size; });
}

}  // namespace

std::vector<uint8_t> IndependentSet(const ProblemRows& rows,
                                    int max_size,
                                    const std::vector<uint8_t>& is_left_out) {
  return TakeByNeighbors(BlockGraph(rows, is_left_out), rows, max_size);
}

double FlopsOfSet(const ProblemRows& rows,
                  const std::vector<int64_t>& columns,
                  const std::vector<uint8_t>& is_eliminated) {
  double flops = 0.0;
  double num_others = 0.0;
  for (int32_t b = 0; b < rows.num_blocks(); ++b) {
    const double size = rows.block(b).tangent_size;
    if (is_eliminated[b] == 0) {
      num_others += size;
      continue;
    }
    const double others = static_cast<double>(columns[b]) - size;
    flops += size * (size * size / 3.0 + size * others + others * others);
  }
  return flops + num_others * num_others * num_others / 3.0;
}

double FlopsOfRows(const ProblemRows& rows) {
  double flops = 0.0;
  for (int64_t i = 0; i < rows.size(); ++i) {
    double of_row = 0.0;
    for (const int32_t b : rows.BlocksOf(i)) {
      of_row += b == BlockOfRow::kConstant ? 0 : rows.block(b).tangent_size;
    }
    flops += 0.5 * rows.NumResiduals(i) * of_row * of_row;
  }
  return flops;
}

std::vector<uint8_t> ChooseIndependentSet(const ProblemRows& rows,
                                          int max_size) {
  const std::vector<uint8_t> none;
  const BlockGraph graph(rows, none);
  std::vector<uint8_t> chosen = TakeByNeighbors(graph, rows, max_size);
  // S of more columns has few values, and n^3 / 3 says little of it.
  constexpr int kMostColumns = 2048;
  if (rows.num_columns() > kMostColumns) {
    return chosen;
  }
  // A block whose neighbours have few columns for each of its own.
  constexpr int64_t kParts = 1024;
  const std::vector<int64_t> columns = ColumnsWithNeighbors(graph, rows);
  std::vector<int64_t> rank = columns;
  for (size_t b = 0; b < rank.size(); ++b) {
    const int size = rows.block(static_cast<int32_t>(b)).tangent_size;
    rank[b] = kParts * rank[b] / std::max(size, 1);
  }
  std::vector<uint8_t> by_columns = graph.Take(rank, max_size);
  // A smaller gain is below what the estimate can tell.
  constexpr double kLeastGain = 1.5;
  const double flops = FlopsOfSet(rows, columns, chosen);
  const double flops_by_columns = FlopsOfSet(rows, columns, by_columns);
  if (flops_by_columns < flops) {
    const double of_rows = FlopsOfRows(rows);
    if (kLeastGain * (of_rows + flops_by_columns) < of_rows + flops) {
      chosen = std::move(by_columns);
    }
  }
  return chosen;
}

bool IsIndependentSet(const ProblemRows& rows,
                      const std::vector<uint8_t>& is_marked,
                      kernels::HostContext* context) {
  constexpr int64_t kRowsPerTask = 1 << 12;
  std::atomic<bool> is_independent{true};
  context->ParallelFor(
      rows.size(), kRowsPerTask, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end && is_independent; ++i) {
          int num_marked = 0;
          for (const int32_t block : rows.BlocksOf(i)) {
            num_marked += block == BlockOfRow::kConstant ? 0 : is_marked[block];
          }
          if (num_marked > 1) {
            is_independent = false;
          }
        }
      });
  return is_independent;
}

std::vector<uint8_t> FindPrivateBlocks(const ProblemRows& rows,
                                       const std::vector<uint8_t>& is_marked,
                                       kernels::HostContext* context) {
  constexpr int64_t kPerTask = 1 << 12;
  const auto n = static_cast<int64_t>(is_marked.size());
  std::vector<uint8_t> may_be(static_cast<size_t>(n), 0);
  std::atomic<bool> has_one{false};
  context->ParallelFor(n, kPerTask, [&](int64_t begin, int64_t end) {
    for (auto b = static_cast<int32_t>(begin); b < end; ++b) {
      if (is_marked[b] == 0 && rows.block(b).tangent_size == 1) {
        may_be[b] = 1;
        has_one = true;
      }
    }
  });
  if (!has_one) {
    return {};
  }
  std::vector<int32_t> num_rows(static_cast<size_t>(n), 0);
  context->ParallelFor(rows.size(), kPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (const int32_t block : rows.BlocksOf(i)) {
        if (block != BlockOfRow::kConstant && may_be[block] != 0) {
          __atomic_fetch_add(&num_rows[block], 1, __ATOMIC_RELAXED);
        }
      }
    }
  });
  // One row alone writes a block's place.
  std::vector<uint8_t> is_private(static_cast<size_t>(n), 0);
  std::atomic<bool> has_private{false};
  context->ParallelFor(rows.size(), kPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const ProblemRows::Blocks blocks = rows.BlocksOf(i);
      const auto* const first =
          std::find_if(blocks.begin(), blocks.end(), [&](int32_t block) {
            return block != BlockOfRow::kConstant && num_rows[block] == 1;
          });
      if (first != blocks.end()) {
        is_private[*first] = 1;
        has_private = true;
      }
    }
  });
  return has_private ? is_private : std::vector<uint8_t>();
}

std::vector<uint8_t> ChooseBesidePrivate(
    const ProblemRows& rows,
    const std::vector<std::vector<uint8_t>>& preferred,
    kernels::HostContext* context) {
  // Below that many rows they cost little among the other blocks.
  constexpr int64_t kRowsOfOne = 8;
  const std::vector<uint8_t> none(static_cast<size_t>(rows.num_blocks()), 0);
  const std::vector<uint8_t> is_private =
      FindPrivateBlocks(rows, none, context);
  const auto is_one = [](uint8_t mark) { return mark != 0; };
  if (is_private.empty() ||
      kRowsOfOne * std::count_if(is_private.begin(), is_private.end(), is_one) <
          rows.size()) {
    return {};
  }
  std::vector<uint8_t> chosen;
  int64_t most = 0;
  for (std::vector<uint8_t> set : preferred) {
    for (size_t b = 0; b < set.size(); ++b) {
      set[b] = is_private[b] == 0 ? set[b] : elimination::kOther;
    }
    const int64_t size = std::count_if(set.begin(), set.end(), is_one);
    if (size > most && IsIndependentSet(rows, set, context)) {
      most = size;
      chosen = std::move(set);
    }
  }
  if (most > 0) {
    return chosen;
  }
  chosen = IndependentSet(rows, kPointSize, is_private);
  return std::any_of(chosen.begin(), chosen.end(), is_one)
             ? chosen
             : std::vector<uint8_t>();
}

}  // namespace ceres_ext
