// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Residuals of photogrammetry, as functors for automatic differentiation on the
// host and in CUDA's device code. Each is trivially copyable and holds the
// constants of one residual block.
//
//   using Error = ReprojectionError<OpenCvCamera, EigenQuaternion>;
//   using Cost = CostFunctionFor<ceres::AutoDiffCostFunction, Error>;
//   problem.AddResidualBlock(
//       new Cost(new Error{x, y}), loss, point, cam_from_world, params);
//
// Frames. A pose b_from_a takes coordinates in frame a to frame b:
//
//   X_b = R X_a + t
//
// The pose of a camera is cam_from_world, that of a camera in a rig
// cam_from_rig * rig_from_world. Cameras are those of camera_models.h. Lengths
// are in the unit of the points, angles in radians, pixels as camera_models.h
// has them.
//
// Poses. R is an AngleAxis (3 values), a Quaternion (w, x, y, z, as
// ceres::QuaternionManifold has it) or an EigenQuaternion (x, y, z, w, as
// ceres::EigenQuaternionManifold and COLMAP have it). A pose is one block,
// rotation before translation, or two; each functor takes both forms:
//
//   Error::BlockSizes       a block for a pose: blocks and order of COLMAP 4
//   Error::SplitBlockSizes  a rotation and a translation: COLMAP up to 3.13
//
// Quaternions in blocks must have norm 1, as both manifolds ensure. At any
// other norm R = I + 2 w [v]x + 2 [v]x^2, v = (x, y, z), is not a rotation, as
// in ceres::UnitQuaternionRotatePoint and in Eigen. Poses that are constants of
// a functor may have quaternions of any norm but 0.
//
// Derivatives are exact to rounding at all rotations, including the identity,
// except for rotation vectors of norm above 0 and below 1e-307, where they may
// not be finite. Logarithms of rotations (log R is the rotation vector of
// length at most pi) are smooth except at angles of exactly pi, where they
// change sign.
//
// At the optical centre of a camera and behind it (ImgFromCam in
// camera_models.h) a reprojection error is 0, with derivatives 0, as in COLMAP.
// If the depth is NaN the evaluation fails, and Ceres rejects the step. It also
// fails at the poles of an EQUIRECTANGULAR camera, whose blocks of parameters
// must be constant.
//
// Far coordinates. Subtract the centre of the scene from the coordinates of
// maps (UTM, ECEF) before a solve, and add it to the result. A camera at c has
// the translation t = -R c. A step that turns the camera by an angle a also has
// to change t by |c| a. The second order, which a step leaves out, moves the
// camera by |c| a^2 / 2: by 32 mm at the earth's radius and 1e-4 radians. Steps
// become short, and a solve ends far above the minimum. An origin o near the
// scene avoids this:
//
//   R X + t = R (X - o) + (t + R o)
//
//   point[i] -= o[i];                               // before the solve
//   MoveOrigin<EigenQuaternion>(o, cam_from_world);
//   PositionPrior<EigenQuaternion>::RelativeTo(o, measured_position);
//   PointPrior::RelativeTo(o, measured_point);
//
//   point[i] += o[i];                               // after it
//   MoveOrigin<EigenQuaternion>(minus_o, cam_from_world);
//
// Thread safety: all functions depend on their arguments alone.

#ifndef CERES_EXT_PHOTOGRAMMETRY_H_
#define CERES_EXT_PHOTOGRAMMETRY_H_

#include <cmath>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "Eigen/Cholesky"
#include "Eigen/Core"
#include "ceres/internal/port.h"
#include "ceres/jet.h"
#include "ceres/rotation.h"
#include "ceres_ext/camera_models.h"
#include "ceres_ext/direction_errors.h"

