// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Views: the F blocks that stand together in rows, as pose and intrinsics of an
// image do. The rows of a view have one F block each, of all columns of the
// view's blocks one after the other, so that rows of several F blocks are rows
// of one:
//
//   F = F_view G,   F p = F_view (G p),   F'y = G'(F_view'y)
//
// where G copies the values of blocks to the views that they stand in, and G'
// adds up. Blocks that many views share cost nothing per row. A view has
// `columns` columns; those beyond its blocks' are zero.
//
//   Views<Machine> views;
//   Status status = views.Setup(families, columns, cells_of_views, &machine);
#ifndef CERES_EXT_CUDA_KERNELS_STRUCTURE_VIEWS_H_
#define CERES_EXT_CUDA_KERNELS_STRUCTURE_VIEWS_H_

#include <cstdint>
#include <numeric>
#include <vector>

#include "cuda_kernels/base/status.h"
#include "cuda_kernels/structure/block_families.h"
#include "cuda_kernels/structure/block_rows.h"

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

  // families: of F. cells: of each view, in the order of their columns.
  // view_of_row, pair_of_row: of each row of the batch, the latter as for
  // MakeBlockLists.
  Status Setup(const BlockFamilies& families,
               int columns,
               const std::vector<std::vector<ViewCell>>& cells,
               const std::vector<int32_t>& view_of_row,
               const std::vector<int64_t>& pair_of_row,
               Machine* machine) {
    columns_ = columns;
    num_views_ = static_cast<int32_t>(cells.size());
    std::vector<int32_t> column(int64_t{columns} * num_views_, -1);
    std::vector<std::vector<int32_t>> num_views_of;
    for (const BlockFamily& family : families) {
      num_views_of.emplace_back(family.num_blocks, 0);
    }
    std::vector<FamilyCell> all;
    for (int32_t v = 0; v < num_views_; ++v) {
      int64_t at = int64_t{columns} * v;
      for (const ViewCell& cell : cells[v]) {
        const BlockFamily& family = families[cell.family];
        std::iota(column.begin() + at,
                  column.begin() + at + cell.size,
                  static_cast<int32_t>(family.value_begin +
                                       int64_t{family.size} * cell.block));
        all.push_back({cell.family, cell.block, {at, v, cell.size}});
        ++num_views_of[cell.family][cell.block];
        at += cell.size;
      }
    }
    // Blocks of one view, and rows of the others.
    std::vector<FamilyCell> single;
    for (const FamilyCell& cell : all) {
      if (num_views_of[cell.family][cell.block] == 1) {
        single.push_back(cell);
      }
    }
    std::vector<FamilyCell> shared;
    for (size_t k = 0; k < view_of_row.size(); ++k) {
      int64_t at = 0;
      for (const ViewCell& cell : cells[view_of_row[k]]) {
        if (num_views_of[cell.family][cell.block] > 1) {
          shared.push_back({cell.family,
                            cell.block,
                            {at, static_cast<int32_t>(k), cell.size}});
        }
        at += cell.size;
      }
    }
    CERES_EXT_RETURN_IF_ERROR(machine->Upload(column, &column_));
    CERES_EXT_RETURN_IF_ERROR(
        SetupBlockLists(MakeBlockLists(families, all, {}), machine, &lists_));
    CERES_EXT_RETURN_IF_ERROR(SetupBlockLists(
        MakeBlockLists(families, single, {}), machine, &single_lists_));
    return SetupBlockLists(
        MakeBlockLists(families, shared, pair_of_row), machine, &shared_lists_);
  }

  int columns() const { return columns_; }
  int32_t num_views() const { return num_views_; }
  int64_t num_values() const { return int64_t{columns_} * num_views_; }
  // Of each column of each view, the column of F; -1: none.
  const int32_t* column() const { return column_.data(); }
  // The places of blocks in views: a cell's value is its first column among
  // those of all views, its row the view.
  const std::vector<List>& lists() const { return lists_; }
  // The same of blocks that stand in one view alone.
  const std::vector<List>& single_lists() const { return single_lists_; }
  // The rows of the other blocks: a cell's value is its first column within the
  // view, its row the row.
  const std::vector<List>& shared_lists() const { return shared_lists_; }

 private:
  int columns_ = 0;
  int32_t num_views_ = 0;
  typename Machine::template Buffer<int32_t> column_;
  std::vector<List> lists_;
  std::vector<List> single_lists_;
  std::vector<List> shared_lists_;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_STRUCTURE_VIEWS_H_
