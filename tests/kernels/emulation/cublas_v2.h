// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// In place of cuBLAS's header, with emulation/cuda_runtime.h: what the library
// calls, and the one name that Ceres's own headers use. The functions are in
// libcublas.so.999 (cublas.cc), a version that no library of NVIDIA's has, so
// that none is ever given an address of an emulated device.
#ifndef CERES_EXT_TESTS_EMULATION_CUBLAS_V2_H_
#define CERES_EXT_TESTS_EMULATION_CUBLAS_V2_H_

#include <cuda_runtime.h>

#include <cstdint>

#define CUBLAS_VER_MAJOR 999

enum cudaDataType {
  CUDA_R_32F = 0,
  CUDA_R_64F = 1,
  CUDA_R_32I = 10,
  CUDA_R_64I = 24
};

enum cublasStatus_t {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_EXECUTION_FAILED = 13
};
enum cublasFillMode_t { CUBLAS_FILL_MODE_LOWER, CUBLAS_FILL_MODE_UPPER };
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };
enum cublasSideMode_t { CUBLAS_SIDE_LEFT, CUBLAS_SIDE_RIGHT };
enum cublasDiagType_t { CUBLAS_DIAG_NON_UNIT, CUBLAS_DIAG_UNIT };
enum cublasAtomicsMode_t { CUBLAS_ATOMICS_NOT_ALLOWED, CUBLAS_ATOMICS_ALLOWED };

typedef struct cublasContext* cublasHandle_t;

extern "C" {
cublasStatus_t cublasGetProperty(int type, int* value);
cublasStatus_t cublasCreate_v2(cublasHandle_t* handle);
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle);
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream);
cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle,
                                    cublasAtomicsMode_t mode);
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
                                 int64_t y_stride);
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
                                            int64_t count);
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
                                 int64_t c_stride);
}

#endif  // CERES_EXT_TESTS_EMULATION_CUBLAS_V2_H_
