// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The loops of WindowPacker over the active residual blocks of a problem.

#ifndef CERES_EXT_SMALL_WINDOW_WINDOW_PACKER_INL_H_
#define CERES_EXT_SMALL_WINDOW_WINDOW_PACKER_INL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "ceres_ext/small/window/window_packer.h"

namespace ceres_ext {

// Calls function(e, k, blocks) for each active residual block k of array e of
// the arrays for which is_wanted(rows) is true. False if a block is not of this
// window or the function returns false.
template <typename Wanted, typename Function>
bool WindowPacker::ForEachResidual(int64_t i,
                                   const Wanted& is_wanted,
                                   const Function& function) const {
  for (size_t e = 0; e < arrays_.size(); ++e) {
    const RowArray& array = arrays_[e];
    if (!is_wanted(*array.rows)) {
      continue;
    }
    struct Slot {
      const int32_t* block;
      const uint8_t* is_active;
      int64_t begin;
      int64_t end;
    };
    const int num_slots = static_cast<int>(residuals(array).blocks.size());
    // Only marginal priors may have more.
    Slot few_slots[WindowRows::kMaxBlocks];
    int64_t few_blocks[WindowRows::kMaxBlocks];
    std::vector<Slot> many_slots;
    std::vector<int64_t> many_blocks;
    Slot* slots = few_slots;
    int64_t* blocks = few_blocks;
    if (num_slots > WindowRows::kMaxBlocks) {
      many_slots.resize(num_slots);
      many_blocks.resize(num_slots);
      slots = many_slots.data();
      blocks = many_blocks.data();
    }
    for (int s = 0; s < num_slots; ++s) {
      const ArrayProblem::Index& index = residuals(array).blocks[s];
      const Blocks of_window = BlocksOf(index.parameters, i);
      slots[s] = {index.block,
                  FlagsOf(batch_->parameter_is_active, index.parameters),
                  of_window.begin,
                  of_window.end};
    }
    const uint8_t* const is_active =
        FlagsOf(batch_->residual_is_active, array.residuals);
    const int64_t end = batch_->residual_begin[array.residuals][i + 1];
    for (int64_t k = batch_->residual_begin[array.residuals][i]; k < end; ++k) {
      bool is_wanted_row = is_active == nullptr || is_active[k] != 0;
      for (int s = 0; s < num_slots; ++s) {
        const Slot& slot = slots[s];
        blocks[s] = slot.block == nullptr ? k : slot.block[k];
        if (blocks[s] < slot.begin || blocks[s] >= slot.end) {
          return false;
        }
        is_wanted_row &=
            slot.is_active == nullptr || slot.is_active[blocks[s]] != 0;
      }
      if (is_wanted_row && !function(static_cast<int>(e), k, blocks)) {
        return false;
      }
    }
  }
  return true;
}

// Calls function(e, k, camera, point) for each active row.
template <typename Function>
bool WindowPacker::ForEachRow(int64_t i, const Function& function) const {
  return ForEachResidual(
      i,
      [](const WindowRows& rows) { return rows.has_point(); },
      [&](int e, int64_t k, const int64_t* blocks) {
        const WindowRows& rows = *arrays_[e].rows;
        return function(
            e, k, blocks[rows.camera_block()], blocks[rows.point_block()]);
      });
}

// Calls function(e, k, first camera, last camera) for each active prior.
template <typename Function>
bool WindowPacker::ForEachPrior(int64_t i, const Function& function) const {
  return ForEachResidual(
      i,
      [](const WindowRows& rows) { return rows.kind == WindowRowKind::kPrior; },
      [&](int e, int64_t k, const int64_t* blocks) {
        return function(
            e, k, blocks[0], blocks[residuals(arrays_[e]).blocks.size() - 1]);
      });
}

// Calls function(e, k, prior, cameras) for each active marginal prior.
template <typename Function>
bool WindowPacker::ForEachMarginal(int64_t i, const Function& function) const {
  return ForEachResidual(
      i,
      [](const WindowRows& rows) {
        return rows.kind == WindowRowKind::kMarginal;
      },
      [&](int e, int64_t k, const int64_t* blocks) {
        const RowArray& array = arrays_[e];
        std::unique_ptr<const ceres::CostFunction> owner;
        const BlockMarginalPrior* const prior = FindMarginalPrior(
            *array.rows, residuals(array), k, array.num_residuals, &owner);
        return prior != nullptr && function(e, k, *prior, blocks);
      });
}

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_WINDOW_WINDOW_PACKER_INL_H_
