// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The models of tests/front/solve_fits_test.cc, beside PeakCost of
// batch_functors.h.

#ifndef CERES_EXT_TESTS_FRONT_FIT_FUNCTORS_H_
#define CERES_EXT_TESTS_FRONT_FIT_FUNCTORS_H_

#include <utility>

#include "benchmarks/batch_functors.h"
#include "ceres/internal/port.h"
#include "ceres_ext/camera_models.h"
#include "ceres_ext/device_cost_function.h"
#include "ceres_ext/photogrammetry.h"

namespace ceres_ext {

// A line through a point of its own origin: two blocks that vary, and one that
// is constant. Fails at a slope above 1e3.
struct OffsetLineError {
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* slope,
                                    const T* origin,
                                    const T* scale,
                                    T* residuals) const {
    if (!(slope[0] < 1e3)) {
      return false;
    }
    residuals[0] = (origin[0] + slope[0] * (x - origin[1]) - y) * scale[0];
    residuals[1] = 0.1 * (slope[0] * slope[0] + origin[1]) - 0.2;
    return true;
  }
  double x;
  double y;
};
using OffsetLineCost = DeviceAutoDiffCostFunction<OffsetLineError, 2, 1, 2, 1>;

// Poses of points that are known, with quaternions and constant intrinsics.
using PoseError = ReprojectionError<OpenCvCamera, EigenQuaternion>;
using PoseCost = CostFunctionFor<DeviceAutoDiffCostFunction, PoseError>;

// |x - target|^2 on a sphere, with written derivatives.
struct BearingError {
  static constexpr int kNumResiduals = 3;
  using BlockSizes = std::integer_sequence<int, 3>;
  struct Constants {
    double target[3];
  };
  CERES_HOST_DEVICE static bool Evaluate(const Constants& constants,
                                         const double* const* parameters,
                                         double* residuals,
                                         double* const* jacobians) {
    for (int i = 0; i < 3; ++i) {
      residuals[i] = parameters[0][i] - constants.target[i];
      for (int j = 0; j < 3 && jacobians != nullptr; ++j) {
        jacobians[0][3 * i + j] = i == j ? 1.0 : 0.0;
      }
    }
    return true;
  }
};
using BearingCost = DeviceCostFunction<BearingError>;

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_FRONT_FIT_FUNCTORS_H_
