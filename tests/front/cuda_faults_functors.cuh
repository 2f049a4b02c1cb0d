// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The device form of tests/front/cuda_faults_functors.h.

#ifndef CERES_EXT_TESTS_GLUE_CUDA_FAULTS_FUNCTORS_CUH_
#define CERES_EXT_TESTS_GLUE_CUDA_FAULTS_FUNCTORS_CUH_

#include "ceres_ext/device/cost_function.cuh"
#include "tests/front/cuda_faults_functors.h"

namespace ceres_ext {

CERES_EXT_COST_FUNCTION(FunctorCost, form::Rows)

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_GLUE_CUDA_FAULTS_FUNCTORS_CUH_
