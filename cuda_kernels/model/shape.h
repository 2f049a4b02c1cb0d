// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The sizes of a row, that is of what one residual block gives to J = [E F]: R
// residuals by the columns of an eliminated block (a point) and of a block that
// PCG iterates on (a camera).
#ifndef CERES_EXT_CUDA_KERNELS_MODEL_SHAPE_H_
#define CERES_EXT_CUDA_KERNELS_MODEL_SHAPE_H_

#include "cuda_kernels/base/small_matrix.h"

namespace ceres_ext::kernels {

template <int kNumResidualsIn, int kEIn, int kFIn>
struct FixedShape {
  static constexpr int kNumResiduals = kNumResidualsIn;
  // Columns of a block.
  static constexpr int kE = kEIn;
  static constexpr int kF = kFIn;
  // Elements of the blocks of J, row-major.
  static constexpr int kESize = kNumResiduals * kE;
  static constexpr int kFSize = kNumResiduals * kF;
  // Of W = F'E, F x E, row-major.
  static constexpr int kWSize = kF * kE;
  // Of V = E'E and U = F'F, packed.
  static constexpr int kPackedE = PackedSize(kE);
  static constexpr int kPackedF = PackedSize(kF);
};

// A BAL observation: a camera of C columns and a point.
template <int C>
using BalShape = FixedShape<2, 3, C>;

// The largest that the library has instances of: scratch is made for it.
using LargestShape = BalShape<10>;

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MODEL_SHAPE_H_
