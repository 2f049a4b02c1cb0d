// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/segmented_solve.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "ceres/iteration_callback.h"
#include "ceres/types.h"
#include "ceres_ext/solve.h"

namespace ceres_ext::bal {
namespace {

// Follows one segment and ends it where the control wants it.
class SegmentCallback final : public ceres::IterationCallback {
 public:
  explicit SegmentCallback(const SolveControl& control)
      : control_(control),
        start_(std::chrono::steady_clock::now()),
        progress_(control.progress) {}

  ceres::CallbackReturnType operator()(
      const ceres::IterationSummary& iteration) override {
    const bool is_best =
        iteration.step_is_successful && !iteration.step_is_nonmonotonic;
    if (is_best) {
      progress_.num_iterations =
          control_.progress.num_iterations + iteration.iteration;
      progress_.trust_region_radius = iteration.trust_region_radius;
    }
    if (control_.is_interrupted && control_.is_interrupted()) {
      is_interrupted_ = true;
    } else if (control_.save && is_best && iteration.iteration > 0) {
      const std::chrono::duration<double> elapsed =
          std::chrono::steady_clock::now() - start_;
      is_to_be_saved_ = elapsed.count() >= control_.seconds_between_saves;
    }
    return is_interrupted_ || is_to_be_saved_
               ? ceres::SOLVER_TERMINATE_SUCCESSFULLY
               : ceres::SOLVER_CONTINUE;
  }

  const SolveProgress& progress() const { return progress_; }
  bool is_interrupted() const { return is_interrupted_; }
  bool is_to_be_saved() const { return is_to_be_saved_; }

 private:
  const SolveControl& control_;
  const std::chrono::steady_clock::time_point start_;
  SolveProgress progress_;
  bool is_interrupted_ = false;
  bool is_to_be_saved_ = false;
};

template <typename T, typename Owner>
void AddMembers(const std::vector<T Owner::*>& members,
                const Summary& before,
                Summary* summary) {
  for (const auto member : members) {
    // What Ceres did not come to is -1.
    summary->*member =
        std::max<T>(0, summary->*member) + std::max<T>(0, before.*member);
  }
}

// Makes of the summary of a segment that of all segments up to it.
void Prepend(const Summary& before, Summary* summary) {
  using Stock = ceres::Solver::Summary;
  AddMembers<double, Stock>(
      {&Stock::preprocessor_time_in_seconds,
       &Stock::minimizer_time_in_seconds,
       &Stock::postprocessor_time_in_seconds,
       &Stock::total_time_in_seconds,
       &Stock::linear_solver_time_in_seconds,
       &Stock::residual_evaluation_time_in_seconds,
       &Stock::jacobian_evaluation_time_in_seconds,
       &Stock::inner_iteration_time_in_seconds,
       &Stock::line_search_cost_evaluation_time_in_seconds,
       &Stock::line_search_gradient_evaluation_time_in_seconds,
       &Stock::line_search_polynomial_minimization_time_in_seconds,
       &Stock::line_search_total_time_in_seconds},
      before,
      summary);
  AddMembers<int, Stock>({&Stock::num_successful_steps,
                          &Stock::num_unsuccessful_steps,
                          &Stock::num_inner_iteration_steps,
                          &Stock::num_line_search_steps,
                          &Stock::num_linear_solves,
                          &Stock::num_residual_evaluations,
                          &Stock::num_jacobian_evaluations},
                         before,
                         summary);
  AddMembers<double, Summary>({&Summary::context_time_in_seconds,
                               &Summary::setup_time_in_seconds,
                               &Summary::import_time_in_seconds,
                               &Summary::normal_blocks_time_in_seconds,
                               &Summary::schur_time_in_seconds,
                               &Summary::factorization_time_in_seconds,
                               &Summary::pcg_time_in_seconds,
                               &Summary::back_substitution_time_in_seconds},
                              before,
                              summary);
  summary->num_pcg_iterations += before.num_pcg_iterations;
  summary->num_solves_at_pcg_limit += before.num_solves_at_pcg_limit;
  summary->transfer_bytes += before.transfer_bytes;
  summary->memory_bytes = std::max(summary->memory_bytes, before.memory_bytes);
  summary->memory_forecast_bytes =
      std::max(summary->memory_forecast_bytes, before.memory_forecast_bytes);
  summary->initial_cost = before.initial_cost;
  summary->degenerate_eliminated_blocks = before.degenerate_eliminated_blocks;
  summary->degenerate_other_blocks = before.degenerate_other_blocks;

  // A segment starts with the last iteration of the one before.
  auto iterations = before.iterations;
  for (size_t i = 1; i < summary->iterations.size(); ++i) {
    iterations.push_back(summary->iterations[i]);
    iterations.back().cumulative_time_in_seconds +=
        before.total_time_in_seconds;
  }
  summary->num_successful_steps -= summary->iterations.empty() ? 0 : 1;
  summary->iterations = std::move(iterations);
}

template <typename Problem>
void SolveSegments(const ceres::Solver::Options& options,
                   const ceres_ext::Options& ext_options,
                   Problem* problem,
                   SolveControl* control,
                   ceres_ext::Summary* summary) {
  SolveProgress& progress = control->progress;
  control->was_interrupted = false;
  for (bool is_first = true;; is_first = false) {
    const int num_before = progress.num_iterations;
    SegmentCallback callback(*control);
    ceres::Solver::Options segment_options = options;
    segment_options.callbacks.push_back(&callback);
    segment_options.initial_trust_region_radius = progress.trust_region_radius;
    segment_options.max_num_iterations =
        std::max(0, options.max_num_iterations - num_before);
    if (!is_first) {
      segment_options.max_solver_time_in_seconds = std::max(
          0.0,
          options.max_solver_time_in_seconds - summary->total_time_in_seconds);
    }
    Summary segment;
    Solve(segment_options, ext_options, problem, &segment);

    if (segment.IsSolutionUsable()) {
      progress = callback.progress();
    }
    for (ceres::IterationSummary& iteration : segment.iterations) {
      iteration.iteration += num_before;
    }
    // Where the solution is not usable, the parameter blocks don't hold what
    // the callback saw.
    if (callback.is_interrupted() && segment.IsSolutionUsable()) {
      control->was_interrupted = true;
      segment.termination_type = ceres::NO_CONVERGENCE;
      segment.message = "Interrupted after iteration " +
                        std::to_string(segment.iterations.back().iteration) +
                        ".";
    } else if (num_before > 0) {
      segment.message += " Counted from the state after iteration " +
                         std::to_string(num_before) + ".";
    }
    if (!is_first) {
      Prepend(*summary, &segment);
    }
    *summary = std::move(segment);
    if (!summary->IsSolutionUsable() || !callback.is_to_be_saved()) {
      return;
    }
    control->save(progress);
  }
}

}  // namespace

void SolveInSegments(const ceres::Solver::Options& options,
                     const ceres_ext::Options& ext_options,
                     ceres::Problem* problem,
                     SolveControl* control,
                     ceres_ext::Summary* summary) {
  SolveSegments(options, ext_options, problem, control, summary);
}

void SolveInSegments(const ceres::Solver::Options& options,
                     const ceres_ext::Options& ext_options,
                     ArrayProblem* problem,
                     SolveControl* control,
                     ceres_ext::Summary* summary) {
  SolveSegments(options, ext_options, problem, control, summary);
}

}  // namespace ceres_ext::bal
