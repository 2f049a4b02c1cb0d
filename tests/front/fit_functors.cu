// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The kernels of fit_functors.h. Tests of the emulated
// device include this file.

#include "ceres_ext/device/cost_function.cuh"
#include "tests/front/fit_functors.h"

namespace ceres_ext {

CERES_EXT_COST_FUNCTION(PeakCost, form::Fits<>)
CERES_EXT_COST_FUNCTION(DeviceAutoDiffCostFunction<OffsetLineError, 2, 1, 2, 1>,
                        form::Fits<0, 1>)
CERES_EXT_COST_FUNCTION(PoseCost, form::Fits<1>)
CERES_EXT_COST_FUNCTION(BearingCost, form::Fits<0>)

}  // namespace ceres_ext
