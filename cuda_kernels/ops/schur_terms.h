// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The Schur complement as a matrix, of rows of any kind
// (structure/schur_pairs.h):
//
//   PairSums, GeneralPairSums           W = F'E of pairs, by BlockSums
//   RowPairsParams                      W of rows that are pairs
//   CrossingSums, GeneralCrossingSums   U_ij = F_i'F_j, by BlockSums
//   PairInverseParams                   Y = W Vi
//   CouplingChunksParams,
//   SubtractCouplingsParams             S_ij -= sum of Y W'
//   AddCrossingsParams                  S_ij += U_ij
//   SchurDiagonalParams                 S_ii = S_c + D_f^2
//   SchurRowChunksParams,
//   SchurRowSumsParams                  q = S p
//
// Rows of one eliminated block and one F block that a batch has to itself have
// operations of their own, with less traffic (ops/schur_complement.h).
//
// Vector operations (ops/vector_operation.h) without sums over elements: one
// owner an element of S, and the same order on every machine.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_SCHUR_TERMS_H_
#define CERES_EXT_CUDA_KERNELS_OPS_SCHUR_TERMS_H_

#include <algorithm>
#include <cstdint>

#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/ops/block_rows.h"
#include "cuda_kernels/structure/block_families.h"
#include "cuda_kernels/structure/block_rows.h"
#include "cuda_kernels/structure/coupling_index.h"
#include "cuda_kernels/structure/schur_matrix.h"
#include "cuda_kernels/structure/schur_pairs.h"

namespace ceres_ext::kernels {

// Formulas of BlockSum for observations and rows of views, of stored blocks.
// The value of a cell is its first column in the row, and its size.
inline constexpr int32_t kCellSizeShift = 16;
CERES_EXT_HOST_DEVICE inline int32_t ColumnsValue(int first, int size) {
  return first | size << kCellSizeShift;
}

// Element (a, m) of W, F x E.
template <typename Source>
struct PairSums {
  using Shape = typename Source::Shape;
  Source jacobian;

  static constexpr bool kPacked = false;
  CERES_EXT_HOST_DEVICE double Sum(const BlockCell* cells,
                                   int64_t begin,
                                   int64_t end,
                                   int element) const {
    constexpr int E = Shape::kE;
    const int a = element / E;
    const int m = element - E * a;
    double sum = 0.0;
    for (int64_t c = begin; c < end; ++c) {
      const BlockCell cell = cells[c];
      const int first = static_cast<int>(cell.value & 0xffff);
      if (a >= cell.size) {
        continue;
      }
      for (int r = 0; r < Shape::kNumResiduals; ++r) {
        sum += static_cast<double>(jacobian.camera_blocks(
                   cell.row, Shape::kF * r + first + a)) *
               static_cast<double>(jacobian.point_blocks(cell.row, E * r + m));
      }
    }
    return sum;
  }
  void Sums(const BlockCell* cells,
            int64_t begin,
            int64_t end,
            double* sums) const {
    constexpr int E = Shape::kE;
    for (int64_t c = begin; c < end; ++c) {
      const BlockCell cell = cells[c];
      const int first = static_cast<int>(cell.value & 0xffff);
      for (int r = 0; r < Shape::kNumResiduals; ++r) {
        double e[E];
        for (int m = 0; m < E; ++m) {
          e[m] =
              static_cast<double>(jacobian.point_blocks(cell.row, E * r + m));
        }
        for (int a = 0; a < cell.size; ++a) {
          const double f = static_cast<double>(
              jacobian.camera_blocks(cell.row, Shape::kF * r + first + a));
          for (int m = 0; m < E; ++m) {
            sums[E * a + m] += f * e[m];
          }
        }
      }
    }
  }
};

// W of rows, of stored blocks, F x E each.
// Mapping: a thread takes a row. Traffic: the blocks and W once.
template <typename Source>
struct RowPairsParams {
  static constexpr int kUnroll = 1;
  using Shape = typename Source::Shape;
  int64_t n = 0;
  Source jacobian;
  double* w = nullptr;

  CERES_EXT_HOST_DEVICE void Apply(int64_t k) const {
    constexpr int E = Shape::kE;
    double* const out = w + int64_t{E * Shape::kF} * k;
    for (int a = 0; a < Shape::kF; ++a) {
      double sums[E] = {};
      for (int r = 0; r < Shape::kNumResiduals; ++r) {
        const auto f =
            static_cast<double>(jacobian.camera_blocks(k, Shape::kF * r + a));
        for (int m = 0; m < E; ++m) {
          sums[m] +=
              f * static_cast<double>(jacobian.point_blocks(k, E * r + m));
        }
      }
      for (int m = 0; m < E; ++m) {
        out[E * a + m] = sums[m];
      }
    }
  }
};

// Element (a, b) of F_i'F_j.
template <typename Source>
struct CrossingSums {
  using Shape = typename Source::Shape;
  Source jacobian;

