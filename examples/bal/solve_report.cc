// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/solve_report.h"

#include <string>
#include <utility>
#include <vector>

#include "ceres/types.h"
#include "nlohmann/json.hpp"

namespace ceres_ext::bal {
namespace {

// Keeps the order in which fields are added.
using Json = nlohmann::ordered_json;

Json SummaryJson(const ceres::Solver::Summary& summary) {
  Json json;
  json["termination_type"] =
      ceres::TerminationTypeToString(summary.termination_type);
  json["is_solution_usable"] = summary.IsSolutionUsable();
  json["message"] = summary.message;
  json["initial_cost"] = summary.initial_cost;
  json["final_cost"] = summary.final_cost;
  json["num_successful_steps"] = summary.num_successful_steps;
  json["num_unsuccessful_steps"] = summary.num_unsuccessful_steps;
  json["num_linear_solves"] = summary.num_linear_solves;
  json["num_residual_evaluations"] = summary.num_residual_evaluations;
  json["num_jacobian_evaluations"] = summary.num_jacobian_evaluations;
  json["linear_solver_type_used"] =
      ceres::LinearSolverTypeToString(summary.linear_solver_type_used);
  json["preconditioner_type_used"] =
      ceres::PreconditionerTypeToString(summary.preconditioner_type_used);
  json["num_threads_used"] = summary.num_threads_used;
  json["preprocessor_time_in_seconds"] = summary.preprocessor_time_in_seconds;
  json["minimizer_time_in_seconds"] = summary.minimizer_time_in_seconds;
  json["residual_evaluation_time_in_seconds"] =
      summary.residual_evaluation_time_in_seconds;
  json["jacobian_evaluation_time_in_seconds"] =
      summary.jacobian_evaluation_time_in_seconds;
  json["linear_solver_time_in_seconds"] = summary.linear_solver_time_in_seconds;
  json["inner_iteration_time_in_seconds"] =
      summary.inner_iteration_time_in_seconds;
  json["postprocessor_time_in_seconds"] = summary.postprocessor_time_in_seconds;
  json["total_time_in_seconds"] = summary.total_time_in_seconds;
  return json;
}

Json DegenerateJson(const DegenerateBlocks& blocks) {
  Json json;
  json["count"] = blocks.count;
  if (blocks.count > 0) {
    if (blocks.worst_parameters >= 0) {
      json["worst_parameters"] = blocks.worst_parameters;
    }
    json["worst_block"] = blocks.worst_block;
    json["worst_relative_pivot"] = blocks.worst_relative_pivot;
  }
  return json;
}

Json ExtJson(const ceres_ext::Summary& summary) {
  Json json;
  json["path"] = SolvePathToString(summary.path);
  json["path_reason"] = summary.path_reason;
  json["device"] = summary.device;
  json["method"] = summary.method;
  json["num_pcg_iterations"] = summary.num_pcg_iterations;
  json["num_exact_steps"] = summary.num_exact_steps;
  json["num_coarse_iterations"] = summary.num_coarse_iterations;
  json["num_clusters"] = summary.num_clusters;
  json["num_coarse_columns"] = summary.num_coarse_columns;
  json["coarse_time_in_seconds"] = summary.coarse_time_in_seconds;
  json["num_solves_at_pcg_limit"] = summary.num_solves_at_pcg_limit;
  json["context_time_in_seconds"] = summary.context_time_in_seconds;
  json["setup_time_in_seconds"] = summary.setup_time_in_seconds;
  json["import_time_in_seconds"] = summary.import_time_in_seconds;
  json["normal_blocks_time_in_seconds"] = summary.normal_blocks_time_in_seconds;
  json["schur_time_in_seconds"] = summary.schur_time_in_seconds;
  json["factorization_time_in_seconds"] = summary.factorization_time_in_seconds;
  json["pcg_time_in_seconds"] = summary.pcg_time_in_seconds;
  json["back_substitution_time_in_seconds"] =
      summary.back_substitution_time_in_seconds;
  json["num_runaway_trials"] = summary.num_runaway_trials;
  json["num_runaway_residuals"] = summary.num_runaway_residuals;
  json["no_minimum"] = summary.no_minimum;
  json["memory_bytes"] = summary.memory_bytes;
  json["memory_forecast_bytes"] = summary.memory_forecast_bytes;
  json["transfer_bytes"] = summary.transfer_bytes;
  json["degenerate_eliminated_blocks"] =
      DegenerateJson(summary.degenerate_eliminated_blocks);
  json["degenerate_other_blocks"] =
      DegenerateJson(summary.degenerate_other_blocks);
  return json;
}

Json IterationJson(const ceres::IterationSummary& iteration) {
  Json json;
  json["iteration"] = iteration.iteration;
  json["step_is_valid"] = iteration.step_is_valid;
  json["step_is_successful"] = iteration.step_is_successful;
  json["cost"] = iteration.cost;
  json["cost_change"] = iteration.cost_change;
  json["gradient_max_norm"] = iteration.gradient_max_norm;
  json["step_norm"] = iteration.step_norm;
  json["relative_decrease"] = iteration.relative_decrease;
  json["trust_region_radius"] = iteration.trust_region_radius;
  json["linear_solver_iterations"] = iteration.linear_solver_iterations;
  json["iteration_time_in_seconds"] = iteration.iteration_time_in_seconds;
  json["step_solver_time_in_seconds"] = iteration.step_solver_time_in_seconds;
  json["cumulative_time_in_seconds"] = iteration.cumulative_time_in_seconds;
  return json;
}

}  // namespace

ReportedProblem ReportedBalProblem(const std::string& input,
                                   const BalProblem& problem) {
  return {"ceres_ext.bundle_adjuster.1",
          input,
          {{"num_cameras", problem.num_cameras()},
           {"num_points", problem.num_points()},
           {"num_observations", problem.num_observations()},
           {"camera_size", problem.camera_size}}};
}

std::string SolveReportJson(
    const ReportedProblem& problem,
    const std::vector<std::pair<std::string, std::string>>& flags,
    const SolveTimes& times,
    const ceres_ext::Summary& summary,
    const std::vector<std::pair<std::string, std::string>>& parts) {
  Json json;
  json["format"] = problem.format;
  json["problem"]["input"] = problem.input;
  for (const auto& [name, size] : problem.sizes) {
    json["problem"][name] = size;
  }
  json["problem"]["read_time_in_seconds"] = times.read_in_seconds;
  json["problem"]["build_time_in_seconds"] = times.build_in_seconds;
  json["flags"] = Json::object();
  for (const auto& [name, value] : flags) {
    json["flags"][name] = value;
  }
  json["summary"] = SummaryJson(summary);
  json["ceres_ext"] = ExtJson(summary);
  for (const auto& [name, cost] : problem.recomputed_costs) {
    json["recomputed_costs"][name] = cost;
  }
  for (const auto& [name, part] : parts) {
    json[name] = Json::parse(part);
  }
  json["iterations"] = Json::array();
  for (const ceres::IterationSummary& iteration : summary.iterations) {
    json["iterations"].push_back(IterationJson(iteration));
  }
  // Invalid UTF-8 (in a file name) becomes U+FFFD.
  return json.dump(
             /*indent=*/1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

}  // namespace ceres_ext::bal
