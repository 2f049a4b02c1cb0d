// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Writes summaries of windows and fits as Ceres's loop would.

#ifndef CERES_EXT_SMALL_BATCH_SUMMARY_H_
#define CERES_EXT_SMALL_BATCH_SUMMARY_H_

#include <string>

#include "ceres/solver.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/solver/step_search.h"
#include "ceres_ext/solver/trust_region.h"
#include "ceres_ext/summary.h"

namespace ceres_ext {

// Summarizes a window or fit that has ended, with Ceres's sentences.
void Summarize(const TrustRegion& region,
               const LoopOptions& options,
               double fixed_cost,
               ProblemSummary* summary);

// The part of a problem that varies or depends on what varies.
struct ReducedSize {
  int num_parameter_blocks = 0;
  int num_parameters = 0;
  int num_effective_parameters = 0;
  int num_residual_blocks = 0;
  int num_residuals = 0;
  bool is_constrained = false;
  bool is_mixed = false;  // solved in mixed precision
  ceres::LinearSolverType linear_solver_type = ceres::DENSE_SCHUR;
};

// Sets the members of *full_summary that a window or fit has; of the sizes only
// the reduced ones.
void SummarizeInFull(const ProblemSummary& summary,
                     const ReducedSize& size,
                     const ceres::Solver::Options& options,
                     const std::string& device,
                     Summary* full_summary);

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_BATCH_SUMMARY_H_
