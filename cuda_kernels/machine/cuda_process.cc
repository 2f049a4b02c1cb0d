// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/machine/cuda_process.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <string>

namespace ceres_ext::kernels {
namespace {

// A function of the driver, null if the process has not loaded it. The
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

// One that is asked for often.
template <typename Function>
class CachedDriverFunction {
 public:
  explicit CachedDriverFunction(const char* name) : name_(name) {}
  Function* get() {
    Function* function = function_;
    if (function == nullptr) {
      function = DriverFunction<Function>(name_);
      function_ = function;
    }
    return function;
  }

 private:
  const char* name_;
  std::atomic<Function*> function_{nullptr};
};

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

void* CurrentDriverContext() {
  static CachedDriverFunction<int(void**)> function("cuCtxGetCurrent");
  const auto get = function.get();
  void* context = nullptr;
  return get != nullptr && get(&context) == 0 ? context : nullptr;
}

void SetCurrentDriverContext(void* context) {
  static CachedDriverFunction<int(void*)> function("cuCtxSetCurrent");
  if (const auto set = function.get()) {
    static_cast<void>(set(context));
  }
}

bool ExchangeCaptureMode(int* mode) {
  static CachedDriverFunction<int(int*)> function(
      "cuThreadExchangeStreamCaptureMode");
  const auto exchange = function.get();
  return exchange != nullptr && exchange(mode) == 0;
}

uint64_t DriverAllocationId(const void* data) {
  // CU_POINTER_ATTRIBUTE_BUFFER_ID.
  constexpr int kId = 7;
  const auto get_attribute =
      DriverFunction<int(void*, int, uint64_t)>("cuPointerGetAttribute");
  uint64_t id = 0;
  return get_attribute != nullptr &&
                 get_attribute(&id, kId, reinterpret_cast<uint64_t>(data)) == 0
             ? id
             : 0;
}

bool HasDriverFiles() {
  // The files of servers and desktops, WSL, and Tegra.
  for (const char* path : {"/dev/nvidiactl", "/dev/dxg", "/dev/nvmap"}) {
    if (access(path, F_OK) == 0) {
      return true;
    }
  }
  return false;
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

bool HasDriverDevice(int runtime_major_version) {
  // Stays open, as where the runtime opens it.
  if (dlopen("libcuda.so.1", RTLD_NOW) == nullptr) {
    return false;
  }
  const auto init = DriverFunction<int(unsigned)>("cuInit");
  const auto get_version = DriverFunction<int(int*)>("cuDriverGetVersion");
  const auto get_count = DriverFunction<int(int*)>("cuDeviceGetCount");
  int version = 0;
  int num_devices = 0;
  return init != nullptr && init(0) == 0 && get_version != nullptr &&
         get_version(&version) == 0 &&
         version / 1000 >= runtime_major_version && get_count != nullptr &&
         get_count(&num_devices) == 0 && num_devices > 0;
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

std::string DriverDeviceName(int device) {
  const auto get = DriverFunction<int(char*, int, int)>("cuDeviceGetName");
  int handle = 0;
  char name[256] = "";
  return get != nullptr && DriverDevice(device, &handle) &&
                 get(name, sizeof(name), handle) == 0
             ? name
             : "";
}

std::string DriverVersion() {
  const auto get_version = DriverFunction<int(int*)>("cuDriverGetVersion");
  int version = 0;
  if (get_version == nullptr || get_version(&version) != 0) {
    return "";
  }
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  ...", on
  // servers and desktops.
  std::ifstream file("/proc/driver/nvidia/version");
  std::string word;
  while (file >> word) {
    if (word.find('.') != std::string::npos &&
        word.find_first_not_of("0123456789.") == std::string::npos) {
      return word + ", CUDA " + std::to_string(version);
    }
  }
  return "CUDA " + std::to_string(version);
}

bool IsUnderTool() {
  for (const char* name : {"CUDA_INJECTION64_PATH",
                           "NVTX_INJECTION64_PATH",
                           "NV_SANITIZER_INJECTION_TRANSPORT_TYPE",
                           "NV_NSIGHT_INJECTION_TRANSPORT_TYPE",
                           "NV_TPS_LAUNCH_TOKEN"}) {
    if (std::getenv(name) != nullptr) {
      return true;
    }
  }
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word == "TracerPid:") {
      int tracer = 0;
      return status >> tracer && tracer != 0;
    }
  }
  return false;
}

}  // namespace ceres_ext::kernels
