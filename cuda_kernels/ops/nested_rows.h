// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Elimination of the private blocks of rows of directions
// (model/nested_jacobian.h), by the formulas of ops/private_blocks.h: what
// these are for rows of any shape.
//
// All are vector operations (ops/vector_operation.h) whose elements are rows.
// Order: a row's residuals from the first to the last. Vectors of private
// blocks are those of their family.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_NESTED_ROWS_H_
#define CERES_EXT_CUDA_KERNELS_OPS_NESTED_ROWS_H_

#include <cstdint>

#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/model/nested_jacobian.h"
#include "cuda_kernels/ops/block_rows.h"
#include "cuda_kernels/ops/private_blocks.h"
#include "cuda_kernels/ops/vector_operation.h"
#include "cuda_kernels/structure/observation_index.h"

namespace ceres_ext::kernels {

template <BlockLayout kLayout>
struct NestedRows {
  using Shape = NestedStorage;
  static constexpr int R = Shape::kNumResiduals;

  ObservationIndexRef index;
  BlockRef<const double, Shape::kFSize, kLayout> camera_blocks;
  // The place of each row's private block; -1: it has none, and a is zero.
  const int32_t* place = nullptr;

  int64_t size() const { return index.num_observations; }
  CERES_EXT_HOST_DEVICE double A(int64_t k, int r) const {
    return camera_blocks(k, Shape::kF * r + kPrivateColumn);
  }
  // a'y of row k, y over all residuals.
  CERES_EXT_HOST_DEVICE double Product(int64_t k, const double* y) const {
    double sum = 0.0;
    for (int r = 0; r < R; ++r) {
      sum += A(k, r) * y[R * k + r];
    }
    return sum;
  }
  CERES_EXT_HOST_DEVICE double Squares(int64_t k) const {
    double sum = 0.0;
    for (int r = 0; r < R; ++r) {
      sum += A(k, r) * A(k, r);
    }
    return sum;
  }
};

// c of each row and 1 / h of each block for D, out = L b, and the gradient a'b
// unless it is null.
// Traffic: 24 B of a, 24 B of b twice, 36 B per row.
template <BlockLayout kLayout>
struct NestRowsParams {
  NestedRows<kLayout> rows;
  const double* diagonal = nullptr;  // D; null: zero
  const double* b = nullptr;
  double* c = nullptr;
  double* h_inverse = nullptr;
  double* out = nullptr;
  double* gradient = nullptr;

  static constexpr int kUnroll = 1;
  int64_t size() const { return rows.size(); }
  CERES_EXT_HOST_DEVICE void Apply(int64_t k) const {
    constexpr int R = NestedRows<kLayout>::R;
    const int32_t place = rows.place[k];
    PrivateFactors factors;
    double product = 0.0;
    if (place >= 0) {
      factors = EliminatePrivate(rows.Squares(k),
                                 diagonal == nullptr ? 0.0 : diagonal[place]);
      product = rows.Product(k, b);
      h_inverse[place] = factors.h_inverse;
      if (gradient != nullptr) {
        gradient[place] = product;
      }
    }
    c[k] = factors.c;
    for (int r = 0; r < R; ++r) {
      out[R * k + r] = b[R * k + r] - factors.c * product * rows.A(k, r);
    }
  }
};

// y += a x. Traffic: 24 B of a, y twice, 12 B per row.
template <BlockLayout kLayout>
struct NestedProductParams {
  NestedRows<kLayout> rows;
  const double* x = nullptr;
  double* y = nullptr;

  static constexpr int kUnroll = 1;
  int64_t size() const { return rows.size(); }
  CERES_EXT_HOST_DEVICE void Apply(int64_t k) const {
    constexpr int R = NestedRows<kLayout>::R;
    const double value = rows.place[k] < 0 ? 0.0 : x[rows.place[k]];
    for (int r = 0; r < R; ++r) {
      y[R * k + r] += rows.A(k, r) * value;
    }
  }
};

// out += a'y (kVector) or a'a (kSquares, kMatrix).
template <CellProduct kProduct, BlockLayout kLayout>
struct NestedSumsParams {
  NestedRows<kLayout> rows;
  const double* y = nullptr;  // kVector
  double* out = nullptr;

