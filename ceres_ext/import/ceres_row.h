// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// One row evaluated by Ceres's own arithmetic: cost function, tangents of its
// blocks, correction for the loss. The only use of Ceres's internals outside
// under_ceres/, so that a row that Ceres evaluates has Ceres's bits.

#ifndef CERES_EXT_IMPORT_CERES_ROW_H_
#define CERES_EXT_IMPORT_CERES_ROW_H_

#include <memory>
#include <string>
#include <vector>

#include "ceres/cost_function.h"
#include "ceres_ext/import/problem_rows.h"

namespace ceres_ext {

// One row after the other by ceres::internal::ResidualBlock::Evaluate, which is
// given objects made for the call: the rows of a problem need have none. Not
// thread safe.
class CeresRow {
 public:
  CeresRow();
  ~CeresRow();
  CeresRow(const CeresRow&) = delete;
  CeresRow& operator=(const CeresRow&) = delete;

  // Evaluates what Add has been given since Clear, in this order.
  void Clear();
  // A parameter block at this value. plus_jacobian: the derivative of its
  // manifold, ambient by tangent size, row-major; null if it has no manifold.
  void Add(const double* value,
           int size,
           int tangent_size,
           const double* plus_jacobian);
  // As ResidualBlock::Evaluate; scratch is the object's own. Also false, with a
  // sentence in loss_fault(), if residuals or Jacobian can't be corrected for
  // the loss, where Ceres ends the process or yields NaN.
  bool Evaluate(const ceres::CostFunction& cost_function,
                const LossOfRow& loss,
                bool apply_loss,
                double* cost,
                double* residuals,
                double** jacobians);
  // The fault of the loss in the last Evaluate; empty if there is none.
  const std::string& loss_fault() const { return loss_fault_; }

 private:
  // A cost function differentiated by tangents: a block of it is as large as
  // its tangent.
  class TangentCostFunction final : public ceres::CostFunction {
   public:
    explicit TangentCostFunction(const CeresRow* row) : row_(row) {}
    void Set(const ceres::CostFunction* inner);
    bool Evaluate(double const* const* parameters,
                  double* residuals,
                  double** jacobians) const final;

   private:
    const CeresRow* row_;
    const ceres::CostFunction* inner_ = nullptr;
    mutable std::vector<double> values_;
    mutable std::vector<double*> jacobians_;
  };
  struct ParameterBlocks;
  struct Block {
    const double* value;
    int size;
    int tangent_size;
    const double* plus_jacobian;
  };

  std::vector<Block> blocks_;
  bool has_manifold_ = false;
  int num_values_ = 0;  // of the blocks
  TangentCostFunction by_tangents_{this};
  std::unique_ptr<ParameterBlocks> parameter_blocks_;
  std::vector<double> scratch_;
  std::string loss_fault_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_IMPORT_CERES_ROW_H_
