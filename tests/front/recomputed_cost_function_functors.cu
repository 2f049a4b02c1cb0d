// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "tests/front/recomputed_cost_function_functors.cuh"
