// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/machine/cuda_small_cholesky.h"

#include <cmath>

#include "cuda_kernels/machine/cuda_launch.cuh"

namespace ceres_ext::kernels {
namespace {

// The triangle is in square blocks, one block row after the other; those that
// stick out have the rows of the identity. A warp has a block at a time.
constexpr int kEdge = 16;
constexpr int kEdgeSquared = kEdge * kEdge;
constexpr int kSmallThreads = 512;
constexpr int kSmallWarps = kSmallThreads / kWarpSize;
constexpr int kMostBlockRows = 14;

CERES_EXT_HOST_DEVICE constexpr int NumBlocksOf(int block_rows) {
  return block_rows * (block_rows + 1) / 2;
}

// The inverses of the diagonal and the vector are behind the blocks.
int64_t SmallBytes(int64_t block_rows) {
  return static_cast<int64_t>(sizeof(double)) *
         (NumBlocksOf(static_cast<int>(block_rows)) * kEdgeSquared +
          2 * block_rows * kEdge);
}

__device__ __forceinline__ double* BlockAt(double* blocks, int i, int j) {
  return blocks + (NumBlocksOf(i) + j) * kEdgeSquared;
}

// Place of an element in a block: pairs of columns stay together, and those of
// eight rows are in different banks.
__device__ __forceinline__ int Place(int row, int column) {
  return row * kEdge + ((((column >> 1) ^ (row & 7)) << 1) | (column & 1));
}

// The pair of columns 2 p and 2 p + 1 of a row.
__device__ __forceinline__ double2 PairAt(const double* block, int row, int p) {
  return *reinterpret_cast<const double2*>(block + row * kEdge +
                                           ((p ^ (row & 7)) << 1));
}

// x^-1/2 within some units of the last place; not finite for subnormal x.
__device__ __forceinline__ double InverseRoot(double x) {
#ifdef __CUDACC__
  // 20 bits, then a step of third order, without a branch.
  double root;
  asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(root) : "d"(x));
  const double error = fma(-x * root, root, 1.0);
  return fma(root * error, fma(0.375, error, 0.5), root);
#else
  return 1.0 / std::sqrt(x);
#endif
}

// The block row and column of block b of a triangle.
__device__ __forceinline__ void PlaceOfBlock(int b, int* i, int* j) {
  *i = 0;
  while (b > *i) {
    b -= ++*i;
  }
  *j = b;
}

__device__ void LoadTriangle(
    int n, int64_t stride, const double* a, int block_rows, double* blocks) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int row = lane % kEdge;
  for (int b = static_cast<int>(threadIdx.x) / kWarpSize;
       b < NumBlocksOf(block_rows);
       b += kSmallWarps) {
    int i, j;
    PlaceOfBlock(b, &i, &j);
    double* const block = blocks + b * kEdgeSquared;
    const int r = kEdge * i + row;
    for (int column = lane / kEdge; column < kEdge;
         column += kWarpSize / kEdge) {
      const int c = kEdge * j + column;
      block[Place(row, column)] =
          r < n && c < n && c <= r ? a[c * stride + r] : (r == c ? 1.0 : 0.0);
    }
  }
}

// By one warp: a diagonal block becomes its factor, with zeros above it, and
// inverse the inverses of its diagonal. Returns the first column whose pivot
// isn't positive, or kEdge.
__device__ int FactorizeBlock(double* block, double* inverse) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int row = lane % kEdge;
  int failed = kEdge;
  double l[kEdge];
#pragma unroll
  for (int c = 0; c < kEdge; ++c) {
    l[c] = block[Place(row, c)];
  }
  double pivot;
  double root;
  const auto find_pivot = [&](int j) {
    pivot = __shfl_sync(kFullWarp, l[j], j);
    if (!(pivot > 0.0)) {
      failed = failed < j ? failed : j;
      pivot = 1.0;
    }
    root = InverseRoot(pivot);
  };
  find_pivot(0);
#pragma unroll
  for (int j = 0; j < kEdge; ++j) {
    l[j] = row == j ? pivot * root : l[j] * root;
    if (lane == j) {
      inverse[j] = root;
    }
    // The next pivot first: all else can be done while its root is computed.
    if (j + 1 < kEdge) {
      l[j + 1] -= l[j] * __shfl_sync(kFullWarp, l[j], j + 1);
      find_pivot(j + 1);
    }
#pragma unroll
    for (int c = j + 2; c < kEdge; ++c) {
      l[c] -= l[j] * __shfl_sync(kFullWarp, l[j], c);
    }
  }
  // Both halves of the warp have read the block.
  __syncwarp();
  if (lane < kEdge) {
#pragma unroll
    for (int c = 0; c < kEdge; ++c) {
      block[Place(row, c)] = c <= row ? l[c] : 0.0;
    }
  }
  __syncwarp();
  return failed;
}

// By one warp: c -= a b'.
__device__ void SubtractProduct(const double* a, const double* b, double* c) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int row = lane / 8;
  const int column = lane % 8;
  double sums[4][2];
