// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/block_table.h"

#include <algorithm>
#include <type_traits>

namespace ceres_ext {
int BlockTable::NumVarying() const {
  return static_cast<int>(std::count_if(
      tangent_size.begin(), tangent_size.end(), [](int n) { return n > 0; }));
}

int BlockTable::MaxTangentSize() const {
  return tangent_size.empty()
             ? 0
             : *std::max_element(tangent_size.begin(), tangent_size.end());
}

bool BlockTable::HasManifold() const {
  return std::any_of(manifold.begin(),
                     manifold.end(),
                     [](const ceres::Manifold* m) { return m != nullptr; });
}

bool BlockTable::HasPadding() const {
  return std::any_of(tangent_size.begin(), tangent_size.end(), [this](int n) {
    return n != padded_size;
  });
}

void BlockTable::Permute(const std::vector<int32_t>& order,
                         kernels::HostContext* context) {
  constexpr int64_t kGrain = 1 << 14;
  const auto permute = [&order, context](auto* values) {
    std::decay_t<decltype(*values)> permuted(order.size());
    context->ParallelFor(static_cast<int64_t>(order.size()),
                         kGrain,
                         [&](int64_t begin, int64_t end) {
                           for (int64_t i = begin; i < end; ++i) {
                             permuted[i] = (*values)[order[i]];
                           }
                         });
    values->swap(permuted);
  };
  permute(&state_offset);
  permute(&tangent_offset);
  permute(&tangent_size);
  permute(&constant_value);
  permute(&manifold);
}

int64_t BlockTable::MemoryBytes() const {
  return int64_t{size()} * (3 * sizeof(int32_t) + 2 * sizeof(void*));
}

}  // namespace ceres_ext
