// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// ceres_ext.solve, what it calls and what it returns.

#include "ceres_ext/solve.h"

#include <optional>
#include <string>

#include "nanobind/nanobind.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/vector.h"
#include "python/src/array.h"
#include "python/src/callback.h"
#include "python/src/communicator.h"
#include "python/src/module.h"
#include "python/src/options.h"
#include "python/src/problem.h"

namespace nb = nanobind;
using namespace nanobind::literals;

namespace ceres_ext::python {
namespace {

Summary SolveProblem(Problem* problem,
                     const SolverOptions* given,
                     nb::object callback,
                     nb::object communicator,
                     const nb::kwargs& values) {
  SolverOptions options = OptionsOf(given, values);
  PythonCallback python_callback(callback);
  std::optional<PythonCommunicator> ranks;
  if (!communicator.is_none()) {
    options.communicator = &ranks.emplace(communicator);
  }
  const Problem::Lock lock(problem);
  options.callbacks.push_back(&python_callback);
  Summary summary;
  std::string error;
  bool is_valid = true;
  {
    const nb::gil_scoped_release no_gil;
    Solve(options, options, problem->arrays(), &summary);
    // Solve has read all arrays before; this says which of the failures it is.
    is_valid = summary.termination_type != ceres::FAILURE ||
               problem->arrays()->IsValid(options.num_threads, &error);
  }
  python_callback.RethrowIfRaised();
  if (ranks.has_value()) {
    ranks->RethrowIfRaised();
  }
  if (!is_valid) {
    throw ValueError(error);
  }
  return summary;
}

// Returns cost, residuals and gradient, None where they aren't asked for.
nb::tuple EvaluateProblem(Problem* problem,
                          const SolverOptions* given,
                          bool apply_loss_function,
                          bool want_residuals,
                          bool want_gradient,
                          const nb::kwargs& values) {
  const SolverOptions options = OptionsOf(given, values);
  const Problem::Lock lock(problem);
  EvaluateOptions evaluate_options;
  evaluate_options.apply_loss_function = apply_loss_function;
  evaluate_options.num_threads = options.num_threads;
  double cost = 0.0;
  std::vector<double> residuals;
  std::vector<double> gradient;
  std::string error;
  bool is_valid = true;
  bool is_done = false;
  {
    const nb::gil_scoped_release no_gil;
    is_done = Evaluate(evaluate_options,
                       options,
                       *problem->arrays(),
                       &cost,
                       want_residuals ? &residuals : nullptr,
                       want_gradient ? &gradient : nullptr,
                       &error);
    std::string why;
    is_valid = is_done || problem->arrays()->IsValid(options.num_threads, &why);
  }
  if (!is_valid) {
    throw ValueError(error);
  }
  if (!is_done) {
    throw ArithmeticError(error);
  }
  nb::object of_residuals = nb::none();
  if (want_residuals) {
    nb::list arrays;
    auto begin = residuals.begin();
    for (size_t i = 0; i < problem->num_residuals().size(); ++i) {
      const int size = problem->num_residuals()[i];
      const auto end =
          begin + size * problem->arrays()->residuals()[i].num_blocks;
      arrays.append(MakeArray(std::vector<double>(begin, end), size));
      begin = end;
    }
    of_residuals = arrays;
  }
  nb::object of_parameters = nb::none();
  if (want_gradient) {
    nb::list arrays;
    auto begin = gradient.begin();
    for (const ArrayProblem::Parameters& array :
         problem->arrays()->parameters()) {
      const auto size = [&](int64_t i) {
        const ceres::Manifold* const manifold = array.ManifoldOf(i);
        return manifold == nullptr ? array.size : manifold->TangentSize();
      };
      int64_t num_values = 0;
      bool same_sizes = true;
      for (int64_t i = 0; i < array.num_blocks; ++i) {
        num_values += size(i);
        same_sizes &= size(i) == size(0);
      }
      const auto end = begin + num_values;
      arrays.append(MakeArray(std::vector<double>(begin, end),
                              same_sizes && num_values > 0 ? size(0) : 0));
      begin = end;
    }
    of_parameters = arrays;
  }
  return nb::make_tuple(cost, of_residuals, of_parameters);
}

void AddIterationSummary(nb::module_* module) {
  using Iteration = ceres::IterationSummary;
  nb::class_<Iteration> summary(
      *module, "IterationSummary", "One iteration of a solve; 0 is its start.");
  AddSummaryMethods(&summary, {});
  summary.def_ro("iteration", &Iteration::iteration)
      .def_ro("step_is_valid", &Iteration::step_is_valid)
      .def_ro("step_is_nonmonotonic", &Iteration::step_is_nonmonotonic)
      .def_ro("step_is_successful", &Iteration::step_is_successful)
      .def_ro("cost", &Iteration::cost, "1/2 sum rho(|r|^2)")
      .def_ro("cost_change", &Iteration::cost_change)
      .def_ro("gradient_max_norm", &Iteration::gradient_max_norm)
      .def_ro("gradient_norm", &Iteration::gradient_norm)
      .def_ro("step_norm", &Iteration::step_norm)
      .def_ro("relative_decrease", &Iteration::relative_decrease)
      .def_ro("trust_region_radius", &Iteration::trust_region_radius)
      .def_ro("eta", &Iteration::eta)
      .def_ro("linear_solver_iterations",
              &Iteration::linear_solver_iterations,
              "Iterations of PCG.")
      .def_ro("iteration_time_in_seconds",
              &Iteration::iteration_time_in_seconds)
      .def_ro("step_solver_time_in_seconds",
              &Iteration::step_solver_time_in_seconds)
      .def_ro("cumulative_time_in_seconds",
              &Iteration::cumulative_time_in_seconds,
              "Seconds since the solve began.")
      .def("__repr__", [](const Iteration& self) {
        return nb::str(
                   "<ceres_ext.IterationSummary {}: cost {}, {} iterations "
                   "of PCG, {:.3g} s>")
            .format(self.iteration,
                    self.cost,
                    self.linear_solver_iterations,
                    self.cumulative_time_in_seconds);
      });
}

// The value of an enum by its name in Ceres or in this library.
template <typename Class, typename Owner, typename Enum>
void AddEnum(Class* summary,
             const char* name,
             Enum Owner::*member,
             const char* (*to_string)(Enum),
             const char* doc = "") {
  summary->def_prop_ro(
      name,
      [=](const Summary& self) { return std::string(to_string(self.*member)); },
      doc);
}

void AddSummary(nb::module_* module) {
  using Stock = ceres::Solver::Summary;
  nb::class_<DegenerateBlocks> degenerate(
      *module,
      "DegenerateBlocks",
      "Parameter blocks with a direction that only damping determines.");
  AddSummaryMethods(&degenerate, {});
  degenerate.def_ro("count", &DegenerateBlocks::count)
      .def_ro("worst_parameters",
              &DegenerateBlocks::worst_parameters,
              "The parameter array of the worst block, or -1.")
      .def_ro("worst_block",
              &DegenerateBlocks::worst_block,
              "The number of the worst block in that array, or -1.")
      .def_ro("worst_relative_pivot",
              &DegenerateBlocks::worst_relative_pivot,
              "From 0 to 1e-12, or 1 without degenerate blocks.");
  nb::class_<Summary> summary(
      *module,
      "Summary",
      "The summary of a solve: ceres::Solver::Summary and ceres_ext::Summary. "
      "Times are in seconds; -1 for stages that were not reached.");
  AddSummaryMethods(&summary,
                    {"is_solution_usable", "brief_report", "full_report"});
  summary
      .def("is_solution_usable",
           &Stock::IsSolutionUsable,
           "True if the arrays hold a solution; otherwise they are unchanged.")
      .def("brief_report", &Stock::BriefReport)
      .def("full_report", &Summary::FullReport)
      .def("__repr__",
           [](const Summary& self) {
             return "<ceres_ext.Summary: " + self.BriefReport() +
                    ", path: " + SolvePathToString(self.path) + ">";
           })
      .def_prop_ro(
          "iterations",
          [](const Summary& self) { return self.iterations; },
          "All iterations, with that of the start.");
  AddEnum(&summary,
          "termination_type",
          &Stock::termination_type,
          &ceres::TerminationTypeToString,
          "CONVERGENCE, NO_CONVERGENCE, FAILURE, or USER_SUCCESS where the "
          "callback ended the solve.");
  AddEnum(&summary,
          "path",
          &Summary::path,
          &SolvePathToString,
          "FULL: this library solved; CERES: stock Ceres.");
  AddEnum(&summary,
          "linear_solver_type_given",
          &Stock::linear_solver_type_given,
          &ceres::LinearSolverTypeToString);
  AddEnum(&summary,
          "linear_solver_type_used",
          &Stock::linear_solver_type_used,
          &ceres::LinearSolverTypeToString);
  AddEnum(&summary,
          "preconditioner_type_given",
          &Stock::preconditioner_type_given,
          &ceres::PreconditionerTypeToString);
  AddEnum(&summary,
          "preconditioner_type_used",
          &Stock::preconditioner_type_used,
          &ceres::PreconditionerTypeToString);
  AddEnum(&summary,
          "trust_region_strategy_type",
          &Stock::trust_region_strategy_type,
          &ceres::TrustRegionStrategyTypeToString);
  const auto add = [&summary](const char* name, auto member, const char* doc) {
    summary.def_ro(name, member, doc);
  };
  add("message", &Stock::message, "The reason for the end of the solve.");
  add("initial_cost", &Stock::initial_cost, "1/2 sum rho(|r|^2)");
  add("final_cost", &Stock::final_cost, "1/2 sum rho(|r|^2)");
  add("fixed_cost",
      &Stock::fixed_cost,
      "Cost of the residual blocks on constant blocks alone.");
  add("num_successful_steps", &Stock::num_successful_steps, "");
  add("num_unsuccessful_steps", &Stock::num_unsuccessful_steps, "");
  add("num_inner_iteration_steps", &Stock::num_inner_iteration_steps, "");
  add("preprocessor_time_in_seconds", &Stock::preprocessor_time_in_seconds, "");
  add("minimizer_time_in_seconds", &Stock::minimizer_time_in_seconds, "");
  add("postprocessor_time_in_seconds",
      &Stock::postprocessor_time_in_seconds,
      "");
  add("total_time_in_seconds", &Stock::total_time_in_seconds, "");
  add("linear_solver_time_in_seconds",
      &Stock::linear_solver_time_in_seconds,
      "");
  add("residual_evaluation_time_in_seconds",
      &Stock::residual_evaluation_time_in_seconds,
      "");
  add("jacobian_evaluation_time_in_seconds",
      &Stock::jacobian_evaluation_time_in_seconds,
      "");
  add("inner_iteration_time_in_seconds",
      &Stock::inner_iteration_time_in_seconds,
      "");
  add("num_linear_solves", &Stock::num_linear_solves, "");
  add("num_residual_evaluations", &Stock::num_residual_evaluations, "");
  add("num_jacobian_evaluations", &Stock::num_jacobian_evaluations, "");
  add("num_parameter_blocks", &Stock::num_parameter_blocks, "");
  add("num_parameters", &Stock::num_parameters, "");
  add("num_effective_parameters", &Stock::num_effective_parameters, "");
  add("num_residual_blocks", &Stock::num_residual_blocks, "");
  add("num_residuals", &Stock::num_residuals, "");
  add("num_parameter_blocks_reduced", &Stock::num_parameter_blocks_reduced, "");
  add("num_parameters_reduced", &Stock::num_parameters_reduced, "");
  add("num_effective_parameters_reduced",
      &Stock::num_effective_parameters_reduced,
      "");
  add("num_residual_blocks_reduced", &Stock::num_residual_blocks_reduced, "");
  add("num_residuals_reduced", &Stock::num_residuals_reduced, "");
  add("num_threads_given", &Stock::num_threads_given, "");
  add("num_threads_used", &Stock::num_threads_used, "");
  add("path_reason", &Summary::path_reason, "The reason for this path.");
  add("device",
      &Summary::device,
      "The machine of the linear solver, with the reason if the host was used "
      "without being asked for.");
  add("method",
      &Summary::method,
      "Linear solver, Jacobian and preconditioner.");
  add("num_pcg_iterations", &Summary::num_pcg_iterations, "");
  add("num_exact_steps",
      &Summary::num_exact_steps,
      "Linear solves by a factorisation.");
  add("num_coarse_iterations",
      &Summary::num_coarse_iterations,
      "PCG iterations with a second level.");
  add("num_clusters",
      &Summary::num_clusters,
      "Clusters of parameter blocks of the second level; 0 if no step used "
      "it.");
  add("num_coarse_columns",
      &Summary::num_coarse_columns,
      "Columns of the second level, a few for each cluster.");
  add("coarse_time_in_seconds",
      &Summary::coarse_time_in_seconds,
      "Seconds spent forming the second level, including S as a matrix.");
  add("num_solves_at_pcg_limit",
      &Summary::num_solves_at_pcg_limit,
      "Linear solves that ended at max_linear_solver_iterations.");
  add("num_runaway_trials",
      &Summary::num_runaway_trials,
      "Rejected steps to a state whose residuals are not finite or grow by "
      "more than 1e3.");
  add("num_runaway_residuals",
      &Summary::num_runaway_residuals,
      "The number of these residuals in the last such step.");
  add("no_minimum",
      &Summary::no_minimum,
      "A sentence, if the solve has ended with CONVERGENCE away from a "
      "minimum; otherwise empty.");
  add("num_host_losses",
      &Summary::num_host_losses,
      "Residual blocks whose loss runs on the host although a device solves.");
  add("host_loss_type", &Summary::host_loss_type, "");
  add("num_host_manifolds",
      &Summary::num_host_manifolds,
      "Parameter blocks whose manifold runs on the host although a device "
      "solves.");
  add("host_manifold_type", &Summary::host_manifold_type, "");
  add("degenerate_eliminated_blocks",
      &Summary::degenerate_eliminated_blocks,
      "Degenerate eliminated blocks (points) at the start.");
  add("degenerate_other_blocks",
      &Summary::degenerate_other_blocks,
      "Degenerate other blocks (cameras) at the start.");
  add("context_time_in_seconds",
      &Summary::context_time_in_seconds,
      "Seconds spent starting CUDA in this process.");
  add("setup_time_in_seconds", &Summary::setup_time_in_seconds, "");
  add("import_time_in_seconds", &Summary::import_time_in_seconds, "");
  add("normal_blocks_time_in_seconds",
      &Summary::normal_blocks_time_in_seconds,
      "");
  add("schur_time_in_seconds",
      &Summary::schur_time_in_seconds,
      "Seconds spent forming the Schur complement as a matrix.");
  add("factorization_time_in_seconds",
      &Summary::factorization_time_in_seconds,
      "Seconds spent on the factor and the solution of exact steps.");
  add("pcg_time_in_seconds", &Summary::pcg_time_in_seconds, "");
  add("back_substitution_time_in_seconds",
      &Summary::back_substitution_time_in_seconds,
      "");
  add("memory_bytes",
      &Summary::memory_bytes,
      "Peak bytes that this library held.");
  add("memory_forecast_bytes",
      &Summary::memory_forecast_bytes,
      "Forecast of memory_bytes; 0 on the host.");
  add("transfer_bytes",
      &Summary::transfer_bytes,
      "Bytes transferred between host and device after the set-up.");
}

}  // namespace

void AddSolve(nb::module_* module) {
  AddIterationSummary(module);
  AddSummary(module);
  // ceres_ext/__init__.py has what users call.
  module->def("_evaluate",
              &EvaluateProblem,
              "problem"_a,
              "options"_a.none(),
              "apply_loss_function"_a,
              "residuals"_a,
              "gradient"_a,
              "values"_a);
  module->def(
      "solve",
      &SolveProblem,
      "problem"_a,
      "options"_a = nb::none(),
      nb::kw_only(),
      "callback"_a = nb::none(),
      "communicator"_a = nb::none(),
      "values"_a,
      nb::sig(
          "def solve(problem: ArrayProblem, options: SolverOptions | None = "
          "None, *, callback: "
          "collections.abc.Callable[[IterationSummary], object] | None = "
          "None, communicator: ceres_ext.Communicator | None = None, "
          "**values: object) -> Summary"),
      "Refines the parameters of the problem in the arrays that hold them.\n\n"
      "options: a SolverOptions, which is not changed, or None for the "
      "defaults.\n"
      "callback: called with an IterationSummary after the start and each "
      "iteration. If it returns False or raises StopIteration, the solve ends "
      "with USER_SUCCESS. Any other exception also ends the solve, and is "
      "raised once the best state is in the arrays.\n"
      "communicator: of the ranks that solve together, each a problem of its "
      "own points (add_parameters, own=True) and of all other parameters. "
      "Callbacks are called on rank 0.\n"
      "values: options by name, on top of `options`: solve(problem, "
      "max_num_iterations=20, device='cuda').\n\n"
      "Other Python threads run meanwhile. Ctrl-C ends the solve after the "
      "iteration, if it was called by the main thread; KeyboardInterrupt is "
      "raised once the best state is in the arrays.\n\n"
      "ValueError: options or arrays do not fit together, or the problem is "
      "being solved. A solve that fails raises nothing: "
      "Summary.termination_type is FAILURE, Summary.message says why, and the "
      "arrays are unchanged.\n\n"
      "    summary = ceres_ext.solve(problem, max_num_iterations=20)\n"
      "    print(summary.brief_report(), summary.path_reason)");
}

}  // namespace ceres_ext::python
