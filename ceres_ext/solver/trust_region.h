// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The decisions of Ceres 2.2's TrustRegionMinimizer with its
// LevenbergMarquardtStrategy, or another (dogleg_region.h), as a state machine
// without the work: for loops that run where Ceres can't, such as in a kernel.
// The caller evaluates and solves; this class decides:
//
//   TrustRegion region(options);
//   bool goes_on = region.Begin(is_evaluated, cost, gradient_max_norm);
//   while (goes_on) {
//     // (J'J + D^2) step = -J'r, D^2 by SquaredDamping
//     if (!is_solved || !(model_cost_change > 0)) {
//       goes_on = region.RejectInvalidStep();
//       continue;
//     }
//     const Verdict verdict = region.Judge(...);
//     goes_on = verdict == kAccepted
//                   ? region.Linearize(is_evaluated, cost, gradient_max_norm)
//                   : verdict == kRejected;
//   }
//
// With the same numbers it takes the same steps, counts the same iterations and
// ends for the same reason as Ceres does with monotonic steps, without bounds
// and inner iterations. The caller reads the clock. Formulas: Madsen, Nielsen,
// Tingleff, "Methods for Non-Linear Least Squares Problems", 2004, and Ceres's
// source.
#ifndef CERES_EXT_SOLVER_TRUST_REGION_H_
#define CERES_EXT_SOLVER_TRUST_REGION_H_

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "cuda_kernels/base/host_device.h"

namespace ceres_ext {

// Fields of ceres::Solver::Options, with their defaults.
struct TrustRegionOptions {
  int32_t max_num_iterations = 50;
  int32_t max_num_consecutive_invalid_steps = 5;
  double initial_radius = 1e4;
  double max_radius = 1e16;
  double min_radius = 1e-32;
  double min_relative_decrease = 1e-3;
  double min_lm_diagonal = 1e-6;
  double max_lm_diagonal = 1e32;
  double function_tolerance = 1e-6;
  double gradient_tolerance = 1e-10;
  double parameter_tolerance = 1e-8;
  bool jacobi_scaling = true;
  // The loop ends after an iteration if this is not 0. Another thread, or the
  // host of a device, sets it. Null: the loop cannot be stopped.
  const int32_t* stop = nullptr;

  CERES_EXT_HOST_DEVICE bool IsStopped() const {
#ifdef __CUDA_ARCH__
    return stop != nullptr && *static_cast<const volatile int32_t*>(stop) != 0;
#else
    return stop != nullptr && __atomic_load_n(stop, __ATOMIC_RELAXED) != 0;
#endif
  }
};

// The reason why a loop ended.
enum class TrustRegionEnd : int32_t {
  kNone,               // It has not.
  kInitialEvaluation,  // The start can't be evaluated: FAILURE.
  kEvaluation,         // No Jacobian at an accepted step: FAILURE.
  kInvalidSteps,       // Too many in a row: FAILURE.
  kMaxIterations,      // NO_CONVERGENCE
  kGradientTolerance,  // CONVERGENCE, as the next ones.
  kMinRadius,
  kParameterTolerance,
  kFunctionTolerance,
  kStopped,  // USER_SUCCESS
  kMaxTime,  // NO_CONVERGENCE
};

// The radius as LevenbergMarquardtStrategy has it. A strategy has its three
// functions.
class DampingRadius {
 public:
  // quality: the fall of the cost as a part of the model's.
  CERES_EXT_HOST_DEVICE void Accept(double quality,
                                    double max_radius,
                                    double* radius) {
    using std::fmax;
    using std::fmin;
    using std::pow;
    *radius = *radius / fmax(1.0 / 3.0, 1.0 - pow(2.0 * quality - 1.0, 3.0));
    *radius = fmin(max_radius, *radius);
    decrease_factor_ = 2.0;
  }
  CERES_EXT_HOST_DEVICE void Reject(double* radius) {
    *radius = *radius / decrease_factor_;
    decrease_factor_ *= 2.0;
  }
  CERES_EXT_HOST_DEVICE void RejectInvalid(double* radius) { Reject(radius); }

 private:
  double decrease_factor_ = 2.0;
};

class TrustRegion {
 public:
  enum class Verdict : int32_t { kEnded, kAccepted, kRejected };

