// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Operations on rows of any shape (structure/block_rows.h). With J_ks the cell
// of row k and block s:
//
//   RowProduct         y_k = start_k + sum_s J_ks x_s
//   BlockSum           a sum over the cells of each block of a family, by a
//                      formula: J'y, |column|^2, J'J, W Vi W'
//   InvertBlocks       symmetric blocks; with ApplyBlocks the block diagonal
//                      preconditioners M = diag(A_b + D_b^2), z = M^-1 r
//   ApplyBlocks        their products
//   ApplyMergedBlocks  the same, columns anywhere in the vectors
//   DampedProduct      q = D^2 p
//
// All are vector operations (ops/vector_operation.h): an element is a residual,
// or one element of the result of one segment of cells. So they have the same
// order on all machines, that of the rows.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_BLOCK_ROWS_H_
#define CERES_EXT_CUDA_KERNELS_OPS_BLOCK_ROWS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/ops/normal_blocks.h"
#include "cuda_kernels/ops/vector_operation.h"
#include "cuda_kernels/structure/block_families.h"
#include "cuda_kernels/structure/block_rows.h"

namespace ceres_ext::kernels {

// y_k = start_k + E_k e + F_k f, where a null vector is zero. start may be y.
// Traffic: the cells of the vectors that are not null, once; 16 B per cell.
struct RowProductParams {
  BlockRowsRef rows;
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

// The formulas of BlockSum: Sum is element `element` of the sum over cells
// begin .. end - 1 of one block, which is a vector or, where kPacked, a packed
// matrix.

// Row of element e of a packed matrix, of at most kMaxBlockColumns columns.
CERES_EXT_HOST_DEVICE inline int PackedRow(int e) {
  // From a row that is not too large, however the root is rounded; small ones
  // without a root.
  constexpr int kCounted = 32;
  int row = e < PackedIndex(kCounted, 0)
                ? 0
                : static_cast<int>((std::sqrt(8.0 * e + 1.0) - 1.0) / 2.0) - 1;
  while (PackedIndex(row + 1, 0) <= e) {
    ++row;
  }
  return row;
}

enum class CellProduct { kVector, kSquares, kMatrix };

// J'y (kVector), |column|^2 (kSquares), J'J (kMatrix: V and U).
template <CellProduct kProduct>
struct CellProducts {
  const double* values = nullptr;
  const int32_t* row_begin = nullptr;
  const double* y = nullptr;  // kVector

