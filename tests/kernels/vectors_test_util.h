// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Inputs for the tests of the operations on vectors.
#ifndef CERES_EXT_TESTS_KERNELS_VECTORS_TEST_UTIL_H_
#define CERES_EXT_TESTS_KERNELS_VECTORS_TEST_UTIL_H_

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "cuda_kernels/base/vector_sums.h"
#include "cuda_kernels/ops/block_table.h"
#include "cuda_kernels/ops/robust_losses.h"
#include "tests/kernels/random_vector.h"

namespace ceres_ext::kernels {

inline constexpr int64_t kVectorSizes[] = {0, 1, 31, 32, 33, 1000, 100000};

// Blocks of tangent sizes 0 to padded_size that lie in a tangent vector and a
// state in reverse order, with gaps. Every seventh block is constant.
struct TestTable {
  TestTable(int32_t num_blocks, int32_t padded_size, int32_t ambient_size)
      : num_blocks(num_blocks),
        padded_size(padded_size),
        ambient_size(ambient_size) {
    tangent_offset.resize(static_cast<size_t>(num_blocks), -1);
    tangent_size.resize(static_cast<size_t>(num_blocks), 0);
    state_offset.resize(static_cast<size_t>(num_blocks), -1);
    for (int32_t i = num_blocks - 1; i >= 0; --i) {
      if (i % 7 == 6) {
        continue;
      }
      tangent_size[i] = padded_size - i % (padded_size + 1);
      tangent_offset[i] = tangent_values + 1;
      state_offset[i] = state_values + 2;
      tangent_values += tangent_size[i] + 1;
      state_values += ambient_size + 2;
    }
    for (int32_t i = 0; i < num_blocks * ambient_size; ++i) {
      constant_values.push_back(0.25 * i);
    }
  }

  BlockTableRef ref() const {
    return {num_blocks,
            padded_size,
            ambient_size,
            tangent_offset.data(),
            tangent_size.data(),
            state_offset.data(),
            constant_values.data()};
  }

  int32_t num_blocks;
  int32_t padded_size;
  int32_t ambient_size;
  int32_t tangent_values = 0;
  int32_t state_values = 0;
  std::vector<int32_t> tangent_offset;
  std::vector<int32_t> tangent_size;
  std::vector<int32_t> state_offset;
  std::vector<double> constant_values;
};

// Pairs x_i = k 2^e, y_i = l 2^e, k and l of 20 bits, -20 <= e <= 20: all
// products of sums of the two are exact, so that a fused product changes
// nothing, and sums are not, so that their order shows.
inline void MakeExactPairs(int64_t n,
                           unsigned seed,
                           std::vector<double>* x,
                           std::vector<double>* y) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> mantissa(-(1 << 20), 1 << 20);
  std::uniform_int_distribution<int> exponent(-20, 20);
  x->clear();
  y->clear();
  for (int64_t i = 0; i < n; ++i) {
    const int e = exponent(random);
    x->push_back(std::ldexp(mantissa(random), e));
    y->push_back(std::ldexp(mantissa(random), e));
  }
}

// Additions between a term and the sum (base/vector_sums.h): over the elements
// of a lane, 32 lanes, 8 warps, the blocks of a lane, 32 lanes and 8 warps.
inline int64_t SumDepth(int64_t n) {
  const int64_t blocks = NumSumBlocks(n);
  return n / (kSumLanes * blocks) + 1 + blocks / kSumLanes + 1 + 2 * (5 + 8);
}

// Observations with a loss of each kind, thresholds near one, and with none.
// Blocks are block-contiguous.
template <typename T, int C>
struct LossProblem {
  explicit LossProblem(int64_t n)
      : num_observations(n),
        losses{RobustLoss(),
               RobustLoss(RobustLossKind::kHuber, 1.0),
               RobustLoss(RobustLossKind::kSoftLOne, 0.8),
               RobustLoss(RobustLossKind::kCauchy, 1.2),
               RobustLoss(RobustLossKind::kArctan, 1.5),
               RobustLoss(RobustLossKind::kTolerant, 2.0, 0.7),
               RobustLoss(RobustLossKind::kTukey, 2.0)},
        residuals(RandomVector(2 * n, 21)) {
    const std::vector<double> camera = RandomVector(2 * C * n, 22);
    const std::vector<double> point = RandomVector(6 * n, 23);
    camera_blocks.assign(camera.begin(), camera.end());
    point_blocks.assign(point.begin(), point.end());
    for (int64_t k = 0; k < n; ++k) {
      loss_id.push_back(k % 8 == 7 ? kNoLoss : static_cast<uint8_t>(k % 8));
    }
  }

  int64_t num_observations;
  std::vector<RobustLoss> losses;
  std::vector<uint8_t> loss_id;
  std::vector<double> residuals;
  std::vector<T> camera_blocks;
  std::vector<T> point_blocks;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_TESTS_KERNELS_VECTORS_TEST_UTIL_H_
