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
#include "ceres_ext/plan/device_choice.h"
#include "ceres_ext/plan/solve_plan.h"
#include "ceres_ext/session/known_facts.h"
#include "ceres_ext/session/session.h"
#include "glog/logging.h"

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

class SessionEvaluation {
 public:
  SessionEvaluation(const EvaluateOptions& options,
                    const Options& ext_options,
                    const ArrayProblem& problem,
                    KeptMachines* kept)
      : options_(options), kept_(kept), arrays_(&problem, &ignored_) {
    request_.options = ext_options;
    request_.num_threads = options.num_threads;
    request_.has_ceres_state = false;
    ceres::Solver::Options& solver_options = request_.solver_options;
    solver_options.linear_solver_type = ceres::CGNR;
    solver_options.preconditioner_type = ceres::IDENTITY;
    // One evaluation is the work that a device would have.
    solver_options.max_num_iterations = 1;
    solver_options.max_linear_solver_iterations = 1;
  }

  // Null: not wanted. If false, *error says why they are not available, or
  // *needs_problem is set.
  bool Run(double* cost,
           std::vector<double>* gradient,
           bool* needs_problem,
           std::string* error) {
    *needs_problem =
        !request_.options.enabled ||
        !arrays_.WhyProblemIsNeeded(request_.solver_options).empty();
    Evaluated evaluated;
    if (*needs_problem ||
        !Evaluate(gradient != nullptr, &evaluated, needs_problem, error)) {
      return false;
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
  bool Refuse(const std::string& reason,
              bool* needs_problem,
              std::string* error) const {
    *needs_problem = request_.options.fallback != FALLBACK_REFUSE;
    if (!*needs_problem) {
      *error = "Ceres Ext refuses the problem: " + reason + ".";
    }
    return false;
  }

  // On the machine that is planned, or what follows when that fails.
  bool Evaluate(bool want_gradient,
                Evaluated* evaluated,
                bool* needs_problem,
                std::string* error) {
    ImportOptions import_options;
    import_options.batch_evaluation = request_.options.batch_evaluation;
    import_options.use_schur = false;
    ProblemStructure structure;
    KnownFacts facts(request_.options, request_.num_threads, &structure, kept_);
    while (true) {
      std::string reason;
      if (!arrays_.Import(import_options,
                          kept_->is_for_several,
                          kept_->host_context(request_.num_threads),
                          &structure,
                          &reason)) {
        return Refuse(reason, needs_problem, error);
      }
      RowFacts rows = FactsOf(structure);
      arrays_.CountValues(import_options.batch_evaluation,
                          &rows.num_values,
                          &rows.num_host_values);
      const auto decision = Decide(request_, rows, facts);
      if (const auto* refusal = std::get_if<Refusal>(&decision)) {
        return Refuse(refusal->reason, needs_problem, error);
      }
      const SolvePlan& plan = std::get<SolvePlan>(decision);
      const auto evaluate_on = [&](auto machine) {
        return EvaluateOn(std::move(machine),
                          plan,
                          options_.apply_loss_function,
                          want_gradient,
                          &structure,
                          evaluated);
      };
      const Status status =
          plan.on_device ? evaluate_on(facts.device())
                         : evaluate_on(kept_->GetHost(request_.num_threads));
      if (status.ok()) {
        return true;
      }
      const bool may_go_on = request_.options.fallback == FALLBACK_TO_CERES;
      if (status.code == StatusCode::kNumericalFailure) {
        if (plan.mixed && evaluated->has_float_blocks && may_go_on) {
          request_.options.precision = PRECISION_DOUBLE;
          continue;
        }
        *error = "Initial residual and Jacobian evaluation failed. " +
                 status.message;
        return false;
      }
      if (!plan.on_device || !may_go_on) {
        *error = status.message;
        return false;
      }
      // This is the only report of a device that has failed.
      LOG_IF(WARNING, status.code == StatusCode::kDeviceError)
          << "The host evaluates the problem again, because the device failed: "
          << AsClause(status.message);
      facts.SetNoDevice(status);
    }
  }

  const EvaluateOptions options_;
  KeptMachines* const kept_;
  // A summary that no solve has filled: nothing is written to the arrays.
  const ceres::Solver::Summary ignored_;
  ArrayImport arrays_;
  PlanRequest request_;
};

// The same by Ceres, whose gradient has all blocks too.
bool EvaluateProblem(const EvaluateOptions& options,
                     const ArrayProblem& problem,
                     double* cost,
                     std::vector<double>* gradient,
                     std::string* error) {
  ProblemOfArrays of_arrays(problem);
  ceres::Problem::EvaluateOptions evaluate_options;
  evaluate_options.apply_loss_function = options.apply_loss_function;
  evaluate_options.num_threads = options.num_threads;
  if (of_arrays.problem()->Evaluate(
          evaluate_options, cost, nullptr, gradient, nullptr)) {
    return true;
  }
  *error = "A residual block can't be evaluated.";
  return false;
}

// The arrays are copied, since residuals and gradient go to the host anyway.
bool EvaluateDeviceArrays(const EvaluateOptions& options,
                          const Options& ext_options,
                          const ArrayProblem& problem,
                          KeptMachines* kept,
                          double* cost,
                          std::vector<double>* residuals,
                          std::vector<double>* gradient,
                          std::string* error) {
  HostCopies copies;
  if (!CopyToHost(
          ext_options, options.num_threads, problem, kept, &copies, error)) {
    return false;
  }
  return EvaluateArrays(options,
                        ext_options,
                        *copies.problem(),
                        kept,
                        cost,
                        residuals,
                        gradient,
                        error);
}

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
    const Options ext_options = WithOneDevice(given_options);
    if (options.num_threads < 1) {
      *error = "EvaluateOptions::num_threads is " +
               std::to_string(options.num_threads) + "; expected 1 or more";
      return false;
    }
    if (HasDeviceArrays(problem)) {
      return EvaluateDeviceArrays(options,
                                  ext_options,
                                  problem,
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
    bool needs_problem = false;
    if (!SessionEvaluation(options, ext_options, problem, kept)
             .Run(cost, gradient, &needs_problem, error)) {
      return needs_problem &&
             EvaluateProblem(options, problem, cost, gradient, error);
    }
    return true;
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
