// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Summaries of two solves of one problem that have the same bits.
#ifndef CERES_EXT_TESTS_COMMON_SAME_SUMMARY_H_
#define CERES_EXT_TESTS_COMMON_SAME_SUMMARY_H_

#include <cstddef>

#include "ceres/solver.h"
#include "ceres_ext/solve.h"
#include "gtest/gtest.h"

namespace ceres_ext {

inline void ExpectSameSizes(const Summary& summary, const Summary& expected) {
  using Stock = ceres::Solver::Summary;
  for (const auto member : {&Stock::num_parameter_blocks,
                            &Stock::num_parameters,
                            &Stock::num_effective_parameters,
                            &Stock::num_residual_blocks,
                            &Stock::num_residuals,
                            &Stock::num_parameter_blocks_reduced,
                            &Stock::num_parameters_reduced,
                            &Stock::num_effective_parameters_reduced,
                            &Stock::num_residual_blocks_reduced,
                            &Stock::num_residuals_reduced}) {
    EXPECT_EQ(summary.*member, expected.*member);
  }
}

inline void ExpectSameSummary(const Summary& summary, const Summary& expected) {
  EXPECT_EQ(summary.termination_type, expected.termination_type);
  EXPECT_EQ(summary.message, expected.message);
  EXPECT_EQ(summary.initial_cost, expected.initial_cost);
  EXPECT_EQ(summary.final_cost, expected.final_cost);
  EXPECT_EQ(summary.fixed_cost, expected.fixed_cost);
  ASSERT_EQ(summary.iterations.size(), expected.iterations.size());
  for (size_t i = 0; i < expected.iterations.size(); ++i) {
    const ceres::IterationSummary& a = summary.iterations[i];
    const ceres::IterationSummary& b = expected.iterations[i];
    EXPECT_EQ(a.cost, b.cost);
    EXPECT_EQ(a.gradient_max_norm, b.gradient_max_norm);
    EXPECT_EQ(a.gradient_norm, b.gradient_norm);
    EXPECT_EQ(a.step_norm, b.step_norm);
    EXPECT_EQ(a.relative_decrease, b.relative_decrease);
    EXPECT_EQ(a.trust_region_radius, b.trust_region_radius);
    EXPECT_EQ(a.linear_solver_iterations, b.linear_solver_iterations);
  }
  ExpectSameSizes(summary, expected);
  EXPECT_EQ(summary.linear_solver_ordering_used,
            expected.linear_solver_ordering_used);
  EXPECT_EQ(summary.schur_structure_used, expected.schur_structure_used);
  EXPECT_EQ(summary.linear_solver_type_used, expected.linear_solver_type_used);
  EXPECT_EQ(summary.preconditioner_type_used,
            expected.preconditioner_type_used);
}

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_COMMON_SAME_SUMMARY_H_
