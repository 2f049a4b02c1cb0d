// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/machine/host_cholesky.h"

#include <algorithm>
#include <cmath>

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
// becomes X, also in `packed`. l: L row by row.
template <int kStrips>
CERES_EXT_SIMD_CLONES void SolveStrips(
    const double* l, int64_t size, int64_t stride, double* a, double* packed) {
  for (int64_t c = 0; c < size; ++c) {
    SimdDoubles sum[kStrips];
    for (int s = 0; s < kStrips; ++s) {
      sum[s] = At(a + stride * c + kLanes * s);
    }
    const double* const row = l + kTile * c;
    for (int64_t d = 0; d < c; ++d) {
      const double factor = row[d];
      for (int s = 0; s < kStrips; ++s) {
        sum[s] -= At(packed + kStrip * s + kLanes * d) * factor;
      }
    }
    for (int s = 0; s < kStrips; ++s) {
      sum[s] /= row[c];
      At(packed + kStrip * s + kLanes * c) = sum[s];
      At(a + stride * c + kLanes * s) = sum[s];
    }
  }
}
void SolvePanel(const double* l,
                int64_t size,
                int64_t stride,
                int64_t num_strips,
                double* a,
                double* packed) {
  int64_t s = 0;
  for (; s + kStripsAtOnce <= num_strips; s += kStripsAtOnce) {
    SolveStrips<kStripsAtOnce>(
        l, size, stride, a + kLanes * s, packed + kStrip * s);
  }
  for (; s < num_strips; ++s) {
    SolveStrips<1>(l, size, stride, a + kLanes * s, packed + kStrip * s);
  }
}

// c -= left right' of a tile of num_strips strips of rows and num_columns
// columns; with is_diagonal only what is on the diagonal and below.
CERES_EXT_SIMD_CLONES
void UpdateTile(const double* left,
                const double* right,
                int64_t num_strips,
                int64_t num_columns,
                bool is_diagonal,
                int64_t stride,
                double* c) {
  constexpr int64_t kColumns = 4;
  for (int64_t j = 0; j < num_columns; j += kColumns) {
    const double* const b = right + kStrip * (j / kLanes) + j % kLanes;
    const int64_t count = std::min(kColumns, num_columns - j);
    for (int64_t s = is_diagonal ? j / kLanes : 0; s < num_strips; ++s) {
      const double* const strip = left + kStrip * s;
      SimdDoubles sum[kColumns] = {};
      for (int64_t k = 0; k < kTile; ++k) {
        const SimdDoubles& x = At(strip + kLanes * k);
        for (int q = 0; q < kColumns; ++q) {
          sum[q] += x * b[kLanes * k + q];
        }
      }
      for (int64_t q = 0; q < count; ++q) {
        At(c + stride * (j + q) + kLanes * s) -= sum[q];
      }
    }
  }
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

constexpr int64_t kRightHandSides = 4;

// x -= L x_0 for num_strips strips of rows of kRightHandSides columns, L of
// kTile columns.
CERES_EXT_SIMD_CLONES
void SubtractTile(const double* l,
                  int64_t stride,
                  int64_t num_strips,
                  const double* x0,
                  double* x) {
  for (int64_t s = 0; s < num_strips; ++s) {
    SimdDoubles sum[kRightHandSides] = {};
    for (int64_t k = 0; k < kTile; ++k) {
      const SimdDoubles& strip = At(l + stride * k + kLanes * s);
      for (int q = 0; q < kRightHandSides; ++q) {
        sum[q] += strip * x0[stride * q + k];
      }
    }
    for (int q = 0; q < kRightHandSides; ++q) {
      At(x + stride * q + kLanes * s) -= sum[q];
    }
  }
}
// x_0 -= L'x of the same, L of `size` columns.
CERES_EXT_SIMD_CLONES
void SubtractTransposed(const double* l,
                        int64_t stride,
                        int64_t size,
                        int64_t num_strips,
                        const double* x,
                        double* x0) {
  for (int64_t k = 0; k < size; ++k) {
    SimdDoubles sums[kRightHandSides] = {};
    for (int64_t s = 0; s < num_strips; ++s) {
      const SimdDoubles& strip = At(l + stride * k + kLanes * s);
      for (int q = 0; q < kRightHandSides; ++q) {
        sums[q] += strip * At(x + stride * q + kLanes * s);
      }
    }
    for (int q = 0; q < kRightHandSides; ++q) {
      double sum = 0.0;
      for (int lane = 0; lane < kLanes; ++lane) {
        sum += sums[q][lane];
      }
      x0[stride * q + k] -= sum;
    }
  }
}

}  // namespace

