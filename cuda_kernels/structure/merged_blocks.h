// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// F blocks that occur only together, as an image's pose and its own intrinsics
// do, as one block each of a block diagonal preconditioner.
//
// Two F blocks are merged where every row that holds an eliminated block and
// one of them holds the other too. Rows of F alone count for nothing. A set of
// more than kMaxMergedColumns columns stays single blocks, as a matrix is
// inverted by one thread.
//
//   MergedBlocksBuilder builder(f);
//   builder.AddRow({{family, block}, ...});  // each row of an eliminated block
//   MergedBlocks merged = builder.Build(may_merge);
#ifndef CERES_EXT_CUDA_KERNELS_STRUCTURE_MERGED_BLOCKS_H_
#define CERES_EXT_CUDA_KERNELS_STRUCTURE_MERGED_BLOCKS_H_

#include <cstdint>
#include <vector>

#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/structure/block_families.h"

namespace ceres_ext::kernels {

inline constexpr int kMaxMergedColumns = 32;

// Empty if nothing is merged.
struct MergedBlocks {
  // A block among those of `families`; family -1: none.
  struct Place {
    int32_t family = -1;
    int32_t block = 0;
  };

  // For matrices of blocks. First F's families, without the blocks that are
  // merged; then the blocks of merged families, by size, in the order of the
  // first block of each.
  BlockFamilies families;
  // The columns of F of the latter: those of a block one after the other.
  std::vector<int32_t> column;
  // For each block of each family of F, its place among the latter.
  std::vector<std::vector<Place>> place;
  // Blocks that are made of several.
  int32_t num_merged = 0;

  bool empty() const { return column.empty(); }
  // The beginning of the columns of a family of the latter in `column`.
  int64_t ColumnBegin(int family) const {
    return families[family].value_begin -
           (families.num_values() - static_cast<int64_t>(column.size()));
  }
  int64_t ColumnBegin(const Place& place_of_block) const {
    return ColumnBegin(place_of_block.family) +
           int64_t{families[place_of_block.family].size} * place_of_block.block;
  }
  // The first block of F in a block of `families`, or of F where nothing is
  // merged.
  Place FirstBlock(const BlockFamilies& f, const Place& matrix) const {
    if (matrix.family < f.size()) {
      return matrix;
    }
    const int64_t at = column[ColumnBegin(matrix)];
    int32_t family = 0;
    while (at >= f[family].value_begin + f[family].num_values()) {
      ++family;
    }
    return {
        family,
        static_cast<int32_t>((at - f[family].value_begin) / f[family].size)};
  }
};

// For each value of the packed matrices of F's blocks, in that order, its place
// in those of merged.families, which hold these on their diagonals. merged is
// not empty.
std::vector<int64_t> PlacesInMerged(const BlockFamilies& f,
                                    const MergedBlocks& merged,
                                    BlockLayout layout);

// A partition of the F blocks, refined row by row: blocks that one row tells
// apart are in different classes from then on. Time and memory are linear in
// the cells.
class MergedBlocksBuilder {
 public:
  struct Block {
    int32_t family;
    int32_t block;
  };

  explicit MergedBlocksBuilder(const BlockFamilies& f);

  // The F blocks, each once, of a row that holds an eliminated block.
  void AddRow(const std::vector<Block>& blocks);
  // may_merge: of each family. The same result for any order of the rows.
  MergedBlocks Build(const std::vector<bool>& may_merge) const;

 private:
  // For blocks that no row has named.
  static constexpr int32_t kUnseen = 0;

  BlockFamilies f_;
  std::vector<int32_t> first_block_;  // of each family, among all blocks
  std::vector<int32_t> class_of_;     // each block
  // For each class, its blocks, and the class that those of the row go to.
  std::vector<int32_t> size_;
  std::vector<int32_t> split_;
  std::vector<int32_t> unused_;       // classes
  std::vector<int32_t> row_classes_;  // those that the row splits
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_STRUCTURE_MERGED_BLOCKS_H_
