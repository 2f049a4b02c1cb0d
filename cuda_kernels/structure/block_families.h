// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Parameter blocks by families: all blocks of one role and size.
//
//   BlockFamilies f;
//   f.Add(6, num_poses);
//   f.Add(4, num_intrinsics);
//   f.num_values();  // 6 num_poses + 4 num_intrinsics
//
// A vector over families is one family after the other, each of them size
// values per block. The symmetric matrices of blocks (V, U, S_c and their
// inverses) lie one family after the other as well, packed (small_matrix.h),
// each family a BlockRef in the layout of the machine.
#ifndef CERES_EXT_CUDA_KERNELS_STRUCTURE_BLOCK_FAMILIES_H_
#define CERES_EXT_CUDA_KERNELS_STRUCTURE_BLOCK_FAMILIES_H_

#include <cstdint>
#include <vector>

#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/base/small_matrix.h"

namespace ceres_ext::kernels {

struct BlockFamily {
  int32_t size = 0;  // columns of a block
  int32_t num_blocks = 0;
  int64_t value_begin = 0;   // of the family in a vector
  int64_t packed_begin = 0;  // of the family among matrices of blocks

  int64_t num_values() const { return int64_t{size} * num_blocks; }
  int64_t num_packed() const { return PackedSize(int64_t{size}) * num_blocks; }
};

class BlockFamilies {
 public:
  // Returns the number of the new family.
  int Add(int32_t size, int32_t num_blocks) {
    BlockFamily family;
    family.size = size;
    family.num_blocks = num_blocks;
    family.value_begin = num_values_;
    family.packed_begin = num_packed_;
    families_.push_back(family);
    num_values_ += family.num_values();
    num_packed_ += family.num_packed();
    return static_cast<int>(families_.size()) - 1;
  }

  int size() const { return static_cast<int>(families_.size()); }
  const BlockFamily& operator[](int i) const { return families_[i]; }
  auto begin() const { return families_.begin(); }
  auto end() const { return families_.end(); }
  int64_t num_values() const { return num_values_; }
  int64_t num_packed() const { return num_packed_; }
  // The place of value `at` of a vector, 0 <= at < num_values().
  struct Place {
    int family = 0;
    int32_t block = 0;
    int32_t column = 0;
  };
  Place PlaceOf(int64_t at) const {
    int family = 0;
    while (at >=
           families_[family].value_begin + families_[family].num_values()) {
      ++family;
    }
    at -= families_[family].value_begin;
    const int32_t size = families_[family].size;
    return {family,
            static_cast<int32_t>(at / size),
            static_cast<int32_t>(at % size)};
  }

 private:
  std::vector<BlockFamily> families_;
  int64_t num_values_ = 0;
  int64_t num_packed_ = 0;
};

// Values of blocks of one family with strides of run time: element e of block b
// at data[b * block_stride + e * element_stride].
template <typename T>
struct BlockArray {
  T* data = nullptr;
  int64_t block_stride = 0;
  int64_t element_stride = 0;

  CERES_EXT_HOST_DEVICE T& operator()(int64_t block, int64_t element) const {
    return data[block * block_stride + element * element_stride];
  }
  CERES_EXT_HOST_DEVICE StridedMatrix<T> Matrix(int64_t block) const {
    return {data + block * block_stride, element_stride};
  }
};

// The values of a family in a vector.
template <typename T>
BlockArray<T> VectorBlocks(const BlockFamily& family, T* vector) {
  return {vector + family.value_begin, family.size, 1};
}

// The matrices of a family in an array of all.
template <typename T>
BlockArray<T> PackedBlocks(const BlockFamily& family,
                           BlockLayout layout,
                           T* packed) {
  packed += family.packed_begin;
  if (layout == BlockLayout::kContinuousElement) {
    return {packed, 1, family.num_blocks};
  }
  return {packed, PackedSize(int64_t{family.size}), 1};
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_STRUCTURE_BLOCK_FAMILIES_H_
