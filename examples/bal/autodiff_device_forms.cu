// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/recomputed_cost_function.cuh"
#include "examples/bal/autodiff_cost_functions.h"

namespace ceres_ext::bal {

template <int kCameraSize>
using AutodiffCost =
    DeviceAutoDiffCostFunction<AutodiffReprojectionError<kCameraSize>,
                               2,
                               kCameraSize,
                               3>;
CERES_EXT_RECOMPUTED_COST_FUNCTION(AutodiffCost<9>)
CERES_EXT_RECOMPUTED_COST_FUNCTION(AutodiffCost<10>)

}  // namespace ceres_ext::bal
