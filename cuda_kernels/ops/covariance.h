// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Blocks of the inverse of A = J'J + D^2, J = [E F], from columns of S^-1 and
// from W = F'E by pairs (structure/schur_pairs.h), V = E'E + D_e^2:
//
//   (A^-1)_ff' = (S^-1)_ff'
//   (A^-1)_ef  = -sum_i Y_ei (S^-1)_if             Y_ei = Vi_e W_ei'
//   (A^-1)_ee' = delta_ee' Vi_e
//                + sum_i sum_j Y_ei (S^-1)_ij Y_e'j'
//
// where i are the F blocks that share rows with e. X is S^-1 as a whole, or a
// chunk of its columns: those of some whole F blocks.
//
//   UnitColumnsParams      the right-hand sides of a chunk
//   CovarianceStartParams  the blocks without any column
//   CovarianceTermsParams  adds what the columns of a chunk give
//   EliminatedBlocksParams adds what all columns give blocks (e, e)
//
// Vector operations (ops/vector_operation.h) without sums over elements: one
// owner a row of a block, and the same order on every machine.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_COVARIANCE_H_
#define CERES_EXT_CUDA_KERNELS_OPS_COVARIANCE_H_

#include <cstdint>

#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/ops/block_rows.h"
#include "cuda_kernels/ops/vector_operation.h"
#include "cuda_kernels/structure/block_families.h"

namespace ceres_ext::kernels {

// Columns of an F block that the operations below support.
inline constexpr int kMaxCovarianceColumns = 32;
// Columns of an E block, and families of these: one for each size, and points
// of observations. Wider blocks are F's in a covariance.
inline constexpr int kMaxCovarianceEliminatedSize = 6;
inline constexpr int kMaxCovarianceFamilies = kMaxCovarianceEliminatedSize + 2;

// A block of A^-1, row-major. `out` is its offset in the array of all values.
// family: that of E, or -1 for F, whose blocks are numbered across families.
struct CovarianceBlock {
  int32_t left_family = -1;
  int32_t left_block = 0;
  int32_t right_family = -1;
  int32_t right_block = 0;
  int64_t out = 0;
};

// A family of E. The pairs of block e are point_begin[e] .. point_begin[e + 1]
// - 1; W of a pair is F x E, row-major.
struct CovariancePairs {
  int32_t e_size = 0;
  const int64_t* point_begin = nullptr;  // null: the family has no pairs
  const int32_t* f_block = nullptr;      // to which first_f_block is added
  int32_t first_f_block = 0;
  const int64_t* w_begin = nullptr;  // null: each has w_size values
  int64_t w_size = 0;
  const double* w = nullptr;
  BlockArray<const double> v_inverse;

  CERES_EXT_HOST_DEVICE double VInverse(int32_t e, int i, int j) const {
    return v_inverse(e, i < j ? PackedIndex(j, i) : PackedIndex(i, j));
  }
  CERES_EXT_HOST_DEVICE int32_t FBlock(int64_t k) const {
    return first_f_block + f_block[k];
  }
  CERES_EXT_HOST_DEVICE const double* W(int64_t k) const {
    return w + (w_begin == nullptr ? w_size * k : w_begin[k]);
  }
  CERES_EXT_HOST_DEVICE int64_t Begin(int32_t e) const {
    return point_begin == nullptr ? 0 : point_begin[e];
  }
  CERES_EXT_HOST_DEVICE int64_t End(int32_t e) const {
    return point_begin == nullptr ? 0 : point_begin[e + 1];
  }
};

// X = the unit columns of unknowns unknown[c], zeros where that is below 0.
// Mapping: a thread takes a column. The caller has set X to zero.
struct UnitColumnsParams {
  static constexpr int kUnroll = 1;
  int64_t n = 0;                     // columns of X
  int64_t stride = 0;                // unknowns of S
  const int32_t* unknown = nullptr;  // n
  double* x = nullptr;               // stride x n, column-major

