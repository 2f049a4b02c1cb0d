// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#ifndef EXAMPLES_BAL_SOLVE_REPORT_H_
#define EXAMPLES_BAL_SOLVE_REPORT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ceres_ext/summary.h"
#include "problem_io/bal_problem.h"

namespace ceres_ext::bal {

// The problem of a solve.
struct ReportedProblem {
  std::string format;  // of the report
  std::string input;
  std::vector<std::pair<std::string, int64_t>> sizes;
  // Costs and their tolerances by reprojection_errors.h, where known.
  std::vector<std::pair<std::string, double>> recomputed_costs = {};
};

ReportedProblem ReportedBalProblem(const std::string& input,
                                   const BalProblem& problem);

struct SolveTimes {
  double read_in_seconds = 0.0;
  double build_in_seconds = 0.0;
};

// One solve as JSON, for scripts and tables. docs/programs.md lists the
// fields. Numbers that are not finite are null. `parts` are names and values of
// further fields, as JSON.
std::string SolveReportJson(
    const ReportedProblem& problem,
    const std::vector<std::pair<std::string, std::string>>& flags,
    const SolveTimes& times,
    const ceres_ext::Summary& summary,
    const std::vector<std::pair<std::string, std::string>>& parts);

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_SOLVE_REPORT_H_
