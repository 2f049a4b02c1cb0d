// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/structure/block_rows.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

namespace ceres_ext::kernels {
namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

std::string Row(int64_t i) { return "Row " + std::to_string(i); }

}  // namespace

Status BlockRowsBuilder::Check() const {
  for (int i = 0; i < e_.size(); ++i) {
    if (e_[i].size > kMaxEliminatedSize) {
      return {StatusCode::kUnsupported,
              "An eliminated block has " + std::to_string(e_[i].size) +
                  " columns, at most " + std::to_string(kMaxEliminatedSize) +
                  " are supported."};
    }
  }
  for (int i = 0; i < f_.size(); ++i) {
    if (f_[i].size > kMaxBlockColumns) {
      return {StatusCode::kUnsupported,
              "A block has " + std::to_string(f_[i].size) +
                  " columns, at most " + std::to_string(kMaxBlockColumns) +
                  " are supported."};
    }
  }
  int64_t num_residuals = 0;
  for (size_t i = 0; i < num_residuals_.size(); ++i) {
    num_residuals += num_residuals_[i];
    int num_eliminated = 0;
    int num_private = 0;
    for (int32_t c = cell_begin_[i]; c < cell_begin_[i + 1]; ++c) {
      const Cell& cell = given_cells_[c];
      const BlockFamilies& families = cell.eliminated ? e_ : f_;
      num_eliminated += cell.eliminated && !cell.is_private ? 1 : 0;
      num_private += cell.is_private ? 1 : 0;
      if (cell.family < 0 || cell.family >= families.size() || cell.block < 0 ||
          cell.block >= families[cell.family].num_blocks || cell.size < 0 ||
          cell.size > families[cell.family].size ||
          (cell.is_private && (!cell.eliminated || cell.size != 1))) {
        return {StatusCode::kInvalidArgument,
                Row(i) + " has a cell of block " + std::to_string(cell.block) +
                    " with " + std::to_string(cell.size) +
                    " columns, which family " + std::to_string(cell.family) +
                    " doesn't have."};
      }
    }
    if (num_eliminated > 1 || num_private > 1) {
      return {StatusCode::kInvalidArgument,
              Row(i) + (num_private > 1 ? " has two private blocks."
                                        : " has two eliminated blocks.")};
    }
  }
  if (num_residuals > kMaxInt ||
      static_cast<int64_t>(given_cells_.size()) > kMaxInt ||
      e_.num_values() > kMaxInt || f_.num_values() > kMaxInt) {
    return {StatusCode::kUnsupported,
            "Rows with 2^31 residuals, blocks or columns are not supported."};
  }
  return {};
}

BlockListCuts MakeBlockListCuts(const std::vector<int64_t>& begin) {
  BlockListCuts cuts;
  cuts.segment = begin.back() < kFewCells ? kSegmentOfFewCells : kSegmentCells;
  for (size_t b = 0; b + 1 < begin.size(); ++b) {
    const int64_t num_cells = begin[b + 1] - begin[b];
    if (num_cells > 0) {
      cuts.block.push_back(static_cast<int32_t>(b));
      cuts.block_begin.push_back(begin[b]);
      cuts.first_place.push_back(cuts.first_place.back() +
                                 (num_cells + cuts.segment - 1) / cuts.segment);
    }
  }
  cuts.block_begin.push_back(begin.back());
  return cuts;
}

std::vector<std::vector<int64_t>> MakeSumLevels(std::vector<int64_t> sums) {
  const size_t num_listed = sums.size() - 1;
  std::vector<std::vector<int64_t>> levels;
  while (sums.back() > static_cast<int64_t>(num_listed)) {
    std::vector<int64_t> level;
    std::vector<int64_t> fewer{0};
    for (size_t b = 0; b < num_listed; ++b) {
      for (int64_t first = sums[b]; first < sums[b + 1];
           first += kSegmentSums) {
        level.push_back(first);
      }
      fewer.push_back(static_cast<int64_t>(level.size()));
    }
    level.push_back(sums.back());
    levels.push_back(std::move(level));
    sums.swap(fewer);
  }
  return levels;
}

