// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A BAL problem as rows of each kind that this library knows, and one that it
// leaves to stock Ceres.
#ifndef CERES_EXT_TESTS_COMMON_ROW_KINDS_H_
#define CERES_EXT_TESTS_COMMON_ROW_KINDS_H_

#include <cstddef>
#include <memory>

#include "ceres/loss_function.h"
#include "ceres/problem.h"
#include "ceres/solver.h"
#include "ceres_ext/options.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/functors.h"

namespace ceres_ext {

// The evaluator of the rows, and their shape.
enum class Kind { kObservations, kViews, kGeneralRows, kStock };

const char* Name(Kind kind);

// Adds row k: a view, or an observation of any other kind.
void AddRow(Kind kind,
            Derivatives derivatives,
            size_t k,
            ceres::LossFunction* loss,
            BalTestProblem* bal,
            ceres::Problem* problem);
// Adds a row of any shape between cameras i and j.
void AddTie(int i,
            int j,
            ceres::LossFunction* loss,
            BalTestProblem* bal,
            ceres::Problem* problem);

// A problem of the kind, which has its parameters on the heap: it may move.
struct Case {
  Case(Kind kind, int num_threads, BalTestProblem start);

  // NaN if it cannot be evaluated.
  double Cost() const;

  BalTestProblem bal;
  std::unique_ptr<ceres::Problem> problem;
  ceres::Solver::Options options;
  Options ext_options;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_COMMON_ROW_KINDS_H_
