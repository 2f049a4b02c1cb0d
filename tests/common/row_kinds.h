// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A BAL problem as rows of each kind that this library knows, and one that it
// leaves to stock Ceres.
#ifndef CERES_EXT_TESTS_COMMON_ROW_KINDS_H_
#define CERES_EXT_TESTS_COMMON_ROW_KINDS_H_

#include <memory>

#include "ceres/problem.h"
#include "ceres/solver.h"
#include "ceres_ext/options.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/functors.h"

namespace ceres_ext {

// The evaluator of the rows, and their shape.
enum class Kind { kObservations, kViews, kGeneralRows, kStock };

const char* Name(Kind kind);

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
