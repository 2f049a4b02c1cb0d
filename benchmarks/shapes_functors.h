// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The functors of shapes_solve.cc.
#ifndef CERES_EXT_BENCHMARKS_SHAPES_FUNCTORS_H_
#define CERES_EXT_BENCHMARKS_SHAPES_FUNCTORS_H_

#include "ceres/internal/port.h"
#include "ceres/rotation.h"
#include "ceres_ext/camera_models.h"
#include "ceres_ext/device_cost_function.h"

namespace ceres_ext {

template <int kCoefficients>
struct Reprojection {
  static constexpr int kCameraSize = 3 + kCoefficients;
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* pose,
                                    const T* camera,
                                    const T* point,
                                    T* residuals) const {
    T p[3];
    ceres::AngleAxisRotatePoint(pose, point, p);
    const T x = (p[0] + pose[3]) / (p[2] + pose[5]);
    const T y = (p[1] + pose[4]) / (p[2] + pose[5]);
    const T r2 = x * x + y * y;
    T scale(0.0);
    for (int i = kCoefficients; i > 0; --i) {
      scale = (scale + camera[2 + i]) * r2;
    }
    scale = camera[0] * (1.0 + scale);
    residuals[0] = scale * x + camera[1] - u;
    residuals[1] = scale * y + camera[2] - v;
    return true;
  }
  double u;
  double v;
};

struct PositionPrior {
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* pose, T* residuals) const {
    for (int i = 0; i < 3; ++i) {
      residuals[i] = 10.0 * (pose[3 + i] - mean[i]);
    }
    return true;
  }
  double mean[3];
};

// True for the nine camera models that shapes_device_forms.cu has.
template <typename Camera>
inline constexpr bool kHasDeviceForm =
    Camera::kModelId <= RadialFisheyeCamera::kModelId&& Camera::kModelId !=
    FovCamera::kModelId;

// The same with any camera model.
template <typename Camera>
struct ModelReprojection {
  static constexpr int kCameraSize = Camera::kNumParams;
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* pose,
                                    const T* camera,
                                    const T* point,
                                    T* residuals) const {
    T p[3];
    ceres::AngleAxisRotatePoint(pose, point, p);
    for (int i = 0; i < 3; ++i) {
      p[i] += pose[3 + i];
    }
    if (!Camera::ImgFromCam(camera, p, residuals)) {
      return false;
    }
    residuals[0] -= u;
    residuals[1] -= v;
    return true;
  }
  double u;
  double v;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_BENCHMARKS_SHAPES_FUNCTORS_H_
