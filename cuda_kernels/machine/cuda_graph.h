// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The iterations of PCG as a CUDA graph that repeats itself on the device until
// the scalars have ended.
//
//   CudaGraph graph;
//   Status status = graph.RecordLoop(queue, scalars);
//   if (status.ok()) status = graph.Launch(stream);
//
// Everything that `queue` passes to a kernel is part of the graph: record again
// if a pointer, a count or a setting changes. CUDA keeps some memory per
// kernel, on the host and on the device, outside the context's account. No
// stream is captured: a capture forbids all threads of the process to wait for
// the device, and has an opinion on the kind of the stream. Thread safety: one
// thread at a time per object. Host-includable: needs no CUDA toolkit.
#ifndef CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_GRAPH_H_
#define CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_GRAPH_H_

#include <functional>

#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/status.h"

typedef struct CUstream_st* cudaStream_t;
typedef struct CUgraph_st* cudaGraph_t;
typedef struct CUgraphExec_st* cudaGraphExec_t;

namespace ceres_ext::kernels {

class CudaGraph {
 public:
  using Queue = std::function<Status()>;

  CudaGraph() = default;
  ~CudaGraph() { Clear(); }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  // do { queue } while (scalars->end is kRunning). `queue` launches kernels by
  // kernels::Launch and copies by CudaContext::CopyOnDevice, on this thread,
  // and does nothing else on the device; nothing of it runs. scalars: on the
  // device. kUnsupported: CUDA before 12.4. After an error there is no graph.
  Status RecordLoop(const Queue& queue, const PcgScalars* scalars);
  bool empty() const { return executable_ == nullptr; }

  // Does what the first launch would do before, such as to take memory.
  Status Prepare(cudaStream_t stream) const;
  // Queues the graph, on any stream of its device.
  Status Launch(cudaStream_t stream) const;
  void Clear();

 private:
  Status TryRecordLoop(const Queue& queue, const PcgScalars* scalars);

  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_GRAPH_H_
