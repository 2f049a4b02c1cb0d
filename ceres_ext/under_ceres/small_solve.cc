// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/under_ceres/small_solve.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ceres/casts.h"
#include "ceres/dense_sparse_matrix.h"
#include "ceres/evaluator.h"
#include "ceres/execution_summary.h"
#include "ceres/linear_solver.h"
#include "ceres/parameter_block.h"
#include "ceres/program.h"
#include "ceres_ext/solver/dense_least_squares.h"
#include "ceres_ext/under_ceres/call_timer.h"
#include "cuda_kernels/base/relative_pivot.h"
#include "cuda_kernels/base/small_matrix.h"

namespace ceres_ext {
namespace {

using ceres::internal::CallStatistics;
using ceres::internal::DenseSparseMatrix;
using ceres::internal::Evaluator;
using ceres::internal::LinearSolver;
using ceres::internal::PreprocessedProblem;
using ceres::internal::Program;

// Ceres's evaluator, out of which no exception of user code comes.
class GuardedEvaluator final : public Evaluator {
 public:
  GuardedEvaluator(std::unique_ptr<Evaluator> evaluator, Failure* failure)
      : evaluator_(std::move(evaluator)), failure_(failure) {}

  std::unique_ptr<ceres::internal::SparseMatrix> CreateJacobian() const final {
    return evaluator_->CreateJacobian();
  }
  bool Evaluate(const EvaluateOptions& options,
                const double* state,
                double* cost,
                double* residuals,
                double* gradient,
                ceres::internal::SparseMatrix* jacobian) final {
    return !failure_->has_happened() && failure_->Guard(false, [&] {
      return evaluator_->Evaluate(
          options, state, cost, residuals, gradient, jacobian);
    });
  }
  bool Plus(const double* state,
            const double* delta,
            double* state_plus_delta) const final {
    return !failure_->has_happened() && failure_->Guard(false, [&] {
      return evaluator_->Plus(state, delta, state_plus_delta);
    });
  }
  int NumParameters() const final { return evaluator_->NumParameters(); }
  int NumEffectiveParameters() const final {
    return evaluator_->NumEffectiveParameters();
  }
  int NumResiduals() const final { return evaluator_->NumResiduals(); }
  std::map<std::string, CallStatistics> Statistics() const final {
    using Calls = std::map<std::string, CallStatistics>;
    return failure_->Guard(Calls(), [&] { return evaluator_->Statistics(); });
  }

 private:
  const std::unique_ptr<Evaluator> evaluator_;
  Failure* const failure_;
};

// The x that minimises |J x - b|^2 + |D x|^2.
class SmallLinearSolver final : public LinearSolver {
 public:
  SmallLinearSolver(const Program* program,
                    Failure* failure,
                    ceres_ext::Summary* record)
      : program_(program), failure_(failure), record_(record) {}

  LinearSolver::Summary Solve(ceres::internal::LinearOperator* A,
                              const double* b,
                              const PerSolveOptions& per_solve_options,
                              double* x) final {
    using Type = ceres::internal::LinearSolverTerminationType;
    const CallTimer timer(&calls_);
    LinearSolver::Summary summary;
    summary.num_iterations = 1;
    bool has_step = false;
    const auto& jacobian = *ceres::down_cast<DenseSparseMatrix*>(A);
    failure_->Guard(false, [&] {
      if (calls_.calls++ == 0) {
        FindDegenerateBlocks(jacobian);
      }
      has_step = !failure_->has_happened() &&
                 Solve(jacobian, b, per_solve_options.D, x);
      return true;
    });
    record_->num_exact_steps += has_step ? 1 : 0;
    if (failure_->has_happened()) {
      summary.termination_type = Type::FATAL_ERROR;
      AssignOrShorten(failure_->sentence(), &summary.message);
    } else if (!has_step) {
      summary.termination_type = Type::FAILURE;
      AssignOrShorten(
          "The Jacobian has not full rank, or a value is not finite.",
          &summary.message);
    } else {
      summary.termination_type = Type::SUCCESS;
    }
    return summary;
  }

  std::map<std::string, CallStatistics> Statistics() const final {
    using Calls = std::map<std::string, CallStatistics>;
    return failure_->Guard(Calls(), [&] {
      return Calls{{"LinearSolver::Solve", calls_}};
    });
  }

 private:
  bool Solve(const DenseSparseMatrix& jacobian,
             const double* b,
             const double* d,
             double* x) {
    const int num_rows = jacobian.num_rows();
    const int num_columns = jacobian.num_cols();
    const int num_all = num_rows + num_columns;  // with those of D
    matrix_.assign(static_cast<size_t>(num_all) * num_columns, 0.0);
    rhs_.assign(num_all, 0.0);
    for (int r = 0; r < num_rows; ++r) {
      for (int c = 0; c < num_columns; ++c) {
        matrix_[num_all * c + r] = jacobian.matrix()(r, c);
      }
      rhs_[r] = b[r];
    }
    for (int c = 0; d != nullptr && c < num_columns; ++c) {
      matrix_[num_all * c + num_rows + c] = d[c];
    }
    return solver::SolveDenseLeastSquares(
        num_all, num_columns, matrix_.data(), rhs_.data(), x);
  }

  // As StepSolver::FindDegenerateBlocks, of blocks that are not eliminated.
  void FindDegenerateBlocks(const DenseSparseMatrix& jacobian) {
    DegenerateBlocks* const found = &record_->degenerate_other_blocks;
    for (const auto* block : program_->parameter_blocks()) {
      const int begin = block->delta_offset();
      const int size = block->TangentSize();
      matrix_.assign(kernels::PackedSize(size), 0.0);
      for (int i = 0; i < size; ++i) {
        for (int j = 0; j <= i; ++j) {
          matrix_[kernels::PackedIndex(i, j)] =
              jacobian.matrix().col(begin + i).dot(
                  jacobian.matrix().col(begin + j));
        }
      }
      const double pivot = kernels::RelativePivot(matrix_.data(), size);
      if (pivot > kernels::kDegeneratePivot) {
        continue;
      }
      if (found->count++ == 0 || pivot < found->worst_relative_pivot) {
        found->worst_relative_pivot = pivot;
        found->worst = block->user_state();
      }
    }
  }

  const Program* const program_;
  Failure* const failure_;
  ceres_ext::Summary* const record_;
  std::vector<double> matrix_;  // column-major, used up by a solve
  std::vector<double> rhs_;
  CallStatistics calls_;
};

}  // namespace

void SetupSmallLinearSolver(PreprocessedProblem* pp,
                            Failure* failure,
                            Summary* record) {
  pp->linear_solver = std::make_unique<SmallLinearSolver>(
      pp->reduced_program.get(), failure, record);
}

bool SetupSmallEvaluator(PreprocessedProblem* pp, Failure* failure) {
  pp->evaluator_options.num_threads = 1;
  auto evaluator = Evaluator::Create(
      pp->evaluator_options, pp->reduced_program.get(), &pp->error);
  if (evaluator == nullptr) {
    return false;
  }
  pp->evaluator =
      std::make_unique<GuardedEvaluator>(std::move(evaluator), failure);
  return true;
}

}  // namespace ceres_ext
