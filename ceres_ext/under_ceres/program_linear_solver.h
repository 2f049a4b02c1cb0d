// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The steps of a session as Ceres's linear solver: it reads the Jacobian where
// it lies.

#ifndef CERES_EXT_UNDER_CERES_PROGRAM_LINEAR_SOLVER_H_
#define CERES_EXT_UNDER_CERES_PROGRAM_LINEAR_SOLVER_H_

#include <map>
#include <string>

#include "ceres/execution_summary.h"
#include "ceres/linear_solver.h"
#include "ceres_ext/base/ceres_version.h"
#include "ceres_ext/base/failure.h"
#include "ceres_ext/base/machines.h"
#include "ceres_ext/session/session.h"
#include "ceres_ext/solver/step_options.h"
#include "ceres_ext/under_ceres/call_timer.h"
#include "ceres_ext/under_ceres/program_jacobian.h"
#include "cuda_kernels/base/status.h"

namespace ceres_ext {

template <typename Machine>
class ProgramLinearSolver final : public ceres::internal::LinearSolver {
 public:
  using LinearSolver = ceres::internal::LinearSolver;

  // *jacobian is the only one that the solver will be given. All outlive the
  // solver.
  ProgramLinearSolver(Session<Machine>* session,
                      const ProgramJacobian<Machine>* jacobian,
                      Failure* failure)
      : session_(session), jacobian_(jacobian), failure_(failure) {}

  // If the loop calls FinishStep before it uses what it can't take back, exact
  // steps of a device are only queued by Solve.
  void QueueSteps() { may_queue_ = !kIsHost<Machine>; }
  // Waits for the step of the last Solve. False: there is none, and whatever
  // was computed of it is of no use. A fatal error has happened to *failure.
  bool FinishStep() {
    if (!is_queued_) {
      return true;
    }
    is_queued_ = false;
    const CallTimer timer(&calls_);
    solver::StepSummary step;
    failure_->Guard(false, [&] {
      session_->FinishStep(&step);
      if (step.termination == solver::Termination::kFatalError) {
        failure_->Set(
            kernels::Status(kernels::StatusCode::kDeviceError, step.message));
      } else if (step.termination == solver::Termination::kFailure) {
        LOG_IF(WARNING, failure_->is_logged())
            << "Linear solver failure. Failed to compute a step: "
            << step.message;
      }
      return true;
    });
    return step.termination == solver::Termination::kSuccess;
  }

  // FATAL_ERROR, which ends Ceres's loop, once *failure has happened.
  LinearSolver::Summary Solve(
      ceres::internal::LinearOperator* A,
      const double* b,
      const LinearSolver::PerSolveOptions& per_solve_options,
      double* x) final {
    const CallTimer timer(&calls_);
    ++calls_.calls;
    static_cast<void>(FinishStep());
    solver::StepSummary step;
    failure_->Guard(false, [&] {
      if (A != jacobian_) {
        failure_->Set("The linear solver was set up for another Jacobian.");
      } else if (!failure_->has_happened()) {
        const kernels::Status status =
            session_->Step({b,
                            per_solve_options.D,
                            per_solve_options.q_tolerance,
                            per_solve_options.r_tolerance,
                            may_queue_},
                           x,
                           &step);
        is_queued_ = step.is_queued;
        if (!status.ok()) {
          failure_->Set(status);
        } else if (step.termination == solver::Termination::kFatalError) {
          failure_->Set(
              kernels::Status(kernels::StatusCode::kDeviceError, step.message));
        }
      }
      return true;
    });
    if (failure_->has_happened()) {
      step.num_iterations = 0;
      step.termination = solver::Termination::kFatalError;
      AssignOrShorten(failure_->sentence(), &step.message);
    }
    return ToCeres(std::move(step));
  }

  std::map<std::string, ceres::internal::CallStatistics> Statistics()
      const final {
    using Calls = std::map<std::string, ceres::internal::CallStatistics>;
    return failure_->Guard(Calls(), [&] {
      return Calls{{"LinearSolver::Solve", calls_}};
    });
  }

 private:
  static LinearSolver::Summary ToCeres(solver::StepSummary step) {
    using Type = ceres::internal::LinearSolverTerminationType;
    LinearSolver::Summary summary;
    summary.residual_norm = step.residual_norm;
    summary.num_iterations = step.num_iterations;
    summary.message = std::move(step.message);
    switch (step.termination) {
      case solver::Termination::kSuccess:
        summary.termination_type = Type::SUCCESS;
        break;
      case solver::Termination::kNoConvergence:
        summary.termination_type = Type::NO_CONVERGENCE;
        break;
      case solver::Termination::kFailure:
        summary.termination_type = Type::FAILURE;
        break;
      case solver::Termination::kFatalError:
        summary.termination_type = Type::FATAL_ERROR;
        break;
    }
    return summary;
  }

  Session<Machine>* session_;
  const ProgramJacobian<Machine>* jacobian_;
  Failure* failure_;
  bool may_queue_ = false;
  bool is_queued_ = false;
  ceres::internal::CallStatistics calls_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_UNDER_CERES_PROGRAM_LINEAR_SOLVER_H_
