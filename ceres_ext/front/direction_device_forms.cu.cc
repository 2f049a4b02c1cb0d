// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/device_cost_function.cuh"
#include "ceres_ext/direction_cost_functions.h"

CERES_EXT_DEVICE_COST_FUNCTION(ceres_ext::DirectionCost)
CERES_EXT_DEVICE_COST_FUNCTION(ceres_ext::RigDirectionCost)
CERES_EXT_DEVICE_COST_FUNCTION(ceres_ext::SensorDirectionCost)
