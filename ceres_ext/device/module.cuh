// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The launches and the registration of the kernels of a user's module, which
// all forms of a cost function share.

#ifndef CERES_EXT_DEVICE_MODULE_CUH_
#define CERES_EXT_DEVICE_MODULE_CUH_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ceres_ext/batchable_cost_function.h"
#include "ceres_ext/device_cost_function.h"
#include "cuda_kernels/base/vector_sums.h"
#include "cuda_kernels/model/model_jacobian.h"

namespace ceres_ext::internal {

// Kernels of two modules must be distinct.
namespace {

[[maybe_unused]] inline int GetKernelFacts(const void* kernel,
                                           kernels::ModelForm::Facts* facts) {
#ifdef __CUDACC__
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  if (error != cudaSuccess) {
    cudaGetLastError();  // Clears it.
    return error;
  }
  facts->num_registers = attributes.numRegs;
  facts->local_bytes = static_cast<int64_t>(attributes.localSizeBytes);
  facts->max_threads = attributes.maxThreadsPerBlock;
#else
  static_cast<void>(kernel);
  facts->max_threads = kernels::kSumLanes;
#endif
  return 0;
}

#ifdef __CUDACC__
// Runs call() with the device current, also while another thread captures a
// stream. This module may have its own CUDA runtime, which belongs to the user:
// its current device and the thread's capture mode are restored, and its last
// error is kept except for an error of the call.
template <typename Call>
cudaError_t OnDevice(int device, const Call& call) {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  const bool is_relaxed =
      cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess;
  if (!is_relaxed) {
    cudaGetLastError();  // Clears it.
  }
  int users_device = device;
  cudaError_t error = cudaGetDevice(&users_device);
  if (error == cudaSuccess && users_device != device) {
    error = cudaSetDevice(device);
  }
  if (error == cudaSuccess) {
    error = call();
  }
  if (error != cudaSuccess) {
    cudaGetLastError();  // Clears it.
  }
  if (users_device != device) {
    cudaSetDevice(users_device);
  }
  if (is_relaxed && cudaThreadExchangeStreamCaptureMode(&mode) != cudaSuccess) {
    cudaGetLastError();  // Clears it.
  }
  return error;
}
#endif

template <typename... Parameters>
int LaunchKernel(const kernels::ModelLaunch& launch,
                 void (*kernel)(Parameters...)) {
#ifdef __CUDACC__
  return OnDevice(launch.device, [&]() -> cudaError_t {
    const auto* const function = reinterpret_cast<const void*>(kernel);
    const dim3 grid(static_cast<unsigned>(launch.num_blocks));
    const dim3 block(static_cast<unsigned>(launch.block_size));
    // Shared memory that fits without a request, and what the kernels declare
    // statically.
    constexpr int64_t kNotAsked = 40 * 1024;
    if (launch.shared_bytes > kNotAsked) {
      const cudaError_t error =
          cudaFuncSetAttribute(function,
                               cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(launch.shared_bytes));
      if (error != cudaSuccess) {
        return error;
      }
    }
    if (launch.graph == nullptr) {
      return cudaLaunchKernel(function,
                              grid,
                              block,
                              launch.arguments,
                              static_cast<size_t>(launch.shared_bytes),
                              static_cast<cudaStream_t>(launch.stream));
    }
    cudaKernelNodeParams node = {};
    node.func = const_cast<void*>(function);
    node.gridDim = grid;
    node.blockDim = block;
    node.sharedMemBytes = static_cast<unsigned>(launch.shared_bytes);
    node.kernelParams = launch.arguments;
    const auto previous = static_cast<cudaGraphNode_t>(*launch.last);
    cudaGraphNode_t added = nullptr;
    const cudaError_t error =
        cudaGraphAddKernelNode(&added,
                               static_cast<cudaGraph_t>(launch.graph),
                               &previous,
                               previous == nullptr ? 0 : 1,
                               &node);
    *launch.last = added;
    return error;
  });
#else
  std::tuple<Parameters...> values;
  int at = 0;
  const auto copy = [&](auto& value) {
    static_assert(
        std::is_trivially_copyable_v<std::remove_reference_t<decltype(value)>>);
    std::memcpy(
        static_cast<void*>(&value), launch.arguments[at++], sizeof(value));
  };
  std::apply([&](auto&... value) { (copy(value), ...); }, values);
  return ::emulation::Launch(
      launch.num_blocks, launch.block_size, launch.shared_bytes, [&] {
        std::apply(kernel, values);
      });
#endif
}

// A form, which names its kernels by numbers:
//   using Model
//   static constexpr FormKind kKind
//   static constexpr int32_t kParamsSize, kColumns; static constexpr uint32_t
//       kVarying: those of kernels::ModelForm
//   static constexpr bool kIsPossible: the model can have it
//   static void CheckPossible(): compiles if it can
//   static int WithKernel(int kernel, f): f(the kernel)
template <typename Form>
struct Module {
  static int GetFacts(int kernel, kernels::ModelForm::Facts* facts) {
    return Form::WithKernel(kernel, [&](auto* function) -> int {
      return GetKernelFacts(reinterpret_cast<const void*>(function), facts);
    });
  }

  static int Launch(const kernels::ModelLaunch& launch) {
    return Form::WithKernel(launch.kernel, [&](auto* function) -> int {
      return LaunchKernel(launch, function);
    });
  }

  static const char* ErrorString(int error) {
    return cudaGetErrorString(static_cast<cudaError_t>(error));
  }

  static void Register() {
    static const kernels::ModelForm kForm = {kBatchModelVersion,
                                             Form::kParamsSize,
                                             Form::kColumns,
                                             Form::kVarying,
                                             &GetFacts,
                                             &Launch,
                                             &ErrorString};
    BatchForms<typename Form::Model>::forms[static_cast<int>(Form::kKind)] =
        &kForm;
  }
};

}  // namespace
}  // namespace ceres_ext::internal

#endif  // CERES_EXT_DEVICE_MODULE_CUH_
