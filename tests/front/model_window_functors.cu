// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The kernels of model_window_functors.h. Tests of the emulated device include
// this file.

#include "ceres_ext/device/cost_function.cuh"
#include "tests/front/model_window_functors.h"

namespace ceres_ext::model_windows {

CERES_EXT_COST_FUNCTION(InertialCost, form::Rows)
CERES_EXT_COST_FUNCTION(InverseDepthCost, form::Rows)
CERES_EXT_COST_FUNCTION(LandmarkCost, form::Rows)
CERES_EXT_COST_FUNCTION(PosePriorCost, form::Rows)
CERES_EXT_COST_FUNCTION(DelayPriorCost, form::Rows)
CERES_EXT_COST_FUNCTION(SmoothCost, form::Rows)
CERES_EXT_COST_FUNCTION(LinearCost, form::Rows)

}  // namespace ceres_ext::model_windows
