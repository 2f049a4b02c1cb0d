// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/machine/cuda_graph.h"

#include <cuda_runtime.h>

#include "cuda_kernels/machine/cuda_context.h"
#include "cuda_kernels/machine/cuda_launch.cuh"

namespace ceres_ext::kernels {

#ifdef __CUDACC__
GraphRecording*& CurrentGraphRecording() {
  thread_local GraphRecording* recording = nullptr;
  return recording;
}
#endif

// Conditional nodes came with CUDA 12.4; the emulation has no graphs.
#if defined(__CUDACC__) && CUDART_VERSION >= 12040

namespace {

// True if the loop around this kernel continues. Mapping: one thread.
__global__ void LoopEndKernel(cudaGraphConditionalHandle loop,
                              const PcgScalars* scalars) {
  cudaGraphSetConditional(loop, scalars->end == PcgEnd::kRunning ? 1 : 0);
}

// A WHILE node alone in `graph`, and the graph that it repeats.
Status AddLoop(cudaGraph_t graph,
               cudaGraphConditionalHandle loop,
               cudaGraph_t* body) {
  cudaGraphNodeParams params = {};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.handle = loop;
  params.conditional.type = cudaGraphCondTypeWhile;
  params.conditional.size = 1;
  cudaGraphNode_t node = nullptr;
#if CUDART_VERSION >= 13000
  CERES_EXT_RETURN_IF_CUDA_ERROR(
      cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &params));
#else
  CERES_EXT_RETURN_IF_CUDA_ERROR(
      cudaGraphAddNode(&node, graph, nullptr, 0, &params));
#endif
  *body = params.conditional.phGraph_out[0];
  return {};
}

}  // namespace

Status CudaGraph::TryRecordLoop(const Queue& queue, const PcgScalars* scalars) {
  Clear();
  CERES_EXT_RETURN_IF_CUDA_ERROR(cudaGraphCreate(&graph_, 0));
  // One at each launch, so that the body runs.
  cudaGraphConditionalHandle loop;
  CERES_EXT_RETURN_IF_CUDA_ERROR(cudaGraphConditionalHandleCreate(
      &loop, graph_, 1, cudaGraphCondAssignDefault));
  GraphRecording body;
  CERES_EXT_RETURN_IF_ERROR(AddLoop(graph_, loop, &body.graph));
  CurrentGraphRecording() = &body;
  Status status = queue();
  if (status.ok()) {
    status = kernels::Launch(
        "LoopEnd", LoopEndKernel, {1, 1}, nullptr, loop, scalars);
  }
  CurrentGraphRecording() = nullptr;
  CERES_EXT_RETURN_IF_ERROR(status);
  CERES_EXT_RETURN_IF_CUDA_ERROR(cudaGraphInstantiate(&executable_, graph_, 0));
  return {};
}

Status CudaGraph::RecordLoop(const Queue& queue, const PcgScalars* scalars) {
  const Status status = TryRecordLoop(queue, scalars);
  if (!status.ok()) {
    Clear();
  }
  return status;
}

Status CudaGraph::Prepare(cudaStream_t stream) const {
  CERES_EXT_RETURN_IF_CUDA_ERROR(cudaGraphUpload(executable_, stream));
  return {};
}

Status CudaGraph::Launch(cudaStream_t stream) const {
  CERES_EXT_RETURN_IF_CUDA_ERROR(cudaGraphLaunch(executable_, stream));
  return {};
}

void CudaGraph::Clear() {
  if (executable_ == nullptr && graph_ == nullptr) {
    return;
  }
  const KeepCurrentContext keep;
  // A failure here is the echo of an earlier one that has been reported.
  if (executable_ != nullptr) {
    if (cudaGraphExecDestroy(executable_) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
    }
    executable_ = nullptr;
  }
  if (graph_ != nullptr) {
    if (cudaGraphDestroy(graph_) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
    }
    graph_ = nullptr;
  }
}

#else

Status CudaGraph::RecordLoop(const Queue& /*queue*/,
                             const PcgScalars* /*scalars*/) {
  return {StatusCode::kUnsupported, "Graphs that loop need CUDA 12.4."};
}

Status CudaGraph::Prepare(cudaStream_t /*stream*/) const {
  return {StatusCode::kInvalidArgument, "There is no graph."};
}

Status CudaGraph::Launch(cudaStream_t /*stream*/) const {
  return {StatusCode::kInvalidArgument, "There is no graph."};
}

void CudaGraph::Clear() {}

#endif

}  // namespace ceres_ext::kernels
