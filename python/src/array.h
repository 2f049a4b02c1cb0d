// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Arrays of numpy as they are: never converted, never copied.

#ifndef PYTHON_SRC_ARRAY_H_
#define PYTHON_SRC_ARRAY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "nanobind/nanobind.h"

namespace ceres_ext::python {

enum ArrayAccess { ARRAY_READ, ARRAY_WRITE };

// The length that ReadArray takes as it finds it.
inline constexpr int64_t kAnyLength = -1;

// Where the values of the array lie, and its lengths in *shape, which says on
// entry what they must be. Throws TypeError where it is no numpy array of that
// type (numpy's name, as "float64"), and ValueError where it has another shape,
// is not C-contiguous and aligned, or is to be written and is read-only; the
// sentence begins with `name`. The caller keeps the array.
void* ReadArray(const std::string& name,
                nanobind::handle array,
                const char* type,
                ArrayAccess access,
                std::vector<int64_t>* shape);

}  // namespace ceres_ext::python

#endif  // PYTHON_SRC_ARRAY_H_
