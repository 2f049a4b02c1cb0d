// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The models of model_windows_test.cc: those of an odometry with an inertial
// sensor. A pose is a position and a quaternion w x y z; a speed has biases of
// the accelerometer and the gyroscope.

#ifndef CERES_EXT_TESTS_FRONT_MODEL_WINDOW_FUNCTORS_H_
#define CERES_EXT_TESTS_FRONT_MODEL_WINDOW_FUNCTORS_H_

#include "ceres/internal/port.h"
#include "ceres/rotation.h"
#include "ceres_ext/device_cost_function.h"

namespace ceres_ext {
namespace model_windows {

// y = R(q)' x of a quaternion of norm 1.
template <typename T>
CERES_HOST_DEVICE void RotateBack(const T* q, const T* x, T* y) {
  const T inverse[4] = {q[0], -q[1], -q[2], -q[3]};
  ceres::UnitQuaternionRotatePoint(inverse, x, y);
}

// Twice the vector of a^-1 b.
template <typename T>
CERES_HOST_DEVICE void TurnBetween(const T* a, const T* b, T* turn) {
  const T inverse[4] = {a[0], -a[1], -a[2], -a[3]};
  T product[4];
  ceres::QuaternionProduct(inverse, b, product);
  for (int i = 0; i < 3; ++i) {
    turn[i] = 2.0 * product[1 + i];
  }
}

// Preintegrated samples between two frames.
struct InertialError {
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* pose_a,
                                    const T* speed_a,
                                    const T* pose_b,
                                    const T* speed_b,
                                    T* r) const {
    T position[3];
    T speed[3];
    T turned[3];
    for (int i = 0; i < 3; ++i) {
      const double g = i == 2 ? 9.81 : 0.0;
      position[i] =
          pose_b[i] - pose_a[i] - speed_a[i] * dt + T(0.5 * g * dt * dt);
      speed[i] = speed_b[i] - speed_a[i] + T(g * dt);
    }
    RotateBack(pose_a + 3, position, turned);
    for (int i = 0; i < 3; ++i) {
      r[i] = 50.0 * (turned[i] - dp[i] + 0.5 * dt * dt * speed_a[3 + i]);
    }
    RotateBack(pose_a + 3, speed, turned);
    for (int i = 0; i < 3; ++i) {
      r[3 + i] = 20.0 * (turned[i] - dv[i] + dt * speed_a[3 + i]);
    }
    TurnBetween(pose_a + 3, pose_b + 3, turned);
    for (int i = 0; i < 3; ++i) {
      r[6 + i] = 100.0 * (turned[i] - turn[i] + dt * speed_a[6 + i]);
      r[9 + i] = 30.0 * (speed_b[3 + i] - speed_a[3 + i]);
      r[12 + i] = 200.0 * (speed_b[6 + i] - speed_a[6 + i]);
    }
    return true;
  }
  double dt;
  double dp[3];
  double dv[3];
  double turn[3];
};
using InertialCost = DeviceAutoDiffCostFunction<InertialError, 15, 7, 9, 7, 9>;

// A point at an inverse depth on a ray of one frame, seen in another, by a
// camera whose clock is late.
struct InverseDepthError {
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* pose_a,
                                    const T* pose_b,
                                    const T* camera,
                                    const T* inverse_depth,
                                    const T* delay,
                                    T* r) const {
    const T ray[3] = {
        u[0] + delay[0] * flow[0], u[1] + delay[0] * flow[1], T(1.0)};
    T x[3];
    T y[3];
    ceres::UnitQuaternionRotatePoint(camera + 3, ray, x);
    for (int i = 0; i < 3; ++i) {
      x[i] = x[i] / inverse_depth[0] + camera[i];
    }
    ceres::UnitQuaternionRotatePoint(pose_a + 3, x, y);
    for (int i = 0; i < 3; ++i) {
      x[i] = y[i] + pose_a[i] - pose_b[i];
    }
    RotateBack(pose_b + 3, x, y);
    for (int i = 0; i < 3; ++i) {
      x[i] = y[i] - camera[i];
    }
    RotateBack(camera + 3, x, y);
    r[0] = 100.0 * (y[0] / y[2] - v[0]);
    r[1] = 100.0 * (y[1] / y[2] - v[1]);
    return inverse_depth[0] < 1e3;
  }
  double u[2];
  double flow[2];
  double v[2];
};
using InverseDepthCost =
    DeviceAutoDiffCostFunction<InverseDepthError, 2, 7, 7, 7, 1, 1>;

