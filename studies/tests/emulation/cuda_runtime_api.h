// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#ifndef CERES_EXT_STUDIES_TESTS_EMULATION_CUDA_RUNTIME_API_H_
#define CERES_EXT_STUDIES_TESTS_EMULATION_CUDA_RUNTIME_API_H_

inline int cudaDriverGetVersion(int* version) { return *version = 0; }
inline int cudaRuntimeGetVersion(int* version) { return *version = 0; }

#endif  // CERES_EXT_STUDIES_TESTS_EMULATION_CUDA_RUNTIME_API_H_