  CERES_EXT_HOST_DEVICE void Apply(int64_t c) const {
    if (unknown[c] >= 0) {
      x[stride * c + unknown[c]] = 1.0;
    }
  }
};

// Arrays that all operations on blocks read.
struct CovarianceBlocks {
  int64_t n = 0;         // blocks
  int32_t max_rows = 0;  // of a block
  const CovarianceBlock* blocks = nullptr;
  const int32_t* f_size = nullptr;  // columns of each F block
  CovariancePairs pairs[kMaxCovarianceFamilies];
  double* values = nullptr;

  CERES_EXT_HOST_DEVICE int32_t Size(int32_t family, int32_t block) const {
    return family < 0 ? f_size[block] : pairs[family].e_size;
  }
};

// Vi_e of blocks (e, e), zero of all others.
// Mapping: a thread takes a row of a block. Traffic: Vi and the blocks once.
struct CovarianceStartParams {
  static constexpr int kUnroll = 1;
  CovarianceBlocks of;

  CERES_EXT_HOST_DEVICE int64_t size() const { return of.n * of.max_rows; }
  CERES_EXT_HOST_DEVICE void Apply(int64_t at) const {
    const CovarianceBlock block = of.blocks[at / of.max_rows];
    const auto i = static_cast<int32_t>(at % of.max_rows);
    if (i >= of.Size(block.left_family, block.left_block)) {
      return;
    }
    const int32_t columns = of.Size(block.right_family, block.right_block);
    double* const out = of.values + block.out + int64_t{columns} * i;
    const bool is_diagonal = block.left_family >= 0 &&
                             block.left_family == block.right_family &&
                             block.left_block == block.right_block;
    for (int32_t j = 0; j < columns; ++j) {
      out[j] = is_diagonal ? of.pairs[block.left_family].VInverse(
                                 block.left_block, i, j)
                           : 0.0;
    }
  }
};

// Adds the terms of a chunk's columns to all blocks.
// Mapping: a thread takes a row of a block. Order: ascending pairs of the right
// block, for each of them ascending pairs of the left one.
// Traffic: for each pair of pairs a block of X and the row's W, from caches if
// neighbouring blocks have the same F blocks.
struct CovarianceTermsParams {
  static constexpr int kUnroll = 1;
  CovarianceBlocks of;
  const int32_t* id = nullptr;           // unknown of each value of F; -1: none
  const int64_t* value_begin = nullptr;  // of each F block
  // First column of each F block in X; -1: none. Null: X is S^-1, both
  // triangles.
  const int32_t* first_column = nullptr;
  // First unknown of each F block; null: all of S^-1 is read. If not null,
  // blocks (f, f') have f not before f', and each eliminated block is paired
  // only with itself. Then only the entries of S^-1 on the diagonal and below
  // are read. Blocks (e, e) get twice the terms below the diagonal, so that
  // block and transpose are twice the result.
  const int32_t* order = nullptr;
  int64_t stride = 0;         // from column to column
  const double* x = nullptr;  // of the unknowns of S, column-major

  CERES_EXT_HOST_DEVICE int64_t size() const { return of.n * of.max_rows; }
  CERES_EXT_HOST_DEVICE void Apply(int64_t at) const {
    const CovarianceBlock block = of.blocks[at / of.max_rows];
    const auto i = static_cast<int32_t>(at % of.max_rows);
    if (i >= of.Size(block.left_family, block.left_block)) {
      return;
    }
    double row[kMaxCovarianceColumns];
    if (block.right_family < 0) {
      if (!HasColumns(block.right_block)) {
        return;
      }
      const int32_t columns = of.f_size[block.right_block];
      double* const out = of.values + block.out + int64_t{columns} * i;
      FindRow(block, i, block.right_block, row);
      for (int32_t c = 0; c < columns; ++c) {
        out[c] += row[c];
      }
      return;
    }
    const CovariancePairs& right = of.pairs[block.right_family];
    double sums[kMaxCovarianceEliminatedSize] = {};
    bool has_terms = false;
    for (int64_t k = right.Begin(block.right_block);
         k < right.End(block.right_block);
         ++k) {
      const int32_t f = right.FBlock(k);
      if (!HasColumns(f)) {
        continue;
      }
      has_terms = true;
      const int32_t columns = of.f_size[f];
      FindRow(block, i, f, row);
      const double* w = right.W(k);
      for (int32_t c = 0; c < columns; ++c) {
        for (int32_t m = 0; m < right.e_size; ++m) {
          sums[m] += row[c] * w[right.e_size * c + m];
        }
      }
    }
    if (!has_terms) {
      return;
    }
    double* const out = of.values + block.out + int64_t{right.e_size} * i;
    for (int32_t j = 0; j < right.e_size; ++j) {
      double sum = 0.0;
      for (int32_t m = 0; m < right.e_size; ++m) {
        sum += sums[m] * right.VInverse(block.right_block, m, j);
      }
      out[j] -= sum;
    }
  }

