// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A second stream of a context, for work that runs beside that of its own:
// between Begin() and Join() on both.
//
// Thread safety: that of the context.
#ifndef CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_FORK_H_
#define CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_FORK_H_

#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_context.h"

namespace ceres_ext::kernels {

class CudaFork {
 public:
  // The context outlives it.
  explicit CudaFork(CudaContext* context) : context_(context) {}
  ~CudaFork();
  CudaFork(const CudaFork&) = delete;
  CudaFork& operator=(const CudaFork&) = delete;

  // The second stream continues behind what is queued on the context's, which
  // is current.
  Status Begin();
  cudaStream_t stream() const { return stream_; }
  // The context's stream continues behind the second one.
  Status Join();
  // Waits for the second stream: after a failure between Begin and the end of
  // Join nothing else does, and its work uses the caller's memory.
  void Wait();

 private:
  enum { kBegin, kJoin, kNumEvents };

  Status Setup();

  CudaContext* const context_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t events_[kNumEvents] = {};
  int num_made_ = 0;  // the stream, then events
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_FORK_H_
