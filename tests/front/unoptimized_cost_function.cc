// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

// This file is compiled without optimisation.

#include "tests/front/unoptimized_cost_function.h"

#include "ceres/cost_function.h"
#include "ceres_ext/device_cost_function.h"

namespace ceres_ext {
namespace {

struct Unoptimized {
  template <typename T>
  CERES_HOST_DEVICE bool operator()(const T* x, T* residual) const {
    residual[0] = x[0] - 1.0;
    return true;
  }
};

}  // namespace

ceres::CostFunction* CreateUnoptimizedCostFunction() {
  return new DeviceAutoDiffCostFunction<Unoptimized, 1, 1>(Unoptimized());
}

}  // namespace ceres_ext
