// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Arrays of numpy, and of libraries that compute on a device, as they are:
// never converted, never copied.

#ifndef PYTHON_SRC_ARRAY_H_
#define PYTHON_SRC_ARRAY_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "nanobind/nanobind.h"
#include "nanobind/ndarray.h"

namespace ceres_ext::python {

enum ArrayAccess { ARRAY_READ, ARRAY_WRITE };

// The length that ReadArray takes as it finds it.
inline constexpr int64_t kAnyLength = -1;

// Returns the values of the array, and its lengths in *shape, which has the
// expected lengths on entry. Throws TypeError if it is not a numpy array of
// that type (numpy's name, such as "float64"), and ValueError if it has another
// shape, is not C-contiguous and aligned, or must be writable and is read-only.
// The message begins with `name`. The caller keeps the array.
// on_device: not null where the array may also be one of another library: with
// __cuda_array_interface__ (torch, CuPy, Numba), which is on a CUDA device, or
// with __dlpack__ (JAX too), which may be there.
void* ReadArray(const std::string& name,
                nanobind::handle array,
                const char* type,
                ArrayAccess access,
                std::vector<int64_t>* shape,
                bool* on_device = nullptr);

// An array of `columns` columns, or of one dimension where that is 0, which
// owns the values.
template <typename T, typename Allocator>
nanobind::object MakeArray(std::vector<T, Allocator> values, size_t columns) {
  using Values = std::vector<T, Allocator>;
  auto* const owned = new Values(std::move(values));
  const nanobind::capsule owner(
      owned, [](void* p) noexcept { delete static_cast<Values*>(p); });
  const size_t shape[] = {owned->size() / (columns == 0 ? 1 : columns),
                          columns};
  return nanobind::cast(nanobind::ndarray<nanobind::numpy, T>(
      owned->data(), columns == 0 ? 1 : 2, shape, owner));
}

}  // namespace ceres_ext::python

#endif  // PYTHON_SRC_ARRAY_H_
