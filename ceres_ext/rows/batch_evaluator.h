// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The rows of one batch as evaluator and Jacobian see them: who evaluates them,
// and the values of their part of J. Kinds: observations of this library's cost
// functions (observation_evaluator.h) and any other rows
// (row_groups_evaluator.h).

#ifndef CERES_EXT_ROWS_BATCH_EVALUATOR_H_
#define CERES_EXT_ROWS_BATCH_EVALUATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "ceres_ext/solver/batch.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/ops/evaluate.h"

namespace ceres_ext {

// Part of a Jacobian.
class BatchJacobian {
 public:
  virtual ~BatchJacobian() = default;

  // The algebra on it.
  virtual solver::Batch* batch() = 0;
  // J = J diag(scale), of vectors over families.
  virtual kernels::Status ScaleColumns(const double* e, const double* f) = 0;
  virtual kernels::Status SetZero() = 0;
  // Calls visit(row, column, value) for every value outside the padding, by
  // ascending row; rows from 0 on, columns of Ceres's tangent vector.
  using Visit = std::function<void(int64_t row, int column, double value)>;
  virtual kernels::Status ForEachValue(const Visit& visit) const = 0;
};

struct EvaluationRequest {
  const double* state = nullptr;       // Ceres's state vector, on the machine
  const double* host_state = nullptr;  // the same on the host, where asked for
  bool apply_loss = true;
  // Corrected for the loss; null: not wanted.
  double* residuals = nullptr;
  // Null: the cost alone.
  BatchJacobian* jacobian = nullptr;
  // The place of residuals that are needed but not requested: with a Jacobian,
  // or if CostTakesScratch; otherwise null.
  double* scratch_residuals = nullptr;
  // J'r over families: what the batch owns is set, others are added to. Needs
  // jacobian.
  bool want_gradient = false;
  double* e_gradient = nullptr;
  double* f_gradient = nullptr;
};

class BatchEvaluator {
 public:
  virtual ~BatchEvaluator() = default;

  virtual int64_t num_residuals() const = 0;
  // Rows that Ceres evaluates, for which Evaluate reads host_state.
  virtual int64_t num_host_rows() const { return 0; }
  // True if the cost alone takes scratch_residuals.
  virtual bool CostTakesScratch() const { return false; }
  virtual kernels::Status CreateJacobian(
      std::unique_ptr<BatchJacobian>* jacobian) const = 0;
  // Evaluates, or queues that.
  virtual kernels::Status Evaluate(const EvaluationRequest& request) = 0;
  // Cost and what isn't finite, after Evaluate.
  virtual kernels::Status Read(kernels::Evaluation* evaluation) = 0;
};

// *object = a T that has been set up.
template <typename T, typename Base, typename... Args>
kernels::Status MakeAndSetUp(std::unique_ptr<Base>* object, Args&&... args) {
  auto result = std::make_unique<T>();
  CERES_EXT_RETURN_IF_ERROR(result->Setup(std::forward<Args>(args)...));
  *object = std::move(result);
  return {};
}

}  // namespace ceres_ext

#endif  // CERES_EXT_ROWS_BATCH_EVALUATOR_H_
