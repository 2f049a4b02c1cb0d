// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#ifndef CERES_EXT_TESTS_COMMON_OWN_LOSS_H_
#define CERES_EXT_TESTS_COMMON_OWN_LOSS_H_

#include "ceres/loss_function.h"

namespace ceres_ext {

// A user-defined loss, Geman and McClure's: rho = s / (1 + s / 100). rho'' < 0
// everywhere.
class OwnLoss : public ceres::LossFunction {
 public:
  void Evaluate(double s, double rho[3]) const override {
    const double slope = 1.0 / (1.0 + s / 100.0);
    rho[0] = s * slope;
    rho[1] = slope * slope;
    rho[2] = -0.02 * slope * slope * slope;
  }
};

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_COMMON_OWN_LOSS_H_
