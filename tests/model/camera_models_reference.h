// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The formulas of the camera models written out in long double.
#ifndef CERES_EXT_TESTS_MODEL_CAMERA_MODELS_REFERENCE_H_
#define CERES_EXT_TESTS_MODEL_CAMERA_MODELS_REFERENCE_H_

#include <cmath>
#include <string>

#include "gtest/gtest.h"

namespace ceres_ext {

using Real = long double;

// The pixel as the documentation of each model gives it, u = X / Z, v = Y / Z.
inline void CameraReference(const std::string& name,
                            const Real* k,
                            const Real* point,
                            Real* pixel) {
  const Real u = point[0] / point[2];
  const Real v = point[1] / point[2];
  const Real r = std::sqrt(u * u + v * v);
  const Real t = std::atan(r);
  // atan(r) / r of the fisheyes.
  const Real s = r == 0 ? 1 : t / r;
  const Real r2 = r * r, r4 = r2 * r2, r6 = r4 * r2;
  const Real t2 = t * t, t4 = t2 * t2, t6 = t4 * t2, t8 = t4 * t4;
  if (name == "SIMPLE_PINHOLE") {
    pixel[0] = k[0] * u + k[1];
    pixel[1] = k[0] * v + k[2];
  } else if (name == "PINHOLE") {
    pixel[0] = k[0] * u + k[2];
    pixel[1] = k[1] * v + k[3];
  } else if (name == "SIMPLE_RADIAL") {
    pixel[0] = k[0] * u * (1 + k[3] * r2) + k[1];
    pixel[1] = k[0] * v * (1 + k[3] * r2) + k[2];
  } else if (name == "RADIAL") {
    pixel[0] = k[0] * u * (1 + k[3] * r2 + k[4] * r4) + k[1];
    pixel[1] = k[0] * v * (1 + k[3] * r2 + k[4] * r4) + k[2];
  } else if (name == "OPENCV") {
    const Real a = 1 + k[4] * r2 + k[5] * r4;
    pixel[0] =
        k[0] * (u * a + 2 * k[6] * u * v + k[7] * (r2 + 2 * u * u)) + k[2];
    pixel[1] =
        k[1] * (v * a + k[6] * (r2 + 2 * v * v) + 2 * k[7] * u * v) + k[3];
  } else if (name == "OPENCV_FISHEYE") {
    const Real a = 1 + k[4] * t2 + k[5] * t4 + k[6] * t6 + k[7] * t8;
    pixel[0] = k[0] * u * s * a + k[2];
    pixel[1] = k[1] * v * s * a + k[3];
  } else if (name == "FULL_OPENCV") {
    const Real a = (1 + k[4] * r2 + k[5] * r4 + k[8] * r6) /
                   (1 + k[9] * r2 + k[10] * r4 + k[11] * r6);
    pixel[0] =
        k[0] * (u * a + 2 * k[6] * u * v + k[7] * (r2 + 2 * u * u)) + k[2];
    pixel[1] =
        k[1] * (v * a + k[6] * (r2 + 2 * v * v) + 2 * k[7] * u * v) + k[3];
  } else if (name == "SIMPLE_RADIAL_FISHEYE") {
    pixel[0] = k[0] * u * s * (1 + k[3] * t2) + k[1];
    pixel[1] = k[0] * v * s * (1 + k[3] * t2) + k[2];
  } else if (name == "RADIAL_FISHEYE") {
    pixel[0] = k[0] * u * s * (1 + k[3] * t2 + k[4] * t4) + k[1];
    pixel[1] = k[0] * v * s * (1 + k[3] * t2 + k[4] * t4) + k[2];
  } else {
    FAIL() << name;
  }
}

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_MODEL_CAMERA_MODELS_REFERENCE_H_
