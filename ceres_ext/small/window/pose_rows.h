// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Rows of poses, by which the solve of a window evaluates (loop.h):
// reprojection errors of ceres_ext/photogrammetry.h with constant intrinsics,
// or with a pose's own, and priors on poses. All camera models are in one
// function, since one kernel solves all windows of a class.
//
// A pose has the local coordinates (w, t), R' = Exp(w) R. With q of norm n, R =
// (1 - n^2) I + n^2 R(q / n), as in photogrammetry.h; a step of q's manifold
// keeps n. So d(R X) = w x (R X - (1 - n^2) X).
#ifndef CERES_EXT_SMALL_WINDOW_POSE_ROWS_H_
#define CERES_EXT_SMALL_WINDOW_POSE_ROWS_H_

#include <cmath>
#include <cstdint>

#include "ceres/jet.h"
#include "ceres_ext/blocks/quaternion_difference.h"
#include "ceres_ext/camera_models.h"
#include "ceres_ext/photogrammetry.h"
#include "ceres_ext/small/window/window.h"
#include "ceres_ext/small/window/window_arena.h"
#include "ceres_ext/small/window/window_function.h"
#include "cuda_kernels/model/bal_model.h"
#include "cuda_kernels/model/manifold.h"

namespace ceres_ext {

class PoseRows {
 public:
  static constexpr int kCamera = kPoseSize;
  static constexpr int kColumns = kPoseColumns;
  static constexpr int kTurn = 3;
  static constexpr bool kHasPriors = true;

  // As large as a state of BAL (TeamLayout).
  struct State {
    double R[9];
    double t[3];
    double excess;  // 1 - n^2
    double unused[2];
  };
  // A point in the frame of a camera, and the scaled error without the
  // observation.
  struct Projection {
    double arm[3];  // R X - (1 - n^2) X
    double pixel[2];
    double scale;  // of the error; 0 if the camera does not see the point
    double
        by_camera[6];  // scaled derivative by the point in the camera's frame
  };

  // Offsets as in the record of the window, whose arrays are in `inputs`.
  CERES_EXT_WINDOW PoseRows(const WindowRecord& record,
                            const unsigned char* inputs,
                            int camera_size = kPoseSize)
      : has_quaternions_(record.has_quaternions) {
    const WindowInput at(
        camera_size, record.counts, record.has_weights, record.has_losses);
    const unsigned char* const input = inputs + record.input_begin;
    intrinsics_ =
        reinterpret_cast<const WindowIntrinsics*>(input + at.intrinsics);
    intrinsics_of_row_ =
        reinterpret_cast<const int32_t*>(input + at.intrinsics_of_row);
    scales_ = record.counts.num_scales > 0
                  ? reinterpret_cast<const double*>(input + at.scales)
                  : nullptr;
    priors_ = reinterpret_cast<const WindowPrior*>(input + at.priors);
    prior_begin_ = reinterpret_cast<const int32_t*>(input + at.prior_begin);
    prior_sides_ = reinterpret_cast<const int32_t*>(input + at.prior_sides);
    marginals_ = reinterpret_cast<const WindowMarginal*>(input + at.marginals);
    marginal_poses_ =
        reinterpret_cast<const WindowMarginalPose*>(input + at.marginal_poses);
    marginal_values_ =
        reinterpret_cast<const double*>(input + at.marginal_values);
  }
  // For rows that are evaluated one by one.
  explicit PoseRows(bool has_quaternions) : has_quaternions_(has_quaternions) {}

