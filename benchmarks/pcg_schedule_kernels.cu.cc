// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "benchmarks/pcg_schedule_kernels.h"

#include <cooperative_groups.h>

#include <cctype>

#include "cuda_kernels/cuda_launch.h"
#include "cuda_kernels/cuda_vector_sums.h"

namespace ceres_ext {
namespace {

using namespace kernels;  // NOLINT: the whole file is about them.

__global__ void NothingKernel() {}

__global__ void GridBarriersKernel(int num_barriers) {
  const auto grid = cooperative_groups::this_grid();
  if (!grid.is_valid()) {
    return;  // Not launched as a whole; no barrier follows.
  }
  for (int i = 0; i < num_barriers; ++i) {
    grid.sync();
  }
}

// Adds up `value` over all threads of the grid, in the order of SumOverBlocks.
// Every thread must call it. Valid in thread 0 of every block. partial: two per
// block, not used again before another barrier.
__device__ TwoSums SumOverGrid(TwoSums value, double* partial) {
  const double first = BlockSum<kVectorBlock>(value.first);
  const double second = BlockSum<kVectorBlock>(value.second);
  if (threadIdx.x == 0) {
    partial[2 * blockIdx.x] = first;
    partial[2 * blockIdx.x + 1] = second;
  }
  cooperative_groups::this_grid().sync();  // Every block adds up all blocks.
  TwoSums total{0.0, 0.0};
  const int num_blocks = static_cast<int>(gridDim.x);
  for (int i = static_cast<int>(threadIdx.x); i < num_blocks;
       i += kVectorBlock) {
    total.first += __ldcg(partial + 2 * i);
    total.second += __ldcg(partial + 2 * i + 1);
  }
  TwoSums sum;
  sum.first = BlockSum<kVectorBlock>(total.first);
  sum.second = BlockSum<kVectorBlock>(total.second);
  return sum;
}

__device__ __forceinline__ bool IsInfinity(double x) {
  return x == INFINITY || x == -INFINITY;
}

__device__ void SetAlpha(double pq, PcgScalars* s) {
  s->pq = pq;
  if (pq <= 0.0 || IsInfinity(pq)) {
    s->end = PcgEnd::kIndefinite;
    return;
  }
  s->alpha = s->rho / pq;
  if (IsInfinity(s->alpha)) {
    s->end = PcgEnd::kAlphaBreakdown;
  }
}

__device__ void TestResidual(const TwoSums& sum, PcgScalars* s) {
  s->q1 = -sum.first;
  s->norm_r = sqrt(sum.second);
  s->zeta = s->num_iterations * (s->q1 - s->q0) / s->q1;
  const bool may_stop = s->num_iterations >= s->min_num_iterations;
  if (s->zeta < s->q_tolerance && may_stop) {
    s->end = PcgEnd::kQuadraticModel;
    return;
  }
  s->q0 = s->q1;
  if (s->norm_r <= s->tol_r && may_stop) {
    s->end = PcgEnd::kResidual;
  } else if (s->num_iterations >= s->max_num_iterations) {
    s->end = PcgEnd::kMaxNumIterations;
  }
}

// Not in the first iteration.
__device__ void SetBeta(double rho, PcgScalars* s) {
  ++s->num_iterations;
  s->last_rho = s->rho;
  s->rho = rho;
  if (rho == 0.0 || IsInfinity(rho)) {
    s->end = PcgEnd::kRhoBreakdown;
    return;
  }
  s->beta = rho / s->last_rho;
  if (s->beta == 0.0 || IsInfinity(s->beta)) {
    s->end = PcgEnd::kBetaBreakdown;
  }
}

// Mapping: threads stride over the elements as in pcg_kernels.cu.cc; every
// block keeps the scalars in shared memory and comes to the same ones, block 0
// writes them. Three barriers over the grid, two without `advance`.
__global__ void __launch_bounds__(kVectorBlock)
    PcgVectorStepsKernel(PcgVectorStepsParams params) {
  __shared__ __align__(16) unsigned char storage[sizeof(PcgScalars)];
  PcgScalars& s = *reinterpret_cast<PcgScalars*>(storage);
  const int64_t n = params.n;
  const int64_t begin = int64_t{blockIdx.x} * kVectorBlock + threadIdx.x;
  const int64_t stride = int64_t{gridDim.x} * kVectorBlock;
  const bool writes_scalars = blockIdx.x == 0 && threadIdx.x == 0;
  if (!cooperative_groups::this_grid().is_valid()) {
    // Not launched as a whole, and a barrier would be an error for good.
    if (writes_scalars) {
      params.scalars->end = PcgEnd::kAlphaBreakdown;
    }
    return;  // The whole grid leaves.
  }
  if (threadIdx.x == 0) {
    s = *params.scalars;
  }
  __syncthreads();
  if (s.end != PcgEnd::kRunning) {
    return;  // The whole grid leaves.
  }

  // alpha = rho / p'q
  if (params.advance) {
    double pq = 0.0;
#pragma unroll 4
    for (int64_t i = begin; i < n; i += stride) {
      pq += params.p[i] * params.q[i];
    }
    const TwoSums sum = SumOverGrid({pq, 0.0}, params.partial);
    if (threadIdx.x == 0) {
      SetAlpha(sum.first, &s);
    }
    __syncthreads();
    if (s.end != PcgEnd::kRunning) {
      if (writes_scalars) {
        *params.scalars = s;
      }
      return;  // The whole grid leaves.
    }
  }

  // x += alpha p, r -= alpha q or r = b - q
  const double alpha = s.alpha;
  TwoSums value{0.0, 0.0};
#pragma unroll 4
  for (int64_t i = begin; i < n; i += stride) {
    double x = params.x[i];
    if (params.advance) {
      x += alpha * params.p[i];
      params.x[i] = x;
    }
    const double b = params.rhs[i];
    const double r =
        params.reset ? b - params.q[i] : params.r[i] - alpha * params.q[i];
    params.r[i] = r;
    value.first += x * (b + r);
    value.second += r * r;
  }
  // The barrier is for r as well, whose blocks belong to several threads.
  const TwoSums sum = SumOverGrid(value, params.partial + 2 * kVectorBlocks);
  if (threadIdx.x == 0) {
    TestResidual(sum, &s);
  }
  __syncthreads();
  if (s.end != PcgEnd::kRunning) {
    if (writes_scalars) {
      *params.scalars = s;
    }
    return;  // The whole grid leaves.
  }

  // z = M^-1 r, rho = r'z
  double rz = 0.0;
  for (int64_t i = begin; i < n; i += stride) {
    const int64_t block = i / 9;
    const int row = static_cast<int>(i % 9);
    double z = 0.0;
#pragma unroll
    for (int j = 0; j < 9; ++j) {
      z += params.inverse(
               block, j <= row ? PackedIndex(row, j) : PackedIndex(j, row)) *
           params.r[9 * block + j];
    }
    params.z[i] = z;
    rz += params.r[i] * z;
  }
  const double rho =
      SumOverGrid({rz, 0.0}, params.partial + 4 * kVectorBlocks).first;
  if (threadIdx.x == 0) {
    SetBeta(rho, &s);
  }
  __syncthreads();
  if (writes_scalars) {
    *params.scalars = s;
  }
  if (s.end != PcgEnd::kRunning) {
    return;  // The whole grid leaves.
  }

  // p = z + beta p
  const double beta = s.beta;
#pragma unroll 4
  for (int64_t i = begin; i < n; i += stride) {
    params.p[i] = params.z[i] + beta * params.p[i];
  }
}
static_assert(kPcgVectorStepsPartialSize == 6 * kVectorBlocks);

template <typename Params>
Status LaunchCooperative(void (*kernel)(Params),
                         int64_t num_blocks,
                         int block_size,
                         Params params,
                         cudaStream_t stream) {
  void* arguments[] = {&params};
  if (GraphRecording* const recording = CurrentGraphRecording()) {
    cudaKernelNodeParams node = {};
    node.func = reinterpret_cast<void*>(kernel);
    node.gridDim = dim3(static_cast<unsigned>(num_blocks));
    node.blockDim = dim3(static_cast<unsigned>(block_size));
    node.kernelParams = arguments;
    const cudaGraphNode_t previous = recording->last;
    CERES_EXT_RETURN_IF_CUDA_ERROR(
        cudaGraphAddKernelNode(&recording->last,
                               recording->graph,
                               &previous,
                               previous == nullptr ? 0 : 1,
                               &node));
    cudaKernelNodeAttrValue value = {};
    value.cooperative = 1;
    CERES_EXT_RETURN_IF_CUDA_ERROR(cudaGraphKernelNodeSetAttribute(
        recording->last, cudaLaunchAttributeCooperative, &value));
    return Status();
  }
  CERES_EXT_RETURN_IF_CUDA_ERROR(
      cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(kernel),
                                  dim3(static_cast<unsigned>(num_blocks)),
                                  dim3(static_cast<unsigned>(block_size)),
                                  arguments,
                                  0,
                                  stream));
  return Status();
}

// Of "_ZN..12PcgRhoKernelE..": PcgRho.
std::string ShortName(const std::string& mangled) {
  const size_t end = mangled.find("Kernel");
  if (end == std::string::npos) {
    return mangled;
  }
  size_t begin = end;
  while (begin > 0 &&
         std::isalpha(static_cast<unsigned char>(mangled[begin - 1])) != 0) {
    --begin;
  }
  return mangled.substr(begin, end - begin);
}

}  // namespace

