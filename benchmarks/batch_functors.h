// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The model of batch_benchmark's curve fits.

#ifndef CERES_EXT_BENCHMARKS_BATCH_FUNCTORS_H_
#define CERES_EXT_BENCHMARKS_BATCH_FUNCTORS_H_

#include <cmath>

#include "ceres/internal/port.h"
#include "ceres/jet.h"
#include "ceres_ext/device_cost_function.h"

namespace ceres_ext {

// A Gaussian over a constant background: height, centre, width, background.
struct PeakError {
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* p, T* residuals) const {
    using std::exp;
    const T u = (x - p[1]) / p[2];
    residuals[0] = p[0] * exp(-0.5 * u * u) + p[3] - y;
    return true;
  }
  double x;
  double y;
};
using PeakCost = DeviceAutoDiffCostFunction<PeakError, 1, 4>;

}  // namespace ceres_ext

#endif  // CERES_EXT_BENCHMARKS_BATCH_FUNCTORS_H_
