// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The C++ name of the type of an object, for messages.

#ifndef CERES_EXT_BASE_TYPE_NAME_H_
#define CERES_EXT_BASE_TYPE_NAME_H_

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <typeinfo>

namespace ceres_ext {

template <typename T>
std::string TypeName(const T& object) {
  const char* const name = typeid(object).name();
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(name, nullptr, nullptr, nullptr), &std::free);
  return demangled != nullptr ? demangled.get() : name;
}

}  // namespace ceres_ext

#endif  // CERES_EXT_BASE_TYPE_NAME_H_
