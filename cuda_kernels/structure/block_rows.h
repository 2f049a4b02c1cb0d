// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Rows of any shape: each a number of residuals, at most one eliminated block
// and any number of others, of any size. A row has a *cell* for each of its
// blocks, the derivative of its residuals by the columns of the block,
// row-major, one cell after the other:
//
//   values = [row 0: cell of E, cells of F] [row 1: ...] ...
//
// which is how Ceres writes them. A *private* cell comes last. Its block is an
// eliminated one of one column that no other row has; the row may have another
// eliminated block (ops/private_blocks.h).
//
//   BlockRowsBuilder builder(e_families, f_families);
//   builder.AddRow(2);
//   builder.AddCell({/*eliminated=*/true, family, block, /*size=*/3});
//   builder.AddCell({false, family, block, 6});
//   ...
//   BlockRows<Machine> rows;
//   Status status = rows.Setup(&builder, &machine);
//   builder.row_order();  // row i of the index was row row_order()[i]
//
// Rows are put into the order of their eliminated blocks, rows without one come
// last; rows of the same block keep their order. A cell may have fewer columns
// than the blocks of its family: it then has the first ones.
//
// For sums over the rows of a block, the cells of a family are listed block by
// block in the order of the rows (BlockListRef). Blocks that no row has are
// not listed, so a family may be large and the rows few. The cells of a block
// are cut into segments, of fewer cells where there are few in all, so that no
// thread sums for long; the sums of segments are summed kSegmentSums at a time,
// and so on until there is one per block: every sum has an order that depends
// on the rows alone, and a block that all rows share costs no more than others.
// Sums of matrices of more than kMaxCutColumns columns, and of vectors of more
// than kMaxCutWidth, aren't cut: each value is work for a thread, and those of
// the segments of matrices would take more memory than the rows.
// Merged blocks of F are listed likewise, for sums of matrices.
#ifndef CERES_EXT_CUDA_KERNELS_STRUCTURE_BLOCK_ROWS_H_
#define CERES_EXT_CUDA_KERNELS_STRUCTURE_BLOCK_ROWS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "cuda_kernels/base/buffer.h"
#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_context.h"
#include "cuda_kernels/structure/block_families.h"
#include "cuda_kernels/structure/merged_blocks.h"

