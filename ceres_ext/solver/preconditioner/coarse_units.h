// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The blocks that a second level clusters if rows have one eliminated block and
// several of F, those of a *view* (structure/views.h), as pose and intrinsics
// are of an image. Views that have a block in common are one *unit*. A block
// that many views share belongs to no unit: it is clustered with no other.
#ifndef CERES_EXT_SOLVER_PRECONDITIONER_COARSE_UNITS_H_
#define CERES_EXT_SOLVER_PRECONDITIONER_COARSE_UNITS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "cuda_kernels/structure/block_families.h"

namespace ceres_ext::solver {

// Blocks of unknowns, in host memory.
struct CoarseBlocks {
  // Block i has the unknowns begin[i] .. begin[i + 1] - 1.
  std::vector<int32_t> begin = {0};
  // The place of each unknown in vectors of F.
  std::vector<int64_t> column;

  int32_t size() const { return static_cast<int32_t>(begin.size()) - 1; }
};

// A block in more views than these is shared; a frame of a rig is in as many
// views as the rig has sensors.
inline constexpr int32_t kMostViewsOfBlock = 8;
// E has its rows of shared blocks by products with S, one for each column.
inline constexpr int64_t kMostSharedColumns = 256;

struct CoarseUnits {
  CoarseBlocks blocks;           // the units, then the shared blocks
  std::vector<int32_t> of_view;  // its unit
  int32_t num_units = 0;
  bool are_views = true;  // each unit is one view
  // For each column of each view its place in vectors of F; -1 if it is not an
  // unknown, or of a shared block.
  std::vector<int32_t> column;
  // The same where it is the first column of all views at that place, else -1.
  // One of several ranks has it.
  std::vector<int32_t> first_column;

