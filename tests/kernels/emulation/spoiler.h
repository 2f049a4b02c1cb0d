// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Wrong solutions of the emulated libraries, which report success.
#ifndef CERES_EXT_TESTS_EMULATION_SPOILER_H_
#define CERES_EXT_TESTS_EMULATION_SPOILER_H_

#include <cstdint>
#include <functional>

namespace emulation {

// If not empty: the value that a library ("cuDSS", "cuSOLVER") returns for
// element i of a solution x. The program's, where it names this.
using Spoiler = std::function<double(const char* library, int64_t i, double x)>;
inline Spoiler& spoiler() {
  static Spoiler s;
  return s;
}

template <typename T>
T Spoiled(const char* library, int64_t i, T x) {
  return spoiler() == nullptr
             ? x
             : static_cast<T>(spoiler()(library, i, static_cast<double>(x)));
}

}  // namespace emulation

#endif  // CERES_EXT_TESTS_EMULATION_SPOILER_H_
