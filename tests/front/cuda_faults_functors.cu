// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/device/cost_function.cuh"
#include "tests/common/functors.h"

namespace ceres_ext {

CERES_EXT_COST_FUNCTION(FunctorCost, form::Rows)

namespace {

__global__ void TrapKernel() { __trap(); }

__global__ void WriteKernel(int* to) { *to = 1; }

}  // namespace

void QueueTrap() { TrapKernel<<<1, 1>>>(); }

void QueueWriteToNowhere() {
  WriteKernel<<<1, 1>>>(reinterpret_cast<int*>(16));
}

}  // namespace ceres_ext
