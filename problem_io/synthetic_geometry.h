// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The geometry of generated scenes (bal_synthetic.h), in bits that are the same
// on every machine: vectors, rotations, cameras.

#ifndef PROBLEM_IO_SYNTHETIC_GEOMETRY_H_
#define PROBLEM_IO_SYNTHETIC_GEOMETRY_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "problem_io/portable_math.h"

namespace ceres_ext::bal::synthetic {

// The purpose of a sequence of random numbers.
enum Purpose : uint64_t {
  kForCamera,
  kForCameraWeight,
  kForDrift,
  kForPlace,
  kForTrackLength,
  kForLaps,
  kForSelection,
  kForPixels,
  kForPointNoise,
  kForPointIds,
  kForSeenOnce,
  kForFar,
  kForObservationOrder,
  kForPlaceSize,
  kForCrossStreet,
  kForPlaceDrift,
  kForImageDrift,
  kForMonument,
};

struct Vector3 {
  double x, y, z;
};

inline Vector3 operator+(const Vector3& a, const Vector3& b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z};
}
inline Vector3 operator-(const Vector3& a, const Vector3& b) {
  return {a.x - b.x, a.y - b.y, a.z - b.z};
}
inline Vector3 operator*(double s, const Vector3& a) {
  return {s * a.x, s * a.y, s * a.z};
}
inline double Dot(const Vector3& a, const Vector3& b) {
  return a.x * b.x + a.y * b.y + a.z * b.z;
}

struct Matrix3 {
  Vector3 row[3];
};

inline Vector3 operator*(const Matrix3& a, const Vector3& b) {
  return {Dot(a.row[0], b), Dot(a.row[1], b), Dot(a.row[2], b)};
}
inline Matrix3 Transpose(const Matrix3& a) {
  return {{{a.row[0].x, a.row[1].x, a.row[2].x},
           {a.row[0].y, a.row[1].y, a.row[2].y},
           {a.row[0].z, a.row[1].z, a.row[2].z}}};
}
inline Matrix3 operator*(const Matrix3& a, const Matrix3& b) {
  const Matrix3 columns = Transpose(b);
  Matrix3 product;
  for (int i = 0; i < 3; ++i) {
    product.row[i] = columns * a.row[i];
  }
  return product;
}

// R = I + sin(a) K + (1 - cos(a)) K^2 with a = |w|, K the cross product matrix
// of w / a.
inline Matrix3 RotationFromAngleAxis(const Vector3& w) {
  const double angle = std::sqrt(Dot(w, w));
  if (angle == 0.0) {
    return {{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}};
  }
  double s;
  double c;
  PortableSinCos(angle, &s, &c);
  const Vector3 k = (1.0 / angle) * w;
  const double d = 1.0 - c;
  return {
      {{c + d * k.x * k.x, d * k.x * k.y - s * k.z, d * k.x * k.z + s * k.y},
       {d * k.y * k.x + s * k.z, c + d * k.y * k.y, d * k.y * k.z - s * k.x},
       {d * k.z * k.x - s * k.y, d * k.z * k.y + s * k.x, c + d * k.z * k.z}}};
}

// Through the quaternion (w, v), whose largest component is taken from the
// diagonal; angle = 2 atan2(|v|, w) along v.
inline Vector3 AngleAxisFromRotation(const Matrix3& r) {
  const double m[3][3] = {{r.row[0].x, r.row[0].y, r.row[0].z},
                          {r.row[1].x, r.row[1].y, r.row[1].z},
                          {r.row[2].x, r.row[2].y, r.row[2].z}};
  double w;
  double v[3];
  const double trace = m[0][0] + m[1][1] + m[2][2];
  if (trace > 0.0) {
    const double q = std::sqrt(1.0 + trace);  // 2 w
    w = 0.5 * q;
    v[0] = 0.5 * (m[2][1] - m[1][2]) / q;
    v[1] = 0.5 * (m[0][2] - m[2][0]) / q;
    v[2] = 0.5 * (m[1][0] - m[0][1]) / q;
  } else {
    int i = m[1][1] > m[0][0] ? 1 : 0;
    i = m[2][2] > m[i][i] ? 2 : i;
    const int j = (i + 1) % 3;
    const int k = (i + 2) % 3;
    const double q = std::sqrt(1.0 + m[i][i] - m[j][j] - m[k][k]);  // 2 v[i]
    w = 0.5 * (m[k][j] - m[j][k]) / q;
    v[i] = 0.5 * q;
    v[j] = 0.5 * (m[j][i] + m[i][j]) / q;
    v[k] = 0.5 * (m[k][i] + m[i][k]) / q;
  }
  const double sign = w < 0.0 ? -1.0 : 1.0;
  const Vector3 axis = {sign * v[0], sign * v[1], sign * v[2]};
  const double length = std::sqrt(Dot(axis, axis));
  if (length == 0.0) {
    return {0.0, 0.0, 0.0};
  }
  return (2.0 * PortableAtan2(length, sign * w) / length) * axis;
}

struct Camera {
  Matrix3 rotation;  // world to camera; looks along -z, y is up
  Vector3 center;
  double f, k1, k2;
};

inline void StoreCamera(const Camera& camera, double* parameters) {
  const Vector3 w = AngleAxisFromRotation(camera.rotation);
  const Vector3 t = -1.0 * (camera.rotation * camera.center);
  const double values[9] = {
      w.x, w.y, w.z, t.x, t.y, t.z, camera.f, camera.k1, camera.k2};
  std::copy_n(values, 9, parameters);
}

}  // namespace ceres_ext::bal::synthetic

#endif  // PROBLEM_IO_SYNTHETIC_GEOMETRY_H_
