// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/device/cost_function.cuh"
#include "examples/bal/autodiff_cost_functions.h"

namespace ceres_ext::bal {

template <int kCameraSize>
using AutodiffCost =
    DeviceAutoDiffCostFunction<AutodiffReprojectionError<kCameraSize>,
                               2,
                               kCameraSize,
                               3>;
CERES_EXT_COST_FUNCTION(AutodiffCost<9>, ceres_ext::form::Recomputed)
CERES_EXT_COST_FUNCTION(AutodiffCost<10>, ceres_ext::form::Recomputed)

}  // namespace ceres_ext::bal
