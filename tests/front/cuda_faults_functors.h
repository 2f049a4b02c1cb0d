// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A user's functor with a device form, and kernels of a user's that fail.

#ifndef CERES_EXT_TESTS_FRONT_CUDA_FAULTS_FUNCTORS_H_
#define CERES_EXT_TESTS_FRONT_CUDA_FAULTS_FUNCTORS_H_

#include "ceres_ext/device_cost_function.h"
#include "tests/common/bal_test_problem.h"

namespace ceres_ext {

using FunctorCost =
    DeviceAutoDiffCostFunction<AutodiffReprojection<3>, 2, 9, 3>;

// Queue, on the default stream, a kernel that traps and one that writes where
// there is no memory. Neither waits.
void QueueTrap();
void QueueWriteToNowhere();

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_FRONT_CUDA_FAULTS_FUNCTORS_H_
