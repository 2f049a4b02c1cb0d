// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The Jacobian of a program as a Ceres SparseMatrix: the rows of its batches,
// one batch after the other; columns stand where the Program's tangent offsets
// say.
//
// Rows are in an order of this library's own: whoever makes a vector of rows
// (ProgramEvaluator) and whoever takes one (ProgramLinearSolver) agree on it,
// and Ceres's loop only adds such vectors up. Vectors are in the Machine's
// memory.

#ifndef CERES_EXT_GLUE_JACOBIAN_H_
#define CERES_EXT_GLUE_JACOBIAN_H_

#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

#include "ceres/internal/eigen.h"
#include "ceres/sparse_matrix.h"
#include "ceres_ext/glue/program_blocks.h"
#include "ceres_ext/glue/rows.h"
#include "cuda_kernels/base/status.h"

namespace ceres_ext {

template <typename Machine>
class ProgramJacobian final : public ceres::internal::SparseMatrix {
 public:
  // Takes the parts. *blocks outlives the Jacobian.
  static std::unique_ptr<ProgramJacobian> Create(
      const ProgramBlocks<Machine>* blocks,
      std::vector<std::unique_ptr<RowsJacobian>> parts,
      kernels::Status* status);

  RowsJacobian* part(int i) { return parts_[i].get(); }
  std::vector<solver::Batch*> batches() const;

  // LinearOperator and SparseMatrix. y has num_rows(), x num_cols() values. A
  // device that fails shows at the next operation that can report it; the
  // reason is logged.
  using SparseMatrix::LeftMultiplyAndAccumulate;
  using SparseMatrix::RightMultiplyAndAccumulate;
  void RightMultiplyAndAccumulate(const double* x, double* y) const final;
  void RightMultiplyAndAccumulate(const double* x,
                                  double* y,
                                  ceres::internal::ContextImpl*,
                                  int) const final {
    RightMultiplyAndAccumulate(x, y);
  }
  void LeftMultiplyAndAccumulate(const double* y, double* x) const final;
  void LeftMultiplyAndAccumulate(const double* y,
                                 double* x,
                                 ceres::internal::ContextImpl*,
                                 int) const final {
    LeftMultiplyAndAccumulate(y, x);
  }
  void SquaredColumnNorm(double* x) const final;
  void SquaredColumnNorm(double* x,
                         ceres::internal::ContextImpl*,
                         int) const final {
    SquaredColumnNorm(x);
  }
  void ScaleColumns(const double* scale) final;
  void ScaleColumns(const double* scale,
                    ceres::internal::ContextImpl*,
                    int) final {
    ScaleColumns(scale);
  }
  void SetZero() final;
  void ToDenseMatrix(ceres::Matrix* dense_matrix) const final;
  // Lines "row column value", as BlockSparseMatrix writes them.
  void ToTextFile(FILE* file) const final;

  // Null: the values have no one array of doubles.
  double* mutable_values() final { return nullptr; }
  const double* values() const final { return nullptr; }
  int num_rows() const final { return blocks_->num_residuals(); }
  int num_cols() const final { return blocks_->num_columns(); }
  // Values in columns that are not padding.
  int num_nonzeros() const final;

  // Without those of the batches.
  int64_t bytes() const;

 private:
  using Buffer = typename Machine::template Buffer<double>;

  explicit ProgramJacobian(const ProgramBlocks<Machine>* blocks)
      : blocks_(blocks) {}

  // Calls fn(part, first of its rows) in order.
  template <typename Function>
  void ForEachPart(Function&& fn) const;
  kernels::Status ForEachValue(const RowsJacobian::Visit& visit) const;

  const ProgramBlocks<Machine>* blocks_;
  std::vector<std::unique_ptr<RowsJacobian>> parts_;
  // A vector of columns over families.
  mutable Buffer e_;
  mutable Buffer f_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_JACOBIAN_H_
