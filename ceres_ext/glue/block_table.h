// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Where the blocks of one kind (cameras, or points) stand in Ceres's vectors.
//
// This library keeps a tangent vector as num_blocks blocks of padded_size
// values each; Ceres packs the tangent of the non-constant blocks of all kinds
// in the order of its Program. Values that have no place in Ceres's vector are
// *padding*: the columns beyond a block's tangent size, and all columns of a
// constant block. cuda_kernels/ops/block_table.h goes between the two.

#ifndef CERES_EXT_GLUE_BLOCK_TABLE_H_
#define CERES_EXT_GLUE_BLOCK_TABLE_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "ceres/manifold.h"
#include "ceres/parameter_block.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

struct BlockTable {
  // One entry per block. A constant block has offsets -1 and tangent size 0.
  std::vector<int32_t> state_offset;
  std::vector<int32_t> tangent_offset;
  std::vector<int32_t> tangent_size;
  // The value of a constant block, null for others. Not owned.
  std::vector<const double*> constant_value;
  // Null where the block has none. Not owned.
  std::vector<const ceres::Manifold*> manifold;

  // Values in a block of the state and padded values in a block of a tangent
  // vector.
  int ambient_size = 0;
  int padded_size = 0;

  int32_t size() const { return static_cast<int32_t>(tangent_size.size()); }

  // Blocks beyond the old size have no values yet.
  void Resize(int32_t size) {
    state_offset.resize(size);
    tangent_offset.resize(size);
    tangent_size.resize(size);
    constant_value.resize(size);
    manifold.resize(size);
  }

  void Set(int64_t i, const ceres::internal::ParameterBlock& block) {
    const bool is_constant = block.IsConstant();
    state_offset[i] = is_constant ? -1 : block.state_offset();
    tangent_offset[i] = is_constant ? -1 : block.delta_offset();
    tangent_size[i] = is_constant ? 0 : block.TangentSize();
    constant_value[i] = is_constant ? block.state() : nullptr;
    manifold[i] = is_constant ? nullptr : block.manifold();
  }

  // Blocks with columns.
  int NumVarying() const {
    return static_cast<int>(std::count_if(
        tangent_size.begin(), tangent_size.end(), [](int n) { return n > 0; }));
  }
  // The largest tangent size.
  int MaxTangentSize() const {
    return tangent_size.empty()
               ? 0
               : *std::max_element(tangent_size.begin(), tangent_size.end());
  }
  bool HasManifold() const {
    return std::any_of(manifold.begin(),
                       manifold.end(),
                       [](const ceres::Manifold* m) { return m != nullptr; });
  }
  bool HasPadding() const {
    return std::any_of(tangent_size.begin(), tangent_size.end(), [this](int n) {
      return n != padded_size;
    });
  }

  // Block i becomes what block order[i] was; order is a permutation.
  void Permute(const std::vector<int32_t>& order,
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
};

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_BLOCK_TABLE_H_
