// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/glue/plugin.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <utility>
#include <vector>

#include "ceres/ordered_groups.h"
#include "ceres/parameter_block.h"
#include "ceres/problem_impl.h"
#include "ceres/program.h"
#include "ceres/types.h"
#include "ceres/wall_time.h"
#include "ceres_ext/glue/device_choice.h"
#include "ceres_ext/glue/elimination.h"
#include "ceres_ext/glue/linear_solver.h"
#include "ceres_ext/glue/machines.h"
#include "ceres_ext/glue/program_rows.h"
#include "ceres_ext/glue/report.h"
#include "ceres_ext/glue/scoped_seconds.h"
#include "ceres_ext/glue/solver_options.h"
#include "cuda_kernels/machine/cuda_process.h"

namespace ceres_ext {
namespace {

using ceres::internal::PreprocessedProblem;
using kernels::Status;

bool IsIterative(ceres::LinearSolverType type) {
  return type == ceres::ITERATIVE_SCHUR || type == ceres::CGNR;
}

// "SPARSE_SCHUR", "ITERATIVE_SCHUR with JACOBI"
std::string LinearSolverName(const ceres::Solver::Options& options) {
  const std::string name =
      ceres::LinearSolverTypeToString(options.linear_solver_type);
  return !IsIterative(options.linear_solver_type)
             ? name
             : name + " with " +
                   ceres::PreconditionerTypeToString(
                       options.preconditioner_type);
}

std::string WithoutPeriod(std::string text) {
  if (!text.empty() && text.back() == '.') {
    text.pop_back();
  }
  return text;
}

// A sentence as a part of another one. Names such as CUDA keep their capitals.
std::string AsClause(const std::string& sentence) {
  std::string clause = WithoutPeriod(sentence);
  if (clause.size() > 1 &&
      std::isupper(static_cast<unsigned char>(clause[1])) == 0) {
    clause[0] =
        static_cast<char>(std::tolower(static_cast<unsigned char>(clause[0])));
  }
  return clause;
}

// Makes *solver_options ask for the linear solver that is chosen, without what
// only a factorisation has. False where that is the program's already.
bool Choose(const Options& options, ceres::Solver::Options* solver_options) {
  ceres::LinearSolverType type = solver_options->linear_solver_type;
  ceres::PreconditionerType preconditioner =
      solver_options->preconditioner_type;
  if (options.linear_solver != LINEAR_SOLVER_AS_GIVEN) {
    ceres::StringToLinearSolverType(
        LinearSolverChoiceToString(options.linear_solver), &type);
  }
  if (options.preconditioner != PRECONDITIONER_AS_GIVEN) {
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

// Why this library leaves the linear solve to Ceres, or empty if it does not.
std::string UnsupportedOption(const PreprocessedProblem& pp) {
  const ceres::Solver::Options& options = pp.options;
  if (IsFactorized(options.linear_solver_type)) {
    return options.linear_solver_type == ceres::SPARSE_SCHUR &&
                   options.dynamic_sparsity
               ? "dynamic_sparsity is Ceres's own"
               : "";
  }
  if (!IsIterative(options.linear_solver_type)) {
    return std::string("linear_solver_type ") +
           ceres::LinearSolverTypeToString(options.linear_solver_type) +
           " is Ceres's own; this library replaces ITERATIVE_SCHUR, CGNR and, "
           "on a device, DENSE_SCHUR and SPARSE_SCHUR";
  }
  solver::PreconditionerType preconditioner;
  if (!ToPreconditionerType(options.preconditioner_type, &preconditioner)) {
    return std::string("preconditioner_type ") +
           ceres::PreconditionerTypeToString(options.preconditioner_type) +
           " is Ceres's own; this library has IDENTITY, JACOBI, SCHUR_JACOBI "
           "and SCHUR_POWER_SERIES_EXPANSION";
  }
  std::string error;
  if (options.linear_solver_type == ceres::CGNR &&
      options.sparse_linear_algebra_library_type == ceres::CUDA_SPARSE &&
      CanBeSolvedByCeres(pp, &error)) {
    return "sparse_linear_algebra_library_type CUDA_SPARSE is Ceres's own";
  }
  return "";
}

// "stock Ceres solves with DENSE_SCHUR on the host, because device = HOST"
std::string LeftToCeres(const ceres::Solver::Options& options,
                        const std::string& why_host) {
  return std::string("stock Ceres solves with ") +
         (IsFactorized(options.linear_solver_type)
              ? ceres::LinearSolverTypeToString(options.linear_solver_type)
              : "use_explicit_schur_complement") +
         " on the host, because " + why_host;
}

// Whether CUDA is started in this process, or there is none.
bool HasContext(int cuda_device) {
  if constexpr (kHasCuda) {
    return kernels::HasRuntimeContext(cuda_device);
  }
  return true;
}

std::string WhoEvaluates(int64_t num_rows, int64_t num_host_rows) {
  if (num_host_rows == 0) {
    return "all residual blocks are evaluated by this library";
  }
  return num_host_rows == num_rows
             ? "all residual blocks are evaluated by Ceres"
             : std::to_string(num_rows - num_host_rows) +
                   " residual blocks are evaluated by this library, " +
                   std::to_string(num_host_rows) + " by Ceres";
}

// True if the caller's elimination order, where there is one, eliminates just
// the points of observations.
bool OrderingEliminatesPoints(const ceres::Solver::Options& options,
                              const ProgramStructure& structure,
                              const ceres::internal::Program& program) {
  const auto& ordering = options.linear_solver_ordering;
  if (!ceres::IsSchurType(options.linear_solver_type) || ordering == nullptr ||
      ordering->NumGroups() < 2) {
    return true;
  }
  if (ordering->NumElements() != program.NumParameterBlocks()) {
    return false;
  }
  // In the order of the set, which a million look-ups would not be.
  std::vector<const double*> points;
  for (int i = 0; i < program.NumParameterBlocks(); ++i) {
    if (structure.is_eliminated[i] != 0) {
      points.push_back(program.parameter_blocks()[i]->user_state());
    }
  }
  const std::less<const double*> less;
  if (!std::is_sorted(points.begin(), points.end(), less)) {
    std::sort(points.begin(), points.end(), less);
  }
  const auto& first_group = ordering->group_to_elements().begin()->second;
  return std::equal(
      points.begin(), points.end(), first_group.begin(), first_group.end());
}

}  // namespace

BundlePlugin::BundlePlugin(const Options& options, bool append_to_message)
    : options_(options),
      append_to_message_(append_to_message),
      arrays_(nullptr),
      start_in_seconds_(ceres::internal::WallTimeInSeconds()),
      kept_(&own_machines_) {
  Decline("Ceres ended before it asked for a linear solver");
}

BundlePlugin::BundlePlugin(const Options& options,
                           int num_threads,
                           ArrayImport* arrays,
                           KeptMachines* kept)
    : options_(options),
      append_to_message_(false),
      arrays_(arrays),
      start_in_seconds_(ceres::internal::WallTimeInSeconds()),
      num_threads_(num_threads),
      kept_(kept) {
  Decline("Ceres ended before it asked for a linear solver");
}

void BundlePlugin::Decline(const std::string& reason) {
  record_.path = PATH_CERES;
  record_.path_reason = reason;
}

Status BundlePlugin::Use(std::unique_ptr<MachineSetup> setup,
                         ProgramStructure* structure,
                         PreprocessedProblem* pp) {
  // What an attempt before has made goes before its machine.
  objects_ = ProgramObjects();
  setup_ = std::move(setup);
  const Status status =
      setup_->SetupProgram(structure, pp, &failure_, &record_, &objects_);
  if (!status.ok()) {
    objects_ = ProgramObjects();
    setup_.reset();
  }
  return status;
}

ceres::CallbackReturnType BundlePlugin::Watch::operator()(
    const ceres::IterationSummary& /*summary*/) {
  if (plugin_->setup_ != nullptr && !plugin_->setup_->IsAlive()) {
    plugin_->failure_.Set(
        Status(kernels::StatusCode::kDeviceError,
               "The device was reset, or broken by a kernel, in a callback."));
  }
  return ceres::SOLVER_CONTINUE;
}

bool BundlePlugin::Import(const ImportOptions& import_options,
                          const PreprocessedProblem& pp,
                          ProgramStructure* structure) {
  kernels::HostContext* const context = kept_->host_context(num_threads_);
  return arrays_ != nullptr
             ? arrays_->Import(import_options,
                               /*wants_hash=*/kept_->is_for_several,
                               context,
                               structure,
                               &record_.path_reason)
             : ImportProgram(*pp.reduced_program,
                             import_options,
                             context,
                             structure,
                             &record_.path_reason);
}

SolveWork BundlePlugin::Work(const PreprocessedProblem& pp) const {
  SolveWork work;
  if (arrays_ != nullptr) {
    int64_t num_values = 0;
    int64_t num_host_values = 0;
    arrays_->CountValues(
        options_.batch_evaluation, &num_values, &num_host_values);
    work = EstimateWork(num_values, num_host_values, pp.options, options_);
  } else {
    work = EstimateWork(ProgramRows(*pp.reduced_program), pp.options, options_);
  }
  work.num_threads = num_threads_;
  return work;
}

Status BundlePlugin::UseDeviceOrHost(const ImportOptions& import_options,
                                     ProgramStructure* structure,
                                     PreprocessedProblem* pp) {
  // What an attempt leaves is freed here.
  [[maybe_unused]] const KeepCurrentDevice<kernels::CudaMachine> keep;
  const bool is_factorized = IsFactorized(pp->options.linear_solver_type);
  const bool needs_matrix = NeedsSchurMatrix(pp->options);
  std::string why_host = attempt_.why_host;
  if (options_.device == DEVICE_AUTO && why_host.empty()) {
    SolveWork work = Work(*pp);
    if (is_factorized) {
      work.float_factor = pp->options.use_mixed_precision_solves;
      for (const BlockTable& table : structure->f) {
        work.num_factorized_columns += table.NumColumns();
      }
    }
    why_host = WhyHost(work, options_.cuda_device);
  }
  if (options_.device != DEVICE_HOST && why_host.empty()) {
    std::unique_ptr<MachineSetup> device;
    Status status;
    if (ceres::internal::AreHostVectorsRequired(*pp, &why_host)) {
      status = Status(kernels::StatusCode::kUnsupported, why_host);
    } else {
      const bool has_context = HasContext(options_.cuda_device);
      double seconds = 0.0;
      {
        ScopedSeconds timer(&seconds);
        status = CreateCudaSetup(options_, num_threads_, kept_, &device);
      }
      if (!has_context && status.ok()) {
        record_.context_time_in_seconds += seconds;
        record_.setup_time_in_seconds -= seconds;
      }
    }
    if (status.ok() && is_factorized) {
      const std::string why = WhyNoFactorization(options_.schur_factorization);
      status = why.empty()
                   ? status
                   : Status(kernels::StatusCode::kUnsupported, why + ".");
    }
    if (status.ok()) {
      status = Use(std::move(device), structure, pp);
      is_on_device_ = status.ok();
      if (is_on_device_) {
        if (!pp->options.callbacks.empty()) {
          pp->options.callbacks.push_back(&watch_);
        }
        return status;
      }
      // Whatever state it is in, the host needs none of its memory.
      kept_->ClearDevice();
      // It is used up.
      if (!Import(import_options, *pp, structure)) {
        return Status(kernels::StatusCode::kOutOfMemory, record_.path_reason);
      }
    }
    if (options_.device == DEVICE_CUDA &&
        options_.fallback == FALLBACK_REFUSE) {
      return Status(status.code,
                    "device = CUDA is not available, because " +
                        AsClause(status.message));
    }
    why_host = (status.code == kernels::StatusCode::kDeviceError
                    ? "the device failed: "
                    : "") +
               AsClause(status.message);
    if (needs_matrix) {
      return Status(status.code, LeftToCeres(pp->options, why_host));
    }
    // A build without CUDA has nothing to say where nobody asks for it.
    if (!kHasCuda && options_.device == DEVICE_AUTO) {
      why_host.clear();
    }
  }
  if (needs_matrix) {
    return Status(kernels::StatusCode::kUnsupported,
                  LeftToCeres(pp->options, why_host));
  }
  const Status status =
      Use(CreateHostSetup(options_, num_threads_, kept_), structure, pp);
  if (status.code == kernels::StatusCode::kOutOfMemory) {
    failure_.Set(status.message);
  }
  CERES_EXT_RETURN_IF_ERROR(status);
  if (!why_host.empty()) {
    record_.device += " (" + why_host + ")";
  }
  return {};
}

bool BundlePlugin::Take(ImportOptions import_options, PreprocessedProblem* pp) {
  if (failure_.has_happened()) {
    return false;
  }
  const ceres::internal::Program& program = *pp->reduced_program;
  import_options.batch_users_functions =
      pp->reduced_program->mutable_evaluation_callback() == nullptr;
  ProgramStructure structure;
  if (!Import(import_options, *pp, &structure)) {
    return false;
  }
  const bool ordered_by_ceres =
      import_options.num_eliminate_blocks != ImportOptions::kPoints;
  const int64_t num_observations = structure.num_observations();
  const int64_t num_rows = num_observations + structure.num_other_rows();
  if (!ordered_by_ceres && import_options.use_schur) {
    if (num_observations < structure.num_other_rows()) {
      record_.path_reason = "most residual blocks are not observations";
      return false;
    }
    if (arrays_ == nullptr &&
        !OrderingEliminatesPoints(pp->options, structure, program)) {
      record_.path_reason =
          "linear_solver_ordering does not eliminate just the points";
      return false;
    }
  }
  if (options_.jacobian == JACOBIAN_RECOMPUTED && num_observations == 0 &&
      structure.models.empty()) {
    record_.path_reason =
        "jacobian RECOMPUTED needs residual blocks of this library's cost "
        "functions";
    return false;
  }
  const Status status = UseDeviceOrHost(import_options, &structure, pp);
  if (!status.ok()) {
    record_.path_reason = status.message;
    is_left_to_ceres_ = NeedsSchurMatrix(pp->options);
    return false;
  }
  record_.path = PATH_FULL;
  record_.path_reason = WhoEvaluates(num_rows, objects_.num_host_rows);
  if (!import_options.batch_users_functions && objects_.num_host_rows > 0) {
    objects_.notes.insert(
        "with an EvaluationCallback it evaluates those of cost functions that "
        "are not this library's");
  }
  for (const std::string& note : objects_.notes) {
    record_.path_reason += "; " + note;
  }
  if (attempt_.after_mixed_precision) {
    record_.path_reason +=
        "; in double, since the solve failed in mixed precision";
  }
  return true;
}

bool BundlePlugin::TakeEliminated(ImportOptions import_options,
                                  PreprocessedProblem* pp) {
  if (failure_.has_happened()) {
    return false;
  }
  if (arrays_ != nullptr) {
    return arrays_->ChooseEliminated(kept_->host_context(num_threads_),
                                     &import_options.num_eliminate_blocks,
                                     &record_.path_reason) &&
           Take(import_options, pp);
  }
  ceres::internal::Program* program = pp->reduced_program.get();
  std::vector<uint8_t> is_eliminated;
  if (!ChooseEliminatedBlocks(*program,
                              pp->options.linear_solver_ordering.get(),
                              kept_->host_context(num_threads_),
                              &is_eliminated,
                              &record_.path_reason)) {
    return false;
  }
  auto* blocks = program->mutable_parameter_blocks();
  const auto given = *blocks;
  const auto others = std::stable_partition(
      blocks->begin(), blocks->end(), [&](const auto* block) {
        return is_eliminated[block->index()] != 0;
      });
  import_options.num_eliminate_blocks =
      static_cast<int>(others - blocks->begin());
  program->NumberParameterBlocks();
  if (Take(import_options, pp)) {
    return true;
  }
  *blocks = given;
  program->NumberParameterBlocks();
  return false;
}

bool BundlePlugin::TakeInAnyOrder(PreprocessedProblem* pp) {
  ImportOptions import_options;
  import_options.batch_evaluation = options_.batch_evaluation;
  import_options.use_schur = ceres::IsSchurType(pp->options.linear_solver_type);
  if (Take(import_options, pp)) {
    return true;
  }
  // What no device does in one order, none does in another.
  return import_options.use_schur && !is_left_to_ceres_ &&
         TakeEliminated(import_options, pp);
}

bool BundlePlugin::GainsByChoice(const ceres::Solver::Options& given,
                                 const PreprocessedProblem& pp) const {
  if (options_.device != DEVICE_AUTO || options_.fallback == FALLBACK_REFUSE ||
      IsIterative(given.linear_solver_type) ||
      (arrays_ == nullptr && !IsSmallFactorization(*pp.reduced_program))) {
    return true;
  }
  return kHasCuda && WhyHost(Work(pp), options_.cuda_device).empty();
}

bool BundlePlugin::TakeChosen(PreprocessedProblem* pp) {
  if (!pp->options.IsValid(&record_.path_reason)) {
    return false;
  }
  record_.path_reason = UnsupportedOption(*pp);
  if (!record_.path_reason.empty()) {
    return false;
  }
  return TakeInAnyOrder(pp);
}

// Owns it after a failure too: then Ceres goes on to SetupLinearSolver, which
// ends the solve, and orders nothing on the way.
bool BundlePlugin::OwnsOrdering(PreprocessedProblem* pp) {
  const auto is_taken = [&] {
    if (OwnsOrderingUnguarded(pp)) {
      return true;
    }
    std::string error;
    if (arrays_ == nullptr && !CanBeSolvedByCeres(*pp, &error)) {
      failure_.Set(error + ".");
    }
    return false;
  };
  return failure_.Guard(true, is_taken) || failure_.has_happened();
}

bool BundlePlugin::OwnsOrderingUnguarded(PreprocessedProblem* pp) {
  if (pp->options.linear_solver_type == ceres::CGNR &&
      pp->options.preconditioner_type == ceres::SCHUR_POWER_SERIES_EXPANSION) {
    // No eliminated block varies, so Ceres has put CGNR for ITERATIVE_SCHUR and
    // JACOBI for the preconditioners that it thinks of. CGNR aborts on this
    // one.
    pp->options.preconditioner_type = ceres::JACOBI;
  }
  if (!options_.enabled) {
    Decline("this library is switched off (enabled = false)");
    return false;
  }
  ScopedSeconds timer(&record_.setup_time_in_seconds);
  if (num_threads_ == 0) {
    num_threads_ = pp->options.num_threads;
  }
  const ceres::Solver::Options given = pp->options;
  if (Choose(options_, &pp->options)) {
    choice_ = LinearSolverName(pp->options) + " was chosen in place of " +
              LinearSolverName(given);
    const bool gains = GainsByChoice(given, *pp);
    if (!IsIterative(given.linear_solver_type) &&
        options_.forcing_sequence == FORCING_SEQUENCE_AUTO) {
      // The program's eta is not meant for steps that are exact.
      options_.forcing_sequence = FORCING_SEQUENCE_MODEL_COST;
    }
    if (gains && TakeChosen(pp)) {
      choice_ += "; ";
      return true;
    }
    choice_ += gains ? " and can't be had: " + record_.path_reason
                     : ", which is as fast (device = auto)";
    pp->options = given;
    if (options_.fallback == FALLBACK_REFUSE) {
      Decline("");
      return false;
    }
    choice_ += "; ";
  }
  std::string unsupported = UnsupportedOption(*pp);
  if (unsupported.empty() && IsFactorized(pp->options.linear_solver_type) &&
      pp->options.use_mixed_precision_solves &&
      options_.schur_factorization == SCHUR_FACTORIZATION_SPARSE) {
    unsupported =
        "use_mixed_precision_solves has no sparse factorisation on a device "
        "(schur_factorization = SPARSE)";
  }
  if (unsupported.empty() && NeedsSchurMatrix(pp->options)) {
    const std::string why_host = WhyNoSchurMatrix(*pp);
    unsupported = why_host.empty() ? "" : LeftToCeres(pp->options, why_host);
  }
  if (!unsupported.empty()) {
    Decline(unsupported);
    return false;
  }
  return TakeInAnyOrder(pp);
}

std::string BundlePlugin::WhyNoSchurMatrix(
    const PreprocessedProblem& pp) const {
  if (!attempt_.why_host.empty()) {
    return attempt_.why_host;
  }
  if (options_.device == DEVICE_HOST) {
    return "device = HOST";
  }
  if (!kHasCuda) {
    return "this build has no CUDA";
  }
  std::string why;
  ceres::internal::AreHostVectorsRequired(pp, &why);
  return AsClause(why);
}

bool BundlePlugin::SetupLinearSolver(PreprocessedProblem* pp) {
  const bool ok =
      failure_.Guard(false, [&] { return SetupLinearSolverUnguarded(pp); });
  if (failure_.has_happened()) {
    record_.path_reason.clear();
    AssignOrShorten(failure_.sentence(), &pp->error);
    return false;
  }
  return ok;
}

bool BundlePlugin::SetupLinearSolverUnguarded(PreprocessedProblem* pp) {
  if (arrays_ != nullptr && !IsTaken()) {
    pp->error = Reason();
    return false;
  }
  if (arrays_ != nullptr) {
    pp->fixed_cost = arrays_->fixed_cost();
  }
  if (record_.path == PATH_CERES && options_.enabled &&
      options_.fallback == FALLBACK_REFUSE && !failure_.has_happened()) {
    pp->error =
        "Ceres Ext refuses the problem: " + WithoutPeriod(Reason()) + ".";
    return false;
  }
  pp->linear_solver = std::move(objects_.linear_solver);
  return true;
}

bool BundlePlugin::SetupEvaluator(PreprocessedProblem* pp) {
  if (setup_ != nullptr) {
    record_.transfer_bytes = -setup_->copied_bytes();
  }
  pp->evaluator = std::move(objects_.evaluator);
  if (evaluation_ == nullptr || setup_ == nullptr) {
    return true;
  }
  pp->error = "Initial residual and Jacobian evaluation failed.";
  evaluation_->is_done =
      failure_.Guard(false, [&] { return EvaluateStartUnguarded(pp); });
  return false;
}

bool BundlePlugin::EvaluateStartUnguarded(PreprocessedProblem* pp) {
  ceres::internal::Evaluator* evaluator = pp->evaluator.get();
  ceres::internal::TrustRegionVectors* vectors = objects_.vectors.get();
  // The first vectors of the loop, in its order, for which there is memory.
  double* const state = vectors->Allocate(evaluator->NumParameters());
  vectors->Allocate(evaluator->NumParameters());
  double* const residuals = vectors->Allocate(evaluator->NumResiduals());
  const int num_columns = evaluator->NumEffectiveParameters();
  double* const gradient = vectors->Allocate(num_columns);
  // The state is that of the arrays.
  if (failure_.has_happened() ||
      !vectors->CopyFromHost(evaluator->NumParameters(), nullptr, state)) {
    return false;
  }
  ceres::internal::Evaluator::EvaluateOptions options;
  options.apply_loss_function = evaluation_->apply_loss_function;
  if (!evaluation_->want_gradient) {
    return evaluator->Evaluate(
        options, state, &evaluation_->cost, residuals, nullptr, nullptr);
  }
  pp->minimizer_options.jacobian = evaluator->CreateJacobian();
  if (!evaluator->Evaluate(options,
                           state,
                           &evaluation_->cost,
                           residuals,
                           gradient,
                           pp->minimizer_options.jacobian.get())) {
    return false;
  }
  evaluation_->gradient.resize(num_columns);
  const Status status =
      setup_->Download(num_columns, gradient, evaluation_->gradient.data());
  if (!status.ok()) {
    failure_.Set(status);
  }
  return status.ok();
}

std::shared_ptr<ceres::internal::TrustRegionVectors>
BundlePlugin::CreateTrustRegionVectors(PreprocessedProblem* /*pp*/) {
  return std::move(objects_.vectors);
}

void BundlePlugin::Finish(const PreprocessedProblem& pp,
                          ceres::Solver::Summary* summary) {
  is_finished_ = true;
  // Which by now can't end the solve.
  Failure late;
  late.Guard(false, [&] {
    FinishUnguarded(pp, summary);
    return true;
  });
}

void BundlePlugin::FinishUnguarded(const PreprocessedProblem& pp,
                                   ceres::Solver::Summary* summary) {
  if (pp.options.minimizer_type == ceres::LINE_SEARCH) {
    Decline("minimizer_type LINE_SEARCH has no linear solver");
  }
  if (arrays_ != nullptr && IsTaken()) {
    arrays_->FillSummary(summary);
    // Ceres itself has nothing to do.
    summary->num_threads_given = num_threads_;
    summary->num_threads_used = num_threads_;
  }
  if (record_.path == PATH_FULL &&
      ceres::IsSchurType(pp.options.linear_solver_type)) {
    // Ceres sees no block structure where it neither orders nor evaluates.
    summary->schur_structure_given = objects_.schur_structure;
    summary->schur_structure_used = summary->schur_structure_given;
    summary->linear_solver_ordering_used = objects_.num_blocks;
  }
  for (DegenerateBlocks* degenerate : {&record_.degenerate_eliminated_blocks,
                                       &record_.degenerate_other_blocks}) {
    NameWorst(pp, degenerate);
  }
  if (setup_ != nullptr) {
    record_.transfer_bytes += setup_->copied_bytes();
  }
  const bool has_failed = summary->termination_type == ceres::FAILURE;
  if (failure_.has_happened()) {
    // One that leaves time for no other step ends at the best state.
    has_result_ = summary->IsSolutionUsable();
    summary->message =
        (has_failed ? "" : summary->message + " ") + failure_.sentence();
  } else if (has_failed && failure_.explanation()[0] != '\0') {
    summary->message += std::string(" ") + failure_.explanation();
  }
  has_failed_ = has_failed;
  has_iterations_ = !summary->iterations.empty();
  if (HasFailedInFloat()) {
    message_ = summary->message;
    summary->message +=
        " Mixed precision keeps the Jacobian in float, which ends at 3.4e38. "
        "With precision = double the solve may succeed.";
  }
  Report(*summary);
  if (append_to_message_) {
    summary->message +=
        std::string(" [Ceres Ext: path ") + SolvePathToString(record_.path) +
        (record_.path == PATH_CERES ? "" : " on " + record_.device) + ", " +
        WithoutPeriod(Reason()) + ".]";
  }
}

void BundlePlugin::NameWorst(const PreprocessedProblem& pp,
                             DegenerateBlocks* degenerate) const {
  if (arrays_ != nullptr) {
    ceres_ext::NameWorst(arrays_->problem(), degenerate);
    return;
  }
  const auto& blocks = pp.problem->program().parameter_blocks();
  for (size_t i = 0; degenerate->count > 0 && i < blocks.size(); ++i) {
    if (blocks[i]->user_state() == degenerate->worst) {
      degenerate->worst_block = static_cast<int64_t>(i);
    }
  }
}

void BundlePlugin::FinishIfCeresDidNot(const Failure& failure,
                                       const ceres::Solver::Summary& summary) {
  failure_.Set(failure.sentence());
  if (!is_finished_) {
    Failure late;
    late.Guard(false, [&] {
      Report(summary);
      return true;
    });
  }
}

bool BundlePlugin::HasFailedInFloat() const {
  return has_failed_ && !failure_.has_happened() && objects_.has_float_blocks;
}

bool BundlePlugin::IsToBeDoneAgain() const {
  if (!may_solve_again_ || options_.fallback != FALLBACK_TO_CERES) {
    return false;
  }
  return (leaves_no_trace_ && is_on_device_ && !has_result_ &&
          failure_.is_of_device()) ||
         (HasFailedInFloat() && (leaves_no_trace_ || !has_iterations_));
}

bool BundlePlugin::Next(SolveAttempt* next) const {
  if (!IsToBeDoneAgain()) {
    return false;
  }
  *next = attempt_;
  if (failure_.is_of_device()) {
    next->why_host = "the device failed: " + AsClause(failure_.sentence());
    next->reason = "The host solves the problem again: " + next->why_host;
  } else {
    next->after_mixed_precision = true;
    next->reason =
        "The problem is solved again in double, since mixed precision "
        "failed: " +
        message_;
  }
  return true;
}

std::string BundlePlugin::Reason() const {
  std::string reason = choice_ + record_.path_reason;
  if (failure_.has_happened() && record_.path_reason != failure_.sentence()) {
    reason += record_.path_reason.empty() ? "" : "; ";
    reason += failure_.sentence();
  }
  return reason;
}

void BundlePlugin::Report(const ceres::Solver::Summary& summary) {
  // Arrays that aren't taken are solved, and reported, as a ceres::Problem.
  if (options_.report.empty() || IsToBeDoneAgain() ||
      (arrays_ != nullptr && !IsTaken() && !HasFailed())) {
    return;
  }
  Summary reported = record_.path == PATH_CERES ? nothing_ : record_;
  reported.path_reason = Reason();
  static_cast<ceres::Solver::Summary&>(reported) = summary;
  // Ceres knows it only after the plugin's last call.
  reported.total_time_in_seconds =
      ceres::internal::WallTimeInSeconds() - start_in_seconds_;
  AppendReport(options_.report, reported);
}

void BundlePlugin::FillSummary(Summary* summary) {
  Failure late;
  late.Guard(false, [&] {
    record_.path_reason = Reason();
    return true;
  });
  if (late.has_happened() && failure_.has_happened()) {
    AssignOrShorten(failure_.sentence(), &record_.path_reason);
  }
  if (record_.path == PATH_CERES) {
    nothing_.path_reason = std::move(record_.path_reason);
  }
  Summary& filled = record_.path == PATH_CERES ? nothing_ : record_;
  static_cast<ceres::Solver::Summary&>(filled) =
      std::move(static_cast<ceres::Solver::Summary&>(*summary));
  *summary = std::move(filled);
}

}  // namespace ceres_ext
