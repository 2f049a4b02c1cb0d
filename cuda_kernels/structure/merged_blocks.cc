// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/structure/merged_blocks.h"

#include <map>

#include "cuda_kernels/base/small_matrix.h"

namespace ceres_ext::kernels {

MergedBlocksBuilder::MergedBlocksBuilder(const BlockFamilies& f) : f_(f) {
  int32_t num_blocks = 0;
  for (const BlockFamily& family : f) {
    first_block_.push_back(num_blocks);
    num_blocks += family.num_blocks;
  }
  class_of_.assign(num_blocks, kUnseen);
  size_.push_back(num_blocks);
  split_.push_back(-1);
}

void MergedBlocksBuilder::AddRow(const std::vector<Block>& blocks) {
  row_classes_.clear();
  for (const Block& block : blocks) {
    int32_t& class_of = class_of_[first_block_[block.family] + block.block];
    const int32_t from = class_of;
    if (split_[from] < 0) {
      row_classes_.push_back(from);
      if (unused_.empty()) {
        unused_.push_back(static_cast<int32_t>(size_.size()));
        size_.push_back(0);
        split_.push_back(-1);
      }
      split_[from] = unused_.back();
      unused_.pop_back();
    }
    class_of = split_[from];
    --size_[from];
    ++size_[class_of];
  }
  for (const int32_t from : row_classes_) {
    split_[from] = -1;
    if (size_[from] == 0 && from != kUnseen) {
      unused_.push_back(from);
    }
  }
}

MergedBlocks MergedBlocksBuilder::Build(
    const std::vector<bool>& may_merge) const {
  // Blocks and columns of each class.
  std::vector<int32_t> num_blocks(size_.size(), 0);
  std::vector<int64_t> num_columns(size_.size(), 0);
  const auto class_of = [&](int family, int32_t block) {
    return class_of_[first_block_[family] + block];
  };
  for (int f = 0; f < f_.size(); ++f) {
    for (int32_t b = 0; may_merge[f] && b < f_[f].num_blocks; ++b) {
      ++num_blocks[class_of(f, b)];
      num_columns[class_of(f, b)] += f_[f].size;
    }
  }
  const auto is_merged = [&](int family, int32_t block) {
    const int32_t c = class_of(family, block);
    return may_merge[family] && c != kUnseen && num_blocks[c] > 1 &&
           num_columns[c] <= kMaxMergedColumns;
  };

  MergedBlocks merged;
  // The blocks of families of which one is merged, by size: each a list of F
  // blocks.
  std::map<int32_t, std::vector<std::vector<Block>>> by_size;
  std::vector<int64_t> begun(size_.size(), -1);  // of each class, its list
  for (int f = 0; f < f_.size(); ++f) {
    bool any = false;
    for (int32_t b = 0; b < f_[f].num_blocks; ++b) {
      any |= is_merged(f, b);
    }
    merged.families.Add(f_[f].size, any ? 0 : f_[f].num_blocks);
    for (int32_t b = 0; any && b < f_[f].num_blocks; ++b) {
      if (!is_merged(f, b)) {
        by_size[f_[f].size].push_back({{f, b}});
        continue;
      }
      const int32_t c = class_of(f, b);
      auto& lists = by_size[static_cast<int32_t>(num_columns[c])];
      if (begun[c] < 0) {
        begun[c] = static_cast<int64_t>(lists.size());
        lists.emplace_back();
        ++merged.num_merged;
      }
      lists[begun[c]].push_back({f, b});
    }
  }
  for (const BlockFamily& family : f_) {
    merged.place.emplace_back(family.num_blocks);
  }
  for (const auto& [size, lists] : by_size) {
    const int family =
        merged.families.Add(size, static_cast<int32_t>(lists.size()));
    for (size_t i = 0; i < lists.size(); ++i) {
      for (const Block& block : lists[i]) {
        merged.place[block.family][block.block] = {family,
                                                   static_cast<int32_t>(i)};
        const BlockFamily& from = f_[block.family];
        for (int32_t j = 0; j < from.size; ++j) {
          merged.column.push_back(static_cast<int32_t>(
              from.value_begin + int64_t{from.size} * block.block + j));
        }
      }
    }
  }
  return merged.num_merged > 0 ? merged : MergedBlocks();
}

std::vector<int64_t> PlacesInMerged(const BlockFamilies& f,
                                    const MergedBlocks& merged,
                                    BlockLayout layout) {
  // The place of an element of a matrix among those of all families.
  const auto place_of =
      [layout](const BlockFamily& family, int64_t block, int64_t element) {
        return family.packed_begin +
               (layout == BlockLayout::kContinuousElement
                    ? element * family.num_blocks + block
                    : block * PackedSize(int64_t{family.size}) + element);
      };
  std::vector<int64_t> places(static_cast<size_t>(f.num_packed()));
  for (int i = 0; i < f.size(); ++i) {
    const BlockFamily& from = f[i];
    for (int32_t b = 0; b < from.num_blocks; ++b) {
      MergedBlocks::Place to = merged.place[i][b];
      int32_t offset = 0;
      if (to.family < 0) {
        to = {i, b};
      } else {
        const auto column =
            static_cast<int32_t>(from.value_begin + int64_t{from.size} * b);
        const int64_t begin = merged.ColumnBegin(to);
        while (merged.column[begin + offset] != column) {
          ++offset;
        }
      }
      for (int32_t j = 0; j < from.size; ++j) {
        for (int32_t k = 0; k <= j; ++k) {
          places[place_of(from, b, PackedIndex(j, k))] =
              place_of(merged.families[to.family],
                       to.block,
                       PackedIndex(offset + j, offset + k));
        }
      }
    }
  }
  return places;
}

}  // namespace ceres_ext::kernels