  // map: the derivative of the turn w by its columns, 3 x 3, or null.
  CERES_EXT_WINDOW State Prepare(const double* pose, double* map) const {
    State state = {};
    for (int i = 0; i < 3; ++i) {
      state.t[i] = pose[4 + i];
    }
    if (!has_quaternions_) {
      kernels::PrepareAngleAxis(pose, state.R, map);
      return state;
    }
    const double w = pose[0];
    const double x = pose[1];
    const double y = pose[2];
    const double z = pose[3];
    state.R[0] = 1.0 - 2.0 * (y * y + z * z);
    state.R[1] = 2.0 * (x * y - w * z);
    state.R[2] = 2.0 * (x * z + w * y);
    state.R[3] = 2.0 * (x * y + w * z);
    state.R[4] = 1.0 - 2.0 * (x * x + z * z);
    state.R[5] = 2.0 * (y * z - w * x);
    state.R[6] = 2.0 * (x * z - w * y);
    state.R[7] = 2.0 * (y * z + w * x);
    state.R[8] = 1.0 - 2.0 * (x * x + y * y);
    state.excess = 1.0 - (w * w + x * x + y * y + z * z);
    if (map != nullptr) {
      // Ceres turns by twice the step.
      for (int e = 0; e < 9; ++e) {
        map[e] = e % 4 == 0 ? 2.0 : 0.0;
      }
    }
    return state;
  }

  CERES_EXT_WINDOW void Plus(int mask,
                             const double* x,
                             const double* delta,
                             double* moved) const {
    if (has_quaternions_) {
      kernels::PlusQuaternion<0, 1, 2, 3>(x, delta, moved);
    } else {
      for (int e = 0; e < 3; ++e) {
        moved[e] = (mask >> e & 1) != 0 ? x[e] + delta[e] : x[e];
      }
      moved[3] = x[3];
    }
    for (int e = 0; e < 3; ++e) {
      moved[4 + e] =
          (mask >> (3 + e) & 1) != 0 ? x[4 + e] + delta[3 + e] : x[4 + e];
    }
  }

  CERES_EXT_WINDOW static constexpr bool IsPartOfState(int /*mask*/,
                                                       int /*e*/) {
    return true;
  }

  CERES_EXT_WINDOW Projection Project(int row,
                                      const State& state,
                                      const double* point) const {
    return Project(IntrinsicsOf(row), ScaleOf(row), state, point);
  }
  CERES_EXT_WINDOW static Projection Project(const WindowIntrinsics& intrinsics,
                                             double scale,
                                             const State& state,
                                             const double* point) {
    Projection p = {};
    double in_camera[3];
    Transform(state.R, state.t, point, p.arm, in_camera);
    for (int i = 0; i < 3; ++i) {
      p.arm[i] -= state.excess * point[i];
    }
    using Jet = ceres::Jet<double, 3>;
    const Jet jets[3] = {
        Jet(in_camera[0], 0), Jet(in_camera[1], 1), Jet(in_camera[2], 2)};
    Jet pixel[2];
    if (!ImgFromCam(intrinsics.model, intrinsics.params, jets, pixel)) {
      SetUnseen(in_camera, p.pixel, &p.scale);
      return p;
    }
    p.scale = scale;
    for (int i = 0; i < 2; ++i) {
      p.pixel[i] = pixel[i].a;
      for (int e = 0; e < 3; ++e) {
        p.by_camera[3 * i + e] = scale * pixel[i].v[e];
      }
    }
    return p;
  }

  CERES_EXT_WINDOW void Evaluate(int row,
                                 const State& state,
                                 const double* point,
                                 const double* observed,
                                 double* r) const {
    Evaluate(IntrinsicsOf(row), ScaleOf(row), state, point, observed, r);
  }
  CERES_EXT_WINDOW static void Evaluate(const WindowIntrinsics& intrinsics,
                                        double scale,
                                        const State& state,
                                        const double* point,
                                        const double* observed,
                                        double* r) {
    double turned[3];
    double in_camera[3];
    Transform(state.R, state.t, point, turned, in_camera);
    double pixel[2];
    if (!ImgFromCam(intrinsics.model, intrinsics.params, in_camera, pixel)) {
      SetUnseen(in_camera, pixel, &scale);
    }
    for (int i = 0; i < 2; ++i) {
      r[i] = scale * (pixel[i] - observed[i]);
    }
  }
  CERES_EXT_WINDOW static void Residual(const State& /*state*/,
                                        const Projection& p,
                                        const double* observed,
                                        double* r) {
    for (int i = 0; i < 2; ++i) {
      r[i] = p.scale * (p.pixel[i] - observed[i]);
    }
  }

