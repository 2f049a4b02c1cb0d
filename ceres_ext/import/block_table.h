// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The places of the blocks of one kind (cameras, or points) in Ceres's vectors.
//
// This library keeps a tangent vector as num_blocks blocks of padded_size
// values each; Ceres packs the tangent of the non-constant blocks of all kinds
// in the order of its Program. Values that have no place in Ceres's vector are
// *padding*: the columns beyond a block's tangent size, and all columns of a
// constant block. In a block with *held* values, those of a SubsetManifold, the
// columns are at the places of its other values, so its Jacobian is that
// without a manifold, except for zeros. cuda_kernels/ops/block_table.h goes
// between the two.

#ifndef CERES_EXT_IMPORT_BLOCK_TABLE_H_
#define CERES_EXT_IMPORT_BLOCK_TABLE_H_

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <set>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "ceres/manifold.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

// A table is *uniform* where all blocks vary, without manifolds, and stand one
// after the other in Ceres's vectors: it then has no entry per block but, after
// Permute, its place there.
class BlockTable {
 public:
  // Values in a block of the state and padded values in a block of a tangent
  // vector.
  int ambient_size = 0;
  int padded_size = 0;

  int32_t size() const { return size_; }

  // One entry per block, to be Set.
  void Resize(int32_t size) {
    size_ = size;
    is_uniform_ = false;
    state_offset_.resize(size);
    tangent_offset_.resize(size);
    tangent_size_.resize(size);
    constant_value_.resize(size);
    manifold_.resize(size);
  }
  struct Entry {
    // A constant block has offsets -1 and tangent size 0.
    int32_t state_offset = -1;
    int32_t tangent_offset = -1;
    int32_t tangent_size = 0;
    // The value of a constant block, null for others. Not owned.
    const double* constant_value = nullptr;
    // Null if the block has none. Not owned.
    const ceres::Manifold* manifold = nullptr;
  };
  void Set(int64_t i, const Entry& entry) {
    state_offset_[i] = entry.state_offset;
    tangent_offset_[i] = entry.tangent_offset;
    tangent_size_[i] = entry.tangent_size;
    constant_value_[i] = entry.constant_value;
    manifold_[i] = entry.manifold;
  }
  // A uniform table from ambient_size on.
  void SetUniform(int32_t size, int32_t state_begin, int32_t tangent_begin) {
    *this = BlockTable(ambient_size, padded_size);
    size_ = size;
    is_uniform_ = true;
    state_begin_ = state_begin;
    tangent_begin_ = tangent_begin;
  }

  bool is_uniform() const { return is_uniform_; }
  // For a uniform table: the number of blocks before block i in Ceres's
  // vectors; empty if it is i.
  const std::vector<int32_t>& order() const { return order_; }
  int32_t state_begin() const { return state_begin_; }
  int32_t tangent_begin() const { return tangent_begin_; }

  int32_t state_offset(int64_t i) const {
    return is_uniform_ ? state_begin_ + Place(i) * ambient_size
                       : state_offset_[i];
  }
  int32_t tangent_offset(int64_t i) const {
    return is_uniform_ ? tangent_begin_ + Place(i) * ambient_size
                       : tangent_offset_[i];
  }
  int32_t tangent_size(int64_t i) const {
    return is_uniform_ ? ambient_size : tangent_size_[i];
  }
  const double* constant_value(int64_t i) const {
    return is_uniform_ ? nullptr : constant_value_[i];
  }
  const ceres::Manifold* manifold(int64_t i) const {
    return is_uniform_ ? nullptr : manifold_[i];
  }
  // For a table that is not uniform.
  const std::vector<int32_t>& state_offsets() const { return state_offset_; }
  const std::vector<int32_t>& tangent_offsets() const {
    return tangent_offset_;
  }
  const std::vector<int32_t>& tangent_sizes() const { return tangent_size_; }

