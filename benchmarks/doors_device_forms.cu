// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "benchmarks/doors_functors.h"
#include "ceres_ext/device_cost_function.cuh"

namespace ceres_ext::bal {

CERES_EXT_DEVICE_COST_FUNCTION(SnavelyCost)
CERES_EXT_DEVICE_COST_FUNCTION(SharedSnavelyCost)
CERES_EXT_DEVICE_COST_FUNCTION(TranslationCost)

}  // namespace ceres_ext::bal
