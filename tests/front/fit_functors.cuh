// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The kernels of tests/front/fit_functors.h.

#ifndef CERES_EXT_TESTS_FRONT_FIT_FUNCTORS_CUH_
#define CERES_EXT_TESTS_FRONT_FIT_FUNCTORS_CUH_

#include "ceres_ext/device/cost_function.cuh"
#include "tests/front/fit_functors.h"

namespace ceres_ext {

CERES_EXT_COST_FUNCTION(PeakCost, form::Fits<>)
CERES_EXT_COST_FUNCTION(DeviceAutoDiffCostFunction<OffsetLineError, 2, 1, 2, 1>,
                        form::Fits<0, 1>)
CERES_EXT_COST_FUNCTION(PoseCost, form::Fits<1>)
CERES_EXT_COST_FUNCTION(DirectionCost, form::Fits<0>)

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_FRONT_FIT_FUNCTORS_CUH_