Status ScheduleGraph::Capture(const Queue& queue, cudaStream_t stream) {
  CERES_EXT_RETURN_IF_ERROR(Create());
  CERES_EXT_RETURN_IF_CUDA_ERROR(cudaStreamBeginCaptureToGraph(
      stream, graph_, nullptr, nullptr, 0, cudaStreamCaptureModeThreadLocal));
  // From here on the capture is ended whatever happens.
  const Status status = queue();
  cudaGraph_t captured = nullptr;
  const cudaError_t end_error = cudaStreamEndCapture(stream, &captured);
  CERES_EXT_RETURN_IF_ERROR(status);
  CERES_EXT_RETURN_IF_CUDA_ERROR(end_error);
  return Instantiate();
}

Status ScheduleGraph::Repeat(cudaGraphNode_t node, int times) {
  CERES_EXT_RETURN_IF_ERROR(Create());
  cudaKernelNodeParams params;
  CERES_EXT_RETURN_IF_CUDA_ERROR(cudaGraphKernelNodeGetParams(node, &params));
  cudaGraphNode_t last = nullptr;
  for (int i = 0; i < times; ++i) {
    cudaGraphNode_t next = nullptr;
    CERES_EXT_RETURN_IF_CUDA_ERROR(cudaGraphAddKernelNode(
        &next, graph_, i == 0 ? nullptr : &last, i == 0 ? 0 : 1, &params));
    last = next;
  }
  return Instantiate();
}

