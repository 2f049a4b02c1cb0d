// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "benchmarks/doors_functors.h"
#include "ceres_ext/device/cost_function.cuh"

namespace ceres_ext::bal {

CERES_EXT_COST_FUNCTION(SnavelyCost, ceres_ext::form::Rows)
CERES_EXT_COST_FUNCTION(SharedSnavelyCost, ceres_ext::form::Rows)
CERES_EXT_COST_FUNCTION(TranslationCost, ceres_ext::form::Rows)

}  // namespace ceres_ext::bal
