// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// libcusolver.so.999 of an emulated device (cusolverDn.h). A call that cuSOLVER
// would refuse, or that would be another one's than the test means, is refused
// with a word on stderr.
#include <cusolverDn.h>

#include <cmath>
#include <cstring>

#include "tests/kernels/emulation/library_util.h"

struct cusolverDnContext {
  bool has_stream = false;
};
struct cusolverDnParams {};

namespace {

using emulation::Expect;

cusolverStatus_t StatusOf(cudaError_t error) {
  return error == cudaSuccess ? CUSOLVER_STATUS_SUCCESS
                              : CUSOLVER_STATUS_EXECUTION_FAILED;
}

size_t SizeOf(cudaDataType type) { return type == CUDA_R_32F ? 4 : 8; }

// Memory of a factorisation, on the device and on the host.
size_t DeviceBytes(int64_t n, cudaDataType type) {
  return static_cast<size_t>(n) * SizeOf(type) + 72;
}
size_t HostBytes(int64_t n) { return static_cast<size_t>(n) + 24; }

bool ExpectMatrix(const char* name,
                  cusolverDnHandle_t handle,
                  cusolverDnParams_t params,
                  cublasFillMode_t fill_mode,
                  int64_t n,
                  cudaDataType type,
                  int64_t stride) {
  return Expect(handle != nullptr && handle->has_stream, name, "no stream") &&
         Expect(params != nullptr, name, "no parameters") &&
         Expect(fill_mode == CUBLAS_FILL_MODE_LOWER, name, "not lower") &&
         Expect(type == CUDA_R_32F || type == CUDA_R_64F, name, "the type") &&
         Expect(n > 0 && stride >= n, name, "the size");
}

bool IsMatrixOnDevice(const void* a,
                      int64_t n,
                      int64_t stride,
                      cudaDataType type) {
  return type == CUDA_R_32F ? emulation::IsMatrixOnDevice(
                                  static_cast<const float*>(a), n, stride)
                            : emulation::IsMatrixOnDevice(
                                  static_cast<const double*>(a), n, stride);
}

// Cholesky's factorisation, column by column. NaN is not noticed here: the
// library must not rely on cuSOLVER for that.
template <typename T>
int Factorize(T* a, int64_t n, int64_t stride) {
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t k = 0; k < j; ++k) {
      const T factor = a[k * stride + j];
      for (int64_t i = j; i < n; ++i) {
        a[j * stride + i] -= factor * a[k * stride + i];
      }
    }
    const T pivot = a[j * stride + j];
    if (pivot <= T(0)) {
      return static_cast<int>(j + 1);
    }
    const T root = std::sqrt(pivot);
    for (int64_t i = j; i < n; ++i) {
      a[j * stride + i] /= root;
    }
  }
  return 0;
}

template <typename T>
void Solve(const T* a, int64_t n, int64_t stride, T* x) {
  for (int64_t j = 0; j < n; ++j) {
    x[j] /= a[j * stride + j];
    for (int64_t i = j + 1; i < n; ++i) {
      x[i] -= a[j * stride + i] * x[j];
    }
  }
  for (int64_t j = n - 1; j >= 0; --j) {
    for (int64_t i = j + 1; i < n; ++i) {
      x[j] -= a[j * stride + i] * x[i];
    }
    x[j] /= a[j * stride + j];
  }
  for (int64_t i = 0; i < n; ++i) {
    x[i] = emulation::Spoiled("cuSOLVER", i, x[i]);
  }
}

}  // namespace

