// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Cost functions of the functors of odometry_errors.h, inverse_depth_errors.h
// and odometry_priors.h with poses as COLMAP has them (EigenQuaternion),
// evaluated in batches on the host and, without a .cu file of the program, on a
// device.
//
//   ceres_ext::InertialError<ceres_ext::EigenQuaternion> row;
//   row.Set(increment, gravity, &error);  // preintegration.h
//   problem.AddResidualBlock(new ceres_ext::InertialCost(row),
//                            nullptr, pose_i, speed_i, pose_j, speed_j);
//
// Other rotations, on the host, and on a device with a .cu file of the program
// (ceres_ext/device_cost_function.h):
//
//   using Cost = CostFunctionFor<DeviceAutoDiffCostFunction,
//                                InertialError<Quaternion>>;
//
// Thread safety: as ceres_ext/device_cost_function.h.

#ifndef CERES_EXT_ODOMETRY_COST_FUNCTIONS_H_
#define CERES_EXT_ODOMETRY_COST_FUNCTIONS_H_

#include "ceres_ext/device_cost_function.h"
#include "ceres_ext/inverse_depth_errors.h"
#include "ceres_ext/odometry_errors.h"
#include "ceres_ext/odometry_priors.h"
#include "ceres_ext/photogrammetry.h"
#include "ceres_ext/written_model.h"

namespace ceres_ext {

namespace internal {

template <typename Model>
class OdometryCostFunction final : public DeviceCostFunction<Model> {
 public:
  explicit OdometryCostFunction(const typename Model::Constants& error)
      : DeviceCostFunction<Model>(error) {}

  // The model of this library, which has the device form.
  const BatchModel& batch_model() const override;
};

}  // namespace internal

using InertialCost = internal::OdometryCostFunction<
    internal::WrittenModel<InertialError<EigenQuaternion>>>;
using InverseDepthCost = internal::OdometryCostFunction<
    internal::WrittenModel<InverseDepthError<EigenQuaternion>>>;
using StereoInverseDepthCost = internal::OdometryCostFunction<
    internal::WrittenModel<StereoInverseDepthError<EigenQuaternion>>>;
using AnchorStereoInverseDepthCost = internal::OdometryCostFunction<
    internal::WrittenModel<AnchorStereoInverseDepthError<EigenQuaternion>>>;
// Each has a WhitenedError.
using SpeedAndBiasPriorCost =
    internal::OdometryCostFunction<internal::WhitenedModel<SpeedAndBiasPrior>>;
using PlanarMotionCost = internal::OdometryCostFunction<
    internal::WhitenedModel<PlanarMotionError<EigenQuaternion>>>;
using GnssPositionCost = internal::OdometryCostFunction<
    internal::WhitenedModel<GnssPositionError<EigenQuaternion>>>;

}  // namespace ceres_ext

#endif  // CERES_EXT_ODOMETRY_COST_FUNCTIONS_H_
