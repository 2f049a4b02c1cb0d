// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// In place of CUDA's header, which does not go with tests/kernels/emulation:
// the one name that Ceres's own headers use.
#pragma once

typedef struct cublasContext* cublasHandle_t;
