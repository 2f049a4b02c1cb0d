// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/machine/cuda_process.h"

#include <dlfcn.h>

#include <map>
#include <mutex>

namespace ceres_ext::kernels {
namespace {

// A function of the driver, null where the process has not loaded it. The
// runtime would load and start it, which takes time of its own.
template <typename Function>
Function* DriverFunction(const char* name) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) {
    return nullptr;
  }
  void* const function = dlsym(driver, name);
  dlclose(driver);  // Others hold it.
  return reinterpret_cast<Function*>(function);
}

// The driver's handle of a device; false before the driver is started.
bool DriverDevice(int device, int* handle) {
  const auto get = DriverFunction<int(int*, int)>("cuDeviceGet");
  return get != nullptr && get(handle, device) == 0;
}

}  // namespace

std::atomic<int64_t>& ProcessBytes(int device) {
  // Never destroyed, since solves may run while the process exits.
  static auto* const mutex = new std::mutex;
  static auto* const bytes = new std::map<int, std::atomic<int64_t>>;
  const std::lock_guard<std::mutex> lock(*mutex);
  return (*bytes)[device];
}

bool HasRuntimeContext(int device) {
  const auto get_state =
      DriverFunction<int(int, unsigned*, int*)>("cuDevicePrimaryCtxGetState");
  int handle = 0;
  unsigned flags = 0;
  int is_active = 0;
  return get_state != nullptr && DriverDevice(device, &handle) &&
         get_state(handle, &flags, &is_active) == 0 && is_active != 0;
}

int FloatToDoubleRatio(int device) {
  // CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO.
  constexpr int kRatio = 87;
  const auto get_attribute =
      DriverFunction<int(int*, int, int)>("cuDeviceGetAttribute");
  int handle = 0;
  int ratio = 0;
  return get_attribute != nullptr && DriverDevice(device, &handle) &&
                 get_attribute(&ratio, kRatio, handle) == 0
             ? ratio
             : 0;
}

}  // namespace ceres_ext::kernels
