// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Operations of a two-level preconditioner of the Schur complement S
// (ceres_ext/solver/preconditioner/coarse_space.h):
//
//   M^-1 r + P E^-1 P'r,   E = P'S P
//
// The unknowns of S are in clusters, and P has `m` columns for each, which are
// zero outside it. The unknowns of a cluster are adjacent in the *order* of P.
// S is a SchurCsr. Vector operations (ops/vector_operation.h).
#ifndef CERES_EXT_CUDA_KERNELS_OPS_COARSE_SPACE_H_
#define CERES_EXT_CUDA_KERNELS_OPS_COARSE_SPACE_H_

#include <cstdint>

#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/ops/vector_operation.h"
#include "cuda_kernels/structure/observation_index.h"

namespace ceres_ext::kernels {

// Vectors of a cluster (docs/measurements/preconditioners.md).
inline constexpr int32_t kCoarseVectors = 12;

// Some rows of a batch, as stored blocks of doubles.
// Mapping: a thread takes a row. Traffic: the values in and out.
template <typename Source, BlockLayout kLayout>
struct CopyRowsParams {
  using Shape = typename Source::Shape;
  static constexpr int kUnroll = 1;

  int64_t n = 0;
  Source from;
  ObservationIndexRef index;       // of `from`
  const int32_t* row = nullptr;    // of each row that is taken its place there
  const int32_t* order = nullptr;  // n, in row
  BlockRef<double, Shape::kFSize, kLayout> camera_blocks;
  BlockRef<double, Shape::kESize, kLayout> point_blocks;

  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    const int64_t k = row[order[i]];
    typename Source::Value jc[Shape::kFSize];
    typename Source::Value jp[Shape::kESize];
    from.Load(k, index.camera_id[k], index.point_id[k], jc, jp);
    for (int j = 0; j < Shape::kFSize; ++j) {
      camera_blocks(i, j) = static_cast<double>(jc[j]);
    }
    for (int j = 0; j < Shape::kESize; ++j) {
      point_blocks(i, j) = static_cast<double>(jp[j]);
    }
  }
};

// The places of the values of S: SchurUnknownsRef::begin and
// SchurCsr::row_begin.
struct SchurValuesRef {
  const double* values = nullptr;
  const int32_t* begin = nullptr;      // of each block's unknowns
  const int64_t* row_begin = nullptr;  // of each unknown's values

  // Element (u, v) of blocks i and j. offset: SchurRowBlock::offset.
  CERES_EXT_HOST_DEVICE double At(
      int32_t i, int32_t u, int32_t j, int32_t v, int32_t offset) const {
    const bool is_stored = j < i || (j == i && v <= u);
    return is_stored ? values[row_begin[u] + offset + (v - begin[j])]
                     : values[row_begin[v] + offset + (u - begin[i])];
  }
};

// Squared Frobenius norms of blocks (row[b], column[b]) of S.
struct SchurBlockNormsParams {
  static constexpr int kUnroll = 1;
  int64_t n = 0;
  SchurValuesRef s;
  const int32_t* row = nullptr;
  const int32_t* column = nullptr;
  const int32_t* offset = nullptr;
  double* norm = nullptr;

  CERES_EXT_HOST_DEVICE void Apply(int64_t b) const {
    const int32_t i = row[b];
    const int32_t j = column[b];
    double sum = 0.0;
    for (int32_t u = s.begin[i]; u < s.begin[i + 1]; ++u) {
      for (int32_t v = s.begin[j]; v < s.begin[j + 1]; ++v) {
        const double x = s.At(i, u, j, v, offset[b]);
        sum += x * x;
      }
    }
    norm[b] = sum;
  }
};

// P, and the clusters.
struct ProlongationRef {
  int32_t m = 0;
  int32_t num_clusters = 0;
  const int32_t* cluster_begin = nullptr;  // num_clusters + 1, in the order
  const int32_t* cluster = nullptr;        // of each unknown in the order
  const int64_t* column = nullptr;  // of each in the order, its place in F
  const int32_t* place =
      nullptr;  // of each unknown of S its place in the order
  const double* values = nullptr;  // m of each in the order