  int32_t num_shared() const { return blocks.size() - num_units; }
  int64_t num_shared_columns() const {
    return blocks.begin.back() - blocks.begin[static_cast<size_t>(num_units)];
  }
  int32_t largest() const {
    int32_t most = 0;
    for (int32_t i = 0; i < num_units; ++i) {
      most = std::max(most, blocks.begin[i + 1] - blocks.begin[i]);
    }
    return most;
  }
};

// column: for each of `columns` columns of each view its place in vectors of F,
// or -1. varies: of each value of F whether it is an unknown.
inline CoarseUnits MakeUnits(const kernels::BlockFamilies& f,
                             const std::vector<unsigned char>& varies,
                             int32_t columns,
                             std::vector<int32_t> column) {
  const size_t num_views = column.size() / static_cast<size_t>(columns);
  // Blocks are counted through, family by family.
  std::vector<int32_t> first_block;
  int32_t num_blocks = 0;
  for (const kernels::BlockFamily& family : f) {
    first_block.push_back(num_blocks);
    num_blocks += family.num_blocks;
  }
  const auto block_of = [&](int32_t at) {
    const auto place = f.PlaceOf(at);
    return first_block[static_cast<size_t>(place.family)] + place.block;
  };
  std::vector<int32_t> block(column.size(), -1);
  std::vector<int32_t> num_uses(static_cast<size_t>(num_blocks), 0);
  int32_t last = -1;  // block of the view
  for (size_t at = 0; at < column.size(); ++at) {
    last = at % static_cast<size_t>(columns) == 0 ? -1 : last;
    if (column[at] >= 0 && varies[column[at]] == 0) {
      column[at] = -1;
    }
    if (column[at] >= 0) {
      block[at] = block_of(column[at]);
      num_uses[block[at]] += block[at] != last ? 1 : 0;
      last = block[at];
    }
  }

  CoarseUnits units;
  // The first view of the unit of each, found by halving paths.
  std::vector<int32_t> first_view(num_views);
  std::iota(first_view.begin(), first_view.end(), 0);
  const auto find = [&](int32_t view) {
    while (first_view[view] != view) {
      first_view[view] = first_view[first_view[view]];
      view = first_view[view];
    }
    return view;
  };
  std::vector<int32_t> view_of_block(num_uses.size(), -1);
  for (size_t at = 0; at < column.size(); ++at) {
    if (block[at] < 0 || num_uses[block[at]] > kMostViewsOfBlock) {
      continue;
    }
    const auto view = static_cast<int32_t>(at / static_cast<size_t>(columns));
    int32_t& first = view_of_block[block[at]];
    first = first < 0 ? view : first;
    const int32_t a = find(first);
    const int32_t b = find(view);
    first_view[std::max(a, b)] = std::min(a, b);
  }
  units.of_view.resize(num_views);
  for (size_t v = 0; v < num_views; ++v) {
    const int32_t first = find(static_cast<int32_t>(v));
    const bool is_new = first == static_cast<int32_t>(v);
    units.of_view[v] = is_new ? units.num_units++ : units.of_view[first];
    units.are_views = units.are_views && is_new;
  }

  std::vector<std::vector<int64_t>> of_unit(
      static_cast<size_t>(units.num_units));
  std::vector<unsigned char> is_listed(varies.size(), 0);
  units.first_column.assign(column.size(), -1);
  for (size_t at = 0; at < column.size(); ++at) {
    if (block[at] < 0) {
      continue;
    }
    if (num_uses[block[at]] > kMostViewsOfBlock) {
      column[at] = -1;
    } else if (is_listed[column[at]] == 0) {
      is_listed[column[at]] = 1;
      units.first_column[at] = column[at];
      of_unit[units.of_view[at / static_cast<size_t>(columns)]].push_back(
          column[at]);
    }
  }
  CoarseBlocks& blocks = units.blocks;
  const auto end_block = [&] {
    blocks.begin.push_back(static_cast<int32_t>(blocks.column.size()));
  };
  for (const std::vector<int64_t>& list : of_unit) {
    blocks.column.insert(blocks.column.end(), list.begin(), list.end());
    end_block();
  }
  int32_t number = 0;
  for (const kernels::BlockFamily& family : f) {
    for (int32_t b = 0; b < family.num_blocks; ++b, ++number) {
      if (num_uses[number] > kMostViewsOfBlock) {
        for (int32_t i = 0; i < family.size; ++i) {
          const int64_t at = family.value_begin + int64_t{family.size} * b + i;
          if (varies[static_cast<size_t>(at)] != 0) {
            blocks.column.push_back(at);
          }
        }
        end_block();
      }
    }
  }
  units.column = std::move(column);
  return units;
}

// The same units on all ranks, of the views of one. column: of the views of all
// ranks, of which this one has num_own from first_own on. Ranks may have the
// same views.
inline CoarseUnits MakeUnitsOfRank(const kernels::BlockFamilies& f,
                                   const std::vector<unsigned char>& varies,
                                   int32_t columns,
                                   const std::vector<int32_t>& column,
                                   int64_t first_own,
                                   int64_t num_own) {
  const auto at = [&](int64_t view) { return column.begin() + columns * view; };
  std::vector<int64_t> order(column.size() / static_cast<size_t>(columns));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return std::lexicographical_compare(at(a), at(a + 1), at(b), at(b + 1));
  });
  std::vector<int64_t> first(order.size());  // the first view like each
  for (size_t i = 0; i < order.size(); ++i) {
    const bool is_like =
        i > 0 && std::equal(at(order[i]), at(order[i] + 1), at(order[i - 1]));
    first[order[i]] = is_like ? first[order[i - 1]] : order[i];
  }
  std::vector<int32_t> of_first;
  std::vector<int32_t> number(order.size());  // among the first
  int32_t num_first = 0;
  for (size_t v = 0; v < first.size(); ++v) {
    if (first[v] == static_cast<int64_t>(v)) {
      number[v] = num_first++;
      of_first.insert(of_first.end(), at(first[v]), at(first[v] + 1));
    }
  }
  CoarseUnits all = MakeUnits(f, varies, columns, std::move(of_first));
  CoarseUnits own = all;
  own.of_view.clear();
  own.column.clear();
  own.first_column.clear();
  for (int64_t v = first_own; v < first_own + num_own; ++v) {
    const int32_t from = number[first[v]];
    own.of_view.push_back(all.of_view[from]);
    for (int32_t i = 0; i < columns; ++i) {
      const auto place = static_cast<size_t>(int64_t{columns} * from + i);
      own.column.push_back(all.column[place]);
      own.first_column.push_back(first[v] == v ? all.first_column[place] : -1);
    }
  }
  return own;
}

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_PRECONDITIONER_COARSE_UNITS_H_
