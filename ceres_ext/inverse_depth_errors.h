// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Reprojection errors of points that are known by an inverse depth along a ray
// of the camera that saw them first, their anchor, as functors with written
// derivatives (odometry_errors.h has the frames and keyframes' blocks).
//
// Cameras. body_from_camera is a pose in the layout of those of keyframes.
// Images are normalised: x / z and y / z without distortion. The weight of a
// residual is the focal length over the standard deviation of a pixel.
//
// Time. A camera's clock plus the time offset is that of the inertial sensor.
// Keyframes are at the times of their images by the camera's clock, and the
// images therefore are seen `offset` later than the poses: an image point m
// that moves with velocity m' (1 / s) was at m - offset m'. Source: Qin, Shen:
// Online temporal calibration for monocular visual-inertial systems, IROS 2018,
// section III. If clocks agree, the offset is a constant block of 0 or
// velocities are 0.
//
// With the anchor's image point (x, y), inverse depth s, poses i of the anchor
// and j, and cameras c of the anchor and d, the point times s in camera d is
//
//   R_d' (R_j' (R_i (R_c (x, y, 1) + s t_c) + s (p_i - p_j)) - s t_d)
//
// whose projection does not depend on the factor s and is smooth where s = 0,
// at infinity (Civera, Davison, Montiel: Inverse depth parametrization for
// monocular SLAM, IEEE Transactions on Robotics 24, 2008, section III; anchors
// that are keyframes are those of Qin, Li, Shen: VINS-Mono, IEEE Transactions
// on Robotics 34, 2018, section VI-C). An error is 0, with derivatives 0, where
// that is at or behind the optical centre, as in photogrammetry.h.

#ifndef CERES_EXT_INVERSE_DEPTH_ERRORS_H_
#define CERES_EXT_INVERSE_DEPTH_ERRORS_H_

#include <cfloat>
#include <cmath>
#include <type_traits>
#include <utility>

#include "ceres/internal/port.h"
#include "ceres/rotation.h"
#include "ceres_ext/odometry_errors.h"
#include "ceres_ext/photogrammetry.h"

namespace ceres_ext {

namespace internal {

template <int kNumPoses, int kPose, typename Sizes>
struct PosesThen;
template <int kNumPoses, int kPose, int... kSizes>
struct PosesThen<kNumPoses, kPose, std::integer_sequence<int, kSizes...>>
    : PosesThen<kNumPoses - 1,
                kPose,
                std::integer_sequence<int, kPose, kSizes...>> {};
template <int kPose, int... kSizes>
struct PosesThen<0, kPose, std::integer_sequence<int, kSizes...>> {
  using Type = std::integer_sequence<int, kSizes...>;
};

// Rows of kNumFrames keyframes (1: the anchor's) and kNumCameras cameras (1:
// the anchor's).
template <typename Rotation, int kNumFrames, int kNumCameras>
struct InverseDepthRow {
  static constexpr int kNumResiduals = 2;
  static constexpr int kPose = Rotation::kSize + 3;
  static constexpr int kNumPoses = (kNumFrames == 2 ? 2 : 0) + kNumCameras;
  using BlockSizes = typename PosesThen<kNumPoses,
                                        kPose,
                                        std::integer_sequence<int, 1, 1>>::Type;

  // The blocks, then the residuals.
  template <typename T, typename... Rest>
  CERES_HOST_DEVICE bool operator()(const T* first, Rest... rest) const {
    static_assert(sizeof...(rest) == kNumPoses + 2);
    using std::isnan;
    const T* const blocks[] = {first, rest...};
    T* const residuals = Last(rest...);
    const T& s = blocks[kDepth][0];
    const T& offset = blocks[kOffset][0];
    T ray[3];
    T at[3];
    Ray(offset, ray);
    Turn(blocks[kCamera], false, ray, at);
    for (int k = 0; k < 3; ++k) {
      at[k] += s * blocks[kCamera][Rotation::kSize + k];
    }
    if constexpr (kNumFrames == 2) {
      T in_world[3];
      Turn(blocks[0], false, at, in_world);
      for (int k = 0; k < 3; ++k) {
        const int p = Rotation::kSize + k;
        in_world[k] += s * (blocks[0][p] - blocks[1][p]);
      }
      Turn(blocks[1], true, in_world, at);
    }
    for (int k = 0; k < 3; ++k) {
      at[k] -= s * blocks[kOther][Rotation::kSize + k];
    }
    T in_camera[3];
    Turn(blocks[kOther], true, at, in_camera);
    if (!(in_camera[2] >= DBL_EPSILON)) {
      residuals[0] = residuals[1] = T(0.0);
      return !isnan(in_camera[2]);
    }
    for (int k = 0; k < 2; ++k) {
      residuals[k] = weight * (in_camera[k] / in_camera[2] -
                               (image[k] - velocity[k] * offset));
    }
    return true;
  }