#pragma unroll
  for (int r = 0; r < 4; ++r) {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      sums[r][s] = c[Place(row + 4 * r, column + 8 * s)];
    }
  }
#pragma unroll
  for (int p = 0; p < kEdge / 2; ++p) {
    double2 left[4];
    double2 right[2];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      left[r] = PairAt(a, row + 4 * r, p);
    }
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      right[s] = PairAt(b, column + 8 * s, p);
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int s = 0; s < 2; ++s) {
        sums[r][s] -= left[r].x * right[s].x;
        sums[r][s] -= left[r].y * right[s].y;
      }
    }
  }
#pragma unroll
  for (int r = 0; r < 4; ++r) {
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      c[Place(row + 4 * r, column + 8 * s)] = sums[r][s];
    }
  }
}

// By one thread: x becomes L^-1 x, L a factorised block with inverses of its
// diagonal. By pairs of columns, whose products with all that follow are
// independent.
__device__ void Substitute(const double* l,
                           const double* inverse,
                           double (&x)[kEdge]) {
#pragma unroll
  for (int p = 0; p < kEdge / 2; ++p) {
    x[2 * p] *= inverse[2 * p];
    x[2 * p + 1] -= x[2 * p] * l[Place(2 * p + 1, 2 * p)];
    x[2 * p + 1] *= inverse[2 * p + 1];
#pragma unroll
    for (int j = 2 * p + 2; j < kEdge; ++j) {
      const double2 pair = PairAt(l, j, p);
      x[j] -= x[2 * p] * pair.x;
      x[j] -= x[2 * p + 1] * pair.y;
    }
  }
}

// By one thread: its row x of a block becomes x L'^-1.
__device__ void SolveRow(const double* l,
                         const double* inverse,
                         int row,
                         double* block) {
  double x[kEdge];
#pragma unroll
  for (int p = 0; p < kEdge / 2; ++p) {
    const double2 pair = PairAt(block, row, p);
    x[2 * p] = pair.x;
    x[2 * p + 1] = pair.y;
  }
  Substitute(l, inverse, x);
#pragma unroll
  for (int c = 0; c < kEdge; ++c) {
    block[Place(row, c)] = x[c];
  }
}

// Mapping: one block; a warp per block of the triangle, a thread per row of a
// panel. The first warp factorises the next diagonal block while the others
// subtract the products of a panel. Traffic: the triangle, read and written.
__global__ void __launch_bounds__(kSmallThreads)
    SmallFactorizationKernel(int n, int64_t stride, double* a, int32_t* info) {
  CERES_EXT_DYNAMIC_SHARED(memory);
  double* const blocks = reinterpret_cast<double*>(memory);
  const int block_rows = (n + kEdge - 1) / kEdge;
  double* const inverse = blocks + NumBlocksOf(block_rows) * kEdgeSquared;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize;
  LoadTriangle(n, stride, a, block_rows, blocks);
  __syncthreads();
  int failed = 0;
  const auto factorize = [&](int k) {
    const int column =
        FactorizeBlock(BlockAt(blocks, k, k), inverse + kEdge * k);
    if (column < kEdge && failed == 0) {
      failed = kEdge * k + column + 1;
    }
  };
  if (warp == 0) {
    factorize(0);
  }
  __syncthreads();
  for (int k = 0; k + 1 < block_rows; ++k) {
    const int first = k + 1;
    const int num_rows = kEdge * (block_rows - first);
    if (thread < num_rows) {
      SolveRow(BlockAt(blocks, k, k),
               inverse + kEdge * k,
               thread % kEdge,
               BlockAt(blocks, first + thread / kEdge, k));
    }
    __syncthreads();
    const auto subtract = [&](int i, int j) {
      SubtractProduct(
          BlockAt(blocks, i, k), BlockAt(blocks, j, k), BlockAt(blocks, i, j));
    };
    if (warp == 0) {
      subtract(first, first);
      __syncwarp();
      factorize(first);
    } else {
      for (int b = warp; b < NumBlocksOf(block_rows - first);
           b += kSmallWarps - 1) {
        int i, j;
        PlaceOfBlock(b, &i, &j);
        subtract(first + i, first + j);
      }
    }
    __syncthreads();
  }
  for (int b = warp; b < NumBlocksOf(block_rows); b += kSmallWarps) {
    int i, j;
    PlaceOfBlock(b, &i, &j);
    const double* const block = blocks + b * kEdgeSquared;
    const int lane = thread % kWarpSize;
    const int r = kEdge * i + lane % kEdge;
    for (int column = lane / kEdge; column < kEdge;
         column += kWarpSize / kEdge) {
      const int c = kEdge * j + column;
      if (r < n && c <= r) {
        a[c * stride + r] = block[Place(lane % kEdge, column)];
      }
    }
  }
  if (thread == 0) {
    *info = failed;
  }
}

