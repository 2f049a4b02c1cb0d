// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/session/session.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "ceres_ext/base/scoped_seconds.h"
#include "ceres_ext/import/caller_state.h"
#include "ceres_ext/rows/observation_evaluator.h"
#include "ceres_ext/rows/row_groups_evaluator.h"
#include "ceres_ext/session/method_name.h"
#include "cuda_kernels/machine/cuda_context.h"
#include "cuda_kernels/machine/host_processors.h"

namespace ceres_ext {

using kernels::Status;

namespace {

// At most a part of what the host has left is page-locked.
int64_t SpareHostBytes() { return kernels::FreeHostMemory("") / 2; }

}  // namespace

template <typename Machine>
Status Session<Machine>::Setup(const SolvePlan& plan,
                               const SessionSetup& setup,
                               ProblemStructure* structure,
                               Summary* record) {
  const CurrentMachine<Machine> current(machine_);
  CERES_EXT_RETURN_IF_ERROR(current.status());
  if constexpr (!kIsHost<Machine>) {
    // Memory that the set-up frees returns to the device.
    machine_->context()->KeepMemory(false);
    machine_->context()->ResetPeak();
  }
  host_program_ = setup.host_program;
  caller_state_ = structure->caller_state;
  record_ = record;
  record->device = kept_->Name();
  record->memory_forecast_bytes = 0;
  record->num_host_losses = 0;
  record->host_loss_type.clear();
  notes_.insert(plan.notes.begin(), plan.notes.end());
  if (setup.communicator != nullptr) {
    ranks_ = std::make_unique<solver::RankSums<Machine>>(setup.communicator,
                                                         machine_);
    problem_.SetRanks(ranks_.get());
    CERES_EXT_RETURN_IF_ERROR(ranks_->Setup());
    if (!ranks_->why_host().empty()) {
      notes_.insert("sums over ranks go through host memory, because " +
                    AsClause(ranks_->why_host()));
    }
  }
  const auto set_up_problem = [&]() -> Status {
    Forms forms;
    CERES_EXT_RETURN_IF_ERROR(FindForms(plan, structure, &forms));
    CERES_EXT_RETURN_IF_ERROR(problem_.Setup(plan.merge_blocks,
                                             structure,
                                             plan.recomputed,
                                             plan.mixed,
                                             &kept_->index,
                                             host_context_,
                                             machine_));
    if (ranks_ != nullptr) {
      CERES_EXT_RETURN_IF_ERROR(
          ranks_->Reserve(problem_.blocks().f.num_values()));
    }
    bool page_locks = false;
    // A build without CUDA does not link its destructor.
    using EndOfPageLocks =
        std::conditional_t<kIsHost<Machine>, NoDevice, kernels::EndOfPageLocks>;
    [[maybe_unused]] std::optional<EndOfPageLocks> end;
    if constexpr (!kIsHost<Machine>) {
      end.emplace(machine_->context());
    }
    CERES_EXT_RETURN_IF_ERROR(
        CheckMemory(plan, setup, forms, *structure, record, &page_locks));
    has_float_blocks_ = plan.mixed && (!structure->observations.empty() ||
                                       (problem_.views() != nullptr &&
                                        !forms.recomputed_views &&
                                        problem_.views()->private_family < 0));
    CERES_EXT_RETURN_IF_ERROR(
        SetupRest(plan, setup, forms, *structure, record, &parts_));
    // Later there would be no room for it.
    return page_locks && setup.may_want_gradient
               ? parts_.evaluator.ReserveGradient()
               : Status();
  };
  if (ranks_ == nullptr) {
    return set_up_problem();
  }
  CERES_EXT_RETURN_IF_ERROR(ranks_->Agree(set_up_problem()));
  return parts_.solver.AgreeOnSecondLevel();
}

template <typename Machine>
Status Session<Machine>::FindForms(const SolvePlan& plan,
                                   ProblemStructure* structure,
                                   Forms* forms) {
  if (structure->num_other_rows() == 0) {
    return {};
  }
  for (const BatchModel* model : structure->models) {
    forms->why_no_form.push_back(WhyNoForm(*model, FormKind::kRows, machine_));
    const bool is_on_host =
        kIsHost<Machine> || !forms->why_no_form.back().empty();
    // A library without optimisation is slow itself.
    if (is_on_host && model->is_unoptimized && !kIsUnoptimized) {
      notes_.insert(
          "cost functions of the program are compiled without optimisation, "
          "which makes them slow; compile it with -O2 "
          "(CMAKE_BUILD_TYPE=Release)");
    }
  }
  if (plan.recomputed && !forms->why_no_form.empty()) {
    const std::string why_stored = WhyStored(*structure,
                                             forms->why_no_form,
                                             host_context_,
                                             machine_,
                                             &structure->views.columns);
    forms->recomputed_views = why_stored.empty();
    if (!forms->recomputed_views) {
      notes_.insert("the Jacobian of users' cost functions is stored, since " +
                    why_stored);
    }
  }
  return {};
}

// Counting is setting up once more, which takes time where the host has rows to
// put in order, so it is done where memory may be short. The rest has been seen
// to take up to ten times what is held by then. Arrays that the device has no
// room for stay on the host, where the plan allows so much.
template <typename Machine>
Status Session<Machine>::CheckMemory(const SolvePlan& plan,
                                     const SessionSetup& setup,
                                     const Forms& forms,
                                     const ProblemStructure& structure,
                                     Summary* record,
                                     bool* page_locks) {
  if constexpr (!kIsHost<Machine>) {
    constexpr int64_t kMostRest = 20;
    kernels::CudaContext* const context = machine_->context();
    if (!context->MayRunShort(kMostRest * machine_->bytes())) {
      return {};
    }
    SolvePlan counted = plan;
    // The size of a matrix is known with its pattern, and checked there.
    counted.step.factorization = solver::Factorization::kNone;
    counted.step.use_explicit_schur_complement = false;
    int64_t num_bytes = 0;
    int64_t least = 0;
    int64_t page_locked = 0;
    {
      const kernels::CountMemory count(context);
      const int64_t held = machine_->bytes();
      Summary ignored;
      Parts parts;
      CERES_EXT_RETURN_IF_ERROR(
          SetupRest(counted, setup, forms, structure, &ignored, &parts));
      if (setup.may_want_gradient) {
        CERES_EXT_RETURN_IF_ERROR(parts.evaluator.ReserveGradient());
      }
      int64_t of_caller = 0;
      if (setup.caller_bytes) {
        of_caller = setup.caller_bytes(parts.ScratchResiduals() != nullptr);
      }
      num_bytes = std::max(machine_->bytes() + of_caller, count.peak_bytes());
      context->FindPageLocked(
          count.changes(), held, of_caller, &least, &page_locked);
    }
    const int num_ranks =
        setup.communicator == nullptr ? 1 : setup.communicator->size();
    if (least > 0 && page_locked <= plan.most_page_locked_bytes &&
        page_locked <= SpareHostBytes() / num_ranks) {
      context->PageLockFrom(least);
      *page_locks = true;
      char text[64];
      std::snprintf(text,
                    sizeof(text),
                    ", %.3g GB in page-locked memory of the host",
                    1e-9 * static_cast<double>(page_locked));
      record->device += text;
      return {};
    }
    return context->CheckLimit(num_bytes);
  }
  return {};
}

template <typename Machine>
Status Session<Machine>::SetupRest(const SolvePlan& plan,
                                   const SessionSetup& setup,
                                   const Forms& forms,
                                   const ProblemStructure& structure,
                                   Summary* record,
                                   Parts* parts) {
  std::vector<std::unique_ptr<BatchEvaluator>> rows;
  for (size_t i = 0; i < structure.observations.size(); ++i) {
    CERES_EXT_RETURN_IF_ERROR(
        CreateObservationEvaluator(plan.recomputed,
                                   plan.mixed,
                                   structure.observations[i],
                                   &problem_.observations(static_cast<int>(i)),
                                   problem_.blocks(),
                                   host_context_,
                                   record,
                                   &rows.emplace_back()));
  }
  const RowGroupsInput<Machine> input = {&structure,
                                         &problem_,
                                         host_context_,
                                         record,
                                         forms.why_no_form,
                                         &notes_,
                                         plan.mixed,
                                         forms.recomputed_views};
  if (problem_.views() != nullptr) {
    CERES_EXT_RETURN_IF_ERROR(CreateViewEvaluator(input, &rows.emplace_back()));
  }
  if (problem_.general_rows() != nullptr) {
    CERES_EXT_RETURN_IF_ERROR(
        CreateGeneralEvaluator(input, &rows.emplace_back()));
  }
  CERES_EXT_RETURN_IF_ERROR(parts->evaluator.Setup(
      &problem_, std::move(rows), structure.bounds, setup.host_program));
  record->num_host_manifolds = parts->evaluator.num_host_manifolds();
  record->host_manifold_type = parts->evaluator.host_manifold_type();
  CERES_EXT_RETURN_IF_ERROR(
      parts->evaluator.CreateLinearization(&parts->linearization));
  return setup.has_steps ? SetupSteps(plan, setup, forms, record, parts)
                         : Status();
}

template <typename Machine>
Status Session<Machine>::SetupSteps(const SolvePlan& plan,
                                    const SessionSetup& setup,
                                    const Forms& forms,
                                    Summary* record,
                                    Parts* parts) {
  const solver::ProblemBlocks& blocks = problem_.blocks();
  model_cost_tolerance_ = plan.model_cost_tolerance;
  most_q_tolerance_ = plan.most_q_tolerance;
  forcing_sequence_ =
      ForcingSequenceOf(plan, /*are_merged=*/blocks.merged.num_merged > 0);
  std::vector<unsigned char> f_varies;
  if (plan.step.needs_schur_matrix()) {
    CERES_EXT_RETURN_IF_ERROR(FindUnknowns(&f_varies));
  }
  CERES_EXT_RETURN_IF_ERROR(parts->solver.Setup(plan.step,
                                                blocks,
                                                parts->linearization->batches(),
                                                machine_,
                                                std::move(f_varies),
                                                setup.sparse_factorization,
                                                host_context_,
                                                ranks_.get()));
  const solver::SchurMatrixSize* const matrix = parts->solver.matrix_size();
  if (parts->solver.factorized_size() != nullptr) {
    has_named_matrix_ = true;
    matrix_name_ = MatrixName(*matrix);
  }
  const bool has_private =
      problem_.views() != nullptr && problem_.views()->private_family >= 0;
  record->method =
      MethodName(plan,
                 {problem_.num_observation_batches() > 0,
                  problem_.views() != nullptr && !has_private,
                  forms.recomputed_views,
                  problem_.general_rows() != nullptr || has_private},
                 blocks.merged.num_merged,
                 matrix);
  return {};
}

template <typename Machine>
void Session<Machine>::FinishSetup() {
  if constexpr (!kIsHost<Machine>) {
    const CurrentMachine<Machine> current(machine_);
    // So is memory of the previous session that this one has not requested;
    // memory that it has taken is reused.
    machine_->context()->ReleaseKeptMemory(kernels::CudaContext::kAlwaysKept);
    machine_->context()->KeepMemory(true);
  }
  record_->memory_bytes = peak_bytes();
  if constexpr (!kIsHost<Machine>) {
    const auto* cholesky = parts_.solver.cholesky();
    record_->memory_forecast_bytes =
        std::max(peak_bytes(),
                 machine_->bytes() +
                     (cholesky != nullptr ? cholesky->bytes_to_come() : 0));
  }
}

template <typename Machine>
Status Session<Machine>::Evaluate(const EvaluationWanted<Machine>& wanted,
                                  double* cost) {
  Status status = parts_.evaluator.Evaluate(wanted, cost);
  if (wanted.jacobian != nullptr && wanted.jacobian == linearization()) {
    // Several ranks would have to agree on each trial.
    if (status.ok() && ranks_ == nullptr) {
      runaway_trials_.NoteState(wanted.residuals, *cost);
    }
    return status;
  }
  if (!has_stepped_ || wanted.residuals != nullptr ||
      wanted.gradient != nullptr ||
      (!status.ok() && status.code != kernels::StatusCode::kNumericalFailure)) {
    return status;
  }
  const Status noted = runaway_trials_.NoteTrial(
      wanted, status.ok(), *cost, &parts_.evaluator, problem_, record_);
  return noted.ok() ? status : noted;
}

template <typename Machine>
Status Session<Machine>::FindUnknowns(
    std::vector<unsigned char>* f_varies) const {
  const auto padding = problem_.working_diagonal();
  CERES_EXT_RETURN_IF_ERROR(
      problem_.Gather(nullptr, 1.0, padding.e, padding.f));
  std::vector<double> is_padding(
      static_cast<size_t>(problem_.blocks().f.num_values()));
  CERES_EXT_RETURN_IF_ERROR(machine_->Download(
      static_cast<int64_t>(is_padding.size()), padding.f, is_padding.data()));
  for (const double value : is_padding) {
    f_varies->push_back(value == 0.0 ? 1 : 0);
  }
  return {};
}

namespace {

// The q_tolerance of FORCING_SEQUENCE_MODEL_COST: a tenth of what is asked for,
// but not below 0.01, if merged blocks are wide, as a pose with the 10 or 12
// values of a FULL_OPENCV camera is. Coefficients of its distortion nearly
// depend on each other, so that the cost has a long flat valley. A merged block
// solves for its own ones at once, and PCG that stops after two iterations
// leaves them out of balance with the others: more steps are rejected, and 50
// steps end 0.15 % higher than exact ones, in the mean of 40 problems
// (docs/measurements/forcing.md).
double ModelCostTolerance(const kernels::MergedBlocks& merged,
                          int num_families,
                          double q_tolerance) {
  constexpr int kWideColumns = 16;
  constexpr double kTightEnough = 0.01;
  bool is_wide = false;
  for (int i = num_families; i < merged.families.size(); ++i) {
    is_wide |= merged.families[i].size >= kWideColumns;
  }
  return is_wide
             ? std::max(0.1 * q_tolerance, std::min(q_tolerance, kTightEnough))
             : q_tolerance;
}

}  // namespace

template <typename Machine>
Status Session<Machine>::Step(const StepWanted& wanted,
                              double* step,
                              solver::StepSummary* summary) {
  const CurrentMachine<Machine> current(machine_);
  CERES_EXT_RETURN_IF_ERROR(current.status());
  CERES_EXT_RETURN_IF_ERROR(parts_.linearization->Restore());
  if (!has_stepped_) {
    has_stepped_ = true;
    CERES_EXT_RETURN_IF_ERROR(FindDegenerateBlocks());
  }
  // Padding is damped by one, so that its step is zero.
  const auto diagonal = problem_.working_diagonal();
  const auto of_families = problem_.working();
  CERES_EXT_RETURN_IF_ERROR(
      problem_.Gather(wanted.diagonal, 1.0, diagonal.e, diagonal.f));
  solver::StepPerSolveOptions per_solve;
  const double q_tolerance = std::min(wanted.q_tolerance, most_q_tolerance_);
  per_solve.q_tolerance = q_tolerance;
  per_solve.r_tolerance = wanted.r_tolerance;
  per_solve.model_cost_tolerance =
      model_cost_tolerance_ * parts_.linearization->cost();
  per_solve.use_model_cost = forcing_sequence_ == FORCING_SEQUENCE_MODEL_COST;
  if (per_solve.use_model_cost && runaway_trials_.IsCareful() &&
      record_->num_runaway_residuals > 0) {
    // Accurate steps go to the plane of a camera more often than those of few
    // iterations with single blocks (docs/measurements/reliability.md).
    constexpr double kCarefulTolerance = 0.5;
    per_solve.use_model_cost = false;
    per_solve.use_single_blocks = true;
    per_solve.q_tolerance = std::max(q_tolerance, kCarefulTolerance);
  } else if (per_solve.use_model_cost) {
    per_solve.q_tolerance = ModelCostTolerance(
        problem_.blocks().merged, problem_.blocks().f.size(), q_tolerance);
  }
  per_solve.use_forcing_sequence =
      forcing_sequence_ == FORCING_SEQUENCE_EISENSTAT_WALKER;
  per_solve.is_same_linearization =
      parts_.linearization->num_evaluations() == last_evaluation_;
  per_solve.may_queue = wanted.may_queue;
  last_evaluation_ = parts_.linearization->num_evaluations();
  *summary = parts_.solver.Solve({wanted.residuals, diagonal.e, diagonal.f},
                                 per_solve,
                                 of_families.e,
                                 of_families.f);
  record_->num_pcg_iterations += summary->num_pcg_iterations;
  record_->num_exact_steps += summary->is_exact ? 1 : 0;
  record_->num_solves_at_pcg_limit += summary->is_at_limit ? 1 : 0;
  AddSeconds(*summary);
  record_->num_coarse_iterations += summary->num_coarse_iterations;
  if (const auto* level = parts_.solver.second_level(); level != nullptr) {
    record_->num_clusters = level->num_clusters;
    record_->num_coarse_columns = level->num_columns;
  }
  NoteMatrix();
  // The first exact step may take some, as cuDSS does with its first factor.
  record_->memory_bytes = std::max(record_->memory_bytes, peak_bytes());
  return problem_.Scatter(of_families.e, of_families.f, step);
}

template <typename Machine>
void Session<Machine>::FinishStep(solver::StepSummary* summary) {
  const CurrentMachine<Machine> current(machine_);
  *summary = {};
  summary->termination = solver::Termination::kSuccess;
  parts_.solver.FinishQueued(summary);
  record_->num_exact_steps -=
      summary->termination == solver::Termination::kSuccess ? 0 : 1;
  AddSeconds(*summary);
}

template <typename Machine>
void Session<Machine>::AddSeconds(const solver::StepSummary& summary) {
  record_->normal_blocks_time_in_seconds += summary.normal_blocks_seconds;
  record_->schur_time_in_seconds += summary.schur_seconds;
  record_->factorization_time_in_seconds += summary.factorization_seconds;
  record_->pcg_time_in_seconds += summary.pcg_seconds;
  record_->coarse_time_in_seconds += summary.coarse_seconds;
  record_->back_substitution_time_in_seconds +=
      summary.back_substitution_seconds;
}

template <typename Machine>
void Session<Machine>::NoteMatrix() {
  if (!parts_.solver.why_not_exact().empty() && !has_noted_why_not_exact_) {
    has_noted_why_not_exact_ = true;
    record_->path_reason += "; PCG takes all steps since " +
                            WithoutPeriod(parts_.solver.why_not_exact());
  }
  const auto* const level = parts_.solver.second_level();
  if (level != nullptr && !level->why_not.empty() &&
      !has_noted_why_not_coarse_) {
    has_noted_why_not_coarse_ = true;
    record_->path_reason +=
        "; PCG has no second level since " + AsClause(level->why_not);
  }
  if (record_->num_exact_steps > 0 && !has_named_matrix_) {
    has_named_matrix_ = true;
    matrix_name_ = MatrixName(*parts_.solver.factorized_size());
    record_->method += matrix_name_;
  }
  const std::string& why = parts_.solver.why_replaced();
  const size_t place = record_->method.find(matrix_name_);
  if (why.empty() || matrix_name_.empty() || place == std::string::npos) {
    return;
  }
  record_->method.replace(
      place, matrix_name_.size(), MatrixName(parts_.solver.cholesky()->size()));
  record_->path_reason += "; " + why;
  matrix_name_.clear();
}

template <typename Machine>
Status Session<Machine>::FindDegenerateBlocks() {
  const ScopedSeconds timer(&record_->normal_blocks_time_in_seconds);
  const auto padding = problem_.working_diagonal();
  CERES_EXT_RETURN_IF_ERROR(
      problem_.Gather(nullptr, 1.0, padding.e, padding.f));
  solver::DegenerateBlocks e;
  solver::DegenerateBlocks f;
  CERES_EXT_RETURN_IF_ERROR(
      parts_.solver.FindDegenerateBlocks(padding.e, padding.f, &e, &f));
  record_->degenerate_eliminated_blocks = Named(e, problem_.e());
  record_->degenerate_other_blocks = Named(f, problem_.f());
  return {};
}

template <typename Machine>
DegenerateBlocks Session<Machine>::Named(
    const solver::DegenerateBlocks& degenerate,
    const std::vector<FamilyTable<Machine>>& families) const {
  DegenerateBlocks named;
  if (degenerate.count == 0) {
    return named;
  }
  named.count = degenerate.count;
  named.worst_relative_pivot = degenerate.relative_pivot;
  const int offset =
      families[degenerate.family].table().state_offset(degenerate.block);
  named.worst = ValuesAt(offset);
  return named;
}

template <typename Machine>
int64_t Session<Machine>::peak_bytes() const {
  if constexpr (kIsHost<Machine>) {
    return machine_->bytes();
  } else {
    return machine_->context()->peak_bytes();
  }
}

template <typename Machine>
std::vector<int> Session<Machine>::NumBlocks() const {
  std::vector<int> result;
  for (const auto* families : {&problem_.e(), &problem_.f()}) {
    result.push_back(0);
    for (const auto& family : *families) {
      result.back() += family.table().NumVarying();
    }
  }
  return result;
}

#define CERES_EXT_INSTANTIATE(Machine) template class Session<Machine>;
CERES_EXT_FOR_EACH_MACHINE(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext
