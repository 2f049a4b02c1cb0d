// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/model_window/model_cuda.h"

#include <cstdint>
#include <new>

#include "ceres_ext/small/model_window/model_clock.h"
#include "ceres_ext/small/model_window/model_solve.h"
#include "ceres_ext/small/window/window_kernel.cuh"
#include "cuda_kernels/machine/cuda_launch.cuh"

namespace ceres_ext {
namespace {

constexpr int kModelThreads = 256;

// Shared memory of a block before S.
template <bool kIsDogleg>
struct ModelHead {
  using Solve = ModelSolve<BlockTeam, kIsDogleg>;
  alignas(8) unsigned char team[sizeof(BlockTeam)];
  alignas(8) unsigned char solve[sizeof(Solve)];
  int32_t verdict;
};
constexpr int64_t kModelHeadBytes = (sizeof(ModelHead<false>) + 15) / 16 * 16;
static_assert(sizeof(ModelHead<true>) == sizeof(ModelHead<false>));

// The block's window, which all threads get.
template <bool kIsDogleg>
__device__ ModelSolve<BlockTeam, kIsDogleg>* SetupWindow(
    const AdvanceModelsParams& params, unsigned char* memory) {
  using Solve = ModelSolve<BlockTeam, kIsDogleg>;
  auto* const head = reinterpret_cast<ModelHead<kIsDogleg>*>(memory);
  auto* const solve = reinterpret_cast<Solve*>(head->solve);
  if (threadIdx.x == 0) {
    const ModelWindowRecord& record = params.records[blockIdx.x];
    unsigned char* const scratch = params.scratch + record.scratch_begin;
    const int64_t schur_bytes = ModelSchurSize(record.counts.num_columns) *
                                static_cast<int64_t>(sizeof(double));
    unsigned char* const schur =
        schur_bytes <= params.schur_bytes
            ? memory + kModelHeadBytes
            : scratch + ModelScratch(record.counts).num_bytes;
    ModelWindow window(record,
                       params.tables,
                       params.inputs,
                       params.outputs,
                       scratch,
                       reinterpret_cast<double*>(schur));
    for (int m = 0; m < params.num_models; ++m) {
      ModelRows rows = params.rows[m];
      const int64_t begin = record.row_begin[m];
      rows.columns += begin * rows.num_residuals * rows.stride;
      rows.residuals += begin * rows.num_residuals;
      rows.squared_norms += begin;
      if (rows.loss.loss_id != nullptr) {
        rows.loss.loss_id += begin;
      }
      rows.loss.weights += begin;
      window.AddRows(record.row_end[m] - record.row_begin[m], rows);
    }
    window.AddPriors();
    auto* const team = new (head->team) BlockTeam(nullptr);
    new (solve) Solve(window, &head->verdict, team);
  }
  __syncthreads();
  return solve;
}

// Mapping: a block has a window. A row's derivatives are read once for each
// pair of its blocks.
template <bool kIsDogleg>
__global__ void
#ifdef __CUDACC__
__launch_bounds__(kModelThreads)
#endif
    BeginModelWindowsKernel(AdvanceModelsParams params) {
  CERES_EXT_DYNAMIC_SHARED(memory);
  auto* const solve = SetupWindow<kIsDogleg>(params, memory);
  solve->Begin(params.options, NanosecondsNow());
}

template <bool kIsDogleg>
__global__ void
#ifdef __CUDACC__
__launch_bounds__(kModelThreads)
#endif
    AdvanceModelWindowsKernel(AdvanceModelsParams params) {
  CERES_EXT_DYNAMIC_SHARED(memory);
  auto* const solve = SetupWindow<kIsDogleg>(params, memory);
  // The same for all threads.
  if (solve->result->region.end() != TrustRegionEnd::kNone) {
    return;
  }
  SetModelDifferences(*solve, solve->team());
  // The same for all threads.
  if (!solve->Advance()) {
    solve->FindCovariance();
  } else if (threadIdx.x == 0) {
    *params.continues = 1;
  }
}

}  // namespace

int64_t ModelHeadBytes() { return kModelHeadBytes; }

kernels::Status BeginModelWindows(const AdvanceModelsParams& params,
                                  cudaStream_t stream) {
  return kernels::Launch("BeginModelWindowsKernel",
                         params.options.dogleg == DoglegType::kNone
                             ? BeginModelWindowsKernel<false>
                             : BeginModelWindowsKernel<true>,
                         {params.num_windows, kModelThreads, kModelHeadBytes},
                         stream,
                         params);
}

kernels::Status AdvanceModelWindows(const AdvanceModelsParams& params,
                                    cudaStream_t stream) {
  return kernels::Launch(
      "AdvanceModelWindowsKernel",
      params.options.dogleg == DoglegType::kNone
          ? AdvanceModelWindowsKernel<false>
          : AdvanceModelWindowsKernel<true>,
      {params.num_windows, kModelThreads, kModelHeadBytes + params.schur_bytes},
      stream,
      params);
}

}  // namespace ceres_ext
