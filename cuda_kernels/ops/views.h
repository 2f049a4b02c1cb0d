// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Operations of views (structure/views.h): G p, the formulas of sums over views
// and over rows of blocks that several views share (ops/block_rows.h), and the
// way of blocks that Ceres has evaluated into stored ones.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_VIEWS_H_
#define CERES_EXT_CUDA_KERNELS_OPS_VIEWS_H_

#include <algorithm>
#include <cstdint>

#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/ops/block_rows.h"
#include "cuda_kernels/structure/block_families.h"
#include "cuda_kernels/structure/block_rows.h"
#include "cuda_kernels/structure/observation_index.h"

namespace ceres_ext::kernels {

// out = G p.
// Traffic: 20 B per column of a view.
struct GatherColumnsParams {
  int64_t n = 0;
  const int32_t* column = nullptr;  // n; -1: zero
  const double* p = nullptr;
  double* out = nullptr;  // n
  const PcgScalars* scalars = nullptr;

  CERES_EXT_HOST_DEVICE bool Begin() const { return !PcgHasEnded(scalars); }
  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    const int32_t c = column[i];
    out[i] = c < 0 ? 0.0 : p[c];
  }
};

// Formula of BlockSum: G'q.
struct ViewVectors {
  const double* q = nullptr;

  static constexpr bool kPacked = false;
  CERES_EXT_HOST_DEVICE double Sum(const BlockCell* cells,
                                   int64_t begin,
                                   int64_t end,
                                   int element) const {
    double sum = 0.0;
    for (int64_t c = begin; c < end; ++c) {
      if (element < cells[c].size) {
        sum += q[cells[c].value + element];
      }
    }
    return sum;
  }
};

// Formula of BlockSum: the diagonal blocks of G'A G, where A is the block
// diagonal of the views, kMerged: by merged blocks (Views::merged).
template <bool kMerged>
struct ViewMatrices {
  BlockArray<const double> a;               // packed
  int columns = 0;                          // of a view
  const int16_t* merged_columns = nullptr;  // kMerged

  static constexpr bool kPacked = true;
  CERES_EXT_HOST_DEVICE double Sum(const BlockCell* cells,
                                   int64_t begin,
                                   int64_t end,
                                   int element) const {
    const int i = PackedRow(element);
    const int j = element - PackedIndex(i, 0);
    double sum = 0.0;
    for (int64_t c = begin; c < end; ++c) {
      const BlockCell cell = cells[c];
      if constexpr (kMerged) {
        const int at_i = merged_columns[cell.value + i];
        const int at_j = merged_columns[cell.value + j];
        if (at_i >= 0 && at_j >= 0) {
          sum += a(
              cell.row,
              at_j <= at_i ? PackedIndex(at_i, at_j) : PackedIndex(at_j, at_i));
        }
      } else if (i < cell.size) {
        const int at =
            static_cast<int>(cell.value - int64_t{columns} * cell.row);
        sum += a(cell.row, PackedIndex(at + i, at + j));
      }
    }
    return sum;
  }
};

// Formula of BlockSum: F'F - W Vi W' of blocks that are in several views, W
// being the sum over the rows of one eliminated block, which are adjacent and
// in one segment. kMerged: of merged blocks (Views::merged).
template <typename Source, bool kMerged = false>
struct SharedSchurBlocks {
  using Shape = typename Source::Shape;
  static constexpr int R = Shape::kNumResiduals;
  static constexpr int E = Shape::kE;
  static constexpr int F = Shape::kF;

  Source jacobian;
  const int32_t* point_id = nullptr;  // of each row
  BlockArray<const double> v_inverse;
  const int16_t* merged_columns = nullptr;  // kMerged

  static constexpr bool kPacked = true;
  CERES_EXT_HOST_DEVICE double Sum(const BlockCell* cells,
                                   int64_t begin,
                                   int64_t end,
                                   int element) const {
    const int i = PackedRow(element);
    const int j = element - PackedIndex(i, 0);
    constexpr int kAhead = 4;
    double sum = 0.0;
    for (int64_t c = begin; c < end;) {
      const int32_t point = point_id[cells[c].row];
      double wi[E] = {};
      double wj[E] = {};
      // The rows of a point are adjacent.
      for (; c + kAhead <= end && point_id[cells[c + kAhead - 1].row] == point;
           c += kAhead) {
        AddRows<kAhead>(cells + c, i, j, &sum, wi, wj);
      }
      for (; c < end && point_id[cells[c].row] == point; ++c) {
        AddRows<1>(cells + c, i, j, &sum, wi, wj);
      }
      sum = SubtractProduct<E>(sum, wi, wj, v_inverse, point);
    }
    return sum;
  }
  void Sums(const BlockCell* cells,
            int64_t begin,
            int64_t end,
            double* sums) const {
    for (int64_t c = begin; c < end;) {
      const int32_t point = point_id[cells[c].row];
      // For blocks of one family, which a merged one has all columns of.
      double w[F][E] = {};
      int size = 0;
      for (; c < end && point_id[cells[c].row] == point; ++c) {
        const BlockCell cell = cells[c];
        size = std::max(size, static_cast<int>(cell.size));
        for (int r = 0; r < R; ++r) {
          double f[F];
          for (int i = 0; i < cell.size; ++i) {
            const int at = kMerged ? merged_columns[cell.value + i]
                                   : static_cast<int>(cell.value) + i;
            f[i] = at < 0 ? 0.0
                          : static_cast<double>(
                                jacobian.camera_blocks(cell.row, F * r + at));
            for (int m = 0; m < E; ++m) {
              w[i][m] += f[i] * static_cast<double>(
                                    jacobian.point_blocks(cell.row, E * r + m));
            }
          }
          for (int i = 0, at = 0; i < cell.size; ++i) {
            for (int j = 0; j <= i; ++j, ++at) {
              sums[at] += f[i] * f[j];
            }
          }
        }
      }
      for (int i = 0, at = 0; i < size; ++i) {
        for (int j = 0; j <= i; ++j, ++at) {
          sums[at] = SubtractProduct<E>(sums[at], w[i], w[j], v_inverse, point);
        }
      }
    }
  }

