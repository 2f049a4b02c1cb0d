// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The Jacobian J of a problem at the state where it was evaluated last: the
// rows of its batches, one batch after the other; columns stand where the
// tangent offsets of the parameter blocks say.
//
// This library chooses the order of the rows. Evaluator and step solver use the
// same order, and loops only add such vectors up.
// Vectors are in the Machine's memory.

#ifndef CERES_EXT_SESSION_LINEARIZATION_H_
#define CERES_EXT_SESSION_LINEARIZATION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "ceres_ext/blocks/machine_problem.h"
#include "ceres_ext/rows/batch_evaluator.h"
#include "ceres_ext/solver/batch.h"
#include "cuda_kernels/base/status.h"

namespace ceres_ext {

template <typename Machine>
class Linearization {
 public:
  // Takes the parts. *problem outlives the object. evaluate_again writes the
  // parts as the last evaluation did.
  Linearization(const MachineProblem<Machine>* problem,
                std::vector<std::unique_ptr<BatchJacobian>> parts,
                std::function<kernels::Status()> evaluate_again)
      : problem_(problem),
        parts_(std::move(parts)),
        evaluate_again_(std::move(evaluate_again)) {}

  // The last evaluation of the Jacobian: the cost, and the number of
  // evaluations.
  void NoteEvaluation(double cost) {
    cost_ = cost;
    ++num_evaluations_;
    scale_ = nullptr;
    is_lent_ = false;
  }
  // The parts are about to hold another Jacobian, for its gradient alone.
  // Restore, which all that reads or scales J does first, takes them back.
  void Lend() { is_lent_ = true; }
  // Evaluates J again if its parts were lent, at the state and with the scale
  // of before, which the caller has left as they were.
  kernels::Status Restore() const {
    if (!is_lent_) {
      return {};
    }
    is_lent_ = false;
    CERES_EXT_RETURN_IF_ERROR(evaluate_again_());
    return scale_ == nullptr ? kernels::Status() : Scale(scale_);
  }
  double cost() const { return cost_; }
  int num_evaluations() const { return num_evaluations_; }

  int64_t num_rows() const { return problem_->num_residuals(); }
  int num_columns() const { return problem_->num_columns(); }
  BatchJacobian* part(int i) { return parts_[i].get(); }
  std::vector<solver::Batch*> batches() const {
    std::vector<solver::Batch*> batches;
    for (const auto& part : parts_) {
      batches.push_back(part->batch());
    }
    return batches;
  }

  // y += J x
  kernels::Status RightMultiplyAndAccumulate(const double* x, double* y) const {
    CERES_EXT_RETURN_IF_ERROR(Restore());
    CERES_EXT_RETURN_IF_ERROR(problem_->Gather(x, 0.0, e(), f()));
    return ForEachPart([&](BatchJacobian* part, int64_t begin) {
      return part->batch()->RightMultiply(
          e(), f(), /*accumulate=*/true, y + begin);
    });
  }
  // x += J' y
  kernels::Status LeftMultiplyAndAccumulate(const double* y, double* x) const {
    CERES_EXT_RETURN_IF_ERROR(Restore());
    CERES_EXT_RETURN_IF_ERROR(problem_->Gather(x, 0.0, e(), f()));
    if (problem_->ranks() != nullptr && !problem_->ranks()->is_first()) {
      // One rank has x of F.
      CERES_EXT_RETURN_IF_ERROR(
          problem_->machine()->SetZero(problem_->blocks().f.num_values(), f()));
    }
    CERES_EXT_RETURN_IF_ERROR(
        ForEachPart([&](BatchJacobian* part, int64_t begin) {
          return part->batch()->LeftMultiplyAndAccumulate(y + begin, e(), f());
        }));
    CERES_EXT_RETURN_IF_ERROR(problem_->SumOverRanks(f()));
    return problem_->Scatter(e(), f(), x);
  }
  // x = the diagonal of J'J
  kernels::Status SquaredColumnNorms(double* x) const {
    CERES_EXT_RETURN_IF_ERROR(Restore());
    CERES_EXT_RETURN_IF_ERROR(problem_->SetSharedToZero(e(), f()));
    CERES_EXT_RETURN_IF_ERROR(
        ForEachPart([&](BatchJacobian* part, int64_t /*begin*/) {
          return part->batch()->SquaredColumnNorms(e(), f());
        }));
    CERES_EXT_RETURN_IF_ERROR(problem_->SumOverRanks(f()));
    return problem_->Scatter(e(), f(), x);
  }
  // J = J diag(scale), at most once an evaluation. Restore reads *scale.
  kernels::Status ScaleColumns(const double* scale) {
    CERES_EXT_RETURN_IF_ERROR(Restore());
    scale_ = scale;
    return Scale(scale);
  }
  kernels::Status SetZero() {
    is_lent_ = false;
    return ForEachPart(
        [](BatchJacobian* part, int64_t /*begin*/) { return part->SetZero(); });
  }
  // Calls visit(row, column, value) for every value outside the padding, by
  // ascending row.
  kernels::Status ForEachValue(const BatchJacobian::Visit& visit) const {
    CERES_EXT_RETURN_IF_ERROR(Restore());
    return ForEachEntry(visit);
  }
  // The same, where the values do not matter: they may be of a lent J.
  kernels::Status ForEachEntry(const BatchJacobian::Visit& visit) const {
    return ForEachPart([&](BatchJacobian* part, int64_t begin) {
      return part->ForEachValue([&](int64_t row, int column, double value) {
        visit(begin + row, column, value);
      });
    });
  }

 private:
  kernels::Status Scale(const double* scale) const {
    CERES_EXT_RETURN_IF_ERROR(problem_->Gather(scale, 1.0, e(), f()));
    return ForEachPart([&](BatchJacobian* part, int64_t /*begin*/) {
      return part->ScaleColumns(e(), f());
    });
  }
  // Calls fn(part, first of its rows) in order, until one fails.
  template <typename Function>
  kernels::Status ForEachPart(Function&& fn) const {
    int64_t begin = 0;
    for (const auto& part : parts_) {
      CERES_EXT_RETURN_IF_ERROR(fn(part.get(), begin));
      begin += part->batch()->num_residuals();
    }
    return {};
  }
  // A vector of columns over families.
  double* e() const { return problem_->working().e; }
  double* f() const { return problem_->working().f; }

  const MachineProblem<Machine>* problem_;
  std::vector<std::unique_ptr<BatchJacobian>> parts_;
  const std::function<kernels::Status()> evaluate_again_;
  const double* scale_ = nullptr;  // of the last evaluation; null: one
  mutable bool is_lent_ = false;
  double cost_ = 0.0;
  int num_evaluations_ = 0;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_SESSION_LINEARIZATION_H_
