// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A problem of arrays that several ranks of this process solve together, a
// thread and a part (array_parts.h) each.

#ifndef CERES_EXT_FRONT_SOLVE_PARTS_H_
#define CERES_EXT_FRONT_SOLVE_PARTS_H_

#include <functional>
#include <string>
#include <vector>

#include "ceres/solver.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/options.h"
#include "ceres_ext/summary.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

// Solves a rank's part, and may not throw.
using SolveRank = std::function<void(const ceres::Solver::Options& options,
                                     const Options& ext_options,
                                     ArrayProblem* part,
                                     Summary* summary)>;

// of_ranks: the options of each rank, without a communicator; there may be
// fewer parts. The threads of `options` are shared out. *problem is valid and
// in host memory. The calling thread is that of the first rank, which calls the
// callbacks. False, with a part of a sentence in *reason, if nothing was done.
bool SolveParts(const ceres::Solver::Options& options,
                const std::vector<Options>& of_ranks,
                const ArrayProblem& problem,
                kernels::HostContext* context,
                const SolveRank& solve,
                Summary* summary,
                std::string* reason);

// Ends connections between devices that are kept for later solves.
void ReleaseIdleCommunicators();

}  // namespace ceres_ext

#endif  // CERES_EXT_FRONT_SOLVE_PARTS_H_