namespace ceres_ext::kernels {

inline constexpr int kSegmentCells = 64;
inline constexpr int kSegmentOfFewCells = 16;
inline constexpr int64_t kFewCells = int64_t{1} << 18;
inline constexpr int kSegmentSums = 256;
inline constexpr int kMaxCutColumns = 32;
inline constexpr int kMaxCutWidth = 1 << 13;
// Columns of an eliminated block at most: speed and biases have 9.
inline constexpr int kMaxEliminatedSize = 16;

// One access of 16 bytes.
struct alignas(16) RowCell {
  int64_t value;       // first of the cell's values
  int32_t column;      // first of its columns in a vector of its families
  int16_t size;        // columns
  int16_t eliminated;  // 0: of F; kPrivateCell: of a private block
};
inline constexpr int16_t kPrivateCell = 2;

// The private cell of a row.
struct alignas(16) PrivateCell {
  int64_t value;
  int32_t column;  // in a vector of E; -1: the row has none
  int32_t block;   // place in the family
};

struct BlockRowsRef {
  int64_t num_rows = 0;
  int64_t num_residuals = 0;
  const int32_t* residual_row = nullptr;  // [num_residuals]
  const int32_t* row_begin = nullptr;     // [num_rows + 1], residuals
  const int32_t* cell_begin = nullptr;    // [num_rows + 1]
  const RowCell* cells = nullptr;
};

// A cell among those of its block.
struct alignas(16) BlockCell {
  int64_t value;
  int32_t row;
  int32_t size;
};

// The data that the sum over the cells of an F block needs from the row's
// eliminated block, for S_c. size 0: the row has none.
struct alignas(16) EliminatedCell {
  int64_t value;
  int32_t block;  // place in the family
  int16_t size;
  int16_t family;
};

// The cells of one family, block by block.
struct BlockListRef {
  int32_t size = 0;                // columns of the family's blocks
  int32_t num_blocks = 0;          // that are listed
  const int32_t* block = nullptr;  // [num_blocks], ascending
  const BlockCell* cells = nullptr;
  // Segments 0 .. num_segments - 1 of cells.
  int64_t num_segments = 0;
  const int64_t* segment_begin = nullptr;  // [num_segments + 1]
  // [num_blocks + 1] in cells, where size > kMaxCutColumns.
  const int64_t* block_begin = nullptr;
};

// One step from sums to fewer sums.
struct SumLevelRef {
  int64_t num_sums = 0;
  const int64_t* begin = nullptr;  // [num_sums + 1], sums of the level before
};

// The cells of one family, in host memory.
struct BlockList {
  int family = 0;
  BlockListRef sizes;  // without addresses
  std::vector<int32_t> block;
  HostBuffer<BlockCell> cells;
  std::vector<int64_t> segment_begin;
  std::vector<int64_t> block_begin;
  std::vector<std::vector<int64_t>> levels;
};

// A cell with the block that it is of.
struct FamilyCell {
  int32_t family;
  int32_t block;  // within the family
  BlockCell cell;
};

// How the cells of a list are cut into segments.
struct BlockListCuts {
  int64_t segment = 0;               // cells of a segment
  std::vector<int32_t> block;        // those that have cells
  std::vector<int64_t> block_begin;  // cells of each of them, and the end
  // Each has a place for a segment every `segment` cells.
  std::vector<int64_t> first_place{0};
};
// begin: cells of each block of the family, and the end.
BlockListCuts MakeBlockListCuts(const std::vector<int64_t>& begin);

// The first cell of the segment at a place, or kNoSegment where the next place
// comes first: the cell at the place, or where the first pair after it begins.
// So the rows of one eliminated block stay together. `at`: the cell at the
// place; begin, end: cells of the block. pair_of_row: as in MakeBlockLists.
inline constexpr int64_t kNoSegment = -1;
CERES_EXT_HOST_DEVICE inline int64_t SegmentAt(const BlockCell* cells,
                                               const int32_t* pair_of_row,
                                               int64_t at,
                                               int64_t begin,
                                               int64_t end,
                                               int64_t segment) {
  const int64_t next = at + segment < end ? at + segment : end;
  const bool is_cut = pair_of_row != nullptr && at > begin;
  int32_t pair = is_cut ? pair_of_row[cells[at - 1].row] : -1;
  while (pair >= 0 && at < next && pair == pair_of_row[cells[at].row]) {
    ++at;
  }
  return at < next ? at : kNoSegment;
}

// The sums of segments, summed kSegmentSums at a time until there is one per
// block: where those of each level begin, and their end. sums: the first
// segment of each block, and the end.
std::vector<std::vector<int64_t>> MakeSumLevels(std::vector<int64_t> sums);

// Cuts the cells of a list. begin: as in MakeBlockListCuts. pair_of_row,
// context: as in MakeBlockLists.
void CutBlockList(const std::vector<int64_t>& begin,
                  const int32_t* pair_of_row,
                  HostContext* context,
                  BlockList* list);

// The lists of the families that have cells, in the order of their rows.
// for_each_cell(i, fn) calls fn(FamilyCell) for the cells of row i, and is
// called twice, by the threads of *context where that is not null. pair_of_row:
// of each row a number that neighbours of one eliminated block have in common,
// whose cells of one block then are in one segment; negative: none. May be
// null.
template <typename ForEachCell>
Status MakeBlockLists(const BlockFamilies& families,
                      int64_t num_rows,
                      const ForEachCell& for_each_cell,
                      const int32_t* pair_of_row,
                      HostContext* context,
                      std::vector<BlockList>* lists) {
  // A stable counting sort. Each task counts for itself.
  constexpr int64_t kLeastRows = 1 << 15;
  constexpr int64_t kMostTasks = 64;
  constexpr int64_t kMostCounts = 1 << 24;
  std::vector<int64_t> first_block{0};  // of each family
  for (const BlockFamily& family : families) {
    first_block.push_back(first_block.back() + family.num_blocks);
  }
  const int64_t num_blocks = first_block.back();
  int64_t num_tasks =
      context == nullptr
          ? 1
          : std::clamp(num_rows / kLeastRows, int64_t{1}, kMostTasks);
  if (num_tasks * num_blocks > kMostCounts) {
    num_tasks = 1;
  }
  const int64_t rows_of_each = (num_rows + num_tasks - 1) / num_tasks;
  const auto for_each_task = [&](auto&& task) {
    if (num_tasks == 1) {
      task(0, 1);
    } else {
      context->ParallelFor(num_tasks, 1, task);
    }
  };
  std::vector<int64_t> next(static_cast<size_t>(num_tasks * num_blocks), 0);
  // fn(place in next of the cell's block in the task, cell)
  const auto for_each = [&](int64_t task, auto&& fn) {
    const int64_t end = std::min(num_rows, (task + 1) * rows_of_each);
    for (int64_t i = task * rows_of_each; i < end; ++i) {
      for_each_cell(i, [&](const FamilyCell& cell) {
        fn(&next[static_cast<size_t>(
               task * num_blocks +
               first_block[static_cast<size_t>(cell.family)] + cell.block)],
           cell);
      });
    }
  };
  for_each_task([&](int64_t task, int64_t /*end*/) {
    for_each(task, [](int64_t* count, const FamilyCell&) { ++*count; });
  });
  std::vector<BlockList> of_family(static_cast<size_t>(families.size()));
  std::vector<std::vector<int64_t>> begin;
  for (int f = 0; f < families.size(); ++f) {
    begin.emplace_back(1, 0);
    for (int32_t b = 0; b < families[f].num_blocks; ++b) {
      int64_t at = begin.back().back();
      for (int64_t task = 0; task < num_tasks; ++task) {
        at += std::exchange(
            next[static_cast<size_t>(task * num_blocks +
                                     first_block[static_cast<size_t>(f)] + b)],
            at);
      }
      begin.back().push_back(at);
    }
    BlockList& list = of_family[static_cast<size_t>(f)];
    list.family = f;
    list.sizes.size = families[f].size;
    CERES_EXT_RETURN_IF_ERROR(list.cells.Allocate(begin.back().back()));
  }
  for_each_task([&](int64_t task, int64_t /*end*/) {
    for_each(task, [&](int64_t* place, const FamilyCell& cell) {
      of_family[static_cast<size_t>(cell.family)].cells.data()[(*place)++] =
          cell.cell;
    });
  });
  lists->clear();
  for (size_t f = 0; f < of_family.size(); ++f) {
    if (of_family[f].cells.size() > 0) {
      CutBlockList(begin[f], pair_of_row, context, &of_family[f]);
      lists->push_back(std::move(of_family[f]));
    }
  }
  return {};
}
Status MakeBlockLists(const BlockFamilies& families,
                      const std::vector<FamilyCell>& cells,
                      const int32_t* pair_of_row,
                      std::vector<BlockList>* lists);

class BlockRowsBuilder {
 public:
  struct Cell {
    bool eliminated;
    int32_t family;
    int32_t block;            // within the family
    int32_t size;             // at most the family's
    bool is_private = false;  // of one column, of no other row; eliminated
  };
  // The families, and *merged, outlive the builder. merged: null, none.
  BlockRowsBuilder(const BlockFamilies& e,
                   const BlockFamilies& f,
                   const MergedBlocks* merged = nullptr)
      : e_(e), f_(f), merged_(merged) {}