  static constexpr bool kPacked = false;
  CERES_EXT_HOST_DEVICE double Sum(const BlockCell* cells,
                                   int64_t begin,
                                   int64_t end,
                                   int element) const {
    double sum = 0.0;
    for (int64_t c = begin; c < end; ++c) {
      const BlockCell cell = cells[c];
      const int a = element / cell.size;
      const int b = element - cell.size * a;
      const auto i = static_cast<int32_t>(cell.value >> 32);
      const auto j = static_cast<int32_t>(cell.value & 0xffffffff);
      if (a >= i >> kCellSizeShift || b >= j >> kCellSizeShift) {
        continue;
      }
      for (int r = 0; r < Shape::kNumResiduals; ++r) {
        sum += static_cast<double>(jacobian.camera_blocks(
                   cell.row, Shape::kF * r + (i & 0xffff) + a)) *
               static_cast<double>(jacobian.camera_blocks(
                   cell.row, Shape::kF * r + (j & 0xffff) + b));
      }
    }
    return sum;
  }
  void Sums(const BlockCell* cells,
            int64_t begin,
            int64_t end,
            double* sums) const {
    for (int64_t c = begin; c < end; ++c) {
      const BlockCell cell = cells[c];
      const auto i = static_cast<int32_t>(cell.value >> 32);
      const auto j = static_cast<int32_t>(cell.value & 0xffffffff);
      for (int r = 0; r < Shape::kNumResiduals; ++r) {
        for (int a = 0; a < i >> kCellSizeShift; ++a) {
          const double f = static_cast<double>(jacobian.camera_blocks(
              cell.row, Shape::kF * r + (i & 0xffff) + a));
          for (int b = 0; b < j >> kCellSizeShift; ++b) {
            sums[cell.size * a + b] +=
                f * static_cast<double>(jacobian.camera_blocks(
                        cell.row, Shape::kF * r + (j & 0xffff) + b));
          }
        }
      }
    }
  }
};

// Adds elements first .. first + n - 1 of A'B, row-major with rows of `stride`
// elements, to sums: A and B are the cells of a row, of columns_a and of
// columns_b <= stride columns. For the host.
inline void AddRowProducts(const double* a,
                           int columns_a,
                           const double* b,
                           int columns_b,
                           int stride,
                           int num_residuals,
                           int first,
                           int n,
                           double* sums) {
  const int first_row = first / stride;
  const int end_row = std::min(columns_a, (first + n + stride - 1) / stride);
  for (int r = 0; r < num_residuals; ++r) {
    for (int i = first_row; i < end_row; ++i) {
      double* const to = sums + stride * i - first;
      const int begin = std::max(0, first - stride * i);
      const int end = std::min(columns_b, first + n - stride * i);
      for (int j = begin; j < end; ++j) {
        to[j] += a[i] * b[j];
      }
    }
    a += columns_a;
    b += columns_b;
  }
}

// For rows of any shape, where the value of a cell is its number among those of
// all rows.
struct GeneralPairSums {
  BlockRowsRef rows;
  const double* values = nullptr;
  const EliminatedCell* eliminated = nullptr;  // of each row
  // Columns of the eliminated blocks of each family.
  int32_t e_size[kMaxEliminatedFamilies] = {};

  static constexpr bool kPacked = false;
  CERES_EXT_HOST_DEVICE double Sum(const BlockCell* cells,
                                   int64_t begin,
                                   int64_t end,
                                   int element) const {
    double sum = 0.0;
    for (int64_t c = begin; c < end; ++c) {
      const BlockCell cell = cells[c];
      const EliminatedCell e = eliminated[cell.row];
      const RowCell f = rows.cells[cell.value];
      const int a = element / e_size[e.family];
      const int m = element - e_size[e.family] * a;
      if (a >= f.size || m >= e.size) {
        continue;
      }
      const int32_t n = rows.row_begin[cell.row + 1] - rows.row_begin[cell.row];
      for (int32_t r = 0; r < n; ++r) {
        sum += values[f.value + int64_t{f.size} * r + a] *
               values[e.value + int64_t{e.size} * r + m];
      }
    }
    return sum;
  }
  // Elements first .. first + n - 1.
  static constexpr bool kSumsPieces = true;
  void Sums(const BlockCell* cells,
            int64_t begin,
            int64_t end,
            int first,
            int n,
            double* sums) const {
    for (int64_t c = begin; c < end; ++c) {
      const BlockCell cell = cells[c];
      const EliminatedCell e = eliminated[cell.row];
      const RowCell f = rows.cells[cell.value];
      AddRowProducts(values + f.value,
                     f.size,
                     values + e.value,
                     e.size,
                     e_size[e.family],
                     rows.row_begin[cell.row + 1] - rows.row_begin[cell.row],
                     first,
                     n,
                     sums);
    }
  }
};

struct GeneralCrossingSums {
  BlockRowsRef rows;
  const double* values = nullptr;

