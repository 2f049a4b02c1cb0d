// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/under_ceres/solve_setup.h"

#include <algorithm>
#include <functional>
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
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/ops/covariance.h"
#include "cuda_kernels/structure/block_rows.h"

namespace ceres_ext {
namespace {

using ceres::internal::PreprocessedProblem;
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
  if (input_.arrays == nullptr && input_.purpose == Purpose::kSolve &&
      IsSmallSolve(input_.options,
                   pp->options,
                   pp->reduced_program->NumResiduals(),
                   pp->reduced_program->NumEffectiveParameters())) {
    TakeSmall(pp);
    return true;
  }
  const ceres::Solver::Options given = pp->options;
  Attempts attempts(input_.options);
  const Outcome outcome = TryEach(&attempts, [&](const Attempt& attempt) {
    if (attempt.why_given.empty() &&
        ChooseLinearSolver(input_.options, &pp->options)) {
      return TakeChosen(given, pp);
    }
    choice_ += attempt.why_given.empty() ? "" : attempt.why_given + "; ";
    const std::string why = WhyCeres(*pp);
    return (why.empty() ? TakeInAnyOrder(pp) : Decline(why))
               ? Outcome()
               : Outcome(Outcome::kSetup, "");
  });
  if (outcome.is_chosen) {
    choice_ += outcome.status.message;
    return Decline("");
  }
  return outcome.status.ok();
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

Outcome SolveSetup::TakeChosen(const ceres::Solver::Options& given,
                               PreprocessedProblem* pp) {
  const std::string in_place =
      " was chosen in place of " + LinearSolverName(given);
  choice_ = LinearSolverName(pp->options) + in_place;
  replaces_factorization_ = !IsIterative(given.linear_solver_type);
  Outcome left(Outcome::kDeclined, ", which is as fast (device = auto)");
  left.is_chosen = true;
  if (GainsByChoice(input_.options,
                    given.linear_solver_type,
                    input_.arrays == nullptr
                        ? pp->reduced_program->NumEffectiveParameters()
                        : 0,
                    [&] { return Work(*pp); })) {
    std::string why;
    if (pp->options.IsValid(&why)) {
      why = WhyCeres(*pp);
    }
    if (why.empty() ? TakeInAnyOrder(pp) : Decline(why)) {
      // By LINEAR_SOLVER_AUTO it may be another one, or the given one.
      const std::string used = LinearSolverName(pp->options);
      choice_ = used == LinearSolverName(given)
                    ? "linear_solver = auto chose " + used + " as given; "
                    : used + in_place + "; ";
      return {};
    }
    left.status.message =
        " and is not available: " + input_.record->path_reason;
  }
  pp->options = given;
  replaces_factorization_ = false;
  return left;
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
  // Before the rows are read, which takes longer than some solves of so few.
  constexpr int kFewRows = 1000;
  if (input_.arrays != nullptr || input_.purpose != Purpose::kSolve ||
      pp.reduced_program->NumResidualBlocks() > kFewRows) {
    return "";
  }
  NormalWork work;
  work.num_rows = pp.reduced_program->NumResidualBlocks();
  work.num_residuals = pp.reduced_program->NumResiduals();
  work.num_columns = pp.reduced_program->NumEffectiveParameters();
  work.num_threads = input_.num_threads;
  return WhyStockNormal(input_.options, options, work);
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
  import_options.use_schur = pp->options.linear_solver_type != ceres::CGNR;
  if (input_.purpose == Purpose::kSolve &&
      MayHaveSmallSchur(input_.options, pp->options)) {
    import_options.most_small_residuals = kMostSmallSchurResiduals;
  }
  // A covariance is asked of any block. Each rank has its own E in one piece.
  import_options.takes_private = input_.purpose == Purpose::kSolve &&
                                 input_.options.communicator == nullptr;
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
  // Ceres's other types have no use for the order in which a user would have
  // blocks eliminated.
  const bool is_schur = ceres::IsSchurType(pp->options.linear_solver_type);
  const int max_size = input_.purpose == Purpose::kCovariance
                           ? kernels::kMaxCovarianceEliminatedSize
                           : kernels::kMaxEliminatedSize;
  if (input_.arrays != nullptr) {
    return input_.arrays->ChooseEliminated(context,
                                           max_size,
                                           import_options.takes_private,
                                           &import_options.num_eliminate_blocks,
                                           &elimination_note_,
                                           reason) &&
           TakeAsOrdered(import_options, pp);
  }
  ceres::internal::Program* program = pp->reduced_program.get();
  std::vector<uint8_t> is_eliminated;
  if (!ChooseEliminatedBlocks(
          *program,
          is_schur ? pp->options.linear_solver_ordering.get() : nullptr,
          max_size,
          import_options.takes_private,
          context,
          &is_eliminated,
          &elimination_note_,
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
  if (!elimination_note_.empty()) {
    notes.insert(elimination_note_);
  }
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

RowFacts SolveSetup::CountRows(const PlanRequest& request,
                               const ProblemStructure& structure,
                               const PreprocessedProblem& pp) const {
  const FactsWanted wanted = FactsFor(request);
  RowFacts rows = FactsOf(structure);
  if (wanted.values) {
    const SolveWork work = Work(pp);
    rows.num_values = work.num_values;
    rows.num_host_values = work.num_host_values;
  }
  if (wanted.couplings || wanted.repeats) {
    RowFacts counted = rows;
    CountCouplings(
        structure, input_.kept->host_context(input_.num_threads), &counted);
    rows.rows_repeat = counted.rows_repeat;
    if (wanted.couplings) {
      rows = counted;
    }
  }
  return rows;
}

bool SolveSetup::SetupPlan(const ImportOptions& import_options,
                           ProblemStructure* structure,
                           PreprocessedProblem* pp) {
  // The remains of an attempt are freed here.
  [[maybe_unused]] const KeepCurrentDevice<kernels::CudaMachine> keep;
  Summary* const record = input_.record;
  PlanRequest request;
  request.options = input_.options;
  request.solver_options = pp->options;
  request.num_threads = input_.num_threads;
  request.purpose = input_.purpose;
  request.replaces_factorization = replaces_factorization_;
  request.has_ceres_state = input_.arrays == nullptr;
  const RowFacts rows = CountRows(request, *structure, *pp);
  KnownFacts facts(input_.options, input_.num_threads, structure, input_.kept);
  Attempt first = input_.attempt;
  std::string why;
  if (input_.options.device != DEVICE_HOST && first.why_host.empty() &&
      ceres::internal::AreHostVectorsRequired(*pp, &why)) {
    first.why_host = AsClause(why);
  }
  Attempts attempts(input_.options, std::move(first));
  const Outcome outcome = TryEach(&attempts, [&](const Attempt& attempt) {
    if (!attempt.why_host.empty()) {
      facts.DropDevice();
    }
    // An attempt uses the structure up.
    if (!attempts.is_first() && !Import(import_options, *pp, structure)) {
      return Outcome(Outcome::kSetup, record->path_reason);
    }
    request.attempt = attempt;
    const auto decision = Decide(request, rows, facts);
    const double context_seconds = facts.TakeContextSeconds();
    record->context_time_in_seconds += context_seconds;
    record->setup_time_in_seconds -= context_seconds;
    if (const auto* refusal = std::get_if<Refusal>(&decision)) {
      is_final_ = refusal->is_final;
      return Outcome(Outcome::kSetup, refusal->reason);
    }
    const SolvePlan& plan = std::get<SolvePlan>(decision);
    if (!plan.on_device && input_.arrays != nullptr &&
        input_.arrays->is_on_device()) {
      is_final_ = true;
      return Outcome(Outcome::kSetup,
                     plan.why_host.empty() ? "the host solves" : plan.why_host);
    }
    // The results of an earlier attempt are freed before its machine.
    objects_ = ProgramObjects();
    machine_ =
        plan.on_device
            ? CreateMachineSolve(facts.device())
            : CreateMachineSolve(input_.kept->GetHost(input_.num_threads));
    schur_structure_ = SchurStructure(*structure);
    Outcome end(machine_->Setup(
                    plan,
                    structure,
                    pp,
                    input_.failure,
                    record,
                    request.purpose == Purpose::kSolve ? &objects_ : nullptr),
                Outcome::kSetup);
    end.on_device = plan.on_device;
    end.is_exact = plan.linear_solver_type != pp->options.linear_solver_type;
    if (end.status.ok()) {
      is_on_device_ = plan.on_device;
      pp->options.linear_solver_type = plan.linear_solver_type;
      record->device += plan.why_host.empty() ? "" : " (" + plan.why_host + ")";
    } else {
      objects_ = ProgramObjects();
      machine_.reset();
    }
    return end;
  });
  if (outcome.status.code == StatusCode::kOutOfMemory) {
    input_.failure->Set(outcome.status.message);
  }
  return outcome.status.ok() || Decline(outcome.status.message);
}

}  // namespace ceres_ext
