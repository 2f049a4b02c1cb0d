// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The kernels of recomputed_cost_function_test.cc. Tests of the emulated
// device include this file.

#include "ceres_ext/device/cost_function.cuh"
#include "tests/common/functors.h"

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
