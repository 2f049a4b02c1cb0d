// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The inverse of a dense symmetric positive definite matrix on a device, for
// the coarse matrix of a second level (coarse_space.h), in place:
//
//   A = L L', X = L^-1, A^-1 = X'X
//
// By square tiles, column of tiles by column of tiles. After column k is taken,
// columns up to k hold X of what has been eliminated, the others hold what is
// left of A. Loading cuSOLVER takes longer than this.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_COARSE_INVERSE_H_
#define CERES_EXT_CUDA_KERNELS_OPS_COARSE_INVERSE_H_

#include <cstdint>

#include "cuda_kernels/base/status.h"

namespace ceres_ext::kernels {

class CudaMachine;

struct CoarseInverseParams {
  static constexpr int kTile = 32;
  int64_t n = 0;
  int64_t stride = 0;       // from column to column
  double* a = nullptr;      // the lower triangle; then A^-1, both triangles
  double* panel = nullptr;  // kTile n
  // The order of the first leading minor that is not positive definite, if a
  // has no meaning; else 0.
  int32_t* failed_order = nullptr;
};

// Order: of each element that of the columns. Traffic: n / 32 times half of a,
// twice.
Status Run(const CoarseInverseParams& params, CudaMachine* machine);

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_COARSE_INVERSE_H_
