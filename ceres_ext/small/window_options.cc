// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/window_options.h"

namespace ceres_ext {

std::string WhyNoWindows(const ceres::Solver::Options& options,
                         const Options& ext_options) {
  if (!ext_options.enabled) {
    return "Options::enabled is false";
  }
  if (options.minimizer_type != ceres::TRUST_REGION) {
    return "minimizer_type is LINE_SEARCH";
  }
  if (options.trust_region_strategy_type != ceres::LEVENBERG_MARQUARDT) {
    return "trust_region_strategy_type is DOGLEG";
  }
  const bool is_exact = options.linear_solver_type != ceres::CGNR &&
                        options.linear_solver_type != ceres::ITERATIVE_SCHUR;
  if (ext_options.linear_solver == LINEAR_SOLVER_AS_GIVEN
          ? !is_exact
          : ext_options.linear_solver != LINEAR_SOLVER_AUTO) {
    return "the linear solver is iterative";
  }
  if (ext_options.precision != PRECISION_DOUBLE) {
    return "windows and fits are solved in double precision";
  }
  if (options.use_nonmonotonic_steps) {
    return "use_nonmonotonic_steps is true";
  }
  if (options.use_inner_iterations) {
    return "use_inner_iterations is true";
  }
  if (options.use_mixed_precision_solves) {
    return "use_mixed_precision_solves is true";
  }
  if (options.linear_solver_ordering != nullptr) {
    return "linear_solver_ordering is given";
  }
  if (!options.callbacks.empty() || options.update_state_every_iteration) {
    return "there are callbacks";
  }
  if (options.check_gradients ||
      !options.trust_region_minimizer_iterations_to_dump.empty()) {
    return "gradients are checked or problems are dumped";
  }
  if (options.minimizer_progress_to_stdout) {
    return "minimizer_progress_to_stdout is true";
  }
  if (options.max_solver_time_in_seconds <
      ceres::Solver::Options().max_solver_time_in_seconds) {
    return "max_solver_time_in_seconds is limited";
  }
  return "";
}

TrustRegionOptions OptionsOfRegion(const ceres::Solver::Options& options,
                                   const int32_t* stop) {
  TrustRegionOptions region;
  region.stop = stop;
  region.max_num_iterations = options.max_num_iterations;
  region.max_num_consecutive_invalid_steps =
      options.max_num_consecutive_invalid_steps;
  region.initial_radius = options.initial_trust_region_radius;
  region.max_radius = options.max_trust_region_radius;
  region.min_radius = options.min_trust_region_radius;
  region.min_relative_decrease = options.min_relative_decrease;
  region.min_lm_diagonal = options.min_lm_diagonal;
  region.max_lm_diagonal = options.max_lm_diagonal;
  region.function_tolerance = options.function_tolerance;
  region.gradient_tolerance = options.gradient_tolerance;
  region.parameter_tolerance = options.parameter_tolerance;
  region.jacobi_scaling = options.jacobi_scaling;
  return region;
}

}  // namespace ceres_ext
