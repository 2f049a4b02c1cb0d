// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Solves a single problem of a batch that is not a window. It can be stopped as
// windows are.

#ifndef CERES_EXT_SMALL_ONE_OF_BATCH_H_
#define CERES_EXT_SMALL_ONE_OF_BATCH_H_

#include <cstdint>

#include "ceres/iteration_callback.h"
#include "ceres/solver.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/options.h"
#include "ceres_ext/summary.h"

namespace ceres_ext {

// Options with a callback that ends Ceres's loop as TrustRegionOptions::stop
// ends a window.
class StoppableOptions {
 public:
  // stop: null if the solve cannot be stopped.
  StoppableOptions(const ceres::Solver::Options& options, const int32_t* stop)
      : options_(options), callback_(stop) {
    if (stop != nullptr) {
      options_.callbacks.push_back(&callback_);
    }
  }
  StoppableOptions(const StoppableOptions&) = delete;
  StoppableOptions& operator=(const StoppableOptions&) = delete;

  ceres::Solver::Options& options() { return options_; }

 private:
  class Callback final : public ceres::IterationCallback {
   public:
    explicit Callback(const int32_t* stop) : stop_(stop) {}
    ceres::CallbackReturnType operator()(
        const ceres::IterationSummary& /*summary*/) override {
      return __atomic_load_n(stop_, __ATOMIC_RELAXED) != 0
                 ? ceres::SOLVER_TERMINATE_SUCCESSFULLY
                 : ceres::SOLVER_CONTINUE;
    }

   private:
    const int32_t* const stop_;
  };

  ceres::Solver::Options options_;
  Callback callback_;
};

// The summary of a problem that had not begun when the batch was stopped. full:
// may be null.
void SummarizeUnbegun(ProblemSummary* summary, Summary* full);

// Copies the result of ceres_ext::Solve.
void Summarize(const Summary& of_problem, ProblemSummary* summary);

// Solves problem i of the batch by ceres_ext::Solve. full: gets its summary if
// not null.
void SolveOther(const ceres::Solver::Options& options,
                const Options& ext_options,
                const ProblemBatch& batch,
                int64_t i,
                ProblemSummary* summary,
                Summary* full = nullptr);

// The covariance that is wanted of problem i, which has ended with this
// summary, by ceres_ext::Covariance unless the solve has it. Throws nothing:
// *covariance has the message.
void FindCovariance(const ceres::Solver::Options& options,
                    const Options& ext_options,
                    const ProblemBatch& batch,
                    int64_t i,
                    const ProblemSummary& summary,
                    BlockCovariance* covariance) noexcept;

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_ONE_OF_BATCH_H_
