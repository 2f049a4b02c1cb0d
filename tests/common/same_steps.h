// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#ifndef CERES_EXT_TESTS_COMMON_SAME_STEPS_H_
#define CERES_EXT_TESTS_COMMON_SAME_STEPS_H_

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "ceres/solver.h"
#include "gtest/gtest.h"

namespace ceres_ext {

// The ends of two solves.
inline void ExpectSameEnd(const ceres::Solver::Summary& ours,
                          const ceres::Solver::Summary& stock) {
  EXPECT_EQ(ours.termination_type, stock.termination_type)
      << ours.message << "\n"
      << stock.message;
  EXPECT_GT(ours.iterations.size(), 1u);
  EXPECT_GT(stock.iterations.size(), 1u);
  EXPECT_NEAR(ours.final_cost, stock.final_cost, 1e-6 * stock.final_cost);
}

// The exact steps of two solves too. Costs agree to rounding while the
// decisions do: where a step gains nothing but rounding, they may differ.
// Returns how many iterations were compared, the start included.
inline size_t ExpectSameSteps(const ceres::Solver::Summary& ours,
                              const ceres::Solver::Summary& stock) {
  ExpectSameEnd(ours, stock);
  const size_t n = std::min(ours.iterations.size(), stock.iterations.size());
  size_t i = 0;
  for (; i < n; ++i) {
    const auto& a = ours.iterations[i];
    const auto& b = stock.iterations[i];
    // The start changes no cost.
    if (i > 0 && std::abs(b.cost_change) <= 1e-9 * b.cost) {
      break;
    }
    EXPECT_EQ(a.step_is_valid, b.step_is_valid) << "iteration " << i;
    EXPECT_EQ(a.step_is_successful, b.step_is_successful) << "iteration " << i;
    EXPECT_NEAR(a.cost, b.cost, 1e-9 * b.cost) << "iteration " << i;
  }
  return i;
}

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_COMMON_SAME_STEPS_H_
