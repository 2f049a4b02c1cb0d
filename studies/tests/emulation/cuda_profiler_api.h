// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The parts of the toolkit that the study needs beyond tests/kernels/emulation.
#ifndef CERES_EXT_STUDIES_TESTS_EMULATION_CUDA_PROFILER_API_H_
#define CERES_EXT_STUDIES_TESTS_EMULATION_CUDA_PROFILER_API_H_

inline int cudaProfilerStart() { return 0; }
inline int cudaProfilerStop() { return 0; }

#endif  // CERES_EXT_STUDIES_TESTS_EMULATION_CUDA_PROFILER_API_H_
