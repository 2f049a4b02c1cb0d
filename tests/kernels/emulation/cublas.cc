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

namespace {

// A matrix, column-major.
bool IsOnDevice(const double* a,
                int64_t rows,
                int64_t columns,
                int64_t stride) {
  return emulation::IsOnDevice(
      a, static_cast<size_t>((columns - 1) * stride + rows) * sizeof(double));
}

}  // namespace

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
    // As BLAS has it, y is not read if beta is zero.
    y[i] = *alpha * sum + (*beta == 0.0 ? 0.0 : *beta * y[i]);
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDgemmStridedBatched_64(cublasHandle_t handle,
                                            cublasOperation_t a_operation,
                                            cublasOperation_t b_operation,
                                            int64_t rows,
                                            int64_t columns,
                                            int64_t inner,
                                            const double* alpha,
                                            const double* a,
                                            int64_t a_stride,
                                            long long a_step,
                                            const double* b,
                                            int64_t b_stride,
                                            long long b_step,
                                            const double* beta,
                                            double* c,
                                            int64_t c_stride,
                                            long long c_step,
                                            int64_t count) {
  using emulation::Expect;
  const char* const name = "cublasDgemmStridedBatched_64";
  if (!Expect(handle->has_stream, name, "no stream") ||
      !Expect(handle->forbids_atomics, name, "atomics are allowed") ||
      !Expect(a_operation == CUBLAS_OP_N && b_operation == CUBLAS_OP_N &&
                  *beta == 0.0,
              name,
              "another product") ||
      !Expect(rows > 0 && columns > 0 && inner > 0 && count > 0 &&
                  a_stride >= rows && b_stride >= inner && c_stride >= rows,
              name,
              "the sizes")) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  for (int64_t i = 0; i < count; ++i) {
    if (!Expect(IsOnDevice(a + i * a_step, rows, inner, a_stride) &&
                    IsOnDevice(b + i * b_step, inner, columns, b_stride) &&
                    IsOnDevice(c + i * c_step, rows, columns, c_stride),
                name,
                "no matrix on the device")) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  }
  if (emulation::NextOnDevice(name) != cudaSuccess) {
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t column = 0; column < columns; ++column) {
      for (int64_t row = 0; row < rows; ++row) {
        double sum = 0.0;
        for (int64_t k = 0; k < inner; ++k) {
          sum += a[i * a_step + k * a_stride + row] *
                 b[i * b_step + column * b_stride + k];
        }
        c[i * c_step + column * c_stride + row] = *alpha * sum;
      }
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDtrmm_v2_64(cublasHandle_t handle,
                                 cublasSideMode_t side,
                                 cublasFillMode_t fill_mode,
                                 cublasOperation_t operation,
                                 cublasDiagType_t diagonal,
                                 int64_t rows,
                                 int64_t columns,
                                 const double* alpha,
                                 const double* a,
                                 int64_t a_stride,
                                 const double* b,
                                 int64_t b_stride,
                                 double* c,
                                 int64_t c_stride) {
  using emulation::Expect;
  const char* const name = "cublasDtrmm_64";
  if (!Expect(handle->has_stream, name, "no stream") ||
      !Expect(handle->forbids_atomics, name, "atomics are allowed") ||
      !Expect(side == CUBLAS_SIDE_LEFT && fill_mode == CUBLAS_FILL_MODE_LOWER &&
                  diagonal == CUBLAS_DIAG_NON_UNIT && *alpha == 1.0,
              name,
              "another product") ||
      !Expect(rows > 0 && columns > 0 && a_stride >= rows && b_stride >= rows &&
                  c_stride >= rows && b != c,
              name,
              "the sizes") ||
      !Expect(IsOnDevice(a, rows, rows, a_stride) &&
                  IsOnDevice(b, rows, columns, b_stride) &&
                  IsOnDevice(c, rows, columns, c_stride),
              name,
              "no matrix on the device")) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (emulation::NextOnDevice(name) != cudaSuccess) {
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  for (int64_t column = 0; column < columns; ++column) {
    for (int64_t row = 0; row < rows; ++row) {
      double sum = 0.0;
      const bool is_transposed = operation == CUBLAS_OP_T;
      for (int64_t k = is_transposed ? row : 0;
           k < (is_transposed ? rows : row + 1);
           ++k) {
        sum += (is_transposed ? a[row * a_stride + k] : a[k * a_stride + row]) *
               b[column * b_stride + k];
      }
      c[column * c_stride + row] = sum;
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