extern "C" {

cusolverStatus_t cusolverGetProperty(int type, int* value) {
  *value = type == 0 ? CUSOLVER_VER_MAJOR : 0;
  return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t* handle) {
  *handle = emulation::CreateHandle<cusolverDnContext>("cusolverDnCreate");
  return *handle == nullptr ? CUSOLVER_STATUS_ALLOC_FAILED
                            : CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnDestroy(cusolverDnHandle_t handle) {
  emulation::DestroyHandle("cusolverDnDestroy", handle);
  return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t handle, cudaStream_t) {
  handle->has_stream = true;
  return StatusOf(emulation::Next("cusolverDnSetStream"));
}

cusolverStatus_t cusolverDnCreateParams(cusolverDnParams_t* params) {
  *params = emulation::CreateHandle<cusolverDnParams>("cusolverDnCreateParams");
  return *params == nullptr ? CUSOLVER_STATUS_ALLOC_FAILED
                            : CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnDestroyParams(cusolverDnParams_t params) {
  emulation::DestroyHandle("cusolverDnDestroyParams", params);
  return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnXpotrf_bufferSize(cusolverDnHandle_t handle,
                                             cusolverDnParams_t params,
                                             cublasFillMode_t fill_mode,
                                             int64_t n,
                                             cudaDataType type,
                                             const void* /*a*/,
                                             int64_t stride,
                                             cudaDataType compute_type,
                                             size_t* num_device_bytes,
                                             size_t* num_host_bytes) {
  const char* const name = "cusolverDnXpotrf_bufferSize";
  if (!ExpectMatrix(name, handle, params, fill_mode, n, type, stride) ||
      !Expect(compute_type == type, name, "another type")) {
    return CUSOLVER_STATUS_INVALID_VALUE;
  }
  *num_device_bytes = DeviceBytes(n, type);
  *num_host_bytes = HostBytes(n);
  return StatusOf(emulation::NextOnDevice(name));
}

cusolverStatus_t cusolverDnXpotrf(cusolverDnHandle_t handle,
                                  cusolverDnParams_t params,
                                  cublasFillMode_t fill_mode,
                                  int64_t n,
                                  cudaDataType type,
                                  void* a,
                                  int64_t stride,
                                  cudaDataType compute_type,
                                  void* device_workspace,
                                  size_t num_device_bytes,
                                  void* host_workspace,
                                  size_t num_host_bytes,
                                  int* info) {
  const char* const name = "cusolverDnXpotrf";
  if (!ExpectMatrix(name, handle, params, fill_mode, n, type, stride) ||
      !Expect(compute_type == type, name, "another type") ||
      !Expect(IsMatrixOnDevice(a, n, stride, type),
              name,
              "no matrix on the device") ||
      !Expect(num_device_bytes >= DeviceBytes(n, type) &&
                  emulation::IsOnDevice(device_workspace, num_device_bytes),
              name,
              "no workspace on the device") ||
      !Expect(num_host_bytes >= HostBytes(n) && host_workspace != nullptr &&
                  !emulation::IsOnDevice(host_workspace, 1),
              name,
              "no workspace on the host") ||
      !Expect(emulation::IsOnDevice(info, sizeof(int)),
              name,
              "no info on the device")) {
    return CUSOLVER_STATUS_INVALID_VALUE;
  }
  const cudaError_t error = emulation::NextOnDevice(name);
  if (error != cudaSuccess) {
    return StatusOf(error);
  }
  std::memset(device_workspace, 0xff, DeviceBytes(n, type));
  std::memset(host_workspace, 0xff, HostBytes(n));
  *info = type == CUDA_R_32F ? Factorize(static_cast<float*>(a), n, stride)
                             : Factorize(static_cast<double*>(a), n, stride);
  return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnXpotrs(cusolverDnHandle_t handle,
                                  cusolverDnParams_t params,
                                  cublasFillMode_t fill_mode,
                                  int64_t n,
                                  int64_t num_columns,
                                  cudaDataType type,
                                  const void* a,
                                  int64_t stride,
                                  cudaDataType b_type,
                                  void* b,
                                  int64_t b_stride,
                                  int* info) {
  const char* const name = "cusolverDnXpotrs";
  if (!ExpectMatrix(name, handle, params, fill_mode, n, type, stride) ||
      !Expect(b_type == type, name, "another type") ||
      !Expect(num_columns >= 1 && b_stride >= n, name, "the size of b") ||
      !Expect(IsMatrixOnDevice(a, n, stride, type),
              name,
              "no matrix on the device") ||
      !Expect(emulation::IsOnDevice(
                  b,
                  static_cast<size_t>((num_columns - 1) * b_stride + n) *
                      SizeOf(type)),
              name,
              "no b on the device") ||
      !Expect(emulation::IsOnDevice(info, sizeof(int)),
              name,
              "no info on the device")) {
    return CUSOLVER_STATUS_INVALID_VALUE;
  }
  const cudaError_t error = emulation::NextOnDevice(name);
  if (error != cudaSuccess) {
    return StatusOf(error);
  }
  for (int64_t j = 0; j < num_columns; ++j) {
    if (type == CUDA_R_32F) {
      Solve(static_cast<const float*>(a),
            n,
            stride,
            static_cast<float*>(b) + j * b_stride);
    } else {
      Solve(static_cast<const double*>(a),
            n,
            stride,
            static_cast<double*>(b) + j * b_stride);
    }
  }
  *info = 0;
  return CUSOLVER_STATUS_SUCCESS;
}

}  // extern "C"
