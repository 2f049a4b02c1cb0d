// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#ifndef TESTS_PATCHES_DIFFERENCE_COST_FUNCTION_H_
#define TESTS_PATCHES_DIFFERENCE_COST_FUNCTION_H_

#include "ceres/sized_cost_function.h"

namespace ceres_ext {

// r = a(0) - 2 b(0), of blocks of 3 and 2 values.
class Difference final : public ceres::SizedCostFunction<1, 3, 2> {
 public:
  bool Evaluate(double const* const* parameters,
                double* residuals,
                double** /*jacobians*/) const override {
    residuals[0] = parameters[0][0] - 2.0 * parameters[1][0];
    return true;
  }
};

}  // namespace ceres_ext

#endif  // TESTS_PATCHES_DIFFERENCE_COST_FUNCTION_H_
