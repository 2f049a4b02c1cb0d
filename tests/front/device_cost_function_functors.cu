// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The device forms of device_cost_function_test.cc. Tests of the emulated
// device include this file.

#include "ceres_ext/device/cost_function.cuh"
#include "tests/common/functors.h"

namespace ceres_ext {

#define CERES_EXT_TEST_FUNCTOR(...) \
  CERES_EXT_COST_FUNCTION(DeviceAutoDiffCostFunction<__VA_ARGS__>, form::Rows)
CERES_EXT_FOR_EACH_MODEL_FUNCTOR(CERES_EXT_TEST_FUNCTOR)
#undef CERES_EXT_TEST_FUNCTOR
CERES_EXT_COST_FUNCTION(DeviceCostFunction<Written>, form::Rows)

}  // namespace ceres_ext