  CERES_EXT_HOST_DEVICE int64_t num_coarse() const {
    return int64_t{m} * num_clusters;
  }
};

// T = S P by *cells*, a block of S's rows and a cluster that it is coupled
// with: width x m values each, of which rows beyond the block's are zero.
// Mapping: a thread takes a value. Traffic: S once per column of P from caches.
struct MultiplyByProlongationParams {
  static constexpr int kUnroll = 1;
  int64_t num_cells = 0;
  int32_t width = 0;
  SchurValuesRef s;
  ProlongationRef p;
  const int32_t* cell_row = nullptr;     // block of S
  const int64_t* entry_begin = nullptr;  // num_cells + 1
  const int32_t* entry_column = nullptr;
  const int32_t* entry_offset = nullptr;
  double* out = nullptr;

  CERES_EXT_HOST_DEVICE int64_t size() const { return num_cells * width * p.m; }
  CERES_EXT_HOST_DEVICE void Apply(int64_t element) const {
    const int64_t cell = element / (width * p.m);
    const auto rest = static_cast<int32_t>(element - cell * width * p.m);
    const int32_t r = rest / p.m;
    const int32_t a = rest - r * p.m;
    const int32_t i = cell_row[cell];
    const int32_t u = s.begin[i] + r;
    double sum = 0.0;
    if (u < s.begin[i + 1]) {
      for (int64_t e = entry_begin[cell]; e < entry_begin[cell + 1]; ++e) {
        const int32_t j = entry_column[e];
        for (int32_t v = s.begin[j]; v < s.begin[j + 1]; ++v) {
          sum += s.At(i, u, j, v, entry_offset[e]) *
                 p.values[int64_t{p.m} * p.place[v] + a];
        }
      }
    }
    out[element] = sum;
  }
};

// The lower triangle of E = P'T, dense and column-major, by pairs of clusters
// (row >= column) with the cells of the row's blocks and the column. Elements
// of other pairs are zero already.
struct CoarseMatrixParams {
  static constexpr int kUnroll = 1;
  int64_t num_pairs = 0;
  int32_t width = 0;
  int64_t stride = 0;
  ProlongationRef p;
  const int32_t* begin = nullptr;        // of each block's unknowns
  const int32_t* pair_row = nullptr;     // cluster
  const int32_t* pair_column = nullptr;  // cluster
  const int64_t* cell_begin = nullptr;   // num_pairs + 1, in pair_cell
  const int32_t* pair_cell = nullptr;
  const int32_t* cell_row = nullptr;
  const double* t = nullptr;
  double* e = nullptr;

  CERES_EXT_HOST_DEVICE int64_t size() const { return num_pairs * p.m * p.m; }
  CERES_EXT_HOST_DEVICE void Apply(int64_t element) const {
    const int64_t pair = element / (p.m * p.m);
    const auto rest = static_cast<int32_t>(element - pair * p.m * p.m);
    const int32_t a = rest / p.m;
    const int32_t b = rest - a * p.m;
    double sum = 0.0;
    for (int64_t c = cell_begin[pair]; c < cell_begin[pair + 1]; ++c) {
      const int32_t cell = pair_cell[c];
      const int32_t i = cell_row[cell];
      for (int32_t u = begin[i]; u < begin[i + 1]; ++u) {
        sum += p.values[int64_t{p.m} * p.place[u] + a] *
               t[(int64_t{cell} * width + (u - begin[i])) * p.m + b];
      }
    }
    const int64_t row = int64_t{p.m} * pair_row[pair] + a;
    const int64_t column = int64_t{p.m} * pair_column[pair] + b;
    if (row >= column) {
      e[column * stride + row] = sum;
    }
  }
};

// Sums that kCoarseLanes threads share.
inline constexpr int32_t kCoarseLanes = 16;