namespace ceres_ext {

// Axis times angle.
struct AngleAxis {
  static constexpr int kSize = 3;
  static constexpr char kName[] = "ANGLE_AXIS";
  template <typename T>
  CERES_HOST_DEVICE static void ToQuaternion(const T* rotation, T* wxyz) {
    ceres::AngleAxisToQuaternion(rotation, wxyz);
  }
};

// w, x, y, z
struct Quaternion {
  static constexpr int kSize = 4;
  static constexpr char kName[] = "QUATERNION";
  template <typename T>
  CERES_HOST_DEVICE static void ToQuaternion(const T* rotation, T* wxyz) {
    for (int i = 0; i < 4; ++i) {
      wxyz[i] = rotation[i];
    }
  }
};

// x, y, z, w
struct EigenQuaternion {
  static constexpr int kSize = 4;
  static constexpr char kName[] = "EIGEN_QUATERNION";
  template <typename T>
  CERES_HOST_DEVICE static void ToQuaternion(const T* rotation, T* wxyz) {
    for (int i = 0; i < 4; ++i) {
      wxyz[i] = rotation[(i + 3) % 4];
    }
  }
};

// R X + t, another array than the point.
template <typename Rotation, typename T>
CERES_HOST_DEVICE void TransformPoint(const T* rotation,
                                      const T* translation,
                                      const T* point,
                                      T* transformed) {
  T wxyz[4];
  Rotation::ToQuaternion(rotation, wxyz);
  ceres::UnitQuaternionRotatePoint(wxyz, point, transformed);
  for (int i = 0; i < 3; ++i) {
    transformed[i] += translation[i];
  }
}

// The position of a camera in the world, -R't of its cam_from_world.
template <typename Rotation, typename T>
CERES_HOST_DEVICE void ProjectionCenter(const T* rotation,
                                        const T* translation,
                                        T* center) {
  T wxyz[4];
  Rotation::ToQuaternion(rotation, wxyz);
  const T inverse[4] = {wxyz[0], -wxyz[1], -wxyz[2], -wxyz[3]};
  ceres::UnitQuaternionRotatePoint(inverse, translation, center);
  for (int i = 0; i < 3; ++i) {
    center[i] = -center[i];
  }
}

// The translation of the same pose when the origin of frame a moves to `origin`
// of frame a: t + R origin, for R of a quaternion of any norm but 0.
template <typename Rotation>
void MoveOrigin(const double* origin,
                const double* rotation,
                double* translation) {
  double wxyz[4];
  Rotation::ToQuaternion(rotation, wxyz);
  double rotated[3];
  ceres::QuaternionRotatePoint(wxyz, origin, rotated);
  for (int i = 0; i < 3; ++i) {
    translation[i] += rotated[i];
  }
}

// The same of a pose in one block.
template <typename Rotation>
void MoveOrigin(const double* origin, double* pose) {
  MoveOrigin<Rotation>(origin, pose, pose + Rotation::kSize);
}

namespace internal {

// The error of an observation (x, y), as described above. Returns false for
// NaN and at a pole.
template <typename Camera, typename T>
CERES_HOST_DEVICE bool ProjectionError(
    double x, double y, const T* in_camera, const T* params, T* residuals) {
  using std::isnan;
  constexpr bool kIsPanorama = std::is_base_of_v<EquirectangularCamera, Camera>;
  if (Camera::ImgFromCam(params, in_camera, residuals)) {
    residuals[0] -= x;
    residuals[1] -= y;
    if constexpr (kIsPanorama) {
      EquirectangularCamera::TakeShorterWay(params, residuals);
    }
    return true;
  }
  residuals[0] = residuals[1] = T(0.0);
  return !kIsPanorama && !isnan(in_camera[2]);
}

// True if a camera projects as internal::CameraModel does; a class derived from
// a model may not.
template <typename Camera, typename = void>
struct HasDistortion : std::false_type {};
template <typename Camera>
struct HasDistortion<Camera, std::void_t<typename Camera::DistortionOf>>
    : std::is_same<typename Camera::DistortionOf, Camera> {};

// The same with its derivatives by the point in the camera's frame (2 x 3) and
// by the parameters (2 x kNumParams), row-major. Jets have the columns of the
// distortion alone; all else is written.
template <typename Camera>
CERES_HOST_DEVICE bool ProjectionErrorJacobian(double x,
                                               double y,
                                               const double* in_camera,
                                               const double* params,
                                               double* residuals,
                                               double* by_point,
                                               double* by_params) {
  constexpr int kNumParams = Camera::kNumParams;
  if constexpr (HasDistortion<Camera>::value) {
    constexpr int kNumFocals = Camera::kNumFocalLengths;
    constexpr int kNumExtra = Camera::kNumExtraParams;
    using Jet = ceres::Jet<double, 2 + kNumExtra>;
    for (int i = 0; i < 2 * kNumParams; ++i) {
      by_params[i] = 0.0;
    }
    if (!(in_camera[2] >= DBL_EPSILON)) {
      for (int i = 0; i < 6; ++i) {
        by_point[i] = 0.0;
      }
      return ProjectionError<Camera>(x, y, in_camera, params, residuals);
    }
    const double xy[2] = {in_camera[0] / in_camera[2],
                          in_camera[1] / in_camera[2]};
    const double measured[2] = {x, y};
    Jet coefficients[kNumExtra + 1];
    for (int i = 0; i < kNumExtra; ++i) {
      coefficients[i] = Jet(params[kNumFocals + 2 + i], 2 + i);
    }
    Jet distorted[2] = {Jet(xy[0], 0), Jet(xy[1], 1)};
    Camera::Distort(coefficients, distorted);
    const double inverse_z = 1.0 / in_camera[2];
    for (int r = 0; r < 2; ++r) {
      const int focal = r * (kNumFocals - 1);
      const double f = params[focal];
      const Jet& d = distorted[r];
      residuals[r] = f * d.a + params[kNumFocals + r] - measured[r];
      by_point[3 * r] = f * d.v[0] * inverse_z;
      by_point[3 * r + 1] = f * d.v[1] * inverse_z;
      by_point[3 * r + 2] =
          -(by_point[3 * r] * xy[0] + by_point[3 * r + 1] * xy[1]);
      double* const row = by_params + kNumParams * r;
      row[focal] = d.a;
      row[kNumFocals + r] = 1.0;
      for (int i = 0; i < kNumExtra; ++i) {
        row[kNumFocals + 2 + i] = f * d.v[2 + i];
      }
    }
    return true;
  } else {
    using Jet = ceres::Jet<double, 3 + kNumParams>;
    Jet jets[3 + kNumParams];
    for (int i = 0; i < 3 + kNumParams; ++i) {
      jets[i] = Jet(i < 3 ? in_camera[i] : params[i - 3], i);
    }
    Jet error[2];
    if (!ProjectionError<Camera>(x, y, jets, jets + 3, error)) {
      return false;
    }
    for (int r = 0; r < 2; ++r) {
      residuals[r] = error[r].a;
      for (int i = 0; i < 3 + kNumParams; ++i) {
        (i < 3 ? by_point[3 * r + i] : by_params[kNumParams * r + i - 3]) =
            error[r].v[i];
      }
    }
    return true;
  }
}

// R X + t with its derivatives by the rotation's values (3 x kSize) and by X (3
// x 3), row-major; that by t is the identity. R X is X + 2 w v x X + 2 v x (v x
// X) of a quaternion (w, v).
template <typename Rotation>
CERES_HOST_DEVICE void TransformPointJacobian(const double* rotation,
                                              const double* translation,
                                              const double* point,
                                              double* transformed,
                                              double* by_rotation,
                                              double* by_point) {
  constexpr int kSize = Rotation::kSize;
  using Jet = ceres::Jet<double, kSize>;
  Jet jets[kSize];
  for (int i = 0; i < kSize; ++i) {
    jets[i] = Jet(rotation[i], i);
  }
  Jet q[4];
  Rotation::ToQuaternion(jets, q);
  const double w = q[0].a;
  const double v[3] = {q[1].a, q[2].a, q[3].a};
  double c[3];  // v x X
  ceres::CrossProduct(v, point, c);
  double d[3];  // v x (v x X)
  ceres::CrossProduct(v, c, d);
  double by_q[3][4];
  for (int i = 0; i < 3; ++i) {
    transformed[i] = point[i] + 2.0 * (w * c[i] + d[i]) + translation[i];
    by_q[i][0] = 2.0 * c[i];
  }
  for (int k = 0; k < 3; ++k) {
    // For e_k: e_k x X, e_k x (v x X), v x (e_k x X), v x e_k and v x (v x
    // e_k).
    const double e[3] = {
        k == 0 ? 1.0 : 0.0, k == 1 ? 1.0 : 0.0, k == 2 ? 1.0 : 0.0};
    double ex[3];
    double ec[3];
    double vex[3];
    double ve[3];
    double vve[3];
    ceres::CrossProduct(e, point, ex);
    ceres::CrossProduct(e, c, ec);
    ceres::CrossProduct(v, ex, vex);
    ceres::CrossProduct(v, e, ve);
    ceres::CrossProduct(v, ve, vve);
    for (int i = 0; i < 3; ++i) {
      by_q[i][k + 1] = 2.0 * (w * ex[i] + ec[i] + vex[i]);
      by_point[3 * i + k] = e[i] + 2.0 * (w * ve[i] + vve[i]);
    }
  }
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < kSize; ++j) {
      double sum = 0.0;
      for (int k = 0; k < 4; ++k) {
        sum += by_q[i][k] * q[k].v[j];
      }
      by_rotation[kSize * i + j] = sum;
    }
  }
}

