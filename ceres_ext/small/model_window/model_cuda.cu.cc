// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/small/model_window/model_cuda.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <type_traits>

#include "ceres_ext/small/model_window/model_clock.h"
#include "ceres_ext/small/model_window/model_solve.h"
#include "ceres_ext/small/window/window_kernel.cuh"
#include "cuda_kernels/machine/cuda_launch.cuh"

#ifdef __CUDACC__
#define CERES_EXT_BOUNDS(n) __launch_bounds__(n)
#else
#define CERES_EXT_BOUNDS(n)
#endif

namespace ceres_ext {
namespace {

// Threads of a block that has a window, where it judges and where it steps, and
// of one that has a part of a window.
constexpr int kJudgeThreads = 256;
constexpr int kStepThreads = 512;
constexpr int kPartThreads = 256;
// Blocks of parts at once, of all windows, and most of one.
constexpr int64_t kPartBlocks = 1024;
constexpr int64_t kMostParts = 128;

// A part of the threads of a grid that have a window, without barriers.
class PartTeam {
 public:
  static constexpr int kWarp = kernels::kWarpSize;
  static constexpr int kWarps = kPartThreads / kWarp;
  static constexpr int kExchange = kPartThreads * 6;

  __device__ PartTeam(int part, int num_parts, double* exchange)
      : part_(part), num_parts_(num_parts), exchange_(exchange) {}

  __device__ int rank() const {
    return part_ * kPartThreads + static_cast<int>(threadIdx.x);
  }
  __device__ int size() const { return num_parts_ * kPartThreads; }

  __device__ static double WarpSum(double value) {
    return BlockTeam::WarpSum(value);
  }
  template <int n>
  __device__ static void SumSlices(double (&values)[n], int num_slices) {
    BlockTeam::SumSlices(values, num_slices);
  }
  // Sums over num_slices neighbours, then over the warps of the block in their
  // order.
  template <int n>
  __device__ void SumTurns(double (&values)[n], int num_slices) const {
    static_assert(n * kPartThreads <= kExchange, "room in the exchange");
    BlockTeam::SumSlices(values, num_slices);
    const auto warp = static_cast<int>(threadIdx.x / kWarp);
    const auto lane = static_cast<int>(threadIdx.x % kWarp);
    for (int i = 0; i < n; ++i) {
      exchange_[(kWarps * i + warp) * kWarp + lane] = values[i];
    }
    __syncthreads();
    for (int i = 0; i < n; ++i) {
      double sum = 0.0;
      for (int w = 0; w < kWarps; ++w) {
        sum += exchange_[(kWarps * i + w) * kWarp + lane];
      }
      values[i] = sum;
    }
    __syncthreads();
  }

