// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A solver plugin whose parts wrap Ceres's own and record what is asked of
// them. Addresses of vectors pass through a translation, which the tests of
// opaque vectors use.

#ifndef CERES_EXT_TESTS_PATCHES_WRAPPING_PLUGIN_H_
#define CERES_EXT_TESTS_PATCHES_WRAPPING_PLUGIN_H_

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ceres/casts.h"
#include "ceres/evaluator.h"
#include "ceres/linear_solver.h"
#include "ceres/preprocessor.h"
#include "ceres/solver_plugin.h"
#include "ceres/sparse_matrix.h"

namespace ceres_ext {

namespace internal = ceres::internal;

// The real place of the loop's vectors.
class AddressTranslation {
 public:
  virtual ~AddressTranslation() = default;
  virtual double* Host(const double* address) const {
    return const_cast<double*>(address);
  }
};

class WrappedJacobian final : public internal::SparseMatrix {
 public:
  WrappedJacobian(std::unique_ptr<internal::SparseMatrix> matrix,
                  const AddressTranslation* at)
      : matrix_(std::move(matrix)), at_(at) {}

  internal::SparseMatrix* matrix() { return matrix_.get(); }

  void RightMultiplyAndAccumulate(const double* x, double* y) const override {
    matrix_->RightMultiplyAndAccumulate(at_->Host(x), at_->Host(y));
  }
  void RightMultiplyAndAccumulate(const double* x,
                                  double* y,
                                  internal::ContextImpl* context,
                                  int num_threads) const override {
    matrix_->RightMultiplyAndAccumulate(
        at_->Host(x), at_->Host(y), context, num_threads);
  }
  void LeftMultiplyAndAccumulate(const double* x, double* y) const override {
    matrix_->LeftMultiplyAndAccumulate(at_->Host(x), at_->Host(y));
  }
  void SquaredColumnNorm(double* x) const override {
    matrix_->SquaredColumnNorm(at_->Host(x));
  }
  void SquaredColumnNorm(double* x,
                         internal::ContextImpl* context,
                         int num_threads) const override {
    matrix_->SquaredColumnNorm(at_->Host(x), context, num_threads);
  }
  void ScaleColumns(const double* scale) override {
    matrix_->ScaleColumns(at_->Host(scale));
  }
  void ScaleColumns(const double* scale,
                    internal::ContextImpl* context,
                    int num_threads) override {
    matrix_->ScaleColumns(at_->Host(scale), context, num_threads);
  }
  void SetZero() override { matrix_->SetZero(); }
  void ToDenseMatrix(ceres::Matrix* dense_matrix) const override {
    matrix_->ToDenseMatrix(dense_matrix);
  }
  void ToTextFile(FILE* file) const override { matrix_->ToTextFile(file); }
  double* mutable_values() override { return matrix_->mutable_values(); }
  const double* values() const override { return matrix_->values(); }
  int num_rows() const override { return matrix_->num_rows(); }
  int num_cols() const override { return matrix_->num_cols(); }
  int num_nonzeros() const override { return matrix_->num_nonzeros(); }

 private:
  std::unique_ptr<internal::SparseMatrix> matrix_;
  const AddressTranslation* at_;
};

// The actions of a WrappingPlugin and its parts, in order of time if it
// matters.
struct PluginRecord {
  int num_solves = 0;
  int num_evaluations = 0;
  int num_finishes = 0;
  std::vector<std::string> events;
};

class WrappedLinearSolver final : public internal::LinearSolver {
 public:
  WrappedLinearSolver(std::unique_ptr<internal::LinearSolver> linear_solver,
                      const AddressTranslation* at,
                      PluginRecord* record)
      : linear_solver_(std::move(linear_solver)), at_(at), record_(record) {}
  ~WrappedLinearSolver() override {
    record_->events.push_back("~LinearSolver");
  }

  Summary Solve(internal::LinearOperator* A,
                const double* b,
                const PerSolveOptions& per_solve_options,
                double* x) override {
    ++record_->num_solves;
    if (auto* wrapped = dynamic_cast<WrappedJacobian*>(A)) {
      A = wrapped->matrix();
    }
    PerSolveOptions options = per_solve_options;
    options.D = at_->Host(options.D);
    return linear_solver_->Solve(A, at_->Host(b), options, at_->Host(x));
  }
  std::map<std::string, internal::CallStatistics> Statistics() const override {
    return linear_solver_->Statistics();
  }