  using DerivativesOf = InverseDepthRow;
  template <typename Sizes>
  CERES_HOST_DEVICE bool Differentiate(Sizes,
                                       const double* const* blocks,
                                       double* residuals,
                                       double* const* jacobians) const {
    for (int b = 0; b < kNumPoses + 2; ++b) {
      for (int k = 0; k < 2 * (b < kNumPoses ? kPose : 1); ++k) {
        jacobians[b][k] = 0.0;
      }
    }
    const double s = blocks[kDepth][0];
    const double offset = blocks[kOffset][0];
    double ray[3];
    Ray(offset, ray);
    // The point times s in the body of i, in the world from p_j, in the body of
    // j from t_d, and in camera d.
    const Rotated of_camera(blocks[kCamera], false, ray);
    double at[3];
    for (int k = 0; k < 3; ++k) {
      at[k] = of_camera.to[k] + s * blocks[kCamera][Rotation::kSize + k];
    }
    Rotated of_anchor;
    Rotated of_frame;
    double baseline[3] = {};
    if constexpr (kNumFrames == 2) {
      of_anchor = Rotated(blocks[0], false, at);
      for (int k = 0; k < 3; ++k) {
        const int p = Rotation::kSize + k;
        baseline[k] = blocks[0][p] - blocks[1][p];
        at[k] = of_anchor.to[k] + s * baseline[k];
      }
      of_frame = Rotated(blocks[1], true, at);
      for (int k = 0; k < 3; ++k) {
        at[k] = of_frame.to[k];
      }
    }
    const double* const other = blocks[kOther] + Rotation::kSize;
    for (int k = 0; k < 3; ++k) {
      at[k] -= s * other[k];
    }
    const Rotated of_other(blocks[kOther], true, at);
    const double* const in_camera = of_other.to;
    if (!(in_camera[2] >= DBL_EPSILON)) {
      residuals[0] = residuals[1] = 0.0;
      using std::isnan;
      return !isnan(in_camera[2]);
    }
    const double x = in_camera[0] / in_camera[2];
    const double y = in_camera[1] / in_camera[2];
    residuals[0] = weight * (x - (image[0] - velocity[0] * offset));
    residuals[1] = weight * (y - (image[1] - velocity[1] * offset));

    // Back from the projection: g, 2 x 3, is the derivative by the point in the
    // frame that was reached.
    const double w = weight / in_camera[2];
    double g[6] = {w, 0.0, -w * x, 0.0, w, -w * y};
    double* const by_depth = jacobians[kDepth];
    of_other.AddTo(g, jacobians[kOther]);
    AddTranslation(g, -s, jacobians[kOther]);
    AddDepth(g, other, -1.0, by_depth);
    if constexpr (kNumFrames == 2) {
      of_frame.AddTo(g, jacobians[1]);
      AddTranslation(g, -s, jacobians[1]);
      AddTranslation(g, s, jacobians[0]);
      AddDepth(g, baseline, 1.0, by_depth);
      of_anchor.AddTo(g, jacobians[0]);
    }
    AddTranslation(g, s, jacobians[kCamera]);
    AddDepth(g, blocks[kCamera] + Rotation::kSize, 1.0, by_depth);
    of_camera.AddTo(g, jacobians[kCamera]);
    for (int r = 0; r < 2; ++r) {
      jacobians[kOffset][r] = weight * velocity[r] -
                              g[3 * r] * anchor_velocity[0] -
                              g[3 * r + 1] * anchor_velocity[1];
    }
    return true;
  }

  double anchor[2];           // image point of the anchor
  double anchor_velocity[2];  // 1 / s
  double image[2];
  double velocity[2];
  double weight;

