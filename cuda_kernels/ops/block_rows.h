// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Operations on rows of any shape (structure/block_rows.h). With J_ks the cell
// of row k and block s:
//
//   RowProduct         y_k = start_k + sum_s J_ks x_s
//   BlockSum           a sum over the cells of each block of a family, by a
//                      formula: J'y, |column|^2, J'J, W Vi W'
//   InvertBlocks       symmetric blocks of a size known at run time
//   ApplyBlocks        their products
//   DampedProduct      q = D^2 p
//
// All are vector operations (ops/vector_operation.h): an element is a residual,
// or one element of the result of one segment of cells. So they have the same
// order on all machines, that of the rows.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_BLOCK_ROWS_H_
#define CERES_EXT_CUDA_KERNELS_OPS_BLOCK_ROWS_H_

#include <cstdint>

#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/base/vector_sums.h"
#include "cuda_kernels/ops/vector_operation.h"
#include "cuda_kernels/structure/block_families.h"
#include "cuda_kernels/structure/block_rows.h"

namespace ceres_ext::kernels {

// y_k = start_k + E_k e + F_k f, where a null vector is zero. start may be y.
// Traffic: the cells of the vectors that are not null, once; 16 B per cell.
struct RowProductParams {
  BlockRowsView rows;
  const double* values = nullptr;
  const double* e = nullptr;
  const double* f = nullptr;
  const double* start = nullptr;  // null: zero
  double* y = nullptr;
  const PcgScalars* scalars = nullptr;  // ended: nothing is done

  static constexpr int kUnroll = 1;
  int64_t size() const { return rows.num_residuals; }
  CERES_EXT_HOST_DEVICE bool Begin() const { return !PcgHasEnded(scalars); }
  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    const int32_t k = rows.residual_row[i];
    const int64_t residual = i - rows.row_begin[k];
    double sum = start == nullptr ? 0.0 : start[i];
    for (int32_t c = rows.cell_begin[k]; c < rows.cell_begin[k + 1]; ++c) {
      const RowCell cell = rows.cells[c];
      const double* x = cell.eliminated != 0 ? e : f;
      if (x == nullptr) {
        continue;
      }
      const double* j = values + cell.value + residual * cell.size;
      for (int a = 0; a < cell.size; ++a) {
        sum += j[a] * x[cell.column + a];
      }
    }
    y[i] = sum;
  }
};

// The formulas of BlockSum: Sum is element `element` of the sum over `count`
// cells of one block, of Width(columns of the block) elements.

// J'y.
struct TransposeProduct {
  const double* values = nullptr;
  const int32_t* row_begin = nullptr;
  const double* y = nullptr;

  CERES_EXT_HOST_DEVICE static int Width(int columns) { return columns; }
  CERES_EXT_HOST_DEVICE double Sum(const BlockCell* cells,
                                   int64_t count,
                                   int element) const {
    double sum = 0.0;
    for (int64_t c = 0; c < count; ++c) {
      const BlockCell cell = cells[c];
      if (element >= cell.size) {
        continue;
      }
      const double* j = values + cell.value + element;
      for (int32_t i = row_begin[cell.row]; i < row_begin[cell.row + 1]; ++i) {
        sum += *j * y[i];
        j += cell.size;
      }
    }
    return sum;
  }
};

// |column|^2.
struct SquaredColumns {
  const double* values = nullptr;
  const int32_t* row_begin = nullptr;

  CERES_EXT_HOST_DEVICE static int Width(int columns) { return columns; }
  CERES_EXT_HOST_DEVICE double Sum(const BlockCell* cells,
                                   int64_t count,
                                   int element) const {
    double sum = 0.0;
    for (int64_t c = 0; c < count; ++c) {
      const BlockCell cell = cells[c];
      if (element >= cell.size) {
        continue;
      }
      const double* j = values + cell.value + element;
      for (int32_t i = row_begin[cell.row]; i < row_begin[cell.row + 1]; ++i) {
        sum += *j * *j;
        j += cell.size;
      }
    }
    return sum;
  }
};

