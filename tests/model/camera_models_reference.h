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
  } else if (name == "FOV") {
    const Real a = k[4] == 0 || r == 0
                       ? (k[4] == 0 ? 1 : 2 * std::tan(k[4] / 2) / k[4])
                       : std::atan(2 * r * std::tan(k[4] / 2)) / (r * k[4]);
    pixel[0] = k[0] * u * a + k[2];
    pixel[1] = k[1] * v * a + k[3];
  } else if (name == "THIN_PRISM_FISHEYE") {
    const Real a = 1 + k[4] * t2 + k[5] * t4 + k[8] * t6 + k[9] * t8;
    const Real x = u * s, y = v * s;
    pixel[0] = k[0] * (x * a + 2 * k[6] * x * y + k[7] * (t2 + 2 * x * x) +
                       k[10] * t2) +
               k[2];
    pixel[1] = k[1] * (y * a + k[6] * (t2 + 2 * y * y) + 2 * k[7] * x * y +
                       k[11] * t2) +
               k[3];
  } else if (name == "RAD_TAN_THIN_PRISM_FISHEYE") {
    const Real a = 1 + k[4] * t2 + k[5] * t4 + k[6] * t6 + k[7] * t8 +
                   k[8] * t8 * t2 + k[9] * t8 * t4;
    const Real x = u * s * a, y = v * s * a;
    const Real q = x * x + y * y;
    pixel[0] = k[0] * (x + 2 * k[11] * x * y + k[10] * (q + 2 * x * x) +
                       k[12] * q + k[13] * q * q) +
               k[2];
    pixel[1] = k[1] * (y + 2 * k[10] * x * y + k[11] * (q + 2 * y * y) +
                       k[14] * q + k[15] * q * q) +
               k[3];
  } else if (name == "SIMPLE_DIVISION" || name == "DIVISION") {
    const int last = name == "DIVISION" ? 1 : 0;
    // The root of r (1 + k s^2) = s next to r.
    const Real a = 2 / (1 + std::sqrt(1 - 4 * k[last + 3] * r2));
    pixel[0] = k[0] * u * a + k[last + 1];
    pixel[1] = k[last] * v * a + k[last + 2];
  } else if (name == "SIMPLE_FISHEYE" || name == "FISHEYE") {
    const int last = name == "FISHEYE" ? 1 : 0;
    pixel[0] = k[0] * u * s + k[last + 1];
    pixel[1] = k[last] * v * s + k[last + 2];
  } else if (name == "EUCM") {
    const Real a = 1 / (k[4] * std::sqrt(k[5] * r2 + 1) + 1 - k[4]);
    pixel[0] = k[0] * u * a + k[2];
    pixel[1] = k[1] * v * a + k[3];
  } else if (name == "EQUIRECTANGULAR") {
    const Real pi = std::acos(Real(-1));
    const Real d = std::sqrt(point[0] * point[0] + point[1] * point[1] +
                             point[2] * point[2]);
    pixel[0] = k[0] * (0.5L + std::atan2(point[0], point[2]) / (2 * pi));
    pixel[1] = k[1] * (0.5L + std::asin(point[1] / d) / pi);
  } else {
    FAIL() << name;
  }
}

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_MODEL_CAMERA_MODELS_REFERENCE_H_
