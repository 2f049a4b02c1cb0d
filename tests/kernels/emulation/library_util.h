// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The common part of the emulated libraries. A program of an emulated device
// exports its symbols (cmake/CeresExtTargets.cmake), so that the device and the
// faults of cuda_runtime.h are the program's here too.
#ifndef CERES_EXT_TESTS_EMULATION_LIBRARY_UTIL_H_
#define CERES_EXT_TESTS_EMULATION_LIBRARY_UTIL_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <new>

#include "tests/kernels/emulation/spoiler.h"

namespace emulation {

// False with a word about it where a library is called wrongly.
inline bool Expect(bool holds, const char* function, const char* what) {
  if (!holds) {
    std::fprintf(stderr, "emulated library: %s: %s\n", function, what);
  }
  return holds;
}

template <typename T>
bool IsMatrixOnDevice(const T* a, int64_t n, int64_t stride) {
  return n > 0 && stride >= n &&
         IsOnDevice(a, static_cast<size_t>((n - 1) * stride + n) * sizeof(T));
}

// A handle of the program's that a library makes; null if there is no memory,
// or the test wants it so. A reset of the device ends it.
template <typename T>
T* CreateHandle(const char* call) {
  if (NextOnDevice(call, cudaErrorMemoryAllocation) != cudaSuccess) {
    return nullptr;
  }
  T* const handle = new (std::nothrow) T;
  if (handle != nullptr) {
    driver().handles[handle] = [](void* data) { delete static_cast<T*>(data); };
    Hold(1);
  }
  return handle;
}
template <typename T>
void DestroyHandle(const char* call, T* handle) {
  if (driver().handles.erase(handle) == 0) {
    ++driver().num_wrong_frees;
    return;
  }
  delete handle;
  Hold(-1);
  static_cast<void>(Next(call));
}

}  // namespace emulation

#endif  // CERES_EXT_TESTS_EMULATION_LIBRARY_UTIL_H_
