// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// One solve as a page (html_page.h). It stays below 1 MB whatever the sizes:
// lines and clouds of many points show some of them.

#ifndef EXAMPLES_BAL_SOLVE_PAGE_H_
#define EXAMPLES_BAL_SOLVE_PAGE_H_

#include <string>

#include "ceres_ext/summary.h"
#include "examples/bal/reprojection_errors.h"
#include "examples/bal/solve_report.h"
#include "problem_io/bal_problem.h"

namespace ceres_ext::bal {

// `sections` come last, and are HTML.
std::string SolvePage(const ReportedProblem& problem,
                      const SolveTimes& times,
                      const ceres_ext::Summary& summary,
                      const std::string& sections);

// The sections on a BalProblem: residuals before and after the solve, the worst
// cameras and points, structure, cameras and points from above. Without
// `after` the worst are those of the start.
std::string BalSections(const BalProblem& problem,
                        const ReprojectionErrors& before,
                        const ReprojectionErrors* after);

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_SOLVE_PAGE_H_
