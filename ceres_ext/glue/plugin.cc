// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/plugin.h"

#include <type_traits>
#include <utility>

#include "ceres/ordered_groups.h"
#include "ceres/parameter_block.h"
#include "ceres/program.h"
#include "ceres/types.h"
#include "ceres_ext/glue/backends.h"
#include "ceres_ext/glue/evaluator.h"
#include "ceres_ext/glue/linear_solver.h"
#include "ceres_ext/glue/trust_region_vectors.h"
#include "ceres_ext/glue/row_linear_solver.h"
#include "cuda_kernels/model/jacobian_source.h"

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

#ifdef CERES_EXT_WITH_CUDA
// Tiles for the Jacobian that the solve will use. They are cut before the
// columns of a camera are known, and do not depend on them.
kernels::CudaWorkspace::Options WorkspaceOptions(const Options& options) {
  using WorkspaceOptions = kernels::CudaWorkspace::Options;
  const bool explicit_w = options.w_product == W_EXPLICIT;
  if (options.jacobian == JACOBIAN_STORED) {
    return WorkspaceOptions::For<
        kernels::StoredJacobian<double, 9, CudaMachine::kLayout>>(explicit_w);
  }
  return options.precision == PRECISION_MIXED
             ? WorkspaceOptions::For<kernels::RecomputedJacobian<float, 9>>(
                   explicit_w)
             : WorkspaceOptions::For<kernels::RecomputedJacobian<double, 9>>(
                   explicit_w);
}
#endif

}  // namespace

BundlePlugin::BundlePlugin(const Options& options, bool append_to_message)
    : options_(options),
      effective_options_(options),
      append_to_message_(append_to_message),
      reason_("Ceres ended before it asked for a linear solver") {}

BundlePlugin::~BundlePlugin() = default;

void BundlePlugin::Decline(const std::string& reason) {
  path_ = PATH_CERES;
  reason_ = reason;
}

bool BundlePlugin::MayFallBack(const std::string& reason,
                               std::string* error) const {
  if (options_.fallback == FALLBACK_TO_CERES) {
    return true;
  }
  *error = "Ceres Ext refuses the problem: " + reason + ".";
  return false;
}

void BundlePlugin::UseHost(const std::string& why_no_device) {
  why_no_device_ = why_no_device;
  effective_options_ = options_;
  // The host computes in double; MethodName says so.
  effective_options_.precision = PRECISION_DOUBLE;
  host_.machine = std::make_unique<HostMachine>(num_threads_);
  record_.device =
      "host, " + std::to_string(host_.machine->host_context()->num_threads()) +
      " threads";
  if (!why_no_device.empty()) {
    record_.device += " (no device: " + why_no_device + ")";
  }
}

#ifdef CERES_EXT_WITH_CUDA
Status BundlePlugin::CreateCudaMachine(std::unique_ptr<CudaMachine>* machine) {
  kernels::CudaContextOptions options;
  options.device = options_.cuda_device;
  options.stream = static_cast<cudaStream_t>(options_.cuda_stream);
  options.memory_limit = options_.cuda_memory_limit_bytes;
  std::unique_ptr<kernels::CudaContext> context;
  CERES_EXT_RETURN_IF_ERROR(kernels::CudaContext::Create(options, &context));
  effective_options_ = options_;
  record_.device = context->device_name() + " (CUDA device " +
                   std::to_string(context->device()) + ")";
  *machine = std::make_unique<CudaMachine>(
      WorkspaceOptions(options_), num_threads_, std::move(context));
  if (options_.cuda_graph) {
    (*machine)->EnableLoops();
  }
  return {};
}
#endif

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
  num_threads_ = pp->options.num_threads;
  path_ = PATH_LINEAR_SOLVER;
  BatchStructure batch;
  if (!options_.batch_evaluation) {
    reason_ = "batch_evaluation is switched off";
    return false;
  }
  {
    kernels::HostContext context(num_threads_);
    if (!ImportBatch(*pp->reduced_program, &context, &batch, &reason_)) {
      return false;
    }
  }
  if (!OrderingEliminatesPoints(pp->options, batch, *pp->reduced_program)) {
    reason_ =
        "linear_solver_ordering does not eliminate just the points first, so "
        "Ceres orders and evaluates";
    return false;
  }

  Status status;
  std::string why_no_device;
