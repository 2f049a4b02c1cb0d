// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The cost of a BalProblem apart from those who solve it.

#ifndef EXAMPLES_BAL_REPROJECTION_ERRORS_H_
#define EXAMPLES_BAL_REPROJECTION_ERRORS_H_

#include <limits>
#include <vector>

#include "problem_io/bal_problem.h"

namespace ceres_ext::bal {

struct ReprojectionErrors {
  // |r|^2 of each observation, in pixels^2.
  std::vector<double> squared_norms;

  // 1/2 sum rho(|r|^2), with Huber's rho, one pixel wide, or none.
  double cost = std::numeric_limits<double>::quiet_NaN();

  // How far this cost and another one, summed in any order from residuals
  // computed in double, can be apart by rounding: twice the bound of either. A
  // point X that the camera (R, t) sees as P = R X + t, p = -P / P.z, costs
  // about 32 operations on numbers as large as |X| + |t|; so, with u = 2^-53,
  //   |dp| <= 32 u (|X| + |t|) (1 + |p|) / |P.z|,
  //   |dr| <= f (1 + 3 |k1| |p|^2 + 5 |k2| |p|^4) (|dp| + 8 u |p|) + 8 u |r|
  //           + 8 u |observed|,
  // and the cost is off by at most |r| |dr| + |dr|^2 / 2, since rho' <= 1, and
  // by n u times itself for the sum of n terms.
  double tolerance = std::numeric_limits<double>::quiet_NaN();
};

// By ceres/rotation.h in double, on so many threads; bits do not depend on
// their number.
ReprojectionErrors ComputeReprojectionErrors(const BalProblem& problem,
                                             bool robustify,
                                             int num_threads);

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_REPROJECTION_ERRORS_H_
