// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Views: the F blocks that stand together in rows, as pose and intrinsics of an
// image do. The rows of a view have one F block each, of all columns of the
// view's blocks one after the other, so that rows of several F blocks are rows
// of one:
//
//   F = F_view G,   F p = F_view (G p),   F'y = G'(F_view'y)
//
// where G copies the values of blocks to their views, and G' adds up. Blocks
// that many views share cost nothing per row. A view has `columns` columns;
// those beyond its blocks' are zero.
//
//   Views<Machine> views;
//   Status status = views.Setup(families, merged, columns, cells_of_views,
//                               index, &machine);
#ifndef CERES_EXT_CUDA_KERNELS_STRUCTURE_VIEWS_H_
#define CERES_EXT_CUDA_KERNELS_STRUCTURE_VIEWS_H_

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "cuda_kernels/base/status.h"
#include "cuda_kernels/structure/block_families.h"
#include "cuda_kernels/structure/block_rows.h"
#include "cuda_kernels/structure/merged_blocks.h"
#include "cuda_kernels/structure/observation_index.h"
#include "cuda_kernels/structure/shared_rows.h"

namespace ceres_ext::kernels {

// A block of a view.
struct ViewCell {
  int32_t family;
  int32_t block;  // within the family
  int32_t size;   // columns, at most the family's
};

template <typename Machine>
class Views {
 public:
  using List = MachineBlockList<Machine>;

  // The places of blocks in views.
  struct Lists {
    // A cell's row is the view. Its value is, of F blocks, the first column
    // among those of all views, of merged blocks where their columns begin in
    // merged_columns().
    std::vector<List> all;
    // The same for blocks that are in only one view.
    std::vector<List> single;
    // The rows of the other blocks: a cell's row is the row, its value that of
    // `all`, but of F blocks the first column within the view.
    std::vector<List> shared;
  };

  // families: of F. merged: of F. cells: of each view, in the order of their
  // columns. index: of the rows, by view and point.
  Status Setup(const BlockFamilies& families,
               const MergedBlocks& merged,
               int columns,
               const std::vector<std::vector<ViewCell>>& cells,
               const ObservationIndexRef& index,
               Machine* machine) {
    columns_ = columns;
    num_views_ = static_cast<int32_t>(cells.size());
    std::vector<int32_t> column(int64_t{columns} * num_views_, -1);
    std::vector<FamilyCell> blocks;
    std::vector<FamilyCell> merged_blocks;
    std::vector<int16_t> merged_columns;
    for (int32_t v = 0; v < num_views_; ++v) {
      int64_t at = int64_t{columns} * v;
      for (const ViewCell& cell : cells[v]) {
        const BlockFamily& family = families[cell.family];
        std::iota(column.begin() + at,
                  column.begin() + at + cell.size,
                  static_cast<int32_t>(family.value_begin +
                                       int64_t{family.size} * cell.block));
        blocks.push_back({cell.family, cell.block, {at, v, cell.size}});
        at += cell.size;
      }
      if (!merged.empty()) {
        ListMergedBlocks(merged,
                         cells[v],
                         v,
                         column.data() + int64_t{columns} * v,
                         &merged_blocks,
                         &merged_columns);
      }
    }
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(column, &column_));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Upload(merged_columns, &merged_columns_));
    CERES_EXT_RETURN_IF_ERROR(
        SetupLists(families, blocks, columns, index, machine, &blocks_));
    return merged.empty() ? Status()
                          : SetupLists(merged.families,
                                       merged_blocks,
                                       0,
                                       index,
                                       machine,
                                       &merged_);
  }

  int columns() const { return columns_; }
  int32_t num_views() const { return num_views_; }
  int64_t num_values() const { return int64_t{columns_} * num_views_; }
  // For each column of each view, the column of F, or -1.
  const int32_t* column() const { return column_.data(); }
  // For F blocks, and for merged blocks.
  const Lists& blocks() const { return blocks_; }
  const Lists& merged() const { return merged_; }
  // For each view and merged block of it, the place of the columns of the block
  // in the view, or -1.
  const int16_t* merged_columns() const { return merged_columns_.data(); }

 private:
  // Appends the merged blocks of view v, each once, and their columns. column:
  // those of F, of the view.
  void ListMergedBlocks(const MergedBlocks& merged,
                        const std::vector<ViewCell>& cells,
                        int32_t v,
                        const int32_t* column,
                        std::vector<FamilyCell>* blocks,
                        std::vector<int16_t>* merged_columns) const {
    const size_t first = blocks->size();
    for (const ViewCell& cell : cells) {
      const MergedBlocks::Place place = merged.place[cell.family][cell.block];
      if (place.family < 0 || std::any_of(blocks->begin() + first,
                                          blocks->end(),
                                          [&](const FamilyCell& block) {
                                            return block.family ==
                                                       place.family &&
                                                   block.block == place.block;
                                          })) {
        continue;
      }
      const int32_t size = merged.families[place.family].size;
      blocks->push_back(
          {place.family,
           place.block,
           {static_cast<int64_t>(merged_columns->size()), v, size}});
      for (int32_t j = 0; j < size; ++j) {
        const int32_t f_column = merged.column[merged.ColumnBegin(place) + j];
        const auto at = std::find(column, column + columns_, f_column) - column;
        merged_columns->push_back(
            static_cast<int16_t>(at < columns_ ? at : -1));
      }
    }
  }

  // cells: those of Lists::all, view by view. The part of a cell's value that
  // its view determines, value_per_view per view, is not in Lists::shared.
  Status SetupLists(const BlockFamilies& families,
                    const std::vector<FamilyCell>& cells,
                    int value_per_view,
                    const ObservationIndexRef& index,
                    Machine* machine,
                    Lists* lists) const {
    std::vector<std::vector<int32_t>> num_views_of;
    for (const BlockFamily& family : families) {
      num_views_of.emplace_back(family.num_blocks, 0);
    }
    for (const FamilyCell& cell : cells) {
      ++num_views_of[cell.family][cell.block];
    }
    std::vector<FamilyCell> single;  // blocks of one view
    SharedCells shared;
    for (size_t c = 0; c < cells.size(); ++c) {
      const FamilyCell& cell = cells[c];
      const auto view = static_cast<size_t>(cell.cell.row);
      shared.view_begin.resize(view + 1,
                               static_cast<int32_t>(shared.cells.size()));
      if (num_views_of[cell.family][cell.block] == 1) {
        single.push_back(cell);
      } else {
        shared.cells.push_back(cell);
        shared.cells.back().cell.value -= int64_t{value_per_view} * view;
      }
    }
    shared.view_begin.resize(static_cast<size_t>(num_views_) + 1,
                             static_cast<int32_t>(shared.cells.size()));
    std::vector<BlockList> made;
    CERES_EXT_RETURN_IF_ERROR(MakeBlockLists(families, cells, nullptr, &made));
    CERES_EXT_RETURN_IF_ERROR(SetupBlockLists(made, machine, &lists->all));
    CERES_EXT_RETURN_IF_ERROR(MakeBlockLists(families, single, nullptr, &made));
    CERES_EXT_RETURN_IF_ERROR(SetupBlockLists(made, machine, &lists->single));
    return ListSharedRows(families, shared, index, machine, &lists->shared);
  }

  int columns_ = 0;
  int32_t num_views_ = 0;
  typename Machine::template Buffer<int32_t> column_;
  typename Machine::template Buffer<int16_t> merged_columns_;
  Lists blocks_;
  Lists merged_;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_STRUCTURE_VIEWS_H_
