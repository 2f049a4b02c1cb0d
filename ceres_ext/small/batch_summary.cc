// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/batch_summary.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

namespace ceres_ext {
namespace {

std::string Format(const char* format, double a, double b) {
  char text[256];
  std::snprintf(text, sizeof(text), format, a, b);
  return text;
}

// Returns Ceres's sentence for the end of a window or fit.
std::string MessageOf(const TrustRegion& region, const LoopOptions& options) {
  switch (region.end()) {
    case TrustRegionEnd::kInvalidSteps:
      return "Number of consecutive invalid steps more than "
             "Solver::Options::max_num_consecutive_invalid_steps: " +
             std::to_string(options.max_num_consecutive_invalid_steps);
    case TrustRegionEnd::kMaxIterations:
      return "Maximum number of iterations reached. Number of iterations: " +
             std::to_string(region.iteration()) + ".";
    case TrustRegionEnd::kGradientTolerance:
      return Format("Gradient tolerance reached. Gradient max norm: %e <= %e",
                    region.end_value(),
                    options.gradient_tolerance);
    case TrustRegionEnd::kMinRadius:
      return Format(
          "Minimum trust region radius reached. Trust region radius: %e <= %e",
          region.end_value(),
          options.min_radius);
    case TrustRegionEnd::kParameterTolerance:
      return Format(
          "Parameter tolerance reached. Relative step_norm: %e <= %e.",
          region.end_value(),
          options.parameter_tolerance);
    case TrustRegionEnd::kFunctionTolerance:
      return Format("Function tolerance reached. |cost_change|/cost: %e <= %e",
                    region.end_value(),
                    options.function_tolerance);
    case TrustRegionEnd::kStopped:
      return "Stopped from another thread.";
    case TrustRegionEnd::kMaxTime:
      return Format("Maximum solver time reached. Total solver time: %e >= %e.",
                    region.end_value(),
                    options.max_seconds);
    case TrustRegionEnd::kNone:
    case TrustRegionEnd::kInitialEvaluation:
    case TrustRegionEnd::kEvaluation:
      break;
  }
  return "The problem was not solved.";
}

}  // namespace

void Summarize(const TrustRegion& region,
               const LoopOptions& options,
               double fixed_cost,
               ProblemSummary* summary) {
  const TrustRegionEnd end = region.end();
  summary->termination_type =
      end == TrustRegionEnd::kStopped        ? ceres::USER_SUCCESS
      : end <= TrustRegionEnd::kInvalidSteps ? ceres::FAILURE
      : end == TrustRegionEnd::kMaxIterations || end == TrustRegionEnd::kMaxTime
          ? ceres::NO_CONVERGENCE
          : ceres::CONVERGENCE;
  summary->fixed_cost = fixed_cost;
  summary->initial_cost = region.initial_cost() + fixed_cost;
  summary->final_cost = region.final_cost() + fixed_cost;
  summary->num_successful_steps = region.num_successful_steps();
  summary->num_unsuccessful_steps = region.num_unsuccessful_steps();
  // May throw.
  summary->message = MessageOf(region, options);
}

void SummarizeInFull(const ProblemSummary& summary,
                     const ReducedSize& size,
                     const ceres::Solver::Options& options,
                     const std::string& device,
                     Summary* full_summary) {
  Summary& full = *full_summary;
  full.minimizer_type = options.minimizer_type;
  full.termination_type = summary.termination_type;
  full.message = summary.message;
  full.initial_cost = summary.initial_cost;
  full.final_cost = summary.final_cost;
  full.fixed_cost = summary.fixed_cost;
  full.num_successful_steps = summary.num_successful_steps;
  full.num_unsuccessful_steps = summary.num_unsuccessful_steps;
  full.num_inner_iteration_steps = 0;
  full.num_exact_steps =
      summary.num_successful_steps + summary.num_unsuccessful_steps - 1;
  full.total_time_in_seconds = summary.latency_in_seconds;
  full.num_threads_given = options.num_threads;
  full.num_threads_used = 1;
  full.linear_solver_type_given = options.linear_solver_type;
  full.linear_solver_type_used = size.linear_solver_type;
  full.preconditioner_type_given = options.preconditioner_type;
  full.trust_region_strategy_type = options.trust_region_strategy_type;
  full.dogleg_type = options.dogleg_type;
  full.dense_linear_algebra_library_type =
      options.dense_linear_algebra_library_type;
  full.sparse_linear_algebra_library_type =
      options.sparse_linear_algebra_library_type;
  full.num_parameter_blocks_reduced = size.num_parameter_blocks;
  full.num_parameters_reduced = size.num_parameters;
  full.num_effective_parameters_reduced = size.num_effective_parameters;
  full.num_residual_blocks_reduced = size.num_residual_blocks;
  full.num_residuals_reduced = size.num_residuals;
  full.is_constrained = size.is_constrained;
  full.path = PATH_FULL;
  const std::string kind =
      summary.solved_as == SOLVED_AS_WINDOW ? "window" : "fit";
  full.path_reason = "solved as a " + kind + " of a batch";
  full.device = device;
  full.method =
      kind + ", exact steps (" + (size.is_mixed ? "mixed" : "double") + ")";
}

double BatchSummary::LatencyPercentile(double percent) const {
  if (problems.empty()) {
    return 0.0;
  }
  std::vector<double> latencies;
  latencies.reserve(problems.size());
  for (const ProblemSummary& problem : problems) {
    latencies.push_back(problem.latency_in_seconds);
  }
  const double n = static_cast<double>(latencies.size());
  const double rank =
      std::clamp(std::ceil(percent / 100.0 * n) - 1.0, 0.0, n - 1.0);
  const auto at = latencies.begin() + static_cast<int64_t>(rank);
  std::nth_element(latencies.begin(), at, latencies.end());
  return *at;
}

std::string BatchSummary::BriefReport() const {
  std::ostringstream report;
  int64_t num_usable = 0;
  for (const ProblemSummary& problem : problems) {
    num_usable += problem.IsSolutionUsable() ? 1 : 0;
  }
  report << problems.size() << " problems, " << num_usable
         << " with a usable solution, " << num_windows
         << " solved as windows or fits";
  if (!device.empty()) {
    report << " on " << device;
  }
  report << "; " << total_time_in_seconds << " s, " << problems_per_second()
         << " problems a second, latency p50 " << LatencyPercentile(50.0)
         << " s, p99 " << LatencyPercentile(99.0) << " s (packing "
         << pack_time_in_seconds << " s, windows and fits "
         << window_time_in_seconds << " s, others " << other_time_in_seconds
         << " s)";
  return report.str();
}

}  // namespace ceres_ext
