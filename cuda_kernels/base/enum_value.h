// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#ifndef CERES_EXT_CUDA_KERNELS_BASE_ENUM_VALUE_H_
#define CERES_EXT_CUDA_KERNELS_BASE_ENUM_VALUE_H_

#include <cstring>
#include <type_traits>

namespace ceres_ext::kernels {

// The number that a user has put into an enum, which need not be one of its
// values: to read it as the enum would be undefined then.
template <typename Enum>
int EnumValue(const Enum& field) {
  static_assert(std::is_enum_v<Enum> && sizeof(Enum) == sizeof(int));
  int value = 0;
  std::memcpy(&value, &field, sizeof(value));
  return value;
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_BASE_ENUM_VALUE_H_