#ifdef CERES_EXT_WITH_CUDA
  if (WantsDevice()) {
    if (ceres::internal::AreHostVectorsRequired(*pp, &why_no_device)) {
      status = Status(kernels::StatusCode::kUnsupported, why_no_device);
    } else {
      status = CreateCudaMachine(&cuda_.machine);
    }
    if (status.ok()) {
      status = SetupBatch(batch, pp, &cuda_);
    }
    if (status.ok()) {
      path_ = PATH_FULL;
    } else {
      why_no_device = status.message;
      evaluator_.reset();
      linear_solver_.reset();
      vectors_.reset();
      cuda_.Reset();
    }
  }
#else
  if (options_.device == DEVICE_CUDA) {
    why_no_device = "this build has no CUDA";
  }
#endif
  if (options_.device == DEVICE_CUDA && !why_no_device.empty() &&
      options_.fallback == FALLBACK_REFUSE) {
    Decline("device = CUDA: " + why_no_device);
    return false;
  }
  if (path_ != PATH_FULL) {
    UseHost(why_no_device);
    status = SetupBatch(batch, pp, &host_);
    if (status.ok()) {
      path_ = PATH_FULL;
    } else {
      reason_ = status.message;
      evaluator_.reset();
      linear_solver_.reset();
      vectors_.reset();
      host_.Reset();
    }
  }
  if (path_ == PATH_FULL) {
    reason_ = "all residual blocks are in one batch";
  }
  return path_ == PATH_FULL;
}

template <typename Backend>
Status BundlePlugin::SetupBatch(const BatchStructure& batch,
                                PreprocessedProblem* pp,
                                Site<Backend>* site) {
  CERES_EXT_RETURN_IF_ERROR(
      site->shape.Setup(pp->reduced_program->NumEffectiveParameters(),
                        pp->reduced_program->NumParameters(),
                        batch,
                        site->machine.get()));
  const bool nine = batch.cameras.padded_size == 9;
  if constexpr (!std::is_same_v<Backend, HostMachine>) {
    if (options_.precision == PRECISION_MIXED) {
      return nine ? CreateBatchObjects<Backend, float, 9>(batch, pp, site)
                  : CreateBatchObjects<Backend, float, 10>(batch, pp, site);
    }
  }
  return nine ? CreateBatchObjects<Backend, double, 9>(batch, pp, site)
              : CreateBatchObjects<Backend, double, 10>(batch, pp, site);
}

template <typename Backend, typename T, int C>
Status BundlePlugin::CreateBatchObjects(const BatchStructure& batch,
                                        PreprocessedProblem* pp,
                                        Site<Backend>* site) {
  Status status;
  auto evaluator = BatchEvaluator<Backend, T, C>::Create(
      options_.jacobian, batch, &site->shape, pp, &status);
  CERES_EXT_RETURN_IF_ERROR(status);
  ceres::internal::LinearSolver::Options linear_solver_options;
  linear_solver_options.type = pp->options.linear_solver_type;
  linear_solver_options.preconditioner_type = pp->options.preconditioner_type;
  linear_solver_options.min_num_iterations =
      pp->options.min_linear_solver_iterations;
  linear_solver_options.max_num_iterations =
      pp->options.max_linear_solver_iterations;
  auto linear_solver =
      BatchLinearSolver<Backend, T, C>::Create(effective_options_,
                                               linear_solver_options,
                                               &site->shape,
                                               &record_,
                                               &status);
  CERES_EXT_RETURN_IF_ERROR(status);
  const BlockTable& cameras = site->shape.cameras();
  const BlockTable& points = site->shape.points();
  num_points_ = points.NumVarying();
  num_cameras_ = cameras.NumVarying();
  schur_structure_ = "2," + std::to_string(points.MaxTangentSize()) + "," +
                     std::to_string(cameras.MaxTangentSize());
  auto vectors = std::make_shared<LoopVectors<Backend>>(site->machine.get());
  CERES_EXT_RETURN_IF_ERROR(vectors->Setup(evaluator->NumParameters(),
                                           evaluator->NumEffectiveParameters(),
                                           evaluator->NumResiduals()));
  record_.memory_bytes = std::is_same_v<Backend, HostMachine>
                             ? site->machine->bytes() + site->shape.bytes() +
                                   evaluator->bytes() + linear_solver->bytes() +
                                   vectors->bytes()
                             : site->machine->bytes();
  evaluator_ = std::move(evaluator);
  linear_solver_ = std::move(linear_solver);
  vectors_ = std::move(vectors);
  return status;
}

