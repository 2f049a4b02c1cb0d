// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The device forms of tests/front/device_cost_function_functors.h.

#ifndef CERES_EXT_TESTS_GLUE_DEVICE_COST_FUNCTION_FUNCTORS_CUH_
#define CERES_EXT_TESTS_GLUE_DEVICE_COST_FUNCTION_FUNCTORS_CUH_

#include "ceres_ext/device/cost_function.cuh"
#include "tests/front/device_cost_function_functors.h"

namespace ceres_ext {

#define CERES_EXT_TEST_FUNCTOR(...) \
  CERES_EXT_COST_FUNCTION(DeviceAutoDiffCostFunction<__VA_ARGS__>, form::Rows)
CERES_EXT_FOR_EACH_MODEL_FUNCTOR(CERES_EXT_TEST_FUNCTOR)
#undef CERES_EXT_TEST_FUNCTOR
CERES_EXT_COST_FUNCTION(DeviceCostFunction<Written>, form::Rows)

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_GLUE_DEVICE_COST_FUNCTION_FUNCTORS_CUH_
