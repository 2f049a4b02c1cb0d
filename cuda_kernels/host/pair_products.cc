// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/ops/pair_products.h"

#include <algorithm>
#include <vector>

#include "cuda_kernels/base/simd.h"
#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/host/schur_rows.h"

namespace ceres_ext::kernels {
namespace {

using host::GroupAt;
using host::kRowGroup;
using host::NumGroups;
using host::RowGroup;
using host::SchurRowTask;

// E columns of the eliminated blocks of a family from `first` on: all of kE, or
// where these are kSlice up to kSlice of more. Y of a slice keeps to registers.
constexpr int kSlice = 4;
template <int kE>
struct WholeBlocks {
  static constexpr int kColumns = kE;
  static constexpr int first = 0;
  static constexpr int size = kE;   // of the blocks
  static constexpr int count = kE;  // of the slice
};
struct SliceOfBlocks {
  static constexpr int kColumns = kSlice;
  int first;
  int size;
  int count;
};

// The columns of W_k Vi, of kGroups groups of rows each.
template <int kGroups, typename Columns>
void MultiplyByInverse(const PairProductsParams& p,
                       int64_t k,
                       int32_t num_rows,
                       const Columns& of,
                       double* y) {
  const double* const w = p.w + p.w_begin[k];
  const int32_t block = p.index.point_id[k];
  std::fill_n(y, Columns::kColumns * kRowGroup * kGroups, 0.0);
  for (int m = 0; m < of.count; ++m) {
    const int column = of.first + m;
    for (int32_t a = 0; a < num_rows; ++a) {
      double sum = 0.0;
      for (int q = 0; q < of.size; ++q) {
        sum += w[of.size * a + q] * p.v_inverse(block,
                                                q <= column
                                                    ? PackedIndex(column, q)
                                                    : PackedIndex(q, column));
      }
      y[kRowGroup * kGroups * m + a] = sum;
    }
  }
}

// Adds the products W_k Vi W_l' of a task of block i, of the columns.
template <int kGroups, typename Columns>
CERES_EXT_SIMD_CLONES void AddProducts(const PairProductsParams& p,
                                       int32_t i,
                                       const SchurRowTask& task,
                                       const Columns& of) {
  constexpr int kE = Columns::kColumns;
  const ObservationIndexRef& index = task.index;
  double columns[kE * kRowGroup * kGroups];
  for (int64_t e = task.entry_begin; e < task.entry_end; ++e) {
    const int64_t k = index.camera_entry[e];
    const int64_t begin = index.point_begin[index.point_id[k]];
    const int64_t end = begin + NumCouplingsWithEarlier(index, k);
    if (begin == end) {
      continue;
    }
    MultiplyByInverse<kGroups>(p, k, p.block_size[i], of, columns);
    RowGroup y[kE * kGroups];  // in registers
    for (int g = 0; g < kE * kGroups; ++g) {
      y[g] = GroupAt(columns + kRowGroup * g);
    }
    for (int64_t l = begin; l < end; ++l) {
      const int32_t j = index.camera_id[l];
      const double* w = p.w + p.w_begin[l] + of.first;
      double* sums = task.sums + task.offset[j];
      const int32_t num_columns = p.block_size[j];
      for (int32_t b = 0; b < num_columns; ++b, w += of.size) {
        double row[kE] = {};
        for (int m = 0; m < of.count; ++m) {
          row[m] = w[m];
        }
        for (int g = 0; g < kGroups; ++g, sums += kRowGroup) {
          RowGroup sum = GroupAt(sums);
          for (int m = 0; m < kE; ++m) {
            sum += y[kGroups * m + g] * row[m];
          }
          GroupAt(sums) = sum;
        }
      }
    }
  }
}

template <typename Columns>
void AddProductsOf(const PairProductsParams& p,
                   int32_t i,
                   const SchurRowTask& task,
                   const Columns& of) {
  switch (NumGroups(p.block_size[i])) {
#define CERES_EXT_GROUPS(N) \
  case N:                   \
    return AddProducts<N>(p, i, task, of);
    CERES_EXT_GROUPS(1)
    CERES_EXT_GROUPS(2)
    CERES_EXT_GROUPS(3)
    CERES_EXT_GROUPS(4)
    CERES_EXT_GROUPS(5)
    CERES_EXT_GROUPS(6)
    CERES_EXT_GROUPS(7)
    CERES_EXT_GROUPS(8)
#undef CERES_EXT_GROUPS
    default:
      return;  // Run has refused it.
  }
}

}  // namespace

Status Run(const PairProductsParams& p, HostMachine* machine) {
  if (p.couplings.num_couplings > 0 && p.rows.num_parts == 0) {
    return {StatusCode::kInvalidArgument,
            "Products of pairs need the rows of S (HostSchurRows)."};
  }
  for (int32_t i = 0; i < p.index.num_cameras; ++i) {
    if (NumGroups(p.block_size[i]) > 8) {
      return {StatusCode::kUnsupported,
              "The Schur complement as a matrix has blocks of at most 32 "
              "columns on the host."};
    }
  }
  host::SumSchurRows(
      p.index,
      p.couplings,
      p.rows,
      [&](int32_t i, const SchurRowTask& task) {
        switch (p.e_size) {
#define CERES_EXT_E(N) \
  case N:              \
    return AddProductsOf(p, i, task, WholeBlocks<N>());
          CERES_EXT_E(1)
          CERES_EXT_E(2)
          CERES_EXT_E(3)
          CERES_EXT_E(4)
          CERES_EXT_E(5)
          CERES_EXT_E(6)
#undef CERES_EXT_E
          default:
            for (int first = 0; first < p.e_size; first += kSlice) {
              AddProductsOf(
                  p,
                  i,
                  task,
                  SliceOfBlocks{
                      first, p.e_size, std::min(kSlice, p.e_size - first)});
            }
        }
      },
      [&](int64_t block, int32_t i, int32_t j, const double* sums) {
        const int32_t stride = kRowGroup * NumGroups(p.block_size[i]);
        for (int32_t b = 0; b < p.block_size[j]; ++b) {
          const int32_t v = p.unknowns.id[p.value_begin[j] + b];
          for (int32_t a = 0; a < p.block_size[i]; ++a) {
            const int32_t u = p.unknowns.id[p.value_begin[i] + a];
            if (u >= 0 && v >= 0) {
              p.target.At(u, v, block, p.unknowns.begin[j]) -=
                  sums[stride * b + a];
            }
          }
        }
      },
      machine);
  return {};
}

}  // namespace ceres_ext::kernels
