// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/under_ceres/whole_solve_plugin.h"

#include <utility>
#include <vector>

#include "ceres/problem_impl.h"
#include "ceres/program.h"

namespace ceres_ext {

using ceres::internal::PreprocessedProblem;

WholeSolvePlugin::WholeSolvePlugin(const Options& options, SolveWhole solve)
    : options_(options),
      solve_(std::move(solve)),
      plugin_(options, /*append_to_message=*/true) {}

Outcome WholeSolvePlugin::Solve(const PreprocessedProblem& pp) {
  ceres::Solver::Options options = pp.options;
  // Ceres has put all blocks into one group where the caller had no ordering.
  if (options.linear_solver_ordering != nullptr &&
      options.linear_solver_ordering->NumGroups() < 2) {
    options.linear_solver_ordering.reset();
  }
  TableOfProblem arrays;
  std::string reason;
  if (arrays.Read(pp.problem->options(),
                  pp.problem->program().residual_blocks(),
                  &reason)) {
    return solve_(options, options_, &arrays, &summary_);
  }
  return Outcome::NotBySeveral(reason);
}

bool WholeSolvePlugin::OwnsOrdering(PreprocessedProblem* pp) {
  bool owns = true;  // Then Ceres orders nothing.
  TryEach(&attempts_, [&](const Attempt& attempt) {
    is_solved_ = attempts_.by_several();
    if (!is_solved_) {
      plugin_.SetAttempt(attempt);
      owns = plugin_.OwnsOrdering(pp);
      return Outcome();
    }
    const Outcome outcome =
        failure_.Guard(Outcome(), [&] { return Solve(*pp); });
    return failure_.has_happened() ? Outcome::NotBySeveral(failure_.sentence())
                                   : outcome;
  });
  return owns;
}

bool WholeSolvePlugin::SetupLinearSolver(PreprocessedProblem* pp) {
  if (is_solved_) {
    // Ceres then has no loop, and a summary for Finish to replace.
    AssignOrShorten("Several devices have solved the problem.", &pp->error);
    return false;
  }
  return plugin_.SetupLinearSolver(pp);
}

bool WholeSolvePlugin::SetupEvaluator(PreprocessedProblem* pp) {
  return plugin_.SetupEvaluator(pp);
}

std::shared_ptr<ceres::internal::TrustRegionVectors>
WholeSolvePlugin::CreateTrustRegionVectors(PreprocessedProblem* pp) {
  return plugin_.CreateTrustRegionVectors(pp);
}

void WholeSolvePlugin::Finish(const PreprocessedProblem& pp,
                              ceres::Solver::Summary* summary) {
  if (!is_solved_) {
    plugin_.Finish(pp, summary);
    return;
  }
  failure_.Guard(false, [&] {
    const std::string path = PathInBrackets(summary_, summary_.path_reason);
    *summary = std::move(summary_);
    summary->message += path;
    return true;
  });
}

}  // namespace ceres_ext