// Row of element e of a packed matrix.
CERES_EXT_HOST_DEVICE inline int PackedRow(int e) {
  int row = 0;
  while (PackedIndex(row + 1, 0) <= e) {
    ++row;
  }
  return row;
}

// J'J, packed: V and U.
struct SquaredBlocks {
  const double* values = nullptr;
  const int32_t* row_begin = nullptr;

  CERES_EXT_HOST_DEVICE static int Width(int columns) {
    return PackedSize(columns);
  }
  CERES_EXT_HOST_DEVICE double Sum(const BlockCell* cells,
                                   int64_t count,
                                   int element) const {
    const int a = PackedRow(element);
    const int b = element - PackedIndex(a, 0);
    double sum = 0.0;
    for (int64_t c = 0; c < count; ++c) {
      const BlockCell cell = cells[c];
      if (a >= cell.size) {
        continue;
      }
      const double* j = values + cell.value;
      for (int32_t i = row_begin[cell.row]; i < row_begin[cell.row + 1]; ++i) {
        sum += j[a] * j[b];
        j += cell.size;
      }
    }
    return sum;
  }
};

// Most families of eliminated blocks: one for each size.
inline constexpr int kMaxEliminatedFamilies = 8;

// -W Vi W', packed, where W sums over the rows of one eliminated block, which
// stand next to each other and in one segment.
struct EliminatedBlocks {
  const double* values = nullptr;
  const int32_t* row_begin = nullptr;
  const EliminatedCell* eliminated = nullptr;  // of each row
  // Vi of each family of eliminated blocks.
  BlockArray<const double> v_inverse[kMaxEliminatedFamilies];

  CERES_EXT_HOST_DEVICE static int Width(int columns) {
    return PackedSize(columns);
  }
  CERES_EXT_HOST_DEVICE double Sum(const BlockCell* cells,
                                   int64_t count,
                                   int element) const {
    const int a = PackedRow(element);
    const int b = element - PackedIndex(a, 0);
    double sum = 0.0;
    for (int64_t c = 0; c < count;) {
      const EliminatedCell first = eliminated[cells[c].row];
      // Rows a and b of W.
      double wa[kMaxEliminatedSize] = {};
      double wb[kMaxEliminatedSize] = {};
      do {
        const BlockCell cell = cells[c];
        const double* j = values + cell.value;
        const double* e = values + eliminated[cell.row].value;
        const int32_t num_residuals =
            row_begin[cell.row + 1] - row_begin[cell.row];
        if (a < cell.size) {
          for (int32_t i = 0; i < num_residuals; ++i) {
            for (int m = 0; m < kMaxEliminatedSize; ++m) {
              if (m < first.size) {
                wa[m] += j[a] * e[m];
                wb[m] += j[b] * e[m];
              }
            }
            j += cell.size;
            e += first.size;
          }
        }
        ++c;
      } while (c < count && first.size > 0 &&
               eliminated[cells[c].row].size > 0 &&
               eliminated[cells[c].row].family == first.family &&
               eliminated[cells[c].row].block == first.block);
      if (first.size > 0) {
        const BlockArray<const double> v = v_inverse[first.family];
        for (int m = 0; m < kMaxEliminatedSize; ++m) {
          for (int n = 0; n < kMaxEliminatedSize; ++n) {
            if (m < first.size && n < first.size) {
              const int at = n <= m ? PackedIndex(m, n) : PackedIndex(n, m);
              sum -= wa[m] * v(first.block, at) * wb[n];
            }
          }
        }
      }
    }
    return sum;
  }
};

// The first step of a sum over the cells of the blocks of a family: added to
// `out` where each block has one segment, else left in `partial`.
template <typename Formula>
struct BlockSumParams {
  BlockListView list;
  Formula formula;
  double* partial = nullptr;  // null: each block has one segment
  BlockArray<double> out;
  const PcgScalars* scalars = nullptr;

