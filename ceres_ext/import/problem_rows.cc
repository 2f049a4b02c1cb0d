// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/import/problem_rows.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <numeric>
#include <vector>

namespace ceres_ext {

void ProblemRows::ReadBlocks(kernels::HostContext* context,
                             const UniformRows* skipped) {
  constexpr int64_t kRowsPerTask = 1 << 12;
  const auto allocate = [](int64_t size, auto* buffer) {
    if (!buffer->Allocate(size).ok()) {
      throw std::bad_alloc();
    }
  };
  skipped_begin_ = skipped == nullptr ? size() : skipped->begin;
  num_skipped_ = skipped == nullptr ? 0 : skipped->size();
  const int64_t n = size() - num_skipped_;
  const auto row_at = [this](int64_t place) {
    return place < skipped_begin_ ? place : place + num_skipped_;
  };
  blocks_of_each_ = n > 0 ? NumBlocks(row_at(0)) : 1;
  std::atomic<bool> differ{false};
  context->ParallelFor(n, kRowsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      if (NumBlocks(row_at(k)) != blocks_of_each_) {
        differ = true;
        return;
      }
    }
  });
  first_block_ = {};
  if (differ) {
    blocks_of_each_ = 0;
    // Before each task, and then before each row.
    std::vector<int64_t> begin_of(
        static_cast<size_t>((n + kRowsPerTask - 1) / kRowsPerTask + 1), 0);
    context->ParallelFor(n, kRowsPerTask, [&](int64_t begin, int64_t end) {
      int64_t num_blocks = 0;
      for (int64_t k = begin; k < end; ++k) {
        num_blocks += NumBlocks(row_at(k));
      }
      begin_of[static_cast<size_t>(begin / kRowsPerTask) + 1] = num_blocks;
    });
    std::partial_sum(begin_of.begin(), begin_of.end(), begin_of.begin());
    allocate(n + 1, &first_block_);
    int64_t* const first = first_block_.data();
    first[n] = begin_of.back();
    context->ParallelFor(n, kRowsPerTask, [&](int64_t begin, int64_t end) {
      int64_t next = begin_of[static_cast<size_t>(begin / kRowsPerTask)];
      for (int64_t k = begin; k < end; ++k) {
        first[k] = next;
        next += NumBlocks(row_at(k));
      }
    });
  }
  allocate(FirstBlock(n), &blocks_);
  context->ParallelFor(n, kRowsPerTask, [&](int64_t begin, int64_t end) {
    // The skipped rows may be in the middle of the task.
    const int64_t middle = std::clamp(skipped_begin_, begin, end);
    if (begin < middle) {
      CopyBlocks(begin, middle, blocks_.data() + FirstBlock(begin));
    }
    if (middle < end) {
      CopyBlocks(row_at(middle),
                 end + num_skipped_,
                 blocks_.data() + FirstBlock(middle));
    }
  });
}

}  // namespace ceres_ext
