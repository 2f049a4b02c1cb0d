// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "benchmarks/shapes_functors.h"
#include "ceres_ext/device_cost_function.cuh"

namespace ceres_ext {

template <typename Functor>
using ReprojectionCost =
    DeviceAutoDiffCostFunction<Functor, 2, 6, Functor::kCameraSize, 3>;
template <typename Camera>
using ModelCost = ReprojectionCost<ModelReprojection<Camera>>;
using PriorCost = DeviceAutoDiffCostFunction<PositionPrior, 3, 6>;

CERES_EXT_DEVICE_COST_FUNCTION(ReprojectionCost<Reprojection<1>>)
CERES_EXT_DEVICE_COST_FUNCTION(ReprojectionCost<Reprojection<5>>)
CERES_EXT_DEVICE_COST_FUNCTION(ModelCost<SimplePinholeCamera>)
CERES_EXT_DEVICE_COST_FUNCTION(ModelCost<PinholeCamera>)
CERES_EXT_DEVICE_COST_FUNCTION(ModelCost<SimpleRadialCamera>)
CERES_EXT_DEVICE_COST_FUNCTION(ModelCost<RadialCamera>)
CERES_EXT_DEVICE_COST_FUNCTION(ModelCost<OpenCvCamera>)
CERES_EXT_DEVICE_COST_FUNCTION(ModelCost<OpenCvFisheyeCamera>)
CERES_EXT_DEVICE_COST_FUNCTION(ModelCost<FullOpenCvCamera>)
CERES_EXT_DEVICE_COST_FUNCTION(ModelCost<SimpleRadialFisheyeCamera>)
CERES_EXT_DEVICE_COST_FUNCTION(ModelCost<RadialFisheyeCamera>)
CERES_EXT_DEVICE_COST_FUNCTION(PriorCost)

}  // namespace ceres_ext