  static constexpr int kUnroll = 1;
  int64_t size() const { return list.num_segments * Formula::Width(list.size); }
  CERES_EXT_HOST_DEVICE bool Begin() const { return !PcgHasEnded(scalars); }
  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    const int width = Formula::Width(list.size);
    const int64_t segment = i / width;
    const int element = static_cast<int>(i - segment * width);
    const int64_t begin = list.segment_begin[segment];
    const double sum = formula.Sum(
        list.cells + begin, list.segment_begin[segment + 1] - begin, element);
    if (partial != nullptr) {
      partial[i] = sum;
    } else {
      out(list.block[segment], element) += sum;
    }
  }
};

// A further step.
struct SumLevelParams {
  SumLevelView level;
  int32_t width = 0;
  const double* in = nullptr;  // width values per sum of the level before
  double* partial = nullptr;   // null: the last level, added to out
  const int32_t* block = nullptr;
  BlockArray<double> out;
  const PcgScalars* scalars = nullptr;

  static constexpr int kUnroll = 1;
  int64_t size() const { return level.num_sums * width; }
  CERES_EXT_HOST_DEVICE bool Begin() const { return !PcgHasEnded(scalars); }
  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    const int64_t at = i / width;
    const int element = static_cast<int>(i - at * width);
    double sum = 0.0;
    for (int64_t s = level.begin[at]; s < level.begin[at + 1]; ++s) {
      sum += in[s * width + element];
    }
    if (partial != nullptr) {
      partial[i] = sum;
    } else {
      out(block[at], element) += sum;
    }
  }
};

// Values of scratch that SumOverBlocks takes for a list.
template <typename List>
int64_t NumPartialSums(const List& list, int width) {
  if (list.levels.empty()) {
    return 0;
  }
  int64_t sum = list.view.num_segments;
  for (size_t i = 0; i + 1 < list.levels.size(); ++i) {
    sum += list.levels[i].num_sums;
  }
  return sum * width;
}

// out_b += formula over the cells of block b, for the listed blocks.
// scratch: NumPartialSums values.
template <typename List, typename Formula, typename Machine>
Status SumOverBlocks(const List& list,
                     const Formula& formula,
                     const BlockArray<double>& out,
                     const PcgScalars* scalars,
                     double* scratch,
                     Machine* machine) {
  BlockSumParams<Formula> sum;
  sum.list = list.view;
  sum.formula = formula;
  sum.partial = list.levels.empty() ? nullptr : scratch;
  sum.out = out;
  sum.scalars = scalars;
  CERES_EXT_RETURN_IF_ERROR(Run(sum, machine));
  const int width = Formula::Width(list.view.size);
  const double* in = scratch;
  double* next = scratch + list.view.num_segments * width;
  for (size_t i = 0; i < list.levels.size(); ++i) {
    SumLevelParams params;
    params.level = list.levels[i];
    params.width = width;
    params.in = in;
    params.partial = i + 1 < list.levels.size() ? next : nullptr;
    params.block = list.view.block;
    params.out = out;
    params.scalars = scalars;
    CERES_EXT_RETURN_IF_ERROR(Run(params, machine));
    in = next;
    next += params.size();
  }
  return {};
}

// J = J diag(s), in place.
// Traffic: the values twice; 16 B per cell.
struct ScaleRowsParams {
  BlockRowsView rows;
  double* values = nullptr;
  const double* e = nullptr;
  const double* f = nullptr;

  static constexpr int kUnroll = 1;
  int64_t size() const { return rows.num_residuals; }
  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    const int32_t k = rows.residual_row[i];
    const int64_t residual = i - rows.row_begin[k];
    for (int32_t c = rows.cell_begin[k]; c < rows.cell_begin[k + 1]; ++c) {
      const RowCell cell = rows.cells[c];
      const double* scale = (cell.eliminated != 0 ? e : f) + cell.column;
      double* j = values + cell.value + residual * cell.size;
      for (int a = 0; a < cell.size; ++a) {
        j[a] *= scale[a];
      }
    }
  }
};

