// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/front/evaluate_arrays.h"

#include <memory>
#include <utility>
#include <variant>

#include "ceres/problem.h"
#include "ceres_ext/base/failure.h"
#include "ceres_ext/base/machines.h"
#include "ceres_ext/front/device_arrays.h"
#include "ceres_ext/front/ranks.h"
#include "ceres_ext/import/array_import.h"
#include "ceres_ext/import/array_rows.h"
#include "ceres_ext/import/problem_of_arrays.h"
#include "ceres_ext/plan/attempts.h"
#include "ceres_ext/plan/solve_plan.h"
#include "ceres_ext/session/known_facts.h"
#include "ceres_ext/session/session.h"

namespace ceres_ext {
namespace {

using kernels::Status;
using kernels::StatusCode;

// Covers the blocks that vary; the gradient is a tangent vector, empty if it is
// not requested.
struct Evaluated {
  double cost = 0.0;
  std::vector<double> gradient;
  // True if float may be why it failed.
  bool has_float_blocks = false;
};

template <typename Machine>
Status EvaluateOn(std::shared_ptr<KeptMachine<Machine>> kept,
                  const SolvePlan& plan,
                  bool apply_loss,
                  bool want_gradient,
                  ProblemStructure* structure,
                  Evaluated* evaluated) {
  [[maybe_unused]] const KeepCurrentDevice<Machine> keep;
  const int num_columns = structure->num_columns;
  const int64_t num_values = int64_t{structure->num_parameters} +
                             structure->num_residuals +
                             (want_gradient ? num_columns : 0);
  Session<Machine> session(std::move(kept));
  SessionSetup setup;
  setup.has_steps = false;
  setup.caller_bytes = [num_values](bool /*has_scratch*/) {
    return num_values * static_cast<int64_t>(sizeof(double));
  };
  Summary record;
  CERES_EXT_RETURN_IF_ERROR(session.Setup(plan, setup, structure, &record));
  evaluated->has_float_blocks = session.has_float_blocks();
  typename Machine::template Buffer<double> state;
  typename Machine::template Buffer<double> residuals;
  typename Machine::template Buffer<double> gradient;
  Machine* const machine = session.machine();
  {
    const CurrentMachine<Machine> current(machine);
    CERES_EXT_RETURN_IF_ERROR(current.status());
    CERES_EXT_RETURN_IF_ERROR(
        machine->Allocate(session.num_parameters(), &state));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Allocate(session.num_residuals(), &residuals));
    CERES_EXT_RETURN_IF_ERROR(
        machine->Allocate(want_gradient ? num_columns : 0, &gradient));
    CERES_EXT_RETURN_IF_ERROR(
        session.caller_state()->CopyToMachine(state.data(), machine));
  }
  session.FinishSetup();
  EvaluationWanted<Machine> wanted;
  wanted.state = state.data();
  wanted.apply_loss = apply_loss;
  wanted.residuals = residuals.data();
  if (want_gradient) {
    wanted.gradient = gradient.data();
    wanted.jacobian = session.linearization();
  }
  CERES_EXT_RETURN_IF_ERROR(session.Evaluate(wanted, &evaluated->cost));
  evaluated->gradient.resize(want_gradient ? num_columns : 0);
  return session.Download(static_cast<int64_t>(evaluated->gradient.size()),
                          gradient.data(),
                          evaluated->gradient.data());
}

// By Ceres. The gradient has all blocks.
Outcome EvaluateProblem(const EvaluateOptions& options,
                        const ArrayProblem& problem,
                        double* cost,
                        std::vector<double>* gradient) {
  ProblemOfArrays of_arrays(problem);
  ceres::Problem::EvaluateOptions evaluate_options;
  evaluate_options.apply_loss_function = options.apply_loss_function;
  evaluate_options.num_threads = options.num_threads;
  return of_arrays.problem()->Evaluate(
             evaluate_options, cost, nullptr, gradient, nullptr)
             ? Outcome()
             : Outcome(Status(StatusCode::kNumericalFailure,
                              "A residual block can't be evaluated."));
}

class SessionEvaluation {
 public:
  SessionEvaluation(const EvaluateOptions& options,
                    const Options& ext_options,
                    const ArrayProblem& problem,
                    KeptMachines* kept)
      : options_(options),
        ext_options_(ext_options),
        problem_(problem),
        kept_(kept),
        arrays_(&problem, &ignored_),
        facts_(ext_options, options.num_threads, &structure_, kept) {}

  // Null: not wanted. If false, *error says why they are not available.
  bool Run(double* cost, std::vector<double>* gradient, std::string* error) {
    Attempts attempts(ext_options_, {}, "The problem is evaluated");
    Evaluated evaluated;
    const Outcome outcome = TryEach(&attempts, [&](const Attempt& attempt) {
      return attempt.why_problem.empty()
                 ? Evaluate(attempt, gradient != nullptr, &evaluated)
                 : EvaluateProblem(options_, problem_, cost, gradient);
    });
    if (!outcome.status.ok()) {
      *error =
          outcome.stage == Outcome::kDeclined
              ? "Ceres Ext refuses the problem: " + outcome.status.message + "."
              : outcome.status.message;
      return false;
    }
    if (!attempts.now().why_problem.empty()) {
      return true;
    }
    double fixed_cost = 0.0;
    if (!arrays_.FixedCost(options_.apply_loss_function, &fixed_cost)) {
      *error =
          "A residual block that depends on constants alone can't be "
          "evaluated.";
      return false;
    }
    if (cost != nullptr) {
      *cost = evaluated.cost + fixed_cost;
    }
    if (gradient != nullptr) {
      arrays_.SpreadTangents(evaluated.gradient.data(), gradient);
    }
    return true;
  }