// to, of 2 rows with `stride` values each: a (2 x 3) b (3 x columns).
CERES_HOST_DEVICE inline void MultiplyJacobians(
    const double* a, const double* b, int columns, int stride, double* to) {
  for (int r = 0; r < 2; ++r) {
    for (int j = 0; j < columns; ++j) {
      double sum = 0.0;
      for (int i = 0; i < 3; ++i) {
        sum += a[3 * r + i] * b[columns * i + j];
      }
      to[stride * r + j] = sum;
    }
  }
}

// The derivatives of a reprojection error whose point in the camera's frame is
// C (R X + t) + c, (C, c) = `outer`, null for the identity. Blocks and their
// derivatives are in the order of BlockSizes or, if is_split, SplitBlockSizes.
template <typename Camera, typename Rotation>
CERES_HOST_DEVICE bool ReprojectionErrorJacobian(double x,
                                                 double y,
                                                 const double (*outer)[4],
                                                 bool is_split,
                                                 const double* const* blocks,
                                                 double* residuals,
                                                 double* const* jacobians) {
  constexpr int kSize = Rotation::kSize;
  const double* const rotation = blocks[is_split ? 0 : 1];
  const double* const translation = is_split ? blocks[1] : blocks[1] + kSize;
  const double* const point = blocks[is_split ? 2 : 0];
  double* const by_rotation = jacobians[is_split ? 0 : 1];
  double* const by_translation = is_split ? jacobians[1] : jacobians[1] + kSize;
  double transformed[3];
  double rotation_jacobian[3 * kSize];
  double point_jacobian[9];
  TransformPointJacobian<Rotation>(rotation,
                                   translation,
                                   point,
                                   transformed,
                                   rotation_jacobian,
                                   point_jacobian);
  double in_camera[3];
  for (int i = 0; i < 3; ++i) {
    in_camera[i] = outer == nullptr
                       ? transformed[i]
                       : outer[i][0] * transformed[0] +
                             outer[i][1] * transformed[1] +
                             outer[i][2] * transformed[2] + outer[i][3];
  }
  double by_camera_point[6];
  if (!ProjectionErrorJacobian<Camera>(x,
                                       y,
                                       in_camera,
                                       blocks[is_split ? 3 : 2],
                                       residuals,
                                       by_camera_point,
                                       jacobians[is_split ? 3 : 2])) {
    return false;
  }
  double by_transformed[6];
  for (int r = 0; r < 2; ++r) {
    for (int j = 0; j < 3; ++j) {
      const double* a = by_camera_point + 3 * r;
      by_transformed[3 * r + j] =
          outer == nullptr
              ? a[j]
              : a[0] * outer[0][j] + a[1] * outer[1][j] + a[2] * outer[2][j];
      by_translation[(is_split ? 3 : kSize + 3) * r + j] =
          by_transformed[3 * r + j];
    }
  }
  MultiplyJacobians(by_transformed,
                    rotation_jacobian,
                    kSize,
                    is_split ? kSize : kSize + 3,
                    by_rotation);
  MultiplyJacobians(
      by_transformed, point_jacobian, 3, 3, jacobians[is_split ? 2 : 0]);
  return true;
}

