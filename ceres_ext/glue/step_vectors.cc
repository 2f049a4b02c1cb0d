// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/step_vectors.h"

#include <algorithm>

#include "ceres/types.h"

namespace ceres_ext {

using ceres::internal::LinearSolver;
using ceres::internal::LinearSolverTerminationType;
using kernels::Status;

Status StepVectors::Allocate(const BlockTable* cameras,
                             const BlockTable* points,
                             kernels::HostContext* context) {
  cameras_ = cameras;
  points_ = points;
  context_ = context;
  CERES_EXT_RETURN_IF_ERROR(
      camera_diagonal_.Allocate(cameras->padded_values(), 0.0));
  CERES_EXT_RETURN_IF_ERROR(
      point_diagonal_.Allocate(points->padded_values(), 0.0));
  CERES_EXT_RETURN_IF_ERROR(
      camera_step_.Allocate(cameras->padded_values(), 0.0));
  return point_step_.Allocate(points->padded_values(), 0.0);
}

void StepVectors::SetDiagonal(const double* D) {
  const auto set = [this, D](const BlockTable& table, double* diagonal) {
    if (D != nullptr) {
      table.Gather(D, 1.0, diagonal, context_);
      return;
    }
    for (int64_t i = 0; i < table.size(); ++i) {
      double* block = diagonal + i * table.padded_size;
      std::fill_n(block, table.tangent_size[i], 0.0);
      std::fill(block + table.tangent_size[i], block + table.padded_size, 1.0);
    }
  };
  set(*cameras_, camera_diagonal_.data());
  set(*points_, point_diagonal_.data());
}

void StepVectors::GetStep(double* x) const {
  cameras_->Scatter(camera_step_.data(), x, context_);
  points_->Scatter(point_step_.data(), x, context_);
}

int64_t StepVectors::memory_bytes() const {
  return camera_diagonal_.bytes() + point_diagonal_.bytes() +
         camera_step_.bytes() + point_step_.bytes();
}

solver::InexactSolverOptions ToInexactSolverOptions(
    const Options& ext_options, const LinearSolver::Options& options) {
  solver::InexactSolverOptions result;
  result.use_schur = options.type == ceres::ITERATIVE_SCHUR;
  result.w_product = ext_options.w_product == W_IMPLICIT
                         ? solver::WProduct::kImplicit
                         : solver::WProduct::kExplicit;
  result.preconditioner = options.preconditioner_type == ceres::IDENTITY
                              ? solver::PreconditionerType::kIdentity
                          : options.preconditioner_type == ceres::JACOBI
                              ? solver::PreconditionerType::kJacobi
                              : solver::PreconditionerType::kSchurJacobi;
  result.min_num_iterations = options.min_num_iterations;
  result.max_num_iterations = options.max_num_iterations;
  result.residual_reset_period = options.residual_reset_period;
  return result;
}

std::string MethodName(const Options& ext_options,
                       const LinearSolver::Options& options) {
  return std::string(options.type == ceres::ITERATIVE_SCHUR ? "Schur"
                                                            : "without Schur") +
         (ext_options.w_product == W_IMPLICIT ? ", implicit W"
                                              : ", explicit W") +
         (ext_options.jacobian == JACOBIAN_STORED
              ? ", stored Jacobian (double), "
              : ", recomputed Jacobian (double), ") +
         ceres::PreconditionerTypeToString(options.preconditioner_type);
}

LinearSolver::Summary ToCeresSummary(
    const solver::InexactSolverSummary& summary, SolveRecord* record) {
  record->num_pcg_iterations += summary.num_iterations;
  record->normal_blocks_time_in_seconds += summary.normal_blocks_seconds;
  record->pcg_time_in_seconds += summary.pcg_seconds;
  record->back_substitution_time_in_seconds +=
      summary.back_substitution_seconds;

  LinearSolver::Summary result;
  result.residual_norm = summary.residual_norm;
  result.num_iterations = summary.num_iterations;
  result.message = summary.message;
  switch (summary.termination) {
    case solver::Termination::kSuccess:
      result.termination_type = LinearSolverTerminationType::SUCCESS;
      break;
    case solver::Termination::kNoConvergence:
      result.termination_type = LinearSolverTerminationType::NO_CONVERGENCE;
      break;
    case solver::Termination::kFailure:
      result.termination_type = LinearSolverTerminationType::FAILURE;
      break;
    case solver::Termination::kFatalError:
      result.termination_type = LinearSolverTerminationType::FATAL_ERROR;
      break;
  }
  return result;
}

}  // namespace ceres_ext
