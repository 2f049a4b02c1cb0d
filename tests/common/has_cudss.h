// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#ifndef CERES_EXT_TESTS_COMMON_HAS_CUDSS_H_
#define CERES_EXT_TESTS_COMMON_HAS_CUDSS_H_

#ifdef CERES_EXT_WITH_CUDA
#include "cuda_kernels/machine/cuda_sparse_cholesky.h"
#endif

namespace ceres_ext {

// True if a device can factorise sparse matrices.
inline bool HasCudss() {
#ifdef CERES_EXT_WITH_CUDA
  return kernels::CudaSparseCholesky::Available().ok();
#else
  return false;
#endif
}

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_COMMON_HAS_CUDSS_H_