  static constexpr bool kPacked = kProduct == CellProduct::kMatrix;
  CERES_EXT_HOST_DEVICE double Sum(const BlockCell* cells,
                                   int64_t begin,
                                   int64_t end,
                                   int element) const {
    const int a = kPacked ? PackedRow(element) : element;
    const int b = kPacked ? element - PackedIndex(a, 0) : element;
    double sum = 0.0;
    for (int64_t c = begin; c < end; ++c) {
      const BlockCell cell = cells[c];
      if (a >= cell.size) {
        continue;
      }
      const double* j = values + cell.value;
      for (int32_t i = row_begin[cell.row]; i < row_begin[cell.row + 1]; ++i) {
        sum += j[a] * (kProduct == CellProduct::kVector ? y[i] : j[b]);
        j += cell.size;
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
    const int first_row = kPacked ? PackedRow(first) : 0;
    for (int64_t c = begin; c < end; ++c) {
      const BlockCell cell = cells[c];
      const double* j = values + cell.value;
      for (int32_t i = row_begin[cell.row]; i < row_begin[cell.row + 1]; ++i) {
        if constexpr (kPacked) {
          double* out = sums;
          int b = first - PackedIndex(first_row, 0);
          for (int a = first_row; a < cell.size && out < sums + n; ++a, b = 0) {
            const int num_columns =
                std::min(a + 1 - b, static_cast<int>(sums + n - out));
            const double value = j[a];
            for (int k = 0; k < num_columns; ++k) {
              out[k] += value * j[b + k];
            }
            out += num_columns;
          }
        } else {
          const int num_columns = std::min(n, cell.size - first);
          const double factor = kProduct == CellProduct::kVector ? y[i] : 0.0;
          for (int k = 0; k < num_columns; ++k) {
            const double value = j[first + k];
            sums[k] +=
                value * (kProduct == CellProduct::kVector ? factor : value);
          }
        }
        j += cell.size;
      }
    }
  }
};
using TransposeProduct = CellProducts<CellProduct::kVector>;
using SquaredColumns = CellProducts<CellProduct::kSquares>;
using SquaredBlocks = CellProducts<CellProduct::kMatrix>;

// sum - wa' Vi wb, Vi being the packed block of `size` <= kMost columns.
template <int kMost>
CERES_EXT_HOST_DEVICE inline double SubtractProduct(
    double sum,
    const double* wa,
    const double* wb,
    const BlockArray<const double>& v_inverse,
    int64_t block,
    int size = kMost) {
  for (int m = 0; m < kMost; ++m) {
    for (int n = 0; n < kMost; ++n) {
      if (m < size && n < size) {
        const int at = n <= m ? PackedIndex(m, n) : PackedIndex(n, m);
        sum -= wa[m] * v_inverse(block, at) * wb[n];
      }
    }
  }
  return sum;
}

// Most families of eliminated blocks: one for each size, points, which
// observations have, and private blocks.
inline constexpr int kMaxEliminatedFamilies = kMaxEliminatedSize + 2;
// Eliminated blocks of at most so many columns have formulas of their own: a
// thread of a device keeps two rows of W in registers.
inline constexpr int kFewEliminatedColumns = 6;

// wa' Vi wb, Vi being the packed block of `size` <= kMost columns.
template <int kMost>
CERES_EXT_HOST_DEVICE inline double InverseProduct(
    const double* wa,
    const double* wb,
    const BlockArray<const double>& v_inverse,
    int64_t block,
    int size) {
  double product = 0.0;
  for (int m = 0; m < kMost; ++m) {
    if (m < size) {
      double z = 0.0;
      for (int n = 0; n < kMost; ++n) {
        if (n < size) {
          z +=
              v_inverse(block, n <= m ? PackedIndex(m, n) : PackedIndex(n, m)) *
              wb[n];
        }
      }
      product += wa[m] * z;
    }
  }
  return product;
}

// -W Vi W', packed, where W sums over the rows of one eliminated block, which
// are adjacent and in one segment. kMost: the columns of that block at most.
template <int kMost>
struct EliminatedBlocks {
  const double* values = nullptr;
  const int32_t* row_begin = nullptr;
  const EliminatedCell* eliminated = nullptr;  // of each row
  // Vi of each family of eliminated blocks.
  BlockArray<const double> v_inverse[kMaxEliminatedFamilies];

  static constexpr bool kPacked = true;
  CERES_EXT_HOST_DEVICE double Sum(const BlockCell* cells,
                                   int64_t begin,
                                   int64_t end,
                                   int element) const {
    const int a = PackedRow(element);
    const int b = element - PackedIndex(a, 0);
    double sum = 0.0;
    for (int64_t c = begin; c < end;) {
      const EliminatedCell first = eliminated[cells[c].row];
      // Rows a and b of W.
      double wa[kMost] = {};
      double wb[kMost] = {};
      do {
        const BlockCell cell = cells[c];
        const double* j = values + cell.value;
        const double* e = values + eliminated[cell.row].value;
        const int32_t num_residuals =
            row_begin[cell.row + 1] - row_begin[cell.row];
        if (a < cell.size) {
          for (int32_t i = 0; i < num_residuals; ++i) {
            for (int m = 0; m < kMost; ++m) {
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
      } while (c < end && first.size > 0 && AreOfOne(first, cells[c].row));
      if (first.size > 0) {
        sum -= InverseProduct<kMost>(
            wa, wb, v_inverse[first.family], first.block, first.size);
      }
    }
    return sum;
  }
  // W of each eliminated block once for all elements. Other elements than the
  // first PackedSize(kMaxCutColumns) are of wide blocks.
  static constexpr bool kSumsPieces = true;
  void Sums(const BlockCell* cells,
            int64_t begin,
            int64_t end,
            int first_element,
            int n,
            double* sums) const {
    if (first_element > 0) {
      for (int i = 0; i < n; ++i) {
        sums[i] += Sum(cells, begin, end, first_element + i);
      }
      return;
    }
    const int columns = PackedRow(n - 1) + 1;
    double w[kMaxCutColumns * kMost];
    double z[kMost];
    for (int64_t c = begin; c < end;) {
      const EliminatedCell first = eliminated[cells[c].row];
      const int size = first.size;
      if (size == 0) {
        ++c;
        continue;
      }
      std::fill_n(w, columns * size, 0.0);
      do {
        AddToW(cells[c], columns, size, w);
        ++c;
      } while (c < end && AreOfOne(first, cells[c].row));
      for (int b = 0; b < columns; ++b) {
        for (int m = 0; m < size; ++m) {
          z[m] = 0.0;
          for (int k = 0; k < size; ++k) {
            z[m] += v_inverse[first.family](
                        first.block,
                        k <= m ? PackedIndex(m, k) : PackedIndex(k, m)) *
                    w[size * b + k];
          }
        }
        for (int a = b; a < columns; ++a) {
          double product = 0.0;
          for (int m = 0; m < size; ++m) {
            product += w[size * a + m] * z[m];
          }
          sums[PackedIndex(a, b)] -= product;
        }
      }
    }
  }

 private:
  CERES_EXT_HOST_DEVICE bool AreOfOne(const EliminatedCell& first,
                                      int32_t row) const {
    const EliminatedCell other = eliminated[row];
    return other.size > 0 && other.family == first.family &&
           other.block == first.block;
  }
  // W += F'E of a row, the first columns of F.
  void AddToW(const BlockCell& cell, int columns, int size, double* w) const {
    const double* j = values + cell.value;
    const double* e = values + eliminated[cell.row].value;
    const int num_columns = std::min(cell.size, columns);
    for (int32_t i = row_begin[cell.row]; i < row_begin[cell.row + 1]; ++i) {
      for (int a = 0; a < num_columns; ++a) {
        for (int m = 0; m < size; ++m) {
          w[size * a + m] += j[a] * e[m];
        }
      }
      j += cell.size;
      e += size;
    }
  }
};

// F'F - W Vi W' of merged blocks (structure/merged_blocks.h), packed, W and
// kMost as above; F'F where `eliminated` is null.
template <int kMost>
struct MergedRows {
  BlockRowsRef rows;
  const double* values = nullptr;
  const int32_t* column = nullptr;  // of F, by column of the merged blocks
  const EliminatedCell* eliminated = nullptr;
  BlockArray<const double> v_inverse[kMaxEliminatedFamilies];

  static constexpr bool kPacked = true;
  CERES_EXT_HOST_DEVICE double Sum(const BlockCell* cells,
                                   int64_t begin,
                                   int64_t end,
                                   int element) const {
    const int a = PackedRow(element);
    const int b = element - PackedIndex(a, 0);
    double sum = 0.0;
    for (int64_t c = begin; c < end;) {
      EliminatedCell first = {0, 0, 0, 0};
      if (eliminated != nullptr) {
        first = eliminated[cells[c].row];
      }
      double wa[kMost] = {};
      double wb[kMost] = {};
      do {
        const int32_t row = cells[c].row;
        const RowColumn fa = Find(row, column[cells[c].value + a]);
        const RowColumn fb = Find(row, column[cells[c].value + b]);
        const int32_t num_residuals =
            rows.row_begin[row + 1] - rows.row_begin[row];
        for (int32_t i = 0; i < num_residuals; ++i) {
          sum += fa.At(i) * fb.At(i);
          for (int m = 0; m < kMost; ++m) {
            if (m < first.size) {
              const double e =
                  values[eliminated[row].value + int64_t{first.size} * i + m];
              wa[m] += fa.At(i) * e;
              wb[m] += fb.At(i) * e;
            }
          }
        }
        ++c;
      } while (c < end && first.size > 0 && eliminated[cells[c].row].size > 0 &&
               eliminated[cells[c].row].family == first.family &&
               eliminated[cells[c].row].block == first.block);
      if (first.size > 0) {
        sum -= InverseProduct<kMost>(
            wa, wb, v_inverse[first.family], first.block, first.size);
      }
    }
    return sum;
  }

 private:
  // One column of the cell of a row; zero where the row has none.
  struct RowColumn {
    const double* values;
    int32_t stride;
    CERES_EXT_HOST_DEVICE double At(int32_t i) const {
      return values == nullptr ? 0.0 : values[int64_t{stride} * i];
    }
  };
  CERES_EXT_HOST_DEVICE RowColumn Find(int32_t row, int32_t f_column) const {
    for (int32_t c = rows.cell_begin[row]; c < rows.cell_begin[row + 1]; ++c) {
      const RowCell cell = rows.cells[c];
      const int32_t at = f_column - cell.column;
      if (cell.eliminated == 0 && at >= 0 && at < cell.size) {
        return {values + cell.value + at, cell.size};
      }
    }
    return {nullptr, 0};
  }
};

// The sums of the step before, `width` values each.
struct PartialSums {
  const double* in = nullptr;
  int32_t width = 0;

  CERES_EXT_HOST_DEVICE double Sum(const BlockCell* /*cells*/,
                                   int64_t begin,
                                   int64_t end,
                                   int element) const {
    double sum = 0.0;
    for (int64_t s = begin; s < end; ++s) {
      sum += in[s * width + element];
    }
    return sum;
  }
};

// One step of a sum over the cells of the blocks of a family: added to `out`
// where each block has one segment, else left in `partial`.
template <typename Formula>
struct BlockSumParams {
  BlockListRef list;  // of a further step: segments are of PartialSums::in
  Formula formula;
  int32_t width = 0;          // of a sum
  double* partial = nullptr;  // null: each block has one segment
  BlockArray<double> out;
  const PcgScalars* scalars = nullptr;

  static constexpr int kUnroll = 1;
  int64_t size() const { return list.num_segments * width; }
  CERES_EXT_HOST_DEVICE bool Begin() const { return !PcgHasEnded(scalars); }
  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    const int64_t segment = i / width;
    const int element = static_cast<int>(i - segment * width);
    const double sum = formula.Sum(list.cells,
                                   list.segment_begin[segment],
                                   list.segment_begin[segment + 1],
                                   element);
    if (partial != nullptr) {
      partial[i] = sum;
    } else {
      out(list.block[segment], element) += sum;
    }
  }
};

// Elements of the largest sum, or piece of one: a packed matrix of 32 columns.
inline constexpr int kMaxSumWidth = PackedSize(32);

// On the host a formula may sum all elements at once: Sums(cells, begin, end,
// sums) adds to each element of `sums` what Sum gives, in the same order. One
// that has kSumsPieces does so for a range of the elements, and its sums may
// have any number of them.
template <typename Formula, typename = void>
struct SumsAllElements : std::false_type {};
template <typename Formula>
struct SumsAllElements<Formula, std::void_t<decltype(&Formula::Sums)>>
    : std::true_type {};
template <typename Formula, typename = void>
struct SumsPieces : std::false_type {};
template <typename Formula>
struct SumsPieces<Formula, std::void_t<decltype(Formula::kSumsPieces)>>
    : std::true_type {};
template <typename Formula>
std::enable_if_t<SumsAllElements<Formula>::value, Status> Run(
    const BlockSumParams<Formula>& params, HostMachine* machine) {
  BlockSumParams<Formula> p = params;
  if (!p.Begin()) {
    return {};
  }
  if (!SumsPieces<Formula>::value && p.width > kMaxSumWidth) {
    return {StatusCode::kInvalidArgument,
            "A sum over blocks has " + std::to_string(p.width) +
                " elements; at most " + std::to_string(kMaxSumWidth) +
                " are supported."};
  }
  constexpr int64_t kMostSegments = 64;  // of a task
  constexpr int64_t kElements = 4096;
  const int64_t num_pieces = (p.width + kMaxSumWidth - 1) / kMaxSumWidth;
  machine->context()->ParallelFor(
      p.list.num_segments * num_pieces,
      std::clamp(kElements / p.width, int64_t{1}, kMostSegments),
      [&](int64_t begin, int64_t end) {
        double sums[kMaxSumWidth];
        for (int64_t i = begin; i < end; ++i) {
          const int64_t s = i / num_pieces;
          const int first = static_cast<int>(i - s * num_pieces) * kMaxSumWidth;
          const int n = std::min(p.width - first, kMaxSumWidth);
          std::fill_n(sums, n, 0.0);
          const int64_t from = p.list.segment_begin[s];
          const int64_t to = p.list.segment_begin[s + 1];
          if constexpr (SumsPieces<Formula>::value) {
            p.formula.Sums(p.list.cells, from, to, first, n, sums);
          } else {
            p.formula.Sums(p.list.cells, from, to, sums);
          }
          for (int element = 0; element < n; ++element) {
            if (p.partial != nullptr) {
              p.partial[s * p.width + first + element] = sums[element];
            } else {
              p.out(p.list.block[s], first + element) += sums[element];
            }
          }
        }
      });
  return {};
}

inline constexpr int kAnyColumns = std::numeric_limits<int>::max();

// Sums over lists of blocks, and the scratch that they take.
template <typename Machine>
class BlockSums {
 public:
  using Lists = std::vector<MachineBlockList<Machine>>;

  // Takes what sums of vectors, or of packed matrices, over these lists need,
  // without lists of blocks of more than max_columns columns.
  Status Reserve(std::initializer_list<const Lists*> all,
                 bool packed,
                 Machine* machine,
                 int max_columns = kAnyColumns) {
    int64_t most = 0;
    for (const Lists* lists : all) {
      for (const auto& list : *lists) {
        if (list.view.size > max_columns || !IsCut(packed, list.view.size)) {
          continue;
        }
        // The last step has no partial sums.
        int64_t sums = list.levels.empty() ? 0 : list.view.num_segments;
        for (size_t i = 0; i + 1 < list.levels.size(); ++i) {
          sums += list.levels[i].num_sums;
        }
        most = std::max(most, sums * Width(packed, list.view.size));
      }
    }
    return partial_.size() >= most ? Status()
                                   : machine->Allocate(most, &partial_);
  }

  // out_b += formula over the cells of block b, for the listed blocks. out: an
  // array over `families`, of which those without blocks, and those of more
  // than max_columns columns, are left out; null: not wanted.
  template <typename Formula>
  Status Add(const Lists& lists,
             const BlockFamilies& families,
             const Formula& formula,
             double* out,
             const PcgScalars* scalars,
             Machine* machine,
             int max_columns = kAnyColumns) {
    if (out == nullptr) {
      return {};
    }
    for (const auto& list : lists) {
      const BlockFamily& family = families[list.family];
      if (family.num_blocks == 0 || family.size > max_columns) {
        continue;
      }
      double* next = partial_.data();
      BlockSumParams<Formula> first;
      first.list = list.view;
      first.formula = formula;
      first.width = Width(Formula::kPacked, list.view.size);
      const bool is_cut = IsCut(Formula::kPacked, list.view.size);
      if (!is_cut) {
        first.list.num_segments = list.view.num_blocks;
        first.list.segment_begin = list.view.block_begin;
      }
      const size_t num_levels = is_cut ? list.levels.size() : 0;
      first.partial = num_levels == 0 ? nullptr : next;
      first.out = Formula::kPacked ? PackedBlocks(family, Machine::kLayout, out)
                                   : VectorBlocks(family, out);
      first.scalars = scalars;
      CERES_EXT_RETURN_IF_ERROR(Run(first, machine));
      BlockSumParams<PartialSums> further;
      further.list.block = list.view.block;
      further.width = first.width;
      further.out = first.out;
      further.scalars = scalars;
      int64_t size = first.size();
      for (size_t i = 0; i < num_levels; ++i) {
        further.list.num_segments = list.levels[i].num_sums;
        further.list.segment_begin = list.levels[i].begin;
        further.formula = {next, first.width};
        next += size;
        size = further.size();
        further.partial = i + 1 < num_levels ? next : nullptr;
        CERES_EXT_RETURN_IF_ERROR(Run(further, machine));
      }
    }
    return {};
  }

 private:
  static bool IsCut(bool packed, int columns) {
    return columns <= (packed ? kMaxCutColumns : kMaxCutWidth);
  }
  static int Width(bool packed, int columns) {
    return packed ? PackedSize(columns) : columns;
  }

  typename Machine::template Buffer<double> partial_;
};

// J = J diag(s), in place.
// Traffic: the values twice; 16 B per cell.
struct ScaleRowsParams {
  BlockRowsRef rows;
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

// inverse_b = (A_b + D_b^2)^-1, packed, symmetric blocks of kN columns, or of
// `columns` where kN is kDynamic; inverse may be A. A column of A_b that is
// zero and undamped counts as a unit column (small_matrix.h).
// Mapping: one thread per block, on its own copy where kN is a constant.
// Traffic: the matrices twice, D.
template <int kN>
struct InvertBlocksParams {
  int64_t n = 0;         // blocks
  int32_t columns = kN;  // of a block
  BlockArray<const double> a;
  const double* diagonal = nullptr;  // D, columns per block; null: zero
  BlockArray<double> inverse;
  // True if a block that rounding has left not positive definite is replaced by
  // its diagonal, with elements below D^2 raised to that, as a preconditioner
  // may be; else, with D, it has the pivots of one that is definite
  // (small_matrix.h), and without it is a breakdown. kDynamic: where true,
  // inverse is not A.
  bool may_be_diagonal = false;
  // Lowered to the first block that could not be inverted, whose inverse is
  // unspecified. Starts at Breakdown::kNone (base/breakdown.h).
  int32_t* first_breakdown = nullptr;

  static constexpr int kUnroll = 1;
  static constexpr int kMinBlocks = 1;
  int64_t grain() const {
    return std::max<int64_t>(1, 4096 / (int64_t{columns} * columns * columns));
  }
  CERES_EXT_HOST_DEVICE void Apply(int64_t block) const {
    const StridedMatrix<double> to = inverse.Matrix(block);
    bool ok = false;
    if constexpr (kN == kDynamic) {
      ok = Invert(block, to);
    } else {
      double local[PackedSize(kN)];
      ok = Invert(block, local);
      for (int e = 0; e < PackedSize(kN); ++e) {
        to[e] = local[e];
      }
    }
    if (!ok) {
      AtomicMinimum(static_cast<int32_t>(block), first_breakdown);
    }
  }

 private:
  template <typename Matrix>
  CERES_EXT_HOST_DEVICE bool Invert(int64_t block, Matrix to) const {
    const int N = kN == kDynamic ? columns : kN;
    const double* d = diagonal == nullptr ? nullptr : diagonal + N * block;
    CopyDamped(block, d, to);
    if (InvertSymmetric<kN>(
            to, N, /*is_definite=*/d != nullptr && !may_be_diagonal)) {
      return true;
    }
    if (!may_be_diagonal) {
      return false;
    }
    CopyDamped(block, d, to);
    return InvertDiagonal<kN>(d, to, N);
  }
  template <typename Matrix>
  CERES_EXT_HOST_DEVICE void CopyDamped(int64_t block,
                                        const double* d,
                                        Matrix to) const {
    const int N = kN == kDynamic ? columns : kN;
    for (int e = 0; e < PackedSize(N); ++e) {
      to[e] = a(block, e);
    }
    if (d != nullptr) {
      for (int i = 0; i < N; ++i) {
        to[PackedIndex(i, i)] += d[i] * d[i];
      }
    }
  }
};

// z_b = scale A_b r_b, A_b packed, of kN columns or `columns`. z is not r.
// Mapping: one thread per block and row. For N = 9 a warp reads 3.6 rows of
// every element of the blocks: 32 B pieces of the element's array.
// Order: sums within a block from column 0 on.
// Traffic: the matrices, r and z.
template <int kN>
struct ApplyBlocksParams {
  int64_t n = 0;  // blocks
  int32_t columns = kN;
  BlockArray<const double> a;
  const double* r = nullptr;
  double scale = 1.0;
  double* z = nullptr;
  const PcgScalars* scalars = nullptr;  // ended: nothing is done

  static constexpr int kUnroll = 1;
  int64_t size() const { return n * columns; }
  CERES_EXT_HOST_DEVICE bool Begin() const { return !PcgHasEnded(scalars); }
  CERES_EXT_HOST_DEVICE void Apply(int64_t at) const {
    const int N = kN == kDynamic ? columns : kN;
    const int64_t block = at / N;
    const int i = static_cast<int>(at - block * N);
    z[at] = scale * SymmetricProduct<kN>(a.Matrix(block), i, r + block * N, N);
  }
};

// On the host a thread takes whole blocks, which are contiguous.
template <int kN>
Status Run(const ApplyBlocksParams<kN>& params, HostMachine* machine) {
  if (!params.Begin()) {
    return {};
  }
  const ApplyBlocksParams<kN> p = params;
  machine->context()->ParallelFor(
      p.n, std::max(1, 4096 / p.columns), [p](int64_t begin, int64_t end) {
        const int N = kN == kDynamic ? p.columns : kN;
        for (int64_t block = begin; block < end; ++block) {
          const double* a = &p.a(block, 0);
          const double* const r = p.r + block * N;
          double* const z = p.z + block * N;
          if constexpr (kN == kDynamic) {
            // Row by row as it is stored, with the sums in the same order.
            for (int i = 0; i < N; ++i) {
              double sum = 0.0;
              for (int j = 0; j < i; ++j) {
                sum += a[j] * r[j];
                z[j] += a[j] * r[i];
              }
              z[i] = sum + a[i] * r[i];
              a += i + 1;
            }
            for (int i = 0; i < N; ++i) {
              z[i] *= p.scale;
            }
          } else {
            for (int i = 0; i < N; ++i) {
              z[i] = p.scale * SymmetricProduct<kN>(a, i, r, N);
            }
          }
        }
      });
  return {};
}

// *result -= sum of r_b' A_b r_b, A_b packed.
// Mapping: an element is a row of a block. Traffic: the matrices and r, once.
struct SubtractBlockNormsParams {
  int64_t n = 0;  // blocks
  int32_t columns = 0;
  BlockArray<const double> a;
  const double* r = nullptr;
  double* result = nullptr;

  static constexpr int kUnroll = 1;
  int64_t size() const { return n * columns; }
  CERES_EXT_HOST_DEVICE TwoSums Term(int64_t at) const {
    const int64_t block = at / columns;
    const int i = static_cast<int>(at - block * columns);
    return {r[at] * SymmetricProduct<kDynamic>(
                        a.Matrix(block), i, r + block * columns, columns),
            0.0};
  }
  CERES_EXT_HOST_DEVICE void Set(const TwoSums& sums) const {
    *result -= sums.first;
  }
};

// z_b = A_b r_b, A_b packed, column i of block b being the elements
// column[columns b + i] of r and z.
// Mapping: one thread per block and row. Order: sums within a block from column
// 0 on. Traffic: the matrices, r and z, 4 B per column.
struct ApplyMergedBlocksParams {
  int64_t n = 0;  // blocks
  int32_t columns = 0;
  BlockArray<const double> a;
  const int32_t* column = nullptr;  // columns * n
  const double* r = nullptr;
  double* z = nullptr;
  const PcgScalars* scalars = nullptr;  // ended: nothing is done

  static constexpr int kUnroll = 1;
  int64_t size() const { return n * columns; }
  CERES_EXT_HOST_DEVICE bool Begin() const { return !PcgHasEnded(scalars); }
  CERES_EXT_HOST_DEVICE void Apply(int64_t at) const {
    const int64_t block = at / columns;
    const int i = static_cast<int>(at - block * columns);
    const int32_t* columns_of_block = column + block * columns;
    double sum = 0.0;
    for (int j = 0; j < columns; ++j) {
      sum += a(block, j <= i ? PackedIndex(i, j) : PackedIndex(j, i)) *
             r[columns_of_block[j]];
    }
    z[column[at]] = sum;
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

// Range i of `from`, from_begin[i] .. from_begin[i + 1] - 1, goes to `to` from
// to_begin[i] on. Traffic: 16 B per value, 20 B per range.
struct CopyRangesParams {
  int64_t n = 0;
  const int64_t* from_begin = nullptr;  // n + 1
  const int64_t* to_begin = nullptr;    // n
  const double* from = nullptr;
  double* to = nullptr;

  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    for (int64_t v = from_begin[i]; v < from_begin[i + 1]; ++v) {
      to[to_begin[i] + v - from_begin[i]] = from[v];
    }
  }
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_BLOCK_ROWS_H_