// By one warp: a factorised block becomes its inverse, a lower triangle.
// inverse: room for those of its diagonal.
__device__ void InvertBlock(double* block, double* inverse) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int column = lane % kEdge;
  if (lane < kEdge) {
    inverse[lane] = 1.0 / block[Place(lane, lane)];
  }
  __syncwarp();
  double x[kEdge];
#pragma unroll
  for (int i = 0; i < kEdge; ++i) {
    x[i] = i == column ? 1.0 : 0.0;
  }
  Substitute(block, inverse, x);
  __syncwarp();
  if (lane < kEdge) {
#pragma unroll
    for (int i = 0; i < kEdge; ++i) {
      block[Place(i, column)] = i < column ? 0.0 : x[i];
    }
  }
}

// Mapping: one block; the first warp multiplies by the inverse of a diagonal
// block, two lanes a row, then a thread per row that is left subtracts its
// part. Traffic: the triangle, read; x, read and written.
__global__ void __launch_bounds__(kSmallThreads)
    SmallSolutionKernel(int n, int64_t stride, const double* a, double* x) {
  CERES_EXT_DYNAMIC_SHARED(memory);
  double* const blocks = reinterpret_cast<double*>(memory);
  const int block_rows = (n + kEdge - 1) / kEdge;
  double* const inverse = blocks + NumBlocksOf(block_rows) * kEdgeSquared;
  double* const y = inverse + kEdge * block_rows;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize;
  LoadTriangle(n, stride, a, block_rows, blocks);
  if (thread < kEdge * block_rows) {
    y[thread] = thread < n ? x[thread] : 0.0;
  }
  __syncthreads();
  if (warp < block_rows) {
    InvertBlock(BlockAt(blocks, warp, warp), inverse + kEdge * warp);
  }
  __syncthreads();
  const int row = thread % kWarpSize / 2;
  const int half = thread % 2 * (kEdge / 2);
  // y_k = L_kk^-1 y_k, or its transpose.
  const auto multiply = [&](int k, bool transposed) {
    const double* const block = BlockAt(blocks, k, k);
    double sum = 0.0;
#pragma unroll
    for (int c = 0; c < kEdge / 2; ++c) {
      sum += block[transposed ? Place(half + c, row) : Place(row, half + c)] *
             y[kEdge * k + half + c];
    }
    sum += __shfl_xor_sync(kFullWarp, sum, 1);
    __syncwarp();
    if (half == 0) {
      y[kEdge * k + row] = sum;
    }
  };
  for (int k = 0; k < block_rows; ++k) {
    if (warp == 0) {
      multiply(k, /*transposed=*/false);
    }
    __syncthreads();
    const int r = kEdge * (k + 1) + thread;
    if (r < kEdge * block_rows) {
      const double* const block = BlockAt(blocks, r / kEdge, k);
      double sum = 0.0;
#pragma unroll
      for (int p = 0; p < kEdge / 2; ++p) {
        const double2 pair = PairAt(block, r % kEdge, p);
        sum += pair.x * y[kEdge * k + 2 * p];
        sum += pair.y * y[kEdge * k + 2 * p + 1];
      }
      y[r] -= sum;
    }
    __syncthreads();
  }
  for (int k = block_rows - 1; k >= 0; --k) {
    if (warp == 0) {
      multiply(k, /*transposed=*/true);
    }
    __syncthreads();
    if (thread < kEdge * k) {
      const double* const block = BlockAt(blocks, k, thread / kEdge);
      double sum = 0.0;
#pragma unroll
      for (int r = 0; r < kEdge; ++r) {
        sum += block[Place(r, thread % kEdge)] * y[kEdge * k + r];
      }
      y[thread] -= sum;
    }
    __syncthreads();
  }
  if (thread < n) {
    x[thread] = y[thread];
  }
}

}  // namespace

int64_t MostRowsOfSmallCholesky(const CudaContext& context) {
  int block_rows = kMostBlockRows;
  while (block_rows > 0 &&
         SmallBytes(block_rows) > context.shared_memory_per_block()) {
    --block_rows;
  }
  return kEdge * block_rows;
}

Status QueueSmallFactorization(
    int64_t n, int64_t stride, double* a, int32_t* info, CudaMachine* machine) {
  return Launch("SmallFactorizationKernel",
                SmallFactorizationKernel,
                {1, kSmallThreads, SmallBytes(CeilDivide(n, kEdge))},
                machine->stream(),
                static_cast<int>(n),
                stride,
                a,
                info);
}

Status QueueSmallSolution(int64_t n,
                          int64_t stride,
                          const double* a,
                          double* x,
                          CudaMachine* machine) {
  return Launch("SmallSolutionKernel",
                SmallSolutionKernel,
                {1, kSmallThreads, SmallBytes(CeilDivide(n, kEdge))},
                machine->stream(),
                static_cast<int>(n),
                stride,
                a,
                x);
}

}  // namespace ceres_ext::kernels
