// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The device form of a user-defined cost function. Write once per type, at
// namespace scope of a .cu file,
//
//   CERES_EXT_DEVICE_COST_FUNCTION(MyCostFunction)
//
// for a DeviceAutoDiffCostFunction or a DeviceCostFunction. nvcc needs
// --expt-relaxed-constexpr; CMake's target ceres_ext::ceres_ext brings it. The
// file must be linked into a program or shared library as an object: a linker
// drops objects of a static library that nothing refers to.

#ifndef CERES_EXT_DEVICE_COST_FUNCTION_CUH_
#define CERES_EXT_DEVICE_COST_FUNCTION_CUH_

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "ceres_ext/batchable_cost_function.h"
#include "ceres_ext/device_cost_function.h"
#include "ceres_ext/row_evaluation.h"
#include "cuda_kernels/cuda/vector_sums.cuh"

namespace ceres_ext::internal {

// Kernels of two modules must be distinct.
namespace {

// Mapping: threads stride over the rows. Order: base/vector_sums.h. Traffic per
// row: the requested outputs, constants, the numbers of its combination and of
// its point, and the rows of the tables that these name.
template <typename Model, bool kJacobian>
__global__ void __launch_bounds__(kernels::kVectorBlock, 2) EvaluateRowsKernel(
    const RowBatch rows, double* partial, int32_t* ticket, RowSums* sums) {
  kernels::TwoSums value;
#pragma unroll 1
  for (int64_t i = int64_t{blockIdx.x} * kernels::kVectorBlock + threadIdx.x;
       i < rows.num_rows;
       i += int64_t{gridDim.x} * kernels::kVectorBlock) {
    const RowTerm term =
        RowEvaluator<Model>::template Evaluate<kJacobian>(rows, i);
    value.first += term.first;
    value.second += term.second;
  }
  kernels::TwoSums sum;
  if (kernels::SumOverBlocks<kernels::AddFirst>(value, partial, ticket, &sum)) {
    sums->cost = 0.5 * sum.first;
    sums->num_not_finite = static_cast<int64_t>(sum.second);
  }
}

[[maybe_unused]] inline int GetKernelFacts(const void* kernel,
                                           DeviceForm::Facts* facts) {
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
  facts->max_threads = kernels::kVectorBlock;
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

template <typename Model>
struct DeviceForms {
  using Kernel = void (*)(RowBatch, double*, int32_t*, RowSums*);

  static Kernel GetKernel(bool jacobian) {
    return jacobian ? &EvaluateRowsKernel<Model, true>
                    : &EvaluateRowsKernel<Model, false>;
  }

  static int GetFacts(int kernel, DeviceForm::Facts* facts) {
    return GetKernelFacts(reinterpret_cast<const void*>(GetKernel(kernel != 0)),
                          facts);
  }

  static int Launch(int device,
                    void* stream,
                    bool jacobian,
                    const RowBatch& rows,
                    int num_blocks,
                    double* partial,
                    int32_t* ticket,
                    RowSums* sums) {
    const Kernel kernel = GetKernel(jacobian);
#ifdef __CUDACC__
    RowBatch batch = rows;
    void* arguments[] = {&batch, &partial, &ticket, &sums};
    return OnDevice(device, [&] {
      return cudaLaunchKernel(reinterpret_cast<const void*>(kernel),
                              dim3(static_cast<unsigned>(num_blocks)),
                              dim3(kernels::kVectorBlock),
                              arguments,
                              0,
                              static_cast<cudaStream_t>(stream));
    });
#else
    static_cast<void>(device);
    static_cast<void>(stream);
    return ::emulation::Launch(num_blocks, kernels::kVectorBlock, 0, [&] {
      kernel(rows, partial, ticket, sums);
    });
#endif
  }

  static const char* ErrorString(int error) {
    return cudaGetErrorString(static_cast<cudaError_t>(error));
  }

  static bool Register() {
    static const DeviceForm kForm = {
        kBatchModelVersion, sizeof(RowBatch), &GetFacts, &Launch, &ErrorString};
    BatchForms<Model>::device_form = &kForm;
    return true;
  }
};

}  // namespace

}  // namespace ceres_ext::internal

#define CERES_EXT_DEVICE_COST_FUNCTION_NAME2(line) \
  ceres_ext_device_cost_function_##line
#define CERES_EXT_DEVICE_COST_FUNCTION_NAME(line) \
  CERES_EXT_DEVICE_COST_FUNCTION_NAME2(line)
// The type may have commas.
#define CERES_EXT_DEVICE_COST_FUNCTION(...)                               \
  [[maybe_unused]] static const bool CERES_EXT_DEVICE_COST_FUNCTION_NAME( \
      __COUNTER__) =                                                      \
      ::ceres_ext::internal::DeviceForms<__VA_ARGS__::Model>::Register();

#endif  // CERES_EXT_DEVICE_COST_FUNCTION_CUH_