// inverse_b = (A_b + D_b^2)^-1, packed, in place where inverse is A. A column
// of A_b that is zero and undamped counts as a unit column (small_matrix.h).
// Traffic: the matrices twice, D.
struct InvertBlocksParams {
  int64_t n = 0;        // blocks
  int32_t columns = 0;  // of a block
  BlockArray<const double> a;
  const double* diagonal = nullptr;  // D, columns per block; null: zero
  BlockArray<double> inverse;
  // Whether a block that is not positive definite is replaced by its diagonal
  // (ops/preconditioner.h); else it is a breakdown.
  bool may_be_diagonal = false;
  // Set: the first block that could not be inverted, Breakdown::kNone
  // (ops/normal_blocks.h) where all could. Its inverse is unspecified.
  int32_t* first_breakdown = nullptr;

  using First = MaxFirst;
  static constexpr int kUnroll = 1;
  CERES_EXT_HOST_DEVICE TwoSums Term(int64_t block) const {
    const double* d =
        diagonal == nullptr ? nullptr : diagonal + columns * block;
    const StridedMatrix<double> to = inverse.Matrix(block);
    CopyDamped(block, d, to);
    bool ok = InvertSymmetric<kDynamic>(to, columns);
    if (!ok && may_be_diagonal && a.data != inverse.data) {
      CopyDamped(block, d, to);
      ok = InvertDiagonal<kDynamic>(d, to, columns);
    }
    return {ok ? 0.0 : static_cast<double>(n - block), 0.0};
  }
  CERES_EXT_HOST_DEVICE void Set(const TwoSums& sums) const {
    *first_breakdown =
        sums.first == 0.0
            ? 0x7fffffff
            : static_cast<int32_t>(n - static_cast<int64_t>(sums.first));
  }

 private:
  CERES_EXT_HOST_DEVICE void CopyDamped(int64_t block,
                                        const double* d,
                                        const StridedMatrix<double>& to) const {
    for (int i = 0; i < PackedSize(columns); ++i) {
      to[i] = a(block, i);
    }
    if (d != nullptr) {
      for (int i = 0; i < columns; ++i) {
        to[PackedIndex(i, i)] += d[i] * d[i];
      }
    }
  }
};

// z_b = scale A_b r_b, A_b packed. z is not r.
// Traffic: the matrices, r and z.
struct ApplyBlocksParams {
  int64_t n = 0;  // blocks
  int32_t columns = 0;
  BlockArray<const double> a;
  const double* r = nullptr;
  double scale = 1.0;
  double* z = nullptr;
  const PcgScalars* scalars = nullptr;

  static constexpr int kUnroll = 1;
  int64_t size() const { return n * columns; }
  CERES_EXT_HOST_DEVICE bool Begin() const { return !PcgHasEnded(scalars); }
  CERES_EXT_HOST_DEVICE void Apply(int64_t at) const {
    const int64_t block = at / columns;
    const int i = static_cast<int>(at - block * columns);
    const double* x = r + block * columns;
    double sum = 0.0;
    for (int j = 0; j < columns; ++j) {
      sum += a(block, j <= i ? PackedIndex(i, j) : PackedIndex(j, i)) * x[j];
    }
    z[at] = scale * sum;
  }
};

// q = D^2 p, D null: zero.
// Traffic: 24 B per element.
struct DampedProductParams {
  int64_t n = 0;
  const double* diagonal = nullptr;
  const double* p = nullptr;
  double* q = nullptr;
  const PcgScalars* scalars = nullptr;

  CERES_EXT_HOST_DEVICE bool Begin() const { return !PcgHasEnded(scalars); }
  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    q[i] = diagonal == nullptr ? 0.0 : diagonal[i] * diagonal[i] * p[i];
  }
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_BLOCK_ROWS_H_