// partial[lane * num_coarse + c]: of column c of P'r.
struct RestrictParams {
  static constexpr int kUnroll = 1;
  ProlongationRef p;
  const double* r = nullptr;  // a vector of F
  double* partial = nullptr;
  const PcgScalars* scalars = nullptr;

  CERES_EXT_HOST_DEVICE bool Begin() const { return !PcgHasEnded(scalars); }
  CERES_EXT_HOST_DEVICE int64_t size() const {
    return kCoarseLanes * p.num_coarse();
  }
  CERES_EXT_HOST_DEVICE void Apply(int64_t element) const {
    const int64_t lane = element / p.num_coarse();
    const int64_t c = element - lane * p.num_coarse();
    const int64_t cluster = c / p.m;
    const int64_t a = c - cluster * p.m;
    double sum = 0.0;
    for (int64_t t = p.cluster_begin[cluster] + lane;
         t < p.cluster_begin[cluster + 1];
         t += kCoarseLanes) {
      sum += p.values[p.m * t + a] * r[p.column[t]];
    }
    partial[element] = sum;
  }
};

// x[c] = the sum of partial[lane * n + c].
struct SumLanesParams {
  int64_t n = 0;
  const double* partial = nullptr;
  double* x = nullptr;
  const PcgScalars* scalars = nullptr;

  CERES_EXT_HOST_DEVICE bool Begin() const { return !PcgHasEnded(scalars); }
  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    double sum = 0.0;
    for (int32_t lane = 0; lane < kCoarseLanes; ++lane) {
      sum += partial[lane * n + i];
    }
    x[i] = sum;
  }
};

// partial[lane * n + i]: of element i of A x, A symmetric and dense,
// column-major.
struct DenseProductParams {
  static constexpr int kUnroll = 1;
  int64_t n = 0;
  int64_t stride = 0;  // from column to column
  const double* a = nullptr;
  const double* x = nullptr;
  double* partial = nullptr;
  const PcgScalars* scalars = nullptr;

  CERES_EXT_HOST_DEVICE bool Begin() const { return !PcgHasEnded(scalars); }
  CERES_EXT_HOST_DEVICE int64_t size() const { return kCoarseLanes * n; }
  CERES_EXT_HOST_DEVICE void Apply(int64_t element) const {
    const int64_t lane = element / n;
    const int64_t i = element - lane * n;
    double sum = 0.0;
    for (int64_t j = lane; j < n; j += kCoarseLanes) {
      sum += a[j * stride + i] * x[j];
    }
    partial[element] = sum;
  }
};

// x = the unit vector number `one`.
struct UnitVectorParams {
  int64_t n = 0;
  int64_t one = 0;
  double* x = nullptr;

  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    x[i] = i == one ? 1.0 : 0.0;
  }
};

// Row n - 1 of the lower triangle of E from x, n values.
struct CoarseRowParams {
  int64_t n = 0;
  int64_t stride = 0;
  const double* x = nullptr;
  double* e = nullptr;

  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    e[i * stride + n - 1] = x[i];
  }
};

// A column of P that is zero has diagonal one.
struct UnitDiagonalParams {
  int64_t n = 0;
  int64_t stride = 0;
  double* e = nullptr;

  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    double& value = e[i * stride + i];
    value = value == 0.0 ? 1.0 : value;
  }
};

// z += P w, z a vector of F.
struct ProlongParams {
  int64_t n = 0;  // unknowns in the order
  ProlongationRef p;
  const double* w = nullptr;
  double* z = nullptr;
  const PcgScalars* scalars = nullptr;

  CERES_EXT_HOST_DEVICE bool Begin() const { return !PcgHasEnded(scalars); }
  CERES_EXT_HOST_DEVICE void Apply(int64_t t) const {
    double sum = 0.0;
    for (int32_t a = 0; a < p.m; ++a) {
      sum += p.values[p.m * t + a] * w[int64_t{p.m} * p.cluster[t] + a];
    }
    z[p.column[t]] += sum;
  }
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_COARSE_SPACE_H_