  // 2 x 9, of which the last three columns are zero.
  CERES_EXT_WINDOW static void CameraJacobian(const State& /*state*/,
                                              const Projection& p,
                                              double* local) {
    for (int i = 0; i < 2; ++i) {
      const double* const a = p.by_camera + 3 * i;
      double* const row = local + TeamLayout::kLocal * i;
      row[0] = p.arm[1] * a[2] - p.arm[2] * a[1];
      row[1] = p.arm[2] * a[0] - p.arm[0] * a[2];
      row[2] = p.arm[0] * a[1] - p.arm[1] * a[0];
      for (int e = 0; e < 3; ++e) {
        row[3 + e] = a[e];
        row[6 + e] = 0.0;
      }
    }
  }
  CERES_EXT_WINDOW static void CameraMultiply(const State& /*state*/,
                                              const Projection& p,
                                              const double* local_step,
                                              double* moved) {
    const double* const w = local_step;
    const double change[3] = {
        w[1] * p.arm[2] - w[2] * p.arm[1] + local_step[3],
        w[2] * p.arm[0] - w[0] * p.arm[2] + local_step[4],
        w[0] * p.arm[1] - w[1] * p.arm[0] + local_step[5]};
    for (int i = 0; i < 2; ++i) {
      const double* const a = p.by_camera + 3 * i;
      moved[i] = a[0] * change[0] + a[1] * change[1] + a[2] * change[2];
    }
  }
  CERES_EXT_WINDOW static void PointJacobian(const State& state,
                                             const Projection& p,
                                             double* by_point) {
    PointJacobian(state.R, p, by_point);
  }

  CERES_EXT_WINDOW const WindowPrior& prior(int k) const { return priors_[k]; }
  // Calls function(2 k + s) for each prior k that has a camera that varies as
  // its camera s, in the order of the priors.
  template <typename Function>
  CERES_EXT_WINDOW void ForEachSide(int camera,
                                    const Function& function) const {
    for (int e = prior_begin_[camera]; e < prior_begin_[camera + 1]; ++e) {
      function(prior_sides_[e]);
    }
  }

  // The residual of a prior at the poses x, 6 values. False if one is not
  // finite.
  CERES_EXT_WINDOW bool EvaluatePrior(const WindowPrior& prior,
                                      const double* const* x,
                                      double* r) const {
    double error[WindowPrior::kSize] = {};
    EvaluatePriorError(has_quaternions_, prior, x[0], x[1], error);
    Multiply(prior.scale, error, r);
    return kernels::AllFinite(r, WindowPrior::kSize);
  }

  // Its derivative by the columns of pose `side`, 6 x 6.
  CERES_EXT_WINDOW bool DifferentiatePrior(const WindowPrior& prior,
                                           const double* const* x,
                                           int side,
                                           double* jacobian) const {
    constexpr int kSize = WindowPrior::kSize;
    using Jet = ceres::Jet<double, kColumns>;
    Jet poses[2][kPoseSize];
    for (int s = 0; s < 2; ++s) {
      for (int e = 0; e < kPoseSize && x[s] != nullptr; ++e) {
        poses[s][e] = Jet(x[s][e]);
      }
    }
    Jet* const moving = poses[side];
    for (int e = 0; e < 3; ++e) {
      moving[4 + e].v[3 + e] = 1.0;
    }
    if (has_quaternions_) {
      double by_turn[12];
      kernels::PlusJacobianQuaternion<0, 1, 2, 3>(x[side], 3, by_turn);
      for (int e = 0; e < 12; ++e) {
        moving[e / 3].v[e % 3] = by_turn[e];
      }
    } else {
      for (int e = 0; e < 3; ++e) {
        moving[e].v[e] = 1.0;
      }
    }
    Jet error[kSize];
    EvaluatePriorError(has_quaternions_, prior, poses[0], poses[1], error);
    for (int c = 0; c < kColumns; ++c) {
      double of_column[kSize];
      double scaled[kSize];
      for (int e = 0; e < kSize; ++e) {
        of_column[e] = error[e].v[c];
      }
      Multiply(prior.scale, of_column, scaled);
      for (int e = 0; e < kSize; ++e) {
        jacobian[kColumns * e + c] = scaled[e];
      }
    }
    return kernels::AllFinite(jacobian, kSize * kColumns);
  }

