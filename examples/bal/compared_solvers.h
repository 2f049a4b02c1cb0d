// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The solvers of bundle_adjuster --compare.

#ifndef EXAMPLES_BAL_COMPARED_SOLVERS_H_
#define EXAMPLES_BAL_COMPARED_SOLVERS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ceres_ext::bal {

struct ComparedSolver {
  std::string name;
  // By which bundle_adjuster is this solver.
  std::vector<std::pair<std::string, std::string>> flags;
};

const std::vector<ComparedSolver>& ComparedSolvers();

// In the order of ComparedSolvers; all for "automatic". On failure returns
// false and sets *error to one line.
bool ParseComparedSolvers(const std::string& names,
                          std::vector<ComparedSolver>* solvers,
                          std::string* error);

// The reason why it can't solve a problem with so many columns of cameras here
// and with the other flags as they are; empty if it can, as far as is known
// before.
std::string WhyLeftOut(const ComparedSolver& solver,
                       int64_t num_camera_columns);

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_COMPARED_SOLVERS_H_
