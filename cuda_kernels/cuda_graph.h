// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The iterations of PCG as a CUDA graph that repeats itself on the device until
// the scalars have ended.
//
//   CudaGraph graph;
//   Status status = graph.CaptureLoop(queue, scalars, stream);
//   if (status.ok()) status = graph.Launch(stream);
//
// Everything that `queue` hands to a kernel is part of the graph: where a
// pointer, a count or a setting is another one, capture anew. CUDA keeps some
// memory per kernel, on the host and on the device, outside the context's
// account.
// Thread safety: one thread at a time per object; others may capture, launch
// and allocate meanwhile.
// Host-includable: needs no CUDA toolkit.
#ifndef CERES_EXT_CUDA_KERNELS_CUDA_GRAPH_H_
#define CERES_EXT_CUDA_KERNELS_CUDA_GRAPH_H_

#include <functional>

#include "cuda_kernels/pcg_scalars.h"
#include "cuda_kernels/status.h"

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

  // do { queue } while (scalars->end is kRunning). `queue` queues kernels and
  // copies on the device on `stream`, and nothing else; a kernel that has run
  // before is not loaded by the capture. scalars: on the device.
  // kUnsupported: CUDA before 12.4; a stream that waits for the legacy default
  // stream, because other threads could not use that one meanwhile; a stream
  // that is being captured. After an error there is no graph, and the stream
  // takes work as before.
  Status CaptureLoop(const Queue& queue,
                     const PcgScalars* scalars,
                     cudaStream_t stream);
  bool empty() const { return executable_ == nullptr; }

  // Queues the graph, on any stream of its device.
  Status Launch(cudaStream_t stream) const;
  void Clear();

 protected:
  Status Create();
  Status Instantiate();

  cudaGraph_t graph_ = nullptr;

 private:
  Status TryCaptureLoop(const Queue& queue,
                        const PcgScalars* scalars,
                        cudaStream_t stream);

  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_CUDA_GRAPH_H_