 private:
  CERES_EXT_HOST_DEVICE bool HasColumns(int32_t f) const {
    return first_column == nullptr || first_column[f] >= 0;
  }
  // Element (a, c) of block (f, right) of S^-1, a of unknown u.
  CERES_EXT_HOST_DEVICE double At(
      int32_t f, int32_t a, int32_t u, int32_t right, int32_t c) const {
    if (first_column == nullptr) {
      return x[stride * u + id[value_begin[right] + c]];
    }
    const int32_t first = first_column[right];
    return f == right && a < c
               ? x[stride * (first + a) + id[value_begin[right] + c]]
               : x[stride * (first + c) + u];
  }
  // Row i of the left block's part, times the columns of F block `right`.
  CERES_EXT_HOST_DEVICE void FindRow(const CovarianceBlock& block,
                                     int32_t i,
                                     int32_t right,
                                     double* row) const {
    const int32_t count = of.f_size[right];
    for (int32_t c = 0; c < count; ++c) {
      row[c] = 0.0;
    }
    if (block.left_family < 0) {
      const int32_t u = id[value_begin[block.left_block] + i];
      for (int32_t c = 0; c < count && u >= 0; ++c) {
        row[c] =
            IsUnknown(right, c) ? At(block.left_block, i, u, right, c) : 0.0;
      }
      return;
    }
    const CovariancePairs& left = of.pairs[block.left_family];
    const int32_t e = block.left_block;
    for (int64_t k = left.Begin(e); k < left.End(e); ++k) {
      const int32_t f = left.FBlock(k);
      if (order != nullptr && order[f] < order[right]) {
        continue;
      }
      const double weight = order != nullptr && f != right ? -2.0 : -1.0;
      const double* w = left.W(k);
      for (int32_t a = 0; a < of.f_size[f]; ++a, w += left.e_size) {
        const int32_t u = id[value_begin[f] + a];
        if (u < 0) {
          continue;
        }
        double y = 0.0;
        for (int32_t m = 0; m < left.e_size; ++m) {
          y += left.VInverse(e, i, m) * w[m];
        }
        y *= weight;
        for (int32_t c = 0; c < count; ++c) {
          if (IsUnknown(right, c)) {
            row[c] += y * At(f, a, u, right, c);
          }
        }
      }
    }
  }
  CERES_EXT_HOST_DEVICE bool IsUnknown(int32_t f, int32_t c) const {
    return id[value_begin[f] + c] >= 0;
  }
};

// Adds to blocks (e, e), whose families have pairs, all terms of S^-1, a whole
// matrix with both triangles:
//
//   Vi_e (sum_i sum_j W_ei' (S^-1)_ij W_ej) Vi_e
//
// with twice the terms i < j in place of i != j, so block and transpose
// together are twice the result. On a device alone.
// Mapping: a warp computes a block. Order: pairs of pairs ascending, the
// elements of S^-1 by lanes, then a tree.
// Traffic: S^-1 once for each point of both F blocks.
struct EliminatedBlocksParams {
  CovarianceBlocks of;
  const int32_t* id = nullptr;           // unknown of each value of F; -1: none
  const int64_t* value_begin = nullptr;  // of each F block
  int64_t stride = 0;                    // from column to column
  const double* x = nullptr;             // S^-1, column-major
};
Status Run(const EliminatedBlocksParams& params, CudaMachine* machine);

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_COVARIANCE_H_