// log R(q), for q of any norm but 0; q and -q have the same. With a = |v| / |w|
// it is 2 v / w atan(a) / a, regular at v = 0; past a right angle, where w may
// vanish, 2 v / |v| atan2(|v|, w).
template <typename T>
CERES_HOST_DEVICE void QuaternionToLogarithm(const T* wxyz, T* logarithm) {
  using std::atan2;
  using std::sqrt;
  const T& w = wxyz[0];
  const T w2 = w * w;
  const T v2 = ceres::DotProduct(wxyz + 1, wxyz + 1);
  T scale;
  if (v2 <= w2) {
    scale = 2.0 / w * AtanOverR(v2 / w2);
  } else {
    const T v = sqrt(v2);
    scale = 2.0 / v * (w < 0.0 ? atan2(-v, -w) : atan2(v, w));
  }
  for (int i = 0; i < 3; ++i) {
    logarithm[i] = scale * wxyz[i + 1];
  }
}

// A measured pose: quaternion w, x, y, z of norm 1, translation.
struct MeasuredPose {
  template <typename Rotation>
  static MeasuredPose From(const double* pose) {
    MeasuredPose measured;
    double* q = measured.wxyz;
    Rotation::ToQuaternion(pose, q);
    const double norm =
        std::sqrt(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]);
    for (int i = 0; i < 4; ++i) {
      q[i] /= norm;
    }
    for (int i = 0; i < 3; ++i) {
      measured.translation[i] = pose[Rotation::kSize + i];
    }
    return measured;
  }

  double wxyz[4];
  double translation[3];
};

