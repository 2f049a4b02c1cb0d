// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Residuals of one keyframe (odometry_errors.h), as functors with written
// derivatives: a prior on speed and biases, motion in a plane and positions by
// GNSS. WhitenedError (photogrammetry.h) whitens each by its covariance. A
// prior on a pose is PosePrior, with the pose world_from_body.

#ifndef CERES_EXT_ODOMETRY_PRIORS_H_
#define CERES_EXT_ODOMETRY_PRIORS_H_

#include <utility>

#include "ceres/internal/port.h"
#include "ceres/rotation.h"
#include "ceres_ext/odometry_errors.h"
#include "ceres_ext/photogrammetry.h"

namespace ceres_ext {

// Velocity and biases minus measured ones: the first keyframe's.
struct SpeedAndBiasPrior {
  static constexpr int kNumResiduals = 9;
  using BlockSizes = std::integer_sequence<int, 9>;

  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* speed, T* residuals) const {
    for (int i = 0; i < 9; ++i) {
      residuals[i] = speed[i] - measured[i];
    }
    return true;
  }

  using DerivativesOf = SpeedAndBiasPrior;
  template <typename Sizes>
  CERES_HOST_DEVICE bool Differentiate(Sizes,
                                       const double* const* blocks,
                                       double* residuals,
                                       double* const* jacobians) const {
    for (int i = 0; i < 9; ++i) {
      for (int j = 0; j < 9; ++j) {
        jacobians[0][9 * i + j] = i == j ? 1.0 : 0.0;
      }
    }
    return (*this)(blocks[0], residuals);
  }

  double measured[9];
};

// A body that moves in a plane of the world, as on wheels: two directions a and
// b of the body stay parallel to the plane, and a point x of the body stays in
// it. With the plane's normal n, of norm 1, and the plane n'X = h:
//
//   n'R a,  n'R b,  n'(R x + p) - h
//
// Source: Wu, Guo, Georgiou, Roumeliotis: VINS on wheels, ICRA 2017, the
// constraints of motion in a plane. The covariance is that of tilts in radians,
// then of the height.
template <typename Rotation>
struct PlanarMotionError {
  static constexpr int kNumResiduals = 3;
  static constexpr int kPose = Rotation::kSize + 3;
  using BlockSizes = std::integer_sequence<int, kPose>;

  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* pose, T* residuals) const {
    T q[4];
    Rotation::ToQuaternion(pose, q);
    for (int i = 0; i < 3; ++i) {
      const double* u = i < 2 ? directions[i] : point;
      const T in_body[3] = {T(u[0]), T(u[1]), T(u[2])};
      T in_world[3];
      ceres::UnitQuaternionRotatePoint(q, in_body, in_world);
      residuals[i] = normal[0] * in_world[0] + normal[1] * in_world[1] +
                     normal[2] * in_world[2];
    }
    const T* p = pose + Rotation::kSize;
    residuals[2] +=
        normal[0] * p[0] + normal[1] * p[1] + normal[2] * p[2] - height;
    return true;
  }

  using DerivativesOf = PlanarMotionError;
  template <typename Sizes>
  CERES_HOST_DEVICE bool Differentiate(Sizes,
                                       const double* const* blocks,
                                       double* residuals,
                                       double* const* jacobians) const {
    const double zero[3] = {0.0, 0.0, 0.0};
    for (int i = 0; i < 3; ++i) {
      double in_world[3];
      double by_rotation[3 * Rotation::kSize];
      double by_point[9];
      internal::TransformPointJacobian<Rotation>(
          blocks[0],
          i < 2 ? zero : blocks[0] + Rotation::kSize,
          i < 2 ? directions[i] : point,
          in_world,
          by_rotation,
          by_point);
      internal::MatrixProduct<1, 3, 1>(normal, in_world, residuals + i);
      double* const row = jacobians[0] + kPose * i;
      internal::MatrixProduct<1, 3, Rotation::kSize>(normal, by_rotation, row);
      for (int k = 0; k < 3; ++k) {
        row[Rotation::kSize + k] = i < 2 ? 0.0 : normal[k];
      }
    }
    residuals[2] -= height;
    return true;
  }

  double directions[2][3];  // in the body's frame
  double point[3];          // the same
  double normal[3];         // in the world
  double height;
};

// A position of a GNSS antenna in the world, measured, minus R l + p of the
// antenna at l in the body's frame, its lever arm, a block that is constant if
// it is known. The covariance is in the world. Blocks: world_from_body,
// antenna. Source: Groves: Principles of GNSS, inertial, and multisensor
// integrated navigation systems, second edition, 2013, section 14.3.
template <typename Rotation>
struct GnssPositionError {
  static constexpr int kNumResiduals = 3;
  static constexpr int kPose = Rotation::kSize + 3;
  using BlockSizes = std::integer_sequence<int, kPose, 3>;

  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* pose,
                                    const T* antenna,
                                    T* residuals) const {
    T in_world[3];
    TransformPoint<Rotation>(pose, pose + Rotation::kSize, antenna, in_world);
    for (int i = 0; i < 3; ++i) {
      residuals[i] = position[i] - in_world[i];
    }
    return true;
  }

  using DerivativesOf = GnssPositionError;
  template <typename Sizes>
  CERES_HOST_DEVICE bool Differentiate(Sizes,
                                       const double* const* blocks,
                                       double* residuals,
                                       double* const* jacobians) const {
    double in_world[3];
    double by_rotation[3 * Rotation::kSize];
    internal::TransformPointJacobian<Rotation>(blocks[0],
                                               blocks[0] + Rotation::kSize,
                                               blocks[1],
                                               in_world,
                                               by_rotation,
                                               jacobians[1]);
    for (int i = 0; i < 3; ++i) {
      residuals[i] = position[i] - in_world[i];
      double* const row = jacobians[0] + kPose * i;
      for (int k = 0; k < Rotation::kSize; ++k) {
        row[k] = -by_rotation[Rotation::kSize * i + k];
      }
      for (int k = 0; k < 3; ++k) {
        row[Rotation::kSize + k] = i == k ? -1.0 : 0.0;
        jacobians[1][3 * i + k] = -jacobians[1][3 * i + k];
      }
    }
    return true;
  }

  // As of PositionPrior, for poses that are relative to `origin`.
  static GnssPositionError RelativeTo(const double* origin,
                                      const double* position) {
    return {{position[0] - origin[0],
             position[1] - origin[1],
             position[2] - origin[2]}};
  }

  double position[3];
};

}  // namespace ceres_ext

#endif  // CERES_EXT_ODOMETRY_PRIORS_H_