 private:
  const int part_;
  const int num_parts_;
  double* const exchange_;
};
static_assert(ModelSlices<PartTeam>::kWarps == PartTeam::kWarps,
              "a block has a cell");

// A block's solve in shared memory, before S.
template <typename Team, bool kIsDogleg>
struct ModelHead {
  using Solve = ModelSolve<Team, kIsDogleg>;
  alignas(8) unsigned char team[sizeof(Team)];
  alignas(8) unsigned char solve[sizeof(Solve)];
  ModelShared shared;
};
constexpr int64_t kModelHeadBytes =
    (sizeof(ModelHead<BlockTeam, false>) + 15) / 16 * 16;
static_assert(sizeof(ModelHead<BlockTeam, true>) ==
              sizeof(ModelHead<BlockTeam, false>));
// Tables that are read again for each block of F, in front of S if it has room.
constexpr int64_t kModelTableBytes = 4096;
constexpr int64_t kModelPartHead =
    (sizeof(ModelHead<PartTeam, false>) + 15) / 16 * 16;
constexpr int64_t kModelPartBytes =
    kModelPartHead + PartTeam::kExchange * int64_t{sizeof(double)};

// A block that steps.
class StepTeam : public BlockTeam {
 public:
  using BlockTeam::BlockTeam;
  // The place of S if it is in shared memory.
  __device__ static double* OwnSchur() {
    CERES_EXT_DYNAMIC_SHARED(memory);
    return reinterpret_cast<double*>(memory + kModelHeadBytes +
                                     kModelTableBytes);
  }
};
static_assert(sizeof(StepTeam) == sizeof(BlockTeam));

// The block's solve, which all threads get.
template <typename Team, bool kIsDogleg, typename... Arguments>
__device__ ModelSolve<Team, kIsDogleg>* SetupSolve(const ModelWindow& window,
                                                   unsigned char* memory,
                                                   Arguments... arguments) {
  using Solve = ModelSolve<Team, kIsDogleg>;
  static_assert(std::is_trivially_copyable_v<ModelWindow>);
  static_assert(sizeof(ModelWindow) % sizeof(uint64_t) == 0);
  auto* const head = reinterpret_cast<ModelHead<Team, kIsDogleg>*>(memory);
  auto* const solve = reinterpret_cast<Solve*>(head->solve);
  if (threadIdx.x == 0) {
    auto* const team = new (head->team) Team(arguments...);
    new (solve) Solve(&head->shared, team);
  }
  __syncthreads();
  const auto* const from = reinterpret_cast<const unsigned char*>(&window);
  auto* const to =
      reinterpret_cast<unsigned char*>(static_cast<ModelWindow*>(solve));
  for (size_t k = sizeof(uint64_t) * threadIdx.x; k < sizeof(ModelWindow);
       k += sizeof(uint64_t) * blockDim.x) {
    uint64_t word;
    memcpy(&word, from + k, sizeof(word));
    memcpy(to + k, &word, sizeof(word));
  }
  __syncthreads();
  return solve;
}

__device__ void SetupWindow(const AdvanceModelsParams& params,
                            ModelWindow* window) {
  const ModelWindowRecord& record = params.records[blockIdx.x];
  unsigned char* const scratch = params.scratch + record.scratch_begin;
  *window = ModelWindow(record,
                        params.tables,
                        params.inputs,
                        params.outputs,
                        scratch,
                        reinterpret_cast<double*>(
                            scratch + ModelScratch(record.counts).num_bytes));
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
    window->AddRows(record.row_end[m] - record.row_begin[m], rows);
  }
  window->AddPriors();
}

// Mapping: a block has a window.
template <bool kIsDogleg>
__global__ void CERES_EXT_BOUNDS(kJudgeThreads)
    BeginModelWindowsKernel(AdvanceModelsParams params) {
  CERES_EXT_DYNAMIC_SHARED(memory);
  ModelWindow* const window = params.windows + blockIdx.x;
  if (threadIdx.x == 0) {
    SetupWindow(params, window);
  }
  __syncthreads();
  auto* const solve =
      SetupSolve<BlockTeam, kIsDogleg>(*window, memory, nullptr);
  solve->Begin(params.options, NanosecondsNow());
}

// Mapping: a block has a window.
template <bool kIsDogleg>
__global__ void CERES_EXT_BOUNDS(kJudgeThreads)
    JudgeModelWindowsKernel(AdvanceModelsParams params) {
  CERES_EXT_DYNAMIC_SHARED(memory);
  const ModelWindow& window = params.windows[blockIdx.x];
  // The same for all threads, as below.
  if (window.result->phase != ModelPhase::kCandidate) {
    return;
  }
  auto* const solve = SetupSolve<BlockTeam, kIsDogleg>(window, memory, nullptr);
  solve->Judge();
}

enum class ModelPart { kDifferences, kPriors, kCells, kEliminate, kSchur };

__device__ bool IsPartOf(ModelPart part, ModelPhase phase) {
  switch (part) {
    case ModelPart::kDifferences:
    case ModelPart::kPriors:
      return phase == ModelPhase::kCandidate;
    case ModelPart::kCells:
      return phase == ModelPhase::kLinearize;
    default:
      return phase == ModelPhase::kLinearize || phase == ModelPhase::kSolve ||
             phase == ModelPhase::kCovariance;
  }
}

// Mapping: num_parts blocks have a window; see ModelSlices. A row's derivatives
// are read once for each pair of its blocks.
template <ModelPart kPart, bool kIsDogleg>
__global__ void CERES_EXT_BOUNDS(kPartThreads)
    ModelPartKernel(AdvanceModelsParams params, int32_t num_parts) {
  CERES_EXT_DYNAMIC_SHARED(memory);
  const auto block = static_cast<int32_t>(blockIdx.x);
  const ModelWindow& window = params.windows[block / num_parts];
  if (!IsPartOf(kPart, window.result->phase)) {
    return;
  }
  auto* const solve = SetupSolve<PartTeam, kIsDogleg>(
      window,
      memory,
      block % num_parts,
      num_parts,
      reinterpret_cast<double*>(memory + kModelPartHead));
  if constexpr (kPart == ModelPart::kDifferences) {
    SetModelDifferences(*solve, *solve->team());
  } else if constexpr (kPart == ModelPart::kPriors) {
    solve->EvaluatePriors();
  } else if constexpr (kPart == ModelPart::kCells) {
    solve->AddCells();
  } else if constexpr (kPart == ModelPart::kEliminate) {
    solve->Eliminate();
  } else {
    solve->FormSchur();
  }
}

// The table in the block's shared memory from *next on, or where it is if that
// has no room.
template <typename T>
__device__ const T* ToShared(const T* from,
                             int n,
                             const unsigned char* end,
                             unsigned char** next) {
  static_assert(sizeof(T) % sizeof(uint32_t) == 0);
  const auto num_bytes = static_cast<int64_t>(n * sizeof(T));
  if (num_bytes > end - *next) {
    return from;
  }
  unsigned char* const to = *next;
  *next += (num_bytes + 7) / 8 * 8;
  for (int64_t k = sizeof(uint32_t) * threadIdx.x; k < num_bytes;
       k += sizeof(uint32_t) * blockDim.x) {
    uint32_t word;
    memcpy(
        &word, reinterpret_cast<const unsigned char*>(from) + k, sizeof(word));
    memcpy(to + k, &word, sizeof(word));
  }
  return reinterpret_cast<const T*>(to);
}

// Mapping: a block has a window, with S in shared memory where it fits.
template <bool kIsDogleg>
__global__ void CERES_EXT_BOUNDS(kStepThreads)
    StepModelWindowsKernel(AdvanceModelsParams params) {
  CERES_EXT_DYNAMIC_SHARED(memory);
  const ModelWindow& window = params.windows[blockIdx.x];
  const ModelPhase phase = window.result->phase;
  if (phase == ModelPhase::kEnded) {
    return;
  }
  auto* const solve = SetupSolve<StepTeam, kIsDogleg>(window, memory, nullptr);
  const ModelCounts& counts = window.counts;
  unsigned char* next = memory + kModelHeadBytes;
  unsigned char* const end = next + kModelTableBytes;
  const auto* const others =
      ToShared(window.others, counts.num_others, end, &next);
  const auto* const run_begin =
      ToShared(window.run_begin, counts.num_others + 1, end, &next);
  const auto* const runs = ToShared(window.runs, counts.num_runs, end, &next);
  const int64_t num_values = ModelSchurSize(counts.num_columns);
  double* schur = window.schur;
  if (phase != ModelPhase::kChoose &&
      num_values * static_cast<int64_t>(sizeof(double)) <= params.schur_bytes) {
    const double* const from = window.schur;
    schur = StepTeam::OwnSchur();
#pragma unroll 8
    for (int k = static_cast<int>(threadIdx.x); k < num_values;
         k += kStepThreads) {
      schur[k] = from[k];
    }
  }
  if (threadIdx.x == 0) {
    solve->others = others;
    solve->run_begin = run_begin;
    solve->runs = runs;
    solve->schur = schur;
  }
  __syncthreads();
  solve->Step();
  if (threadIdx.x == 0 && solve->phase() != ModelPhase::kEnded) {
    *params.continues = 1;
  }
}

template <ModelPart kPart>
kernels::Status QueuePart(const AdvanceModelsParams& params,
                          cudaStream_t stream) {
  const int64_t num_parts = std::clamp<int64_t>(
      kPartBlocks / std::max<int64_t>(params.num_windows, 1), 1, kMostParts);
  return kernels::Launch(
      "ModelPartKernel",
      params.options.dogleg == DoglegType::kNone ? ModelPartKernel<kPart, false>
                                                 : ModelPartKernel<kPart, true>,
      {params.num_windows * num_parts, kPartThreads, kModelPartBytes},
      stream,
      params,
      static_cast<int32_t>(num_parts));
}

}  // namespace

