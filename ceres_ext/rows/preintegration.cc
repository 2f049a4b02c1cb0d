// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/preintegration.h"

#include <algorithm>
#include <cmath>

#include "ceres/rotation.h"

namespace ceres_ext {
namespace {

using Eigen::Matrix3d;
using Eigen::Vector3d;

Matrix3d CrossMatrix(const Vector3d& v) {
  Matrix3d k;
  k << 0, -v[2], v[1], v[2], 0, -v[0], -v[1], v[0], 0;
  return k;
}

// Exp(v) as a quaternion.
Eigen::Quaterniond Exponential(const Vector3d& v) {
  double wxyz[4];
  ceres::AngleAxisToQuaternion(v.data(), wxyz);
  return {wxyz[0], wxyz[1], wxyz[2], wxyz[3]};
}

// J with Exp(v + d) = Exp(v) Exp(J d) in first order, for v of norm a:
// I - (1 - cos a) / a^2 K + (a - sin a) / a^3 K^2. Below a = 0.1 the last
// factor is a series, whose first term left out, a^8 / 11!, is below 3e-16.
Matrix3d RightJacobian(const Vector3d& v) {
  const double a2 = v.squaredNorm();
  const double a = std::sqrt(a2);
  const double half = a == 0.0 ? 1.0 : std::sin(0.5 * a) / (0.5 * a);
  const double third =
      a2 < 0.01 ? 1.0 / 6 - a2 * (1.0 / 120 - a2 * (1.0 / 5040 - a2 / 362880))
                : (a - std::sin(a)) / (a2 * a);
  const Matrix3d k = CrossMatrix(v);
  return Matrix3d::Identity() - 0.5 * half * half * k + third * k * k;
}

bool Refuse(const std::string& why, std::string* error) {
  if (error != nullptr) {
    *error = why;
  }
  return false;
}

bool IsFinite(const double* values) {
  return std::all_of(
      values, values + 3, [](double value) { return std::isfinite(value); });
}

}  // namespace

Preintegration::Preintegration(const InertialNoise& noise, const double* bias)
    : noise_(noise), bias_(bias) {}

bool Preintegration::Add(double duration,
                         const double* gyroscope,
                         const double* accelerometer,
                         std::string* error) {
  if (!(duration > 0.0) || !std::isfinite(duration)) {
    return Refuse("the duration of an inertial step is " +
                      std::to_string(duration) + "; expected one above 0",
                  error);
  }
  if (!IsFinite(gyroscope) || !IsFinite(accelerometer) || !bias_.allFinite()) {
    return Refuse("an inertial measurement or bias is not finite", error);
  }
  const double t = duration;
  const Vector3d turn =
      (Eigen::Map<const Vector3d>(gyroscope) - bias_.head<3>()) * t;
  const Vector3d force =
      Eigen::Map<const Vector3d>(accelerometer) - bias_.tail<3>();
  const Eigen::Quaterniond half_turn = Exponential(0.5 * turn);
  const Matrix3d middle = (rotation_ * half_turn).toRotationMatrix();
  const Eigen::Quaterniond whole_turn = Exponential(turn);

  // The errors (phi, p, v) at the end of the step by those at its beginning,
  // and by those of rate and specific force, which biases enter with a minus:
  //   phi_m = Exp(w t / 2)' phi + J(w t / 2) t / 2 dw
  //   dA = -dR_m [a] phi_m + dR_m da
  //   phi = Exp(w t)' phi + J(w t) t dw,  p += v t + dA t^2 / 2,  v += dA t
  const Matrix3d by_middle = -middle * CrossMatrix(force);
  const Matrix3d by_phi = by_middle * half_turn.toRotationMatrix().transpose();
  const Matrix3d by_rate = by_middle * RightJacobian(0.5 * turn) * (0.5 * t);
  Eigen::Matrix<double, 9, 9> transition;
  transition.setIdentity();
  transition.block<3, 3>(kRotation, kRotation) =
      whole_turn.toRotationMatrix().transpose();
  transition.block<3, 3>(kPosition, kRotation) = 0.5 * t * t * by_phi;
  transition.block<3, 3>(kPosition, kVelocity) = t * Matrix3d::Identity();
  transition.block<3, 3>(kVelocity, kRotation) = t * by_phi;
  Eigen::Matrix<double, 9, 6> by_input;
  by_input.setZero();
  by_input.block<3, 3>(kRotation, 0) = RightJacobian(turn) * t;
  by_input.block<3, 3>(kPosition, 0) = 0.5 * t * t * by_rate;
  by_input.block<3, 3>(kVelocity, 0) = t * by_rate;
  by_input.block<3, 3>(kPosition, 3) = 0.5 * t * t * middle;
  by_input.block<3, 3>(kVelocity, 3) = t * middle;

  bias_jacobian_ = transition * bias_jacobian_ - by_input;

  Covariance whole = Covariance::Identity();
  whole.topLeftCorner<9, 9>() = transition;
  whole.topRightCorner<9, 6>() = -by_input;
  Eigen::Matrix<double, 6, 1> density;
  density << Vector3d::Constant(noise_.gyroscope * noise_.gyroscope),
      Vector3d::Constant(noise_.accelerometer * noise_.accelerometer);
  Covariance next = whole * covariance_ * whole.transpose();
  next.topLeftCorner<9, 9>() +=
      by_input * (density / t).asDiagonal() * by_input.transpose();
  next.diagonal().segment<3>(kPosition) += density.tail<3>() * (t * t * t / 12);
  next.diagonal().segment<3>(kGyroscopeBias).array() +=
      noise_.gyroscope_bias * noise_.gyroscope_bias * t;
  next.diagonal().segment<3>(kAccelerometerBias).array() +=
      noise_.accelerometer_bias * noise_.accelerometer_bias * t;
  covariance_ = 0.5 * (next + next.transpose());

  const Vector3d acceleration = middle * force;
  position_ += velocity_ * t + 0.5 * t * t * acceleration;
  velocity_ += t * acceleration;
  rotation_ = (rotation_ * whole_turn).normalized();
  duration_ += t;
  return true;
}

bool Preintegration::AddSamples(int64_t num_samples,
                                const InertialSample* samples,
                                double begin,
                                double end,
                                std::string* error) {
  if (!(begin < end)) {
    return Refuse("inertial samples are wanted from " + std::to_string(begin) +
                      " to " + std::to_string(end) +
                      " s; expected an end after the beginning",
                  error);
  }
  if (num_samples < 2 || !(samples[0].time <= begin) ||
      !(samples[num_samples - 1].time >= end)) {
    return Refuse("inertial samples do not cover the time from " +
                      std::to_string(begin) + " to " + std::to_string(end) +
                      " s",
                  error);
  }
  Preintegration added = *this;
  for (int64_t i = 1; i < num_samples; ++i) {
    const InertialSample& a = samples[i - 1];
    const InertialSample& b = samples[i];
    if (!(a.time < b.time)) {
      return Refuse("inertial sample " + std::to_string(i) +
                        " is not later than the one before it",
                    error);
    }
    const double from = std::max(a.time, begin);
    const double to = std::min(b.time, end);
    if (!(from < to)) {
      continue;
    }
    const double weight =
        (0.5 * (from - a.time) + 0.5 * (to - a.time)) / (b.time - a.time);
    double gyroscope[3];
    double accelerometer[3];
    for (int k = 0; k < 3; ++k) {
      gyroscope[k] = (1.0 - weight) * a.gyroscope[k] + weight * b.gyroscope[k];
      accelerometer[k] =
          (1.0 - weight) * a.accelerometer[k] + weight * b.accelerometer[k];
    }
    if (!added.Add(to - from, gyroscope, accelerometer, error)) {
      return false;
    }
  }
  *this = added;
  return true;
}

}  // namespace ceres_ext