// A point of the world.
struct LandmarkError {
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* pose,
                                    const T* camera,
                                    const T* point,
                                    T* r) const {
    T x[3];
    T y[3];
    for (int i = 0; i < 3; ++i) {
      x[i] = point[i] - pose[i];
    }
    RotateBack(pose + 3, x, y);
    for (int i = 0; i < 3; ++i) {
      x[i] = y[i] - camera[i];
    }
    RotateBack(camera + 3, x, y);
    r[0] = 100.0 * (y[0] / y[2] - v[0]);
    r[1] = 100.0 * (y[1] / y[2] - v[1]);
    return true;
  }
  double v[2];
};
using LandmarkCost = DeviceAutoDiffCostFunction<LandmarkError, 2, 7, 7, 3>;

struct PosePriorError {
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* pose, T* r) const {
    for (int i = 0; i < 3; ++i) {
      r[i] = weight * (pose[i] - p[i]);
    }
    const T to[4] = {T(p[3]), T(p[4]), T(p[5]), T(p[6])};
    TurnBetween(to, pose + 3, r + 3);
    return true;
  }
  double weight;
  double p[7];
};
using PosePriorCost = DeviceAutoDiffCostFunction<PosePriorError, 6, 7>;

struct DelayPriorError {
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* delay, T* r) const {
    r[0] = 10.0 * delay[0];
    return true;
  }
  double unused;
};
using DelayPriorCost = DeviceAutoDiffCostFunction<DelayPriorError, 1, 1>;

// A (x - 1), of four blocks of three.
struct LinearError {
  template <typename T>
  CERES_HOST_DEVICE bool operator()(
      const T* a, const T* b, const T* c, const T* d, T* r) const {
    const T* const x[] = {a, b, c, d};
    for (int i = 0; i < 12; ++i) {
      r[i] = T(0.0);
      for (int j = 0; j < 12; ++j) {
        r[i] += matrix[12 * i + j] * (x[j / 3][j % 3] - 1.0);
      }
    }
    return true;
  }
  double matrix[144];
};
using LinearCost = DeviceAutoDiffCostFunction<LinearError, 12, 3, 3, 3, 3>;

// With written derivatives: speeds and biases have changed little, along three
// frames, and so have their positions.
struct SmoothModel {
  static constexpr int kNumResiduals = 3;
  using BlockSizes = std::integer_sequence<int, 7, 9, 7, 9, 7, 9>;
  struct Constants {
    double weight;
  };
  CERES_HOST_DEVICE static bool Evaluate(const Constants& constants,
                                         const double* const* x,
                                         double* residuals,
                                         double* const* jacobians) {
    const double signs[3] = {1.0, -2.0, 1.0};
    for (int i = 0; i < kNumResiduals; ++i) {
      residuals[i] = 0.0;
      for (int b = 0; b < 6; ++b) {
        const int size = b % 2 == 0 ? 7 : 9;
        const double factor =
            (b % 2 == 0 ? 1.0 : 0.3) * constants.weight * signs[b / 2];
        residuals[i] += factor * x[b][i];
        for (int j = 0; j < size && jacobians != nullptr; ++j) {
          jacobians[b][size * i + j] = i == j ? factor : 0.0;
        }
      }
    }
    return true;
  }
};
using SmoothCost = DeviceCostFunction<SmoothModel>;

}  // namespace model_windows
}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_FRONT_MODEL_WINDOW_FUNCTORS_H_