// pose * measured^-1 = (D, d), D = R R_m' and d = t - D t_m: log D, then d.
template <typename T>
CERES_HOST_DEVICE void PoseError(const T* wxyz,
                                 const T* translation,
                                 const MeasuredPose& measured,
                                 T* residuals) {
  const double* q = measured.wxyz;
  const T inverse[4] = {T(q[0]), T(-q[1]), T(-q[2]), T(-q[3])};
  T difference[4];
  ceres::QuaternionProduct(wxyz, inverse, difference);
  QuaternionToLogarithm(difference, residuals);
  const double* t = measured.translation;
  const T measured_translation[3] = {T(t[0]), T(t[1]), T(t[2])};
  T rotated[3];
  ceres::UnitQuaternionRotatePoint(difference, measured_translation, rotated);
  for (int i = 0; i < 3; ++i) {
    residuals[i + 3] = translation[i] - rotated[i];
  }
}

template <typename First, typename... Rest>
CERES_HOST_DEVICE auto Last(First first, Rest... rest) {
  if constexpr (sizeof...(Rest) == 0) {
    return first;
  } else {
    return Last(rest...);
  }
}

template <template <typename, int, int...> class CostFunction,
          typename Error,
          typename BlockSizes>
struct MakeCostFunction;
template <template <typename, int, int...> class CostFunction,
          typename Error,
          int... kSizes>
struct MakeCostFunction<CostFunction,
                        Error,
                        std::integer_sequence<int, kSizes...>> {
  using type = CostFunction<Error, Error::kNumResiduals, kSizes...>;
};

}  // namespace internal

// The cost function of a functor: CostFunction is ceres::AutoDiffCostFunction
// or another template of its parameters, BlockSizes one of the two of the
// functor.
template <template <typename, int, int...> class CostFunction,
          typename Error,
          typename BlockSizes = typename Error::BlockSizes>
using CostFunctionFor =
    typename internal::MakeCostFunction<CostFunction, Error, BlockSizes>::type;

// The projection of the point minus its measured image position (x, y), in
// pixels.
template <typename Camera, typename Rotation>
struct ReprojectionError {
  static constexpr int kNumResiduals = 2;
  using BlockSizes =
      std::integer_sequence<int, 3, Rotation::kSize + 3, Camera::kNumParams>;
  using SplitBlockSizes =
      std::integer_sequence<int, Rotation::kSize, 3, 3, Camera::kNumParams>;

  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* rotation,
                                    const T* translation,
                                    const T* point,
                                    const T* params,
                                    T* residuals) const {
    T in_camera[3];
    TransformPoint<Rotation>(rotation, translation, point, in_camera);
    return internal::ProjectionError<Camera>(
        x, y, in_camera, params, residuals);
  }

  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* point,
                                    const T* cam_from_world,
                                    const T* params,
                                    T* residuals) const {
    return (*this)(cam_from_world,
                   cam_from_world + Rotation::kSize,
                   point,
                   params,
                   residuals);
  }

  // For BlockSizes and SplitBlockSizes (row_evaluation.h).
  using DerivativesOf = ReprojectionError;
  template <typename Sizes>
  CERES_HOST_DEVICE bool Differentiate(Sizes,
                                       const double* const* blocks,
                                       double* residuals,
                                       double* const* jacobians) const {
    return internal::ReprojectionErrorJacobian<Camera, Rotation>(
        x,
        y,
        nullptr,
        std::is_same_v<Sizes, SplitBlockSizes>,
        blocks,
        residuals,
        jacobians);
  }

  double x;
  double y;
};