  static constexpr bool kPacked = false;
  CERES_EXT_HOST_DEVICE double Sum(const BlockCell* cells,
                                   int64_t begin,
                                   int64_t end,
                                   int element) const {
    double sum = 0.0;
    for (int64_t c = begin; c < end; ++c) {
      const BlockCell cell = cells[c];
      const int a = element / cell.size;
      const int b = element - cell.size * a;
      const RowCell i = rows.cells[cell.value >> 32];
      const RowCell j = rows.cells[cell.value & 0xffffffff];
      if (a >= i.size || b >= j.size) {
        continue;
      }
      const int32_t n = rows.row_begin[cell.row + 1] - rows.row_begin[cell.row];
      for (int32_t r = 0; r < n; ++r) {
        sum += values[i.value + int64_t{i.size} * r + a] *
               values[j.value + int64_t{j.size} * r + b];
      }
    }
    return sum;
  }
  static constexpr bool kSumsPieces = true;
  void Sums(const BlockCell* cells,
            int64_t begin,
            int64_t end,
            int first,
            int n,
            double* sums) const {
    for (int64_t c = begin; c < end; ++c) {
      const BlockCell cell = cells[c];
      const RowCell i = rows.cells[cell.value >> 32];
      const RowCell j = rows.cells[cell.value & 0xffffffff];
      AddRowProducts(values + i.value,
                     i.size,
                     values + j.value,
                     j.size,
                     cell.size,
                     rows.row_begin[cell.row + 1] - rows.row_begin[cell.row],
                     first,
                     n,
                     sums);
    }
  }
};

// Y = W Vi of all pairs of a family of E.
// Mapping: one thread a pair. Traffic: W and Y, 48 B of Vi and 20 B of ids a
// pair, at E = 3.
struct PairInverseParams {
  int64_t n = 0;  // pairs
  int32_t e_size = 0;
  const int64_t* w_begin = nullptr;     // n
  const int32_t* f_block = nullptr;     // n
  const int32_t* e_block = nullptr;     // n
  const int32_t* block_size = nullptr;  // columns of each F block
  BlockArray<const double> v_inverse;
  const double* w = nullptr;
  double* y = nullptr;

  static constexpr int kUnroll = 1;
  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    const int32_t num_values = block_size[f_block[i]] * e_size;
    const double* from = w + w_begin[i];
    double* to = y + w_begin[i];
    for (int32_t row = 0; row < num_values; row += e_size) {
      for (int m = 0; m < e_size; ++m) {
        double sum = 0.0;
        for (int q = 0; q < e_size; ++q) {
          sum += from[row + q] *
                 v_inverse(e_block[i],
                           q <= m ? PackedIndex(m, q) : PackedIndex(q, m));
        }
        to[row + m] = sum;
      }
    }
  }
};

// The common part of the sums over couplings of pairs.
struct PairCouplings {
  CouplingIndexRef couplings;
  int32_t e_size = 0;
  const int64_t* w_begin = nullptr;
  const double* w = nullptr;
  const double* y = nullptr;
  const int32_t* block_size = nullptr;
  // Elements of the largest block.
  int32_t width = 0;

  // Element (a, b) of the sum over couplings begin .. end - 1 of Y_k W_l'.
  CERES_EXT_HOST_DEVICE double Sum(int64_t begin,
                                   int64_t end,
                                   int a,
                                   int b) const {
    double sum = 0.0;
    constexpr int kPoint = 3;
    constexpr int kAhead = 8;  // read before the first is added
    int64_t c = begin;
    for (; e_size == kPoint && c + kAhead <= end; c += kAhead) {
      double left[kAhead][kPoint];
      double right[kAhead][kPoint];
      for (int k = 0; k < kAhead; ++k) {
        const int64_t coupling = couplings.coupling[c + k];
        const double* of_y =
            y + w_begin[FirstOfCoupling(coupling)] + int64_t{a} * kPoint;
        const double* of_w =
            w + w_begin[SecondOfCoupling(coupling)] + int64_t{b} * kPoint;
        for (int m = 0; m < kPoint; ++m) {
          left[k][m] = of_y[m];
          right[k][m] = of_w[m];
        }
      }
      for (int k = 0; k < kAhead; ++k) {
        for (int m = 0; m < kPoint; ++m) {
          sum += left[k][m] * right[k][m];
        }
      }
    }
    for (; c < end; ++c) {
      const int64_t coupling = couplings.coupling[c];
      const double* left =
          y + w_begin[FirstOfCoupling(coupling)] + int64_t{a} * e_size;
      const double* right =
          w + w_begin[SecondOfCoupling(coupling)] + int64_t{b} * e_size;
      for (int m = 0; m < e_size; ++m) {
        sum += left[m] * right[m];
      }
    }
    return sum;
  }
};

