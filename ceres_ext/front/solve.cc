// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/solve.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

#include "ceres_ext/array_problem.h"
#include "ceres_ext/base/failure.h"
#include "ceres_ext/front/evaluate_arrays.h"
#include "ceres_ext/import/array_import.h"
#include "ceres_ext/import/problem_of_arrays.h"
#include "ceres_ext/session/idle_machines.h"
#include "ceres_ext/session/kept_machines.h"
#include "ceres_ext/under_ceres/solve_once.h"
#include "glog/logging.h"

namespace ceres_ext {
namespace {

// In seconds.
double Now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The time of a solve beside what Ceres has counted is its preprocessor's.
void CountTimeSince(double start, ceres::Solver::Summary* summary) {
  const double rest =
      Now() - start - std::max(0.0, summary->total_time_in_seconds);
  summary->preprocessor_time_in_seconds =
      std::max(0.0, summary->preprocessor_time_in_seconds) + rest;
  summary->total_time_in_seconds =
      std::max(0.0, summary->total_time_in_seconds) + rest;
}

void Solve(const ceres::Solver::Options& options,
           const Options& ext_options,
           ceres::Problem* problem,
           ceres::Solver::Summary* summary,
           Summary* ext_summary) {
  const double start = Now();
  Failure ignored;  // Then what there is stands.
  ignored.Guard(false, [&] {
    SolveAttempt attempt;
    while (SolveOnce(
        options, ext_options, &attempt, problem, summary, ext_summary)) {
      LOG(WARNING) << attempt.reason;
    }
    if (!attempt.reason.empty()) {
      CountTimeSince(start, summary);
    }
    return true;
  });
}

void SolveArraysOrProblem(const ceres::Solver::Options& options,
                          const Options& ext_options,
                          const ArrayProblem* problem,
                          KeptMachines* kept,
                          Summary* summary) {
  const double start = Now();
  Failure failure;
  failure.Guard(false, [&] {
    *summary = Summary();
    std::string error;
    bool is_valid = CanSolve(options, ext_options, /*problem=*/nullptr, &error);
    if (is_valid && problem == nullptr) {
      error = "problem is null; expected a ceres_ext::ArrayProblem";
      is_valid = false;
    }
    if (!is_valid || !options.IsValid(&error) ||
        !IsValidProblem(
            *problem, kept->host_context(options.num_threads), &error)) {
      failure.Set(error);
      return false;
    }
    std::string reason;
    SolveAttempt attempt;
    bool again = false;
    bool is_done = false;
    do {
      is_done = SolveArraysOnce(options,
                                ext_options,
                                &attempt,
                                *problem,
                                kept,
                                summary,
                                &reason,
                                &again);
      if (again) {
        LOG(WARNING) << attempt.reason;
        kept->Clear();
        *summary = Summary();
      }
    } while (again);
    if (!is_done || !summary->IsSolutionUsable()) {
      // A ceres::Problem has memory of its own, and what failed may have left a
      // device in any state.
      kept->Clear();
    }
    if (!is_done) {
      ProblemOfArrays of_arrays(*problem);
      Solve(options, ext_options, of_arrays.problem(), summary, summary);
      NameWorst(*problem, &summary->degenerate_eliminated_blocks);
      NameWorst(*problem, &summary->degenerate_other_blocks);
      const bool is_said =
          summary->path_reason.find(reason) != std::string::npos;
      summary->path_reason += "; a ceres::Problem was built from the arrays" +
                              (is_said ? " for that" : ", because " + reason);
    }
    // Checking the arrays, and making a ceres::Problem of them, is part of the
    // solve.
    CountTimeSince(start, summary);
    return true;
  });
  if (failure.has_happened()) {
    kept->Clear();
    summary->termination_type = ceres::FAILURE;
    AssignOrShorten(failure.sentence(), &summary->message);
    AssignOrShorten(failure.sentence(), &summary->path_reason);
  }
}

}  // namespace

void Solve(const ceres::Solver::Options& options,
           const Options& ext_options,
           ceres::Problem* problem,
           Summary* summary) {
  Solve(options, ext_options, problem, summary, summary);
}

void Solve(const ceres::Solver::Options& options,
           const Options& ext_options,
           ceres::Problem* problem,
           ceres::Solver::Summary* summary) {
  Solve(options, ext_options, problem, summary, nullptr);
}

bool StartDevice(const Options& ext_options, std::string* error) {
  Failure failure;
  failure.Guard(false, [&] {
    if (!ext_options.IsValid(error)) {
      failure.Set("ceres_ext::Options is not valid: " + *error);
      return false;
    }
    const BorrowedMachines kept(ext_options);
    std::shared_ptr<KeptMachines::Device> device;
    const kernels::Status status =
        kept->GetDevice(ext_options, /*num_threads=*/1, &device);
    if (!status.ok()) {
      failure.Set(status);
    }
    return status.ok();
  });
  AssignOrShorten(failure.sentence(), error);
  return !failure.has_happened();
}

void ReleaseIdle() { BorrowedMachines::ReleaseIdle(); }

bool Evaluate(const EvaluateOptions& options,
              const Options& ext_options,
              const ArrayProblem& problem,
              double* cost,
              std::vector<double>* residuals,
              std::vector<double>* gradient,
              std::string* error) {
  const BorrowedMachines kept(ext_options);
  return EvaluateArrays(options,
                        ext_options,
                        problem,
                        kept.get(),
                        cost,
                        residuals,
                        gradient,
                        error);
}

struct ArraySolver::Impl {
  KeptMachines kept;
};

ArraySolver::ArraySolver() : impl_(std::make_unique<Impl>()) {
  impl_->kept.is_for_several = true;
}
ArraySolver::~ArraySolver() = default;
ArraySolver::ArraySolver(ArraySolver&&) noexcept = default;
ArraySolver& ArraySolver::operator=(ArraySolver&&) noexcept = default;

void ArraySolver::Solve(const ceres::Solver::Options& options,
                        const Options& ext_options,
                        ArrayProblem* problem,
                        Summary* summary) {
  SolveArraysOrProblem(options, ext_options, problem, &impl_->kept, summary);
}

bool ArraySolver::Evaluate(const EvaluateOptions& options,
                           const Options& ext_options,
                           const ArrayProblem& problem,
                           double* cost,
                           std::vector<double>* residuals,
                           std::vector<double>* gradient,
                           std::string* error) {
  return EvaluateArrays(options,
                        ext_options,
                        problem,
                        &impl_->kept,
                        cost,
                        residuals,
                        gradient,
                        error);
}

void Solve(const ceres::Solver::Options& options,
           const Options& ext_options,
           ArrayProblem* problem,
           Summary* summary) {
  const BorrowedMachines kept(ext_options);
  SolveArraysOrProblem(options, ext_options, problem, kept.get(), summary);
}

}  // namespace ceres_ext
