// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The unknowns of a vector by role: those of F, which all devices of a solve
// hold, then those of E, which are dealt out. A sum over F is taken once, one
// over E by all.
#ifndef CERES_EXT_CUDA_KERNELS_BASE_VECTOR_SPACE_H_
#define CERES_EXT_CUDA_KERNELS_BASE_VECTOR_SPACE_H_

#include <cstdint>

namespace ceres_ext::kernels {

struct VectorSpace {
  int64_t num_f = 0;
  int64_t num_e = 0;

  int64_t size() const { return num_f + num_e; }
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_BASE_VECTOR_SPACE_H_
