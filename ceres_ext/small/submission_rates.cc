// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ceres_ext/base/failure.h"
#include "ceres_ext/base/scoped_seconds.h"
#include "ceres_ext/small/batch_bounds.h"
#include "ceres_ext/window_solver.h"
#include "cuda_kernels/machine/host_context.h"

namespace ceres_ext {
namespace {

// The share of its time in which a solver may be busy. A queue of random
// arrivals and equal service times has a mean wait of b / (2 (1 - b)) of these.
constexpr double kBusy = 0.9;

// A submission of the first problems of a batch, with its own values.
class SubmissionCopy {
 public:
  SubmissionCopy(const ProblemBatch& batch, int64_t num_problems)
      : batch_(batch) {
    batch_.num_problems = num_problems;
    batch_.problem = ArrayProblem();
    const auto& parameters = batch.problem.parameters();
    start_ = &batch;
    values_.resize(parameters.size());
    for (size_t a = 0; a < parameters.size(); ++a) {
      ArrayProblem::Parameters array = parameters[a];
      array.num_blocks = batch.parameter_begin[a][num_problems];
      values_[a].resize(array.num_blocks * array.size);
      if (array.values != nullptr) {
        array.values = values_[a].data();
      }
      batch_.problem.AddParameters(array);
    }
    const auto& residuals = batch.problem.residuals();
    for (size_t r = 0; r < residuals.size(); ++r) {
      ArrayProblem::Residuals array = residuals[r];
      array.num_blocks = batch.residual_begin[r][num_problems];
      batch_.problem.AddResiduals(array);
    }
  }

  // 0, with a sentence in *error, if the solver refuses it.
  WindowSolver::Ticket Submit(WindowSolver* solver, std::string* error) {
    for (size_t a = 0; a < values_.size(); ++a) {
      const double* const start = start_->problem.parameters()[a].values;
      if (start != nullptr) {
        std::copy_n(start, values_[a].size(), values_[a].begin());
      }
    }
    return solver->Submit(batch_, error);
  }

 private:
  const ProblemBatch* start_;
  ProblemBatch batch_;
  std::vector<std::vector<double>> values_;
};

// Problems per second of submissions of one size; 0, with a sentence in *error,
// if one is refused. May throw, but not while one is in flight.
double MeasureRate(const ProblemBatch& batch,
                   int64_t num_problems,
                   double seconds,
                   WindowSolver* solver,
                   std::string* error) {
  const int num_in_flight = solver->capacity().num_submissions;
  std::vector<SubmissionCopy> copies;
  copies.reserve(num_in_flight);
  for (int i = 0; i < num_in_flight; ++i) {
    copies.emplace_back(batch, num_problems);
  }
  std::vector<WindowSolver::Ticket> tickets(num_in_flight, 0);
  BatchSummary summary;
  const auto submit = [&](int i) {
    tickets[i] = copies[i].Submit(solver, error);
    return tickets[i] != 0;
  };
  // Starts the device.
  if (!submit(0)) {
    return 0.0;
  }
  solver->Wait(tickets[0], &summary);
  bool is_ok = true;
  for (int i = 0; i < num_in_flight && is_ok; ++i) {
    is_ok = submit(i);
  }
  // From one result to another, with the same number in flight.
  double rate = 0.0;
  if (is_ok) {
    solver->Wait(tickets[0], &summary);
    const Clock clock;
    double elapsed = 0.0;
    int64_t num_done = 0;
    for (int i = 0; is_ok && (elapsed < seconds || num_done < num_in_flight);
         i = (i + 1) % num_in_flight) {
      is_ok = submit(i);
      if (is_ok) {
        solver->Wait(tickets[(i + 1) % num_in_flight], &summary);
        elapsed = clock.seconds();
        rate = static_cast<double>(++num_done * num_problems) / elapsed;
      }
    }
  }
  for (const WindowSolver::Ticket ticket : tickets) {
    solver->Wait(ticket, &summary);  // One that was waited for is unknown.
  }
  return is_ok ? rate : 0.0;
}

}  // namespace

int64_t ChooseSubmissionSize(const std::vector<SubmissionRate>& rates,
                             double problems_per_second) {
  const auto is_enough = [&](const SubmissionRate& rate) {
    return kBusy * rate.problems_per_second >= problems_per_second;
  };
  const SubmissionRate* chosen = nullptr;
  for (const SubmissionRate& rate : rates) {
    if (chosen == nullptr || (is_enough(rate) && !is_enough(*chosen))) {
      chosen = &rate;
    } else if (is_enough(rate) == is_enough(*chosen)) {
      const bool is_smaller = rate.num_problems < chosen->num_problems;
      const bool is_better =
          is_enough(rate)
              ? is_smaller
              : rate.problems_per_second > chosen->problems_per_second ||
                    (rate.problems_per_second == chosen->problems_per_second &&
                     is_smaller);
      chosen = is_better ? &rate : chosen;
    }
  }
  return chosen == nullptr ? 0 : chosen->num_problems;
}

bool WindowSolver::MeasureRates(const ProblemBatch& batch,
                                double seconds,
                                std::vector<SubmissionRate>* rates,
                                std::string* error) {
  rates->clear();
  Failure failure;
  const bool is_done = failure.Guard(false, [&] {
    std::string reason;
    kernels::HostContext context(1);
    if (!(seconds > 0.0 && std::isfinite(seconds))) {
      reason = "seconds is " + std::to_string(seconds) + ", expected above 0";
    } else if (IsValidBatch(batch, &context, &reason) &&
               batch.num_problems == 0) {
      reason = "the batch has no problems";
    }
    if (!reason.empty()) {
      failure.Set(reason);
      return false;
    }
    std::vector<int64_t> sizes;
    for (int64_t n = 1; n < batch.num_problems; n *= 2) {
      sizes.push_back(n);
    }
    sizes.push_back(batch.num_problems);
    for (const int64_t n : sizes) {
      const double rate = MeasureRate(
          batch, n, seconds / static_cast<double>(sizes.size()), this, &reason);
      if (!reason.empty()) {
        rates->clear();
        failure.Set(reason);
        return false;
      }
      rates->push_back({n, rate});
    }
    return true;
  });
  if (!is_done && error != nullptr) {
    AssignOrShorten(failure.sentence(), error);
  }
  return is_done;
}

}  // namespace ceres_ext
