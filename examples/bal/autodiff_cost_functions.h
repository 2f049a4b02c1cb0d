// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The reprojection error of bal_problem.h differentiated by ceres::Jet: what
// --cost_function=autodiff and device_autodiff solve with, to compare with the
// analytic one.

#ifndef EXAMPLES_BAL_AUTODIFF_COST_FUNCTIONS_H_
#define EXAMPLES_BAL_AUTODIFF_COST_FUNCTIONS_H_

#include "ceres/autodiff_cost_function.h"
#include "ceres/internal/port.h"
#include "ceres/rotation.h"
#include "ceres_ext/device_cost_function.h"

namespace ceres_ext::bal {

// kCameraSize 9: angle-axis, 10: quaternion w x y z.
template <int kCameraSize>
class AutodiffReprojectionError {
 public:
  AutodiffReprojectionError(double observed_x, double observed_y)
      : observed_x_(observed_x), observed_y_(observed_y) {}

  // CostFunction: ceres::AutoDiffCostFunction or DeviceAutoDiffCostFunction.
  template <template <typename, int, int...> class CostFunction>
  static ceres::CostFunction* Create(double observed_x, double observed_y) {
    using Error = AutodiffReprojectionError;
    return new CostFunction<Error, 2, kCameraSize, 3>(
        new Error(observed_x, observed_y));
  }

  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* camera,
                                    const T* point,
                                    T* residuals) const {
    static_assert(kCameraSize == 9 || kCameraSize == 10);
    // P = R X + t
    T P[3];
    if constexpr (kCameraSize == 10) {
      ceres::QuaternionRotatePoint(camera, point, P);
    } else {
      ceres::AngleAxisRotatePoint(camera, point, P);
    }
    const T* t = camera + kCameraSize - 6;
    for (int k = 0; k < 3; ++k) {
      P[k] += t[k];
    }
    // r = f (1 + k1 |p|^2 + k2 |p|^4) p - observed, p = -P / P.z
    const T x = -P[0] / P[2];
    const T y = -P[1] / P[2];
    const T& f = t[3];
    const T& k1 = t[4];
    const T& k2 = t[5];
    const T p2 = x * x + y * y;
    const T scale = f * (1.0 + p2 * (k1 + k2 * p2));
    residuals[0] = scale * x - observed_x_;
    residuals[1] = scale * y - observed_y_;
    return true;
  }

 private:
  double observed_x_;
  double observed_y_;
};

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_AUTODIFF_COST_FUNCTIONS_H_
