// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/ops/cluster_vectors.h"

#include <cuda_runtime.h>

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_machine.h"

namespace ceres_ext::kernels {
namespace {

// A warp for each vector.
constexpr int kClusterBlock = kWarpSize * kCoarseVectors;
// In shared memory: vectors, B times them, pivots and the diagonal.
constexpr int kValuesPerRow = 2 * kCoarseVectors + 2;
constexpr int kNumSteps = 2;
constexpr double kShift = 1e-10;
// The rest of a vector, squared, below which it is a combination of those
// before it.
constexpr double kLeast = 1e-12;

__device__ bool IsPositive(double x) { return x > 0.0 && x <= DBL_MAX; }

// A cluster in a block: N, whose lower triangle becomes its factor, and in
// shared memory the vectors, column by column, and B times them.
struct Cluster {
  int n = 0;
  int begin = 0;
  double* matrix = nullptr;
  double* x = nullptr;
  double* bx = nullptr;

  // The upper triangle stays as it is.
  __device__ double Given(int i, int j) const {
    return matrix[int64_t{n} * (i > j ? i : j) + (i > j ? j : i)];
  }
  __device__ double& Factor(int i, int j) const {
    return matrix[int64_t{n} * j + i];
  }
};

// Columns of N that are factorised at a time, so that L is read once for all.
constexpr int kPanel = 8;

// The block of a panel on the diagonal, in shared memory.
struct PanelBlock {
  double l[kPanel][kPanel];  // lower, without its diagonal
  double pivot[kPanel];      // of L, squared; not positive: there is none
  double scale[kPanel];      // 1 / the diagonal of L
};

// L of a panel's block of `width` columns, by one thread.
__device__ void FactorizeBlock(int width, PanelBlock* block) {
  for (int j = 0; j < width; ++j) {
    double value = block->pivot[j];
    for (int k = 0; k < j; ++k) {
      value -= block->l[j][k] * block->l[j][k];
    }
    block->pivot[j] = value;
    if (!IsPositive(value)) {
      return;
    }
    block->scale[j] = 1.0 / sqrt(value);
    for (int i = j + 1; i < width; ++i) {
      double rest = block->l[i][j];
      for (int k = 0; k < j; ++k) {
        rest -= block->l[i][k] * block->l[j][k];
      }
      block->l[i][j] = rest * block->scale[j];
    }
  }
}

// N (1 + shift on its diagonal) = L L', by panels of columns; the diagonal of L
// to pivot, shared. False: it is not positive definite. rows: kPanel n values,
// shared.
// Mapping: threads share the rows of a panel. Order: columns ascending.
__device__ bool Factorize(const Cluster& c,
                          double shift,
                          const double* diagonal,
                          double* rows,
                          double* pivot) {
  __shared__ PanelBlock block;
  const int thread = static_cast<int>(threadIdx.x);
  for (int first = 0; first < c.n; first += kPanel) {
    const int width = c.n - first < kPanel ? c.n - first : kPanel;
    for (int e = thread; e < kPanel * first; e += kClusterBlock) {
      const int a = e % kPanel;
      rows[e] = a < width ? c.Factor(first + a, e / kPanel) : 0.0;
    }
    __syncthreads();  // Rows of L before the panel are read by all.
    for (int i = first + thread; i < c.n; i += kClusterBlock) {
      double value[kPanel];
      for (int a = 0; a < kPanel; ++a) {
        const int j = first + a;
        value[a] = i > j && a < width ? c.Given(i, j)
                   : i == j           ? diagonal[j] * (1.0 + shift)
                                      : 0.0;
      }
#pragma unroll 4
      for (int k = 0; k < first; ++k) {
        const double factor = c.Factor(i, k);
        for (int a = 0; a < kPanel; ++a) {
          value[a] -= factor * rows[kPanel * k + a];
        }
      }
      for (int a = 0; a < width && first + a <= i; ++a) {
        if (i == first + a) {
          block.pivot[a] = value[a];
        } else if (i < first + width) {
          block.l[i - first][a] = value[a];
        } else {
          c.Factor(i, first + a) = value[a];
        }
      }
    }
    __syncthreads();  // The block is of several threads.
    if (thread == 0) {
      FactorizeBlock(width, &block);
    }
    __syncthreads();  // It is read by all.
    for (int a = 0; a < width; ++a) {
      if (!IsPositive(block.pivot[a])) {
        return false;  // All threads leave.
      }
    }
    for (int i = first + thread; i < c.n; i += kClusterBlock) {
      for (int a = 0; a < width && first + a <= i; ++a) {
        if (i == first + a) {
          pivot[i] = 1.0 / block.scale[a];
        } else if (i < first + width) {
          c.Factor(i, first + a) = block.l[i - first][a];
        } else {
          double value = c.Factor(i, first + a);
          for (int k = 0; k < a; ++k) {
            value -= c.Factor(i, first + k) * block.l[a][k];
          }
          c.Factor(i, first + a) = value * block.scale[a];
        }
      }
    }
    __syncthreads();  // The next panel reads L, and writes rows and the block.
  }
  return true;
}

// x = N^-1 x, of the warp's vector.
__device__ void Solve(const Cluster& c, const double* pivot, double* x) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  for (int j = 0; j < c.n; ++j) {
    const double scaled = x[j] / pivot[j];
    for (int i = j + 1 + lane; i < c.n; i += kWarpSize) {
      x[i] -= c.Factor(i, j) * scaled;
    }
    __syncwarp();  // x[j + 1] is another lane's.
  }
  for (int j = lane; j < c.n; j += kWarpSize) {
    x[j] /= pivot[j];
  }
  __syncwarp();  // As above.
  for (int j = c.n - 1; j >= 0; --j) {
    double sum = 0.0;
    for (int i = j + 1 + lane; i < c.n; i += kWarpSize) {
      sum += c.Factor(i, j) * x[i];
    }
    sum = WarpSum(sum);
    if (lane == 0) {
      x[j] = (x[j] - sum) / pivot[j];
    }
    __syncwarp();  // As above.
  }
}

// y = B x. Mapping: `count` threads, of which this is number `thread`.
__device__ void MultiplyByBlocks(const ClusterVectorsParams& p,
                                 const Cluster& c,
                                 int thread,
                                 int count,
                                 const double* x,
                                 double* y) {
  for (int i = thread; i < c.n; i += count) {
    const int first = p.block_first[c.begin + i] - c.begin;
    const double* const b =
        p.b + int64_t{ClusterBlocksParams::kWidth} * (c.begin + i);
    double sum = 0.0;
    for (int j = 0; j < p.block_size[c.begin + i]; ++j) {
      sum += b[j] * x[first + j];
    }
    y[i] = sum;
  }
}

// The sum of x[i] y[i], in all lanes of a warp.
__device__ double WarpDot(int n, const double* x, const double* y) {
  double sum = 0.0;
  for (int i = static_cast<int>(threadIdx.x) % kWarpSize; i < n;
       i += kWarpSize) {
    sum += x[i] * y[i];
  }
  return WarpSum(sum);
}

// Makes the vectors B-orthonormal, twice by Gram and Schmidt's procedure.
// Mapping: a warp takes the projection on one vector, then all threads share
// the rows.
__device__ void Orthonormalize(const ClusterVectorsParams& p,
                               const Cluster& c,
                               int num_vectors,
                               double* dots) {
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize;
  for (int a = 0; a < num_vectors; ++a) {
    double* const x = c.x + c.n * a;
    double* const bx = c.bx + c.n * a;
    MultiplyByBlocks(p, c, thread, kClusterBlock, x, bx);
    __syncthreads();  // B x is read by all.
    double norm = WarpDot(c.n, x, bx);
    bool is_there = IsPositive(norm);
    for (int pass = 0; pass < 2 && is_there; ++pass) {
      if (warp < a) {
        const double dot = WarpDot(c.n, c.bx + c.n * warp, x);
        if (thread % kWarpSize == 0) {
          dots[warp] = dot;
        }
      }
      __syncthreads();  // The projections of all warps.
      for (int i = thread; i < c.n; i += kClusterBlock) {
        double value = x[i];
        for (int b = 0; b < a; ++b) {
          value -= dots[b] * c.x[c.n * b + i];
        }
        x[i] = value;
      }
      __syncthreads();  // x is read by all.
      MultiplyByBlocks(p, c, thread, kClusterBlock, x, bx);
      __syncthreads();  // As is B x.
      const double left = WarpDot(c.n, x, bx);
      is_there = left > kLeast * norm;
      norm = left;
    }
    __syncthreads();  // All have read x and B x.
    const double scale = is_there ? 1.0 / sqrt(norm) : 0.0;
    for (int i = thread; i < c.n; i += kClusterBlock) {
      x[i] = is_there ? scale * x[i] : 0.0;
      bx[i] = is_there ? scale * bx[i] : 0.0;
    }
    __syncthreads();  // As above.
  }
}

// Mapping: a block takes a cluster, a warp of it a vector. Order: fixed by the
// mapping. Traffic: the factor of each cluster n / 24 times from L2, and 48
// times for its solves.
__global__ void __launch_bounds__(kClusterBlock)
    ClusterVectorsKernel(ClusterVectorsParams p) {
  CERES_EXT_DYNAMIC_SHARED(shared);
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize;
  const int64_t cluster = blockIdx.x;
  Cluster c;
  c.begin = p.matrices.begin[cluster];
  c.n = p.matrices.begin[cluster + 1] - c.begin;
  c.matrix = p.matrices.values + p.matrices.matrix_begin[cluster];
  c.x = reinterpret_cast<double*>(shared);
  c.bx = c.x + kCoarseVectors * p.max_size;
  double* const pivot = c.bx + kCoarseVectors * p.max_size;
  double* const diagonal = pivot + p.max_size;
  double* const rows = c.x;  // while there are no vectors
  double* const dots = diagonal + p.max_size;
  for (int i = thread; i < c.n; i += kClusterBlock) {
    diagonal[i] = c.Factor(i, i);
  }
  __syncthreads();  // The diagonal is read by all.
  const int num_vectors = c.n < kCoarseVectors ? c.n : kCoarseVectors;
  bool has_factor = Factorize(c, 0.0, diagonal, rows, pivot);
  __syncthreads();  // Before rows and pivot are written again.
  if (!has_factor) {
    has_factor = Factorize(c, kShift, diagonal, rows, pivot);
    __syncthreads();  // As above.
  }
  for (int i = thread; i < kCoarseVectors * c.n; i += kClusterBlock) {
    c.x[i] = has_factor && i < num_vectors * c.n
                 ? CoarseRandom(static_cast<uint64_t>(cluster),
                                static_cast<uint64_t>(i))
                 : 0.0;
  }
  __syncthreads();  // Vectors are read by their warps.
  for (int step = 0; step < kNumSteps && has_factor; ++step) {
    if (warp < num_vectors) {
      double* const x = c.x + c.n * warp;
      double* const bx = c.bx + c.n * warp;
      const int lane = thread % kWarpSize;
      MultiplyByBlocks(p, c, lane, kWarpSize, x, bx);
      __syncwarp();  // B x is read by other lanes.
      for (int i = lane; i < c.n; i += kWarpSize) {
        x[i] = bx[i];
      }
      __syncwarp();  // As is x.
      Solve(c, pivot, x);
    }
    __syncthreads();  // Vectors are read by all.
    Orthonormalize(p, c, num_vectors, dots);
  }
  for (int i = thread; i < kCoarseVectors * c.n; i += kClusterBlock) {
    const int t = i / kCoarseVectors;
    const int a = i - kCoarseVectors * t;
    p.p[int64_t{kCoarseVectors} * (c.begin + t) + a] = c.x[c.n * a + t];
  }
}

}  // namespace

int32_t MaxClusterSize(CudaMachine* machine) {
  constexpr int64_t kRow = kValuesPerRow * static_cast<int64_t>(sizeof(double));
  return static_cast<int32_t>(
      machine->context()->shared_memory_per_block() / kRow - 1);
}

Status Run(const ClusterVectorsParams& params, CudaMachine* machine) {
  constexpr int64_t kDouble = sizeof(double);
  const int64_t num_values =
      int64_t{kValuesPerRow} * params.max_size + kCoarseVectors;
  return Launch(
      "ClusterVectors",
      ClusterVectorsKernel,
      {params.matrices.num_clusters, kClusterBlock, num_values * kDouble},
      machine->stream(),
      params);
}

}  // namespace ceres_ext::kernels
