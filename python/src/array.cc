// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "python/src/array.h"

#include <cstddef>
#include <exception>

#include "nanobind/stl/vector.h"
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

// The properties of an array that all protocols describe.
struct Found {
  std::string type;  // numpy's name; empty: another one
  std::vector<int64_t> shape;
  bool is_contiguous = false;
  bool is_writable = false;
  void* data = nullptr;
};

// numpy's name of a type of one value: a kind and its bits.
std::string TypeName(char kind, int64_t bits) {
  if (kind == 'b' && bits == 8) {
    return "bool";
  }
  const std::string name = kind == 'f'   ? "float"
                           : kind == 'i' ? "int"
                           : kind == 'u' ? "uint"
                                         : "";
  return name.empty() ? name : name + std::to_string(bits);
}

// strides: in values; null: that of a C-contiguous array.
bool IsContiguous(const std::vector<int64_t>& shape, const int64_t* strides) {
  int64_t expected = 1;
  for (size_t i = shape.size(); i-- > 0 && strides != nullptr;) {
    if (shape[i] > 1 && strides[i] != expected) {
      return false;
    }
    expected *= shape[i];
  }
  return true;
}

// https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html
Found ReadCudaArrayInterface(nb::handle interface) {
  Found found;
  const std::string type = Str(interface["typestr"]);  // "<f8"
  if (type.size() == 3 && (type[0] == '<' || type[0] == '|')) {
    found.type = TypeName(type[1], 8 * (type[2] - '0'));
  }
  std::vector<int64_t> strides;
  const nb::object of_bytes = interface.attr("get")("strides");
  for (const nb::handle length : nb::cast<nb::tuple>(interface["shape"])) {
    found.shape.push_back(nb::cast<int64_t>(length));
  }
  if (!of_bytes.is_none() && type.size() == 3) {
    for (const nb::handle stride : nb::cast<nb::tuple>(of_bytes)) {
      strides.push_back(nb::cast<int64_t>(stride) / (type[2] - '0'));
    }
  }
  found.is_contiguous =
      IsContiguous(found.shape, strides.empty() ? nullptr : strides.data());
  const nb::tuple data = nb::cast<nb::tuple>(interface["data"]);
  found.data = reinterpret_cast<void*>(nb::cast<uintptr_t>(data[0]));
  found.is_writable = !nb::cast<bool>(data[1]);
  return found;
}

Found ReadDlpack(const std::string& name, nb::handle array, bool* on_device) {
  nb::ndarray<> values;
  if (!nb::try_cast(array, values)) {
    throw TypeError(name + ": expected an array that __dlpack__ of " +
                    TypeOf(array) + " gives, found none");
  }
  Found found;
  const char kinds[] = {'i', 'u', 'f'};
  const auto code = static_cast<uint8_t>(values.dtype().code);
  const char kind = code == static_cast<uint8_t>(nb::dlpack::dtype_code::Bool)
                        ? 'b'
                    : code < sizeof(kinds) ? kinds[code]
                                           : ' ';
  if (values.dtype().lanes == 1) {
    found.type = TypeName(kind, values.dtype().bits);
  }
  std::vector<int64_t> strides;
  for (size_t i = 0; i < values.ndim(); ++i) {
    found.shape.push_back(static_cast<int64_t>(values.shape(i)));
    strides.push_back(values.stride(i));
  }
  found.is_contiguous = IsContiguous(found.shape, strides.data());
  found.is_writable = true;
  found.data = values.data();
  if (values.device_type() != nb::device::cuda::value &&
      values.device_type() != nb::device::cuda_managed::value &&
      values.device_type() != nb::device::cpu::value) {
    throw TypeError(name +
                    ": expected an array on the host or a CUDA device, found "
                    "one on device type " +
                    std::to_string(values.device_type()) + " of DLPack");
  }
  *on_device = values.device_type() != nb::device::cpu::value;
  return found;
}

Found ReadNumpy(nb::handle array) {
  Found found;
  found.type = Str(array.attr("dtype"));
  for (const nb::handle length : nb::tuple(array.attr("shape"))) {
    found.shape.push_back(nb::cast<int64_t>(length));
  }
  const nb::object flags = array.attr("flags");
  found.is_contiguous = nb::cast<bool>(flags.attr("c_contiguous")) &&
                        nb::cast<bool>(flags.attr("aligned"));
  found.is_writable = nb::cast<bool>(flags.attr("writeable"));
  found.data = reinterpret_cast<void*>(nb::cast<uintptr_t>(
      array.attr("__array_interface__")["data"][nb::int_(0)]));
  return found;
}

// An attribute; null if there is none. Other errors are the array's own, such
// as that of a torch tensor that requires a gradient.
nb::object FindAttribute(nb::handle object, const char* name) {
  try {
    return object.attr(name);
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_AttributeError)) {
      throw;
    }
    return {};
  }
}

}  // namespace

void* ReadArray(const std::string& name,
                nb::handle array,
                const char* type,
                ArrayAccess access,
                std::vector<int64_t>* shape,
                bool* on_device) {
  Found found;
  bool is_numpy = false;
  bool is_there = false;
  if (nb::isinstance(array, nb::module_::import_("numpy").attr("ndarray"))) {
    found = ReadNumpy(array);
    is_numpy = true;
  } else if (on_device == nullptr) {
    throw TypeError(name + ": expected a numpy array of " + type + ", found " +
                    TypeOf(array));
  } else if (const nb::object interface =
                 FindAttribute(array, "__cuda_array_interface__");
             interface.is_valid()) {
    try {
      found = ReadCudaArrayInterface(interface);
    } catch (const std::exception&) {  // a part is missing, or another type
      throw TypeError(name + ": expected a __cuda_array_interface__, found " +
                      Repr(interface));
    }
    is_there = true;
  } else if (nb::hasattr(array, "__dlpack_device__")) {
    found = ReadDlpack(name, array, &is_there);
  } else {
    throw TypeError(name + ": expected a numpy array of " + type +
                    ", or one on a CUDA device (torch, CuPy, JAX), found " +
                    TypeOf(array));
  }
  const std::string place = is_there ? "array on a CUDA device" : "numpy array";
  if (found.type != type) {
    throw TypeError(
        name + ": expected a" + (is_there ? "n " : " ") + place + " of " +
        type + ", found " + (found.type.empty() ? "another type" : found.type) +
        (is_numpy ? std::string("; array.astype(numpy.") + type + ") makes one"
                  : ""));
  }
  bool fits = found.shape.size() == shape->size();
  for (size_t i = 0; fits && i < shape->size(); ++i) {
    fits = (*shape)[i] == kAnyLength || (*shape)[i] == found.shape[i];
  }
  if (!fits) {
    throw ValueError(name + ": expected an array of shape " +
                     ShapeText(*shape) + ", found " +
                     Repr(nb::tuple(nb::cast(found.shape))));
  }
  *shape = found.shape;
  if (!found.is_contiguous) {
    throw ValueError(
        name +
        ": expected a C-contiguous, aligned array, found one that is not" +
        (is_numpy ? "; numpy.require(array, requirements=['C', 'A']) makes one"
                  : ""));
  }
  if (access == ARRAY_WRITE && !found.is_writable) {
    throw ValueError(name +
                     ": expected a writable array, found one that is "
                     "read-only");
  }
  if (on_device != nullptr) {
    *on_device = is_there;
  }
  return found.data;
}

}  // namespace ceres_ext::python
