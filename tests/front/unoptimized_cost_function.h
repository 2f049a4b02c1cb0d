// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#ifndef CERES_EXT_TESTS_FRONT_UNOPTIMIZED_COST_FUNCTION_H_
#define CERES_EXT_TESTS_FRONT_UNOPTIMIZED_COST_FUNCTION_H_

#include "ceres/cost_function.h"

namespace ceres_ext {

// The residual x - 1, of a DeviceAutoDiffCostFunction that is compiled without
// optimisation and has no device form.
ceres::CostFunction* CreateUnoptimizedCostFunction();

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_FRONT_UNOPTIMIZED_COST_FUNCTION_H_
