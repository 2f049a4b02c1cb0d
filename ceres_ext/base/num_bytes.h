// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#ifndef CERES_EXT_BASE_NUM_BYTES_H_
#define CERES_EXT_BASE_NUM_BYTES_H_

#include <cstdint>
#include <vector>

namespace ceres_ext {

// The memory that a vector holds.
template <typename T>
int64_t NumBytesOf(const std::vector<T>& v) {
  return static_cast<int64_t>(sizeof(T) * v.capacity());
}

}  // namespace ceres_ext

#endif  // CERES_EXT_BASE_NUM_BYTES_H_
