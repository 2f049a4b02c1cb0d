// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The search along the projected step of a problem with bounds, f(s) = cost(x
// (+) s step), as a state machine without the work: the decisions of Ceres
// 2.2's ArmijoLineSearch, for loops that run where Ceres can't. The caller
// evaluates:
//
//   StepSearch search(options, f(0), f'(0), the largest |element| of step);
//   auto next = search.AddCost(f(1) is finite, f(1));
//   while (next == kCost || next == kDerivative)
//     next = next == kCost ? search.AddCost(f at search.step_size())
//                          : search.AddDerivative(f and f' there);
//
// After kDone the point of the last cost is the candidate, after kFailed that
// of the whole step.
#ifndef CERES_EXT_SOLVER_STEP_SEARCH_H_
#define CERES_EXT_SOLVER_STEP_SEARCH_H_

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "ceres_ext/solver/dogleg_region.h"
#include "ceres_ext/solver/trust_region.h"
#include "cuda_kernels/base/host_device.h"

namespace ceres_ext {

// As ceres::LineSearchInterpolationType.
enum class StepInterpolation : int32_t { kBisection, kQuadratic, kCubic };

// Fields of ceres::Solver::Options, with their defaults.
struct StepSearchOptions {
  // max_num_line_search_step_size_iterations. 0: there is no search.
  int32_t max_num_iterations = 20;
  StepInterpolation interpolation = StepInterpolation::kCubic;
  double sufficient_decrease = 1e-4;
  double min_step_size = 1e-9;
  double max_contraction = 1e-3;
  double min_contraction = 0.6;
};

// The options of a whole loop. A TrustRegion keeps those of its own alone,
// which saves shared memory of a device.
struct LoopOptions : TrustRegionOptions {
  StepSearchOptions search;
  // A device begins windows of poses or of BAL in float (window/loop.h).
  bool is_mixed = false;
  // These are for windows of any model alone.
  DoglegType dogleg = DoglegType::kNone;
  // The limit of time; DBL_MAX: there is none. The host's begins at `begin`, in
  // nanoseconds of its clock, and a device's with the solve.
  double max_seconds = DBL_MAX;
  int64_t begin = 0;
};

class StepSearch {
 public:
  enum class Next : int32_t { kDone, kFailed, kCost, kDerivative };

  CERES_EXT_HOST_DEVICE StepSearch(const StepSearchOptions& options,
                                   double cost,
                                   double derivative,
                                   double max_norm)
      : options_(options),
        start_{0.0, cost, derivative, true, true},
        max_norm_(max_norm) {}

  CERES_EXT_HOST_DEVICE double step_size() const { return current_.x; }

  // The cost at step_size(). is_valid: the evaluation has not failed.
  CERES_EXT_HOST_DEVICE Next AddCost(bool is_valid, double cost) {
    current_.cost = cost;
    current_.has_derivative = false;
    current_.is_valid = is_valid && IsFinite(cost);
    if (current_.is_valid &&
        !(cost > start_.cost + options_.sufficient_decrease *
                                   start_.derivative * current_.x)) {
      return Next::kDone;
    }
    if (++num_iterations_ >= options_.max_num_iterations) {
      return Next::kFailed;
    }
    return options_.interpolation == StepInterpolation::kCubic &&
                   current_.is_valid
               ? Next::kDerivative
               : Contract();
  }

  // Cost and derivative at step_size(), from one evaluation.
  CERES_EXT_HOST_DEVICE Next AddDerivative(bool is_valid,
                                           double cost,
                                           double derivative) {
    current_.cost = cost;
    current_.derivative = derivative;
    current_.is_valid = is_valid && IsFinite(cost);
    current_.has_derivative = IsFinite(derivative);
    return Contract();
  }

 private:
  struct Sample {
    double x = 0.0;
    double cost = 0.0;
    double derivative = 0.0;
    bool is_valid = false;
    bool has_derivative = false;
  };
  // Values and derivatives of three samples.
  static constexpr int kMostConstraints = 6;

  CERES_EXT_HOST_DEVICE static bool IsFinite(double x) {
    return x - x == 0.0;  // NOLINT(misc-redundant-expression)
  }

  CERES_EXT_HOST_DEVICE Next Contract() {
    using std::fmax;
    using std::fmin;
    const double least = options_.max_contraction * current_.x;
    const double most = options_.min_contraction * current_.x;
    const double step_size =
        !current_.is_valid ||
                options_.interpolation == StepInterpolation::kBisection
            ? fmin(fmax(0.5 * current_.x, least), most)
            : Interpolate(least, most);
    if (step_size * max_norm_ < options_.min_step_size) {
      return Next::kFailed;
    }
    previous_ = current_;
    current_ = Sample();
    current_.x = step_size;
    return Next::kCost;
  }

