// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/camera_models.h"
#include "ceres_ext/device/cost_function.cuh"
#include "examples/colmap/reprojection_costs.h"

namespace ceres_ext::colmap {

#define CERES_EXT_COSTS_OF(Camera)                                         \
  CERES_EXT_COST_FUNCTION(ReprojectionCosts<Camera>::OneBlock, form::Rows) \
  CERES_EXT_COST_FUNCTION(ReprojectionCosts<Camera>::Split, form::Rows)
CERES_EXT_COSTS_OF(SimplePinholeCamera)
CERES_EXT_COSTS_OF(PinholeCamera)
CERES_EXT_COSTS_OF(SimpleRadialCamera)
CERES_EXT_COSTS_OF(RadialCamera)
CERES_EXT_COSTS_OF(OpenCvCamera)
CERES_EXT_COSTS_OF(OpenCvFisheyeCamera)
CERES_EXT_COSTS_OF(FullOpenCvCamera)
CERES_EXT_COSTS_OF(SimpleRadialFisheyeCamera)
CERES_EXT_COSTS_OF(RadialFisheyeCamera)
#undef CERES_EXT_COSTS_OF

}  // namespace ceres_ext::colmap
