// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/under_ceres/whole_solve_plugin.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <utility>
#include <vector>

#include "ceres/evaluator.h"
#include "ceres/internal/eigen.h"
#include "ceres/linear_solver.h"
#include "ceres/parameter_block.h"
#include "ceres/problem_impl.h"
#include "ceres/program.h"
#include "ceres/residual_block.h"
#include "ceres/sparse_matrix.h"

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

// The parts that Ceres's loop needs for a problem whose gradient is zero.
class NoLinearSolver final : public ceres::internal::LinearSolver {
 public:
  Summary Solve(ceres::internal::LinearOperator* /*A*/,
                const double* /*b*/,
                const PerSolveOptions& /*options*/,
                double* /*x*/) final {
    Summary summary;
    summary.termination_type =
        ceres::internal::LinearSolverTerminationType::FATAL_ERROR;
    return summary;
  }
};

class NoJacobian final : public ceres::internal::SparseMatrix {
 public:
  using SparseMatrix::LeftMultiplyAndAccumulate;
  using SparseMatrix::RightMultiplyAndAccumulate;
  using SparseMatrix::ScaleColumns;
  using SparseMatrix::SquaredColumnNorm;

  explicit NoJacobian(int num_cols) : num_cols_(num_cols) {}

  void RightMultiplyAndAccumulate(const double* /*x*/,
                                  double* /*y*/) const final {}
  void LeftMultiplyAndAccumulate(const double* /*x*/,
                                 double* /*y*/) const final {}
  void SquaredColumnNorm(double* x) const final {
    std::fill_n(x, num_cols_, 0.0);
  }
  void ScaleColumns(const double* /*scale*/) final {}
  void SetZero() final {}
  void ToDenseMatrix(ceres::Matrix* dense_matrix) const final {
    dense_matrix->resize(0, num_cols_);
  }
  void ToTextFile(FILE* /*file*/) const final {}
  double* mutable_values() final { return nullptr; }
  const double* values() const final { return nullptr; }
  int num_rows() const final { return 0; }
  int num_cols() const final { return num_cols_; }
  int num_nonzeros() const final { return 0; }

 private:
  const int num_cols_;
};

class SolvedEvaluator final : public ceres::internal::Evaluator {
 public:
  SolvedEvaluator(const ceres::internal::Program& program, double cost)
      : num_parameters_(program.NumParameters()),
        num_columns_(program.NumEffectiveParameters()),
        cost_(cost) {}

  std::unique_ptr<ceres::internal::SparseMatrix> CreateJacobian() const final {
    return std::make_unique<NoJacobian>(num_columns_);
  }
  bool Evaluate(const EvaluateOptions& /*options*/,
                const double* /*state*/,
                double* cost,
                double* /*residuals*/,
                double* gradient,
                ceres::internal::SparseMatrix* /*jacobian*/) final {
    *cost = cost_;
    if (gradient != nullptr) {
      std::fill_n(gradient, num_columns_, 0.0);
    }
    return true;
  }
  bool Plus(const double* state,
            const double* /*delta*/,
            double* state_plus_delta) const final {
    std::copy_n(state, num_parameters_, state_plus_delta);
    return true;
  }
  int NumParameters() const final { return num_parameters_; }
  int NumEffectiveParameters() const final { return num_columns_; }
  int NumResiduals() const final { return 0; }

 private:
  const int num_parameters_;
  const int num_columns_;
  const double cost_;
};

}  // namespace

WholeSolvePlugin::WholeSolvePlugin(const Options& options, SolveWhole solve)
    : options_(options),
      solve_(std::move(solve)),
      plugin_(options, /*append_to_message=*/true) {}

bool WholeSolvePlugin::Solve(const PreprocessedProblem& pp,
                             std::string* reason) {
  ceres::Solver::Options options = pp.options;
  // Ceres has put all blocks into one group where the caller had no ordering.
  if (options.linear_solver_ordering != nullptr &&
      options.linear_solver_ordering->NumGroups() < 2) {
    options.linear_solver_ordering.reset();
  }
  TableOfProblem arrays;
  return Read(pp, &arrays, reason) &&
         solve_(options, options_, &arrays, &summary_, reason);
}

bool WholeSolvePlugin::OwnsOrdering(PreprocessedProblem* pp) {
  std::string reason;
  is_solved_ = failure_.Guard(false, [&] { return Solve(*pp, &reason); });
  if (!is_solved_) {
    plugin_.SetWhyOneDevice(failure_.has_happened() ? failure_.sentence()
                                                    : reason);
    return plugin_.OwnsOrdering(pp);
  }
  // They have been called.
  pp->options.callbacks.clear();
  pp->options.logging_type = ceres::SILENT;
  pp->options.minimizer_progress_to_stdout = false;
  pp->options.max_num_iterations = 0;
  pp->options.jacobi_scaling = false;
  return true;
}

bool WholeSolvePlugin::SetupLinearSolver(PreprocessedProblem* pp) {
  if (!is_solved_) {
    return plugin_.SetupLinearSolver(pp);
  }
  return failure_.Guard(false, [&] {
    pp->linear_solver = std::make_unique<NoLinearSolver>();
    return true;
  });
}

bool WholeSolvePlugin::SetupEvaluator(PreprocessedProblem* pp) {
  if (!is_solved_) {
    return plugin_.SetupEvaluator(pp);
  }
  return failure_.Guard(false, [&] {
    pp->evaluator = std::make_unique<SolvedEvaluator>(*pp->reduced_program,
                                                      summary_.final_cost);
    return true;
  });
}

std::shared_ptr<ceres::internal::TrustRegionVectors>
WholeSolvePlugin::CreateTrustRegionVectors(PreprocessedProblem* pp) {
  return is_solved_ ? nullptr : plugin_.CreateTrustRegionVectors(pp);
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
