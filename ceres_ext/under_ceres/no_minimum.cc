// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/under_ceres/no_minimum.h"

#include <cmath>
#include <cstdio>
#include <vector>

#include "ceres/iteration_callback.h"
#include "ceres/types.h"

namespace ceres_ext {
namespace {

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1e", value);
  return text;
}

}  // namespace

bool EndsAtNoMinimum(const ceres::Solver::Summary& summary) {
  constexpr double kSmallRadius = 1e-2;
  constexpr double kLeastGain = 1e-3;
  const std::vector<ceres::IterationSummary>& iterations = summary.iterations;
  if (summary.termination_type != ceres::CONVERGENCE ||
      summary.minimizer_type != ceres::TRUST_REGION ||
      summary.trust_region_strategy_type != ceres::LEVENBERG_MARQUARDT) {
    return false;
  }
  // The last step of which the gain is known.
  for (size_t i = iterations.size(); i-- > 1;) {
    const ceres::IterationSummary& step = iterations[i];
    const double radius = iterations[i - 1].trust_region_radius;
    if (!(radius < kSmallRadius)) {
      return false;
    }
    // The gain of the model. An evaluation that fails costs 1.8e308.
    const double gain = step.cost_change / step.relative_decrease;
    if (!step.step_is_valid || !(gain > 0.0) || !std::isfinite(gain)) {
      continue;
    }
    return gain > kLeastGain * radius * summary.final_cost;
  }
  return false;
}

std::string NoMinimumText(const ceres::Solver::Summary& summary,
                          int64_t num_runaway_trials,
                          int64_t num_runaway_residuals) {
  const ceres::IterationSummary& first = summary.iterations.front();
  const ceres::IterationSummary& last = summary.iterations.back();
  std::string text =
      "CONVERGENCE is not a minimum here: rejected steps have made the trust "
      "region's radius " +
      Number(last.trust_region_radius) + " (" +
      Number(first.trust_region_radius) +
      " at the start), and the largest component of the gradient is " +
      Number(last.gradient_max_norm) + " (" + Number(first.gradient_max_norm) +
      " at the start).";
  if (num_runaway_trials > 0) {
    text += " In " + std::to_string(num_runaway_trials) +
            " of the steps residuals were not finite or grew by more than "
            "1e3, " +
            std::to_string(num_runaway_residuals) + " in the last of them.";
  }
  return text +
         " The usual reason is a point near the plane of a camera: remove its "
         "observations or triangulate it again, and solve again.";
}

}  // namespace ceres_ext