int64_t ModelHeadBytes() { return kModelHeadBytes + kModelTableBytes; }

kernels::Status BeginModelWindows(const AdvanceModelsParams& params,
                                  cudaStream_t stream) {
  return kernels::Launch("BeginModelWindowsKernel",
                         params.options.dogleg == DoglegType::kNone
                             ? BeginModelWindowsKernel<false>
                             : BeginModelWindowsKernel<true>,
                         {params.num_windows, kJudgeThreads, kModelHeadBytes},
                         stream,
                         params);
}

kernels::Status QueueModelPriors(const AdvanceModelsParams& params,
                                 cudaStream_t stream) {
  CERES_EXT_RETURN_IF_ERROR(QueuePart<ModelPart::kDifferences>(params, stream));
  return QueuePart<ModelPart::kPriors>(params, stream);
}

kernels::Status AdvanceModelWindows(const AdvanceModelsParams& params,
                                    cudaStream_t stream) {
  const bool is_dogleg = params.options.dogleg != DoglegType::kNone;
  CERES_EXT_RETURN_IF_ERROR(
      kernels::Launch("JudgeModelWindowsKernel",
                      is_dogleg ? JudgeModelWindowsKernel<true>
                                : JudgeModelWindowsKernel<false>,
                      {params.num_windows, kJudgeThreads, kModelHeadBytes},
                      stream,
                      params));
  CERES_EXT_RETURN_IF_ERROR(QueuePart<ModelPart::kCells>(params, stream));
  CERES_EXT_RETURN_IF_ERROR(QueuePart<ModelPart::kEliminate>(params, stream));
  CERES_EXT_RETURN_IF_ERROR(QueuePart<ModelPart::kSchur>(params, stream));
  return kernels::Launch(
      "StepModelWindowsKernel",
      is_dogleg ? StepModelWindowsKernel<true> : StepModelWindowsKernel<false>,
      {params.num_windows, kStepThreads, ModelHeadBytes() + params.schur_bytes},
      stream,
      params);
}

}  // namespace ceres_ext
