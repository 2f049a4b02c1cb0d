// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A session as Ceres's Evaluator.

#ifndef CERES_EXT_UNDER_CERES_PROGRAM_EVALUATOR_H_
#define CERES_EXT_UNDER_CERES_PROGRAM_EVALUATOR_H_

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "ceres/casts.h"
#include "ceres/evaluator.h"
#include "ceres/execution_summary.h"
#include "ceres_ext/base/ceres_version.h"
#include "ceres_ext/base/failure.h"
#include "ceres_ext/session/session.h"
#include "ceres_ext/under_ceres/call_timer.h"
#include "ceres_ext/under_ceres/loop_vectors.h"
#include "ceres_ext/under_ceres/program_jacobian.h"
#include "cuda_kernels/base/status.h"

namespace ceres_ext {

template <typename Machine>
class ProgramEvaluator final : public ceres::internal::Evaluator {
 public:
  // vectors: those of the loop, or null. All outlive the evaluator.
  ProgramEvaluator(Session<Machine>* session,
                   LoopVectors<Machine>* vectors,
                   Failure* failure)
      : session_(session),
        vectors_(vectors),
        failure_(failure),
        jacobian_(std::make_unique<ProgramJacobian<Machine>>(
            session->linearization(), session->machine(), failure)) {}

  // Returns the session's Jacobian; null when asked a second time.
  std::unique_ptr<ceres::internal::SparseMatrix> CreateJacobian() const final {
    return std::move(jacobian_);
  }
  // Until CreateJacobian gives it away.
  const ProgramJacobian<Machine>* jacobian() const { return jacobian_.get(); }

  bool Evaluate(const EvaluateOptions& evaluate_options,
                const double* state,
                double* cost,
                double* residuals,
                double* gradient,
                ceres::internal::SparseMatrix* jacobian) final {
    auto& of_type = gradient != nullptr || jacobian != nullptr
                        ? jacobian_calls_
                        : residual_calls_;
    const CallTimer total_timer(&total_calls_);
    const CallTimer timer(&of_type);
    ++total_calls_.calls;
    ++of_type.calls;
    return !failure_->has_happened() && failure_->Guard(false, [&] {
      failure_->Explain("");
      EvaluationWanted<Machine> wanted;
      wanted.state = state;
      wanted.is_new_point = evaluate_options.new_evaluation_point;
      wanted.apply_loss = evaluate_options.apply_loss_function;
      wanted.residuals = residuals;
      wanted.gradient = gradient;
      wanted.jacobian =
          jacobian == nullptr
              ? nullptr
              : ceres::down_cast<ProgramJacobian<Machine>*>(jacobian)
                    ->linearization();
      return Ok(session_->Evaluate(wanted, cost));
    });
  }

  bool Plus(const double* state,
            const double* delta,
            double* state_plus_delta) const final {
    return !failure_->has_happened() && failure_->Guard(false, [&] {
      const bool ok = Ok(session_->Plus(state, delta, state_plus_delta));
      if (ok && vectors_ != nullptr) {
        vectors_->NotePlus(NumParameters(), state, state_plus_delta);
      }
      return ok;
    });
  }

  int NumParameters() const final { return session_->num_parameters(); }
  int NumEffectiveParameters() const final { return session_->num_columns(); }
  int NumResiduals() const final { return session_->num_residuals(); }

  std::map<std::string, ceres::internal::CallStatistics> Statistics()
      const final {
    using Calls = std::map<std::string, ceres::internal::CallStatistics>;
    return failure_->Guard(Calls(), [&] {
      return Calls{{"Evaluator::Total", total_calls_},
                   {"Evaluator::Residual", residual_calls_},
                   {"Evaluator::Jacobian", jacobian_calls_}};
    });
  }

 private:
  // A cost function or manifold that can't be evaluated at some point is not an
  // error of the program, and Ceres may continue.
  bool Ok(const kernels::Status& status) const {
    if (status.code == kernels::StatusCode::kNumericalFailure) {
      LOG_IF(WARNING, failure_->is_logged()) << status.message;
      failure_->Explain(status.message);
    } else if (!status.ok()) {
      LOG_IF(ERROR, failure_->is_logged())
          << "Evaluation failed: " << status.message;
      failure_->Set(status);
    }
    return status.ok();
  }

  Session<Machine>* session_;
  LoopVectors<Machine>* vectors_;
  Failure* failure_;
  mutable std::unique_ptr<ProgramJacobian<Machine>> jacobian_;
  // Ceres's own timers take memory when they stop.
  ceres::internal::CallStatistics total_calls_;
  ceres::internal::CallStatistics residual_calls_;
  ceres::internal::CallStatistics jacobian_calls_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_UNDER_CERES_PROGRAM_EVALUATOR_H_
