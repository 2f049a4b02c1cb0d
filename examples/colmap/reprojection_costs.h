// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The cost functions of colmap_problem.h and of Python, which have device forms
// where the build has CUDA (reprojection_costs.cu).

#ifndef CERES_EXT_EXAMPLES_COLMAP_REPROJECTION_COSTS_H_
#define CERES_EXT_EXAMPLES_COLMAP_REPROJECTION_COSTS_H_

#include <type_traits>

#include "ceres/cost_function.h"
#include "ceres_ext/camera_intrinsics.h"
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

// Priors on the parameters of a camera.
template <typename CameraModel>
struct PriorCosts {
  using Error = IntrinsicsPrior<CameraModel::kNumParams>;
  using Cost = CostFunctionFor<DeviceAutoDiffCostFunction, Error>;
};

// Makes a cost function with a copy of a functor.
using CostMaker = ceres::CostFunction* (*)(const void* functor);

template <typename Functor, typename CostFunction>
ceres::CostFunction* MakeCostFunction(const void* functor) {
  const Functor& given = *static_cast<const Functor*>(functor);
  if constexpr (std::is_constructible_v<CostFunction, Functor*>) {
    return new CostFunction(new Functor(given));
  } else {
    return new CostFunction(given);
  }
}

// The makers of one camera model, compiled in one place since each type takes a
// second.
struct ReprojectionCostMakers {
  CostMaker one_block;     // ReprojectionCosts::OneBlock, of an Error
  CostMaker split;         // ReprojectionCosts::Split, of an Error
  CostMaker rig;           // RigReprojectionCosts::Cost, of an Error
  CostMaker constant_rig;  // ConstantCost, of a ConstantError
  CostMaker prior;         // PriorCosts::Cost, of an Error
};
// The model of that number, which must be one of camera_models.h.
ReprojectionCostMakers MakersOf(int camera_model_id);

}  // namespace ceres_ext::colmap

#endif  // CERES_EXT_EXAMPLES_COLMAP_REPROJECTION_COSTS_H_
