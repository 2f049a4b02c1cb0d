// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/plan/solver_choice.h"

#include "ceres_ext/base/machines.h"
#include "ceres_ext/plan/attempts.h"

namespace ceres_ext {
namespace {

// False for a preconditioner that this library leaves to Ceres.
bool ToPreconditionerType(ceres::PreconditionerType type,
                          solver::PreconditionerType* result) {
  switch (type) {
    case ceres::IDENTITY:
      *result = solver::PreconditionerType::kIdentity;
      return true;
    case ceres::JACOBI:
      *result = solver::PreconditionerType::kJacobi;
      return true;
    case ceres::SCHUR_JACOBI:
      *result = solver::PreconditionerType::kSchurJacobi;
      return true;
    case ceres::SCHUR_POWER_SERIES_EXPANSION:
      *result = solver::PreconditionerType::kSchurPowerSeriesExpansion;
      return true;
    default:
      return false;
  }
}

}  // namespace

bool HasTimeLimit(const ceres::Solver::Options& options) {
  return options.max_solver_time_in_seconds <
         ceres::Solver::Options().max_solver_time_in_seconds;
}

std::string WhyNotSmall(const Options& options,
                        const ceres::Solver::Options& solver_options,
                        SmallLoop loop) {
  if (!options.enabled) {
    return "Options::enabled is false";
  }
  if (solver_options.minimizer_type != ceres::TRUST_REGION) {
    return "minimizer_type is LINE_SEARCH";
  }
  if (options.linear_solver == LINEAR_SOLVER_AS_GIVEN
          ? IsIterative(solver_options.linear_solver_type)
          : options.linear_solver != LINEAR_SOLVER_AUTO) {
    return "the linear solver is iterative";
  }
  if (solver_options.use_nonmonotonic_steps) {
    return "use_nonmonotonic_steps is true";
  }
  if (solver_options.use_inner_iterations) {
    return "use_inner_iterations is true";
  }
  if (solver_options.use_mixed_precision_solves) {
    return "use_mixed_precision_solves is true";
  }
  if (solver_options.linear_solver_ordering != nullptr) {
    return "linear_solver_ordering is given";
  }
  if (!solver_options.callbacks.empty() ||
      solver_options.update_state_every_iteration) {
    return "there are callbacks";
  }
  if (solver_options.check_gradients ||
      !solver_options.trust_region_minimizer_iterations_to_dump.empty()) {
    return "gradients are checked or problems are dumped";
  }
  if (solver_options.minimizer_progress_to_stdout) {
    return "minimizer_progress_to_stdout is true";
  }
  if (loop == SmallLoop::kAny) {
    return "";
  }
  if (solver_options.trust_region_strategy_type != ceres::LEVENBERG_MARQUARDT) {
    return "trust_region_strategy_type is DOGLEG";
  }
  return HasTimeLimit(solver_options) ? "max_solver_time_in_seconds is limited"
                                      : "";
}

solver::Factorization ToFactorization(SchurFactorizationType type) {
  switch (type) {
    case SCHUR_FACTORIZATION_DENSE:
      return solver::Factorization::kDense;
    case SCHUR_FACTORIZATION_SPARSE:
      return solver::Factorization::kSparse;
    default:
      return solver::Factorization::kAuto;
  }
}

std::string LinearSolverName(const ceres::Solver::Options& options) {
  const std::string name =
      ceres::LinearSolverTypeToString(options.linear_solver_type);
  return !IsIterative(options.linear_solver_type)
             ? name
             : name + " with " +
                   ceres::PreconditionerTypeToString(
                       options.preconditioner_type);
}

bool ChooseLinearSolver(const Options& options,
                        ceres::Solver::Options* solver_options) {
  ceres::LinearSolverType type = solver_options->linear_solver_type;
  ceres::PreconditionerType preconditioner =
      solver_options->preconditioner_type;
  if (options.linear_solver == LINEAR_SOLVER_AUTO &&
      solver_options->trust_region_strategy_type == ceres::DOGLEG) {
    // Its steps are exact. schur_factorization chooses dense or sparse.
    if (IsFactorized(type) && !solver_options->dynamic_sparsity &&
        !solver_options->use_mixed_precision_solves) {
      return false;
    }
    solver_options->linear_solver_type = ceres::DENSE_SCHUR;
    solver_options->dynamic_sparsity = false;
    solver_options->use_mixed_precision_solves = false;
    return true;
  }
  if (options.linear_solver == LINEAR_SOLVER_AUTO) {
    // Decide may take exact steps instead.
    type = ceres::ITERATIVE_SCHUR;
    preconditioner = ceres::SCHUR_JACOBI;
  } else if (options.linear_solver != LINEAR_SOLVER_AS_GIVEN) {
    ceres::StringToLinearSolverType(
        LinearSolverChoiceToString(options.linear_solver), &type);
  }
  if (HasSecondLevel(options.preconditioner)) {
    preconditioner = ceres::SCHUR_JACOBI;
  } else if (options.preconditioner != PRECONDITIONER_AS_GIVEN) {
    ceres::StringToPreconditionerType(
        PreconditionerChoiceToString(options.preconditioner), &preconditioner);
  }
  if (!IsIterative(type) ||
      (type == solver_options->linear_solver_type &&
       preconditioner == solver_options->preconditioner_type)) {
    return false;
  }
  // It was said of the given choice, and is combined with SCHUR_JACOBI alone.
  solver_options->use_explicit_schur_complement &=
      solver_options->linear_solver_type == type &&
      preconditioner == ceres::SCHUR_JACOBI;
  solver_options->linear_solver_type = type;
  solver_options->preconditioner_type = preconditioner;
  solver_options->dynamic_sparsity = false;
  solver_options->use_mixed_precision_solves = false;
  return true;
}

bool GainsByChoice(const Options& options,
                   ceres::LinearSolverType given,
                   int num_columns,
                   const std::function<SolveWork()>& work) {
  if (options.linear_solver == LINEAR_SOLVER_AUTO ||
      options.device != DEVICE_AUTO || !MayFallBack(options) ||
      IsIterative(given) || !IsSmallFactorization(num_columns)) {
    return true;
  }
  return kHasCuda && WhyHost(work(), options).empty();
}

bool IsSmallSolve(const Options& options,
                  const ceres::Solver::Options& solver_options,
                  int64_t num_residuals,
                  int64_t num_columns) {
  // One thread, functors of 3 residuals, over stock's DENSE_QR: 0.8 times for 9
  // residuals and 6 columns in all, 1.0 for 63 to 900, and 1.1 for 240 and 24
  // columns. Families and batches take 3.5 times for 9 residuals, 2.1 for
  // 1,000, and 1.0 for 240 and 24 columns.
  constexpr int64_t kMostColumns = 24;
  constexpr int64_t kMostValues = kMostSmallResiduals;
  return options.linear_solver == LINEAR_SOLVER_AUTO &&
         options.device != DEVICE_CUDA &&
         options.jacobian != JACOBIAN_RECOMPUTED &&
         options.schur_factorization == SCHUR_FACTORIZATION_AUTO &&
         !solver_options.use_inner_iterations && num_columns <= kMostColumns &&
         num_columns * num_residuals <= kMostValues;
}

std::string WhyStockNormal(const Options& options,
                           const ceres::Solver::Options& solver_options,
                           NormalWork work) {
  const ceres::LinearSolverType type = solver_options.linear_solver_type;
  work.is_dense = type == ceres::DENSE_NORMAL_CHOLESKY;
  // Stock Ceres was measured on the host, and cannot do this by CUDA_SPARSE.
  const bool is_on_host =
      work.is_dense
          ? solver_options.dense_linear_algebra_library_type != ceres::CUDA
          : solver_options.sparse_linear_algebra_library_type !=
                ceres::CUDA_SPARSE;
  return IsNormalCholesky(type) && is_on_host && MayFallBack(options) &&
                 options.device != DEVICE_CUDA &&
                 options.linear_solver == LINEAR_SOLVER_AS_GIVEN &&
                 options.schur_factorization == SCHUR_FACTORIZATION_AUTO &&
                 StockNormalIsAsFast(work)
             ? std::string(ceres::LinearSolverTypeToString(type)) +
                   " of stock Ceres is as fast for so few columns and rows"
             : "";
}

bool MayHaveSmallSchur(const Options& options,
                       const ceres::Solver::Options& solver_options) {
  return options.schur_factorization != SCHUR_FACTORIZATION_SPARSE &&
         options.communicator == nullptr &&
         (IsFactorized(solver_options.linear_solver_type) ||
          options.linear_solver == LINEAR_SOLVER_AUTO);
}

std::string WhyLeftToCeres(const Options& options,
                           const ceres::Solver::Options& solver_options) {
  if (IsFactorized(solver_options.linear_solver_type)) {
    if ((solver_options.linear_solver_type == ceres::SPARSE_SCHUR ||
         solver_options.linear_solver_type == ceres::SPARSE_NORMAL_CHOLESKY) &&
        solver_options.dynamic_sparsity) {
      return "dynamic_sparsity is not supported";
    }
    return solver_options.use_mixed_precision_solves &&
                   options.schur_factorization == SCHUR_FACTORIZATION_SPARSE
               ? "the sparse factorisation (schur_factorization = SPARSE) does "
                 "not support use_mixed_precision_solves"
               : "";
  }
  if (!IsIterative(solver_options.linear_solver_type)) {
    return std::string("linear_solver_type ") +
           ceres::LinearSolverTypeToString(solver_options.linear_solver_type) +
           " is not supported, because it factorises the Jacobian and this "
           "library the normal equations, which is less accurate";
  }
  solver::PreconditionerType preconditioner;
  return ToPreconditionerType(solver_options.preconditioner_type,
                              &preconditioner)
             ? ""
             : std::string("preconditioner_type ") +
                   ceres::PreconditionerTypeToString(
                       solver_options.preconditioner_type) +
                   " is not supported; this library supports IDENTITY, JACOBI, "
                   "SCHUR_JACOBI and SCHUR_POWER_SERIES_EXPANSION";
}

solver::StepOptions ToStepOptions(
    const Options& options, const ceres::Solver::Options& solver_options) {
  solver::StepOptions result;
  result.use_schur = solver_options.linear_solver_type != ceres::CGNR;
  if (IsFactorized(solver_options.linear_solver_type)) {
    result.factorization = ToFactorization(options.schur_factorization);
    result.use_mixed_precision_solves =
        solver_options.use_mixed_precision_solves;
    result.max_num_refinement_iterations =
        solver_options.max_num_refinement_iterations;
    return result;
  }
  ToPreconditionerType(solver_options.preconditioner_type,
                       &result.preconditioner);
  result.use_explicit_schur_complement =
      result.use_schur && solver_options.use_explicit_schur_complement;
  result.min_num_iterations = solver_options.min_linear_solver_iterations;
  result.max_num_iterations = solver_options.max_linear_solver_iterations;
  // As in Ceres, without meaning for CGNR.
  result.use_spse_initialization =
      result.use_schur && solver_options.use_spse_initialization;
  result.max_num_spse_iterations = solver_options.max_num_spse_iterations;
  result.spse_tolerance = solver_options.spse_tolerance;
  return result;
}

}  // namespace ceres_ext
