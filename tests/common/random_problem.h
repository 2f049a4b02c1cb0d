// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Random ceres::Problems: rows of each kind, losses, manifolds, constant
// blocks, priors and linear solvers. tests/common/random_arrays.h makes arrays.
#ifndef CERES_EXT_TESTS_COMMON_RANDOM_PROBLEM_H_
#define CERES_EXT_TESTS_COMMON_RANDOM_PROBLEM_H_

#include <initializer_list>

#include "ceres/loss_function.h"
#include "ceres/problem.h"
#include "ceres/solver.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/random_cases.h"
#include "tests/common/row_kinds.h"

namespace ceres_ext {

// One of Ceres's losses, or null.
ceres::LossFunction* RandomLoss(Random* random);

struct RandomRows {
  Kind kind = Kind::kObservations;
  // kAutodiff: all by cost functions of Ceres, with the same numbers otherwise.
  Derivatives derivatives = Derivatives::kAnalytic;
  // Share of the cameras that a row of any shape ties to the first one.
  double ties = 0.0;
  // Share of the cameras of ten values that have a manifold.
  double turns = 1.0;
  // No point is constant, or has a manifold.
  bool keeps_points = false;
};

// Adds all residual blocks, of which now and then one has no batched form, and
// rows of other shapes, manifolds and constant blocks.
void AddRandomRows(const RandomRows& rows,
                   Random* random,
                   BalTestProblem* bal,
                   ceres::Problem* problem);

// Sets one of the linear solvers, with a preconditioner and
// use_explicit_schur_complement that suit it.
void SetRandomSolver(std::initializer_list<ceres::LinearSolverType> types,
                     Random* random,
                     ceres::Solver::Options* options);

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_COMMON_RANDOM_PROBLEM_H_
