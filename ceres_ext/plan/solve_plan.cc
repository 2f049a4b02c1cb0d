// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/plan/solve_plan.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <utility>

#include "ceres_ext/plan/solver_choice.h"
#include "ceres_ext/solver/preconditioner/coarse_units.h"

namespace ceres_ext {
namespace {

// True if exact steps may be taken in place of PCG. Ranks have none.
bool MayFactorize(const PlanRequest& request) {
  return request.options.linear_solver == LINEAR_SOLVER_AUTO &&
         request.options.communicator == nullptr &&
         request.options.preconditioner != PRECONDITIONER_TWO_LEVEL &&
         request.attempt.why_pcg.empty() &&
         request.solver_options.linear_solver_type == ceres::ITERATIVE_SCHUR &&
         !request.solver_options.use_explicit_schur_complement;
}

// True if inexact steps go astray: most rows are of any shape, or have scales
// of their own.
bool AreGeneral(const RowFacts& rows) {
  return rows.has_private || 2 * rows.num_general_rows >
                                 rows.num_observations + rows.num_other_rows;
}

// True if PCG that this library chooses replaces a factorisation of such rows:
// its steps are accurate.
bool IsAccurate(const PlanRequest& request, const RowFacts& rows) {
  return request.replaces_factorization && AreGeneral(rows) &&
         request.options.linear_solver == LINEAR_SOLVER_AUTO;
}

SolveWork WorkOf(const PlanRequest& request, const RowFacts& rows) {
  SolveWork work = EstimateWork(rows.num_values,
                                rows.num_host_values,
                                request.solver_options,
                                request.options);
  if (request.purpose == Purpose::kEvaluation) {
    work.num_steps = 1;
    work.num_pcg_iterations = 1;
  } else if (IsAccurate(request, rows)) {
    // A sphere of 10,000 poses takes 366 a step, a grid of 4,096 175
    // (docs/measurements/maps.md).
    constexpr int kAccurateIterations = 250;
    work.num_pcg_iterations =
        std::min(request.solver_options.max_linear_solver_iterations,
                 kAccurateIterations);
  }
  work.num_general_rows = rows.num_general_rows;
  work.num_threads = request.num_threads;
  work.is_auto = MayFactorize(request);
  if (work.is_auto || rows.num_couplings > 0.0 ||
      IsFactorized(request.solver_options.linear_solver_type)) {
    work.float_factor = request.solver_options.use_mixed_precision_solves;
    work.num_factorized_columns = rows.num_other_columns;
    // Less those of the eliminated block, a point's.
    constexpr double kEliminatedColumns = 3.0;
    const double columns = std::max(
        static_cast<double>(rows.num_values) /
                static_cast<double>(std::max(rows.num_residuals, int64_t{1})) -
            kEliminatedColumns,
        1.0);
    work.num_coupling_products = rows.num_couplings * columns * columns;
    work.has_pairs = rows.has_pairs || rows.rows_repeat;
    work.factor = rows.factor;
    work.may_be_sparse =
        rows.factor.num_tiles > 0.0 && !work.float_factor &&
        request.purpose != Purpose::kCovariance &&
        request.options.schur_factorization != SCHUR_FACTORIZATION_DENSE;
  }
  return work;
}

// DEVICE_AUTO: why the host solves small problems, a clause; empty: it doesn't.
// So many rows pay for the start of a device, beside a host of the default
// rates.
std::string WhyHostOfSmall(const RowFacts& rows, const MachineFacts& machines) {
  constexpr double kLeastDeviceRows = 15000.0;
  constexpr double kSecondsOfStart = 0.2;
  const int64_t num_rows = rows.num_observations + rows.num_other_rows;
  const kernels::MachineRates rates = machines.HostRates(
      kSecondsOfStart * static_cast<double>(num_rows) / kLeastDeviceRows);
  const auto least =
      static_cast<int64_t>(std::ceil(kLeastDeviceRows / SlowerHost(rates)));
  return num_rows < least
             ? "fewer than " + std::to_string(least) + " residual blocks"
             : "";
}

// The reason why the device that is to be used can't be, a clause; empty if it
// can.
std::string WhyNoDevice(const PlanRequest& request,
                        const RowFacts& rows,
                        const MachineFacts& machines) {
  if (!request.attempt.why_host.empty()) {
    return request.attempt.why_host;
  }
  // A thread inverts a matrix of n columns in n^3 steps
  // (cuda_kernels/ops/block_rows.h).
  constexpr int kMaxInvertedColumns = 128;
  const ceres::PreconditionerType preconditioner =
      request.solver_options.preconditioner_type;
  if (rows.max_block_columns > kMaxInvertedColumns &&
      IsIterative(request.solver_options.linear_solver_type) &&
      preconditioner != ceres::IDENTITY) {
    return "a parameter block has " + std::to_string(rows.max_block_columns) +
           " tangent dimensions, and " +
           ceres::PreconditionerTypeToString(preconditioner) +
           " inverts its matrix; a device inverts those of at most " +
           std::to_string(kMaxInvertedColumns);
  }
  std::string why = machines.WhyNoDevice();
  // Windows and fits factorise by themselves.
  const bool needs_library =
      request.purpose != Purpose::kSmall &&
      IsFactorized(request.solver_options.linear_solver_type);
  return why.empty() && needs_library
             ? machines.WhyNoFactorization(request.options.schur_factorization)
             : why;
}

// Sets on_device and why_host. False, with *refusal, where neither machine is
// to be used.
bool ChooseMachine(const PlanRequest& request,
                   const RowFacts& rows,
                   const MachineFacts& machines,
                   SolvePlan* plan,
                   Refusal* refusal) {
  const Options& options = request.options;
  // A device that has been left is not estimated.
  if (options.device == DEVICE_AUTO && request.attempt.why_host.empty()) {
    plan->why_host = request.purpose == Purpose::kSmall
                         ? WhyHostOfSmall(rows, machines)
                         : machines.WhyHost(WorkOf(request, rows));
  }
  if (options.device == DEVICE_HOST) {
    plan->why_host = request.attempt.why_host;
  } else if (plan->why_host.empty()) {
    plan->why_host = WhyNoDevice(request, rows, machines);
    if (plan->why_host.empty()) {
      plan->on_device = true;
      return true;
    }
    if (options.device == DEVICE_CUDA && !MayFallBack(options)) {
      *refusal = {"device = CUDA is not available, because " + plan->why_host,
                  NeedsSchurMatrix(request.solver_options)};
      return false;
    }
    // A build without CUDA gives no reason if no device was requested.
    if (!machines.BuildHasCuda() && options.device == DEVICE_AUTO) {
      plan->why_host.clear();
    }
  }
  if (request.solver_options.use_mixed_precision_solves &&
      IsFactorized(request.solver_options.linear_solver_type)) {
    *refusal = {
        SolvedByCeres(
            request.solver_options,
            "use_mixed_precision_solves needs a device" +
                (plan->why_host.empty() ? "" : " (" + plan->why_host + ")")),
        /*is_final=*/true};
    return false;
  }
  return true;
}

bool AreOneKind(const RowFacts& rows) {
  return rows.num_observation_kinds == 1 && rows.num_other_rows == 0;
}

// The reason why S as a matrix needs a stored Jacobian, a clause; empty if a
// recomputed one will do.
std::string WhyStored(const RowFacts& rows) {
  if (!AreOneKind(rows)) {
    return "the Schur complement as a matrix is formed of a recomputed one "
           "only of observations of one kind without other residual blocks";
  }
  return rows.rows_repeat
             ? "the Schur complement as a matrix is not formed of a recomputed "
               "one if many observations of a point have the same camera"
             : "";
}
bool NeedsStored(const RowFacts& rows) { return !WhyStored(rows).empty(); }

// How much of a problem that is larger than the device may stay on the host:
// all, if the host is not to solve it. Matrices of exact steps do not stay
// there.
int64_t MostPageLocked(const PlanRequest& request,
                       const RowFacts& rows,
                       const kernels::MachineRates& rates,
                       const SolvePlan& plan) {
  if (!plan.on_device || plan.step.factorizes() ||
      plan.step.use_explicit_schur_complement) {
    return 0;
  }
  if (request.options.device == DEVICE_CUDA && !MayFallBack(request.options)) {
    return std::numeric_limits<int64_t>::max();
  }
  SolveWork work = WorkOf(request, rows);
  work.recomputed = plan.recomputed;
  return MostPageLockedBytes(work, {/*has_context=*/true, rates});
}

// True if a factor of S takes a small part of what a dense one does: then few
// blocks divide S, as those of a path, a ring or a grid do, which PCG crosses
// block by block.
bool HasSmallSeparators(const RowFacts& rows) {
  constexpr double kMostOfDense = 0.1;
  const auto n = static_cast<double>(rows.num_other_columns);
  return rows.factor.num_tiles > 0.0 &&
         rows.factor.sparse.num_flops < kMostOfDense * n * n * n / 3.0;
}

// Chooses exact steps in place of PCG, or beside it: what these cost; 0 if
// there are none.
ExactStepCost ChooseSolver(const PlanRequest& request,
                           const RowFacts& rows,
                           const MachineFacts& machines,
                           const kernels::MachineRates& rates,
                           SolvePlan* plan) {
  // An exact step that costs fewer iterations than these is taken outright: for
  // most steps PCG takes more, or on a device it comes to the end no sooner
  // (docs/measurements/everyday.md). few.with_setup: the same with its share,
  // of some ten steps, of the set-up of S as a matrix. One that costs more than
  // the last number would wait for many steps of PCG at their limit.
  // Rows of any shape take more: positions by directions (30 cameras, nine
  // problems) end at 0.01 to 1.9 after 30 exact steps, and at 10 to 13 after 30
  // by PCG with eta 0.1, in the same time (an exact step costs 16 iterations);
  // 1,000 cameras at 31 and 335, in 12.8 and 9.6 s. On an H200, where an exact
  // step of 2,500 poses is taken to cost some 150, they take 0.11 s for PCG's
  // 0.16, and 1,000 cameras end at 16 and 45 in 0.9 and 1.1 s
  // (docs/measurements/maps.md). If blocks are eliminated within rows, an exact
  // step of 10,000 cameras costs about 180 iterations on a device. If PCG
  // replaces a factorisation, and so is accurate, and S has small separators,
  // graphs of poses on the host take 0.7, 0.55 and 0.75 times as long by exact
  // steps that cost 43, 94 and 104 iterations, and 1.2 times by one of 212;
  // pairs of 600 rotations at random, whose factor is dense, 2.6 times.
  const bool is_general = AreGeneral(rows);
  const bool takes_many = rows.has_private || (is_general && plan->on_device);
  const bool is_divided =
      is_general && request.replaces_factorization && HasSmallSeparators(rows);
  struct Few {
    double iterations;
    double with_setup;
  };
  const Few few = takes_many        ? Few{200.0, 250.0}
                  : is_divided      ? Few{150.0, 190.0}
                  : is_general      ? Few{40.0, 50.0}
                  : plan->on_device ? Few{35.0, 45.0}
                                    : Few{12.0, 25.0};
  constexpr double kSteps = 10.0;
  constexpr double kManyIterations = 1e4;
  plan->linear_solver_type = request.solver_options.linear_solver_type;
  if (!MayFactorize(request) || rows.num_other_columns == 0 ||
      (plan->on_device &&
       !machines.WhyNoFactorization(request.options.schur_factorization)
            .empty())) {
    return {};
  }
  SolveWork work = WorkOf(request, rows);
  work.may_be_sparse =
      plan->on_device && work.may_be_sparse &&
      machines.WhyNoFactorization(SCHUR_FACTORIZATION_SPARSE).empty();
  const ExactStepCost cost =
      EstimateExactStepCost(work, rates, plan->on_device);
  if (cost.step < few.iterations &&
      cost.step + cost.setup / kSteps < few.with_setup) {
    plan->linear_solver_type = ceres::DENSE_SCHUR;
    plan->notes.emplace_back(
        "linear_solver = auto takes exact steps, which should be faster than "
        "PCG");
    return {};
  }
  return cost.step < kManyIterations ? cost : ExactStepCost();
}

// The reason why PCG can't have a second level, a clause; empty if it can.
std::string WhyNotCoarse(const RowFacts& rows, const SolvePlan& plan) {
  if (!plan.step.use_schur ||
      plan.step.preconditioner != solver::PreconditionerType::kSchurJacobi) {
    return "it is for ITERATIVE_SCHUR with SCHUR_JACOBI";
  }
  if (plan.step.use_explicit_schur_complement) {
    return "use_explicit_schur_complement is on";
  }
  if (plan.step.has_power_series()) {
    return "use_spse_initialization is on";
  }
  if (rows.num_observations == 0 && rows.num_general_rows > 0 &&
      rows.num_general_rows == rows.num_other_rows) {
    return "no rows have their eliminated blocks to themselves";
  }
  // CoarseSpace makes at least two clusters of these.
  constexpr int64_t kLeastColumns = 270;
  if (rows.num_other_columns < kLeastColumns) {
    return "there are fewer than " + std::to_string(kLeastColumns) +
           " columns of blocks that are not eliminated";
  }
  // Other rows than these are stored whatever is asked for.
  const bool may_recompute = rows.num_observations > 0 || rows.has_models;
  if (plan.recomputed && may_recompute && !AreOneKind(rows)) {
    return "the Schur complement as a matrix is formed of a recomputed "
           "Jacobian only of observations of one kind without other residual "
           "blocks";
  }
  return "";
}

// The preconditioner of PCG. This library chooses it too if it chooses PCG.
PreconditionerChoice AskedPreconditioner(const PlanRequest& request) {
  return request.options.preconditioner == PRECONDITIONER_AS_GIVEN &&
                 request.options.linear_solver == LINEAR_SOLVER_AUTO
             ? PRECONDITIONER_AUTO
             : request.options.preconditioner;
}

// True if a second level needs no S: one kind of rows, each of a point, that
// share few columns.
bool FormsCoarseByRows(const RowFacts& rows) {
  return (AreOneKind(rows) && !rows.has_pairs) ||
         (rows.num_observations == 0 && rows.num_general_rows == 0 &&
          rows.num_shared_columns <= solver::kMostSharedColumns);
}

// When PCG has a second level. exact: what an exact step in place of PCG's
// costs; 0 if there is none.
void ChooseCoarse(const PlanRequest& request,
                  const RowFacts& rows,
                  const kernels::MachineRates& rates,
                  const ExactStepCost& exact,
                  SolvePlan* plan) {
  const PreconditionerChoice asked = AskedPreconditioner(request);
  const bool is_given = request.options.preconditioner == asked;
  if (!HasSecondLevel(asked) || plan->step.factorizes()) {
    return;
  }
  const std::string why_not = WhyNotCoarse(rows, *plan);
  if (!why_not.empty()) {
    if (is_given && exact.step == 0.0) {
      plan->notes.push_back("PCG has no second level since " + why_not);
    }
    return;
  }
  const bool by_rows = FormsCoarseByRows(rows);
  // Otherwise each step forms S, which has to be asked for.
  if (!is_given && !by_rows) {
    return;
  }
  CoarseCost cost = EstimateCoarseCost(
      WorkOf(request, rows), by_rows, rates, plan->on_device);
  if (by_rows) {
    // A product with S for each.
    cost.setup += static_cast<int>(rows.num_shared_columns);
    cost.step += static_cast<int>(rows.num_shared_columns);
  }
  // Hard steps are exact if ten of them cost less so.
  constexpr double kHardSteps = 10.0;
  constexpr double kIterations = 10.0;
  if (exact.step > 0.0 &&
      exact.setup + kHardSteps * exact.step <
          cost.setup + kHardSteps * (cost.step + kIterations)) {
    return;
  }
  // A third of the set-up. On 24 problems of 20,000 observations
  // (docs/measurements/preconditioners.md) the default takes 6.2 s if it waits
  // for all of it, 4.1 s for a third, and 4.9 s with a second level from the
  // start.
  constexpr int kPart = 3;
  plan->step.coarse_after =
      asked == PRECONDITIONER_TWO_LEVEL ? 0 : cost.setup / kPart;
  plan->step.coarse_again = cost.step;
}

// Sets `recomputed`. False, with *refusal, where it is asked for and can't be.
bool ChooseJacobian(const PlanRequest& request,
                    const ceres::Solver::Options& solver_options,
                    const RowFacts& rows,
                    const MachineFacts& machines,
                    const kernels::MachineRates& rates,
                    const ExactStepCost& exact,
                    SolvePlan* plan,
                    Refusal* refusal) {
  const JacobianType asked = request.options.jacobian;
  if (NeedsSchurMatrix(solver_options) && NeedsStored(rows)) {
    if (asked == JACOBIAN_RECOMPUTED) {
      plan->notes.push_back("the Jacobian is stored, since " + WhyStored(rows));
    }
    return true;
  }
  if (asked == JACOBIAN_AUTO) {
    // S as a matrix may be wanted: for a second level that is asked for, or for
    // an exact step that PCG comes to before its limit. So may be the rows of
    // views that share intrinsics, for a second level without it.
    const bool may_need_matrix =
        HasSecondLevel(request.options.preconditioner) ||
        (HasSecondLevel(AskedPreconditioner(request)) &&
         rows.num_shared_columns > 0 && FormsCoarseByRows(rows)) ||
        (exact.step > 0.0 &&
         exact.step < solver_options.max_linear_solver_iterations);
    // On the host recomputed ones take twice the time.
    plan->recomputed = plan->on_device &&
                       !(may_need_matrix && NeedsStored(rows)) &&
                       RecomputedIsFaster(request.options.precision, rates) &&
                       machines.WhyNotRecomputed().empty();
  } else if (asked == JACOBIAN_RECOMPUTED) {
    const std::string why = machines.WhyNotRecomputed();
    if (!why.empty()) {
      *refusal = {"jacobian RECOMPUTED supports " + why,
                  NeedsSchurMatrix(solver_options)};
      return false;
    }
    plan->recomputed = true;
  }
  return true;
}

bool PrefersFloatFactor(const RowFacts& rows,
                        const kernels::MachineRates& rates,
                        const SolvePlan& plan) {
  return plan.mixed && !plan.step.wants_columns &&
         !plan.step.use_mixed_precision_solves &&
         solver::FloatFactorIsFaster(rows.num_other_columns, rates);
}

}  // namespace

FactsWanted FactsFor(const PlanRequest& request) {
  const Options& options = request.options;
  const bool has_auto = options.linear_solver == LINEAR_SOLVER_AUTO ||
                        options.preconditioner == PRECONDITIONER_AUTO;
  FactsWanted wanted;
  wanted.values = options.device == DEVICE_AUTO || has_auto ||
                  IsNormalCholesky(request.solver_options.linear_solver_type);
  wanted.repeats = NeedsSchurMatrix(request.solver_options) ||
                   HasSecondLevel(options.preconditioner);
  // Estimates of PCG's time don't depend on them.
  wanted.couplings =
      has_auto || IsFactorized(request.solver_options.linear_solver_type);
  return wanted;
}

std::variant<SolvePlan, Refusal> Decide(const PlanRequest& request,
                                        const RowFacts& rows,
                                        const MachineFacts& machines) {
  SolvePlan plan;
  Refusal refusal;
  if (request.purpose == Purpose::kSmall) {
    // The rest of the plan is theirs.
    if (!ChooseMachine(request, rows, machines, &plan, &refusal)) {
      return refusal;
    }
    return plan;
  }
  if (request.options.jacobian == JACOBIAN_RECOMPUTED &&
      rows.num_observations == 0 && !rows.has_models) {
    return Refusal{
        "jacobian RECOMPUTED needs residual blocks of this library's cost "
        "functions"};
  }
  if (!ChooseMachine(request, rows, machines, &plan, &refusal)) {
    return refusal;
  }
  if (!plan.on_device && request.purpose == Purpose::kSolve &&
      request.has_ceres_state && rows.num_observations == 0 &&
      rows.num_general_rows == rows.num_other_rows) {
    NormalWork work;
    work.num_rows = rows.num_other_rows;
    work.num_residuals = rows.num_residuals;
    work.num_columns = rows.num_columns;
    work.num_coupling_products = WorkOf(request, rows).num_coupling_products;
    work.num_threads = request.num_threads;
    std::string why =
        WhyStockNormal(request.options, request.solver_options, work);
    if (!why.empty()) {
      return Refusal{std::move(why), /*is_final=*/true};
    }
  }
  const kernels::MachineRates rates =
      plan.on_device ? machines.Rates() : kernels::MachineRates();
  // Ranks may have several kinds of devices, and all take the same steps.
  const kernels::MachineRates of_steps =
      request.options.communicator == nullptr ? rates : kernels::MachineRates();
  const ExactStepCost exact =
      ChooseSolver(request, rows, machines, of_steps, &plan);
  ceres::Solver::Options solver_options = request.solver_options;
  solver_options.linear_solver_type = plan.linear_solver_type;
  if (!ChooseJacobian(request,
                      solver_options,
                      rows,
                      machines,
                      rates,
                      exact,
                      &plan,
                      &refusal)) {
    return refusal;
  }
  if (!request.attempt.why_pcg.empty()) {
    plan.notes.push_back("PCG takes all steps since " +
                         request.attempt.why_pcg);
  }
  plan.step = ToStepOptions(request.options, solver_options);
  plan.step.rates = rates;
  plan.step.wants_columns = request.purpose == Purpose::kCovariance;
  if (request.options.linear_solver == LINEAR_SOLVER_AUTO &&
      request.options.preconditioner != PRECONDITIONER_TWO_LEVEL) {
    // A step of two or three iterations leaves a third of the model's gain, and
    // the first steps decide in which valley a solve ends. With these numbers
    // 29 of 32 streets and cities end within 5e-4 of the best of four variants,
    // without them 25, after more iterations; with eight steps 29 after as many
    // (docs/measurements/preconditioners.md).
    plan.step.num_first_steps = 4;
    plan.step.min_num_first_iterations = 10;
  }
  plan.step.sums_pairs = rows.rows_repeat && !plan.recomputed;
  plan.step.may_be_small =
      !plan.on_device && request.purpose == Purpose::kSolve &&
      MayHaveSmallSchur(request.options, request.solver_options) &&
      rows.num_residuals <= kMostSmallSchurResiduals &&
      rows.num_other_columns <= kMostSmallSchurColumns;
  const bool may_be_exact =
      exact.step > 0.0 && !(plan.recomputed && NeedsStored(rows));
  ChooseCoarse(
      request, rows, of_steps, may_be_exact ? exact : ExactStepCost(), &plan);
  if (may_be_exact && !plan.step.may_be_coarse()) {
    plan.step.factorization =
        ToFactorization(request.options.schur_factorization);
    plan.step.exact_step_cost = static_cast<int64_t>(std::ceil(exact.step));
    plan.step.exact_setup_cost = static_cast<int64_t>(exact.setup);
  }
  plan.most_page_locked_bytes = MostPageLocked(request, rows, rates, plan);
  plan.preconditioner_name =
      ceres::PreconditionerTypeToString(solver_options.preconditioner_type);
  // Without elimination, or without blocks, there is nothing to merge.
  plan.merge_blocks =
      request.options.preconditioner_blocks == PRECONDITIONER_BLOCKS_MERGED &&
      solver_options.linear_solver_type == ceres::ITERATIVE_SCHUR &&
      !solver_options.use_explicit_schur_complement &&
      (solver_options.preconditioner_type == ceres::JACOBI ||
       solver_options.preconditioner_type == ceres::SCHUR_JACOBI);
  plan.forcing_sequence = request.options.forcing_sequence;
  if (plan.forcing_sequence == FORCING_SEQUENCE_AUTO &&
      request.replaces_factorization) {
    // The program's eta is not meant for steps that are exact.
    plan.forcing_sequence = FORCING_SEQUENCE_MODEL_COST;
  }
  if (IsAccurate(request, rows)) {
    // The same positions end at 10.3 with 0.1, 2.4 with 0.01 and 0.188, as by
    // exact steps, with 0.001.
    constexpr double kAccurate = 1e-3;
    plan.most_q_tolerance = kAccurate;
  }
  plan.model_cost_tolerance =
      std::max(0.0, request.options.model_cost_tolerance);
  // The host computes in double.
  plan.mixed = plan.on_device && request.options.precision == PRECISION_MIXED;
  plan.step.prefers_float_factor = PrefersFloatFactor(rows, rates, plan);
  plan.communicator = request.options.communicator;
  plan.keeps_best = (plan.on_device || !request.has_ceres_state) &&
                    !solver_options.update_state_every_iteration;
  return plan;
}

ForcingSequenceType ForcingSequenceOf(const SolvePlan& plan, bool are_merged) {
  if (plan.forcing_sequence != FORCING_SEQUENCE_AUTO) {
    return plan.forcing_sequence;
  }
  return are_merged ? FORCING_SEQUENCE_MODEL_COST : FORCING_SEQUENCE_CONSTANT;
}

std::string SolvedByCeres(const ceres::Solver::Options& options,
                          const std::string& why_host) {
  return std::string("stock Ceres solves with ") +
         (IsFactorized(options.linear_solver_type)
              ? ceres::LinearSolverTypeToString(options.linear_solver_type)
              : "use_explicit_schur_complement") +
         " on the host, because " + why_host;
}

std::string WithoutPeriod(std::string text) {
  if (!text.empty() && text.back() == '.') {
    text.pop_back();
  }
  return text;
}

std::string AsClause(const std::string& sentence) {
  std::string clause = WithoutPeriod(sentence);
  if (clause.size() > 1 &&
      std::isupper(static_cast<unsigned char>(clause[1])) == 0) {
    clause[0] =
        static_cast<char>(std::tolower(static_cast<unsigned char>(clause[0])));
  }
  return clause;
}

}  // namespace ceres_ext
