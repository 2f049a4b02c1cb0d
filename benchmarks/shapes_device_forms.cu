// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "benchmarks/shapes_functors.h"
#include "ceres_ext/device/cost_function.cuh"

namespace ceres_ext {

template <typename Functor>
using ReprojectionCost =
    DeviceAutoDiffCostFunction<Functor, 2, 6, Functor::kCameraSize, 3>;
template <typename Camera>
using ModelCost = ReprojectionCost<ModelReprojection<Camera>>;
using PriorCost = DeviceAutoDiffCostFunction<PositionPrior, 3, 6>;

CERES_EXT_COST_FUNCTION(ReprojectionCost<Reprojection<1>>,
                        ceres_ext::form::Rows)
CERES_EXT_COST_FUNCTION(ReprojectionCost<Reprojection<5>>,
                        ceres_ext::form::Rows)
CERES_EXT_COST_FUNCTION(ModelCost<SimplePinholeCamera>, ceres_ext::form::Rows)
CERES_EXT_COST_FUNCTION(ModelCost<PinholeCamera>, ceres_ext::form::Rows)
CERES_EXT_COST_FUNCTION(ModelCost<SimpleRadialCamera>, ceres_ext::form::Rows)
CERES_EXT_COST_FUNCTION(ModelCost<RadialCamera>, ceres_ext::form::Rows)
CERES_EXT_COST_FUNCTION(ModelCost<OpenCvCamera>, ceres_ext::form::Rows)
CERES_EXT_COST_FUNCTION(ModelCost<OpenCvFisheyeCamera>, ceres_ext::form::Rows)
CERES_EXT_COST_FUNCTION(ModelCost<FullOpenCvCamera>, ceres_ext::form::Rows)
CERES_EXT_COST_FUNCTION(ModelCost<SimpleRadialFisheyeCamera>,
                        ceres_ext::form::Rows)
CERES_EXT_COST_FUNCTION(ModelCost<RadialFisheyeCamera>, ceres_ext::form::Rows)
CERES_EXT_COST_FUNCTION(PriorCost, ceres_ext::form::Rows)

}  // namespace ceres_ext
