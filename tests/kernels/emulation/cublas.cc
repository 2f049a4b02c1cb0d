// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// libcublas.so.999 of an emulated device (cublas_v2.h). A call that cuBLAS
// would refuse, or that would be another one's than the test means, is refused
// with a word on stderr.
#include <cublas_v2.h>

#include "tests/kernels/emulation/library_util.h"

struct cublasContext {
  bool has_stream = false;
  bool forbids_atomics = false;
};

extern "C" {

cublasStatus_t cublasGetProperty(int type, int* value) {
  *value = type == 0 ? CUBLAS_VER_MAJOR : 0;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = emulation::CreateHandle<cublasContext>("cublasCreate");
  return *handle == nullptr ? CUBLAS_STATUS_ALLOC_FAILED
                            : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  emulation::DestroyHandle("cublasDestroy", handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t) {
  handle->has_stream = true;
  return emulation::Next("cublasSetStream") == cudaSuccess
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_EXECUTION_FAILED;
}

cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle,
                                    cublasAtomicsMode_t mode) {
  handle->forbids_atomics = mode == CUBLAS_ATOMICS_NOT_ALLOWED;
  return emulation::Next("cublasSetAtomicsMode") == cudaSuccess
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_EXECUTION_FAILED;
}

cublasStatus_t cublasDsymv_v2_64(cublasHandle_t handle,
                                 cublasFillMode_t fill_mode,
                                 int64_t n,
                                 const double* alpha,
                                 const double* a,
                                 int64_t stride,
                                 const double* x,
                                 int64_t x_stride,
                                 const double* beta,
                                 double* y,
                                 int64_t y_stride) {
  using emulation::Expect;
  const char* const name = "cublasDsymv_64";
  const size_t num_bytes = static_cast<size_t>(n) * sizeof(double);
  if (!Expect(handle->has_stream, name, "no stream") ||
      !Expect(handle->forbids_atomics, name, "atomics are allowed") ||
      !Expect(fill_mode == CUBLAS_FILL_MODE_LOWER, name, "not lower") ||
      !Expect(emulation::IsMatrixOnDevice(a, n, stride),
              name,
              "no matrix on the device") ||
      !Expect(x_stride == 1 && emulation::IsOnDevice(x, num_bytes),
              name,
              "no x on the device") ||
      !Expect(y_stride == 1 && emulation::IsOnDevice(y, num_bytes),
              name,
              "no y on the device") ||
      !Expect(
          !emulation::IsOnDevice(alpha, 1) && !emulation::IsOnDevice(beta, 1),
          name,
          "scalars on the device")) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (emulation::NextOnDevice(name) != cudaSuccess) {
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  for (int64_t i = 0; i < n; ++i) {
    double sum = 0.0;
    for (int64_t j = 0; j < n; ++j) {
      sum += (i >= j ? a[j * stride + i] : a[i * stride + j]) * x[j];
    }
    y[i] = *alpha * sum + *beta * y[i];
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
