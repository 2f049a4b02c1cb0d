// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Solves a single problem of a batch that is not a window.

#ifndef CERES_EXT_FRONT_ONE_OF_BATCH_H_
#define CERES_EXT_FRONT_ONE_OF_BATCH_H_

#include <cstdint>

#include "ceres/solver.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/options.h"
#include "ceres_ext/summary.h"

namespace ceres_ext {

// Copies the result of ceres_ext::Solve.
void Summarize(const Summary& of_problem, ProblemSummary* summary);

// Solves problem i of the batch by ceres_ext::Solve. full: gets its summary if
// not null.
void SolveOther(const ceres::Solver::Options& options,
                const Options& ext_options,
                const ProblemBatch& batch,
                int64_t i,
                ProblemSummary* summary,
                Summary* full = nullptr);

}  // namespace ceres_ext

#endif  // CERES_EXT_FRONT_ONE_OF_BATCH_H_
