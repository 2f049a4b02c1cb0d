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

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "ceres/internal/eigen.h"
#include "ceres/sparse_matrix.h"
#include "ceres_ext/glue/failure.h"
#include "ceres_ext/glue/machines.h"
#include "ceres_ext/glue/program_blocks.h"
#include "ceres_ext/glue/rows.h"
#include "cuda_kernels/base/status.h"
#include "glog/logging.h"

namespace ceres_ext {

template <typename Machine>
class ProgramJacobian final : public ceres::internal::SparseMatrix {
 public:
  // Once, before anything else. Takes the parts. *blocks and *failure outlive
  // the Jacobian.
  kernels::Status Setup(const ProgramBlocks<Machine>* blocks,
                        std::vector<std::unique_ptr<RowsJacobian>> parts,
                        Failure* failure) {
    blocks_ = blocks;
    failure_ = failure;
    parts_ = std::move(parts);
    e_ = blocks->working().e;
    f_ = blocks->working().f;
    return {};
  }

  // Where the Jacobian was evaluated last: the cost, and how often it was.
  void NoteEvaluation(double cost) {
    cost_ = cost;
    ++num_evaluations_;
  }
  double cost() const { return cost_; }
  int num_evaluations() const { return num_evaluations_; }

  RowsJacobian* part(int i) { return parts_[i].get(); }
  std::vector<solver::Batch*> batches() const {
    std::vector<solver::Batch*> batches;
    for (const auto& part : parts_) {
      batches.push_back(part->batch());
    }
    return batches;
  }

  // LinearOperator and SparseMatrix, whose forms with threads call these. y has
  // num_rows(), x num_cols() values. Ceres's matrices can't report an error: it
  // is the solve's Failure, with which the evaluator and the linear solver end
  // it.
  using SparseMatrix::LeftMultiplyAndAccumulate;
  using SparseMatrix::RightMultiplyAndAccumulate;
  using SparseMatrix::ScaleColumns;
  using SparseMatrix::SquaredColumnNorm;
  // y += J x
  void RightMultiplyAndAccumulate(const double* x, double* y) const final {
    Run([&] { return blocks_->Gather(x, 0.0, e_, f_); });
    ForEachPart([&](RowsJacobian* part, int64_t begin) {
      return part->batch()->RightMultiply(
          e_, f_, /*accumulate=*/true, y + begin);
    });
  }
  // x += J' y
  void LeftMultiplyAndAccumulate(const double* y, double* x) const final {
    Run([&] { return blocks_->Gather(x, 0.0, e_, f_); });
    ForEachPart([&](RowsJacobian* part, int64_t begin) {
      return part->batch()->LeftMultiplyAndAccumulate(y + begin, e_, f_);
    });
    Run([&] { return blocks_->Scatter(e_, f_, x); });
  }
  void SquaredColumnNorm(double* x) const final {
    Run([&] { return blocks_->SetSharedToZero(e_, f_); });
    ForEachPart([&](RowsJacobian* part, int64_t /*begin*/) {
      return part->batch()->SquaredColumnNorms(e_, f_);
    });
    Run([&] { return blocks_->Scatter(e_, f_, x); });
  }
  // J = J diag(scale)
  void ScaleColumns(const double* scale) final {
    Run([&] { return blocks_->Gather(scale, 1.0, e_, f_); });
    ForEachPart([&](RowsJacobian* part, int64_t /*begin*/) {
      return part->ScaleColumns(e_, f_);
    });
  }
  void SetZero() final {
    ForEachPart(
        [](RowsJacobian* part, int64_t /*begin*/) { return part->SetZero(); });
  }
  void ToDenseMatrix(ceres::Matrix* dense_matrix) const final {
    *dense_matrix = ceres::Matrix::Zero(num_rows(), num_cols());
    ForEachValue([&](int64_t row, int column, double value) {
      (*dense_matrix)(row, column) = value;
    });
  }
  // Lines "row column value", as BlockSparseMatrix writes them.
  void ToTextFile(FILE* file) const final {
    ForEachValue([&](int64_t row, int column, double value) {
      std::fprintf(
          file, "% 10d % 10d %17f\n", static_cast<int>(row), column, value);
    });
  }

  // Null: the values have no one array of doubles.
  double* mutable_values() final { return nullptr; }
  const double* values() const final { return nullptr; }
  int num_rows() const final { return blocks_->num_residuals(); }
  int num_cols() const final { return blocks_->num_columns(); }
  // Values in columns that are not padding, counted one by one.
  int num_nonzeros() const final {
    int64_t sum = 0;
    ForEachValue([&sum](int64_t, int, double) { ++sum; });
    return static_cast<int>(
        std::min<int64_t>(sum, std::numeric_limits<int>::max()));
  }

 private:
  template <typename Function>
  void Run(Function&& fn) const {
    if (failure_->has_happened()) {
      return;
    }
    failure_->Guard(false, [&] {
      const CurrentMachine<Machine> current(blocks_->machine());
      const kernels::Status status =
          current.status().ok() ? fn() : current.status();
      if (!status.ok()) {
        LOG_IF(ERROR, failure_->is_logged()) << status.message;
        failure_->Set(status);
      }
      return status.ok();
    });
  }

  // Calls fn(part, first of its rows) in order.
  template <typename Function>
  void ForEachPart(Function&& fn) const {
    int64_t begin = 0;
    for (const auto& part : parts_) {
      Run([&] { return fn(part.get(), begin); });
      begin += part->batch()->num_residuals();
    }
  }

  void ForEachValue(const RowsJacobian::Visit& visit) const {
    ForEachPart([&](RowsJacobian* part, int64_t begin) {
      return part->ForEachValue([&](int64_t row, int column, double value) {
        visit(begin + row, column, value);
      });
    });
  }

  const ProgramBlocks<Machine>* blocks_ = nullptr;
  Failure* failure_ = nullptr;
  std::vector<std::unique_ptr<RowsJacobian>> parts_;
  double cost_ = 0.0;
  int num_evaluations_ = 0;
  // A vector of columns over families.
  double* e_ = nullptr;
  double* f_ = nullptr;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_JACOBIAN_H_
