// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// In place of cuSOLVER's header, with emulation/cuda_runtime.h: what the
// library calls, and the one name that Ceres's own headers use. The functions
// are in libcusolver.so.999 (cusolver.cc).
#ifndef CERES_EXT_TESTS_EMULATION_CUSOLVERDN_H_
#define CERES_EXT_TESTS_EMULATION_CUSOLVERDN_H_

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#define CUSOLVER_VER_MAJOR 999

enum cusolverStatus_t {
  CUSOLVER_STATUS_SUCCESS = 0,
  CUSOLVER_STATUS_ALLOC_FAILED = 2,
  CUSOLVER_STATUS_INVALID_VALUE = 3,
  CUSOLVER_STATUS_EXECUTION_FAILED = 6
};

typedef struct cusolverDnContext* cusolverDnHandle_t;
typedef struct cusolverDnParams* cusolverDnParams_t;

extern "C" {
cusolverStatus_t cusolverGetProperty(int type, int* value);
cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t* handle);
cusolverStatus_t cusolverDnDestroy(cusolverDnHandle_t handle);
cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t handle,
                                     cudaStream_t stream);
cusolverStatus_t cusolverDnCreateParams(cusolverDnParams_t* params);
cusolverStatus_t cusolverDnDestroyParams(cusolverDnParams_t params);
cusolverStatus_t cusolverDnXpotrf_bufferSize(cusolverDnHandle_t handle,
                                             cusolverDnParams_t params,
                                             cublasFillMode_t fill_mode,
                                             int64_t n,
                                             cudaDataType type,
                                             const void* a,
                                             int64_t stride,
                                             cudaDataType compute_type,
                                             size_t* num_device_bytes,
                                             size_t* num_host_bytes);
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
                                  int* info);
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
                                  int* info);
}

#endif  // CERES_EXT_TESTS_EMULATION_CUSOLVERDN_H_
