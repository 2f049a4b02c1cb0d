// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Ways of having a device run many small dependent kernels, for
// pcg_schedule_benchmark: graphs, barriers in a kernel.
// A Status here names the CUDA call that failed and leaves the stream usable.
#ifndef CERES_EXT_BENCHMARKS_PCG_SCHEDULE_KERNELS_H_
#define CERES_EXT_BENCHMARKS_PCG_SCHEDULE_KERNELS_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cuda_kernels/block_view.h"
#include "cuda_kernels/cuda_graph.h"
#include "cuda_kernels/pcg_scalars.h"
#include "cuda_kernels/small_matrix.h"
#include "cuda_kernels/status.h"

namespace ceres_ext {

// The graph of the library, and others that it does without. What is queued may
// be kernels only.
class ScheduleGraph : public kernels::CudaGraph {
 public:
  struct Kernel {
    cudaGraphNode_t node = nullptr;
    std::string name;
    int64_t num_blocks = 0;
    int block_size = 0;
    int64_t shared_bytes = 0;
    int blocks_per_multiprocessor = 0;  // as many as can be resident
  };

  kernels::Status Capture(const Queue& queue, cudaStream_t stream);

  // The kernel `times` times, each waiting for the last. `node` is of another
  // graph.
  kernels::Status Repeat(cudaGraphNode_t node, int times);

  // The kernels of Capture in their order.
  kernels::Status Kernels(std::vector<Kernel>* result) const;
};

// Has CUDA load the kernels of this file, so that none is loaded by a capture.
kernels::Status LoadScheduleKernels();

// A kernel that does nothing.
kernels::Status EmptyKernel(cudaStream_t stream);

// A cooperative kernel of num_barriers barriers over its grid.
kernels::Status GridBarriers(int64_t num_blocks,
                             int block_size,
                             int num_barriers,
                             cudaStream_t stream);

// All vector steps between two products of PCG on blocks of 9, in one
// cooperative kernel with the sums, and so the bits, of pcg_kernels.h:
//   PcgAdvance (where `advance`), PcgResidual, z = M^-1 r, PcgDirection.
struct PcgVectorStepsParams {
  int64_t n = 0;
  bool advance = true;
  bool reset = false;
  kernels::
      BlockView<const double, kernels::PackedSize(9), kernels::kDeviceLayout>
          inverse;
  const double* rhs = nullptr;
  const double* q = nullptr;
  double* x = nullptr;
  double* r = nullptr;
  double* z = nullptr;  // may be the array of q
  double* p = nullptr;
  kernels::PcgScalars* scalars = nullptr;
  double* partial = nullptr;  // kPcgVectorStepsPartialSize
};
inline constexpr int64_t kPcgVectorStepsPartialSize = 6 * 1024;
kernels::Status PcgVectorSteps(const PcgVectorStepsParams& params,
                               cudaStream_t stream);

// Forgets the error that CUDA remembers, so that no later launch is blamed.
void ClearCudaError();

}  // namespace ceres_ext

#endif  // CERES_EXT_BENCHMARKS_PCG_SCHEDULE_KERNELS_H_
