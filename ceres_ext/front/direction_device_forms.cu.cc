// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/device/cost_function.cuh"
#include "ceres_ext/direction_cost_functions.h"

CERES_EXT_COST_FUNCTION(ceres_ext::DirectionCost, ceres_ext::form::Rows)
CERES_EXT_COST_FUNCTION(ceres_ext::RigDirectionCost, ceres_ext::form::Rows)
CERES_EXT_COST_FUNCTION(ceres_ext::SensorDirectionCost, ceres_ext::form::Rows)