 private:
  // The terms of kRows rows, which are read before the first is added: 67 us in
  // place of 123 for 10,000 rows of points that 66 images see (an H200).
  template <int kRows>
  CERES_EXT_HOST_DEVICE void AddRows(const BlockCell* cells,
                                     int i,
                                     int j,
                                     double* sum,
                                     double* wi,
                                     double* wj) const {
    double fi[kRows][R];
    double fj[kRows][R];
    double e[kRows][R][E];
    bool has_both[kRows];
    for (int k = 0; k < kRows; ++k) {
      const BlockCell cell = cells[k];
      int at_i = static_cast<int>(cell.value) + i;
      int at_j = static_cast<int>(cell.value) + j;
      has_both[k] = i < cell.size;
      if constexpr (kMerged) {
        // A row of an eliminated block has all columns but zero ones.
        at_i = merged_columns[cell.value + i];
        at_j = merged_columns[cell.value + j];
        has_both[k] = at_i >= 0 && at_j >= 0;
      }
      for (int r = 0; has_both[k] && r < R; ++r) {
        fi[k][r] =
            static_cast<double>(jacobian.camera_blocks(cell.row, F * r + at_i));
        fj[k][r] =
            static_cast<double>(jacobian.camera_blocks(cell.row, F * r + at_j));
        for (int m = 0; m < E; ++m) {
          e[k][r][m] =
              static_cast<double>(jacobian.point_blocks(cell.row, E * r + m));
        }
      }
    }
    for (int k = 0; k < kRows; ++k) {
      for (int r = 0; has_both[k] && r < R; ++r) {
        *sum += fi[k][r] * fj[k][r];
        for (int m = 0; m < E; ++m) {
          wi[m] += fi[k][r] * e[k][r][m];
          wj[m] += fj[k][r] * e[k][r][m];
        }
      }
    }
  }
};

// The place of a column of a view in a row that Ceres has evaluated.
struct ViewColumn {
  int16_t at;    // of its first residual, from the first F value; -1: zero
  int16_t size;  // columns of its block
};

// Rows place[begin] .. place[begin + n - 1] as Ceres writes them, each the cell
// of E and, from value R E on, those of F, each row-major, into stored blocks.
// Mapping: a thread takes a row. Traffic: the values in and out.
template <typename T, typename ShapeIn, BlockLayout kLayout>
struct PackRowsParams {
  using Shape = ShapeIn;
  static constexpr int kUnroll = 1;
  // Values from one row to the next.
  static constexpr int kStride = Shape::kESize + Shape::kFSize;

  int64_t n = 0;
  int64_t begin = 0;
  const int32_t* place = nullptr;  // null: place[i] is i
  ObservationIndexRef index;
  const int32_t* e_size = nullptr;      // of each eliminated block; null: E
  const ViewColumn* columns = nullptr;  // F per view
  const double* rows = nullptr;         // kStride per row, from `begin` on
  BlockRef<T, Shape::kFSize, kLayout> camera_blocks;
  BlockRef<T, Shape::kESize, kLayout> point_blocks;

  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    const int64_t k = place == nullptr ? begin + i : place[begin + i];
    const double* e = rows + i * kStride;
    const double* f = e + Shape::kESize;
    const int size = e_size == nullptr ? Shape::kE : e_size[index.point_id[k]];
    for (int r = 0; r < Shape::kNumResiduals; ++r) {
      for (int m = 0; m < Shape::kE; ++m) {
        point_blocks(k, Shape::kE * r + m) =
            static_cast<T>(m < size ? e[size * r + m] : 0.0);
      }
    }
    const ViewColumn* column =
        columns + int64_t{Shape::kF} * index.camera_id[k];
    for (int j = 0; j < Shape::kF; ++j) {
      const ViewColumn c = column[j];
      for (int r = 0; r < Shape::kNumResiduals; ++r) {
        camera_blocks(k, Shape::kF * r + j) =
            static_cast<T>(c.at < 0 ? 0.0 : f[c.at + c.size * r]);
      }
    }
  }
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_VIEWS_H_
