// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The part of a report that --report_problem adds. solve_page.py plots it, and
// compare_solvers.py takes the identity of the problem from it.

#ifndef EXAMPLES_BAL_PROBLEM_REPORT_H_
#define EXAMPLES_BAL_PROBLEM_REPORT_H_

#include <cstdint>
#include <string>

#include "examples/bal/reprojection_errors.h"
#include "problem_io/bal_problem.h"

namespace ceres_ext::bal {

// CRC-32 of a problem as it was read: of all camera indices, then all point
// indices, then all observations; and of all cameras, then all points.
struct ProblemChecksums {
  uint32_t observations = 0;
  uint32_t parameters = 0;
};

ProblemChecksums ChecksumsOf(const BalProblem& problem);

// A JSON object, which docs/programs.md describes: residuals before and after
// the solve, the worst cameras and points, numbers of observations, and a
// sample of positions. Without `after` the worst are those of the start.
std::string ProblemReportJson(const BalProblem& problem,
                              const ProblemChecksums& checksums,
                              const ReprojectionErrors& before,
                              const ReprojectionErrors* after);

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_PROBLEM_REPORT_H_