  // Blocks with columns.
  int NumVarying() const {
    return is_uniform_
               ? size_
               : static_cast<int>(std::count_if(tangent_size_.begin(),
                                                tangent_size_.end(),
                                                [](int n) { return n > 0; }));
  }
  int64_t NumColumns() const {
    return is_uniform_
               ? int64_t{size_} * ambient_size
               : std::accumulate(
                     tangent_size_.begin(), tangent_size_.end(), int64_t{0});
  }
  // All tangent sizes.
  void InsertTangentSizes(std::set<int>* sizes) const {
    if (is_uniform_) {
      sizes->insert(ambient_size);
    } else {
      sizes->insert(tangent_size_.begin(), tangent_size_.end());
    }
  }
  // The largest tangent size.
  int MaxTangentSize() const {
    if (is_uniform_ || size_ == 0) {
      return is_uniform_ ? ambient_size : 0;
    }
    return *std::max_element(tangent_size_.begin(), tangent_size_.end());
  }
  bool HasManifold() const {
    return std::any_of(manifold_.begin(),
                       manifold_.end(),
                       [](const ceres::Manifold* m) { return m != nullptr; });
  }

  // Values that a ceres::SubsetManifold on block i, of at most 8 values, keeps
  // constant are *held* from now on, bit j for value j; other manifolds stay.
  void HoldSubsets() {
    for (size_t i = 0; i < manifold_.size(); ++i) {
      if (IsSubset(manifold_[i])) {
        held_.resize(size_);
        held_[i] = HeldBy(*manifold_[i]);
      }
    }
  }
  // Empty: nothing is held in any block.
  const std::vector<uint8_t>& held() const { return held_; }
  bool IsHeld(int64_t i, int value) const {
    return !held_.empty() && (held_[i] >> value & 1) != 0;
  }
  // True if the Jacobian needs the derivative of a manifold.
  bool NeedsTangents() const {
    return held_.empty() ? HasManifold() : FindNoSubset() != nullptr;
  }
  // The first manifold that HoldSubsets would leave; null: none.
  const ceres::Manifold* FindNoSubset() const {
    const auto found = std::find_if(
        manifold_.begin(), manifold_.end(), [](const ceres::Manifold* m) {
          return m != nullptr && !IsSubset(m);
        });
    return found == manifold_.end() ? nullptr : *found;
  }
  bool HasPadding() const {
    return is_uniform_
               ? ambient_size != padded_size
               : std::any_of(tangent_size_.begin(),
                             tangent_size_.end(),
                             [this](int n) { return n != padded_size; });
  }

  // False if the derivative of every block by its columns is the identity.
  bool HasTangents() const {
    return HasManifold() || HasPadding() || ambient_size != padded_size;
  }

  // Block i becomes what block order[i] was; order is a permutation.
  void Permute(std::vector<int32_t> order, kernels::HostContext* context) {
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
    if (is_uniform_) {
      if (!order_.empty()) {
        permute(&order_);
      } else {
        order_ = std::move(order);
      }
      return;
    }
    permute(&state_offset_);
    permute(&tangent_offset_);
    permute(&tangent_size_);
    permute(&constant_value_);
    permute(&manifold_);
    if (!held_.empty()) {
      permute(&held_);
    }
  }

  BlockTable() = default;

 private:
  BlockTable(int ambient, int padded)
      : ambient_size(ambient), padded_size(padded) {}

  static bool IsSubset(const ceres::Manifold* manifold) {
    return manifold != nullptr &&
           typeid(*manifold) == typeid(ceres::SubsetManifold);
  }
  static uint8_t HeldBy(const ceres::Manifold& subset) {
    const int size = subset.AmbientSize();
    const int columns = subset.TangentSize();
    const std::vector<double> x(size, 0.0);
    std::vector<double> derivative(static_cast<size_t>(size) * columns);
    subset.PlusJacobian(x.data(), derivative.data());
    int bits = 0;
    for (int j = 0; j < size; ++j) {
      const double* row = derivative.data() + int64_t{j} * columns;
      bits |= (std::count(row, row + columns, 0.0) == columns ? 1 : 0) << j;
    }
    return static_cast<uint8_t>(bits);
  }

  int32_t Place(int64_t i) const {
    return order_.empty() ? static_cast<int32_t>(i) : order_[i];
  }

  int32_t size_ = 0;
  bool is_uniform_ = false;
  int32_t state_begin_ = 0;
  int32_t tangent_begin_ = 0;
  std::vector<int32_t> order_;
  // The members of Entry; empty if the table is uniform.
  std::vector<int32_t> state_offset_;
  std::vector<int32_t> tangent_offset_;
  std::vector<int32_t> tangent_size_;
  std::vector<const double*> constant_value_;
  std::vector<const ceres::Manifold*> manifold_;
  std::vector<uint8_t> held_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_IMPORT_BLOCK_TABLE_H_
