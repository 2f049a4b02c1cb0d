// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/ops/coarse_inverse.h"

#include <cuda_runtime.h>

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_machine.h"

namespace ceres_ext::kernels {
namespace {

constexpr int kTile = CoarseInverseParams::kTile;
// Columns of a tile in shared memory are read along rows, too.
constexpr int kPitch = kTile + 1;
constexpr int kInverseBlock = 256;
// A thread takes kOfThread x kOfThread elements of a product of tiles,
// kProductSide apart.
constexpr int kProductSide = 8;
constexpr int kOfThread = kTile / kProductSide;
constexpr int kTileBlock = kProductSide * kProductSide;

CERES_EXT_HOST_DEVICE int64_t NumTiles(int64_t n) {
  return (n + kTile - 1) / kTile;
}

// Tiles in rows before row i of the lower triangle.
CERES_EXT_HOST_DEVICE int64_t TilesBefore(int64_t i) { return i * (i + 1) / 2; }

// The row of tile number t of the lower triangle.
__device__ int64_t RowOfTile(int64_t t) {
  auto i = static_cast<int64_t>(sqrt(2.0 * static_cast<double>(t)));
  while (TilesBefore(i) > t) {
    --i;
  }
  while (TilesBefore(i + 1) <= t) {
    ++i;
  }
  return i;
}

// Tile (i, j) of A, column by column with kPitch; zeros behind the matrix.
__device__ void LoadTile(const CoarseInverseParams& p,
                         int64_t i,
                         int64_t j,
                         int block_size,
                         double* tile) {
  for (int e = static_cast<int>(threadIdx.x); e < kTile * kTile;
       e += block_size) {
    const int row = e % kTile;
    const int column = e / kTile;
    const int64_t r = kTile * i + row;
    const int64_t c = kTile * j + column;
    tile[kPitch * column + row] =
        r < p.n && c < p.n ? p.a[p.stride * c + r] : 0.0;
  }
}

// Column `column` of tile i of the panel.
__device__ double* PanelColumn(const CoarseInverseParams& p,
                               int64_t i,
                               int column) {
  return p.panel + p.n * column + kTile * i;
}

// x = L^-1 of a tile a = L L', of which the lower triangle is given and
// overwritten; zeros above. Returns the number of the first column that has no
// pivot, or kTile.
// With L = L_1 D^(1/2): column j is taken out of the rows behind it, in a and
// in the rows of L_1^-1, which are scaled at the end.
// Mapping: threads share the elements behind a column. Order: columns
// ascending.
__device__ int InvertFactor(int size, double* a, double* x) {
  const int thread = static_cast<int>(threadIdx.x);
  int failed = kTile;
  for (int j = 0; j < size; ++j) {
    const double pivot = a[kPitch * j + j];
    const bool is_positive = pivot > 0.0 && pivot <= DBL_MAX;
    failed = is_positive || failed < kTile ? failed : j;
    const double inverse = is_positive ? 1.0 / pivot : 1.0;
    for (int e = thread; e < kTile * kTile; e += kInverseBlock) {
      const int row = e % kTile;
      const int column = e / kTile;
      if (row > j && row < size && column <= row) {
        const double factor = a[kPitch * j + row] * inverse;
        if (column > j) {
          a[kPitch * column + row] -= factor * a[kPitch * j + column];
        } else if (column == j) {
          x[kPitch * j + row] = -factor;
        } else {
          x[kPitch * column + row] -= factor * x[kPitch * column + j];
        }
      }
    }
    __syncthreads();  // The next column of a and row of x are read by all.
  }
  for (int e = thread; e < kTile * kTile; e += kInverseBlock) {
    const int row = e % kTile;
    const int column = e / kTile;
    double value = 0.0;
    if (column <= row && row < size) {
      const double pivot = a[kPitch * row + row];
      const double scale = pivot > 0.0 ? 1.0 / sqrt(pivot) : 1.0;
      value = column < row ? scale * x[kPitch * column + row] : scale;
    }
    x[kPitch * column + row] = value;
  }
  __syncthreads();  // X is read by all.
  return failed;
}

// X of tile (k, k) and column k of L to the panel, row k of X in place.
// Mapping: a block takes a tile of column k, or of row k before it, and inverts
// the factor for itself.
__global__ void __launch_bounds__(kInverseBlock)
    CoarseColumnKernel(CoarseInverseParams p, int64_t k) {
  __shared__ double pivot[kTile * kPitch];
  __shared__ double x[kTile * kPitch];
  __shared__ double tile[kTile * kPitch];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t t = blockIdx.x;
  LoadTile(p, k, k, kInverseBlock, pivot);
  if (t != k) {
    LoadTile(p, t > k ? t : k, t > k ? k : t, kInverseBlock, tile);
  }
  __syncthreads();  // Both are read by all.
  const int64_t left = p.n - kTile * k;
  const int size = left < kTile ? static_cast<int>(left) : kTile;
  const int failed = InvertFactor(size, pivot, x);
  if (t == k && thread == 0 && failed < kTile && *p.failed_order == 0) {
    *p.failed_order = static_cast<int32_t>(kTile * k) + failed + 1;
  }
  for (int e = thread; e < kTile * kTile; e += kInverseBlock) {
    const int row = e % kTile;
    const int column = e / kTile;
    if (t >= k) {
      if (kTile * t + row >= p.n) {
        continue;
      }
      double value = x[kPitch * column + row];
      if (t > k) {  // A_tk X_kk'
        value = 0.0;
        for (int m = 0; m <= column; ++m) {
          value += tile[kPitch * m + row] * x[kPitch * m + column];
        }
      }
      PanelColumn(p, t, column)[row] = value;
    } else if (row < size) {  // X_kk X_kt
      double value = 0.0;
      for (int m = 0; m <= row; ++m) {
        value += x[kPitch * m + row] * tile[kPitch * column + m];
      }
      p.a[p.stride * (kTile * t + column) + kTile * k + row] = value;
    }
  }
}

// sum[r][c] += the products of columns of two tiles.
__device__ void AddProducts(const double* left,
                            const double* right,
                            double sum[kOfThread][kOfThread]) {
  const int first = static_cast<int>(threadIdx.x) % kProductSide;
  const int second = static_cast<int>(threadIdx.x) / kProductSide;
#pragma unroll 4
  for (int m = 0; m < kTile; ++m) {
    double l[kOfThread];
    double r[kOfThread];
    for (int i = 0; i < kOfThread; ++i) {
      l[i] = left[kPitch * m + first + kProductSide * i];
      r[i] = right[kPitch * m + second + kProductSide * i];
    }
    for (int i = 0; i < kOfThread; ++i) {
      for (int j = 0; j < kOfThread; ++j) {
        sum[i][j] += l[i] * r[j];
      }
    }
  }
}

// Takes column k out of the tiles behind row k, and puts X there.
// Mapping: a block takes a tile, the last one tile (k, k).
__global__ void __launch_bounds__(kTileBlock)
    CoarseUpdateKernel(CoarseInverseParams p, int64_t k) {
  __shared__ double left[kTile * kPitch];
  __shared__ double right[kTile * kPitch];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t t = TilesBefore(k + 1) + blockIdx.x;
  const bool is_pivot = t == TilesBefore(NumTiles(p.n));
  const int64_t i = is_pivot ? k : RowOfTile(t);
  const int64_t j = is_pivot ? k : t - TilesBefore(i);
  const int first = thread % kProductSide;
  const int second = thread / kProductSide;
  // Element (r, c) of this thread; null behind the matrix.
  const auto element = [&](int r, int c) -> double* {
    const int64_t row = kTile * i + first + kProductSide * r;
    const int64_t column = kTile * j + second + kProductSide * c;
    return row < p.n && column < p.n ? p.a + p.stride * column + row : nullptr;
  };
  // The old values arrive while the tiles do.
  double old[kOfThread][kOfThread];
  for (int c = 0; c < kOfThread; ++c) {
    for (int r = 0; r < kOfThread; ++r) {
      const double* const from = j == k ? nullptr : element(r, c);
      old[r][c] = from == nullptr ? 0.0 : *from;
    }
  }
  for (int e = thread; e < kTile * kTile; e += kTileBlock) {
    const int row = e % kTile;
    const int m = e / kTile;
    left[kPitch * m + row] =
        kTile * i + row < p.n ? PanelColumn(p, i, m)[row] : 0.0;
    // Row m of X_kj, or column m of L_j.
    if (j > k) {
      right[kPitch * m + row] =
          kTile * j + row < p.n ? PanelColumn(p, j, m)[row] : 0.0;
    } else if (j == k) {
      right[kPitch * row + m] =
          kTile * k + row < p.n ? PanelColumn(p, k, m)[row] : 0.0;
    } else {
      right[kPitch * row + m] =
          kTile * k + row < p.n
              ? p.a[p.stride * (kTile * j + m) + kTile * k + row]
              : 0.0;
    }
  }
  __syncthreads();  // Both tiles are read by all.
  double sum[kOfThread][kOfThread] = {};
  if (!is_pivot) {
    AddProducts(left, right, sum);
  }
  for (int c = 0; c < kOfThread; ++c) {
    const int column = second + kProductSide * c;
    for (int r = 0; r < kOfThread; ++r) {
      const int row = first + kProductSide * r;
      if (double* const to = element(r, c)) {
        *to = is_pivot ? left[kPitch * column + row] : old[r][c] - sum[r][c];
      }
    }
  }
}

// X'X above the diagonal, transposed; diagonal tiles to the panel.
// Mapping: a block takes a tile. Order: rows ascending.
__global__ void __launch_bounds__(kTileBlock)
    CoarseSquareKernel(CoarseInverseParams p) {
  __shared__ double left[kTile * kPitch];
  __shared__ double right[kTile * kPitch];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t i = RowOfTile(blockIdx.x);
  const int64_t j = blockIdx.x - TilesBefore(i);
  double sum[kOfThread][kOfThread] = {};
  for (int64_t t = i; t < NumTiles(p.n); ++t) {
    for (int e = thread; e < kTile * kTile; e += kTileBlock) {
      const int m = e % kTile;
      const int column = e / kTile;
      const int64_t row = kTile * t + m;
      const int64_t of_i = kTile * i + column;
      const int64_t of_j = kTile * j + column;
      left[kPitch * m + column] =
          row < p.n && of_i < p.n ? p.a[p.stride * of_i + row] : 0.0;
      right[kPitch * m + column] =
          row < p.n && of_j < p.n ? p.a[p.stride * of_j + row] : 0.0;
    }
    __syncthreads();  // Both tiles are read by all.
    AddProducts(left, right, sum);
    __syncthreads();  // They have been read.
  }
  const int first = thread % kProductSide;
  const int second = thread / kProductSide;
  for (int c = 0; c < kOfThread; ++c) {
    const int column = second + kProductSide * c;
    for (int r = 0; r < kOfThread; ++r) {
      const int row = first + kProductSide * r;
      if (kTile * i + row >= p.n || kTile * j + column >= p.n) {
        continue;
      }
      if (i == j) {
        PanelColumn(p, i, column)[row] = sum[r][c];
      } else {
        p.a[p.stride * (kTile * i + row) + kTile * j + column] = sum[r][c];
      }
    }
  }
}

// The lower triangle from these. Mapping: a block takes a tile.
__global__ void __launch_bounds__(kInverseBlock)
    CoarseMirrorKernel(CoarseInverseParams p) {
  __shared__ double tile[kTile * kPitch];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t i = RowOfTile(blockIdx.x);
  const int64_t j = blockIdx.x - TilesBefore(i);
  LoadTile(p, j, i, kInverseBlock, tile);
  __syncthreads();  // The tile is read by all.
  for (int e = thread; e < kTile * kTile; e += kInverseBlock) {
    const int row = e % kTile;
    const int column = e / kTile;
    if (kTile * i + row < p.n && kTile * j + column < p.n) {
      p.a[p.stride * (kTile * j + column) + kTile * i + row] =
          i == j ? PanelColumn(p, i, column)[row] : tile[kPitch * row + column];
    }
  }
}

}  // namespace

Status Run(const CoarseInverseParams& params, CudaMachine* machine) {
  const int64_t num_tiles = NumTiles(params.n);
  const int64_t num_lower = TilesBefore(num_tiles);
  for (int64_t k = 0; k < num_tiles; ++k) {
    CERES_EXT_RETURN_IF_ERROR(Launch("CoarseColumn",
                                     CoarseColumnKernel,
                                     {num_tiles, kInverseBlock},
                                     machine->stream(),
                                     params,
                                     k));
    CERES_EXT_RETURN_IF_ERROR(
        Launch("CoarseUpdate",
               CoarseUpdateKernel,
               {num_lower - TilesBefore(k + 1) + 1, kTileBlock},
               machine->stream(),
               params,
               k));
  }
  CERES_EXT_RETURN_IF_ERROR(Launch("CoarseSquare",
                                   CoarseSquareKernel,
                                   {num_lower, kTileBlock},
                                   machine->stream(),
                                   params));
  return Launch("CoarseMirror",
                CoarseMirrorKernel,
                {num_lower, kInverseBlock},
                machine->stream(),
                params);
}

}  // namespace ceres_ext::kernels
