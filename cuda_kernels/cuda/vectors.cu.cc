// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The vector operations (ops/vector_operation.h) on a device, one line each.
#include "cuda_kernels/ops/vectors.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cuda_kernels/cuda/vector_sums.cuh"
#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/ops/array_checks.h"
#include "cuda_kernels/ops/block_rows.h"
#include "cuda_kernels/ops/block_table.h"
#include "cuda_kernels/ops/cluster_vectors.h"
#include "cuda_kernels/ops/coarse_rows.h"
#include "cuda_kernels/ops/coarse_space.h"
#include "cuda_kernels/ops/covariance.h"
#include "cuda_kernels/ops/degenerate_blocks.h"
#include "cuda_kernels/ops/evaluate.h"
#include "cuda_kernels/ops/jacobian_products.h"
#include "cuda_kernels/ops/manifolds.h"
#include "cuda_kernels/ops/nested_rows.h"
#include "cuda_kernels/ops/pcg.h"
#include "cuda_kernels/ops/power_series.h"
#include "cuda_kernels/ops/private_blocks.h"
#include "cuda_kernels/ops/robust_losses.h"
#include "cuda_kernels/ops/row_constants.h"
#include "cuda_kernels/ops/row_sample.h"
#include "cuda_kernels/ops/schur_terms.h"
#include "cuda_kernels/ops/views.h"