  void Reserve(int64_t num_rows, int64_t num_cells) {
    num_residuals_.reserve(num_rows);
    cell_begin_.reserve(num_rows + 1);
    given_cells_.reserve(num_cells);
  }
  void AddRow(int num_residuals) {
    num_residuals_.push_back(num_residuals);
    cell_begin_.push_back(cell_begin_.back());
  }
  // A cell of the last row.
  void AddCell(const Cell& cell) {
    given_cells_.push_back(cell);
    ++cell_begin_.back();
  }

  // Orders and lists. kInvalidArgument names the first row with two eliminated
  // blocks, two private ones or a cell that its family doesn't have;
  // kUnsupported: an eliminated block of more than kMaxEliminatedSize columns,
  // another one of more than kMaxBlockColumns, 2^31 residuals or cells.
  // The same result for the same rows.
  Status Build();

  // After Build.
  const std::vector<int32_t>& row_order() const { return row_order_; }
  int64_t num_rows() const { return static_cast<int64_t>(row_order_.size()); }
  int64_t num_residuals() const { return row_begin_.back(); }
  int64_t num_values() const { return num_values_; }
  const std::vector<int32_t>& row_begin() const { return row_begin_; }
  const std::vector<int32_t>& cell_begin() const { return cell_begin_; }
  const std::vector<RowCell>& cells() const { return cells_; }
  const std::vector<int32_t>& residual_row() const { return residual_row_; }
  const std::vector<BlockList>& e_lists() const { return e_lists_; }
  const std::vector<BlockList>& f_lists() const { return f_lists_; }
  const std::vector<EliminatedCell>& eliminated() const { return eliminated_; }
  // One per row, if a row has a private block. Private cells are in no list.
  // private_family is the family of all; -1: there are none.
  const std::vector<PrivateCell>& private_cells() const {
    return private_cells_;
  }
  int private_family() const { return private_family_; }
  // For merged blocks: a cell is everything that the row has of the block, and
  // its value is the begin of the block's columns in merged_column().
  const std::vector<BlockList>& merged_lists() const { return merged_lists_; }
  const std::vector<int32_t>& merged_column() const { return merged_column_; }