Status HostDenseCholesky::Setup(int64_t n, HostMachine* machine) {
  machine_ = machine;
  n_ = n;
  stride_ = Stride(n);
  a_ = nullptr;
  failed_order_ = 0;
  is_zero_.resize(static_cast<size_t>((n + kTile - 1) / kTile));
  CERES_EXT_RETURN_IF_ERROR(machine->Allocate(kStrip * NumStrips(n), &panel_));
  return machine->Allocate(kTile * kTile, &diagonal_);
}

Status HostDenseCholesky::QueueFactorization(double* a) {
  a_ = a;
  failed_order_ = 0;
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
  machine_->context()->ParallelFor(
      num_strips, kStripsPerTile, [&](int64_t begin, int64_t end) {
        double* const a = tile + size + kLanes * begin;
        double* const packed = panel_.data() + kStrip * begin;
        bool is_zero = true;
        for (int64_t c = 0; c < size && is_zero; ++c) {
          is_zero = IsZero(a + stride_ * c, kLanes * (end - begin));
        }
        is_zero_[static_cast<size_t>(begin / kStripsPerTile)] = is_zero ? 1 : 0;
        if (!is_zero) {
          SolvePanel(l, size, stride_, end - begin, a, packed);
        }
      });
}

void HostDenseCholesky::UpdateRest(int64_t k) {
  const int64_t first = k + kTile;
  const int64_t num_tiles = (n_ - first + kTile - 1) / kTile;
  if (num_tiles <= 0) {
    return;
  }
  // The tiles of the panel that are not zero, and pairs of them.
  std::vector<int64_t> tiles;
  for (int64_t i = 0; i < num_tiles; ++i) {
    if (is_zero_[static_cast<size_t>(i)] == 0) {
      tiles.push_back(i);
    }
  }
  const auto count = static_cast<int64_t>(tiles.size());
  machine_->context()->ParallelFor(
      count * (count + 1) / 2, 1, [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task) {
          // task = p (p + 1) / 2 + q, q <= p.
          auto p = static_cast<int64_t>(
              (std::sqrt(8.0 * static_cast<double>(task) + 1.0) - 1.0) / 2.0);
          p -= p * (p + 1) / 2 > task ? 1 : 0;
          p += (p + 1) * (p + 2) / 2 <= task ? 1 : 0;
          const int64_t i = tiles[static_cast<size_t>(p)];
          const int64_t j = tiles[static_cast<size_t>(task - p * (p + 1) / 2)];
          const int64_t row = first + kTile * i;
          const int64_t column = first + kTile * j;
          UpdateTile(panel_.data() + kStrip * kStripsPerTile * i,
                     panel_.data() + kStrip * kStripsPerTile * j,
                     std::min(kStripsPerTile, NumStrips(n_ - row)),
                     std::min(kTile, n_ - column),
                     i == j,
                     stride_,
                     a_ + stride_ * column + row);
        }
      });
}

Status HostDenseCholesky::Solve(const double* b, double* x) {
  if (a_ == nullptr) {
    return {StatusCode::kInvalidArgument, "There is no factor to solve with."};
  }
  if (x != b) {
    std::copy_n(b, n_, x);
  }
  for (int64_t c = 0; c < n_; ++c) {
    const double* const column = a_ + stride_ * c;
    x[c] /= column[c];
    SubtractColumns(column + c + 1, stride_, 1, n_ - c - 1, x + c, x + c + 1);
  }
  for (int64_t c = n_ - 1; c >= 0; --c) {
    const double* const column = a_ + stride_ * c;
    x[c] -= Dot(column + c + 1, x + c + 1, n_ - c - 1);
    x[c] /= column[c];
  }
  return {};
}

