// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The functor of arena_solve.cc for graphs of poses.
#ifndef CERES_EXT_BENCHMARKS_ARENA_FUNCTORS_H_
#define CERES_EXT_BENCHMARKS_ARENA_FUNCTORS_H_

#include <cmath>

#include "ceres/internal/port.h"
#include "ceres/rotation.h"
#include "ceres_ext/device_cost_function.h"

namespace ceres_ext {

// weight * Log(Z^-1 A^-1 B), rotation first: the logarithm of SE(3), as GTSAM
// and jaxlie have it, of the pose of b seen from a by its measurement Z. A pose
// is a quaternion w, x, y, z and a position.
struct RelativePoseError {
  double measured[7];
  double rotation_weight;
  double position_weight;

  template <typename T>
  static CERES_HOST_DEVICE void ToFrame(const T* rotation,
                                        const T* vector,
                                        T* result) {
    const T conjugate[] = {
        rotation[0], -rotation[1], -rotation[2], -rotation[3]};
    ceres::UnitQuaternionRotatePoint(conjugate, vector, result);
  }
  template <typename T>
  static CERES_HOST_DEVICE void Between(const T* a, const T* b, T* result) {
    const T conjugate[] = {a[0], -a[1], -a[2], -a[3]};
    ceres::QuaternionProduct(conjugate, b, result);
  }

  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* a,
                                    const T* b,
                                    T* residuals) const {
    T z[7];
    for (int i = 0; i < 7; ++i) {
      z[i] = T(measured[i]);
    }
    T turn_ab[4];
    T turn[4];
    Between(a, b, turn_ab);
    Between(z, turn_ab, turn);
    const T apart[] = {b[4] - a[4], b[5] - a[5], b[6] - a[6]};
    T moved[3];
    ToFrame(a, apart, moved);
    for (int i = 0; i < 3; ++i) {
      moved[i] -= z[4 + i];
    }
    T t[3];
    ToFrame(z, moved, t);
    T w[3];
    ceres::QuaternionToAngleAxis(turn, w);
    // V^-1 t = t - w x t / 2 + c w x (w x t), c = (1 - h cot h) / (4 h^2) with
    // h = |w| / 2. The next term of the series is below 3e-16 of c.
    const T square = w[0] * w[0] + w[1] * w[1] + w[2] * w[2];
    T c;
    if (square < 1e-2) {
      c = (1.0 / 12.0) +
          square * ((1.0 / 720.0) +
                    square * ((1.0 / 30240.0) + square * (1.0 / 1209600.0)));
    } else {
      using std::cos;
      using std::sin;
      using std::sqrt;
      const T half = 0.5 * sqrt(square);
      c = (1.0 - half * cos(half) / sin(half)) / square;
    }
    T once[3];
    T twice[3];
    ceres::CrossProduct(w, t, once);
    ceres::CrossProduct(w, once, twice);
    for (int i = 0; i < 3; ++i) {
      residuals[i] = rotation_weight * w[i];
      residuals[3 + i] =
          position_weight * (t[i] - 0.5 * once[i] + c * twice[i]);
    }
    return true;
  }
};

using RelativePoseCost = DeviceAutoDiffCostFunction<RelativePoseError, 6, 7, 7>;

}  // namespace ceres_ext

#endif  // CERES_EXT_BENCHMARKS_ARENA_FUNCTORS_H_
