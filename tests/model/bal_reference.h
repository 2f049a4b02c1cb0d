// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The BAL model written a second and a third time, sharing nothing with
// bal_model.h:
//
//   JetReprojection       through ceres/rotation.h, for ceres::Jet
//   ReferenceReprojection through rotations that lose no digits at any angle,
//                         for long double and Dual
//
// and random cameras and points to try them on.
#ifndef CERES_EXT_TESTS_MODEL_BAL_REFERENCE_H_
#define CERES_EXT_TESTS_MODEL_BAL_REFERENCE_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "ceres/rotation.h"
#include "tests/model/dual_number.h"

namespace ceres_ext {

// Xc to residual; rest = (t, f, k1, k2).
template <typename T>
void ProjectReference(const T* rotated,
                      const T* rest,
                      const double* observation,
                      T* residual) {
  const T z = rotated[2] + rest[2];
  const T x = -(rotated[0] + rest[0]) / z;
  const T y = -(rotated[1] + rest[1]) / z;
  const T r2 = x * x + y * y;
  const T distortion = T(1.0) + r2 * (rest[4] + rest[5] * r2);
  residual[0] = rest[3] * distortion * x - T(observation[0]);
  residual[1] = rest[3] * distortion * y - T(observation[1]);
}

// kCameraDim 9: angle-axis, 10: quaternion. The operations are those of the
// functors in Ceres's examples/snavely_reprojection_error.h, in their order.
template <int kCameraDim>
struct JetReprojection {
  template <typename T>
  bool operator()(const T* camera, const T* point, T* residual) const {
    T rotated[3];
    if constexpr (kCameraDim == 9) {
      ceres::AngleAxisRotatePoint(camera, point, rotated);
    } else {
      ceres::QuaternionRotatePoint(camera, point, rotated);
    }
    ProjectReference(rotated, camera + kCameraDim - 6, observation, residual);
    return true;
  }
  double observation[2];
};

// unit = (w, x, y, z) of norm 1.
template <typename T>
void RotateReference(const T* unit, const T* point, T* rotated) {
  // v x X, then X + 2 w (v x X) + 2 v x (v x X).
  const T* v = unit + 1;
  const T c[3] = {v[1] * point[2] - v[2] * point[1],
                  v[2] * point[0] - v[0] * point[2],
                  v[0] * point[1] - v[1] * point[0]};
  const T two(2.0L);
  rotated[0] = point[0] + two * (unit[0] * c[0] + v[1] * c[2] - v[2] * c[1]);
  rotated[1] = point[1] + two * (unit[0] * c[1] + v[2] * c[0] - v[0] * c[2]);
  rotated[2] = point[2] + two * (unit[0] * c[2] + v[0] * c[1] - v[1] * c[0]);
}

// The unit quaternion (cos(theta / 2), w sin(theta / 2) / theta). The factor's
// derivative cancels near zero, but is then multiplied by w: the absolute error
// of everything stays at the rounding error of T. theta^2 must be in T's range:
// in long double, angles above 1e-2400.
template <typename T>
void AngleAxisToUnitQuaternion(const T* w, T* unit) {
  using std::cos;
  using std::sin;
  using std::sqrt;
  const T theta2 = w[0] * w[0] + w[1] * w[1] + w[2] * w[2];
  T factor(0.5L);
  unit[0] = T(1.0L);
  if (Value(theta2) != 0.0L) {
    const T theta = sqrt(theta2);
    unit[0] = cos(theta * T(0.5L));
    factor = sin(theta * T(0.5L)) / theta;
  }
  for (int i = 0; i < 3; ++i) {
    unit[1 + i] = factor * w[i];
  }
}

template <int kCameraDim>
struct ReferenceReprojection {
  template <typename T>
  bool operator()(const T* camera, const T* point, T* residual) const {
    using std::sqrt;
    T unit[4];
    if constexpr (kCameraDim == 9) {
      AngleAxisToUnitQuaternion(camera, unit);
    } else {
      const T norm = sqrt(camera[0] * camera[0] + camera[1] * camera[1] +
                          camera[2] * camera[2] + camera[3] * camera[3]);
      for (int i = 0; i < 4; ++i) {
        unit[i] = camera[i] / norm;
      }
    }
    T rotated[3];
    RotateReference(unit, point, rotated);
    ProjectReference(rotated, camera + kCameraDim - 6, observation, residual);
    return true;
  }
  double observation[2];
};

// One observation of the tests.
struct Sample {
  std::vector<double> camera;  // 9 or 10
  std::array<double, 3> point;
  std::array<double, 2> observation;
};

// Rotations of exactly or nearly the given angle about a random axis (or, once
// in eight, a coordinate axis); points in front of the camera at a depth of
// 0.5 to 10 and up to 45 degrees off its axis in each direction; k1 and k2 up
// to 0.5, or 0. A quaternion's norm lies between 0.1 and 10.
class SampleGenerator {
 public:
  explicit SampleGenerator(unsigned seed) : generator_(seed) {}

  double Uniform(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(generator_);
  }

  std::array<double, 3> Axis() {
    std::array<double, 3> axis{};
    if (generator_() % 8 == 0) {
      axis[generator_() % 3] = generator_() % 2 == 0 ? 1.0 : -1.0;
      return axis;
    }
    std::normal_distribution<double> normal;
    double norm = 0.0;
    while (norm < 0.1) {
      for (double& a : axis) {
        a = normal(generator_);
      }
      norm = std::hypot(axis[0], axis[1], axis[2]);
    }
    for (double& a : axis) {
      a /= norm;
    }
    return axis;
  }

