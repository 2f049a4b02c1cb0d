// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/step_vectors.h"

#include "ceres/types.h"
#include "ceres_ext/glue/machines.h"

namespace ceres_ext {

using ceres::internal::LinearSolver;
using ceres::internal::LinearSolverTerminationType;
using kernels::Status;

template <typename Machine>
Status StepVectors<Machine>::Allocate(const BatchShape<Machine>* shape) {
  shape_ = shape;
  Machine* machine = shape->machine();
  const int64_t camera_values = shape->cameras().padded_values();
  const int64_t point_values = shape->points().padded_values();
  CERES_EXT_RETURN_IF_ERROR(
      machine->Allocate(camera_values, &camera_diagonal_));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(point_values, &point_diagonal_));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(camera_values, &camera_step_));
  return machine->Allocate(point_values, &point_step_);
}

template <typename Machine>
Status StepVectors<Machine>::SetDiagonal(const double* D) {
  if (D != nullptr) {
    return shape_->Gather(
        D, 1.0, camera_diagonal_.data(), point_diagonal_.data());
  }
  Machine* machine = shape_->machine();
  CERES_EXT_RETURN_IF_ERROR(kernels::Run(
      kernels::SetPaddingParams{
          shape_->camera_table(), 0.0, 1.0, camera_diagonal_.data()},
      machine));
  return kernels::Run(
      kernels::SetPaddingParams{
          shape_->point_table(), 0.0, 1.0, point_diagonal_.data()},
      machine);
}

template <typename Machine>
Status StepVectors<Machine>::GetStep(double* x) const {
  return shape_->Scatter(camera_step_.data(), point_step_.data(), x);
}

template <typename Machine>
int64_t StepVectors<Machine>::bytes() const {
  return camera_diagonal_.bytes() + point_diagonal_.bytes() +
         camera_step_.bytes() + point_step_.bytes();
}

#define CERES_EXT_INSTANTIATE(Machine) template class StepVectors<Machine>;
CERES_EXT_FOR_EACH_MACHINE(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

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
         (ext_options.jacobian == JACOBIAN_STORED ? ", stored Jacobian ("
                                                  : ", recomputed Jacobian (") +
         (ext_options.precision == PRECISION_DOUBLE ? "double), "
                                                    : "mixed), ") +
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

LinearSolver::Summary FatalError(const Status& status) {
  LinearSolver::Summary summary;
  summary.num_iterations = 0;
  summary.termination_type = LinearSolverTerminationType::FATAL_ERROR;
  summary.message = status.message;
  return summary;
}

}  // namespace ceres_ext