// partial = the sums over chunks of the blocks of S that are cut, `width` each.
// Mapping: one thread an element of a chunk. Traffic: 8 B a coupling, Y and W
// of its pairs.
struct CouplingChunksParams {
  PairCouplings of;
  double* partial = nullptr;  // width per chunk

  static constexpr int kUnroll = 1;
  int64_t size() const { return of.couplings.num_chunks * of.width; }
  CERES_EXT_HOST_DEVICE void Apply(int64_t at) const {
    const CouplingChunk chunk = of.couplings.chunk[at / of.width];
    const int element = static_cast<int>(at % of.width);
    const int32_t rows = of.block_size[of.couplings.row[chunk.block]];
    const int32_t columns = of.block_size[of.couplings.column[chunk.block]];
    if (element >= rows * columns) {
      return;
    }
    const int64_t end = of.couplings.coupling_begin[chunk.block + 1];
    const int64_t chunk_size = of.couplings.chunk_size();
    partial[at] =
        of.Sum(chunk.begin,
               end - chunk.begin < chunk_size ? end : chunk.begin + chunk_size,
               element / columns,
               element % columns);
  }
};

// S_ij -= the sum of Y W' over the couplings of blocks i > j.
// Mapping: one thread an element of a block. Order: couplings, or chunks of
// them, ascending. Traffic: as above, and S once.
struct SubtractCouplingsParams {
  PairCouplings of;
  const double* partial = nullptr;
  SchurUnknownsRef unknowns;
  const int64_t* value_begin = nullptr;  // of each F block in a vector of F
  SchurTarget target;

  static constexpr int kUnroll = 1;
  int64_t size() const { return of.couplings.num_blocks * of.width; }
  CERES_EXT_HOST_DEVICE void Apply(int64_t at) const {
    const int64_t block = at / of.width;
    const int element = static_cast<int>(at - block * of.width);
    const int32_t i = of.couplings.row[block];
    const int32_t j = of.couplings.column[block];
    const int32_t columns = of.block_size[j];
    if (i == j || element >= of.block_size[i] * columns) {
      return;
    }
    const int a = element / columns;
    const int b = element - columns * a;
    const int32_t u = unknowns.id[value_begin[i] + a];
    const int32_t v = unknowns.id[value_begin[j] + b];
    if (u < 0 || v < 0) {
      return;
    }
    const int64_t begin = of.couplings.coupling_begin[block];
    const int64_t end = of.couplings.coupling_begin[block + 1];
    const int64_t chunk_size = of.couplings.chunk_size();
    double sum = 0.0;
    if (end - begin <= chunk_size) {
      sum = of.Sum(begin, end, a, b);
    } else {
      int64_t chunk = FirstChunk(of.couplings, block);
      for (int64_t c = begin; c < end; c += chunk_size, ++chunk) {
        sum += partial[chunk * of.width + element];
      }
    }
    target.At(u, v, block, unknowns.begin[j]) -= sum;
  }
};

// S_ij += U_ij of crossings of two families of F.
// Mapping: one thread an element. Traffic: U, and S twice.
struct AddCrossingsParams {
  int64_t num_blocks = 0;
  int32_t width = 0;                // elements of a block
  int32_t columns = 0;              // of j
  const int32_t* row = nullptr;     // num_blocks: i
  const int32_t* column = nullptr;  // num_blocks: j
  const int64_t* place = nullptr;   // num_blocks, in the target's list
  const double* u = nullptr;        // width per block
  SchurUnknownsRef unknowns;
  const int64_t* value_begin = nullptr;  // of each F block in a vector of F
  SchurTarget target;

