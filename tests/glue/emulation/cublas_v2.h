// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// In place of CUDA's header, which does not go with tests/kernels/emulation:
// the one name that Ceres's own headers use.
#ifndef CERES_EXT_TESTS_GLUE_EMULATION_CUBLAS_V2_H_
#define CERES_EXT_TESTS_GLUE_EMULATION_CUBLAS_V2_H_

typedef struct cublasContext* cublasHandle_t;

#endif  // CERES_EXT_TESTS_GLUE_EMULATION_CUBLAS_V2_H_
