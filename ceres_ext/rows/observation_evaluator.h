// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Evaluates a batch of observations: cost, residuals, gradient and the Jacobian
// in tangent columns, with manifolds, constant blocks and loss functions
// (blocks/loss_model.h).
//
// With Jc the derivative by a camera's 9 local coordinates, map_c its camera
// map and T_p the derivative of a point by its tangent:
//
//   residual  r_k                         cost = 1/2 sum rho(|r_k|^2)
//   Jacobian  [Jp T_p, Jc map_c]          corrected for the loss as Ceres does
//   gradient  J'r
//
// Ceres corrects for a concave loss (RobustLoss::IsConcave) by the factor
// sqrt(rho'), which is what a recomputed Jacobian keeps of it per observation.
// Its T_p is diagonal: one, and zero for what a SubsetManifold holds.
//
// The order of sums does not depend on threads or runs.

#ifndef CERES_EXT_ROWS_OBSERVATION_EVALUATOR_H_
#define CERES_EXT_ROWS_OBSERVATION_EVALUATOR_H_

#include <memory>
#include <string>

#include "ceres_ext/blocks/machine_problem.h"
#include "ceres_ext/import/block_table.h"
#include "ceres_ext/import/import_rows.h"
#include "ceres_ext/options.h"
#include "ceres_ext/rows/batch_evaluator.h"
#include "ceres_ext/summary.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

// The reason why the Jacobian of observations of these points can't be
// recomputed, as the end of "jacobian RECOMPUTED supports"; "" if it can.
// points_have_other_rows: rows that aren't observations have the derivatives of
// manifolds in their blocks. On the threads of *host_context.
std::string WhyNotRecomputed(const ObservationTable& rows,
                             const BlockTable& points,
                             bool points_have_other_rows,
                             kernels::HostContext* host_context);

// Takes the constants and losses of `rows`. All memory of evaluations is taken
// here. *observations, what blocks refers to and *host_context, whose threads
// call users' losses, outlive the evaluator. *summary says how many those are.
// recomputed: WhyNotRecomputed has nothing against these rows.
template <typename Machine>
kernels::Status CreateObservationEvaluator(
    bool recomputed,
    bool mixed,
    const ObservationTable& rows,
    const ObservationBlocks<Machine>* observations,
    const solver::ProblemBlocks& blocks,
    kernels::HostContext* host_context,
    Summary* summary,
    std::unique_ptr<BatchEvaluator>* evaluator);

}  // namespace ceres_ext

#endif  // CERES_EXT_ROWS_OBSERVATION_EVALUATOR_H_
