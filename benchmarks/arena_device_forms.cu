// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "benchmarks/arena_functors.h"
#include "ceres_ext/device/cost_function.cuh"

namespace ceres_ext {

CERES_EXT_COST_FUNCTION(RelativePoseCost, ceres_ext::form::Rows)

}  // namespace ceres_ext
