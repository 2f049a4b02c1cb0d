// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "python/src/array.h"

#include <cstddef>

#include "python/src/module.h"

namespace nb = nanobind;

namespace ceres_ext::python {
namespace {

// The shape as numpy writes it, with a placeholder for arbitrary lengths.
std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "(";
  for (const int64_t length : shape) {
    text += (length == kAnyLength ? "any" : std::to_string(length)) + ", ";
  }
  text.resize(text.size() - (shape.size() == 1 ? 1 : 2));
  return text + ")";
}

}  // namespace

void* ReadArray(const std::string& name,
                nb::handle array,
                const char* type,
                ArrayAccess access,
                std::vector<int64_t>* shape) {
  if (!nb::isinstance(array, nb::module_::import_("numpy").attr("ndarray"))) {
    throw TypeError(name + ": expected a numpy array of " + type + ", found " +
                    TypeOf(array));
  }
  const std::string found_type = Str(array.attr("dtype"));
  if (found_type != type) {
    throw TypeError(name + ": expected a numpy array of " + type + ", found " +
                    found_type + "; array.astype(numpy." + type +
                    ") makes one");
  }
  const nb::tuple found = nb::cast<nb::tuple>(array.attr("shape"));
  bool fits = found.size() == shape->size();
  for (size_t i = 0; fits && i < shape->size(); ++i) {
    const auto length = nb::cast<int64_t>(found[i]);
    fits = (*shape)[i] == kAnyLength || (*shape)[i] == length;
  }
  if (!fits) {
    throw ValueError(name + ": expected an array of shape " +
                     ShapeText(*shape) + ", found " + Repr(found));
  }
  for (size_t i = 0; i < shape->size(); ++i) {
    (*shape)[i] = nb::cast<int64_t>(found[i]);
  }
  const nb::object flags = array.attr("flags");
  if (!nb::cast<bool>(flags.attr("c_contiguous")) ||
      !nb::cast<bool>(flags.attr("aligned"))) {
    throw ValueError(name +
                     ": expected a C-contiguous, aligned array, found one that "
                     "is not; numpy.require(array, requirements=['C', 'A']) "
                     "makes one");
  }
  if (access == ARRAY_WRITE && !nb::cast<bool>(flags.attr("writeable"))) {
    throw ValueError(name +
                     ": expected a writable array, found one that is "
                     "read-only");
  }
  return reinterpret_cast<void*>(nb::cast<uintptr_t>(
      array.attr("__array_interface__")["data"][nb::int_(0)]));
}

}  // namespace ceres_ext::python
