// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The difference of two quaternions, as marginal priors have it, for host and
// device.

#ifndef CERES_EXT_BLOCKS_QUATERNION_DIFFERENCE_H_
#define CERES_EXT_BLOCKS_QUATERNION_DIFFERENCE_H_

#include "ceres/jet.h"
#include "ceres/rotation.h"
#include "ceres_ext/marginal_prior.h"
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

// The same of values in the order of `kind`, a quaternion's. by_y: 3 x 4, in
// rows of `stride` values, or null.
CERES_HOST_DEVICE inline void DifferenceOfQuaternions(
    BlockDifference::Kind kind,
    const double* y,
    const double* x,
    int stride,
    double* d,
    double* by_y) {
  using Jet = ceres::Jet<double, 4>;
  // Value (i + shift) % 4 is part i of w, x, y, z.
  const int shift = kind == BlockDifference::Kind::kQuaternion ? 0 : 3;
  Jet q[4];
  double of_x[4];
  for (int i = 0; i < 4; ++i) {
    const int value = (i + shift) % 4;
    q[i] = Jet(y[value], value);
    of_x[i] = x[value];
  }
  Jet turn[3];
  QuaternionDifference(q, of_x, turn);
  for (int e = 0; e < 3; ++e) {
    d[e] = turn[e].a;
    for (int c = 0; c < 4 && by_y != nullptr; ++c) {
      by_y[stride * e + c] = turn[e].v[c];
    }
  }
}

}  // namespace internal
}  // namespace ceres_ext

#endif  // CERES_EXT_BLOCKS_QUATERNION_DIFFERENCE_H_