 private:
  Status Check() const;
  // Puts the cells of row i into the order of its values, and returns its place
  // among rows.
  std::pair<int64_t, int32_t> OrderCells(int64_t i);
  void AddMergedCell(const MergedBlocks::Place& place,
                     int32_t i,
                     std::vector<FamilyCell>* cells) const;

  const BlockFamilies& e_;
  const BlockFamilies& f_;
  const MergedBlocks* merged_;
  // As given, and after Build in the order of the rows.
  std::vector<int32_t> num_residuals_;
  std::vector<int32_t> cell_begin_{0};
  std::vector<Cell> given_cells_;

  std::vector<int32_t> row_order_;
  std::vector<int32_t> row_begin_{0};
  std::vector<RowCell> cells_;
  std::vector<int32_t> residual_row_;
  std::vector<EliminatedCell> eliminated_;
  std::vector<PrivateCell> private_cells_;
  int private_family_ = -1;
  std::vector<BlockList> e_lists_;
  std::vector<BlockList> f_lists_;
  std::vector<BlockList> merged_lists_;
  std::vector<int32_t> merged_column_;
  int64_t num_values_ = 0;
};

// Lists in the memory of a machine.
template <typename Machine>
struct MachineBlockList {
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;

  int family = 0;
  BlockListRef view;
  std::vector<SumLevelRef> levels;
  Buffer<int32_t> block;
  Buffer<BlockCell> cells;
  Buffer<int64_t> segment_begin;
  Buffer<int64_t> block_begin;
  std::vector<Buffer<int64_t>> level_begin;