  TrustRegion() = default;
  CERES_EXT_HOST_DEVICE explicit TrustRegion(const TrustRegionOptions& options)
      : options_(options), radius_(options.initial_radius) {}

  // Functions that return bool return true if the loop continues.

  // Iteration zero. gradient_max_norm: the largest element of |Plus(x, -g) - x|
  // in absolute value.
  CERES_EXT_HOST_DEVICE bool Begin(bool is_evaluated,
                                   double cost,
                                   double gradient_max_norm) {
    if (!is_evaluated) {
      end_ = TrustRegionEnd::kInitialEvaluation;
      return false;
    }
    initial_cost_ = cost;
    final_cost_ = cost;
    cost_ = cost;
    reference_cost_ = cost;
    gradient_max_norm_ = gradient_max_norm;
    return FinishIteration(/*is_successful=*/true, cost);
  }

  // The linear system could not be solved, or the model does not fall.
  CERES_EXT_HOST_DEVICE bool RejectInvalidStep() {
    return RejectInvalidStep(&damping_);
  }
  template <typename Strategy>
  CERES_EXT_HOST_DEVICE bool RejectInvalidStep(Strategy* strategy) {
    if (++num_consecutive_invalid_steps_ >=
        options_.max_num_consecutive_invalid_steps) {
      ++iteration_;
      end_ = TrustRegionEnd::kInvalidSteps;
      return false;
    }
    ++iteration_;
    strategy->RejectInvalid(&radius_);
    return FinishIteration(/*is_successful=*/false, cost_);
  }

  // A valid step: model_cost_change > 0. candidate_cost: DBL_MAX where the
  // candidate can't be evaluated. The norms are those of the state x and of
  // candidate - x. After kAccepted Linearize is called at the candidate; the
  // radius is the next step's already.
  CERES_EXT_HOST_DEVICE Verdict Judge(double model_cost_change,
                                      double candidate_cost,
                                      double x_norm,
                                      double step_norm) {
    return Judge(
        model_cost_change, candidate_cost, x_norm, step_norm, &damping_);
  }
  template <typename Strategy>
  CERES_EXT_HOST_DEVICE Verdict Judge(double model_cost_change,
                                      double candidate_cost,
                                      double x_norm,
                                      double step_norm,
                                      Strategy* strategy) {
    using std::fabs;
    ++iteration_;
    num_consecutive_invalid_steps_ = 0;
    const double tolerance = options_.parameter_tolerance;
    if (has_accepted_ && !(step_norm > tolerance * (x_norm + tolerance))) {
      end_ = TrustRegionEnd::kParameterTolerance;
      end_value_ = step_norm / (x_norm + tolerance);
      return Verdict::kEnded;
    }
    const double cost_change = cost_ - candidate_cost;
    if (!(fabs(cost_change) > options_.function_tolerance * cost_)) {
      end_ = TrustRegionEnd::kFunctionTolerance;
      end_value_ = fabs(cost_change) / cost_;
      return Verdict::kEnded;
    }
    const double relative_decrease =
        candidate_cost >= DBL_MAX
            ? -DBL_MAX
            : (reference_cost_ - candidate_cost) / model_cost_change;
    if (relative_decrease > options_.min_relative_decrease) {
      has_accepted_ = true;
      reference_cost_ = candidate_cost;
      strategy->Accept(relative_decrease, options_.max_radius, &radius_);
      return Verdict::kAccepted;
    }
    strategy->Reject(&radius_);
    return FinishIteration(/*is_successful=*/false, candidate_cost)
               ? Verdict::kRejected
               : Verdict::kEnded;
  }

  // The accepted candidate is x now.
  CERES_EXT_HOST_DEVICE bool Linearize(bool is_evaluated,
                                       double cost,
                                       double gradient_max_norm) {
    if (!is_evaluated) {
      end_ = TrustRegionEnd::kEvaluation;
      return false;
    }
    cost_ = cost;
    gradient_max_norm_ = gradient_max_norm;
    return FinishIteration(/*is_successful=*/true, cost);
  }