  // The place in [least, most] where the polynomial through the samples is
  // least. The unit of its variable is the current step size.
  CERES_EXT_HOST_DEVICE double Interpolate(double least, double most) const {
    const double unit = current_.x;
    double node[kMostConstraints];
    double term[kMostConstraints];
    int n = 0;
    const Sample* const samples[] = {&start_, &current_, &previous_};
    for (const Sample* const sample : samples) {
      for (int e = 0; e < 2 && sample->is_valid; ++e) {
        if (e == 0 || sample->has_derivative) {
          node[n] = sample->x / unit;
          term[n++] = sample->cost - start_.cost;
        }
      }
    }
    // Divided differences; those of equal nodes are derivatives.
    for (int order = 1; order < n; ++order) {
      for (int i = n - 1; i >= order; --i) {
        if (node[i] == node[i - order]) {
          const Sample& sample = node[i] == 0.0   ? start_
                                 : node[i] == 1.0 ? current_
                                                  : previous_;
          term[i] = unit * sample.derivative;
        } else {
          term[i] = (term[i] - term[i - 1]) / (node[i] - node[i - order]);
        }
      }
    }
    // Coefficients, the constant first.
    double p[kMostConstraints] = {};
    for (int i = n - 1; i >= 0; --i) {
      for (int k = n - 1 - i; k > 0; --k) {
        p[k] = p[k - 1] - node[i] * p[k];
      }
      p[0] = term[i] - node[i] * p[0];
    }
    return unit * Minimize(p, n - 1, least / unit, most / unit);
  }

  CERES_EXT_HOST_DEVICE static double Evaluate(const double* p,
                                               int degree,
                                               double x) {
    double value = p[degree];
    for (int k = degree - 1; k >= 0; --k) {
      value = value * x + p[k];
    }
    return value;
  }

  // The minimum over an interval is at an end or at a zero of p'. Zeros of a
  // derivative lie between those of the next one.
  CERES_EXT_HOST_DEVICE static double Minimize(const double* p,
                                               int degree,
                                               double least,
                                               double most) {
    double zeros[kMostConstraints];
    int num_zeros = 0;
    for (int order = degree - 1; order >= 1; --order) {
      double q[kMostConstraints] = {};
      for (int k = 0; k + order <= degree; ++k) {
        q[k] = p[k + order];
        for (int f = 0; f < order; ++f) {
          q[k] *= k + order - f;
        }
      }
      double next[kMostConstraints];
      int num_next = 0;
      double left = least;
      for (int z = 0; z <= num_zeros; ++z) {
        const double right = z < num_zeros ? zeros[z] : most;
        if ((Evaluate(q, degree - order, left) > 0.0) !=
            (Evaluate(q, degree - order, right) > 0.0)) {
          next[num_next++] = Bisect(q, degree - order, left, right);
        }
        left = right;
      }
      num_zeros = num_next;
      for (int z = 0; z < num_zeros; ++z) {
        zeros[z] = next[z];
      }
    }
    double best = 0.5 * (least + most);
    double best_value = Evaluate(p, degree, best);
    const auto look_at = [&](double x) {
      const double value = Evaluate(p, degree, x);
      if (value < best_value) {
        best = x;
        best_value = value;
      }
    };
    look_at(least);
    look_at(most);
    for (int z = 0; z < num_zeros; ++z) {
      look_at(zeros[z]);
    }
    return best;
  }

  // q changes its sign between the ends.
  CERES_EXT_HOST_DEVICE static double Bisect(const double* q,
                                             int degree,
                                             double left,
                                             double right) {
    const bool is_positive = Evaluate(q, degree, left) > 0.0;
    // Each halves the interval, until doubles have nothing between its ends.
    for (int i = 0; i < 64; ++i) {
      const double middle = 0.5 * (left + right);
      ((Evaluate(q, degree, middle) > 0.0) == is_positive ? left : right) =
          middle;
    }
    return 0.5 * (left + right);
  }

  const StepSearchOptions options_;
  const Sample start_;
  const double max_norm_;
  Sample current_{1.0, 0.0, 0.0, false, false};
  Sample previous_;
  int32_t num_iterations_ = 0;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SOLVER_STEP_SEARCH_H_
