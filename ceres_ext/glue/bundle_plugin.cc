// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/bundle_plugin.h"

#include <new>
#include <set>
#include <utility>

#include "ceres/ordered_groups.h"
#include "ceres/parameter_block.h"
#include "ceres/program.h"
#include "ceres/types.h"
#include "ceres_ext/glue/batch_evaluator.h"
#include "ceres_ext/glue/batch_linear_solver.h"
#include "ceres_ext/glue/ordered_vectors.h"
#include "ceres_ext/glue/row_linear_solver.h"

namespace ceres_ext {
namespace {

using ceres::internal::PreprocessedProblem;
using kernels::Status;

// Why this library leaves the linear solve to Ceres, or empty if it does not.
std::string UnsupportedOption(const ceres::Solver::Options& options) {
  if (options.linear_solver_type != ceres::ITERATIVE_SCHUR &&
      options.linear_solver_type != ceres::CGNR) {
    return std::string("linear_solver_type ") +
           ceres::LinearSolverTypeToString(options.linear_solver_type) +
           " is Ceres's own; this library replaces ITERATIVE_SCHUR and CGNR";
  }
  const bool supported_preconditioner =
      options.preconditioner_type == ceres::IDENTITY ||
      options.preconditioner_type == ceres::JACOBI ||
      options.preconditioner_type == ceres::SCHUR_JACOBI;
  if (!supported_preconditioner) {
    return std::string("preconditioner_type ") +
           ceres::PreconditionerTypeToString(options.preconditioner_type) +
           " is Ceres's own; this library has IDENTITY, JACOBI and "
           "SCHUR_JACOBI";
  }
  if (options.linear_solver_type == ceres::ITERATIVE_SCHUR &&
      options.use_explicit_schur_complement) {
    return "use_explicit_schur_complement is Ceres's own";
  }
  if (options.linear_solver_type == ceres::ITERATIVE_SCHUR &&
      options.use_spse_initialization) {
    return "use_spse_initialization is Ceres's own";
  }
  if (options.linear_solver_type == ceres::CGNR &&
      options.sparse_linear_algebra_library_type == ceres::CUDA_SPARSE) {
    return "sparse_linear_algebra_library_type CUDA_SPARSE is Ceres's own";
  }
  return "";
}

// True if the caller's elimination order, where there is one, eliminates just
// the points first, which is what the batch does.
bool OrderingEliminatesPoints(const ceres::Solver::Options& options,
                              const BatchStructure& batch,
                              const ceres::internal::Program& program) {
  const auto& ordering = options.linear_solver_ordering;
  if (options.linear_solver_type != ceres::ITERATIVE_SCHUR ||
      ordering == nullptr || ordering->NumGroups() < 2) {
    return true;
  }
  const auto& first_group = ordering->group_to_elements().begin()->second;
  size_t num_points = 0;
  for (const auto* block : program.parameter_blocks()) {
    if (block->Size() != batch.points.ambient_size) {
      continue;
    }
    ++num_points;
    if (first_group.count(const_cast<double*>(block->user_state())) == 0) {
      return false;
    }
  }
  return num_points == first_group.size();
}

}  // namespace

BundlePlugin::BundlePlugin(const Options& options, bool append_to_message)
    : options_(options),
      append_to_message_(append_to_message),
      reason_("Ceres ended before it asked for a linear solver") {}

BundlePlugin::~BundlePlugin() = default;

void BundlePlugin::Decline(const std::string& reason) {
  path_ = PATH_CERES;
  reason_ = reason;
}

bool BundlePlugin::OwnsOrdering(PreprocessedProblem* pp) {
  if (!options_.enabled) {
    Decline("this library is switched off (enabled = false)");
    return false;
  }
  const std::string unsupported = UnsupportedOption(pp->options);
  if (!unsupported.empty()) {
    Decline(unsupported);
    return false;
  }

  ScopedSeconds timer(&record_.setup_time_in_seconds);
  context_ = std::make_unique<kernels::HostContext>(pp->options.num_threads);
  record_.device =
      "host, " + std::to_string(context_->num_threads()) + " threads";
  path_ = PATH_FULL;
  reason_ = "all residual blocks are in one batch";
  std::string reason;
  if (!SetupBatch(pp, &reason)) {
    path_ = PATH_LINEAR_SOLVER;
    reason_ = reason;
    evaluator_.reset();
    linear_solver_.reset();
    shape_.reset();
  }
  return path_ == PATH_FULL;
}

bool BundlePlugin::SetupBatch(PreprocessedProblem* pp, std::string* reason) {
  if (!options_.batch_evaluation) {
    *reason = "batch_evaluation is switched off";
    return false;
  }
  BatchStructure batch;
  if (!ImportBatch(*pp->reduced_program, &batch, reason)) {
    return false;
  }
  if (!OrderingEliminatesPoints(pp->options, batch, *pp->reduced_program)) {
    *reason =
        "linear_solver_ordering does not eliminate just the points first, so "
        "Ceres orders and evaluates";
    return false;
  }
  if (options_.jacobian == JACOBIAN_RECOMPUTED &&
      (!batch.loss.empty() || batch.points.HasManifold())) {
    *reason = "jacobian RECOMPUTED takes no loss and no manifold on points";
    return false;
  }
  const Status status = batch.cameras.padded_size == 9
                            ? CreateBatchObjects<9>(&batch, pp)
                            : CreateBatchObjects<10>(&batch, pp);
  *reason = status.message;
  return status.ok();
}

template <int C>
Status BundlePlugin::CreateBatchObjects(BatchStructure* batch,
                                        PreprocessedProblem* pp) {
  shape_ = std::make_unique<BatchShape>();
  shape_->context = context_.get();
  shape_->num_columns = pp->reduced_program->NumEffectiveParameters();
  CERES_EXT_RETURN_IF_ERROR(shape_->index.Build(batch->cameras.size(),
                                                batch->points.size(),
                                                batch->num_observations(),
                                                batch->camera_id.data(),
                                                batch->point_id.data()));
  CERES_EXT_RETURN_IF_ERROR(
      shape_->backend.Setup(shape_->index.view(), context_.get()));
  shape_->cameras = std::move(batch->cameras);
  shape_->points = std::move(batch->points);

  Status status;
  auto evaluator = BatchEvaluator<C>::Create(
      options_.jacobian, *batch, shape_.get(), pp, &status);
  CERES_EXT_RETURN_IF_ERROR(status);
  ceres::internal::LinearSolver::Options linear_solver_options;
  linear_solver_options.type = pp->options.linear_solver_type;
  linear_solver_options.preconditioner_type = pp->options.preconditioner_type;
  linear_solver_options.min_num_iterations =
      pp->options.min_linear_solver_iterations;
  linear_solver_options.max_num_iterations =
      pp->options.max_linear_solver_iterations;
  auto linear_solver = BatchLinearSolver<C>::Create(
      options_, linear_solver_options, shape_.get(), &record_, &status);
  CERES_EXT_RETURN_IF_ERROR(status);
  record_.memory_bytes =
      shape_->index.bytes() + shape_->backend.workspace()->bytes() +
      shape_->cameras.MemoryBytes() + shape_->points.MemoryBytes() +
      evaluator->memory_bytes() + linear_solver->memory_bytes();
  evaluator_ = std::move(evaluator);
  linear_solver_ = std::move(linear_solver);
  return status;
}

bool BundlePlugin::SetupLinearSolver(PreprocessedProblem* pp) {
  if (path_ == PATH_LINEAR_SOLVER) {
    ScopedSeconds timer(&record_.setup_time_in_seconds);
    std::string error;
    if (options_.jacobian == JACOBIAN_RECOMPUTED) {
      error = "jacobian RECOMPUTED needs this library's evaluation: " + reason_;
    } else {
      linear_solver_ = CreateRowLinearSolver(options_,
                                             pp->linear_solver_options,
                                             *pp->reduced_program,
                                             context_.get(),
                                             &record_,
                                             &error);
    }
    if (linear_solver_ == nullptr) {
      Decline(error);
    }
  }
  if (path_ == PATH_CERES && options_.enabled &&
      options_.fallback == FALLBACK_REFUSE) {
    pp->error = "Ceres Ext refuses the problem: " + reason_ + ".";
    return false;
  }
  pp->linear_solver = std::move(linear_solver_);
  return true;
}

bool BundlePlugin::SetupEvaluator(PreprocessedProblem* pp) {
  pp->evaluator = std::move(evaluator_);
  return true;
}

std::shared_ptr<ceres::internal::TrustRegionVectors>
BundlePlugin::CreateTrustRegionVectors(PreprocessedProblem* pp) {
  if (path_ != PATH_FULL) {
    return nullptr;
  }
  return std::make_shared<OrderedVectors>(pp->problem->context(),
                                          pp->options.num_threads,
                                          pp->evaluator->NumResiduals(),
                                          context_.get());
}

void BundlePlugin::Finish(const PreprocessedProblem& pp,
                          ceres::Solver::Summary* summary) {
  if (pp.options.minimizer_type == ceres::LINE_SEARCH) {
    Decline("minimizer_type LINE_SEARCH has no linear solver");
  }
  if (path_ == PATH_FULL) {
    // Ceres sees no block structure where it neither orders nor evaluates.
    summary->schur_structure_given =
        "2," + std::to_string(shape_->points.MaxTangentSize()) + "," +
        std::to_string(shape_->cameras.MaxTangentSize());
    summary->schur_structure_used = summary->schur_structure_given;
    if (pp.options.linear_solver_type == ceres::ITERATIVE_SCHUR) {
      summary->linear_solver_ordering_used = {shape_->points.NumVarying(),
                                              shape_->cameras.NumVarying()};
    }
  }
  if (append_to_message_) {
    summary->message += std::string(" [Ceres Ext: path ") +
                        SolvePathToString(path_) + ", " + reason_ + ".]";
  }
}

void BundlePlugin::FillSummary(Summary* summary) const {
  summary->path = path_;
  summary->path_reason = reason_;
  if (path_ == PATH_CERES) {
    return;
  }
  summary->device = record_.device;
  summary->method = record_.method;
  summary->num_pcg_iterations = record_.num_pcg_iterations;
  summary->setup_time_in_seconds = record_.setup_time_in_seconds;
  summary->import_time_in_seconds = record_.import_time_in_seconds;
  summary->normal_blocks_time_in_seconds =
      record_.normal_blocks_time_in_seconds;
  summary->pcg_time_in_seconds = record_.pcg_time_in_seconds;
  summary->back_substitution_time_in_seconds =
      record_.back_substitution_time_in_seconds;
  summary->memory_bytes = record_.memory_bytes;
}

}  // namespace ceres_ext