void HostDenseCholesky::SolveGroup(double* x) const {
  const int64_t num_tiles = (n_ + kTile - 1) / kTile;
  const auto strips_behind = [this](int64_t k) {
    return std::max(int64_t{0}, NumStrips(n_ - k - kTile));
  };
  int64_t first = 0;
  const auto is_zero = [&](int64_t k) {
    for (int64_t q = 0; q < kColumnsAtOnce; ++q) {
      if (!IsZero(x + stride_ * q + k, std::min(kTile, n_ - k))) {
        return false;
      }
    }
    return true;
  };
  while (first < num_tiles && is_zero(kTile * first)) {
    ++first;
  }
  for (int64_t t = first; t < num_tiles; ++t) {
    const int64_t k = kTile * t;
    const int64_t size = std::min(kTile, n_ - k);
    const double* const tile = a_ + stride_ * k + k;
    for (int64_t q = 0; q < kColumnsAtOnce; ++q) {
      double* const of = x + stride_ * q + k;
      for (int64_t c = 0; c < size; ++c) {
        of[c] /= tile[stride_ * c + c];
        SubtractColumns(tile + stride_ * c + c + 1,
                        stride_,
                        1,
                        size - c - 1,
                        of + c,
                        of + c + 1);
      }
    }
    for (int64_t q = 0; q < kColumnsAtOnce; q += kRightHandSides) {
      SubtractTile(tile + kTile,
                   stride_,
                   strips_behind(k),
                   x + stride_ * q + k,
                   x + stride_ * q + k + kTile);
    }
  }
  for (int64_t t = num_tiles - 1; t >= 0; --t) {
    const int64_t k = kTile * t;
    const int64_t size = std::min(kTile, n_ - k);
    const double* const tile = a_ + stride_ * k + k;
    for (int64_t q = 0; q < kColumnsAtOnce; q += kRightHandSides) {
      SubtractTransposed(tile + kTile,
                         stride_,
                         size,
                         strips_behind(k),
                         x + stride_ * q + k + kTile,
                         x + stride_ * q + k);
    }
    for (int64_t q = 0; q < kColumnsAtOnce; ++q) {
      double* const of = x + stride_ * q + k;
      for (int64_t c = size - 1; c >= 0; --c) {
        const double* const column = tile + stride_ * c;
        of[c] -= Dot(column + c + 1, of + c + 1, size - c - 1);
        of[c] /= column[c];
      }
    }
  }
}

Status HostDenseCholesky::SolveColumns(int64_t num_columns, double* x) {
  if (a_ == nullptr) {
    return {StatusCode::kInvalidArgument, "There is no factor to solve with."};
  }
  const int64_t num_groups =
      (num_columns + kColumnsAtOnce - 1) / kColumnsAtOnce;
  const int64_t group_size = kColumnsAtOnce * stride_;
  HostBuffer<double> groups;
  CERES_EXT_RETURN_IF_ERROR(
      machine_->Allocate(group_size * num_groups, &groups));
  machine_->context()->ParallelFor(
      num_groups, 1, [&](int64_t begin, int64_t end) {
        for (int64_t g = begin; g < end; ++g) {
          double* const group = groups.data() + group_size * g;
          double* const from = x + n_ * kColumnsAtOnce * g;
          const int64_t count =
              std::min(kColumnsAtOnce, num_columns - kColumnsAtOnce * g);
          std::fill_n(group, group_size, 0.0);
          for (int64_t q = 0; q < count; ++q) {
            std::copy_n(from + n_ * q, n_, group + stride_ * q);
          }
          SolveGroup(group);
          for (int64_t q = 0; q < count; ++q) {
            std::copy_n(group + stride_ * q, n_, from + n_ * q);
          }
        }
      });
  return {};
}

}  // namespace ceres_ext::kernels