// The same of a camera in a rig, both poses in blocks.
template <typename Camera, typename Rotation>
struct RigReprojectionError {
  static constexpr int kNumResiduals = 2;
  using BlockSizes = std::integer_sequence<int,
                                           3,
                                           Rotation::kSize + 3,
                                           Rotation::kSize + 3,
                                           Camera::kNumParams>;
  using SplitBlockSizes = std::integer_sequence<int,
                                                Rotation::kSize,
                                                3,
                                                Rotation::kSize,
                                                3,
                                                3,
                                                Camera::kNumParams>;

  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* cam_from_rig_rotation,
                                    const T* cam_from_rig_translation,
                                    const T* rig_from_world_rotation,
                                    const T* rig_from_world_translation,
                                    const T* point,
                                    const T* params,
                                    T* residuals) const {
    T in_rig[3];
    TransformPoint<Rotation>(
        rig_from_world_rotation, rig_from_world_translation, point, in_rig);
    T in_camera[3];
    TransformPoint<Rotation>(
        cam_from_rig_rotation, cam_from_rig_translation, in_rig, in_camera);
    return internal::ProjectionError<Camera>(
        x, y, in_camera, params, residuals);
  }

  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* point,
                                    const T* cam_from_rig,
                                    const T* rig_from_world,
                                    const T* params,
                                    T* residuals) const {
    return (*this)(cam_from_rig,
                   cam_from_rig + Rotation::kSize,
                   rig_from_world,
                   rig_from_world + Rotation::kSize,
                   point,
                   params,
                   residuals);
  }

  double x;
  double y;
};

// The same with cam_from_rig a constant, given as a pose's block is: rotation,
// then translation.
template <typename Camera, typename Rotation>
class ConstantRigReprojectionError {
 public:
  static constexpr int kNumResiduals = 2;
  using BlockSizes = typename ReprojectionError<Camera, Rotation>::BlockSizes;
  using SplitBlockSizes =
      typename ReprojectionError<Camera, Rotation>::SplitBlockSizes;

  ConstantRigReprojectionError(double x, double y, const double* cam_from_rig)
      : x_(x), y_(y) {
    double wxyz[4];
    Rotation::ToQuaternion(cam_from_rig, wxyz);
    double matrix[9];
    ceres::QuaternionToRotation(wxyz, matrix);
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 3; ++j) {
        cam_from_rig_[i][j] = matrix[3 * i + j];
      }
      cam_from_rig_[i][3] = cam_from_rig[Rotation::kSize + i];
    }
  }

  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* rig_from_world_rotation,
                                    const T* rig_from_world_translation,
                                    const T* point,
                                    const T* params,
                                    T* residuals) const {
    T in_rig[3];
    TransformPoint<Rotation>(
        rig_from_world_rotation, rig_from_world_translation, point, in_rig);
    T in_camera[3];
    for (int i = 0; i < 3; ++i) {
      const double* row = cam_from_rig_[i];
      in_camera[i] =
          row[0] * in_rig[0] + row[1] * in_rig[1] + row[2] * in_rig[2] + row[3];
    }
    return internal::ProjectionError<Camera>(
        x_, y_, in_camera, params, residuals);
  }

  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* point,
                                    const T* rig_from_world,
                                    const T* params,
                                    T* residuals) const {
    return (*this)(rig_from_world,
                   rig_from_world + Rotation::kSize,
                   point,
                   params,
                   residuals);
  }

  using DerivativesOf = ConstantRigReprojectionError;
  template <typename Sizes>
  CERES_HOST_DEVICE bool Differentiate(Sizes,
                                       const double* const* blocks,
                                       double* residuals,
                                       double* const* jacobians) const {
    return internal::ReprojectionErrorJacobian<Camera, Rotation>(
        x_,
        y_,
        cam_from_rig_,
        std::is_same_v<Sizes, SplitBlockSizes>,
        blocks,
        residuals,
        jacobians);
  }

 private:
  double x_;
  double y_;
  // (R, t)
  double cam_from_rig_[3][4];
};

