// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The cost functions of colmap_problem.h, which have device forms where the
// build has CUDA (reprojection_costs.cu).

#ifndef CERES_EXT_EXAMPLES_COLMAP_REPROJECTION_COSTS_H_
#define CERES_EXT_EXAMPLES_COLMAP_REPROJECTION_COSTS_H_

#include "ceres_ext/device_cost_function.h"
#include "ceres_ext/photogrammetry.h"

namespace ceres_ext::colmap {

template <typename CameraModel>
struct ReprojectionCosts {
  using Error = ReprojectionError<CameraModel, EigenQuaternion>;
  // The blocks of COLMAP since 4.0, and those up to 3.13.
  using OneBlock = CostFunctionFor<DeviceAutoDiffCostFunction, Error>;
  using Split = CostFunctionFor<DeviceAutoDiffCostFunction,
                                Error,
                                typename Error::SplitBlockSizes>;
};

// Images of other sensors than the reference of their rig, whose
// sensor_from_rig varies or not, with poses in one block.
template <typename CameraModel>
struct RigReprojectionCosts {
  using Error = RigReprojectionError<CameraModel, EigenQuaternion>;
  using Cost = CostFunctionFor<DeviceAutoDiffCostFunction, Error>;
  using ConstantError =
      ConstantRigReprojectionError<CameraModel, EigenQuaternion>;
  using ConstantCost =
      CostFunctionFor<DeviceAutoDiffCostFunction, ConstantError>;
};

}  // namespace ceres_ext::colmap

#endif  // CERES_EXT_EXAMPLES_COLMAP_REPROJECTION_COSTS_H_
