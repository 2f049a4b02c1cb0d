// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/linear_solver.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "ceres/parameter_block.h"
#include "ceres/program.h"
#include "ceres/types.h"
#include "ceres_ext/glue/machines.h"
#include "ceres_ext/glue/scoped_seconds.h"
#include "cuda_kernels/machine/cuda_cholesky.h"
#include "cuda_kernels/machine/cuda_sparse_cholesky.h"

namespace ceres_ext {

using ceres::internal::LinearSolver;
using ceres::internal::LinearSolverTerminationType;
using kernels::Status;
using kernels::StatusCode;

namespace {

// Which rows there are, and of which of them the Jacobian is recomputed.
struct RowKinds {
  bool observations = false;
  bool views = false;
  bool recomputed_views = false;
  bool general = false;
};

// ", Cholesky (double) of S as a dense matrix (n = 144, 0.166 MB)", ", Cholesky
// (double) of S as a sparse matrix (n = 144, 100 blocks, 12 % of its elements,
// 0.166 MB, factor 1.2 MB)", or, of products alone, ", products by S as a
// sparse matrix (n = 144, 100 blocks, 12 % of its elements, 0.166 MB)".
std::string MatrixName(const solver::SchurMatrixSize& size, bool mixed) {
  const auto n = static_cast<long long>(size.num_unknowns);  // NOLINT
  const double megabytes = 8e-6 * static_cast<double>(size.num_values);
  std::string name = ", products by S";
  if (size.is_factorized) {
    name =
        std::string(", Cholesky (") + (mixed ? "float" : "double") + ") of S";
  }
  char text[160];
  if (!size.is_sparse) {
    std::snprintf(text,
                  sizeof(text),
                  " as a dense matrix (n = %lld, %.3g MB)",
                  n,
                  megabytes);
    return name + text;
  }
  const double triangle =
      0.5 * static_cast<double>(n) * static_cast<double>(n + 1);
  std::snprintf(
      text,
      sizeof(text),
      " as a sparse matrix (n = %lld, %lld blocks, %.2g %% of its "
      "elements, %.3g MB",
      n,
      static_cast<long long>(size.num_blocks),  // NOLINT
      n == 0 ? 0.0 : 100.0 * static_cast<double>(size.num_values) / triangle,
      megabytes);
  name += text;
  if (size.is_factorized) {
    std::snprintf(text,
                  sizeof(text),
                  ", factor %.3g MB",
                  8e-6 * static_cast<double>(size.num_factor_values));
    name += text;
  }
  return name + ")";
}

// "Schur, implicit W, stored Jacobian (double), SCHUR_JACOBI", or, where
// `matrix` is not null, that in place of "implicit W", of a factorisation
// without a preconditioner. Rows of any shape are stored in double, and those
// of views recomputed in double.
std::string MethodName(const Options& ext_options,
                       const RowKinds& rows,
                       int num_merged_blocks,
                       const solver::SchurMatrixSize* matrix,
                       const LinearSolver::Options& options) {
  const bool recomputed_observations =
      rows.observations && ext_options.jacobian == JACOBIAN_RECOMPUTED;
  const bool stored_views = rows.views && !rows.recomputed_views;
  const bool mixed = ext_options.precision == PRECISION_MIXED;
  const auto in = [](bool is_mixed) { return is_mixed ? "mixed)" : "double)"; };
  std::string name = options.type == ceres::CGNR ? "without Schur" : "Schur";
  name += matrix != nullptr
              ? MatrixName(*matrix, options.use_mixed_precision_solves)
              : ", implicit W";
  if (recomputed_observations || rows.recomputed_views) {
    name += ", recomputed Jacobian (";
    name += in(mixed && recomputed_observations);
    if (stored_views || rows.general) {
      name += ", other rows stored (";
      name += in(mixed && stored_views);
    }
  } else {
    name += ", stored Jacobian (";
    name += in(mixed && (rows.observations || rows.views));
    if ((rows.observations || rows.views) && rows.general) {
      name += ", other rows stored (double)";
    }
  }
  if (IsFactorized(options.type)) {
    return name;
  }
  name += ", ";
  name += ceres::PreconditionerTypeToString(options.preconditioner_type);
  if (num_merged_blocks > 0) {
    name += " with " + std::to_string(num_merged_blocks) + " merged blocks";
  }
  return name;
}

// Adds the solve's times and iterations to *record.
LinearSolver::Summary ToCeresSummary(
    const solver::InexactSolverSummary& summary,
    bool is_factorized,
    Summary* record) {
  record->num_pcg_iterations += is_factorized ? 0 : summary.num_iterations;
  record->num_solves_at_pcg_limit += summary.is_at_limit ? 1 : 0;
  record->normal_blocks_time_in_seconds += summary.normal_blocks_seconds;
  record->schur_time_in_seconds += summary.schur_seconds;
  record->factorization_time_in_seconds += summary.factorization_seconds;
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

}  // namespace

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

solver::InexactSolverOptions ToInexactSolverOptions(
    const Options& ext_options, const LinearSolver::Options& options) {
  solver::InexactSolverOptions result;
  result.use_schur = options.type != ceres::CGNR;
  if (IsFactorized(options.type)) {
    switch (ext_options.schur_factorization) {
      case SCHUR_FACTORIZATION_AUTO:
        result.factorization = solver::Factorization::kAuto;
        break;
      case SCHUR_FACTORIZATION_DENSE:
        result.factorization = solver::Factorization::kDense;
        break;
      case SCHUR_FACTORIZATION_SPARSE:
        result.factorization = solver::Factorization::kSparse;
        break;
    }
    result.use_mixed_precision_solves = options.use_mixed_precision_solves;
    result.max_num_refinement_iterations =
        options.max_num_refinement_iterations;
    return result;
  }
  ToPreconditionerType(options.preconditioner_type, &result.preconditioner);
  result.use_explicit_schur_complement =
      result.use_schur && options.use_explicit_schur_complement;
  result.min_num_iterations = options.min_num_iterations;
  result.max_num_iterations = options.max_num_iterations;
  result.residual_reset_period = options.residual_reset_period;
  // As in Ceres, without meaning for CGNR.
  result.use_spse_initialization =
      result.use_schur && options.use_spse_initialization;
  result.max_num_spse_iterations = options.max_num_spse_iterations;
  result.spse_tolerance = options.spse_tolerance;
  return result;
}

std::string WhyNoFactorization([[maybe_unused]] SchurFactorizationType type) {
  if constexpr (!kHasCuda) {
    return "this build has no CUDA";
  } else {
    const auto why = [](const Status& status) {
      return status.message.substr(
          0, status.message.size() - (status.message.empty() ? 0 : 1));
    };
    const std::string dense =
        type == SCHUR_FACTORIZATION_SPARSE
            ? ""
            : why(kernels::CudaDenseCholesky::Available());
    if (type == SCHUR_FACTORIZATION_DENSE ||
        (type == SCHUR_FACTORIZATION_AUTO && dense.empty())) {
      return dense;
    }
    const std::string sparse = why(kernels::CudaSparseCholesky::Available());
    return sparse.empty() || dense.empty() ? sparse : dense + "; " + sparse;
  }
}

template <typename Machine>
Status ProgramLinearSolver<Machine>::Setup(
    const ceres_ext::Options& ext_options,
    bool recomputed_views,
    const LinearSolver::Options& options) {
  const solver::ProblemBlocks& blocks = blocks_->blocks();
  model_cost_tolerance_ = ext_options.model_cost_tolerance;
  forcing_sequence_ = ext_options.forcing_sequence;
  if (forcing_sequence_ == FORCING_SEQUENCE_AUTO) {
    forcing_sequence_ = blocks.merged.num_merged > 0
                            ? FORCING_SEQUENCE_MODEL_COST
                            : FORCING_SEQUENCE_CONSTANT;
  }
  const solver::InexactSolverOptions of_solver =
      ToInexactSolverOptions(ext_options, options);
  std::vector<unsigned char> f_varies;
  if (of_solver.needs_schur_matrix()) {
    CERES_EXT_RETURN_IF_ERROR(FindUnknowns(&f_varies));
  }
  CERES_EXT_RETURN_IF_ERROR(solver_.Setup(of_solver,
                                          blocks,
                                          jacobian_->batches(),
                                          blocks_->machine(),
                                          std::move(f_varies)));
  const solver::SchurMatrixSize* matrix = nullptr;
  const auto add_forecast = [this](const auto& of) {
    record_->memory_forecast_bytes =
        std::max(record_->memory_forecast_bytes + of.forecast_bytes(),
                 of.build_forecast_bytes());
  };
  if (solver_.cholesky() != nullptr) {
    matrix = &solver_.cholesky()->size();
    matrix_name_ = MatrixName(*matrix, options.use_mixed_precision_solves);
    add_forecast(*solver_.cholesky());
  } else if (solver_.explicit_schur() != nullptr) {
    matrix = &solver_.explicit_schur()->matrix_size();
    add_forecast(*solver_.explicit_schur());
  }
  record_->method = MethodName(ext_options,
                               {blocks_->num_observation_batches() > 0,
                                blocks_->views() != nullptr,
                                recomputed_views,
                                blocks_->general_rows() != nullptr},
                               blocks.merged.num_merged,
                               matrix,
                               options);
  return {};
}

template <typename Machine>
Status ProgramLinearSolver<Machine>::FindUnknowns(
    std::vector<unsigned char>* f_varies) const {
  const auto padding = blocks_->working_diagonal();
  CERES_EXT_RETURN_IF_ERROR(
      blocks_->Gather(nullptr, 1.0, padding.e, padding.f));
  std::vector<double> is_padding(
      static_cast<size_t>(blocks_->blocks().f.num_values()));
  CERES_EXT_RETURN_IF_ERROR(blocks_->machine()->Download(
      static_cast<int64_t>(is_padding.size()), padding.f, is_padding.data()));
  for (const double value : is_padding) {
    f_varies->push_back(value == 0.0 ? 1 : 0);
  }
  return {};
}

template <typename Machine>
LinearSolver::Summary ProgramLinearSolver<Machine>::Solve(
    ceres::internal::LinearOperator* A,
    const double* b,
    const LinearSolver::PerSolveOptions& per_solve_options,
    double* x) {
  const ScopedSeconds timer(&calls_.time);
  ++calls_.calls;
  LinearSolver::Summary summary;
  failure_->Guard(false, [&] {
    if (A != jacobian_) {
      failure_->Set("The linear solver was set up for another Jacobian.");
    } else if (!failure_->has_happened()) {
      const CurrentMachine<Machine> current(blocks_->machine());
      const Status status =
          current.status().ok()
              ? SolveUnguarded(b, per_solve_options, x, &summary)
              : current.status();
      if (!status.ok()) {
        failure_->Set(status);
      } else if (summary.termination_type ==
                 LinearSolverTerminationType::FATAL_ERROR) {
        failure_->Set(Status(StatusCode::kDeviceError, summary.message));
      }
    }
    return true;
  });
  if (failure_->has_happened()) {
    summary.num_iterations = 0;
    summary.termination_type = LinearSolverTerminationType::FATAL_ERROR;
    AssignOrShorten(failure_->sentence(), &summary.message);
  }
  return summary;
}

template <typename Machine>
Status ProgramLinearSolver<Machine>::SolveUnguarded(
    const double* b,
    const LinearSolver::PerSolveOptions& per_solve_options,
    double* x,
    LinearSolver::Summary* summary) {
  if (calls_.calls == 1) {
    CERES_EXT_RETURN_IF_ERROR(FindDegenerateBlocks());
  }
  // Padding is damped by one, so that its step is zero.
  const auto diagonal = blocks_->working_diagonal();
  const auto step = blocks_->working();
  CERES_EXT_RETURN_IF_ERROR(
      blocks_->Gather(per_solve_options.D, 1.0, diagonal.e, diagonal.f));
  solver::InexactSolverPerSolveOptions per_solve;
  per_solve.q_tolerance = per_solve_options.q_tolerance;
  per_solve.r_tolerance = per_solve_options.r_tolerance;
  per_solve.model_cost_tolerance = model_cost_tolerance_ * jacobian_->cost();
  per_solve.use_model_cost = forcing_sequence_ == FORCING_SEQUENCE_MODEL_COST;
  per_solve.use_forcing_sequence =
      forcing_sequence_ == FORCING_SEQUENCE_EISENSTAT_WALKER;
  per_solve.is_same_linearization =
      jacobian_->num_evaluations() == last_evaluation_;
  last_evaluation_ = jacobian_->num_evaluations();
  *summary = ToCeresSummary(
      solver_.Solve({b, diagonal.e, diagonal.f}, per_solve, step.e, step.f),
      solver_.cholesky() != nullptr,
      record_);
  NoteReplacedMatrix();
  if constexpr (!kIsHost<Machine>) {
    // cuDSS takes the memory of a factor with the first one.
    record_->memory_bytes = std::max(
        record_->memory_bytes, blocks_->machine()->context()->peak_bytes());
  }
  return blocks_->Scatter(step.e, step.f, x);
}

template <typename Machine>
void ProgramLinearSolver<Machine>::NoteReplacedMatrix() {
  const std::string& why = solver_.why_dense();
  const size_t place = record_->method.find(matrix_name_);
  if (why.empty() || matrix_name_.empty() || place == std::string::npos) {
    return;
  }
  // There is no sparse factor of mixed precision.
  record_->method.replace(
      place,
      matrix_name_.size(),
      MatrixName(solver_.cholesky()->size(), /*mixed=*/false));
  record_->path_reason += "; the Schur complement is a dense matrix since " +
                          why.substr(0, why.size() - 1);
  matrix_name_.clear();
}

template <typename Machine>
Status ProgramLinearSolver<Machine>::FindDegenerateBlocks() {
  const ScopedSeconds timer(&record_->normal_blocks_time_in_seconds);
  const auto padding = blocks_->working_diagonal();
  CERES_EXT_RETURN_IF_ERROR(
      blocks_->Gather(nullptr, 1.0, padding.e, padding.f));
  solver::DegenerateBlocks e;
  solver::DegenerateBlocks f;
  CERES_EXT_RETURN_IF_ERROR(
      solver_.FindDegenerateBlocks(padding.e, padding.f, &e, &f));
  record_->degenerate_eliminated_blocks = Named(e, blocks_->e());
  record_->degenerate_other_blocks = Named(f, blocks_->f());
  return {};
}

template <typename Machine>
ceres_ext::DegenerateBlocks ProgramLinearSolver<Machine>::Named(
    const solver::DegenerateBlocks& degenerate,
    const std::vector<FamilyTable<Machine>>& families) const {
  ceres_ext::DegenerateBlocks named;
  if (degenerate.count == 0) {
    return named;
  }
  named.count = degenerate.count;
  named.worst_relative_pivot = degenerate.relative_pivot;
  const int offset =
      families[degenerate.family].table().state_offset(degenerate.block);
  if (caller_state_ != nullptr) {
    named.worst = caller_state_->Find(offset);
    return named;
  }
  for (const auto* block : program_->parameter_blocks()) {
    if (block->state_offset() == offset) {
      named.worst = block->user_state();
    }
  }
  return named;
}

template <typename Machine>
std::map<std::string, ceres::internal::CallStatistics>
ProgramLinearSolver<Machine>::Statistics() const {
  using Calls = std::map<std::string, ceres::internal::CallStatistics>;
  return failure_->Guard(Calls(), [&] {
    return Calls{{"LinearSolver::Solve", calls_}};
  });
}

#define CERES_EXT_INSTANTIATE(Machine) \
  template class ProgramLinearSolver<Machine>;
CERES_EXT_FOR_EACH_MACHINE(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext
