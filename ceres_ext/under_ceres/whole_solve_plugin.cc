// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/under_ceres/whole_solve_plugin.h"

#include <limits>
#include <utility>
#include <vector>

#include "ceres/parameter_block.h"
#include "ceres/problem_impl.h"
#include "ceres/program.h"
#include "ceres/residual_block.h"

namespace ceres_ext {
namespace {

using ceres::internal::ParameterBlock;
using ceres::internal::PreprocessedProblem;
using ceres::internal::ResidualBlock;

bool HasBounds(const ParameterBlock& block) {
  for (int e = 0; e < block.Size(); ++e) {
    if (block.LowerBound(e) > -std::numeric_limits<double>::max() ||
        block.UpperBound(e) < std::numeric_limits<double>::max()) {
      return true;
    }
  }
  return false;
}

// TableOfProblem::Read of a problem that Ceres is about to solve.
bool Read(const PreprocessedProblem& pp,
          TableOfProblem* arrays,
          std::string* reason) {
  if (pp.problem->options().evaluation_callback != nullptr) {
    *reason = "the problem has an evaluation callback";
    return false;
  }
  std::vector<double*> blocks;
  for (const ResidualBlock* row : pp.problem->program().residual_blocks()) {
    blocks.clear();
    for (int b = 0; b < row->NumParameterBlocks(); ++b) {
      blocks.push_back(row->parameter_blocks()[b]->mutable_user_state());
    }
    const auto facts_of = [&](size_t b) {
      const ParameterBlock& block = *row->parameter_blocks()[b];
      return TableOfProblem::BlockFacts{
          block.Size(), HasBounds(block), block.IsConstant(), block.manifold()};
    };
    if (!arrays->Add(row->cost_function(),
                     row->loss_function(),
                     blocks,
                     facts_of,
                     reason)) {
      return false;
    }
  }
  arrays->Finish();
  return true;
}

}  // namespace

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
  if (Read(pp, &arrays, &reason)) {
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
