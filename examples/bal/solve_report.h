// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#ifndef EXAMPLES_BAL_SOLVE_REPORT_H_
#define EXAMPLES_BAL_SOLVE_REPORT_H_

#include <string>
#include <utility>
#include <vector>

#include "ceres_ext/summary.h"
#include "examples/bal/bal_problem.h"

namespace ceres_ext::bal {

struct SolveTimes {
  double read_in_seconds = 0.0;
  double build_in_seconds = 0.0;
};

// One solve as JSON, for scripts and tables. docs/bundle_adjuster.md lists the
// fields. Numbers that are not finite are null.
std::string SolveReportJson(
    const std::string& input,
    const std::vector<std::pair<std::string, std::string>>& flags,
    const BalProblem& problem,
    const SolveTimes& times,
    const ceres_ext::Summary& summary);

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_SOLVE_REPORT_H_