void CutBlockList(const std::vector<int64_t>& begin,
                  const int32_t* pair_of_row,
                  HostContext* context,
                  BlockList* list) {
  BlockListCuts cuts = MakeBlockListCuts(begin);
  const std::vector<int64_t>& first_place = cuts.first_place;
  std::vector<int64_t> segment_at(static_cast<size_t>(first_place.back()));
  const auto find = [&](int64_t from, int64_t to) {
    auto b = static_cast<size_t>(
        std::upper_bound(first_place.begin(), first_place.end(), from) -
        first_place.begin() - 1);
    for (int64_t i = from; i < to; ++i) {
      b += i == first_place[b + 1] ? 1 : 0;
      segment_at[static_cast<size_t>(i)] =
          SegmentAt(list->cells.data(),
                    pair_of_row,
                    cuts.block_begin[b] + (i - first_place[b]) * cuts.segment,
                    cuts.block_begin[b],
                    cuts.block_begin[b + 1],
                    cuts.segment);
    }
  };
  if (context == nullptr) {
    find(0, first_place.back());
  } else {
    constexpr int64_t kPlacesPerTask = 1 << 9;
    context->ParallelFor(first_place.back(), kPlacesPerTask, find);
  }
  std::vector<int64_t> sums{0};  // of each listed block, the first segment
  for (size_t b = 0; b < cuts.block.size(); ++b) {
    for (int64_t i = first_place[b]; i < first_place[b + 1]; ++i) {
      if (segment_at[static_cast<size_t>(i)] != kNoSegment) {
        list->segment_begin.push_back(segment_at[static_cast<size_t>(i)]);
      }
    }
    sums.push_back(static_cast<int64_t>(list->segment_begin.size()));
  }
  list->segment_begin.push_back(list->cells.size());
  list->sizes.num_blocks = static_cast<int32_t>(cuts.block.size());
  list->sizes.num_segments = sums.back();
  list->block = std::move(cuts.block);
  if (list->sizes.size > kMaxCutColumns) {
    list->block_begin = std::move(cuts.block_begin);
  }
  list->levels = MakeSumLevels(std::move(sums));
}

Status MakeBlockLists(const BlockFamilies& families,
                      const std::vector<FamilyCell>& cells,
                      const int32_t* pair_of_row,
                      std::vector<BlockList>* lists) {
  if (cells.empty()) {  // The families may be large.
    lists->clear();
    return {};
  }
  return MakeBlockLists(
      families,
      static_cast<int64_t>(cells.size()),
      [&cells](int64_t i, auto&& fn) { fn(cells[static_cast<size_t>(i)]); },
      pair_of_row,
      /*context=*/nullptr,
      lists);
}

// The cell of row i, once.
void BlockRowsBuilder::AddMergedCell(const MergedBlocks::Place& place,
                                     int32_t i,
                                     std::vector<FamilyCell>* cells) const {
  if (place.family < 0) {
    return;
  }
  for (auto c = cells->rbegin(); c != cells->rend() && c->cell.row == i; ++c) {
    if (c->family == place.family && c->block == place.block) {
      return;
    }
  }
  cells->push_back(
      {place.family,
       place.block,
       {merged_->ColumnBegin(place), i, merged_->families[place.family].size}});
}

// Eliminated cells come first, private ones last, rows by their eliminated
// block: family and place in it. Rows without one come last.
std::pair<int64_t, int32_t> BlockRowsBuilder::OrderCells(int64_t i) {
  const auto begin = given_cells_.begin() + cell_begin_[i];
  const auto end = given_cells_.begin() + cell_begin_[i + 1];
  const auto last =
      std::find_if(begin, end, [](const Cell& c) { return c.is_private; });
  if (last != end) {
    std::rotate(last, last + 1, end);
  }
  const auto first = std::find_if(
      begin, end, [](const Cell& c) { return c.eliminated && !c.is_private; });
  if (first == end) {
    return {kMaxInt, 0};
  }
  std::rotate(begin, first, first + 1);
  return {begin->family, begin->block};
}