  static constexpr int kUnroll = 1;
  int64_t size() const { return rows.size(); }
  CERES_EXT_HOST_DEVICE void Apply(int64_t k) const {
    if (rows.place[k] >= 0) {
      out[rows.place[k]] += kProduct == CellProduct::kVector
                                ? rows.Product(k, y)
                                : rows.Squares(k);
    }
  }
};

// s = a'(b - J x) / h, x being the step of cameras and points.
// Traffic: the blocks and b once, 28 B per row, and x.
template <BlockLayout kLayout>
struct BackSubstituteNestedParams {
  NestedRows<kLayout> rows;
  NestedJacobian<kLayout> jacobian;  // J
  const double* h_inverse = nullptr;
  const double* b = nullptr;
  const double* camera_x = nullptr;  // 3 per camera
  const double* point_x = nullptr;   // 3 per point
  double* s = nullptr;

  static constexpr int kUnroll = 1;
  int64_t size() const { return rows.size(); }
  CERES_EXT_HOST_DEVICE void Apply(int64_t k) const {
    using Shape = NestedStorage;
    const int32_t place = rows.place[k];
    if (place < 0) {
      return;
    }
    const double* const x_c =
        camera_x + int64_t{kPrivateColumn} * rows.index.camera_id[k];
    const double* const x_p =
        point_x + int64_t{Shape::kE} * rows.index.point_id[k];
    double jc[Shape::kNumResiduals * kPrivateColumn];
    double jp[Shape::kESize];
    jacobian.camera_blocks.Load(k, jc);
    jacobian.point_blocks.Load(k, jp);
    double sum = 0.0;
    for (int r = 0; r < Shape::kNumResiduals; ++r) {
      double y = b[Shape::kNumResiduals * k + r];
      for (int i = 0; i < kPrivateColumn; ++i) {
        y -= jc[kPrivateColumn * r + i] * x_c[i];
      }
      for (int i = 0; i < Shape::kE; ++i) {
        y -= jp[Shape::kE * r + i] * x_p[i];
      }
      sum += rows.A(k, r) * y;
    }
    s[place] = h_inverse[place] * sum;
  }
};

// J = J diag(s), in place; of opposite rows the private column alone, whose
// camera_scale is null. Traffic: the blocks twice, 12 B per row and s.
template <BlockLayout kLayout>
struct ScaleNestedParams {
  using Shape = NestedStorage;
  ObservationIndexRef index;
  BlockRef<double, Shape::kFSize, kLayout> camera_blocks;
  BlockRef<double, Shape::kESize, kLayout> point_blocks;
  const int32_t* place = nullptr;
  const double* camera_scale = nullptr;   // 3 per camera
  const double* point_scale = nullptr;    // 3 per point
  const double* private_scale = nullptr;  // of their family

  static constexpr int kUnroll = 1;
  int64_t size() const { return index.num_observations; }
  CERES_EXT_HOST_DEVICE void Apply(int64_t k) const {
    const double s = place[k] < 0 ? 0.0 : private_scale[place[k]];
    for (int r = 0; r < Shape::kNumResiduals; ++r) {
      camera_blocks(k, Shape::kF * r + kPrivateColumn) *= s;
    }
    if (camera_scale == nullptr) {
      return;
    }
    const double* const s_c =
        camera_scale + int64_t{kPrivateColumn} * index.camera_id[k];
    const double* const s_p =
        point_scale + int64_t{Shape::kE} * index.point_id[k];
    for (int r = 0; r < Shape::kNumResiduals; ++r) {
      for (int i = 0; i < kPrivateColumn; ++i) {
        camera_blocks(k, Shape::kF * r + i) *= s_c[i];
      }
      for (int i = 0; i < Shape::kE; ++i) {
        point_blocks(k, Shape::kE * r + i) *= s_p[i];
      }
    }
  }
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_NESTED_ROWS_H_