bool BundlePlugin::SetupLinearSolver(PreprocessedProblem* pp) {
  if (path_ == PATH_LINEAR_SOLVER) {
    ScopedSeconds timer(&record_.setup_time_in_seconds);
    std::string error;
    if (options_.jacobian == JACOBIAN_RECOMPUTED) {
      error = "jacobian RECOMPUTED needs this library's evaluation: " + reason_;
    } else {
      std::string why_no_device;
#ifdef CERES_EXT_WITH_CUDA
      if (WantsDevice()) {
        const Status status = CreateCudaMachine(&cuda_.machine);
        why_no_device = status.message;
        if (status.ok()) {
          linear_solver_ = CreateRowLinearSolver(effective_options_,
                                                 pp->linear_solver_options,
                                                 *pp->reduced_program,
                                                 cuda_.machine.get(),
                                                 &record_,
                                                 &why_no_device);
        }
      }
#else
      if (options_.device == DEVICE_CUDA) {
        why_no_device = "this build has no CUDA";
      }
#endif
      if (linear_solver_ == nullptr) {
#ifdef CERES_EXT_WITH_CUDA
        cuda_.Reset();
#endif
        UseHost(why_no_device);
        linear_solver_ = CreateRowLinearSolver(effective_options_,
                                               pp->linear_solver_options,
                                               *pp->reduced_program,
                                               host_.machine.get(),
                                               &record_,
                                               &error);
      }
      if (options_.device == DEVICE_CUDA && !why_no_device.empty() &&
          options_.fallback == FALLBACK_REFUSE) {
        linear_solver_.reset();
        error = "device = CUDA: " + why_no_device;
      }
    }
    if (linear_solver_ == nullptr) {
      Decline(error);
    }
  }
  if (path_ == PATH_CERES && options_.enabled &&
      !MayFallBack(reason_, &pp->error)) {
    return false;
  }
  pp->linear_solver = std::move(linear_solver_);
  return true;
}

bool BundlePlugin::SetupEvaluator(PreprocessedProblem* pp) {
#ifdef CERES_EXT_WITH_CUDA
  if (cuda_.machine != nullptr) {
    record_.transfer_bytes = -cuda_.machine->copied_bytes();
  }
#endif
  pp->evaluator = std::move(evaluator_);
  return true;
}

std::shared_ptr<ceres::internal::TrustRegionVectors>
BundlePlugin::CreateTrustRegionVectors(PreprocessedProblem* /*pp*/) {
  return std::move(vectors_);
}

void BundlePlugin::Finish(const PreprocessedProblem& pp,
                          ceres::Solver::Summary* summary) {
  if (pp.options.minimizer_type == ceres::LINE_SEARCH) {
    Decline("minimizer_type LINE_SEARCH has no linear solver");
  }
  if (path_ == PATH_FULL) {
    // Ceres sees no block structure where it neither orders nor evaluates.
    summary->schur_structure_given = schur_structure_;
    summary->schur_structure_used = schur_structure_;
    if (pp.options.linear_solver_type == ceres::ITERATIVE_SCHUR) {
      summary->linear_solver_ordering_used = {num_points_, num_cameras_};
    }
  }
#ifdef CERES_EXT_WITH_CUDA
  if (cuda_.machine != nullptr) {
    record_.transfer_bytes += cuda_.machine->copied_bytes();
  }
#endif
  if (append_to_message_) {
    summary->message += std::string(" [Ceres Ext: path ") +
                        SolvePathToString(path_) +
                        (path_ == PATH_CERES ? "" : " on " + record_.device) +
                        ", " + reason_ + ".]";
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
  summary->transfer_bytes = record_.transfer_bytes;
}

}  // namespace ceres_ext
