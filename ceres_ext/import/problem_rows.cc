// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/import/problem_rows.h"

#include <atomic>
#include <new>
#include <numeric>

namespace ceres_ext {

void ProblemRows::ReadBlocks(kernels::HostContext* context) {
  constexpr int64_t kRowsPerTask = 1 << 12;
  const int64_t n = size();
  const auto allocate = [](int64_t size, auto* buffer) {
    if (!buffer->Allocate(size).ok()) {
      throw std::bad_alloc();
    }
  };
  blocks_of_each_ = n > 0 ? NumBlocks(0) : 1;
  std::atomic<bool> differ{false};
  context->ParallelFor(n, kRowsPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (NumBlocks(i) != blocks_of_each_) {
        differ = true;
        return;
      }
    }
  });
  first_block_ = {};
  if (differ) {
    blocks_of_each_ = 0;
    allocate(n + 1, &first_block_);
    int64_t* const first = first_block_.data();
    first[0] = 0;
    context->ParallelFor(n, kRowsPerTask, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        first[i + 1] = NumBlocks(i);
      }
    });
    std::partial_sum(first, first + n + 1, first);
  }
  allocate(FirstBlock(n), &blocks_);
  context->ParallelFor(n, kRowsPerTask, [&](int64_t begin, int64_t end) {
    CopyBlocks(begin, end, blocks_.data() + FirstBlock(begin));
  });
}

}  // namespace ceres_ext