  // For a column of the Jacobian at iteration zero: its scale, by which Ceres
  // multiplies it in the whole solve.
  CERES_EXT_HOST_DEVICE double Scale(double squared_column_norm) const {
    using std::sqrt;
    return options_.jacobi_scaling ? 1.0 / (1.0 + sqrt(squared_column_norm))
                                   : 1.0;
  }
  // Element of D^2 for the column as it is, not scaled.
  CERES_EXT_HOST_DEVICE double SquaredDamping(double squared_column_norm,
                                              double scale) const {
    return SquaredDamping(squared_column_norm, scale, radius_);
  }
  CERES_EXT_HOST_DEVICE double SquaredDamping(double squared_column_norm,
                                              double scale,
                                              double radius) const {
    using std::fmax;
    using std::fmin;
    const double squared_scale = scale * scale;
    return fmin(fmax(squared_scale * squared_column_norm,
                     options_.min_lm_diagonal),
                options_.max_lm_diagonal) /
           (radius * squared_scale);
  }

  // The strategy of functions that have none as a parameter.
  CERES_EXT_HOST_DEVICE DampingRadius* damping() { return &damping_; }
  // The loop ends with this iteration: its limit of time is over after so many
  // seconds.
  CERES_EXT_HOST_DEVICE void EndInTime(double seconds) {
    is_late_ = true;
    end_value_ = seconds;
  }

  // True if the loop ends with this iteration, whatever the gradient is.
  CERES_EXT_HOST_DEVICE bool IsLast() const {
    return iteration_ >= options_.max_num_iterations;
  }

  CERES_EXT_HOST_DEVICE TrustRegionEnd end() const { return end_; }
  // The number that fell below the tolerance, or the seconds of kMaxTime.
  CERES_EXT_HOST_DEVICE double end_value() const { return end_value_; }
  CERES_EXT_HOST_DEVICE int32_t iteration() const { return iteration_; }
  // As Ceres counts them: iteration zero is a successful step.
  CERES_EXT_HOST_DEVICE int32_t num_successful_steps() const {
    return num_successful_steps_;
  }
  CERES_EXT_HOST_DEVICE int32_t num_unsuccessful_steps() const {
    return num_unsuccessful_steps_;
  }
  CERES_EXT_HOST_DEVICE double radius() const { return radius_; }
  // At the start or at the last accepted step.
  CERES_EXT_HOST_DEVICE double cost() const { return cost_; }
  // -1 where the start can't be evaluated. Ceres's final cost is the least that
  // any iteration has seen, rejected ones included.
  CERES_EXT_HOST_DEVICE double initial_cost() const { return initial_cost_; }
  CERES_EXT_HOST_DEVICE double final_cost() const { return final_cost_; }
  CERES_EXT_HOST_DEVICE double gradient_max_norm() const {
    return gradient_max_norm_;
  }

 private:
  // In the order of Ceres's tests.
  CERES_EXT_HOST_DEVICE bool FinishIteration(bool is_successful, double cost) {
    if (is_successful) {
      ++num_successful_steps_;
    } else {
      ++num_unsuccessful_steps_;
    }
    final_cost_ = cost < final_cost_ ? cost : final_cost_;
    // As a callback, which Ceres asks first.
    if (options_.IsStopped()) {
      end_ = TrustRegionEnd::kStopped;
    } else if (is_late_) {
      end_ = TrustRegionEnd::kMaxTime;
    } else if (iteration_ >= options_.max_num_iterations) {
      end_ = TrustRegionEnd::kMaxIterations;
    } else if (is_successful &&
               !(gradient_max_norm_ > options_.gradient_tolerance)) {
      end_ = TrustRegionEnd::kGradientTolerance;
      end_value_ = gradient_max_norm_;
    } else if (!(radius_ > options_.min_radius)) {
      end_ = TrustRegionEnd::kMinRadius;
      end_value_ = radius_;
    }
    return end_ == TrustRegionEnd::kNone;
  }

  TrustRegionOptions options_;
  double radius_ = 0.0;
  DampingRadius damping_;
  double cost_ = 0.0;
  // The cost of x as a candidate, which is the reference of steps.
  double reference_cost_ = 0.0;
  double initial_cost_ = -1.0;
  double final_cost_ = -1.0;
  double gradient_max_norm_ = 0.0;
  double end_value_ = 0.0;
  int32_t iteration_ = 0;
  int32_t num_consecutive_invalid_steps_ = 0;
  int32_t num_successful_steps_ = 0;
  int32_t num_unsuccessful_steps_ = 0;
  TrustRegionEnd end_ = TrustRegionEnd::kNone;
  bool has_accepted_ = false;
  bool is_late_ = false;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SOLVER_TRUST_REGION_H_
