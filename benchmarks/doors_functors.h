// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The functors of doors_benchmark.cc: the model of BAL as a user writes it, in
// one camera block and in a pose and intrinsics that cameras share, and a prior
// on a pose.
#ifndef CERES_EXT_BENCHMARKS_DOORS_FUNCTORS_H_
#define CERES_EXT_BENCHMARKS_DOORS_FUNCTORS_H_

#include "ceres/internal/port.h"
#include "ceres/rotation.h"
#include "ceres_ext/device_cost_function.h"

namespace ceres_ext::bal {

struct SharedSnavelyError {
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* pose,
                                    const T* intrinsics,
                                    const T* point,
                                    T* residuals) const {
    T p[3];
    ceres::AngleAxisRotatePoint(pose, point, p);
    const T u = -(p[0] + pose[3]) / (p[2] + pose[5]);
    const T v = -(p[1] + pose[4]) / (p[2] + pose[5]);
    const T r2 = u * u + v * v;
    const T scale =
        intrinsics[0] * (1.0 + r2 * (intrinsics[1] + intrinsics[2] * r2));
    residuals[0] = scale * u - x;
    residuals[1] = scale * v - y;
    return true;
  }
  double x;
  double y;
};

struct SnavelyError {
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* camera,
                                    const T* point,
                                    T* residuals) const {
    return SharedSnavelyError{x, y}(camera, camera + 6, point, residuals);
  }
  double x;
  double y;
};

struct TranslationError {
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* pose, T* residuals) const {
    for (int i = 0; i < 3; ++i) {
      residuals[i] = 1e-3 * (pose[3 + i] - translation[i]);
    }
    return true;
  }
  double translation[3];
};

using SnavelyCost = DeviceAutoDiffCostFunction<SnavelyError, 2, 9, 3>;
using SharedSnavelyCost =
    DeviceAutoDiffCostFunction<SharedSnavelyError, 2, 6, 3, 3>;
using TranslationCost = DeviceAutoDiffCostFunction<TranslationError, 3, 6>;

}  // namespace ceres_ext::bal

#endif  // CERES_EXT_BENCHMARKS_DOORS_FUNCTORS_H_
