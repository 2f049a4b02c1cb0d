// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Counts the blocks of a family that are rank-deficient without damping
// (base/relative_pivot.h), and finds the worst:
//
//   JudgeBlocks     relative pivots of all blocks, how many are degenerate
//   FindWorstBlock  the first block with the smallest relative pivot
//
// Both are vector operations (ops/vector_operation.h), an element being a
// block. A solve runs them once. One thread takes n^3 / 3 steps for a block of
// n columns, and a solver that inverts no blocks forms them for this alone, so
// that blocks of more than kMaxJudgedColumns are not judged.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_DEGENERATE_BLOCKS_H_
#define CERES_EXT_CUDA_KERNELS_OPS_DEGENERATE_BLOCKS_H_

#include <cstdint>

#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/base/relative_pivot.h"
#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/base/vector_sums.h"
#include "cuda_kernels/ops/normal_blocks.h"
#include "cuda_kernels/ops/vector_operation.h"
#include "cuda_kernels/structure/block_families.h"

namespace ceres_ext::kernels {

inline constexpr int kMaxJudgedColumns = 32;

// For one family.
struct DegenerateRecord {
  int64_t count = 0;
  // 1 / relative pivot of the worst, at most kMaxSeverity; 0 if there is none.
  double severity = 0.0;
  int32_t block = Breakdown::kNone;  // the worst
  int32_t unused = 0;

  static constexpr double kMaxSeverity = 1e300;
  double relative_pivot() const {
    return severity == kMaxSeverity ? 0.0 : 1.0 / severity;
  }
};

// Traffic: the matrices several times, D.
struct JudgeBlocksParams {
  int64_t n = 0;        // number of blocks
  int32_t columns = 0;  // of a block
  // The blocks, overwritten: element 0 of a block is then its severity.
  BlockArray<double> a;
  // D, `columns` per block: one on columns that are not unknowns, otherwise
  // zero; null for zero.
  const double* padding = nullptr;
  DegenerateRecord* record = nullptr;  // set except for the worst block

  using First = MaxFirst;
  static constexpr int kUnroll = 1;
  CERES_EXT_HOST_DEVICE TwoSums Term(int64_t block) const {
    const StridedMatrix<double> matrix = a.Matrix(block);
    for (int i = 0; padding != nullptr && i < columns; ++i) {
      const double d = padding[columns * block + i];
      matrix[PackedIndex(i, i)] += d * d;
    }
    const double pivot = RelativePivot(matrix, columns);
    const bool is_degenerate = pivot <= kDegeneratePivot;
    TwoSums term;
    if (is_degenerate) {
      term.first = pivot * DegenerateRecord::kMaxSeverity <= 1.0
                       ? DegenerateRecord::kMaxSeverity
                       : 1.0 / pivot;
      term.second = 1.0;
    }
    matrix[0] = term.first;
    return term;
  }
  CERES_EXT_HOST_DEVICE void Set(const TwoSums& sums) const {
    // All of it: the host reads it in one piece.
    *record = DegenerateRecord();
    record->count = static_cast<int64_t>(sums.second);
    record->severity = sums.first;
  }
};

// Traffic: a value per block.
struct FindWorstBlockParams {
  int64_t n = 0;
  BlockArray<const double> severity;  // element 0 of each block
  DegenerateRecord* record = nullptr;

  CERES_EXT_HOST_DEVICE void Apply(int64_t block) const {
    // Exactly: it is one of them.
    if (severity(block, 0) == record->severity) {
      AtomicMinimum(static_cast<int32_t>(block), &record->block);
    }
  }
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_DEGENERATE_BLOCKS_H_
