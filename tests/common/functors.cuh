// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The device forms of tests/common/functors.h.

#ifndef CERES_EXT_TESTS_COMMON_FUNCTORS_CUH_
#define CERES_EXT_TESTS_COMMON_FUNCTORS_CUH_

#include "ceres_ext/device/cost_function.cuh"
#include "tests/common/functors.h"

namespace ceres_ext {

#define CERES_EXT_TEST_FUNCTOR(...) \
  CERES_EXT_COST_FUNCTION(DeviceAutoDiffCostFunction<__VA_ARGS__>, form::Rows)
CERES_EXT_FOR_EACH_TEST_FUNCTOR(CERES_EXT_TEST_FUNCTOR)
#undef CERES_EXT_TEST_FUNCTOR

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_COMMON_FUNCTORS_CUH_