Status BlockRowsBuilder::Build() {
  CERES_EXT_RETURN_IF_ERROR(Check());
  const auto n = static_cast<int64_t>(num_residuals_.size());
  std::vector<std::pair<int64_t, int32_t>> key(n);
  for (int64_t i = 0; i < n; ++i) {
    key[i] = OrderCells(i);
  }
  const auto is_private = [](const Cell& cell) { return cell.is_private; };
  const auto one =
      std::find_if(given_cells_.begin(), given_cells_.end(), is_private);
  if (one != given_cells_.end()) {
    private_family_ = one->family;
    private_cells_.assign(n, {0, -1, 0});
  }
  row_order_.resize(n);
  std::iota(row_order_.begin(), row_order_.end(), 0);
  std::stable_sort(row_order_.begin(),
                   row_order_.end(),
                   [&](int32_t a, int32_t b) { return key[a] < key[b]; });

  std::vector<int32_t> given_cell_begin{0};
  given_cell_begin.swap(cell_begin_);
  std::vector<FamilyCell> e_cells;
  std::vector<FamilyCell> f_cells;
  std::vector<FamilyCell> merged_cells;
  std::vector<int32_t> pair_of_row(n, -1);
  eliminated_.assign(n, {0, 0, 0, 0});
  cells_.reserve(given_cells_.size());
  for (int32_t i = 0; i < n; ++i) {
    const int32_t from = row_order_[i];
    const int32_t num_residuals = num_residuals_[from];
    row_begin_.push_back(row_begin_.back() + num_residuals);
    residual_row_.insert(residual_row_.end(), num_residuals, i);
    for (int32_t c = given_cell_begin[from]; c < given_cell_begin[from + 1];
         ++c) {
      const Cell& cell = given_cells_[c];
      const BlockFamily& family = (cell.eliminated ? e_ : f_)[cell.family];
      const auto size = static_cast<int16_t>(cell.size);
      const auto column = static_cast<int32_t>(
          family.value_begin + int64_t{family.size} * cell.block);
      cells_.push_back({num_values_,
                        column,
                        size,
                        cell.is_private
                            ? kPrivateCell
                            : static_cast<int16_t>(cell.eliminated ? 1 : 0)});
      if (cell.is_private) {
        private_cells_[i] = {num_values_, column, cell.block};
        num_values_ += num_residuals;
        continue;
      }
      if (cell.eliminated) {
        eliminated_[i] = {
            num_values_, cell.block, size, static_cast<int16_t>(cell.family)};
        pair_of_row[i] = static_cast<int32_t>(family.value_begin + cell.block);
      }
      if (cell.size > 0) {
        (cell.eliminated ? e_cells : f_cells)
            .push_back({cell.family, cell.block, {num_values_, i, cell.size}});
      }
      if (!cell.eliminated && cell.size > 0 && merged_ != nullptr &&
          !merged_->empty()) {
        AddMergedCell(
            merged_->place[cell.family][cell.block], i, &merged_cells);
      }
      num_values_ += int64_t{num_residuals} * cell.size;
    }
    cell_begin_.push_back(static_cast<int32_t>(cells_.size()));
  }
  CERES_EXT_RETURN_IF_ERROR(
      MakeBlockLists(e_, e_cells, pair_of_row.data(), &e_lists_));
  CERES_EXT_RETURN_IF_ERROR(
      MakeBlockLists(f_, f_cells, pair_of_row.data(), &f_lists_));
  if (!merged_cells.empty()) {
    CERES_EXT_RETURN_IF_ERROR(MakeBlockLists(
        merged_->families, merged_cells, pair_of_row.data(), &merged_lists_));
    merged_column_ = merged_->column;
  }
  given_cells_.clear();
  given_cells_.shrink_to_fit();
  return {};
}

}  // namespace ceres_ext::kernels
