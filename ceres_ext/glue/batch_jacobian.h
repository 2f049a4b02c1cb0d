// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The Jacobian of a residual batch as a Ceres SparseMatrix. Row blocks are
// observations in the order of the ObservationIndex; columns stand where the
// Program's tangent offsets say. Blocks are padded (block_table.h), and padded
// columns are zero.
//
// The blocks are stored, or recomputed from a copy of the cameras and points
// that they belong to (Options::jacobian).
//
// Rows are in an order of this library's own: whoever makes a vector of rows
// (BatchEvaluator) and whoever takes one (BatchLinearSolver) agree on it, and
// Ceres's loop only adds such vectors up.

#ifndef CERES_EXT_GLUE_BATCH_JACOBIAN_H_
#define CERES_EXT_GLUE_BATCH_JACOBIAN_H_

#include <cstdint>
#include <cstdio>
#include <memory>

#include "ceres/internal/eigen.h"
#include "ceres/sparse_matrix.h"
#include "ceres_ext/glue/block_table.h"
#include "ceres_ext/options.h"
#include "ceres_ext/solver/host_backend.h"
#include "cuda_kernels/bal_model.h"
#include "cuda_kernels/block_view.h"
#include "cuda_kernels/buffer.h"
#include "cuda_kernels/host_context.h"
#include "cuda_kernels/jacobian_source.h"
#include "cuda_kernels/observation_index.h"
#include "cuda_kernels/status.h"

namespace ceres_ext {

// What evaluator, Jacobian and linear solver of one batch share. Owned by the
// plugin.
struct BatchShape {
  BlockTable cameras;
  BlockTable points;
  kernels::ObservationIndex index;
  // Holds the workspace that every operation on the batch shares.
  solver::HostBackend backend;
  kernels::HostContext* context = nullptr;
  int num_columns = 0;
};

template <int C>
class BatchJacobian final : public ceres::internal::SparseMatrix {
 public:
  using Stored = kernels::StoredJacobian<double, C, kernels::kHostLayout>;
  using Recomputed = kernels::RecomputedJacobian<double, C>;

  // kOutOfMemory where the Jacobian doesn't fit.
  static std::unique_ptr<BatchJacobian> Create(JacobianType type,
                                               BatchShape* shape,
                                               kernels::Status* status);

  JacobianType type() const { return type_; }
  BatchShape* shape() const { return shape_; }

  // JACOBIAN_STORED: the blocks, written by the evaluator.
  kernels::BlockView<double, 2 * C, kernels::kHostLayout> camera_blocks();
  kernels::BlockView<double, 6, kernels::kHostLayout> point_blocks();

  // JACOBIAN_RECOMPUTED: takes copies of the state that the Jacobian belongs
  // to. point_scale may be null: one.
  void SetState(const kernels::CameraState<double>* cameras,
                const double* camera_maps,
                const double* points,
                const double* point_scale);

  // Calls visit with the Stored or Recomputed source of the blocks.
  template <typename Visit>
  auto WithSource(Visit&& visit) const {
    return type_ == JACOBIAN_STORED ? visit(stored()) : visit(recomputed());
  }

  // LinearOperator and SparseMatrix. y has 2 values per observation, x
  // num_cols() values.
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

  // JACOBIAN_STORED: the camera blocks, 2 x C per observation; the point blocks
  // are elsewhere. JACOBIAN_RECOMPUTED: the camera maps.
  double* mutable_values() final;
  const double* values() const final;
  int num_rows() const final;
  int num_cols() const final { return shape_->num_columns; }
  // Values in columns that are not padding.
  int num_nonzeros() const final;

  int64_t memory_bytes() const;

 private:
  BatchJacobian(JacobianType type, BatchShape* shape)
      : type_(type), shape_(shape) {}

  kernels::Status Allocate();
  Stored stored() const;
  Recomputed recomputed() const;

  // Calls visit(row, column, value) for every value outside the padding, by
  // ascending row.
  template <typename Visit>
  void ForEachValue(Visit&& visit) const;

  const JacobianType type_;
  BatchShape* shape_;
  // JACOBIAN_STORED.
  kernels::HostBuffer<double> camera_blocks_;
  kernels::HostBuffer<double> point_blocks_;
  // JACOBIAN_RECOMPUTED.
  kernels::HostBuffer<kernels::CameraState<double>> cameras_;
  kernels::HostBuffer<double> camera_maps_;
  kernels::HostBuffer<double> points_;
  kernels::HostBuffer<double> point_scale_;
  // Padded copies of a vector of columns.
  mutable kernels::HostBuffer<double> camera_x_;
  mutable kernels::HostBuffer<double> point_x_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_GLUE_BATCH_JACOBIAN_H_
