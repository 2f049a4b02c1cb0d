// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The kernels of tests/front/recomputed_cost_function_functors.h.

#ifndef CERES_EXT_TESTS_GLUE_RECOMPUTED_COST_FUNCTION_FUNCTORS_CUH_
#define CERES_EXT_TESTS_GLUE_RECOMPUTED_COST_FUNCTION_FUNCTORS_CUH_

#include "ceres_ext/device/cost_function.cuh"
#include "tests/front/recomputed_cost_function_functors.h"

namespace ceres_ext {

CERES_EXT_COST_FUNCTION(DeviceAutoDiffCostFunction<CameraPoint, 2, 9, 3>,
                        form::Recomputed)
CERES_EXT_COST_FUNCTION(DeviceAutoDiffCostFunction<PointPose, 2, 3, 7>,
                        form::Recomputed)
CERES_EXT_COST_FUNCTION(DeviceAutoDiffCostFunction<PoseCameraPoint, 2, 6, 4, 3>,
                        form::Recomputed)
CERES_EXT_COST_FUNCTION(DeviceAutoDiffCostFunction<Steep, 2, 9, 3>,
                        form::Recomputed)
CERES_EXT_COST_FUNCTION(DeviceAutoDiffCostFunction<OnlyStored, 2, 9, 3>,
                        form::Rows)
// All forms that these can have.
CERES_EXT_COST_FUNCTION(DeviceAutoDiffCostFunction<WidePoint, 2, 14, 3>)
CERES_EXT_COST_FUNCTION(DeviceCostFunction<Written>)
CERES_EXT_COST_FUNCTION(DeviceAutoDiffCostFunction<NotRecomputed, 1, 2, 2>)

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_GLUE_RECOMPUTED_COST_FUNCTION_FUNCTORS_CUH_
