// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Preintegration of the measurements of a gyroscope and an accelerometer
// between two keyframes i and j, for InertialError (odometry_errors.h):
//
//   Preintegration increment(noise, bias);  // bias: of keyframe i
//   if (!increment.AddSamples(n, samples, time_i, time_j, &error)) { ... }
//   InertialError<EigenQuaternion> row;
//   if (!row.Set(increment, gravity, &error)) { ... }
//
// Source: Forster, Carlone, Dellaert, Scaramuzza: On-manifold preintegration
// for real-time visual-inertial odometry, IEEE Transactions on Robotics 33
// (2017), sections VI and appendix A. R is world_from_body, v and p the body's
// velocity and position in the world, g the gravity there. The sensors measure
//
//   w_m = w + b_g + noise
//   a_m = R' (dv/dt - g) + b_a + noise
//
// so that a body at rest measures -g. The increments are free of R, v and p:
//
//   dR = R_i' R_j
//   dp = R_i' (p_j - p_i - v_i T - g T^2 / 2)
//   dv = R_i' (v_j - v_i - g T)
//
// A step of duration t takes the rate w = w_m - b_g and the specific force a =
// a_m - b_a as constant in it, and turns a by the rotation in its middle, which
// makes the error of a trajectory O(t^2), where the source, which takes that at
// the beginning, has O(t):
//
//   A = dR Exp(w t / 2) a
//   dp += dv t + A t^2 / 2,  dv += A t,  dR = dR Exp(w t)
//
// The covariance is that of dR Exp(phi), dp, dv and the change of both biases
// from i to j, 15 x 15. Biases walk randomly, also within the increment
// (Carlone's CombinedImuFactor in GTSAM); the source takes them as constant
// there. White noise of the accelerometer is continuous: a step adds t^3 / 12
// of its density to the variance of dp, so that one step has a positive
// definite covariance.
//
// Units: seconds, radians, metres. Thread safety: as of a plain value.

#ifndef CERES_EXT_PREINTEGRATION_H_
#define CERES_EXT_PREINTEGRATION_H_

#include <cstdint>
#include <string>

#include "Eigen/Core"
#include "Eigen/Geometry"

namespace ceres_ext {

// The measurements of both sensors at a time.
struct InertialSample {
  double time = 0.0;             // s
  double gyroscope[3] = {};      // rad / s, in the body's frame
  double accelerometer[3] = {};  // m / s^2
};

// Densities of white noise, the roots of their power spectra, as data sheets
// and Allan deviations have them. All must be above 0.
struct InertialNoise {
  double gyroscope = 0.0;           // rad / s / sqrt(Hz)
  double accelerometer = 0.0;       // m / s^2 / sqrt(Hz)
  double gyroscope_bias = 0.0;      // its random walk, rad / s^2 / sqrt(Hz)
  double accelerometer_bias = 0.0;  // its random walk, m / s^3 / sqrt(Hz)
};

class Preintegration {
 public:
  // Rows and columns of the covariance, three each.
  enum Part {
    kRotation = 0,
    kPosition = 3,
    kVelocity = 6,
    kGyroscopeBias = 9,
    kAccelerometerBias = 12,
    kSize = 15
  };
  // Without alignment, so that programs compiled for other instructions than
  // the library agree with it.
  using Rotation = Eigen::Quaternion<double, Eigen::DontAlign>;
  using Vector = Eigen::Vector3d;
  using Bias = Eigen::Matrix<double, 6, 1, Eigen::DontAlign>;
  using Covariance =
      Eigen::Matrix<double, kSize, kSize, Eigen::RowMajor | Eigen::DontAlign>;
  using BiasJacobian =
      Eigen::Matrix<double, 9, 6, Eigen::RowMajor | Eigen::DontAlign>;

  // bias: of the gyroscope, then of the accelerometer (6 values), with which
  // the increments are computed.
  Preintegration(const InertialNoise& noise, const double* bias);

  // Adds a step with constant measurements. Returns false, changes nothing and
  // says why in *error (may be null) if a value is not finite or the duration
  // not above 0.
  bool Add(double duration,
           const double* gyroscope,
           const double* accelerometer,
           std::string* error);

  // Adds all from the time `begin` to `end`: a step for each two neighbours,
  // with the measurements in its middle, interpolated. Samples are in the order
  // of their times, none at or before the time of the one before it, and the
  // first and the last are not within (begin, end). Otherwise as Add.
  bool AddSamples(int64_t num_samples,
                  const InertialSample* samples,
                  double begin,
                  double end,
                  std::string* error);

  double duration() const { return duration_; }
  const Rotation& rotation() const { return rotation_; }
  const Vector& position() const { return position_; }
  const Vector& velocity() const { return velocity_; }
  const Bias& bias() const { return bias_; }
  // The derivatives of (phi, dp, dv) by the biases, as of the source's appendix
  // B: a change of the bias by b turns dR to dR Exp(phi).
  const BiasJacobian& bias_jacobian() const { return bias_jacobian_; }
  const Covariance& covariance() const { return covariance_; }

 private:
  InertialNoise noise_;
  Bias bias_;
  double duration_ = 0.0;
  Rotation rotation_{1.0, 0.0, 0.0, 0.0};
  Vector position_ = Vector::Zero();
  Vector velocity_ = Vector::Zero();
  BiasJacobian bias_jacobian_ = BiasJacobian::Zero();
  Covariance covariance_ = Covariance::Zero();
};

}  // namespace ceres_ext

#endif  // CERES_EXT_PREINTEGRATION_H_