  CERES_EXT_WINDOW const WindowMarginal& marginal(int k) const {
    return marginals_[k];
  }
  // A pose of a marginal prior, counted over all of them.
  CERES_EXT_WINDOW const WindowMarginalPose& marginal_pose(int e) const {
    return marginal_poses_[e];
  }
  // Row i of [A b].
  CERES_EXT_WINDOW const double* marginal_row(const WindowMarginal& prior,
                                              int i) const {
    return marginal_values_ + prior.value_begin + int64_t{prior.row_size()} * i;
  }

  // The difference of a pose from a reference, 6 values (marginal_prior.h).
  // by_turn: the derivative of its first 3 by the pose's columns, 3 x 3, or
  // null.
  CERES_EXT_WINDOW void Difference(const double* pose,
                                   const double* reference,
                                   double* difference,
                                   double* by_turn) const {
    for (int e = 0; e < kColumns; ++e) {
      // Translations, and rotation vectors.
      const int value = e < 3 ? e : e + 1;
      difference[e] = pose[value] - reference[value];
    }
    if (has_quaternions_) {
      using Jet = ceres::Jet<double, 3>;
      double by_columns[12];
      kernels::PlusJacobianQuaternion<0, 1, 2, 3>(pose, 3, by_columns);
      Jet q[4];
      for (int e = 0; e < 12; ++e) {
        q[e / 3].a = pose[e / 3];
        q[e / 3].v[e % 3] = by_columns[e];
      }
      Jet turn[3];
      internal::QuaternionDifference(q, reference, turn);
      for (int e = 0; e < 3; ++e) {
        difference[e] = turn[e].a;
      }
      for (int e = 0; e < 9 && by_turn != nullptr; ++e) {
        by_turn[e] = turn[e / 3].v[e % 3];
      }
    } else {
      for (int e = 0; e < 9 && by_turn != nullptr; ++e) {
        by_turn[e] = e % 4 == 0 ? 1.0 : 0.0;
      }
    }
  }

 protected:
  static constexpr int kNumParams =
      sizeof(WindowIntrinsics::params) / sizeof(double);

  CERES_EXT_WINDOW double ScaleOf(int row) const {
    return scales_ != nullptr ? scales_[row] : 1.0;
  }
  CERES_EXT_WINDOW const WindowIntrinsics& IntrinsicsOf(int row) const {
    return intrinsics_[intrinsics_of_row_[row]];
  }

  CERES_EXT_WINDOW static void Transform(const double* R,
                                         const double* t,
                                         const double* point,
                                         double* turned,
                                         double* in_camera) {
    for (int i = 0; i < 3; ++i) {
      const double* const row = R + 3 * i;
      turned[i] = row[0] * point[0] + row[1] * point[1] + row[2] * point[2];
      in_camera[i] = turned[i] + t[i];
    }
  }
  CERES_EXT_WINDOW static void PointJacobian(const double* R,
                                             const Projection& p,
                                             double* by_point) {
    for (int i = 0; i < 2; ++i) {
      const double* const a = p.by_camera + 3 * i;
      for (int e = 0; e < 3; ++e) {
        by_point[3 * i + e] = a[0] * R[e] + a[1] * R[3 + e] + a[2] * R[6 + e];
      }
    }
  }

