// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/odometry_cost_functions.h"

namespace ceres_ext::internal {

template <typename Model>
const BatchModel& OdometryCostFunction<Model>::batch_model() const {
  return DeviceCostFunction<Model>::batch_model();
}

template class OdometryCostFunction<
    WrittenModel<InertialError<EigenQuaternion>>>;
template class OdometryCostFunction<
    WrittenModel<InverseDepthError<EigenQuaternion>>>;
template class OdometryCostFunction<
    WrittenModel<StereoInverseDepthError<EigenQuaternion>>>;
template class OdometryCostFunction<
    WrittenModel<AnchorStereoInverseDepthError<EigenQuaternion>>>;
template class OdometryCostFunction<WhitenedModel<SpeedAndBiasPrior>>;
template class OdometryCostFunction<
    WhitenedModel<PlanarMotionError<EigenQuaternion>>>;
template class OdometryCostFunction<
    WhitenedModel<GnssPositionError<EigenQuaternion>>>;

}  // namespace ceres_ext::internal
