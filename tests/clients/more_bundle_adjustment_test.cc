// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Ceres generates a bundle adjustment test for each linear solver that it
// recommends. These are of the same form, for the others that this library
// supports. CGNR with IDENTITY is left out: it does not get there in Ceres
// either.

#include <memory>

#include "ceres/bundle_adjustment_test_util.h"
#include "gtest/gtest.h"

namespace ceres::internal {
namespace {

class MoreBundleAdjustmentTest : public BundleAdjustmentTest {
 protected:
  void Run(LinearSolverType linear_solver_type,
           PreconditionerType preconditioner_type,
           bool automatic_ordering) {
    BundleAdjustmentProblem bundle_adjustment_problem;
    Solver::Options* options =
        bundle_adjustment_problem.mutable_solver_options();
    options->eta = 0.01;
    options->num_threads = 2;
    options->linear_solver_type = linear_solver_type;
    options->preconditioner_type = preconditioner_type;
    if (automatic_ordering) {
      options->linear_solver_ordering = nullptr;
    }
    RunSolverForConfigAndExpectResidualsMatch(
        *options, bundle_adjustment_problem.mutable_problem());
  }
};

TEST_F(MoreBundleAdjustmentTest, IterativeSchurIdentityAutomaticOrdering) {
  Run(ITERATIVE_SCHUR, IDENTITY, kAutomaticOrdering);
}

TEST_F(MoreBundleAdjustmentTest, IterativeSchurIdentityUserOrdering) {
  Run(ITERATIVE_SCHUR, IDENTITY, kUserOrdering);
}

TEST_F(MoreBundleAdjustmentTest, CgnrJacobi) {
  Run(CGNR, JACOBI, kAutomaticOrdering);
}

}  // namespace
}  // namespace ceres::internal
