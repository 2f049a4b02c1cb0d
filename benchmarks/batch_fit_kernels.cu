// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "benchmarks/batch_functors.h"
#include "ceres_ext/device/cost_function.cuh"

CERES_EXT_COST_FUNCTION(ceres_ext::PeakCost, ceres_ext::form::Fits<>)
