// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/colmap/reprojection_costs.h"

#include "ceres_ext/camera_models.h"

namespace ceres_ext::colmap {

ReprojectionCostMakers MakersOf(int camera_model_id) {
  ReprojectionCostMakers makers{};
  ForEachCameraModel([&](auto camera_model) {
    if (camera_model.kModelId == camera_model_id) {
      using Costs = ReprojectionCosts<decltype(camera_model)>;
      using RigCosts = RigReprojectionCosts<decltype(camera_model)>;
      using Priors = PriorCosts<decltype(camera_model)>;
      makers = {
          &MakeCostFunction<typename Costs::Error, typename Costs::OneBlock>,
          &MakeCostFunction<typename Costs::Error, typename Costs::Split>,
          &MakeCostFunction<typename RigCosts::Error, typename RigCosts::Cost>,
          &MakeCostFunction<typename RigCosts::ConstantError,
                            typename RigCosts::ConstantCost>,
          &MakeCostFunction<typename Priors::Error, typename Priors::Cost>};
    }
  });
  return makers;
}

}  // namespace ceres_ext::colmap
