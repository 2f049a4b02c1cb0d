// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Vectors of a second level (coarse_space.h) on a device: of each cluster's
// system N the lowest of N x = lambda B x, by two steps of subspace iteration
// from random vectors. On the host: FindCoarseVectors.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_CLUSTER_VECTORS_H_
#define CERES_EXT_CUDA_KERNELS_OPS_CLUSTER_VECTORS_H_

#include <cstdint>

#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/model/shape.h"
#include "cuda_kernels/ops/coarse_space.h"
#include "cuda_kernels/ops/vector_operation.h"
#include "cuda_kernels/structure/block_families.h"

namespace ceres_ext::kernels {

class CudaMachine;

// The systems of all clusters, whose unknowns are in the order of P. For a
// cluster of n unknowns N has n columns of n values, with both triangles.
struct ClusterMatricesRef {
  int32_t num_clusters = 0;
  const int32_t* begin = nullptr;         // of each in the order, and the end
  const int64_t* matrix_begin = nullptr;  // of each in values, and the end
  double* values = nullptr;
};

// N = scale (N + N' - diag N): of elements beside the diagonal one of two has
// been written, and the other is zero. Mapping: a thread takes a row of the
// lower triangle.
struct CompleteClustersParams {
  static constexpr int kUnroll = 1;
  int64_t n = 0;                     // unknowns
  const int32_t* cluster = nullptr;  // of each in the order
  double scale = 1.0;
  ClusterMatricesRef to;

  CERES_EXT_HOST_DEVICE void Apply(int64_t t) const {
    const int32_t c = cluster[t];
    const int64_t size = to.begin[c + 1] - to.begin[c];
    const int64_t i = t - to.begin[c];
    double* const matrix = to.values + to.matrix_begin[c];
    for (int64_t j = 0; j < i; ++j) {
      const double value =
          scale * (matrix[size * i + j] + matrix[size * j + i]);
      matrix[size * i + j] = value;
      matrix[size * j + i] = value;
    }
    matrix[(size + 1) * i] *= scale;
  }
};

// Adds D^2 to the diagonals of N, and writes B, the blocks of the block
// diagonal with D^2: kWidth values for each unknown, those of its block from
// `first` on. N of a cluster of one block is B, so that its vectors are those
// of all directions.
struct ClusterBlocksParams {
  static constexpr int kUnroll = 1;
  static constexpr int kWidth = kMaxStoredColumns;
  int64_t n = 0;                     // blocks
  int32_t columns = 0;               // of a block, kWidth at most
  const int32_t* place = nullptr;    // of each column of each block; -1: none
  const int32_t* cluster = nullptr;  // of each in the order
  BlockArray<const double> blocks;   // packed
  const double* diagonal = nullptr;  // D of the columns; null: zero
  ClusterMatricesRef to;
  int32_t* block_first = nullptr;  // of each in the order
  int32_t* block_size = nullptr;   // of each in the order
  double* b = nullptr;

  CERES_EXT_HOST_DEVICE void Apply(int64_t block) const {
    const int32_t* const of_block = place + columns * block;
    // Unknowns of a block stand one after the other.
    int32_t begin = -1;
    int32_t count = 0;
    for (int i = 0; i < columns; ++i) {
      if (of_block[i] >= 0) {
        begin = begin < 0 ? of_block[i] : begin;
        ++count;
      }
    }
    for (int i = 0; i < columns; ++i) {
      const int32_t t = of_block[i];
      if (t < 0) {
        continue;
      }
      const double d =
          diagonal == nullptr ? 0.0 : diagonal[columns * block + i];
      const int32_t c = cluster[t];
      const int64_t n = to.begin[c + 1] - to.begin[c];
      to.values[to.matrix_begin[c] + (n + 1) * (t - to.begin[c])] += d * d;
      block_first[t] = begin;
      block_size[t] = count;
      int at = 0;
      for (int j = 0; j < columns; ++j) {
        if (of_block[j] < 0) {
          continue;
        }
        const double value =
            blocks(block, i >= j ? PackedIndex(i, j) : PackedIndex(j, i)) +
            (i == j ? d * d : 0.0);
        if (n == count) {
          to.values[to.matrix_begin[c] + n * (t - to.begin[c]) + at] = value;
        }
        b[int64_t{kWidth} * t + at++] = value;
      }
    }
  }
};

// p = kCoarseVectors values of each unknown in the order, B-orthonormal in each
// cluster; zeros where N is not positive definite or there are fewer vectors.
// N is overwritten.
struct ClusterVectorsParams {
  ClusterMatricesRef matrices;
  int32_t max_size = 0;  // unknowns of a cluster, MaxClusterSize at most
  const int32_t* block_first = nullptr;  // ClusterBlocksParams
  const int32_t* block_size = nullptr;
  const double* b = nullptr;
  double* p = nullptr;
};

// Unknowns of a cluster at most, by the shared memory of a block: 314 where
// that is 64 KB, 1116 on an H200.
int32_t MaxClusterSize(CudaMachine* machine);
Status Run(const ClusterVectorsParams& params, CudaMachine* machine);

// The k-th of the random numbers of a cluster, from -1 to 1 (S. Vigna's
// splitmix64).
CERES_EXT_HOST_DEVICE inline double CoarseRandom(uint64_t cluster, uint64_t k) {
  uint64_t z = cluster + (k + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-52 - 1.0;
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_CLUSTER_VECTORS_H_