 private:
  Outcome Evaluate(const Attempt& attempt,
                   bool want_gradient,
                   Evaluated* evaluated) {
    if (!ext_options_.enabled) {
      return {Outcome::kNeedsProblem, "enabled = false"};
    }
    if (!attempt.why_host.empty()) {
      facts_.DropDevice();
    }
    PlanRequest request;
    request.options = attempt.Apply(ext_options_);
    request.num_threads = options_.num_threads;
    request.attempt = attempt;
    request.purpose = Purpose::kEvaluation;
    // There are no steps, and nothing is eliminated.
    request.solver_options.linear_solver_type = ceres::CGNR;
    request.has_ceres_state = false;
    std::string reason = arrays_.WhyProblemIsNeeded(request.solver_options);
    if (!reason.empty()) {
      return {Outcome::kNeedsProblem, reason};
    }
    ImportOptions import_options;
    import_options.batch_evaluation = ext_options_.batch_evaluation;
    import_options.use_schur = false;
    if (!arrays_.Import(import_options,
                        kept_->is_for_several,
                        kept_->host_context(options_.num_threads),
                        &structure_,
                        &reason)) {
      return {Outcome::kDeclined, reason};
    }
    RowFacts rows = FactsOf(structure_);
    arrays_.CountValues(
        ext_options_.batch_evaluation, &rows.num_values, &rows.num_host_values);
    const auto decision = Decide(request, rows, facts_);
    if (const auto* refusal = std::get_if<Refusal>(&decision)) {
      return {Outcome::kDeclined, refusal->reason};
    }
    const SolvePlan& plan = std::get<SolvePlan>(decision);
    const auto evaluate_on = [&](auto machine) {
      return EvaluateOn(std::move(machine),
                        plan,
                        options_.apply_loss_function,
                        want_gradient,
                        &structure_,
                        evaluated);
    };
    Outcome outcome(plan.on_device
                        ? evaluate_on(facts_.device())
                        : evaluate_on(kept_->GetHost(options_.num_threads)));
    outcome.on_device = plan.on_device;
    outcome.in_float = plan.mixed && evaluated->has_float_blocks;
    if (outcome.status.code == StatusCode::kNumericalFailure) {
      outcome.status.message =
          "Initial residual and Jacobian evaluation failed. " +
          outcome.status.message;
    }
    return outcome;
  }

  const EvaluateOptions options_;
  const Options& ext_options_;
  const ArrayProblem& problem_;
  KeptMachines* const kept_;
  // A summary that no solve has filled: nothing is written to the arrays.
  const ceres::Solver::Summary ignored_;
  ArrayImport arrays_;
  ProblemStructure structure_;
  KnownFacts facts_;
};

}  // namespace

bool EvaluateArrays(const EvaluateOptions& options,
                    const Options& given_options,
                    const ArrayProblem& problem,
                    KeptMachines* kept,
                    double* cost,
                    std::vector<double>* residuals,
                    std::vector<double>* gradient,
                    std::string* error) {
  error->clear();
  Failure failure;
  const bool ok = failure.Guard(false, [&] {
    if (!given_options.IsValid(error)) {
      *error = "ceres_ext::Options is not valid: " + *error;
      return false;
    }
    if (!HasNoRanks(given_options, "an evaluation", error)) {
      return false;
    }
    const Options ext_options = Attempt().Apply(given_options);
    if (options.num_threads < 1) {
      *error = "EvaluateOptions::num_threads is " +
               std::to_string(options.num_threads) + "; expected 1 or more";
      return false;
    }
    if (HasDeviceArrays(problem)) {
      // They are copied, since residuals and gradient go to the host anyway.
      HostCopies copies;
      return CopyToHost(ext_options,
                        options.num_threads,
                        problem,
                        kept,
                        &copies,
                        error) &&
             EvaluateArrays(options,
                            ext_options,
                            *copies.problem(),
                            kept,
                            cost,
                            residuals,
                            gradient,
                            error);
    }
    kernels::HostContext* const context =
        kept->host_context(options.num_threads);
    if (!IsValidProblem(problem, context, error)) {
      return false;
    }
    if (residuals != nullptr &&
        !ArrayRows(&problem).AllResiduals(
            options.apply_loss_function, context, residuals, error)) {
      return false;
    }
    if (cost == nullptr && gradient == nullptr) {
      return true;
    }
    return SessionEvaluation(options, ext_options, problem, kept)
        .Run(cost, gradient, error);
  });
  if (failure.has_happened()) {
    AssignOrShorten(failure.sentence(), error);
  }
  if (!ok) {
    kept->Clear();
  }
  return ok;
}

}  // namespace ceres_ext