  Status Setup(const BlockList& list, Machine* machine) {
    family = list.family;
    view = list.sizes;
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(list.block, &block));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Upload(list.cells.size(), list.cells.data(), &cells));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Upload(list.segment_begin, &segment_begin));
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(list.block_begin, &block_begin));
    return SetAddresses(list.levels, machine);
  }
  // The arrays and sizes are set.
  Status SetAddresses(const std::vector<std::vector<int64_t>>& begins,
                      Machine* machine) {
    view.block = block.data();
    view.cells = cells.data();
    view.segment_begin = segment_begin.data();
    view.block_begin = block_begin.data();
    for (const std::vector<int64_t>& begin : begins) {
      level_begin.emplace_back();
      CERES_EXT_RETURN_IF_ERROR(machine->Upload(begin, &level_begin.back()));
      levels.push_back(
          {static_cast<int64_t>(begin.size()) - 1, level_begin.back().data()});
    }
    return {};
  }
};

template <typename Machine>
Status SetupBlockLists(const std::vector<BlockList>& from,
                       Machine* machine,
                       std::vector<MachineBlockList<Machine>>* to) {
  to->clear();
  for (const BlockList& list : from) {
    to->emplace_back();
    CERES_EXT_RETURN_IF_ERROR(to->back().Setup(list, machine));
  }
  return {};
}

// The rows in the memory of a machine.
template <typename Machine>
class BlockRows {
 public:
  template <typename T>
  using Buffer = typename Machine::template Buffer<T>;
  using List = MachineBlockList<Machine>;

  // builder: built.
  Status Setup(const BlockRowsBuilder& builder, Machine* machine) {
    CERES_EXT_RETURN_IF_ERROR(
        machine->Upload(builder.residual_row(), &residual_row_));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Upload(builder.row_begin(), &row_begin_));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Upload(builder.cell_begin(), &cell_begin_));
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(builder.cells(), &cells_));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Upload(builder.eliminated(), &eliminated_));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Upload(builder.private_cells(), &private_cells_));
    private_family_ = builder.private_family();
    view_.num_rows = builder.num_rows();
    view_.num_residuals = builder.num_residuals();
    view_.residual_row = residual_row_.data();
    view_.row_begin = row_begin_.data();
    view_.cell_begin = cell_begin_.data();
    view_.cells = cells_.data();
    num_values_ = builder.num_values();
    CERES_EXT_RETURN_IF_ERROR(
        SetupBlockLists(builder.e_lists(), machine, &e_lists_));
    CERES_EXT_RETURN_IF_ERROR(
        SetupBlockLists(builder.f_lists(), machine, &f_lists_));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Upload(builder.merged_column(), &merged_column_));
    return SetupBlockLists(builder.merged_lists(), machine, &merged_lists_);
  }

  const BlockRowsRef& ref() const { return view_; }
  const EliminatedCell* eliminated() const { return eliminated_.data(); }
  // As the builder has them; null: there are none.
  const PrivateCell* private_cells() const { return private_cells_.data(); }
  int private_family() const { return private_family_; }
  const std::vector<List>& e_lists() const { return e_lists_; }
  const std::vector<List>& f_lists() const { return f_lists_; }
  const std::vector<List>& merged_lists() const { return merged_lists_; }
  const int32_t* merged_column() const { return merged_column_.data(); }
  int64_t num_values() const { return num_values_; }

 private:
  BlockRowsRef view_;
  int64_t num_values_ = 0;
  Buffer<int32_t> residual_row_;
  Buffer<int32_t> row_begin_;
  Buffer<int32_t> cell_begin_;
  Buffer<RowCell> cells_;
  Buffer<EliminatedCell> eliminated_;
  Buffer<PrivateCell> private_cells_;
  int private_family_ = -1;
  std::vector<List> e_lists_;
  std::vector<List> f_lists_;
  std::vector<List> merged_lists_;
  Buffer<int32_t> merged_column_;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_STRUCTURE_BLOCK_ROWS_H_
