// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Host-includable: needs no CUDA toolkit.
#ifndef CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_QUEUE_H_
#define CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_QUEUE_H_

#include <cstdint>

#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_context.h"

namespace ceres_ext::kernels {

// Queues a copy from page-locked host memory, which stays as it is until the
// work of the stream is done. The counterpart of CudaContext::QueueCopyToHost.
Status QueueCopyToDevice(void* device,
                         const void* page_locked,
                         int64_t num_bytes,
                         cudaStream_t stream);

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_QUEUE_H_
