// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Camera models that are usual in rigs. Residuals of other models are evaluated
// on the host.

#include "ceres_ext/camera_models.h"
#include "ceres_ext/device/cost_function.cuh"
#include "examples/colmap/reprojection_costs.h"

namespace ceres_ext::colmap {

#define CERES_EXT_COSTS_OF(Camera)                                        \
  CERES_EXT_COST_FUNCTION(RigReprojectionCosts<Camera>::Cost, form::Rows) \
  CERES_EXT_COST_FUNCTION(RigReprojectionCosts<Camera>::ConstantCost,     \
                          form::Rows)
CERES_EXT_COSTS_OF(PinholeCamera)
CERES_EXT_COSTS_OF(SimpleRadialCamera)
CERES_EXT_COSTS_OF(RadialCamera)
CERES_EXT_COSTS_OF(OpenCvCamera)
CERES_EXT_COSTS_OF(OpenCvFisheyeCamera)
#undef CERES_EXT_COSTS_OF

}  // namespace ceres_ext::colmap
