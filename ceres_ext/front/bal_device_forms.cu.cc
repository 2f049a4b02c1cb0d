// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/device_cost_function.cuh"
#include "ceres_ext/fit_cost_function.cuh"

// For rows that no batch of observations takes.
CERES_EXT_DEVICE_COST_FUNCTION(ceres_ext::BalReprojectionError)
CERES_EXT_DEVICE_COST_FUNCTION(ceres_ext::BalQuaternionReprojectionError)

// Refinements of poses. Points vary in windows alone.
CERES_EXT_FIT_COST_FUNCTION(ceres_ext::BalReprojectionError, 0)
CERES_EXT_FIT_COST_FUNCTION(ceres_ext::BalQuaternionReprojectionError, 0)
