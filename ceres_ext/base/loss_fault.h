// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Sentences about loss functions for which residuals and Jacobian can't be
// corrected (kernels::LossCorrector).

#ifndef CERES_EXT_BASE_LOSS_FAULT_H_
#define CERES_EXT_BASE_LOSS_FAULT_H_

#include <sstream>
#include <string>

#include "ceres/loss_function.h"
#include "ceres_ext/base/type_name.h"

namespace ceres_ext {

// rho: what the loss yields at s = |r|^2.
inline std::string LossFault(const ceres::LossFunction& loss,
                             double s,
                             const double* rho) {
  std::ostringstream sentence;
  sentence << "The loss function " << TypeName(loss) << " has rho' = " << rho[1]
           << " and rho'' = " << rho[2] << " at |r|^2 = " << s
           << "; expected rho' >= 0, and rho' > 0 if rho'' > 0.";
  return sentence.str();
}

// factor: the product of those of all ceres::ScaledLoss in it.
inline std::string LossFactorFault(const ceres::LossFunction& loss,
                                   double factor) {
  std::ostringstream sentence;
  sentence << "The loss function " << TypeName(loss) << " has the factor "
           << factor << "; expected 0 or more.";
  return sentence.str();
}

}  // namespace ceres_ext

#endif  // CERES_EXT_BASE_LOSS_FAULT_H_
