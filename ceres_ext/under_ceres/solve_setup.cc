// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/under_ceres/solve_setup.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>
#include <variant>
#include <vector>

#include "ceres/ordered_groups.h"
#include "ceres/parameter_block.h"
#include "ceres/program.h"
#include "ceres/solver_plugin.h"
#include "ceres/types.h"
#include "ceres_ext/base/machines.h"
#include "ceres_ext/plan/solver_choice.h"
#include "ceres_ext/session/known_facts.h"
#include "ceres_ext/under_ceres/program_rows.h"
#include "ceres_ext/under_ceres/small_solve.h"
#include "ceres_ext/under_ceres/solver_options.h"
#include "cuda_kernels/structure/block_rows.h"

namespace ceres_ext {
namespace {

using ceres::internal::PreprocessedProblem;
using kernels::Status;
using kernels::StatusCode;

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
                              const ProblemStructure& structure,
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

bool SolveSetup::Take(PreprocessedProblem* pp) {
  if (input_.arrays == nullptr && input_.has_loop &&
      IsSmallSolve(input_.options,
                   pp->options,
                   pp->reduced_program->NumResiduals(),
                   pp->reduced_program->NumEffectiveParameters())) {
    TakeSmall(pp);
    return true;
  }
  bool is_done = false;
  if (TakeChosen(pp, &is_done) || is_done) {
    return machine_ != nullptr;
  }
  const std::string why = WhyCeres(*pp);
  return why.empty() ? TakeInAnyOrder(pp) : Decline(why);
}

void SolveSetup::TakeSmall(PreprocessedProblem* pp) {
  const ceres::LinearSolverType given = pp->options.linear_solver_type;
  pp->options.linear_solver_type = ceres::DENSE_QR;
  if (given != ceres::DENSE_QR) {
    choice_ = std::string("DENSE_QR was chosen in place of ") +
              ceres::LinearSolverTypeToString(given) + "; ";
  }
  const int64_t num_rows = pp->reduced_program->NumResidualBlocks();
  input_.record->path = PATH_FULL;
  input_.record->path_reason = WhoEvaluates(num_rows, num_rows);
  input_.record->device = "host, 1 thread";
  input_.record->method = "QR of the Jacobian as a dense matrix (double)";
  is_small_ = true;
}

bool SolveSetup::TakeChosen(PreprocessedProblem* pp, bool* is_done) {
  const ceres::Solver::Options given = pp->options;
  if (!ChooseLinearSolver(input_.options, &pp->options)) {
    return false;
  }
  choice_ = LinearSolverName(pp->options) + " was chosen in place of " +
            LinearSolverName(given);
  replaces_factorization_ = !IsIterative(given.linear_solver_type);
  const bool gains = GainsByChoice(given, *pp);
  if (gains) {
    std::string why;
    if (pp->options.IsValid(&why)) {
      why = WhyCeres(*pp);
    }
    if (why.empty() ? TakeInAnyOrder(pp) : Decline(why)) {
      // By LINEAR_SOLVER_AUTO it may be another one, or the given one.
      const std::string used = LinearSolverName(pp->options);
      choice_ = used == LinearSolverName(given)
                    ? "linear_solver = auto chose " + used + " as given; "
                    : used + " was chosen in place of " +
                          LinearSolverName(given) + "; ";
      return true;
    }
  }
  choice_ += gains ? " and is not available: " + input_.record->path_reason
                   : ", which is as fast (device = auto)";
  pp->options = given;
  replaces_factorization_ = false;
  *is_done = input_.options.fallback == FALLBACK_REFUSE;
  if (*is_done) {
    return Decline("");
  }
  choice_ += "; ";
  return false;
}

bool SolveSetup::GainsByChoice(const ceres::Solver::Options& given,
                               const PreprocessedProblem& pp) const {
  if (input_.options.linear_solver == LINEAR_SOLVER_AUTO ||
      input_.options.device != DEVICE_AUTO ||
      input_.options.fallback == FALLBACK_REFUSE ||
      IsIterative(given.linear_solver_type) ||
      (input_.arrays == nullptr &&
       !IsSmallFactorization(pp.reduced_program->NumEffectiveParameters()))) {
    return true;
  }
  return kHasCuda && WhyHost(Work(pp), input_.options.cuda_device).empty();
}

std::string SolveSetup::WhyCeres(const PreprocessedProblem& pp) const {
  const ceres::Solver::Options& options = pp.options;
  std::string why = WhyLeftToCeres(input_.options, options);
  if (!why.empty()) {
    return why;
  }
  std::string error;
  if (options.linear_solver_type == ceres::CGNR &&
      options.sparse_linear_algebra_library_type == ceres::CUDA_SPARSE &&
      CanBeSolvedByCeres(pp, &error)) {
    return "sparse_linear_algebra_library_type CUDA_SPARSE is not supported";
  }
  return NeedsSchurMatrix(options) &&
                 options.trust_region_strategy_type == ceres::DOGLEG
             ? SolvedByCeres(options, "the dogleg strategy is not supported")
             : "";
}

SolveWork SolveSetup::Work(const PreprocessedProblem& pp) const {
  SolveWork work;
  if (input_.arrays != nullptr && input_.arrays->rows() != nullptr) {
    // As of the Program of the same blocks, so that both have the same plan.
    work = EstimateWork(*input_.arrays->rows(), pp.options, input_.options);
  } else if (input_.arrays != nullptr) {
    int64_t num_values = 0;
    int64_t num_host_values = 0;
    input_.arrays->CountValues(
        input_.options.batch_evaluation, &num_values, &num_host_values);
    work =
        EstimateWork(num_values, num_host_values, pp.options, input_.options);
  } else {
    work = EstimateWork(
        ProgramRows(*pp.reduced_program), pp.options, input_.options);
  }
  work.num_threads = input_.num_threads;
  return work;
}

bool SolveSetup::TakeInAnyOrder(PreprocessedProblem* pp) {
  ImportOptions import_options;
  import_options.batch_evaluation = input_.options.batch_evaluation;
  import_options.batch_users_functions =
      pp->reduced_program->mutable_evaluation_callback() == nullptr;
  import_options.use_schur = ceres::IsSchurType(pp->options.linear_solver_type);
  is_final_ = false;
  if (TakeAsOrdered(import_options, pp)) {
    return true;
  }
  return import_options.use_schur && !is_final_ &&
         TakeEliminated(import_options, pp);
}

bool SolveSetup::TakeEliminated(ImportOptions import_options,
                                PreprocessedProblem* pp) {
  if (input_.failure->has_happened()) {
    return false;
  }
  kernels::HostContext* const context =
      input_.kept->host_context(input_.num_threads);
  std::string* const reason = &input_.record->path_reason;
  // A solve eliminates what Ceres would, or is Ceres's.
  const int max_size = input_.has_loop ? std::numeric_limits<int>::max()
                                       : kernels::kMaxEliminatedSize;
  if (input_.arrays != nullptr) {
    return input_.arrays->ChooseEliminated(context,
                                           max_size,
                                           &import_options.num_eliminate_blocks,
                                           reason) &&
           TakeAsOrdered(import_options, pp);
  }
  ceres::internal::Program* program = pp->reduced_program.get();
  std::vector<uint8_t> is_eliminated;
  if (!ChooseEliminatedBlocks(*program,
                              pp->options.linear_solver_ordering.get(),
                              max_size,
                              context,
                              &is_eliminated,
                              reason)) {
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
  if (TakeAsOrdered(import_options, pp)) {
    return true;
  }
  *blocks = given;
  program->NumberParameterBlocks();
  return false;
}

bool SolveSetup::Import(const ImportOptions& import_options,
                        const PreprocessedProblem& pp,
                        ProblemStructure* structure) {
  kernels::HostContext* const context =
      input_.kept->host_context(input_.num_threads);
  std::string* const reason = &input_.record->path_reason;
  return input_.arrays != nullptr
             ? input_.arrays->Import(import_options,
                                     input_.kept->is_for_several,
                                     context,
                                     structure,
                                     reason)
             : ImportProgram(*pp.reduced_program,
                             import_options,
                             context,
                             structure,
                             reason);
}

bool SolveSetup::TakeAsOrdered(ImportOptions import_options,
                               PreprocessedProblem* pp) {
  ProblemStructure structure;
  if (input_.failure->has_happened() ||
      !Import(import_options, *pp, &structure)) {
    return false;
  }
  const int64_t num_observations = structure.num_observations();
  const int64_t num_other_rows = structure.num_other_rows();
  if (import_options.num_eliminate_blocks == ImportOptions::kPoints &&
      import_options.use_schur) {
    if (num_observations < num_other_rows) {
      return Decline("most residual blocks are not observations");
    }
    if (input_.arrays == nullptr &&
        !OrderingEliminatesPoints(
            pp->options, structure, *pp->reduced_program)) {
      return Decline(
          "linear_solver_ordering does not eliminate just the points");
    }
  }
  if (!SetupPlan(import_options, &structure, pp)) {
    return false;
  }
  std::string reason = WhoEvaluates(num_observations + num_other_rows,
                                    machine_->num_host_rows());
  std::set<std::string> notes = machine_->notes();
  if (!import_options.batch_users_functions && machine_->num_host_rows() > 0) {
    notes.insert(
        "with an EvaluationCallback it evaluates those of cost functions that "
        "are not this library's");
  }
  for (const std::string& note : notes) {
    reason += "; " + note;
  }
  input_.record->path = PATH_FULL;
  input_.record->path_reason = std::move(reason);
  return true;
}

bool SolveSetup::SetupPlan(const ImportOptions& import_options,
                           ProblemStructure* structure,
                           PreprocessedProblem* pp) {
  // The remains of an attempt are freed here.
  [[maybe_unused]] const KeepCurrentDevice<kernels::CudaMachine> keep;
  const Options& options = input_.options;
  PlanRequest request = {options,
                         pp->options,
                         input_.num_threads,
                         input_.why_host,
                         replaces_factorization_,
                         input_.arrays == nullptr};
  RowFacts rows = FactsOf(*structure);
  const bool has_auto = options.linear_solver == LINEAR_SOLVER_AUTO ||
                        options.preconditioner == PRECONDITIONER_AUTO;
  if (options.device == DEVICE_AUTO || has_auto) {
    const SolveWork work = Work(*pp);
    rows.num_values = work.num_values;
    rows.num_host_values = work.num_host_values;
  }
  if (has_auto || NeedsSchurMatrix(pp->options) ||
      HasSecondLevel(options.preconditioner)) {
    RowFacts counted = rows;
    CountCouplings(
        *structure, input_.kept->host_context(input_.num_threads), &counted);
    rows.rows_repeat = counted.rows_repeat;
    // Estimates of PCG's time don't depend on them.
    if (has_auto || IsFactorized(pp->options.linear_solver_type)) {
      rows = counted;
    }
  }
  KnownFacts facts(options, input_.num_threads, structure, input_.kept);
  std::string why_host_vectors;
  if (options.device != DEVICE_HOST &&
      ceres::internal::AreHostVectorsRequired(*pp, &why_host_vectors)) {
    facts.SetNoDevice({StatusCode::kUnsupported, why_host_vectors});
  }
  while (true) {
    const auto decision = Decide(request, rows, facts);
    const double context_seconds = facts.TakeContextSeconds();
    input_.record->context_time_in_seconds += context_seconds;
    input_.record->setup_time_in_seconds -= context_seconds;
    if (const auto* refusal = std::get_if<Refusal>(&decision)) {
      is_final_ = refusal->is_final;
      return Decline(refusal->reason);
    }
    const SolvePlan& plan = std::get<SolvePlan>(decision);
    if (!plan.on_device && input_.arrays != nullptr &&
        input_.arrays->is_on_device()) {
      is_final_ = true;
      return Decline(plan.why_host.empty() ? "the host solves" : plan.why_host);
    }
    const Status status = SetupMachine(
        plan,
        plan.on_device
            ? CreateMachineSolve(facts.device())
            : CreateMachineSolve(input_.kept->GetHost(input_.num_threads)),
        structure,
        pp);
    if (status.ok()) {
      is_on_device_ = plan.on_device;
      pp->options.linear_solver_type = plan.linear_solver_type;
      if (!plan.why_host.empty()) {
        input_.record->device += " (" + plan.why_host + ")";
      }
      return true;
    }
    if (plan.linear_solver_type != pp->options.linear_solver_type &&
        (status.code == StatusCode::kOutOfMemory ||
         status.code == StatusCode::kUnsupported)) {
      request.needs_pcg = true;
      // It is used up.
      if (!Import(import_options, *pp, structure)) {
        return false;
      }
      continue;
    }
    if (!plan.on_device) {
      if (status.code == StatusCode::kOutOfMemory) {
        input_.failure->Set(status.message);
      }
      return Decline(status.message);
    }
    facts.SetNoDevice(status);
    // It is used up.
    if (!Import(import_options, *pp, structure)) {
      return false;
    }
  }
}

Status SolveSetup::SetupMachine(const SolvePlan& plan,
                                std::unique_ptr<MachineSolve> machine,
                                ProblemStructure* structure,
                                PreprocessedProblem* pp) {
  // The results of an earlier attempt are freed before its machine.
  objects_ = ProgramObjects();
  machine_ = std::move(machine);
  schur_structure_ = SchurStructure(*structure);
  Status status = machine_->Setup(plan,
                                  structure,
                                  pp,
                                  input_.failure,
                                  input_.record,
                                  input_.has_loop ? &objects_ : nullptr);
  if (!status.ok()) {
    objects_ = ProgramObjects();
    machine_.reset();
  }
  return status;
}

}  // namespace ceres_ext
