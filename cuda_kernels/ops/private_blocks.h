// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Elimination of private blocks: of one column that exactly one row has, as the
// scale of a direction between a camera and a point. With a the derivative of
// the row's residuals by the block and d its entry of D,
//
//   h = a'a + d^2,   P = I - a a' / h = L L,   L = I - c a a',
//   c = 1 / (h (1 + d / sqrt(h)))
//
// so that the row with residuals L b and the cells L J in place of b and J is a
// row without that block: J'P J = (L J)'(L J). c is the root of
// c^2 a'a - 2 c + 1 / h = 0 in the form that loses no digits. a = 0 gives L =
// I. The block itself follows from the step x of the others, s = a'(b - J x) /
// h.
//
// All are vector operations (ops/vector_operation.h) whose elements are rows.
// Order: a row's residuals from the first to the last.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_PRIVATE_BLOCKS_H_
#define CERES_EXT_CUDA_KERNELS_OPS_PRIVATE_BLOCKS_H_

#include <cmath>
#include <cstdint>

#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/ops/block_rows.h"
#include "cuda_kernels/ops/vector_operation.h"
#include "cuda_kernels/structure/block_rows.h"

namespace ceres_ext::kernels {

// c and 1 / h of a block; of h = 0, which has no step, 1 / h is 1.
struct PrivateFactors {
  double c = 0.0;
  double h_inverse = 1.0;
};
CERES_EXT_HOST_DEVICE inline PrivateFactors EliminatePrivate(double squares,
                                                             double d) {
  const double h = squares + d * d;
  PrivateFactors factors;
  if (h != 0.0) {
    factors.h_inverse = 1.0 / h;
    factors.c = factors.h_inverse / (1.0 + d * std::sqrt(factors.h_inverse));
  }
  return factors;
}

// The rows with private blocks, and their values.
struct PrivateRows {
  BlockRowsRef rows;
  const PrivateCell* cells = nullptr;  // num_rows
  const double* values = nullptr;

  CERES_EXT_HOST_DEVICE bool Has(int64_t k) const {
    return cells[k].column >= 0;
  }
  // a'y of row k, y over all residuals.
  CERES_EXT_HOST_DEVICE double Product(int64_t k, const double* y) const {
    const double* a = values + cells[k].value;
    double sum = 0.0;
    for (int32_t i = rows.row_begin[k]; i < rows.row_begin[k + 1]; ++i) {
      sum += *a++ * y[i];
    }
    return sum;
  }
  CERES_EXT_HOST_DEVICE double Squares(int64_t k) const {
    const double* a = values + cells[k].value;
    const int32_t n = rows.row_begin[k + 1] - rows.row_begin[k];
    double sum = 0.0;
    for (int32_t i = 0; i < n; ++i) {
      sum += a[i] * a[i];
    }
    return sum;
  }
};

// out = L J, with zeros in place of a; c of each row, and 1 / h of each block.
// Traffic: the values in and out, 16 B per cell, 32 B per row.
struct EliminatePrivateParams {
  PrivateRows rows;
  const double* e_diagonal = nullptr;  // D of E; null: zero
  double* out = nullptr;
  double* c = nullptr;          // num_rows
  double* h_inverse = nullptr;  // by place in the family

  static constexpr int kUnroll = 1;
  int64_t size() const { return rows.rows.num_rows; }
  CERES_EXT_HOST_DEVICE void Apply(int64_t k) const {
    const PrivateCell cell = rows.cells[k];
    const bool has = cell.column >= 0;
    PrivateFactors factors;
    if (has) {
      factors = EliminatePrivate(
          rows.Squares(k),
          e_diagonal == nullptr ? 0.0 : e_diagonal[cell.column]);
      h_inverse[cell.block] = factors.h_inverse;
    }
    c[k] = factors.c;
    const double* a = rows.values + cell.value;
    const int32_t n = rows.rows.row_begin[k + 1] - rows.rows.row_begin[k];
    for (int32_t at = rows.rows.cell_begin[k]; at < rows.rows.cell_begin[k + 1];
         ++at) {
      const RowCell of_row = rows.rows.cells[at];
      const double* j = rows.values + of_row.value;
      double* to = out + of_row.value;
      for (int column = 0; column < of_row.size; ++column) {
        double product = 0.0;
        for (int32_t i = 0; has && i < n; ++i) {
          product += a[i] * j[i * of_row.size + column];
        }
        product *= factors.c;
        for (int32_t i = 0; i < n; ++i) {
          const int32_t element = i * of_row.size + column;
          to[element] = of_row.eliminated == kPrivateCell ? 0.0
                        : has ? j[element] - product * a[i]
                              : j[element];
        }
      }
    }
  }
};

// out = L b, and e_gradient += a'b unless it is null.
// Traffic: b and a once, 32 B per row.
struct ApplyPrivateParams {
  PrivateRows rows;
  const double* c = nullptr;
  const double* b = nullptr;
  double* out = nullptr;
  double* e_gradient = nullptr;

  static constexpr int kUnroll = 1;
  int64_t size() const { return rows.rows.num_rows; }
  CERES_EXT_HOST_DEVICE void Apply(int64_t k) const {
    const PrivateCell cell = rows.cells[k];
    const int32_t begin = rows.rows.row_begin[k];
    const int32_t end = rows.rows.row_begin[k + 1];
    if (cell.column < 0) {
      for (int32_t i = begin; i < end; ++i) {
        out[i] = b[i];
      }
      return;
    }
    const double product = rows.Product(k, b);
    if (e_gradient != nullptr) {
      e_gradient[cell.column] += product;
    }
    const double* a = rows.values + cell.value;
    for (int32_t i = begin; i < end; ++i) {
      out[i] = b[i] - c[k] * product * a[i - begin];
    }
  }
};

// s = a'(b - y) / h, where y = J x.
struct BackSubstitutePrivateParams {
  PrivateRows rows;
  const double* h_inverse = nullptr;
  const double* b = nullptr;
  const double* y = nullptr;
  double* s = nullptr;  // over E

  static constexpr int kUnroll = 1;
  int64_t size() const { return rows.rows.num_rows; }
  CERES_EXT_HOST_DEVICE void Apply(int64_t k) const {
    if (rows.Has(k)) {
      const PrivateCell cell = rows.cells[k];
      s[cell.column] =
          h_inverse[cell.block] * (rows.Product(k, b) - rows.Product(k, y));
    }
  }
};

// out += a'y (kVector), a'a (kSquares), each over E, or a'a by place in the
// family (kMatrix): what CellProducts are of other blocks.
template <CellProduct kProduct>
struct PrivateProductsParams {
  PrivateRows rows;
  const double* y = nullptr;  // kVector
  double* out = nullptr;
  const PcgScalars* scalars = nullptr;

  static constexpr int kUnroll = 1;
  int64_t size() const { return rows.rows.num_rows; }
  CERES_EXT_HOST_DEVICE bool Begin() const { return !PcgHasEnded(scalars); }
  CERES_EXT_HOST_DEVICE void Apply(int64_t k) const {
    if (rows.Has(k)) {
      const PrivateCell cell = rows.cells[k];
      out[kProduct == CellProduct::kMatrix ? cell.block : cell.column] +=
          kProduct == CellProduct::kVector ? rows.Product(k, y)
                                           : rows.Squares(k);
    }
  }
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_PRIVATE_BLOCKS_H_