// A camera's measured position minus its projection centre -R't, in the world.
// The covariance of the measurement is in the world (WhitenedError).
template <typename Rotation>
struct PositionPrior {
  static constexpr int kNumResiduals = 3;
  using BlockSizes = std::integer_sequence<int, Rotation::kSize + 3>;
  using SplitBlockSizes = std::integer_sequence<int, Rotation::kSize, 3>;

  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* rotation,
                                    const T* translation,
                                    T* residuals) const {
    T center[3];
    ProjectionCenter<Rotation>(rotation, translation, center);
    for (int i = 0; i < 3; ++i) {
      residuals[i] = position[i] - center[i];
    }
    return true;
  }

  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* cam_from_world,
                                    T* residuals) const {
    return (*this)(cam_from_world, cam_from_world + Rotation::kSize, residuals);
  }

  // Converts a position in far coordinates for poses that are relative to
  // `origin`: subtracts the origin. The result is exact if each coordinate of
  // one is at most twice that of the other.
  static PositionPrior RelativeTo(const double* origin,
                                  const double* position) {
    return {{position[0] - origin[0],
             position[1] - origin[1],
             position[2] - origin[2]}};
  }

  double position[3];
};

// The difference (D, d) between the pose and the measured pose (R_m, t_m),
// cam_from_world = (D, d) cam_from_world_m: log D, D = R R_m', then d = t - D
// t_m. The error is on the left, so it and its covariance, rotation first, are
// in the frame of the camera, as in COLMAP's AbsolutePosePrior. The measurement
// has the layout of a pose's block.
template <typename Rotation>
class PosePrior {
 public:
  static constexpr int kNumResiduals = 6;
  using BlockSizes = std::integer_sequence<int, Rotation::kSize + 3>;
  using SplitBlockSizes = std::integer_sequence<int, Rotation::kSize, 3>;

  explicit PosePrior(const double* cam_from_world)
      : measured_(internal::MeasuredPose::From<Rotation>(cam_from_world)) {}

  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* rotation,
                                    const T* translation,
                                    T* residuals) const {
    T wxyz[4];
    Rotation::ToQuaternion(rotation, wxyz);
    internal::PoseError(wxyz, translation, measured_, residuals);
    return true;
  }

  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* cam_from_world,
                                    T* residuals) const {
    return (*this)(cam_from_world, cam_from_world + Rotation::kSize, residuals);
  }

 private:
  internal::MeasuredPose measured_;
};

// The same of the pose i_from_j = i_from_world * j_from_world^-1 of two frames,
// whose error and covariance are in frame i: COLMAP's RelativePosePrior. The
// translation has the scale of the world. Blocks: i_from_world, j_from_world.
template <typename Rotation>
class RelativePosePrior {
 public:
  static constexpr int kNumResiduals = 6;
  using BlockSizes =
      std::integer_sequence<int, Rotation::kSize + 3, Rotation::kSize + 3>;
  using SplitBlockSizes =
      std::integer_sequence<int, Rotation::kSize, 3, Rotation::kSize, 3>;

  explicit RelativePosePrior(const double* i_from_j)
      : measured_(internal::MeasuredPose::From<Rotation>(i_from_j)) {}

  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* i_from_world_rotation,
                                    const T* i_from_world_translation,
                                    const T* j_from_world_rotation,
                                    const T* j_from_world_translation,
                                    T* residuals) const {
    T i_wxyz[4];
    Rotation::ToQuaternion(i_from_world_rotation, i_wxyz);
    T j_wxyz[4];
    Rotation::ToQuaternion(j_from_world_rotation, j_wxyz);
    for (int i = 1; i < 4; ++i) {
      j_wxyz[i] = -j_wxyz[i];
    }
    T wxyz[4];
    ceres::QuaternionProduct(i_wxyz, j_wxyz, wxyz);
    T translation[3];
    ceres::UnitQuaternionRotatePoint(
        wxyz, j_from_world_translation, translation);
    for (int i = 0; i < 3; ++i) {
      translation[i] = i_from_world_translation[i] - translation[i];
    }
    internal::PoseError(wxyz, translation, measured_, residuals);
    return true;
  }

  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* i_from_world,
                                    const T* j_from_world,
                                    T* residuals) const {
    return (*this)(i_from_world,
                   i_from_world + Rotation::kSize,
                   j_from_world,
                   j_from_world + Rotation::kSize,
                   residuals);
  }

 private:
  internal::MeasuredPose measured_;
};

