// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Exact steps of a problem of few columns and residuals: its Jacobian is a
// small dense matrix, which Ceres's evaluator writes on one thread. Families,
// indices and batches take longer to set up than such a problem takes to solve.

#ifndef CERES_EXT_UNDER_CERES_SMALL_SOLVE_H_
#define CERES_EXT_UNDER_CERES_SMALL_SOLVE_H_

#include "ceres/preprocessor.h"
#include "ceres_ext/base/failure.h"
#include "ceres_ext/summary.h"

namespace ceres_ext {

// Makes the linear solver of *pp, and its evaluator once Ceres has set
// evaluator_options. *failure and *record outlive both. False, with pp->error,
// if there is no evaluator.
void SetupSmallLinearSolver(ceres::internal::PreprocessedProblem* pp,
                            Failure* failure,
                            Summary* record);
bool SetupSmallEvaluator(ceres::internal::PreprocessedProblem* pp,
                         Failure* failure);

}  // namespace ceres_ext

#endif  // CERES_EXT_UNDER_CERES_SMALL_SOLVE_H_