  // A camera of 9 or 10 parameters.
  std::vector<double> Camera(int camera_dim, double angle, bool distortion) {
    const std::array<double, 3> axis = Axis();
    std::vector<double> camera;
    if (camera_dim == 9) {
      for (double a : axis) {
        camera.push_back(angle * a);
      }
    } else {
      const double norm = std::pow(10.0, Uniform(-1.0, 1.0));
      camera.push_back(norm * std::cos(angle / 2));
      for (double a : axis) {
        camera.push_back(norm * std::sin(angle / 2) * a);
      }
    }
    for (int i = 0; i < 3; ++i) {
      camera.push_back(Uniform(-3.0, 3.0));
    }
    camera.push_back(Uniform(100.0, 3000.0));
    camera.push_back(distortion ? Uniform(-0.5, 0.5) : 0.0);
    camera.push_back(distortion ? Uniform(-0.5, 0.5) : 0.0);
    return camera;
  }

  // A point, rounded, whose place in the camera's frame is (x, y, -1) depth.
  static std::array<double, 3> PointAt(const std::vector<double>& camera,
                                       double x,
                                       double y,
                                       double depth) {
    const int camera_dim = static_cast<int>(camera.size());
    long double q[4] = {camera[0], camera[1], camera[2], camera[3]};
    if (camera_dim == 9) {
      const long double w[3] = {camera[0], camera[1], camera[2]};
      AngleAxisToUnitQuaternion(w, q);
    }
    const long double norm =
        std::sqrt(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]);
    const long double inverse[4] = {
        q[0] / norm, -q[1] / norm, -q[2] / norm, -q[3] / norm};
    // X = R' (Xc - t).
    const double* t = &camera[camera_dim - 6];
    const long double rotated[3] = {static_cast<long double>(x) * depth - t[0],
                                    static_cast<long double>(y) * depth - t[1],
                                    -static_cast<long double>(depth) - t[2]};
    long double point[3];
    RotateReference(inverse, rotated, point);
    return {static_cast<double>(point[0]),
            static_cast<double>(point[1]),
            static_cast<double>(point[2])};
  }

  Sample Observe(const std::vector<double>& camera) {
    return {
        camera,
        PointAt(
            camera, Uniform(-1.0, 1.0), Uniform(-1.0, 1.0), Uniform(0.5, 10.0)),
        {Uniform(-1000.0, 1000.0), Uniform(-1000.0, 1000.0)}};
  }

 private:
  std::mt19937 generator_;
};

// Residual (2) and Jacobians (2 x C and 2 x 3, row-major) of one observation.
struct Linearization {
  std::array<long double, 2> residual{};
  std::vector<long double> camera;
  std::vector<long double> point;
};

template <int kCameraDim>
Linearization LinearizeReference(const Sample& sample) {
  using D = Dual<kCameraDim + 3>;
  D camera[kCameraDim];
  D point[3];
  for (int i = 0; i < kCameraDim; ++i) {
    camera[i] = D(sample.camera[i], i);
  }
  for (int i = 0; i < 3; ++i) {
    point[i] = D(sample.point[i], kCameraDim + i);
  }
  D residual[2];
  ReferenceReprojection<kCameraDim>{
      {sample.observation[0], sample.observation[1]}}(camera, point, residual);
  Linearization result;
  for (int i = 0; i < 2; ++i) {
    result.residual[i] = residual[i].a;
    result.camera.insert(result.camera.end(),
                         residual[i].v.begin(),
                         residual[i].v.begin() + kCameraDim);
    result.point.insert(result.point.end(),
                        residual[i].v.begin() + kCameraDim,
                        residual[i].v.end());
  }
  return result;
}

// Largest distance between columns of two matrices with `rows` rows, relative
// to the column's norm in `expected`. A NaN is an infinite error.
//
// The first num_turning columns are those of a quaternion, or none. They are
// linearly dependent (no norm of q turns the camera), and one of them may
// vanish except for the rest that cancellation in the reference's arithmetic
// leaves: `noise` times the largest of them. So much is taken off the distance.
template <typename A, typename B>
double MaxColumnError(int rows,
                      const std::vector<A>& actual,
                      const std::vector<B>& expected,
                      int num_turning = 0,
                      long double noise = 0.0L) {
  const int cols = static_cast<int>(expected.size()) / rows;
  std::vector<long double> difference(cols, 0.0L);
  std::vector<long double> norm(cols, 0.0L);
  long double largest_turning = 0.0L;
  for (int j = 0; j < cols; ++j) {
    for (int i = 0; i < rows; ++i) {
      const long double a = actual[i * cols + j];
      const long double e = expected[i * cols + j];
      difference[j] = std::hypot(difference[j], a - e);
      norm[j] = std::hypot(norm[j], e);
    }
    if (j < num_turning) {
      largest_turning = std::max(largest_turning, norm[j]);
    }
  }
  double worst = 0.0;
  for (int j = 0; j < cols; ++j) {
    const long double left_over =
        j < num_turning ? noise * largest_turning : 0.0L;
    if (!(difference[j] <= left_over)) {
      const double error =
          static_cast<double>((difference[j] - left_over) / norm[j]);
      worst = std::max(
          worst,
          std::isnan(error) ? std::numeric_limits<double>::infinity() : error);
    }
  }
  return worst;
}

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_MODEL_BAL_REFERENCE_H_