 private:
  std::unique_ptr<internal::LinearSolver> linear_solver_;
  const AddressTranslation* at_;
  PluginRecord* record_;
};

class WrappedEvaluator final : public internal::Evaluator {
 public:
  // wrap_jacobian: CreateJacobian returns a WrappedJacobian.
  WrappedEvaluator(std::unique_ptr<internal::Evaluator> evaluator,
                   bool wrap_jacobian,
                   const AddressTranslation* at,
                   PluginRecord* record)
      : evaluator_(std::move(evaluator)),
        wrap_jacobian_(wrap_jacobian),
        at_(at),
        record_(record) {}
  ~WrappedEvaluator() override { record_->events.push_back("~Evaluator"); }

  std::unique_ptr<internal::SparseMatrix> CreateJacobian() const override {
    std::unique_ptr<internal::SparseMatrix> jacobian =
        evaluator_->CreateJacobian();
    if (wrap_jacobian_) {
      return std::make_unique<WrappedJacobian>(std::move(jacobian), at_);
    }
    return jacobian;
  }
  bool Evaluate(const EvaluateOptions& evaluate_options,
                const double* state,
                double* cost,
                double* residuals,
                double* gradient,
                internal::SparseMatrix* jacobian) override {
    ++record_->num_evaluations;
    if (record_->num_evaluations == fail_at_evaluation) {
      return false;
    }
    if (auto* wrapped = dynamic_cast<WrappedJacobian*>(jacobian)) {
      jacobian = wrapped->matrix();
    }
    return evaluator_->Evaluate(evaluate_options,
                                at_->Host(state),
                                cost,
                                at_->Host(residuals),
                                at_->Host(gradient),
                                jacobian);
  }
  bool Plus(const double* state,
            const double* delta,
            double* state_plus_delta) const override {
    return evaluator_->Plus(
        at_->Host(state), at_->Host(delta), at_->Host(state_plus_delta));
  }
  int NumParameters() const override { return evaluator_->NumParameters(); }
  int NumEffectiveParameters() const override {
    return evaluator_->NumEffectiveParameters();
  }
  int NumResiduals() const override { return evaluator_->NumResiduals(); }
  std::map<std::string, internal::CallStatistics> Statistics() const override {
    return evaluator_->Statistics();
  }

  // The number of the evaluation that fails, 0 for none.
  int fail_at_evaluation = 0;

 private:
  std::unique_ptr<internal::Evaluator> evaluator_;
  const bool wrap_jacobian_;
  const AddressTranslation* at_;
  PluginRecord* record_;
};

class WrappingPlugin : public internal::SolverPlugin {
 public:
  // record outlives the plugin.
  explicit WrappingPlugin(PluginRecord* record) : record_(record) {}
  ~WrappingPlugin() override { record_->events.push_back("~Plugin"); }

  bool OwnsOrdering(internal::PreprocessedProblem* /*pp*/) override {
    record_->events.push_back("OwnsOrdering");
    return owns_ordering;
  }

  bool SetupLinearSolver(internal::PreprocessedProblem* pp) override {
    record_->events.push_back("SetupLinearSolver");
    if (!linear_solver_error.empty()) {
      pp->error = linear_solver_error;
      return false;
    }
    if (make_linear_solver) {
      pp->linear_solver = std::make_unique<WrappedLinearSolver>(
          internal::LinearSolver::Create(pp->linear_solver_options),
          address_translation,
          record_);
    }
    return true;
  }

  bool SetupEvaluator(internal::PreprocessedProblem* pp) override {
    record_->events.push_back("SetupEvaluator");
    if (!evaluator_error.empty()) {
      pp->error = evaluator_error;
      return false;
    }
    if (make_evaluator) {
      auto evaluator = internal::Evaluator::Create(
          pp->evaluator_options, pp->reduced_program.get(), &pp->error);
      if (evaluator == nullptr) {
        return false;
      }
      auto wrapped = std::make_shared<WrappedEvaluator>(
          std::move(evaluator), wrap_jacobian, address_translation, record_);
      wrapped->fail_at_evaluation = fail_at_evaluation;
      pp->evaluator = std::move(wrapped);
    }
    return true;
  }

  void Finish(const internal::PreprocessedProblem& /*pp*/,
              ceres::Solver::Summary* summary) override {
    record_->events.push_back("Finish");
    ++record_->num_finishes;
    message_at_finish = summary->message;
  }

  bool owns_ordering = false;
  bool make_linear_solver = true;
  bool make_evaluator = true;
  bool wrap_jacobian = false;
  int fail_at_evaluation = 0;
  std::string linear_solver_error;
  std::string evaluator_error;
  std::string message_at_finish;
  const AddressTranslation* address_translation = &identity_;

 private:
  AddressTranslation identity_;
  PluginRecord* record_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_PATCHES_WRAPPING_PLUGIN_H_
