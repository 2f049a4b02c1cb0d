// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/kind.h"

#include <utility>

#include "ceres_ext/base/failure.h"
#include "ceres_ext/small/fit/fit_batch.h"
#include "ceres_ext/small/fit/fit_piece.h"
#include "ceres_ext/small/model_window/model_clock.h"
#include "ceres_ext/small/model_window/model_piece.h"
#include "ceres_ext/small/model_window/model_windows.h"
#include "ceres_ext/small/window/window_packer.h"
#include "ceres_ext/small/window/window_piece.h"

namespace ceres_ext {

LoopOptions OptionsOfRegion(const Options& ext_options,
                            const ceres::Solver::Options& options,
                            const int32_t* stop,
                            double seconds) {
  LoopOptions region;
  region.stop = stop;
  region.is_mixed = ext_options.precision == PRECISION_MIXED;
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
  StepSearchOptions& search = region.search;
  search.max_num_iterations = options.max_num_line_search_step_size_iterations;
  search.interpolation =
      options.line_search_interpolation_type == ceres::BISECTION
          ? StepInterpolation::kBisection
      : options.line_search_interpolation_type == ceres::QUADRATIC
          ? StepInterpolation::kQuadratic
          : StepInterpolation::kCubic;
  search.sufficient_decrease = options.line_search_sufficient_function_decrease;
  search.min_step_size = options.min_line_search_step_size;
  search.max_contraction = options.max_line_search_step_contraction;
  search.min_contraction = options.min_line_search_step_contraction;
  region.dogleg = options.trust_region_strategy_type != ceres::DOGLEG
                      ? DoglegType::kNone
                  : options.dogleg_type == ceres::SUBSPACE_DOGLEG
                      ? DoglegType::kSubspace
                      : DoglegType::kTraditional;
  if (HasTimeLimit(options)) {
    region.max_seconds = options.max_solver_time_in_seconds;
    region.begin = NanosecondsNow() - static_cast<int64_t>(1e9 * seconds);
  }
  return region;
}

std::string WhyBadBounds(const ProblemBatch& batch, int64_t i) {
  const auto& all = batch.problem.parameters();
  for (size_t a = 0; a < all.size(); ++a) {
    const ArrayProblem::Parameters& p = all[a];
    const int64_t end = batch.parameter_begin[a][i + 1];
    for (int64_t b = batch.parameter_begin[a][i]; p.MayHaveBounds() && b < end;
         ++b) {
      const bool moves = p.ManifoldOf(b) == nullptr &&
                         (p.is_constant == nullptr || p.is_constant[b] == 0);
      for (int j = 0; j < p.size; ++j) {
        const double lower = p.LowerBoundOf(b, j);
        const double upper = p.UpperBoundOf(b, j);
        const double x = p.values[b * p.size + j];
        // False for NaN.
        const bool is_within = lower <= x && x <= upper;
        if (moves ? !(lower < upper) : !is_within || lower >= upper) {
          return "bounds are not valid, or a value that its manifold may hold "
                 "starts outside";
        }
      }
    }
  }
  return "";
}

void SmallPiece::Setup(SmallKind* kind,
                       BatchSummary* summary,
                       int64_t begin,
                       int64_t end) {
  solved_as_ = kind->solved_as();
  is_last_choice_ = kind->is_last_choice();
  summary_ = summary;
  begin_ = begin;
  end_ = end;
  is_of_kind_.assign(end - begin, 0);
  numbers_.clear();
  numbers_.reserve(end - begin);
  SetKind(kind);
}

template <typename Function>
void SmallPiece::SetReason(int64_t i, const Function& why_not) {
  ProblemSummary& summary = summary_->problems[i];
  Failure failure;
  const bool is_of_kind = failure.Guard(false, [&] {
    std::string reason = why_not();
    const bool has_none = reason.empty();
    if (has_none || !is_last_choice_ || summary.path_reason.empty()) {
      summary.path_reason = std::move(reason);
    }
    return has_none;
  });
  if (failure.has_happened()) {
    AssignOrShorten(failure.sentence(), &summary.path_reason);
  }
  is_of_kind_[i - begin_] = is_of_kind ? 1 : 0;
  summary.solved_as = is_of_kind ? solved_as_ : SOLVED_AS_PROBLEM;
}

void SmallPiece::Read(int64_t i) {
  SetReason(i, [&] { return WhyNot(i); });
}

void SmallPiece::ListThoseOfKind() {
  numbers_.clear();
  for (int64_t i = begin_; i < end_; ++i) {
    if (Has(i)) {
      numbers_.push_back(i);
    }
  }
}

void SmallPiece::List() {
  ListThoseOfKind();
  bytes_ = {};
  if (!numbers_.empty()) {
    Measure();
  }
}

void SmallPiece::Pack(int64_t i, SmallWorkspace* workspace) {
  SetReason(i, [&] { return TryPack(i, workspace); });
}

void SmallPiece::DropUnpacked() { ListThoseOfKind(); }

void SmallPiece::SolveOnHost(int64_t i, SmallWorkspace* workspace) {
  Failure failure;
  failure.Guard(false, [&] {
    TrySolve(i, workspace);
    return true;
  });
}

void SmallPiece::Finish(int64_t i) {
  ProblemSummary& summary = summary_->problems[i];
  const char* const reason = WhyNotSolved(i);
  if (reason != nullptr) {
    summary.solved_as = SOLVED_AS_PROBLEM;
    AssignOrShorten(reason, &summary.path_reason);
    return;
  }
  Failure failure;
  failure.Guard(false, [&] {
    Summarize(RegionOf(i), *options_, FixedCostOf(i), &summary);
    return true;
  });
  if (summary.IsSolutionUsable()) {
    Unpack(i);
    if (!summary_->covariances.empty()) {
      failure.Guard(false, [&] {
        TakeCovariance(i, &summary_->covariances[i]);
        return true;
      });
    }
  }
}

std::unique_ptr<SmallKind> MakeSmallKind(int number,
                                         const ProblemBatch* batch) {
  if (number == 0) {
    return std::make_unique<FitBatch>(batch);
  }
  if (number == 1) {
    return std::make_unique<WindowPacker>(batch);
  }
  return std::make_unique<ModelWindows>(batch);
}

std::unique_ptr<SmallPiece> MakeSmallPiece(int number,
                                           const LoopOptions* options) {
  if (number == 0) {
    return std::make_unique<FitPiece>(options);
  }
  if (number == 1) {
    return std::make_unique<WindowPiece>(options);
  }
  return std::make_unique<ModelPiece>(options);
}

const std::string& WhyOfNoKind(const SmallKinds& kinds) {
  for (int k = kNumSmallKinds - 1; k >= 0; --k) {
    if (kinds[k] != nullptr && kinds[k]->KnowsRows()) {
      return kinds[k]->reason();
    }
  }
  return kinds[1]->reason();  // that of windows
}

}  // namespace ceres_ext
