// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The rarer camera models have forms for poses in one block alone, because nvcc
// needs several seconds for a form. Residuals without one are evaluated on the
// host.

#include "ceres_ext/camera_models.h"
#include "ceres_ext/device/cost_function.cuh"
#include "examples/colmap/reprojection_costs.h"

namespace ceres_ext::colmap {

#define CERES_EXT_COSTS_OF(Camera) \
  CERES_EXT_COST_FUNCTION(ReprojectionCosts<Camera>::OneBlock, form::Rows)
CERES_EXT_COSTS_OF(FovCamera)
CERES_EXT_COSTS_OF(ThinPrismFisheyeCamera)
CERES_EXT_COSTS_OF(RadTanThinPrismFisheyeCamera)
CERES_EXT_COSTS_OF(SimpleDivisionCamera)
CERES_EXT_COSTS_OF(DivisionCamera)
CERES_EXT_COSTS_OF(SimpleFisheyeCamera)
CERES_EXT_COSTS_OF(FisheyeCamera)
CERES_EXT_COSTS_OF(EucmCamera)
CERES_EXT_COSTS_OF(EquirectangularCamera)
#undef CERES_EXT_COSTS_OF

}  // namespace ceres_ext::colmap
