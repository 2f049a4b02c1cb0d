// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Bounds and soft priors of the parameters of cameras (camera_models.h), with
// the limits and weights of COLMAP:
//
//   SetIntrinsicsBounds<OpenCvCamera>(IntrinsicsLimits(), width, height,
//                                     lower, upper);
//   parameters.lower_bound = lower;  // of an ArrayProblem
//
//   using Prior = IntrinsicsPrior<OpenCvCamera::kNumParams>;
//   using Cost = CostFunctionFor<ceres::AutoDiffCostFunction, Prior>;
//   problem.AddResidualBlock(
//       new Cost(new Prior(MakeIntrinsicsPrior<OpenCvCamera>(params,
//       weights))), nullptr, params);
//
// Thread safety: all functions depend on their arguments alone.

#ifndef CERES_EXT_CAMERA_INTRINSICS_H_
#define CERES_EXT_CAMERA_INTRINSICS_H_

#include <algorithm>
#include <limits>
#include <type_traits>
#include <utility>

#include "ceres/internal/port.h"
#include "ceres_ext/camera_models.h"

namespace ceres_ext {

// Limits of the parameters of a camera. The defaults are those of COLMAP's
// mapper, whose options have these names.
struct IntrinsicsLimits {
  // Limits of a focal length, in units of the longer side of the image.
  double min_focal_length_ratio = 0.1;
  double max_focal_length_ratio = 10.0;
  // The most absolute value of a coefficient of the distortion.
  double max_extra_param = 1.0;
};

// Sets Camera::kNumParams bounds each: focal lengths and coefficients by the
// limits, principal points within the image. width, height: of the image, in
// pixels. EUCM's alpha is between 0 and 1, and beta, which is near 1, is not
// negative and has no upper bound. EQUIRECTANGULAR has no bounds.
template <typename Camera>
void SetIntrinsicsBounds(const IntrinsicsLimits& limits,
                         double width,
                         double height,
                         double* lower,
                         double* upper) {
  constexpr int kNumFocals = Camera::kNumFocalLengths;
  if constexpr (kNumFocals == 0) {
    constexpr double kNone = std::numeric_limits<double>::infinity();
    std::fill_n(lower, int{Camera::kNumParams}, -kNone);
    std::fill_n(upper, int{Camera::kNumParams}, kNone);
    return;
  }
  const double side = std::max(width, height);
  std::fill_n(lower, kNumFocals, limits.min_focal_length_ratio * side);
  std::fill_n(upper, kNumFocals, limits.max_focal_length_ratio * side);
  lower[kNumFocals] = 0.0;
  lower[kNumFocals + 1] = 0.0;
  upper[kNumFocals] = width;
  upper[kNumFocals + 1] = height;
  std::fill_n(lower + kNumFocals + 2,
              int{Camera::kNumExtraParams},
              -limits.max_extra_param);
  std::fill_n(upper + kNumFocals + 2,
              int{Camera::kNumExtraParams},
              limits.max_extra_param);
  if constexpr (std::is_same_v<Camera, EucmCamera>) {
    lower[4] = 0.0;
    lower[5] = 0.0;
    upper[4] = std::min(1.0, limits.max_extra_param);
    upper[5] = std::numeric_limits<double>::infinity();
  }
}

// weights .* (params - measured), a prior on the parameters of a camera: a
// weight is 1 over a standard deviation, and 0 leaves its parameter free.
template <int kNumParams>
struct IntrinsicsPrior {
  static constexpr int kNumResiduals = kNumParams;
  using BlockSizes = std::integer_sequence<int, kNumParams>;

  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* params, T* residuals) const {
    for (int i = 0; i < kNumParams; ++i) {
      residuals[i] = weights[i] * (params[i] - measured[i]);
    }
    return true;
  }

  double measured[kNumParams];
  double weights[kNumParams];
};

// Weights of the parameters of a camera, by their kind.
struct IntrinsicsPriorWeights {
  double focal_length = 0.0;     // 1 / pixel
  double principal_point = 0.0;  // 1 / pixel
  double extra_params = 0.0;

  bool HasAny() const {
    return focal_length > 0.0 || principal_point > 0.0 || extra_params > 0.0;
  }
};

// measured: Camera::kNumParams values. EQUIRECTANGULAR's have weight 0.
template <typename Camera>
IntrinsicsPrior<Camera::kNumParams> MakeIntrinsicsPrior(
    const double* measured, const IntrinsicsPriorWeights& weights) {
  constexpr int kNumFocals = Camera::kNumFocalLengths;
  IntrinsicsPrior<Camera::kNumParams> prior{};
  std::copy_n(measured, int{Camera::kNumParams}, prior.measured);
  std::fill_n(prior.weights, int{Camera::kNumParams}, weights.extra_params);
  std::fill_n(prior.weights, kNumFocals, weights.focal_length);
  std::fill_n(prior.weights + kNumFocals,
              2,
              kNumFocals == 0 ? 0.0 : weights.principal_point);
  return prior;
}

}  // namespace ceres_ext

#endif  // CERES_EXT_CAMERA_INTRINSICS_H_