  // A camera's error is 0 at a point that it does not see, and fails at NaN.
  CERES_EXT_WINDOW static void SetUnseen(const double* in_camera,
                                         double* pixel,
                                         double* scale) {
    using std::isnan;
    const bool fails = isnan(in_camera[2]);
    pixel[0] = pixel[1] = fails ? in_camera[2] : 0.0;
    *scale = fails ? 1.0 : 0.0;
  }

  template <typename Camera, typename P, typename T>
  CERES_EXT_WINDOW static bool ImgFromCamOf(const P* params,
                                            const T* point,
                                            T* pixel) {
    static_assert(Camera::kNumParams <= kNumParams, "room for the parameters");
    T of_type[Camera::kNumParams];
    for (int i = 0; i < Camera::kNumParams; ++i) {
      of_type[i] = T(params[i]);
    }
    return Camera::ImgFromCam(of_type, point, pixel);
  }

  // The only function with camera models.
  template <typename P, typename T>
  CERES_EXT_WINDOW_CALL static bool ImgFromCam(int32_t model,
                                               const P* p,
                                               const T* point,
                                               T* pixel) {
    switch (model) {
      case SimplePinholeCamera::kModelId:
        return ImgFromCamOf<SimplePinholeCamera>(p, point, pixel);
      case PinholeCamera::kModelId:
        return ImgFromCamOf<PinholeCamera>(p, point, pixel);
      case SimpleRadialCamera::kModelId:
        return ImgFromCamOf<SimpleRadialCamera>(p, point, pixel);
      case RadialCamera::kModelId:
        return ImgFromCamOf<RadialCamera>(p, point, pixel);
      case OpenCvCamera::kModelId:
        return ImgFromCamOf<OpenCvCamera>(p, point, pixel);
      case OpenCvFisheyeCamera::kModelId:
        return ImgFromCamOf<OpenCvFisheyeCamera>(p, point, pixel);
      case FullOpenCvCamera::kModelId:
        return ImgFromCamOf<FullOpenCvCamera>(p, point, pixel);
      case FovCamera::kModelId:
        return ImgFromCamOf<FovCamera>(p, point, pixel);
      case SimpleRadialFisheyeCamera::kModelId:
        return ImgFromCamOf<SimpleRadialFisheyeCamera>(p, point, pixel);
      case RadialFisheyeCamera::kModelId:
        return ImgFromCamOf<RadialFisheyeCamera>(p, point, pixel);
      case ThinPrismFisheyeCamera::kModelId:
        return ImgFromCamOf<ThinPrismFisheyeCamera>(p, point, pixel);
      case RadTanThinPrismFisheyeCamera::kModelId:
        return ImgFromCamOf<RadTanThinPrismFisheyeCamera>(p, point, pixel);
      case SimpleDivisionCamera::kModelId:
        return ImgFromCamOf<SimpleDivisionCamera>(p, point, pixel);
      case DivisionCamera::kModelId:
        return ImgFromCamOf<DivisionCamera>(p, point, pixel);
      case SimpleFisheyeCamera::kModelId:
        return ImgFromCamOf<SimpleFisheyeCamera>(p, point, pixel);
      case FisheyeCamera::kModelId:
        return ImgFromCamOf<FisheyeCamera>(p, point, pixel);
      default:  // The packer refuses others.
        return ImgFromCamOf<EucmCamera>(p, point, pixel);
    }
  }

 private:
  // to = A from
  CERES_EXT_WINDOW static void Multiply(const double* a,
                                        const double* from,
                                        double* to) {
    for (int i = 0; i < WindowPrior::kSize; ++i) {
      double sum = 0.0;
      for (int e = 0; e < WindowPrior::kSize; ++e) {
        sum += a[WindowPrior::kSize * i + e] * from[e];
      }
      to[i] = sum;
    }
  }

  template <typename T>
  CERES_EXT_WINDOW static void ReadPose(bool has_quaternions,
                                        const T* pose,
                                        T* quaternion_and_translation) {
    if (has_quaternions) {
      Quaternion::ToQuaternion(pose, quaternion_and_translation);
    } else {
      AngleAxis::ToQuaternion(pose, quaternion_and_translation);
    }
    for (int e = 4; e < kPoseSize; ++e) {
      quaternion_and_translation[e] = pose[e];
    }
  }