// A point minus its measured position, in the world: a ground control point.
struct PointPrior {
  static constexpr int kNumResiduals = 3;
  using BlockSizes = std::integer_sequence<int, 3>;

  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* point, T* residuals) const {
    for (int i = 0; i < 3; ++i) {
      residuals[i] = point[i] - position[i];
    }
    return true;
  }

  // As of PositionPrior, for points that are relative to `origin`.
  static PointPrior RelativeTo(const double* origin, const double* position) {
    return {{position[0] - origin[0],
             position[1] - origin[1],
             position[2] - origin[2]}};
  }

  double position[3];
};

// The residuals of any functor of this file times a weight, as 1 over their
// standard deviation: WeightedError<ReprojectionError<...>>{{x, y}, weight}.
template <typename Error>
struct WeightedError : Error {
  template <typename... Args>
  CERES_HOST_DEVICE bool operator()(Args... args) const {
    auto* residuals = internal::Last(args...);
    const bool success = Error::operator()(args...);
    for (int i = 0; i < Error::kNumResiduals; ++i) {
      residuals[i] *= weight;
    }
    return success;
  }

  double weight;
};

// The residuals r of any functor of this file whitened: A r, with A'A the
// inverse of their covariance (SquareRootInformation), row-major.
template <typename Error>
struct WhitenedError : Error {
  template <typename... Args>
  CERES_HOST_DEVICE bool operator()(Args... args) const {
    constexpr int kNum = Error::kNumResiduals;
    auto* residuals = internal::Last(args...);
    using T = std::remove_pointer_t<decltype(residuals)>;
    const bool success = Error::operator()(args...);
    T whitened[kNum];
    for (int i = 0; i < kNum; ++i) {
      whitened[i] = sqrt_information[i * kNum] * residuals[0];
      for (int j = 1; j < kNum; ++j) {
        whitened[i] += sqrt_information[i * kNum + j] * residuals[j];
      }
    }
    for (int i = 0; i < kNum; ++i) {
      residuals[i] = whitened[i];
    }
    return success;
  }

  double sqrt_information[Error::kNumResiduals * Error::kNumResiduals];
};

// A with A'A = C^-1 for a covariance C, both N x N and row-major: the inverse
// of C's lower Cholesky factor. Returns false, changes nothing and says why in
// *error (may be nullptr) if C is not symmetric (to 1e-12 of the standard
// deviations) or not positive definite (a pivot of the factorisation must be
// above its rounding).
template <int N>
bool SquareRootInformation(const double* covariance,
                           double* sqrt_information,
                           std::string* error) {
  using Matrix = Eigen::Matrix<double, N, N, Eigen::RowMajor>;
  const Eigen::Map<const Matrix> c(covariance);
  const Eigen::Array<double, N, 1> variances = c.diagonal().array();
  const auto refuse = [error](const std::string& what) {
    if (error != nullptr) {
      *error = "the covariance " + what +
               "; expected a symmetric positive definite matrix of " +
               std::to_string(N) + " x " + std::to_string(N) + " values";
    }
    return false;
  };
  for (int i = 0; i < N; ++i) {
    for (int j = 0; j <= i; ++j) {
      const std::string place =
          "(" + std::to_string(i) + ", " + std::to_string(j) + ")";
      if (!std::isfinite(c(i, j)) || !std::isfinite(c(j, i))) {
        return refuse("is not finite at " + place);
      }
      if (std::abs(c(i, j) - c(j, i)) >
          1e-12 * std::sqrt(std::abs(c(i, i))) * std::sqrt(std::abs(c(j, j)))) {
        return refuse("is not symmetric at " + place);
      }
    }
  }
  const Eigen::LLT<Matrix> cholesky(c);
  const Matrix factor = cholesky.matrixL();
  if (cholesky.info() != Eigen::Success ||
      (factor.diagonal().array().square() <=
       N * std::numeric_limits<double>::epsilon() * variances)
          .any()) {
    return refuse("is not positive definite");
  }
  Eigen::Map<Matrix> a(sqrt_information);
  a = factor.template triangularView<Eigen::Lower>().solve(Matrix::Identity());
  return true;
}

}  // namespace ceres_ext

#endif  // CERES_EXT_PHOTOGRAMMETRY_H_