  static constexpr int kUnroll = 1;
  int64_t size() const { return num_blocks * width; }
  CERES_EXT_HOST_DEVICE void Apply(int64_t at) const {
    const int64_t block = at / width;
    const int element = static_cast<int>(at - block * width);
    const int32_t i = row[block];
    const int32_t j = column[block];
    const int32_t to_row = unknowns.id[value_begin[i] + element / columns];
    const int32_t to_column = unknowns.id[value_begin[j] + element % columns];
    if (to_row >= 0 && to_column >= 0) {
      target.At(to_row, to_column, place[block], unknowns.begin[j]) += u[at];
    }
  }
};

// S_ii = S_c + D_f^2 of the blocks of a family of F, the lower triangle of
// each. Mapping: one thread an element. Traffic: S_c and D, and S once.
struct SchurDiagonalParams {
  int64_t num_blocks = 0;
  int32_t columns = 0;
  BlockArray<const double> schur_diagonal;  // packed
  const double* diagonal = nullptr;         // D_f of the family; null: zero
  SchurUnknownsRef unknowns;                // of the family
  SchurTarget target;

  static constexpr int kUnroll = 1;
  int64_t size() const { return num_blocks * PackedSize(columns); }
  CERES_EXT_HOST_DEVICE void Apply(int64_t at) const {
    const int64_t block = at / PackedSize(columns);
    const int element = static_cast<int>(at - block * PackedSize(columns));
    const int a = PackedRow(element);
    const int b = element - PackedIndex(a, 0);
    const int32_t u = unknowns.id[columns * block + a];
    const int32_t v = unknowns.id[columns * block + b];
    if (u < 0 || v < 0) {
      return;
    }
    double value = schur_diagonal(block, element);
    if (a == b && diagonal != nullptr) {
      const double d = diagonal[columns * block + a];
      value += d * d;
    }
    target.AtDiagonal(u, v) = value;
  }
};

// partial = the sums of S p over chunks of rows of blocks, `width` each.
// Mapping: one thread an unknown of a chunk. Traffic: each stored value of S
// twice, 8 B a block.
struct SchurRowChunksParams {
  SchurRowsRef rows;
  const double* values = nullptr;  // of S
  const double* p = nullptr;       // vector of F
  double* partial = nullptr;       // width per chunk
  const PcgScalars* scalars = nullptr;

  static constexpr int kUnroll = 1;
  int64_t size() const { return rows.num_chunks * rows.width; }
  CERES_EXT_HOST_DEVICE bool Begin() const { return !PcgHasEnded(scalars); }
  CERES_EXT_HOST_DEVICE void Apply(int64_t at) const {
    const int32_t* const begin = rows.unknowns.begin;
    const int64_t* const column = rows.unknowns.column;
    const int64_t chunk = at / rows.width;
    const int32_t i = rows.chunk_row[chunk];
    const int32_t u = begin[i] + static_cast<int32_t>(at - chunk * rows.width);
    if (u >= begin[i + 1]) {
      return;
    }
    const double* const row = values + rows.row_begin[u];
    const int64_t end = rows.chunk_begin[chunk + 1];
    double sum = 0.0;
    for (int64_t b = rows.chunk_begin[chunk]; b < end; ++b) {
      const SchurRowBlock block = rows.block[b];
      const int32_t first = begin[block.column];
      const int32_t last = begin[block.column + 1];
      // Row u holds what is left of and on its diagonal.
      const int32_t stored = block.column > i    ? first
                             : block.column == i ? u + 1
                                                 : last;
      for (int32_t v = first; v < stored; ++v) {
        sum += row[block.offset + v - first] * p[column[v]];
      }
      for (int32_t v = stored; v < last; ++v) {
        sum += values[rows.row_begin[v] + block.offset + u - begin[i]] *
               p[column[v]];
      }
    }
    partial[at] = sum;
  }
};

// q = S p from the sums over chunks, and zero where there is no unknown.
// Mapping: one thread a value of F. Order: chunks ascending. Traffic: the sums,
// and q.
struct SchurRowSumsParams {
  SchurRowsRef rows;
  const double* partial = nullptr;
  double* q = nullptr;  // vector of F
  const PcgScalars* scalars = nullptr;

  static constexpr int kUnroll = 1;
  int64_t size() const { return rows.num_values; }
  CERES_EXT_HOST_DEVICE bool Begin() const { return !PcgHasEnded(scalars); }
  CERES_EXT_HOST_DEVICE void Apply(int64_t at) const {
    const int32_t u = rows.unknowns.id[at];
    double sum = 0.0;
    if (u >= 0) {
      const int32_t i = rows.row_of[u];
      const int32_t a = u - rows.unknowns.begin[i];
      for (int64_t c = rows.first_chunk[i]; c < rows.first_chunk[i + 1]; ++c) {
        sum += partial[c * rows.width + a];
      }
    }
    q[at] = sum;
  }
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_SCHUR_TERMS_H_
