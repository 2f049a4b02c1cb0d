// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// In place of CUDA's header, which does not go with tests/kernels/emulation:
// the one name that Ceres's own headers use.
#ifndef CERES_EXT_TESTS_GLUE_EMULATION_CUSOLVERDN_H_
#define CERES_EXT_TESTS_GLUE_EMULATION_CUSOLVERDN_H_

typedef struct cusolverDnContext* cusolverDnHandle_t;

#endif  // CERES_EXT_TESTS_GLUE_EMULATION_CUSOLVERDN_H_
