// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Evaluates a batch of observations: cost, residuals, gradient and the Jacobian
// in tangent columns, with manifolds, constant blocks and loss functions
// (losses.h).
//
// With Jc the derivative by a camera's 9 local coordinates, map_c its camera
// map and T_p the derivative of a point by its tangent:
//
//   residual  r_k                         cost = 1/2 sum rho(|r_k|^2)
//   Jacobian  [Jp T_p, Jc map_c]          corrected for the loss as Ceres does
//   gradient  J'r
//
// The order of sums does not depend on threads or runs.

#ifndef CERES_EXT_GLUE_OBSERVATION_EVALUATOR_H_
#define CERES_EXT_GLUE_OBSERVATION_EVALUATOR_H_

#include <memory>

#include "ceres_ext/glue/program_blocks.h"
#include "ceres_ext/glue/program_import.h"
#include "ceres_ext/glue/rows.h"
#include "ceres_ext/options.h"
#include "ceres_ext/summary.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {

// Takes the constants and losses of `rows`. All memory of evaluations is taken
// here. *observations, what blocks refers to and *host_context, whose threads
// call users' losses, outlive the evaluator. *summary says how many those are.
// kUnsupported, with the reason, for what the Machine or the kind of Jacobian
// doesn't know: JACOBIAN_RECOMPUTED takes neither losses nor manifolds on
// points.
template <typename Machine>
kernels::Status CreateObservationEvaluator(
    const Options& options,
    const ObservationRows& rows,
    const ObservationBlocks<Machine>* observations,
    const solver::ProblemBlocks& blocks,
    kernels::HostContext* host_context,
    Summary* summary,
    std::unique_ptr<RowsEvaluator>* evaluator);

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_OBSERVATION_EVALUATOR_H_
