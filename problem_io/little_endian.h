// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Numbers as COLMAP's binary files hold them, on a host of any byte order.

#ifndef PROBLEM_IO_LITTLE_ENDIAN_H_
#define PROBLEM_IO_LITTLE_ENDIAN_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace ceres_ext::colmap {

// The unsigned integer of as many bytes as T.
template <typename T>
using BitsOf =
    std::conditional_t<sizeof(T) == 1,
                       uint8_t,
                       std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;

template <typename T>
T LoadLittleEndian(const char* bytes) {
  static_assert(sizeof(BitsOf<T>) == sizeof(T));
  BitsOf<T> bits = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    bits |= static_cast<BitsOf<T>>(
        static_cast<BitsOf<T>>(static_cast<unsigned char>(bytes[i]))
        << (8 * i));
  }
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

template <typename T>
void StoreLittleEndian(T value, char* bytes) {
  static_assert(sizeof(BitsOf<T>) == sizeof(T));
  BitsOf<T> bits;
  std::memcpy(&bits, &value, sizeof(T));
  for (size_t i = 0; i < sizeof(T); ++i) {
    bytes[i] = static_cast<char>(bits >> (8 * i));
  }
}

}  // namespace ceres_ext::colmap

#endif  // PROBLEM_IO_LITTLE_ENDIAN_H_
