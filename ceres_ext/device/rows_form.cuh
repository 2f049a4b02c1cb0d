// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Kernels that evaluate all rows of a cost function
// (ceres_ext/device/cost_function.cuh).

#ifndef CERES_EXT_DEVICE_ROWS_FORM_CUH_
#define CERES_EXT_DEVICE_ROWS_FORM_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "ceres_ext/batchable_cost_function.h"
#include "ceres_ext/row_evaluation.h"
#include "cuda_kernels/cuda/vector_sums.cuh"

namespace ceres_ext::internal {
namespace {

// Source::Evaluate(rows, i) evaluates row i, EvaluatePart(rows, i, part) a
// part. Mapping: threads stride over the rows. If is_wanted is given, nothing
// is added up, threads stride over one part of all rows after the other, and
// blocks have as few as there are for each. Order: base/vector_sums.h. Traffic
// per row and part: the requested outputs, constants, the numbers of its
// combination and of its point, and the rows of the tables that these name.
template <typename Source>
__global__ void __launch_bounds__(kernels::kVectorBlock, 2)
    EvaluateRowsKernel(const __grid_constant__ RowBatch rows,
                       double* partial,
                       int32_t* ticket,
                       RowSums* sums) {
  int64_t n = rows.num_rows;
  int64_t in_block = kernels::kVectorBlock;
  if (rows.is_wanted != nullptr) {
    if (*rows.is_wanted == 0) {
      return;
    }
    n *= Source::kNumParts;
    const int64_t share = (n + gridDim.x - 1) / gridDim.x;
    in_block = share < in_block ? share : in_block;
  }
  kernels::TwoSums value;
#pragma unroll 1
  for (int64_t i = blockIdx.x * in_block + threadIdx.x;
       i < n && threadIdx.x < in_block;
       i += gridDim.x * in_block) {
    RowTerm term;
    if constexpr (Source::kNumParts > 1) {
      if (rows.is_wanted != nullptr) {
        term = Source::EvaluatePart(
            rows, i % rows.num_rows, static_cast<int>(i / rows.num_rows));
      } else {
        term = Source::Evaluate(rows, i);
      }
    } else {
      term = Source::Evaluate(rows, i);
    }
    value.first += term.first;
    value.second += term.second;
  }
  if (rows.is_wanted != nullptr) {
    return;
  }
  kernels::TwoSums sum;
  if (kernels::SumOverBlocks<kernels::AddFirst>(value, partial, ticket, &sum)) {
    sums->cost = 0.5 * sum.first;
    sums->num_not_finite = static_cast<int64_t>(sum.second);
  }
}

template <typename Model, bool kJacobian>
struct RowSource {
  using Evaluator = RowEvaluator<Model>;
  static constexpr int kNumParts = kJacobian ? Evaluator::kNumParts : 1;
  __device__ __forceinline__ static RowTerm Evaluate(const RowBatch& rows,
                                                     int64_t i) {
    return Evaluator::template Evaluate<kJacobian>(rows, i);
  }
  __device__ __forceinline__ static RowTerm EvaluatePart(const RowBatch& rows,
                                                         int64_t i,
                                                         int part) {
    return Evaluator::EvaluatePart(rows, i, part);
  }
};

template <typename ModelIn>
struct RowsForm {
  using Model = ModelIn;
  static constexpr FormKind kKind = FormKind::kRows;
  static constexpr int32_t kParamsSize = sizeof(RowBatch);
  static constexpr int32_t kColumns = 0;
  static constexpr uint32_t kVarying = 0;
  static constexpr bool kIsPossible = true;
  static void CheckPossible() {}

  template <typename Function>
  static int WithKernel(int kernel, const Function& f) {
    return kernel == 0 ? f(&EvaluateRowsKernel<RowSource<Model, false>>)
                       : f(&EvaluateRowsKernel<RowSource<Model, true>>);
  }
};

}  // namespace
}  // namespace ceres_ext::internal

#endif  // CERES_EXT_DEVICE_ROWS_FORM_CUH_
