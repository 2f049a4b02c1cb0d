// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// In place of CUDA's header, which does not go with tests/kernels/emulation:
// the one name that Ceres's own headers use.
#ifndef CERES_EXT_TESTS_FRONT_EMULATION_CUSPARSE_H_
#define CERES_EXT_TESTS_FRONT_EMULATION_CUSPARSE_H_

typedef struct cusparseContext* cusparseHandle_t;

#endif  // CERES_EXT_TESTS_FRONT_EMULATION_CUSPARSE_H_
