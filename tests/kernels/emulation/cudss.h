// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// In place of cuDSS's header, with emulation/cuda_runtime.h: what the library
// calls. The functions are in libcudss.so.999 (cudss.cc), a version that NVIDIA
// has not. Numbers are this header's own.
#ifndef CERES_EXT_TESTS_EMULATION_CUDSS_H_
#define CERES_EXT_TESTS_EMULATION_CUDSS_H_

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#define CUDSS_VERSION_MAJOR 999

typedef struct cudssContext* cudssHandle_t;
typedef struct cudssConfig* cudssConfig_t;
typedef struct cudssData* cudssData_t;
typedef struct cudssMatrix* cudssMatrix_t;

enum cudssStatus_t {
  CUDSS_STATUS_SUCCESS,
  CUDSS_STATUS_ALLOC_FAILED,
  CUDSS_STATUS_INVALID_VALUE,
  CUDSS_STATUS_NOT_SUPPORTED,
  CUDSS_STATUS_EXECUTION_FAILED
};
enum cudssConfigParam_t {
  CUDSS_CONFIG_DETERMINISTIC_MODE,
  CUDSS_CONFIG_MATCHING_ALG
};
enum cudssMatchingAlg_t { CUDSS_MATCHING_ALG_NONE, CUDSS_MATCHING_ALG_AUTO };
enum cudssDataParam_t {
  CUDSS_DATA_INFO,
  CUDSS_DATA_LU_NNZ,
  CUDSS_DATA_FLOPS,
  CUDSS_DATA_MEMORY_ESTIMATES,
  CUDSS_DATA_PERM_REORDER_ROW
};
enum cudssPhase_t {
  CUDSS_PHASE_ANALYSIS = 1,
  CUDSS_PHASE_FACTORIZATION = 2,
  CUDSS_PHASE_REFACTORIZATION = 4,
  CUDSS_PHASE_SOLVE = 8
};
enum cudssMatrixType_t { CUDSS_MTYPE_GENERAL, CUDSS_MTYPE_SPD };
enum cudssMatrixViewType_t { CUDSS_MVIEW_FULL, CUDSS_MVIEW_LOWER };
enum cudssIndexBase_t { CUDSS_BASE_ZERO, CUDSS_BASE_ONE };
enum cudssLayout_t { CUDSS_LAYOUT_COL_MAJOR };

struct cudssDeviceMemHandler_t {
  void* ctx;
  int (*device_alloc)(void* ctx, void** data, size_t size, cudaStream_t stream);
  int (*device_free)(void* ctx, void* data, size_t size, cudaStream_t stream);
  char name[64];
};

extern "C" {
cudssStatus_t cudssGetProperty(int type, int* value);
cudssStatus_t cudssCreate(cudssHandle_t* handle);
cudssStatus_t cudssDestroy(cudssHandle_t handle);
cudssStatus_t cudssSetStream(cudssHandle_t handle, cudaStream_t stream);
cudssStatus_t cudssSetDeviceMemHandler(cudssHandle_t handle,
                                       const cudssDeviceMemHandler_t* memory);
cudssStatus_t cudssSetJitCacheDir(cudssHandle_t handle, const char* folder);
cudssStatus_t cudssConfigCreate(cudssConfig_t* config);
cudssStatus_t cudssConfigDestroy(cudssConfig_t config);
cudssStatus_t cudssConfigSet(cudssConfig_t config,
                             cudssConfigParam_t what,
                             const void* value,
                             size_t num_bytes);
cudssStatus_t cudssDataCreate(cudssHandle_t handle, cudssData_t* data);
cudssStatus_t cudssDataDestroy(cudssHandle_t handle, cudssData_t data);
cudssStatus_t cudssDataSet(cudssHandle_t handle,
                           cudssData_t data,
                           cudssDataParam_t what,
                           const void* value,
                           size_t num_bytes);
cudssStatus_t cudssDataGet(cudssHandle_t handle,
                           cudssData_t data,
                           cudssDataParam_t what,
                           void* value,
                           size_t num_bytes,
                           size_t* num_written);
cudssStatus_t cudssMatrixCreateCsr(cudssMatrix_t* matrix,
                                   int64_t num_rows,
                                   int64_t num_columns,
                                   int64_t num_values,
                                   const void* row_begin,
                                   const void* row_end,
                                   const void* column,
                                   const void* values,
                                   cudaDataType offset_type,
                                   cudaDataType index_type,
                                   cudaDataType value_type,
                                   cudssMatrixType_t type,
                                   cudssMatrixViewType_t view,
                                   cudssIndexBase_t base);
cudssStatus_t cudssMatrixCreateDn(cudssMatrix_t* matrix,
                                  int64_t num_rows,
                                  int64_t num_columns,
                                  int64_t stride,
                                  const void* values,
                                  cudaDataType value_type,
                                  cudssLayout_t layout);
cudssStatus_t cudssMatrixSetValues(cudssMatrix_t matrix, const void* values);
cudssStatus_t cudssMatrixDestroy(cudssMatrix_t matrix);
cudssStatus_t cudssExecute(cudssHandle_t handle,
                           int phase,
                           cudssConfig_t config,
                           cudssData_t data,
                           cudssMatrix_t a,
                           cudssMatrix_t x,
                           cudssMatrix_t b);
}

#endif  // CERES_EXT_TESTS_EMULATION_CUDSS_H_
