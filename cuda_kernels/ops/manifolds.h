// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Blocks with manifolds (model/manifold.h) in Ceres's vectors:
//
//   PlusManifolds                  state (+) delta
//   ManifoldTangents               the derivatives at a state
//   GatherValues, ScatterValues    values of blocks that the host moves
//   ApplyPointTangents             Jp T_p
//
// Vector operations (ops/vector_operation.h) without sums: the same bits in
// every run, and on every machine except for sines and cosines.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_MANIFOLDS_H_
#define CERES_EXT_CUDA_KERNELS_OPS_MANIFOLDS_H_

#include <cstdint>

#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/model/manifold.h"
#include "cuda_kernels/ops/vector_operation.h"

namespace ceres_ext::kernels {

// A block of a state, which moves as the product of some factors. Its matrix is
// the derivative by its tangent, in rows of matrix_stride values: zero beyond
// the columns of the tangent.
struct ManifoldBlock {
  int32_t state_offset = 0;  // -1: it has no place and does not move
  int32_t tangent_offset = 0;
  int32_t first_factor = 0;
  int32_t num_factors = 0;
  int32_t matrix_stride = 0;
  int64_t matrix_begin = 0;
};

// state_plus_delta = state (+) delta in the blocks; nothing else in
// state_plus_delta changes. It may be `state`.
// Mapping: a thread per block. Traffic: 32 B per block, 16 B per value and 8 B
// per column; factors are shared by blocks.
struct PlusManifoldsParams {
  int64_t n = 0;
  const ManifoldBlock* blocks = nullptr;  // n
  const ManifoldFactor* factors = nullptr;
  const double* state = nullptr;
  const double* delta = nullptr;
  double* state_plus_delta = nullptr;

  static constexpr int kUnroll = 1;

  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    const ManifoldBlock& block = blocks[i];
    if (block.state_offset < 0) {
      return;
    }
    int64_t at = block.state_offset;
    int64_t column = block.tangent_offset;
    for (int f = 0; f < block.num_factors; ++f) {
      const ManifoldFactor factor = factors[block.first_factor + f];
      Plus(factor, state + at, delta + column, state_plus_delta + at);
      at += factor.size;
      column += factor.tangent_size();
    }
  }
};

// The matrices of the blocks: of their linear factors, which need no state, or
// of the others. Elements that are zero at any state are not written. Mapping:
// a thread per block. Traffic: 32 B per block, and its part of state and
// matrices, 128 B for a quaternion.
struct ManifoldTangentsParams {
  int64_t n = 0;
  const ManifoldBlock* blocks = nullptr;  // n
  const ManifoldFactor* factors = nullptr;
  bool linear = false;
  const double* state = nullptr;  // null if `linear`
  double* tangents = nullptr;

  static constexpr int kUnroll = 1;

  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const {
    const ManifoldBlock& block = blocks[i];
    double* matrix = tangents + block.matrix_begin;
    int64_t at = block.state_offset;
    for (int f = 0; f < block.num_factors; ++f) {
      const ManifoldFactor factor = factors[block.first_factor + f];
      if (factor.is_linear() == linear) {
        PlusJacobian(
            factor, linear ? nullptr : state + at, block.matrix_stride, matrix);
      }
      at += factor.size;
      matrix +=
          int64_t{factor.size} * block.matrix_stride + factor.tangent_size();
    }
  }
};

// y_i = x at index[i].
// Traffic: 24 B per value.
struct GatherValuesParams {
  int64_t n = 0;
  const int64_t* index = nullptr;  // n
  const double* x = nullptr;
  double* y = nullptr;  // n

  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const { y[i] = x[index[i]]; }
};

// y at index[i] = x_i; nothing else in y changes. No index occurs twice.
// Traffic: 24 B per value.
struct ScatterValuesParams {
  int64_t n = 0;
  const int64_t* index = nullptr;  // n
  const double* x = nullptr;       // n
  double* y = nullptr;

  CERES_EXT_HOST_DEVICE void Apply(int64_t i) const { y[index[i]] = x[i]; }
};

// Jp_k = Jp_k T_p with p = point_id[k]; computed in double and rounded once.
// Traffic per observation: 2 x 6 sizeof(T) + 4 B, and 72 B per point.
template <typename T, BlockLayout kLayout>
struct ApplyPointTangentsParams {
  int64_t n = 0;
  const int32_t* point_id = nullptr;  // n
  const double* tangents = nullptr;   // 3 x 3 per point, row-major
  BlockRef<T, 6, kLayout> point_blocks;

  CERES_EXT_HOST_DEVICE void Apply(int64_t k) const {
    const double* t = tangents + int64_t{9} * point_id[k];
    for (int row = 0; row < 6; row += 3) {
      const double a = point_blocks(k, row);
      const double b = point_blocks(k, row + 1);
      const double c = point_blocks(k, row + 2);
      for (int j = 0; j < 3; ++j) {
        point_blocks(k, row + j) = static_cast<T>(UnfusedProduct(a, t[j]) +
                                                  UnfusedProduct(b, t[3 + j]) +
                                                  UnfusedProduct(c, t[6 + j]));
      }
    }
  }
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_MANIFOLDS_H_