namespace ceres_ext::kernels {
namespace {

template <typename P, typename = void>
struct Unroll {
  static constexpr int kValue = 4;
};
template <typename P>
struct Unroll<P, std::enable_if_t<HasUnroll<P>::value>> {
  static constexpr int kValue = P::kUnroll;
};

template <typename P, typename = void>
struct MinBlocks {
  static constexpr int kValue = 0;  // As many as the compiler thinks right.
};
template <typename P>
struct MinBlocks<P, std::enable_if_t<HasMinBlocks<P>::value>> {
  static constexpr int kValue = P::kMinBlocks;
};

template <typename P>
__global__ void __launch_bounds__(kVectorBlock, MinBlocks<P>::kValue)
    ApplyKernel(P params, int64_t n) {
  if (!Begin(&params)) {
    return;  // The whole grid leaves.
  }
  [[maybe_unused]] constexpr int kUnroll = Unroll<P>::kValue;
#pragma unroll kUnroll
  for (int64_t i = int64_t{blockIdx.x} * kVectorBlock + threadIdx.x; i < n;
       i += int64_t{gridDim.x} * kVectorBlock) {
    params.Apply(i);
  }
}

template <typename P>
__global__ void __launch_bounds__(kVectorBlock, MinBlocks<P>::kValue)
    SumKernel(P params, int64_t n, double* partial, int32_t* ticket) {
  using First = typename FirstOf<P>::Type;
  if (!Begin(&params)) {
    return;  // The whole grid leaves.
  }
  TwoSums value;
  [[maybe_unused]] constexpr int kUnroll = Unroll<P>::kValue;
#pragma unroll kUnroll
  for (int64_t i = int64_t{blockIdx.x} * kVectorBlock + threadIdx.x; i < n;
       i += int64_t{gridDim.x} * kVectorBlock) {
    const TwoSums term = params.Term(i);
    value.first = First::Combine(value.first, term.first);
    value.second += term.second;
  }
  TwoSums sum;
  if (SumOverBlocks<First>(value, partial, ticket, &sum)) {
    params.Set(sum);
  }
}

// One operation of a kernel that has one block. Ends with a barrier.
template <typename P>
__device__ __forceinline__ void RunInBlock(P params, int64_t n) {
  if (Begin(&params)) {  // The whole block.
    TwoSums value;
    for (int64_t i = threadIdx.x; i < n; i += kVectorBlock) {
      if constexpr (HasTerm<P>::value) {
        const TwoSums term = params.Term(i);
        value.first = FirstOf<P>::Type::Combine(value.first, term.first);
        value.second += term.second;
      } else {
        params.Apply(i);
      }
    }
    if constexpr (HasTerm<P>::value) {
      const TwoSums sum = CombineOverBlock<typename FirstOf<P>::Type>(value);
      if (threadIdx.x == 0) {
        params.Set(sum);
      }
    }
  }
  __syncthreads();  // The next operation reads what this one has written.
}

template <typename... P>
__global__ void __launch_bounds__(kVectorBlock) InOrderKernel(P... params) {
  static_assert((!HasSize<P>::value && ...), "n elements");
  (RunInBlock(params, params.n), ...);
}

template <typename P>
Status RunOnDevice(const char* name, const P& params, CudaMachine* machine) {
  const int64_t n = NumElements(params);
  if constexpr (HasTerm<P>::value) {
    return Launch(name,
                  SumKernel<P>,
                  {NumSumBlocks(n), kVectorBlock},
                  machine->stream(),
                  params,
                  n,
                  machine->sum_partial(),
                  machine->sum_ticket());
  } else {
    return Launch(
        name,
        ApplyKernel<P>,
        {std::min<int64_t>(kMaxSumBlocks, CeilDivide(n, kVectorBlock)),
         kVectorBlock},
        machine->stream(),
        params,
        n);
  }
}

}  // namespace

Status Run(const CopyParams& params, CudaMachine* machine) {
  if (params.x == params.y) {
    return {};
  }
  return machine->context()->CopyOnDevice(
      params.y, params.x, params.n * static_cast<int64_t>(sizeof(double)));
}

#define CERES_EXT_RUN(...)                                      \
  template <>                                                   \
  Status Run(const __VA_ARGS__& params, CudaMachine* machine) { \
    return RunOnDevice(#__VA_ARGS__, params, machine);          \
  }

template <typename... P>
Status RunInOrder(CudaMachine* machine, const P&... params) {
  if (((NumSumBlocks(params.n) == 1) && ...)) {
    return Launch("RunInOrder",
                  InOrderKernel<P...>,
                  {1, kVectorBlock},
                  machine->stream(),
                  params...);
  }
  Status status;
  static_cast<void>(((status = Run(params, machine)).ok() && ...));
  return status;
}

// ops/vectors.h
CERES_EXT_RUN(SetConstantParams<double>)
CERES_EXT_RUN(SetConstantParams<float>)
CERES_EXT_RUN(SetConstantParams<int32_t>)
CERES_EXT_RUN(NegateParams)
CERES_EXT_RUN(AddVectorsParams)
CERES_EXT_RUN(SubtractVectorsParams)
CERES_EXT_RUN(MultiplyByParams)
CERES_EXT_RUN(MultiplyParams)
CERES_EXT_RUN(DivideParams)
CERES_EXT_RUN(LinearCombinationParams)
CERES_EXT_RUN(ScaleParams<double>)
CERES_EXT_RUN(ScaleParams<float>)
CERES_EXT_RUN(CastParams<double>)
CERES_EXT_RUN(CastParams<float>)
CERES_EXT_RUN(JacobiScalingParams)
CERES_EXT_RUN(ClampParams)
CERES_EXT_RUN(ClampToBoundsParams)
CERES_EXT_RUN(LevenbergMarquardtDiagonalParams)
CERES_EXT_RUN(DotParams)
CERES_EXT_RUN(LoopDotParams)
CERES_EXT_RUN(CountInvalidParams)
CERES_EXT_RUN(NegateIfValidParams)
CERES_EXT_RUN(ProjectedGradientNormsParams)
CERES_EXT_RUN(StepNormsParams)
CERES_EXT_RUN(ModelCostChangeParams)
CERES_EXT_RUN(DirectionalDerivativeParams)
CERES_EXT_RUN(CountGrownParams)
CERES_EXT_RUN(FindGrownParams)
// ops/block_table.h
CERES_EXT_RUN(GatherTangentParams)
CERES_EXT_RUN(ScatterTangentParams)
CERES_EXT_RUN(TogetherParams<GatherTangentParams>)
CERES_EXT_RUN(TogetherParams<ScatterTangentParams>)
CERES_EXT_RUN(GatherStateParams)
CERES_EXT_RUN(UniformBlockTableParams)
CERES_EXT_RUN(StateRecordsParams)
CERES_EXT_RUN(GatherTuplesParams<1>)
CERES_EXT_RUN(GatherTuplesParams<2>)
CERES_EXT_RUN(GatherTuplesParams<3>)
CERES_EXT_RUN(PlusParams)

CERES_EXT_RUN(PlusManifoldsParams)
CERES_EXT_RUN(ManifoldTangentsParams)
CERES_EXT_RUN(GatherValuesParams)
CERES_EXT_RUN(ScatterValuesParams)
CERES_EXT_RUN(ApplyPointTangentsParams<double, kDeviceLayout>)
CERES_EXT_RUN(ApplyPointTangentsParams<float, kDeviceLayout>)
// ops/block_rows.h
CERES_EXT_RUN(RowProductParams)
CERES_EXT_RUN(BlockSumParams<TransposeProduct>)
CERES_EXT_RUN(BlockSumParams<SquaredColumns>)
CERES_EXT_RUN(BlockSumParams<SquaredBlocks>)
CERES_EXT_RUN(BlockSumParams<EliminatedBlocks<kFewEliminatedColumns>>)
CERES_EXT_RUN(BlockSumParams<EliminatedBlocks<kMaxEliminatedSize>>)
CERES_EXT_RUN(BlockSumParams<MergedRows<kFewEliminatedColumns>>)
CERES_EXT_RUN(BlockSumParams<MergedRows<kMaxEliminatedSize>>)
CERES_EXT_RUN(BlockSumParams<PartialSums>)
CERES_EXT_RUN(ScaleRowsParams)
CERES_EXT_RUN(EliminatePrivateParams)
CERES_EXT_RUN(ApplyPrivateParams)
CERES_EXT_RUN(BackSubstitutePrivateParams)
CERES_EXT_RUN(PrivateProductsParams<CellProduct::kVector>)
CERES_EXT_RUN(PrivateProductsParams<CellProduct::kSquares>)
CERES_EXT_RUN(PrivateProductsParams<CellProduct::kMatrix>)
CERES_EXT_RUN(CopyRangesParams)
// ops/nested_rows.h, and of its rows ops/views.h and ops/schur_terms.h
CERES_EXT_RUN(NestRowsParams<kDeviceLayout>)
CERES_EXT_RUN(NestedProductParams<kDeviceLayout>)
CERES_EXT_RUN(NestedSumsParams<CellProduct::kVector, kDeviceLayout>)
CERES_EXT_RUN(NestedSumsParams<CellProduct::kSquares, kDeviceLayout>)
CERES_EXT_RUN(NestedSumsParams<CellProduct::kMatrix, kDeviceLayout>)
CERES_EXT_RUN(BackSubstituteNestedParams<kDeviceLayout>)
CERES_EXT_RUN(ScaleNestedParams<kDeviceLayout>)
CERES_EXT_RUN(PackRowsParams<double, NestedStorage, kDeviceLayout>)
#define CERES_EXT_RUN_NESTED(...)                                     \
  CERES_EXT_RUN(BlockSumParams<SharedSchurBlocks<__VA_ARGS__>>)       \
  CERES_EXT_RUN(BlockSumParams<SharedSchurBlocks<__VA_ARGS__, true>>) \
  CERES_EXT_RUN(BlockSumParams<PairSums<__VA_ARGS__>>)                \
  CERES_EXT_RUN(RowPairsParams<__VA_ARGS__>)                          \
  CERES_EXT_RUN(BlockSumParams<CrossingSums<__VA_ARGS__>>)
CERES_EXT_RUN_NESTED(NestedJacobian<kDeviceLayout>)
#undef CERES_EXT_RUN_NESTED
CERES_EXT_RUN(InvertBlocksParams<3>)
CERES_EXT_RUN(InvertBlocksParams<9>)
CERES_EXT_RUN(InvertBlocksParams<10>)
CERES_EXT_RUN(InvertBlocksParams<kDynamic>)
CERES_EXT_RUN(ApplyBlocksParams<3>)
CERES_EXT_RUN(ApplyBlocksParams<9>)
CERES_EXT_RUN(ApplyBlocksParams<10>)
CERES_EXT_RUN(ApplyBlocksParams<kDynamic>)
CERES_EXT_RUN(SubtractBlockNormsParams)
CERES_EXT_RUN(ApplyMergedBlocksParams)
CERES_EXT_RUN(DampedProductParams)
// ops/degenerate_blocks.h
CERES_EXT_RUN(JudgeBlocksParams)
CERES_EXT_RUN(FindWorstBlockParams)
// ops/views.h
CERES_EXT_RUN(GatherColumnsParams)
CERES_EXT_RUN(BlockSumParams<ViewVectors>)
CERES_EXT_RUN(BlockSumParams<ViewMatrices<false>>)
CERES_EXT_RUN(BlockSumParams<ViewMatrices<true>>)
// ops/row_constants.h
CERES_EXT_RUN(GatherWordsParams)
// ops/pcg.h
CERES_EXT_RUN(PcgStartParams)
CERES_EXT_RUN(PcgRhoParams)
CERES_EXT_RUN(PcgDirectionParams)
CERES_EXT_RUN(PcgAlphaParams)
CERES_EXT_RUN(PcgAdvanceParams)
CERES_EXT_RUN(PcgResidualParams)
template Status RunInOrder(CudaMachine*,
                           const PcgRhoParams&,
                           const PcgDirectionParams&);
template Status RunInOrder(CudaMachine*,
                           const PcgAlphaParams&,
                           const PcgAdvanceParams&);
template Status RunInOrder(CudaMachine*,
                           const PcgAlphaParams&,
                           const PcgAdvanceParams&,
                           const PcgResidualParams&);
// ops/power_series.h
CERES_EXT_RUN(PowerSeriesStartParams)
CERES_EXT_RUN(PowerSeriesTermParams)
// ops/evaluate.h
CERES_EXT_RUN(EvaluateCostParams)
CERES_EXT_RUN(LocalOriginParams)
CERES_EXT_RUN(MovePointsParams<float>)
// ops/robust_losses.h
CERES_EXT_RUN(SquaredNormsParams)
CERES_EXT_RUN(ScaleRowsForLossParams<double>)
CERES_EXT_RUN(ScaleRowsForLossParams<float>)
CERES_EXT_RUN(UnscaleResidualsParams<double>)
CERES_EXT_RUN(UnscaleResidualsParams<float>)
// ops/schur_terms.h
CERES_EXT_RUN(BlockSumParams<GeneralPairSums>)
CERES_EXT_RUN(BlockSumParams<GeneralCrossingSums>)
CERES_EXT_RUN(PairInverseParams)
CERES_EXT_RUN(CouplingChunksParams)
CERES_EXT_RUN(SubtractCouplingsParams)
CERES_EXT_RUN(AddCrossingsParams)
CERES_EXT_RUN(SchurDiagonalParams)
CERES_EXT_RUN(SchurRowChunksParams)
CERES_EXT_RUN(SchurRowSumsParams)
// ops/coarse_space.h
CERES_EXT_RUN(SchurBlockNormsParams)
CERES_EXT_RUN(MultiplyByProlongationParams)
CERES_EXT_RUN(CoarseMatrixParams)
CERES_EXT_RUN(RestrictParams)
CERES_EXT_RUN(SumLanesParams)
CERES_EXT_RUN(DenseProductParams)
CERES_EXT_RUN(UnitVectorParams)
CERES_EXT_RUN(CoarseRowParams)
CERES_EXT_RUN(UnitDiagonalParams)
CERES_EXT_RUN(ProlongParams)
// ops/cluster_vectors.h
CERES_EXT_RUN(CompleteClustersParams)
CERES_EXT_RUN(ClusterBlocksParams)
// ops/coarse_rows.h
CERES_EXT_RUN(GatherIdsParams)
CERES_EXT_RUN(FirstOfPartParams)
CERES_EXT_RUN(ListPartsParams)
CERES_EXT_RUN(PartChunksParams)
CERES_EXT_RUN(OtherCoarseBlocksParams)
CERES_EXT_RUN(CoarseDiagonalParams)
CERES_EXT_RUN(FinishCoarseDiagonalParams)
#define CERES_EXT_RUN_COARSE(...)                           \
  CERES_EXT_RUN(CopyRowsParams<__VA_ARGS__, kDeviceLayout>) \
  CERES_EXT_RUN(CameraVectorsParams<__VA_ARGS__>)           \
  CERES_EXT_RUN(PartVectorsParams<__VA_ARGS__, kDeviceLayout>)
// ops/row_sample.h
CERES_EXT_RUN(SamplePointsParams)
CERES_EXT_RUN(CountNeighborsParams)
CERES_EXT_RUN(ListNeighborsParams)
CERES_EXT_RUN(StrongestNeighborsParams)
CERES_EXT_RUN(ClusterOfSampleParams)
CERES_EXT_RUN(CountPartRowsParams)
CERES_EXT_RUN(ListPartRowsParams)
// ops/array_checks.h
CERES_EXT_RUN(CheckFiniteParams)
CERES_EXT_RUN(CheckWeightsParams)
CERES_EXT_RUN(CheckBlocksParams)
CERES_EXT_RUN(SummarizeBlocksParams)
// ops/covariance.h
CERES_EXT_RUN(UnitColumnsParams)
CERES_EXT_RUN(CovarianceStartParams)
CERES_EXT_RUN(CovarianceTermsParams)
#define CERES_EXT_RUN_COPY(...) \
  CERES_EXT_RUN_COARSE(RecomputedJacobian<__VA_ARGS__>)
CERES_EXT_FOR_EACH_RECOMPUTED(CERES_EXT_RUN_COPY)
#undef CERES_EXT_RUN_COPY
// Stored blocks: ops/views.h, ops/robust_losses.h, ops/schur_terms.h,
// ops/coarse_space.h
#define CERES_EXT_INSTANTIATE(...)                                    \
  CERES_EXT_RUN(BlockSumParams<SharedSchurBlocks<__VA_ARGS__>>)       \
  CERES_EXT_RUN(BlockSumParams<SharedSchurBlocks<__VA_ARGS__, true>>) \
  CERES_EXT_RUN(BlockSumParams<PairSums<__VA_ARGS__>>)                \
  CERES_EXT_RUN(RowPairsParams<__VA_ARGS__>)                          \
  CERES_EXT_RUN(BlockSumParams<CrossingSums<__VA_ARGS__>>)            \
  CERES_EXT_RUN_COARSE(__VA_ARGS__)
CERES_EXT_FOR_EACH_STORED_COLUMNS(CERES_EXT_INSTANTIATE_DEVICE_STORED)
#undef CERES_EXT_INSTANTIATE
#define CERES_EXT_RUN_ROWS(T, C)                               \
  CERES_EXT_RUN(PackRowsParams<T, BalShape<C>, kDeviceLayout>) \
  CERES_EXT_RUN(ScaleColumnsParams<T, BalShape<C>, kDeviceLayout>)
#define CERES_EXT_RUN_STORED(C) \
  CERES_EXT_RUN_ROWS(double, C) \
  CERES_EXT_RUN_ROWS(float, C)
CERES_EXT_FOR_EACH_STORED_COLUMNS(CERES_EXT_RUN_STORED)
#define CERES_EXT_RUN_CORRECT(C)                                          \
  CERES_EXT_RUN(CorrectForLossParams<double, BalShape<C>, kDeviceLayout>) \
  CERES_EXT_RUN(CorrectForLossParams<float, BalShape<C>, kDeviceLayout>)
CERES_EXT_RUN_CORRECT(9)
CERES_EXT_RUN_CORRECT(10)
#undef CERES_EXT_RUN_CORRECT
#undef CERES_EXT_RUN_STORED
#undef CERES_EXT_RUN_ROWS
#undef CERES_EXT_RUN_COARSE
#undef CERES_EXT_RUN

}  // namespace ceres_ext::kernels
