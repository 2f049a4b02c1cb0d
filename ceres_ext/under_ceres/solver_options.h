// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Options that ceres::Solver::Options::IsValid accepts, or checks with an
// abort, and that then end the process in Ceres.

#ifndef CERES_EXT_UNDER_CERES_SOLVER_OPTIONS_H_
#define CERES_EXT_UNDER_CERES_SOLVER_OPTIONS_H_

#include <string>

#include "ceres/preprocessor.h"
#include "ceres/problem_impl.h"
#include "ceres/solver.h"

namespace ceres_ext {

// True if Ceres may be given the options, for this problem where it is not
// null: then it solves, or says itself what is wrong with them. Otherwise
// *error names the field, its value and what was expected.
bool CanBeGivenToCeres(const ceres::Solver::Options& options,
                       const ceres::internal::ProblemImpl* problem,
                       std::string* error);

// The same of what Ceres is about to solve by itself, with the linear solver
// that it has chosen for the blocks that vary. Ceres's preprocessor calls it,
// so that CUDA is started where Ceres was asked for CGNR on it.
bool CanBeSolvedByCeres(const ceres::internal::PreprocessedProblem& pp,
                        std::string* error);

}  // namespace ceres_ext

#endif  // CERES_EXT_UNDER_CERES_SOLVER_OPTIONS_H_
