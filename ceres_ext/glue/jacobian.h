// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The Jacobian of a residual batch as a Ceres SparseMatrix. Row blocks are
// observations in the order of the observation index; columns stand where the
// Program's tangent offsets say. Blocks are padded (block_table.h), and padded
// columns are zero.
//
// The blocks are stored as T, or recomputed in T from a copy of the cameras and
// points that they belong to (Options::jacobian).
//
// Rows are in an order of this library's own: whoever makes a vector of rows
// (BatchEvaluator) and whoever takes one (BatchLinearSolver) agree on it, and
// Ceres's loop only adds such vectors up. Vectors are in the Machine's memory.

#ifndef CERES_EXT_GLUE_JACOBIAN_H_
#define CERES_EXT_GLUE_JACOBIAN_H_

#include <cstdint>
#include <cstdio>
#include <memory>

#include "ceres/internal/eigen.h"
#include "ceres/sparse_matrix.h"
#include "ceres_ext/glue/batch_shape.h"
#include "ceres_ext/options.h"
#include "cuda_kernels/base/block_view.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/model/bal_model.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/ops/evaluate.h"

namespace ceres_ext {

// A state of the batch in the Machine's memory, as the evaluator holds it.
struct BatchState {
  kernels::CameraParameters parameters = kernels::CameraParameters::kAngleAxis;
  const double* cameras = nullptr;   // ambient, one after the other
  const double* tangents = nullptr;  // ambient x C per camera; null: identity
  const double* points = nullptr;    // 3 per point
  const double* point_scale = nullptr;  // 3 per point; null: one
};

template <typename Machine, typename T, int C>
class BatchJacobian final : public ceres::internal::SparseMatrix {
 public:
  static constexpr kernels::BlockLayout kLayout = Machine::kLayout;
  using Stored = kernels::StoredJacobian<T, kernels::BalShape<C>, kLayout>;
  using Recomputed = kernels::RecomputedJacobian<T, C>;

  // kOutOfMemory where the Jacobian doesn't fit.
  static std::unique_ptr<BatchJacobian> Create(JacobianType type,
                                               const BatchShape<Machine>* shape,
                                               kernels::Status* status);

  JacobianType type() const { return type_; }

  // JACOBIAN_STORED: the blocks, written by the evaluator.
  kernels::BlockView<T, 2 * C, kLayout> camera_blocks() {
    return {camera_blocks_.data(), shape_->index().num_observations};
  }
  kernels::BlockView<T, 6, kLayout> point_blocks() {
    return {point_blocks_.data(), shape_->index().num_observations};
  }

  // JACOBIAN_RECOMPUTED: takes a copy of the state that the Jacobian belongs
  // to.
  kernels::Status SetState(const BatchState& state);

  // Calls visit with the Stored or Recomputed source of the blocks.
  template <typename Visit>
  auto WithSource(Visit&& visit) const {
    return type_ == JACOBIAN_STORED ? visit(stored()) : visit(recomputed());
  }

  // LinearOperator and SparseMatrix. y has 2 values per observation, x
  // num_cols() values. A device that fails shows at the next operation that
  // can report it; the reason is logged.
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
  int num_rows() const final { return shape_->num_residuals(); }
  int num_cols() const final { return shape_->num_columns(); }
  // Values in columns that are not padding.
  int num_nonzeros() const final { return num_nonzeros_; }

  int64_t bytes() const;

 private:
  template <typename Value>
  using Buffer = typename Machine::template Buffer<Value>;

  BatchJacobian(JacobianType type, const BatchShape<Machine>* shape)
      : type_(type), shape_(shape) {}

  kernels::Status Allocate();
  kernels::Status CountNonzeros();
  // camera_states_ and camera_maps_ from the state, the scale and zero_.
  kernels::Status PrepareRecomputed();
  Stored stored() const;
  Recomputed recomputed() const;

  // Calls visit(row, column, value) for every value outside the padding, by
  // ascending row.
  template <typename Visit>
  kernels::Status ForEachValue(Visit&& visit) const;

  const JacobianType type_;
  const BatchShape<Machine>* shape_;
  int num_nonzeros_ = 0;

  // JACOBIAN_STORED.
  Buffer<T> camera_blocks_;
  Buffer<T> point_blocks_;

  // JACOBIAN_RECOMPUTED: the state, its scale, and what products need.
  BatchState state_;
  Buffer<double> cameras_;
  Buffer<double> tangents_;
  Buffer<double> camera_scale_;
  Buffer<double> point_scale_;
  Buffer<kernels::CameraState<T>> camera_states_;
  Buffer<T> camera_maps_;
  Buffer<T> points_;
  Buffer<T> point_scale_in_t_;

  // Padded copies of a vector of columns.
  mutable Buffer<double> camera_x_;
  mutable Buffer<double> point_x_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_JACOBIAN_H_
