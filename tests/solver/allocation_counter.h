// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Replaces operator new in a test program, to see what allocates.
#ifndef CERES_EXT_TESTS_SOLVER_ALLOCATION_COUNTER_H_
#define CERES_EXT_TESTS_SOLVER_ALLOCATION_COUNTER_H_

#include <cstddef>

namespace ceres_ext {

// Bytes of the largest allocation of any thread since the last reset.
size_t LargestAllocation();
void ResetLargestAllocation();

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_SOLVER_ALLOCATION_COUNTER_H_
