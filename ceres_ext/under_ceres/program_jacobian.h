// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The linearization of a session as a Ceres SparseMatrix. Vectors are in the
// Machine's memory, of rows in its own order (session/linearization.h).

#ifndef CERES_EXT_UNDER_CERES_PROGRAM_JACOBIAN_H_
#define CERES_EXT_UNDER_CERES_PROGRAM_JACOBIAN_H_

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <limits>

#include "ceres/internal/eigen.h"
#include "ceres/sparse_matrix.h"
#include "ceres_ext/base/ceres_version.h"
#include "ceres_ext/base/failure.h"
#include "ceres_ext/base/machines.h"
#include "ceres_ext/rows/batch_evaluator.h"
#include "ceres_ext/session/linearization.h"
#include "cuda_kernels/base/status.h"

namespace ceres_ext {

template <typename Machine>
class ProgramJacobian final : public ceres::internal::SparseMatrix {
 public:
  // All outlive the Jacobian.
  ProgramJacobian(Linearization<Machine>* linearization,
                  Machine* machine,
                  Failure* failure)
      : linearization_(linearization), machine_(machine), failure_(failure) {}

  Linearization<Machine>* linearization() { return linearization_; }

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
    Run([&] { return linearization_->RightMultiplyAndAccumulate(x, y); });
  }
  // x += J' y
  void LeftMultiplyAndAccumulate(const double* y, double* x) const final {
    Run([&] { return linearization_->LeftMultiplyAndAccumulate(y, x); });
  }
  void SquaredColumnNorm(double* x) const final {
    Run([&] { return linearization_->SquaredColumnNorms(x); });
  }
  // J = J diag(scale)
  void ScaleColumns(const double* scale) final {
    Run([&] { return linearization_->ScaleColumns(scale); });
  }
  void SetZero() final {
    Run([&] { return linearization_->SetZero(); });
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
  int num_rows() const final {
    return static_cast<int>(linearization_->num_rows());
  }
  int num_cols() const final { return linearization_->num_columns(); }
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
      const CurrentMachine<Machine> current(machine_);
      const kernels::Status status =
          current.status().ok() ? fn() : current.status();
      if (!status.ok()) {
        LOG_IF(ERROR, failure_->is_logged()) << status.message;
        failure_->Set(status);
      }
      return status.ok();
    });
  }

  void ForEachValue(const BatchJacobian::Visit& visit) const {
    Run([&] { return linearization_->ForEachValue(visit); });
  }

  Linearization<Machine>* linearization_;
  Machine* machine_;
  Failure* failure_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_UNDER_CERES_PROGRAM_JACOBIAN_H_