  // The error before A. Functors hold measurements alone, of the same bytes
  // whatever the rotation.
  template <typename T>
  CERES_EXT_WINDOW_CALL static void EvaluatePriorError(bool has_quaternions,
                                                       const WindowPrior& prior,
                                                       const T* i,
                                                       const T* j,
                                                       T* error) {
    using Position = PositionPrior<Quaternion>;
    using Pose = PosePrior<Quaternion>;
    using Relative = RelativePosePrior<Quaternion>;
    static_assert(sizeof(Position) == 3 * sizeof(double) &&
                      sizeof(Pose) == 7 * sizeof(double) &&
                      sizeof(Relative) == 7 * sizeof(double),
                  "functors are their measurements");
    const auto* const measured = static_cast<const void*>(prior.measured);
    T a[kPoseSize];
    ReadPose(has_quaternions, i, a);
    if (prior.kind == PriorKind::kPosition) {
      (*static_cast<const Position*>(measured))(a, error);
    } else if (prior.kind == PriorKind::kPose) {
      (*static_cast<const Pose*>(measured))(a, error);
    } else {
      T b[kPoseSize];
      ReadPose(has_quaternions, j, b);
      (*static_cast<const Relative*>(measured))(a, b, error);
    }
  }

  bool has_quaternions_;
  const WindowIntrinsics* intrinsics_ = nullptr;
  const int32_t* intrinsics_of_row_ = nullptr;
  const double* scales_ = nullptr;
  const WindowPrior* priors_ = nullptr;
  const int32_t* prior_begin_ = nullptr;
  const int32_t* prior_sides_ = nullptr;
  const WindowMarginal* marginals_ = nullptr;
  const WindowMarginalPose* marginal_poses_ = nullptr;
  const double* marginal_values_ = nullptr;
};

// Rows of poses with intrinsics of their own, which vary: a camera has the
// columns of its pose, then those of its intrinsics. Quaternions have the norm
// 1, so that PoseRows::State::excess is 0.
class OwnIntrinsicsRows : public PoseRows {
 public:
  static constexpr int kCamera = kOwnCameraSize;
  static constexpr int kColumns = kOwnCameraColumns;

  struct State {
    double R[9];
    double t[3];
    double own[kMaxOwnIntrinsics];
  };
  struct Projection : PoseRows::Projection {
    double by_own[2 * kMaxOwnIntrinsics];  // scaled derivative
  };

  CERES_EXT_WINDOW OwnIntrinsicsRows(const WindowRecord& record,
                                     const unsigned char* inputs)
      : PoseRows(record, inputs, kOwnCameraSize) {}

  CERES_EXT_WINDOW State Prepare(const double* camera, double* map) const {
    const PoseRows::State pose = PoseRows::Prepare(camera, map);
    State state = {};
    for (int e = 0; e < 9; ++e) {
      state.R[e] = pose.R[e];
    }
    for (int e = 0; e < 3; ++e) {
      state.t[e] = pose.t[e];
      state.own[e] = camera[kPoseSize + e];
    }
    return state;
  }

  CERES_EXT_WINDOW void Plus(int mask,
                             const double* x,
                             const double* delta,
                             double* moved) const {
    PoseRows::Plus(mask, x, delta, moved);
    for (int k = 0; k < kMaxOwnIntrinsics; ++k) {
      const int c = kPoseColumns + k;
      const int e = kPoseSize + k;
      moved[e] = (mask >> c & 1) != 0 ? x[e] + delta[c] : x[e];
    }
    moved[kCamera - 1] = x[kCamera - 1];
  }

  // A constant pose is not.
  CERES_EXT_WINDOW static constexpr bool IsPartOfState(int mask, int e) {
    return e >= kPoseSize || (mask & ((1 << kPoseColumns) - 1)) != 0;
  }

