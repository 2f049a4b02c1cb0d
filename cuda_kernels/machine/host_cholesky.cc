// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/machine/host_cholesky.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cuda_kernels/base/simd.h"

namespace ceres_ext::kernels {
namespace {

constexpr int64_t kTile = HostDenseCholesky::kTile;
constexpr int64_t kLanes = kSimdLanes;
constexpr int64_t kStripsPerTile = kTile / kLanes;
// Values of a strip of a panel.
constexpr int64_t kStrip = kLanes * kTile;
// Strips that are solved for at once, so that none waits for its own sums.
constexpr int64_t kStripsAtOnce = 4;

CERES_EXT_SIMD_INLINE SimdDoubles& At(double* x) {
  return *reinterpret_cast<SimdDoubles*>(x);
}
CERES_EXT_SIMD_INLINE const SimdDoubles& At(const double* x) {
  return *reinterpret_cast<const SimdDoubles*>(x);
}

int64_t NumStrips(int64_t num_rows) { return (num_rows + kLanes - 1) / kLanes; }

// Factorises a tile of `size` columns in place. Returns the column whose pivot
// is not positive, or `size`.
CERES_EXT_SIMD_CLONES
int64_t FactorTile(double* a, int64_t stride, int64_t size) {
  for (int64_t c = 0; c < size; ++c) {
    double* const column = a + stride * c;
    for (int64_t d = 0; d < c; ++d) {
      const double* const other = a + stride * d;
      const double factor = other[c];
      for (int64_t r = c; r < size; ++r) {
        column[r] -= factor * other[r];
      }
    }
    if (!(column[c] > 0.0) || !std::isfinite(column[c])) {
      return c;
    }
    const double pivot = std::sqrt(column[c]);
    column[c] = pivot;
    for (int64_t r = c + 1; r < size; ++r) {
      column[r] /= pivot;
    }
  }
  return size;
}

// X L' = A for strips of rows: a, of which row 0 is that of the first strip,
// becomes X, also in `packed`. l: L row by row. Columns of A before `first` are
// zero.
template <int kStrips>
CERES_EXT_SIMD_CLONES void SolveStrips(const double* l,
                                       int64_t first,
                                       int64_t size,
                                       int64_t stride,
                                       double* a,
                                       double* packed) {
  for (int64_t c = first; c < size; ++c) {
    double sum[kStrips][kLanes];  // In registers, as in UpdateTile.
    for (int s = 0; s < kStrips; ++s) {
#pragma omp simd
      for (int lane = 0; lane < kLanes; ++lane) {
        sum[s][lane] = a[stride * c + kLanes * s + lane];
      }
    }
    const double* const row = l + kTile * c;
    for (int64_t d = first; d < c; ++d) {
      const double factor = row[d];
      for (int s = 0; s < kStrips; ++s) {
        const double* const x = packed + kStrip * s + kLanes * d;
#pragma omp simd
        for (int lane = 0; lane < kLanes; ++lane) {
          sum[s][lane] -= x[lane] * factor;
        }
      }
    }
    for (int s = 0; s < kStrips; ++s) {
#pragma omp simd
      for (int lane = 0; lane < kLanes; ++lane) {
        sum[s][lane] /= row[c];
        packed[kStrip * s + kLanes * c + lane] = sum[s][lane];
        a[stride * c + kLanes * s + lane] = sum[s][lane];
      }
    }
  }
}
// first: of each strip.
void SolvePanel(const double* l,
                const int32_t* first,
                int64_t size,
                int64_t stride,
                int64_t num_strips,
                double* a,
                double* packed) {
  int64_t s = 0;
  for (; s + kStripsAtOnce <= num_strips; s += kStripsAtOnce) {
    SolveStrips<kStripsAtOnce>(
        l,
        *std::min_element(first + s, first + s + kStripsAtOnce),
        size,
        stride,
        a + kLanes * s,
        packed + kStrip * s);
  }
  for (; s < num_strips; ++s) {
    SolveStrips<1>(
        l, first[s], size, stride, a + kLanes * s, packed + kStrip * s);
  }
}

// Row j, column k of the factor `right` of UpdateTile is values[row_step j +
// column_step k]; columns from `depth` on are zero.
struct RightFactor {
  const double* values;
  int64_t row_step;
  int64_t column_step;
  int64_t depth;
};
// The tile that UpdateTile updates.
struct TargetTile {
  double* values;
  int64_t strip_step;  // from strip to strip of 8 rows
  int64_t column_step;
};
constexpr int64_t kColumnsOfUpdate = 4;

// c -= left right' of num_strips strips of rows and up to four columns. right:
// column by column, kStep values each, those before `first` zero. left_first:
// the same of each strip; null: 0. Products with zeros are left out.
template <int64_t kStep>
CERES_EXT_SIMD_CLONES void UpdateColumns(const double* left,
                                         const int32_t* left_first,
                                         const double* right,
                                         int64_t first,
                                         int64_t first_strip,
                                         int64_t num_strips,
                                         int64_t count,
                                         const TargetTile& c) {
  for (int64_t s = first_strip; s < num_strips; ++s) {
    const double* const strip = left + kStrip * s;
    const int64_t begin =
        left_first == nullptr ? first : std::max<int64_t>(first, left_first[s]);
    if (begin >= kTile) {
      continue;
    }
    // Not SimdDoubles, whose sums GCC keeps in memory for AVX2: 8 times slower.
    double sum[kColumnsOfUpdate][kLanes] = {};
    for (int64_t k = begin; k < kTile; ++k) {
      const double* const x = strip + kLanes * k;
      for (int q = 0; q < kColumnsOfUpdate; ++q) {
        const double factor = right[kStep * k + q];
#pragma omp simd
        for (int lane = 0; lane < kLanes; ++lane) {
          sum[q][lane] += x[lane] * factor;
        }
      }
    }
    for (int64_t q = 0; q < count; ++q) {
      double* const to = c.values + c.column_step * q + c.strip_step * s;
#pragma omp simd
      for (int lane = 0; lane < kLanes; ++lane) {
        to[lane] -= sum[q][lane];
      }
    }
  }
}
// c -= left right' of a tile of num_strips strips of rows and num_columns
// columns; with is_diagonal only what is on the diagonal and below. Both
// factors in strips, with the first column of each; null: 0.
void UpdateTile(const double* left,
                const int32_t* left_first,
                const double* right,
                const int32_t* right_first,
                int64_t num_strips,
                int64_t num_columns,
                bool is_diagonal,
                TargetTile c) {
  for (int64_t j = 0; j < num_columns; j += kColumnsOfUpdate) {
    UpdateColumns<kLanes>(left,
                          left_first,
                          right + kStrip * (j / kLanes) + j % kLanes,
                          right_first == nullptr ? 0 : right_first[j / kLanes],
                          is_diagonal ? j / kLanes : 0,
                          num_strips,
                          std::min(kColumnsOfUpdate, num_columns - j),
                          c);
    c.values += kColumnsOfUpdate * c.column_step;
  }
}
// c -= left right', where right lies in a matrix.
void UpdateTile(const double* left,
                const RightFactor& right,
                int64_t num_strips,
                int64_t num_columns,
                TargetTile c) {
  for (int64_t j = 0; j < num_columns; j += kColumnsOfUpdate) {
    const int64_t count = std::min(kColumnsOfUpdate, num_columns - j);
    double packed[kColumnsOfUpdate * kTile] = {};
    for (int64_t q = 0; q < count; ++q) {
      const double* const row = right.values + right.row_step * (j + q);
      for (int64_t k = 0; k < right.depth; ++k) {
        packed[kColumnsOfUpdate * k + q] = row[right.column_step * k];
      }
    }
    UpdateColumns<kColumnsOfUpdate>(
        left, nullptr, packed, 0, 0, num_strips, count, c);
    c.values += kColumnsOfUpdate * c.column_step;
  }
}

// M = L^-1 of a tile of `size` columns, and zeros behind it: M and -M in strips
// of columns, each row by row.
struct InverseTile {
  double columns[kTile * kTile];
  double minus_columns[kTile * kTile];
};
CERES_EXT_SIMD_CLONES
void InvertTile(const double* l, int64_t stride, int64_t size, double* m) {
  // Row by row: m_i = (e_i - sum over k < i of l_ik m_k) / l_ii.
  for (int64_t i = 0; i < size; ++i) {
    double* const row = m + kTile * i;
    row[i] = 1.0;
    for (int64_t k = 0; k < i; ++k) {
      const double factor = l[stride * k + i];
      const double* const other = m + kTile * k;
      for (int64_t c = 0; c <= k; ++c) {
        row[c] -= factor * other[c];
      }
    }
    for (int64_t c = 0; c <= i; ++c) {
      row[c] /= l[stride * i + i];
    }
  }
}
InverseTile MakeInverseTile(const double* l, int64_t stride, int64_t size) {
  double m[kTile * kTile] = {};  // row by row
  InvertTile(l, stride, size, m);
  InverseTile inverse;
  for (int64_t i = 0; i < kTile; ++i) {
    for (int64_t c = 0; c < kTile; ++c) {
      const double value = m[kTile * i + c];
      const int64_t at = kStrip * (c / kLanes) + kLanes * i + c % kLanes;
      inverse.columns[at] = value;
      inverse.minus_columns[at] = -value;
    }
  }
  return inverse;
}

bool IsZero(const double* x, int64_t n) {
  return std::all_of(x, x + n, [](double value) { return value == 0.0; });
}

// x -= L x_0 for rows first .. n - 1 of `size` columns.
CERES_EXT_SIMD_CLONES
void SubtractColumns(const double* a,
                     int64_t stride,
                     int64_t size,
                     int64_t num_rows,
                     const double* x0,
                     double* x) {
  for (int64_t c = 0; c < size; ++c) {
    const double* const column = a + stride * c;
    const double factor = x0[c];
    for (int64_t r = 0; r < num_rows; ++r) {
      x[r] -= factor * column[r];
    }
  }
}
// The sum of a_r x_r, eight partial sums apart.
CERES_EXT_SIMD_CLONES
double Dot(const double* a, const double* x, int64_t n) {
  SimdDoubles sums = {};
  int64_t r = 0;
  for (; r + kLanes <= n; r += kLanes) {
    sums += At(a + r) * At(x + r);
  }
  double sum = 0.0;
  for (int lane = 0; lane < kLanes; ++lane) {
    sum += sums[lane];
  }
  for (; r < n; ++r) {
    sum += a[r] * x[r];
  }
  return sum;
}

// Right-hand sides that are solved for at once, side by side in each row.
constexpr int64_t kRightHandSides = 32;
constexpr int64_t kRowsAtOnce = 4;
// Rows of L that are copied at once.
constexpr int64_t kRowsOfPart = 32;

// x_r -= sum over k < size of L_rk x_k for kRows rows, where L_rk is
// l[row_stride r + stride k].
template <int kRows>
CERES_EXT_SIMD_CLONES void SubtractProducts(const double* l,
                                            int64_t row_stride,
                                            int64_t stride,
                                            int64_t size,
                                            const double* x0,
                                            double* x) {
  for (int64_t v = 0; v < kRightHandSides; v += kLanes) {
    double sum[kRows][kLanes] = {};  // In registers.
    const double* of_k = x0 + v;
    const double* l_k = l;
    for (int64_t k = 0; k < size; ++k, of_k += kRightHandSides, l_k += stride) {
      for (int r = 0; r < kRows; ++r) {
        const double factor = l_k[row_stride * r];
#pragma omp simd
        for (int lane = 0; lane < kLanes; ++lane) {
          sum[r][lane] += of_k[lane] * factor;
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
#pragma omp simd
      for (int lane = 0; lane < kLanes; ++lane) {
        x[kRightHandSides * r + v + lane] -= sum[r][lane];
      }
    }
  }
}
// The same for num_rows rows.
void SubtractAllProducts(const double* l,
                         int64_t row_stride,
                         int64_t stride,
                         int64_t size,
                         int64_t num_rows,
                         const double* x0,
                         double* x) {
  int64_t r = 0;
  for (; r + kRowsAtOnce <= num_rows; r += kRowsAtOnce) {
    SubtractProducts<kRowsAtOnce>(l + row_stride * r,
                                  row_stride,
                                  stride,
                                  size,
                                  x0,
                                  x + kRightHandSides * r);
  }
  for (; r < num_rows; ++r) {
    SubtractProducts<1>(l + row_stride * r,
                        row_stride,
                        stride,
                        size,
                        x0,
                        x + kRightHandSides * r);
  }
}
// x = L^-1 x, or L'^-1 x, for a tile of `size` rows.
CERES_EXT_SIMD_CLONES
void SolveTile(const double* l,
               int64_t stride,
               int64_t size,
               bool is_transposed,
               double* x) {
  for (int64_t i = 0; i < size; ++i) {
    const int64_t c = is_transposed ? size - 1 - i : i;
    const int64_t begin = is_transposed ? c + 1 : 0;
    const int64_t end = is_transposed ? size : c;
    for (int64_t v = 0; v < kRightHandSides; v += kLanes) {
      SimdDoubles sum = {};
      for (int64_t k = begin; k < end; ++k) {
        sum += At(x + kRightHandSides * k + v) *
               (is_transposed ? l[stride * c + k] : l[stride * k + c]);
      }
      SimdDoubles& value = At(x + kRightHandSides * c + v);
      value -= sum;
      value /= l[stride * c + c];
    }
  }
}

// Packs `count` columns of n values side by side, and zeros behind them.
void PackGroup(const double* x, int64_t n, int64_t count, double* group) {
  std::fill_n(group, kRightHandSides * n, 0.0);
  for (int64_t q = 0; q < count; ++q) {
    for (int64_t i = 0; i < n; ++i) {
      group[kRightHandSides * i + q] = x[n * q + i];
    }
  }
}

}  // namespace

int64_t HostDenseCholesky::AddFill(int64_t enough, Tiles* tiles) {
  const auto num_tiles =
      static_cast<int64_t>(std::sqrt(static_cast<double>(tiles->size())) + 0.5);
  const auto at = [&](int64_t row, int64_t column) -> unsigned char& {
    return (*tiles)[static_cast<size_t>(num_tiles * row + column)];
  };
  int64_t num_products = 0;
  std::vector<int64_t> rows;  // of the panel
  for (int64_t panel = 0; panel < num_tiles && num_products <= enough;
       ++panel) {
    rows.clear();
    at(panel, panel) = 1;
    for (int64_t i = panel + 1; i < num_tiles; ++i) {
      if (at(i, panel) == 0) {
        continue;
      }
      rows.push_back(i);
      for (const int64_t j : rows) {
        at(i, j) = 1;
      }
      num_products += static_cast<int64_t>(rows.size());
    }
  }
  return num_products;
}

Status HostDenseCholesky::Setup(int64_t n, HostMachine* machine, Tiles tiles) {
  machine_ = machine;
  n_ = n;
  stride_ = Stride(n);
  a_ = nullptr;
  failed_order_ = 0;
  is_inverted_ = false;
  const int64_t num_tiles = NumTiles(n);
  may_be_set_ = std::move(tiles);
  first_column_.resize(static_cast<size_t>(kStripsPerTile * num_tiles));
  tiles_below_.assign(static_cast<size_t>(num_tiles), {});
  CERES_EXT_RETURN_IF_ERROR(
      machine->Allocate(kTile * kTile * num_tiles, &panel_));
  return machine->Allocate(kTile * kTile, &diagonal_);
}

Status HostDenseCholesky::QueueFactorization(double* a) {
  a_ = a;
  failed_order_ = 0;
  is_inverted_ = false;
  for (int64_t k = 0; k < n_; k += kTile) {
    FactorPanel(k);
    if (failed_order_ != 0) {
      break;
    }
    UpdateRest(k);
  }
  return {};
}

void HostDenseCholesky::FactorPanel(int64_t k) {
  const int64_t size = std::min(kTile, n_ - k);
  double* const tile = a_ + stride_ * k + k;
  const int64_t failed = FactorTile(tile, stride_, size);
  if (failed < size) {
    failed_order_ = k + failed + 1;
    return;
  }
  double* const l = diagonal_.data();
  for (int64_t c = 0; c < size; ++c) {
    for (int64_t d = 0; d <= c; ++d) {
      l[kTile * c + d] = tile[stride_ * d + c];
    }
  }
  // Nothing is behind a panel that isn't whole.
  const int64_t num_strips = NumStrips(n_ - k - size);
  const int64_t num_tiles = NumTiles(n_);
  const int64_t panel = k / kTile;
  machine_->context()->ParallelFor(
      num_strips, kStripsPerTile, [&](int64_t begin, int64_t end) {
        double* const a = tile + size + kLanes * begin;
        double* const packed = panel_.data() + kStrip * begin;
        int32_t* const first = first_column_.data() + begin;
        const int64_t row = panel + 1 + begin / kStripsPerTile;
        if (!may_be_set_.empty() &&
            may_be_set_[static_cast<size_t>(num_tiles * row + panel)] == 0) {
          std::fill_n(first, end - begin, static_cast<int32_t>(kTile));
          return;
        }
        for (int64_t s = 0; s < end - begin; ++s) {
          int32_t c = 0;
          while (c < kTile && IsZero(a + stride_ * c + kLanes * s, kLanes)) {
            ++c;
          }
          first[s] = c;
        }
        SolvePanel(l, first, size, stride_, end - begin, a, packed);
      });
  std::vector<int32_t>& below = TilesBelow(k);
  below.clear();
  for (int64_t s = 0; s < num_strips; s += kStripsPerTile) {
    const int32_t* const first = first_column_.data() + s;
    const int64_t count = std::min(kStripsPerTile, num_strips - s);
    if (*std::min_element(first, first + count) < kTile) {
      below.push_back(static_cast<int32_t>(panel + 1 + s / kStripsPerTile));
    }
  }
}

void HostDenseCholesky::UpdateRest(int64_t k) {
  const int64_t first = k + kTile;
  // Pairs of tiles.
  const std::vector<int32_t>& tiles = TilesBelow(k);
  const auto count = static_cast<int64_t>(tiles.size());
  machine_->context()->ParallelFor(
      count * (count + 1) / 2, 1, [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task) {
          // task = p (p + 1) / 2 + q, q <= p.
          auto p = static_cast<int64_t>(
              (std::sqrt(8.0 * static_cast<double>(task) + 1.0) - 1.0) / 2.0);
          p -= p * (p + 1) / 2 > task ? 1 : 0;
          p += (p + 1) * (p + 2) / 2 <= task ? 1 : 0;
          const int64_t of_panel = k / kTile + 1;
          const int64_t i = tiles[static_cast<size_t>(p)] - of_panel;
          const int64_t j =
              tiles[static_cast<size_t>(task - p * (p + 1) / 2)] - of_panel;
          const int64_t row = first + kTile * i;
          const int64_t column = first + kTile * j;
          UpdateTile(panel_.data() + kStrip * kStripsPerTile * i,
                     first_column_.data() + kStripsPerTile * i,
                     panel_.data() + kStrip * kStripsPerTile * j,
                     first_column_.data() + kStripsPerTile * j,
                     std::min(kStripsPerTile, NumStrips(n_ - row)),
                     std::min(kTile, n_ - column),
                     i == j,
                     {a_ + stride_ * column + row, kLanes, stride_});
        }
      });
}

Status HostDenseCholesky::Solve(const double* b, double* x) {
  if ((a_ == nullptr && n_ > 0) || is_inverted_) {
    return {StatusCode::kInvalidArgument, "There is no factor to solve with."};
  }
  if (x != b) {
    std::copy_n(b, n_, x);
  }
  // A tile takes some three microseconds, for which it is read from memory.
  constexpr int64_t kTilesPerTask = 4;
  for (int64_t k = 0; k < n_; k += kTile) {
    const int64_t end = std::min(k + kTile, n_);
    for (int64_t c = k; c < end; ++c) {
      const double* const column = a_ + stride_ * c;
      x[c] /= column[c];
      SubtractColumns(
          column + c + 1, stride_, 1, end - c - 1, x + c, x + c + 1);
    }
    const std::vector<int32_t>& tiles = TilesBelow(k);
    machine_->context()->ParallelFor(
        static_cast<int64_t>(tiles.size()),
        kTilesPerTask,
        [&](int64_t first, int64_t last) {
          for (int64_t t = first; t < last; ++t) {
            const int64_t row = kTile * tiles[static_cast<size_t>(t)];
            SubtractColumns(a_ + stride_ * k + row,
                            stride_,
                            end - k,
                            std::min(kTile, n_ - row),
                            x + k,
                            x + row);
          }
        });
  }
  for (int64_t k = kTile * (NumTiles(n_) - 1); k >= 0; k -= kTile) {
    const int64_t end = std::min(k + kTile, n_);
    // For each tile below the products of its columns, in the panel's memory.
    const std::vector<int32_t>& tiles = TilesBelow(k);
    double* const products = panel_.data();
    machine_->context()->ParallelFor(
        static_cast<int64_t>(tiles.size()),
        kTilesPerTask,
        [&](int64_t first, int64_t last) {
          for (int64_t t = first; t < last; ++t) {
            const int64_t row = kTile * tiles[static_cast<size_t>(t)];
            for (int64_t c = k; c < end; ++c) {
              products[kTile * t + c - k] = Dot(
                  a_ + stride_ * c + row, x + row, std::min(kTile, n_ - row));
            }
          }
        });
    for (int64_t c = end - 1; c >= k; --c) {
      const double* const column = a_ + stride_ * c;
      double sum = Dot(column + c + 1, x + c + 1, end - c - 1);
      for (size_t t = 0; t < tiles.size(); ++t) {
        sum += products[kTile * static_cast<int64_t>(t) + c - k];
      }
      x[c] -= sum;
      x[c] /= column[c];
    }
  }
  return {};
}

void HostDenseCholesky::SolveGroup(bool only_from_first, double* x) const {
  const int64_t num_tiles = (n_ + kTile - 1) / kTile;
  int64_t first = 0;
  while (first < num_tiles &&
         IsZero(x + kRightHandSides * kTile * first,
                kRightHandSides * std::min(kTile, n_ - kTile * first))) {
    ++first;
  }
  for (int64_t t = first; t < num_tiles; ++t) {
    const int64_t k = kTile * t;
    const int64_t size = std::min(kTile, n_ - k);
    const double* const tile = a_ + stride_ * k + k;
    double* const of_tile = x + kRightHandSides * k;
    SolveTile(tile, stride_, size, /*is_transposed=*/false, of_tile);
    // By parts of L that stay in the cache: its columns are pages apart.
    double part[kTile * kRowsOfPart];
    for (const int32_t below : TilesBelow(k)) {
      const int64_t end = std::min(kTile * (below + int64_t{1}), n_);
      for (int64_t r = kTile * below; r < end; r += kRowsOfPart) {
        const int64_t num_rows = std::min(kRowsOfPart, end - r);
        for (int64_t c = 0; c < size; ++c) {
          std::copy_n(
              a_ + stride_ * (k + c) + r, num_rows, part + kRowsOfPart * c);
        }
        SubtractAllProducts(part,
                            1,
                            kRowsOfPart,
                            size,
                            num_rows,
                            of_tile,
                            x + kRightHandSides * r);
      }
    }
  }
  for (int64_t t = num_tiles - 1; t >= (only_from_first ? first : 0); --t) {
    const int64_t k = kTile * t;
    const int64_t size = std::min(kTile, n_ - k);
    const double* const tile = a_ + stride_ * k + k;
    double* const of_tile = x + kRightHandSides * k;
    for (const int32_t below : TilesBelow(k)) {
      const int64_t row = kTile * below;
      SubtractAllProducts(a_ + stride_ * k + row,
                          stride_,
                          1,
                          std::min(kTile, n_ - row),
                          size,
                          x + kRightHandSides * row,
                          of_tile);
    }
    SolveTile(tile, stride_, size, /*is_transposed=*/true, of_tile);
  }
}

Status HostDenseCholesky::SolveColumns(int64_t num_columns,
                                       bool only_from_first,
                                       double* x) {
  if (a_ == nullptr && n_ > 0) {
    return {StatusCode::kInvalidArgument, "There is no factor to solve with."};
  }
  if (is_inverted_) {
    return MultiplyByInverse(num_columns, x);
  }
  const int64_t num_groups =
      (num_columns + kRightHandSides - 1) / kRightHandSides;
  const int64_t group_size = kRightHandSides * n_;
  HostBuffer<double> groups;
  CERES_EXT_RETURN_IF_ERROR(
      machine_->Allocate(group_size * num_groups, &groups));
  machine_->context()->ParallelFor(
      num_groups, 1, [&](int64_t begin, int64_t end) {
        for (int64_t g = begin; g < end; ++g) {
          double* const group = groups.data() + group_size * g;
          double* const from = x + n_ * kRightHandSides * g;
          const int64_t count =
              std::min(kRightHandSides, num_columns - kRightHandSides * g);
          PackGroup(from, n_, count, group);
          SolveGroup(only_from_first, group);
          for (int64_t q = 0; q < count; ++q) {
            for (int64_t i = 0; i < n_; ++i) {
              from[n_ * q + i] = group[kRightHandSides * i + q];
            }
          }
        }
      });
  return {};
}

Status HostDenseCholesky::MultiplyByInverse(int64_t num_columns, double* x) {
  HostBuffer<double> group;
  HostBuffer<double> product;
  CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(kRightHandSides * n_, &group));
  CERES_EXT_RETURN_IF_ERROR(machine_->Allocate(kRightHandSides * n_, &product));
  for (int64_t first = 0; first < num_columns; first += kRightHandSides) {
    const int64_t count = std::min(kRightHandSides, num_columns - first);
    PackGroup(x + n_ * first, n_, count, group.data());
    // The rows of Z are its columns.
    machine_->context()->ParallelFor(
        n_, kTile, [&](int64_t begin, int64_t end) {
          double* const rows = product.data() + kRightHandSides * begin;
          std::fill_n(rows, kRightHandSides * (end - begin), 0.0);
          SubtractAllProducts(a_ + stride_ * begin,
                              stride_,
                              1,
                              n_,
                              end - begin,
                              group.data(),
                              rows);
          for (int64_t q = 0; q < count; ++q) {
            for (int64_t i = begin; i < end; ++i) {
              x[n_ * (first + q) + i] =
                  -product.data()[kRightHandSides * i + q];
            }
          }
        });
  }
  return {};
}

// Z L = L'^-1, whose columns k, for an L of two rows and columns of blocks with
// the inverse Z of the second,
//
//   Z_21 = -Z_22 Y,   Z_11 = M'M - Y'Z_21,   Y = L_21 M,   M = L_11^-1.
//
// As Z is symmetric, it is whole behind the panel, and panels go from the last
// to the first (Bientinesi, Gunter and van de Geijn, Families of Algorithms
// Related to the Inversion of a Symmetric Positive Definite Matrix, 2008).
Status HostDenseCholesky::Invert() {
  if (a_ == nullptr || failed_order_ != 0 || is_inverted_) {
    return {StatusCode::kInvalidArgument, "There is no factor to invert."};
  }
  for (int64_t k = (n_ - 1) / kTile * kTile; k >= 0; k -= kTile) {
    InvertPanel(k);
  }
  is_inverted_ = true;
  return {};
}

void HostDenseCholesky::InvertPanel(int64_t k) {
  constexpr int64_t kTileValues = kTile * kTile;
  const int64_t size = std::min(kTile, n_ - k);
  double* const tile = a_ + stride_ * k + k;
  const InverseTile m = MakeInverseTile(tile, stride_, size);
  const int64_t first = k + kTile;
  // Tiles of Y that are not zero, by number behind the panel.
  std::vector<int64_t> tiles;
  for (const int32_t tile : TilesBelow(k)) {
    tiles.push_back(tile - k / kTile - 1);
  }
  // Y'
  machine_->context()->ParallelFor(
      static_cast<int64_t>(tiles.size()), 1, [&](int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p) {
          const int64_t t = tiles[static_cast<size_t>(p)];
          const int64_t row = first + kTile * t;
          const int64_t num_rows = std::min(kTile, n_ - row);
          const double* const l = a_ + stride_ * k + row;
          double* const y = panel_.data() + kTileValues * t;
          std::fill_n(y, kTileValues, 0.0);
          UpdateTile(m.minus_columns,
                     {l, 1, stride_, kTile},
                     kStripsPerTile,
                     num_rows,
                     {y, kStrip, kLanes});
        }
      });
  // Z_21' = -Y'Z_22, and its transpose.
  constexpr int64_t kColumnsAtOnce = 32;
  machine_->context()->ParallelFor(
      n_ - first, kColumnsAtOnce, [&](int64_t begin, int64_t end) {
        const int64_t column = first + begin;
        double z[kTile * kColumnsAtOnce] = {};
        for (const int64_t t : tiles) {
          const int64_t row = first + kTile * t;
          UpdateTile(panel_.data() + kTileValues * t,
                     {a_ + stride_ * column + row,
                      stride_,
                      1,
                      std::min(kTile, n_ - row)},
                     kStripsPerTile,
                     end - begin,
                     {z, kLanes, kTile});
        }
        for (int64_t c = 0; c < end - begin; ++c) {
          std::copy_n(z + kTile * c, kTile, a_ + stride_ * (column + c) + k);
        }
        for (int64_t r = 0; r < kTile; ++r) {
          for (int64_t c = 0; c < end - begin; ++c) {
            a_[stride_ * (k + r) + column + c] = z[kTile * c + r];
          }
        }
      });
  // Z_11, a strip of columns from its diagonal down, and its transpose.
  machine_->context()->ParallelFor(
      NumStrips(size), 1, [&](int64_t begin, int64_t end) {
        for (int64_t s = begin; s < end; ++s) {
          double* const z = tile + (stride_ + 1) * kLanes * s;
          const int64_t num_strips = NumStrips(size) - s;
          const int64_t num_columns = std::min(kLanes, size - kLanes * s);
          for (int64_t c = 0; c < num_columns; ++c) {
            std::fill_n(z + stride_ * c, kLanes * num_strips, 0.0);
          }
          UpdateTile(m.columns + kStrip * s,
                     nullptr,
                     m.minus_columns + kStrip * s,
                     nullptr,
                     num_strips,
                     num_columns,
                     /*is_diagonal=*/false,
                     {z, kLanes, stride_});
          for (const int64_t t : tiles) {
            const int64_t row = first + kTile * t;
            UpdateTile(panel_.data() + kTileValues * t + kStrip * s,
                       {a_ + stride_ * (k + kLanes * s) + row,
                        stride_,
                        1,
                        std::min(kTile, n_ - row)},
                       num_strips,
                       num_columns,
                       {z, kLanes, stride_});
          }
          for (int64_t c = 0; c < num_columns; ++c) {
            for (int64_t r = c + 1; r < size - kLanes * s; ++r) {
              z[stride_ * r + c] = z[stride_ * c + r];
            }
          }
        }
      });
}

}  // namespace ceres_ext::kernels
