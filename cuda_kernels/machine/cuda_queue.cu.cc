// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/machine/cuda_queue.h"

#include <cuda_runtime.h>

#include "cuda_kernels/machine/cuda_launch.cuh"

namespace ceres_ext::kernels {

Status QueueCopyToDevice(void* device,
                         const void* page_locked,
                         int64_t num_bytes,
                         cudaStream_t stream) {
  if (num_bytes > 0) {
    CERES_EXT_RETURN_IF_CUDA_ERROR(
        cudaMemcpyAsync(device,
                        page_locked,
                        static_cast<size_t>(num_bytes),
                        cudaMemcpyHostToDevice,
                        stream));
  }
  return Status();
}

}  // namespace ceres_ext::kernels
