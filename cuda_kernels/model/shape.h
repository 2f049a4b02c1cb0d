// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The sizes of a row, that is of what one residual block gives to J = [E F]: R
// residuals by the columns of an eliminated block (a point) and of a block that
// PCG iterates on (a camera).
#ifndef CERES_EXT_CUDA_KERNELS_MODEL_SHAPE_H_
#define CERES_EXT_CUDA_KERNELS_MODEL_SHAPE_H_

#include <type_traits>

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
  // For W = F'E, F x E, row-major.
  static constexpr int kWSize = kF * kE;
  // For V = E'E and U = F'F, packed.
  static constexpr int kPackedE = PackedSize(kE);
  static constexpr int kPackedF = PackedSize(kF);
};

// A BAL observation: a camera of C columns and a point.
template <int C>
using BalShape = FixedShape<2, 3, C>;

// The columns F of blocks kept in memory, of rows of two residuals and a point,
// that operations are compiled for: X(F). A camera has 9 or 10.
#define CERES_EXT_FOR_EACH_STORED_COLUMNS(X) \
  X(6) X(9) X(10) X(12) X(14) X(16) X(18)
inline constexpr int kMaxCameraColumns = 10;
inline constexpr int kMaxStoredColumns = 18;

// Returns fn(F), a std::integral_constant of the least of them that holds as
// many columns, at most kMaxStoredColumns.
template <typename Function>
constexpr auto WithStoredColumns(int columns, Function&& fn) {
#define CERES_EXT_RETURN_IF_HOLDS(F)             \
  if (columns <= (F)) {                          \
    return fn(std::integral_constant<int, F>()); \
  }
  CERES_EXT_FOR_EACH_STORED_COLUMNS(CERES_EXT_RETURN_IF_HOLDS)
#undef CERES_EXT_RETURN_IF_HOLDS
  return fn(std::integral_constant<int, kMaxStoredColumns>());
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MODEL_SHAPE_H_