  CERES_EXT_WINDOW Projection Project(int row,
                                      const State& state,
                                      const double* point) const {
    const WindowIntrinsics& intrinsics = IntrinsicsOf(row);
    Projection p = {};
    double in_camera[3];
    Transform(state.R, state.t, point, p.arm, in_camera);
    using Jet = ceres::Jet<double, 3 + kMaxOwnIntrinsics>;
    Jet params[kNumParams];
    for (int i = 0; i < kNumParams; ++i) {
      params[i] = Jet(intrinsics.params[i]);
    }
    for (int k = 0; k < kMaxOwnIntrinsics && intrinsics.own[k] >= 0; ++k) {
      params[intrinsics.own[k]] = Jet(state.own[k], 3 + k);
    }
    const Jet jets[3] = {
        Jet(in_camera[0], 0), Jet(in_camera[1], 1), Jet(in_camera[2], 2)};
    Jet pixel[2];
    if (!ImgFromCam(intrinsics.model, params, jets, pixel)) {
      SetUnseen(in_camera, p.pixel, &p.scale);
      return p;
    }
    p.scale = ScaleOf(row);
    for (int i = 0; i < 2; ++i) {
      p.pixel[i] = pixel[i].a;
      for (int e = 0; e < 3; ++e) {
        p.by_camera[3 * i + e] = p.scale * pixel[i].v[e];
        p.by_own[3 * i + e] = p.scale * pixel[i].v[3 + e];
      }
    }
    return p;
  }

  CERES_EXT_WINDOW void Evaluate(int row,
                                 const State& state,
                                 const double* point,
                                 const double* observed,
                                 double* r) const {
    const WindowIntrinsics& intrinsics = IntrinsicsOf(row);
    double turned[3];
    double in_camera[3];
    Transform(state.R, state.t, point, turned, in_camera);
    double params[kNumParams];
    for (int i = 0; i < kNumParams; ++i) {
      params[i] = intrinsics.params[i];
    }
    for (int k = 0; k < kMaxOwnIntrinsics && intrinsics.own[k] >= 0; ++k) {
      params[intrinsics.own[k]] = state.own[k];
    }
    double scale = ScaleOf(row);
    double pixel[2];
    if (!ImgFromCam(intrinsics.model, params, in_camera, pixel)) {
      SetUnseen(in_camera, pixel, &scale);
    }
    for (int i = 0; i < 2; ++i) {
      r[i] = scale * (pixel[i] - observed[i]);
    }
  }
  CERES_EXT_WINDOW static void Residual(const State& /*state*/,
                                        const Projection& p,
                                        const double* observed,
                                        double* r) {
    PoseRows::Residual({}, p, observed, r);
  }

  CERES_EXT_WINDOW static void CameraJacobian(const State& /*state*/,
                                              const Projection& p,
                                              double* local) {
    PoseRows::CameraJacobian({}, p, local);
    for (int i = 0; i < 2; ++i) {
      for (int k = 0; k < kMaxOwnIntrinsics; ++k) {
        local[TeamLayout::kLocal * i + kPoseColumns + k] =
            p.by_own[kMaxOwnIntrinsics * i + k];
      }
    }
  }
  CERES_EXT_WINDOW static void CameraMultiply(const State& /*state*/,
                                              const Projection& p,
                                              const double* local_step,
                                              double* moved) {
    PoseRows::CameraMultiply({}, p, local_step, moved);
    for (int i = 0; i < 2; ++i) {
      for (int k = 0; k < kMaxOwnIntrinsics; ++k) {
        moved[i] +=
            p.by_own[kMaxOwnIntrinsics * i + k] * local_step[kPoseColumns + k];
      }
    }
  }
  CERES_EXT_WINDOW static void PointJacobian(const State& state,
                                             const Projection& p,
                                             double* by_point) {
    PoseRows::PointJacobian(state.R, p, by_point);
  }
};

static_assert(sizeof(PoseRows::State) == TeamLayout::kState * sizeof(double),
              "states of all rows have one size");

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_WINDOW_POSE_ROWS_H_