Status ScheduleGraph::Kernels(std::vector<Kernel>* result) const {
  result->clear();
  cudaGraphNode_t node = nullptr;
  size_t num_nodes = 1;
  CERES_EXT_RETURN_IF_CUDA_ERROR(
      cudaGraphGetRootNodes(graph_, &node, &num_nodes));
  while (num_nodes == 1 && node != nullptr) {
    cudaKernelNodeParams params;
    CERES_EXT_RETURN_IF_CUDA_ERROR(cudaGraphKernelNodeGetParams(node, &params));
    Kernel kernel;
    kernel.node = node;
    const char* name = nullptr;
    if (cudaFuncGetName(&name, params.func) == cudaSuccess) {
      kernel.name = ShortName(name);
    } else {
      ClearCudaError();
      kernel.name = "kernel " + std::to_string(result->size());
    }
    kernel.num_blocks = params.gridDim.x;
    kernel.block_size = static_cast<int>(params.blockDim.x);
    kernel.shared_bytes = params.sharedMemBytes;
    CERES_EXT_RETURN_IF_CUDA_ERROR(
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            &kernel.blocks_per_multiprocessor,
            params.func,
            kernel.block_size,
            params.sharedMemBytes));
    result->push_back(kernel);
    const cudaGraphNode_t from = node;
    node = nullptr;
    num_nodes = 1;
    CERES_EXT_RETURN_IF_CUDA_ERROR(
        cudaGraphNodeGetDependentNodes(from, &node, nullptr, &num_nodes));
  }
  return Status();
}

Status LoadScheduleKernels() {
  cudaFuncAttributes attributes;
  for (const void* kernel :
       {reinterpret_cast<const void*>(NothingKernel),
        reinterpret_cast<const void*>(GridBarriersKernel),
        reinterpret_cast<const void*>(PcgVectorStepsKernel)}) {
    CERES_EXT_RETURN_IF_CUDA_ERROR(cudaFuncGetAttributes(&attributes, kernel));
  }
  return Status();
}

Status EmptyKernel(cudaStream_t stream) {
  return kernels::Launch("Nothing", NothingKernel, 1, 32, 0, stream);
}

Status GridBarriers(int64_t num_blocks,
                    int block_size,
                    int num_barriers,
                    cudaStream_t stream) {
  return LaunchCooperative(
      GridBarriersKernel, num_blocks, block_size, num_barriers, stream);
}

Status PcgVectorSteps(const PcgVectorStepsParams& params, cudaStream_t stream) {
  return LaunchCooperative(PcgVectorStepsKernel,
                           NumVectorBlocks(params.n),
                           kVectorBlock,
                           params,
                           stream);
}

void ClearCudaError() { static_cast<void>(cudaGetLastError()); }

}  // namespace ceres_ext