 private:
  // Numbers of blocks.
  static constexpr int kCamera = kNumPoses - kNumCameras;
  static constexpr int kOther = kNumPoses - 1;
  static constexpr int kDepth = kNumPoses;
  static constexpr int kOffset = kNumPoses + 1;

  template <typename T>
  CERES_HOST_DEVICE void Ray(const T& offset, T* ray) const {
    for (int k = 0; k < 2; ++k) {
      ray[k] = anchor[k] - anchor_velocity[k] * offset;
    }
    ray[2] = T(1.0);
  }

  // R u, or R'u.
  template <typename T>
  CERES_HOST_DEVICE static void Turn(const T* rotation,
                                     bool is_back,
                                     const T* u,
                                     T* rotated) {
    T q[4];
    Rotation::ToQuaternion(rotation, q);
    if (is_back) {
      T inverse[4];
      Conjugate(q, inverse);
      ceres::UnitQuaternionRotatePoint(inverse, u, rotated);
    } else {
      ceres::UnitQuaternionRotatePoint(q, u, rotated);
    }
  }

  // The same with its derivatives.
  struct Rotated {
    Rotated() = default;
    CERES_HOST_DEVICE Rotated(const double* rotation,
                              bool is_back,
                              const double* u) {
      double q[4];
      double by_values[4 * Rotation::kSize];
      double by_q[12];
      DifferentiateRotation<Rotation>(rotation, q, by_values);
      if (is_back) {
        RotateBackJacobian(q, u, to, by_q, by_u);
      } else {
        const double zero[3] = {0.0, 0.0, 0.0};
        TransformPointJacobian<Quaternion>(q, zero, u, to, by_q, by_u);
      }
      MatrixProduct<3, 4, Rotation::kSize>(by_q, by_values, by_rotation);
    }

    // Adds g times the derivative by the rotation to that of a pose's block,
    // and multiplies g by that by u.
    CERES_HOST_DEVICE void AddTo(double* g, double* jacobian) const {
      double product[2 * (Rotation::kSize > 3 ? Rotation::kSize : 3)];
      MatrixProduct<2, 3, Rotation::kSize>(g, by_rotation, product);
      for (int r = 0; r < 2; ++r) {
        for (int k = 0; k < Rotation::kSize; ++k) {
          jacobian[kPose * r + k] += product[Rotation::kSize * r + k];
        }
      }
      MatrixProduct<2, 3, 3>(g, by_u, product);
      for (int k = 0; k < 6; ++k) {
        g[k] = product[k];
      }
    }

    double to[3];
    double by_rotation[3 * Rotation::kSize];
    double by_u[9];
  };

  CERES_HOST_DEVICE static void AddTranslation(const double* g,
                                               double factor,
                                               double* jacobian) {
    for (int r = 0; r < 2; ++r) {
      for (int k = 0; k < 3; ++k) {
        jacobian[kPose * r + Rotation::kSize + k] += factor * g[3 * r + k];
      }
    }
  }

  CERES_HOST_DEVICE static void AddDepth(const double* g,
                                         const double* by_depth,
                                         double factor,
                                         double* jacobian) {
    for (int r = 0; r < 2; ++r) {
      jacobian[r] +=
          factor * (g[3 * r] * by_depth[0] + g[3 * r + 1] * by_depth[1] +
                    g[3 * r + 2] * by_depth[2]);
    }
  }
};

}  // namespace internal

// The same camera at another keyframe. Blocks: world_from_body of the anchor's
// keyframe, the same of the other one, body_from_camera, inverse depth, time
// offset.
template <typename Rotation>
using InverseDepthError = internal::InverseDepthRow<Rotation, 2, 1>;

// Another camera at another keyframe. Blocks: as above, with body_from_camera
// of the other camera after that of the anchor's.
template <typename Rotation>
using StereoInverseDepthError = internal::InverseDepthRow<Rotation, 2, 2>;

// Another camera at the anchor's keyframe. Blocks: body_from_camera of the
// anchor's camera and of the other one, inverse depth, time offset.
template <typename Rotation>
using AnchorStereoInverseDepthError = internal::InverseDepthRow<Rotation, 1, 2>;

}  // namespace ceres_ext

#endif  // CERES_EXT_INVERSE_DEPTH_ERRORS_H_
