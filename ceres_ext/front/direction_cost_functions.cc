// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/direction_cost_functions.h"

namespace ceres_ext::internal {

template <typename Error>
const BatchModel& DirectionCostFunction<Error>::batch_model() const {
  return DeviceCostFunction<DirectionModel<Error>>::batch_model();
}

template class DirectionCostFunction<DirectionError>;
template class DirectionCostFunction<RigDirectionError>;
template class DirectionCostFunction<SensorDirectionError>;

}  // namespace ceres_ext::internal
