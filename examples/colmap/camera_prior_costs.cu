// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Priors of cameras, one form for each number of parameters.

#include "ceres_ext/camera_models.h"
#include "ceres_ext/device/cost_function.cuh"
#include "examples/colmap/reprojection_costs.h"

namespace ceres_ext::colmap {

CERES_EXT_COST_FUNCTION(PriorCosts<SimplePinholeCamera>::Cost, form::Rows)
CERES_EXT_COST_FUNCTION(PriorCosts<PinholeCamera>::Cost, form::Rows)
CERES_EXT_COST_FUNCTION(PriorCosts<RadialCamera>::Cost, form::Rows)
CERES_EXT_COST_FUNCTION(PriorCosts<EucmCamera>::Cost, form::Rows)
CERES_EXT_COST_FUNCTION(PriorCosts<OpenCvCamera>::Cost, form::Rows)
CERES_EXT_COST_FUNCTION(PriorCosts<FullOpenCvCamera>::Cost, form::Rows)
CERES_EXT_COST_FUNCTION(PriorCosts<RadTanThinPrismFisheyeCamera>::Cost,
                        form::Rows)

}  // namespace ceres_ext::colmap
