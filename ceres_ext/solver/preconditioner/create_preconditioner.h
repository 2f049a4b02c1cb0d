// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The preconditioner that options ask for.
#ifndef CERES_EXT_SOLVER_PRECONDITIONER_CREATE_PRECONDITIONER_H_
#define CERES_EXT_SOLVER_PRECONDITIONER_CREATE_PRECONDITIONER_H_

#include <memory>
#include <utility>
#include <vector>

#include "ceres_ext/solver/batch.h"
#include "ceres_ext/solver/operator/schur_complement.h"
#include "ceres_ext/solver/preconditioner/block_diagonal.h"
#include "ceres_ext/solver/preconditioner/power_series.h"
#include "ceres_ext/solver/preconditioner/preconditioner.h"
#include "ceres_ext/solver/preconditioner/two_level.h"
#include "ceres_ext/solver/rank_sums.h"
#include "ceres_ext/solver/step_options.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext::solver {

// schur: the operator, null if it is another one. ranks: null if there is one.
// Batches, *schur, *ranks and *context outlive the preconditioner. A second
// level needs a context; a solver whose columns are wanted has none.
template <typename Machine>
std::unique_ptr<Preconditioner<Machine>> CreatePreconditioner(
    const StepOptions& options,
    const std::vector<Batch*>& batches,
    const std::vector<unsigned char>& f_varies,
    SchurComplement<Machine>* schur,
    RankSums<Machine>* ranks,
    kernels::HostContext* context) {
  std::unique_ptr<Preconditioner<Machine>> result;
  switch (options.preconditioner) {
    case PreconditionerType::kIdentity:
      result = std::make_unique<Preconditioner<Machine>>();
      break;
    case PreconditionerType::kJacobi:
      if (!options.use_spse_initialization) {
        result = std::make_unique<BlockDiagonalPreconditioner<Machine>>(false);
      }
      break;
    case PreconditionerType::kSchurJacobi:
      result = std::make_unique<BlockDiagonalPreconditioner<Machine>>(true);
      break;
    case PreconditionerType::kSchurPowerSeriesExpansion:
      break;
  }
  if (result == nullptr || options.use_spse_initialization) {
    return std::make_unique<PowerSeriesExpansion<Machine>>(
        options, std::move(result), schur);
  }
  if (options.may_be_coarse() && context != nullptr && !options.wants_columns) {
    return std::make_unique<TwoLevelPreconditioner<Machine>>(
        options, std::move(result), batches, f_varies, schur, ranks, context);
  }
  return result;
}

}  // namespace ceres_ext::solver

#endif  // CERES_EXT_SOLVER_PRECONDITIONER_CREATE_PRECONDITIONER_H_
