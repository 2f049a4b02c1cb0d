// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The difference of two quaternions, as marginal priors have it, for host and
// device.

#ifndef CERES_EXT_BLOCKS_QUATERNION_DIFFERENCE_H_
#define CERES_EXT_BLOCKS_QUATERNION_DIFFERENCE_H_

#include "ceres/rotation.h"
#include "ceres_ext/photogrammetry.h"

namespace ceres_ext {
namespace internal {

// y (-) x of quaternions w, x, y, z as Ceres's manifolds have it, half the
// logarithm of y x^-1, except that y and -y have the same.
template <typename T>
CERES_HOST_DEVICE void QuaternionDifference(const T* y,
                                            const double* x,
                                            T* difference) {
  const T inverse[4] = {T(x[0]), T(-x[1]), T(-x[2]), T(-x[3])};
  T turn[4];
  ceres::QuaternionProduct(y, inverse, turn);
  QuaternionToLogarithm(turn, difference);
  for (int i = 0; i < 3; ++i) {
    difference[i] *= T(0.5);
  }
}

}  // namespace internal
}  // namespace ceres_ext

#endif  // CERES_EXT_BLOCKS_QUATERNION_DIFFERENCE_H_
