// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Clusters of thread blocks, which run at once and have a barrier: compute
// capability 9.0 and later. Elsewhere a cluster is a block. Included by .cu.cc
// files only.
#ifndef CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_CLUSTER_CUH_
#define CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_CLUSTER_CUH_

#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <tuple>

#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_launch.cuh"

namespace ceres_ext::kernels {

// The blocks of this block's cluster, and its number among them.
__device__ __forceinline__ int ClusterSize() {
#ifndef __CUDACC__
  return ::emulation::ClusterSize();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  unsigned size;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return static_cast<int>(size);
#else
  return 1;
#endif
}
__device__ __forceinline__ int ClusterRank() {
#ifndef __CUDACC__
  return ::emulation::ClusterRank();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
#else
  return 0;
#endif
}

// Barrier of all threads of the cluster. Their writes to main memory before the
// barrier are visible to all of them after it.
__device__ __forceinline__ void ClusterBarrier() {
#ifndef __CUDACC__
  ::emulation::ClusterBarrier();
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n\t"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
#else
  __syncthreads();
#endif
}

#ifdef __CUDACC__
// A launch of clusters of cluster_size blocks, and its one attribute.
class ClusterLaunch {
 public:
  ClusterLaunch(int64_t num_clusters,
                int cluster_size,
                int block_size,
                int64_t shared_bytes,
                cudaStream_t stream) {
    attribute_.id = cudaLaunchAttributeClusterDimension;
    attribute_.val.clusterDim.x = static_cast<unsigned>(cluster_size);
    attribute_.val.clusterDim.y = 1;
    attribute_.val.clusterDim.z = 1;
    config_.gridDim = dim3(static_cast<unsigned>(num_clusters * cluster_size));
    config_.blockDim = dim3(static_cast<unsigned>(block_size));
    config_.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
    config_.stream = stream;
    config_.attrs = &attribute_;
    config_.numAttrs = cluster_size > 1 ? 1 : 0;
  }
  ClusterLaunch(const ClusterLaunch&) = delete;
  ClusterLaunch& operator=(const ClusterLaunch&) = delete;

  // Also allows clusters of more than the 8 blocks that all devices support.
  static cudaError_t Allow(const void* kernel, int cluster_size) {
    const cudaError_t error = AllowSharedMemory(kernel);
    return error == cudaSuccess && cluster_size > 8
               ? cudaFuncSetAttribute(
                     kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1)
               : error;
  }
  const cudaLaunchConfig_t& config() const { return config_; }

 private:
  cudaLaunchAttribute attribute_ = {};
  cudaLaunchConfig_t config_ = {};
};
#endif

// True if an idle device can run so many clusters at once.
template <typename... Parameters>
bool CanLaunchClusters(void (*kernel)(Parameters...),
                       int64_t num_clusters,
                       int cluster_size,
                       int block_size,
                       int64_t shared_bytes) {
#ifdef __CUDACC__
  // Not destroyed: threads may launch when the process ends.
  static auto* const known = new KnownAnswers<
      std::tuple<int, const void*, int64_t, int, int, int64_t>>;
  int device = 0;
  int num_active = 0;
  const auto* const function = reinterpret_cast<const void*>(kernel);
  const auto ask = [&](int* answer) {
    int major = 0;
    const ClusterLaunch launch(
        num_clusters, cluster_size, block_size, shared_bytes, nullptr);
    cudaError_t error = cudaDeviceGetAttribute(
        &major, cudaDevAttrComputeCapabilityMajor, device);
    if (error == cudaSuccess && major >= 9) {
      error = ClusterLaunch::Allow(function, cluster_size);
      if (error == cudaSuccess) {
        error =
            cudaOccupancyMaxActiveClusters(answer, function, &launch.config());
      }
    }
    return error;
  };
  const bool can_launch = cudaGetDevice(&device) == cudaSuccess &&
                          known->Get({device,
                                      function,
                                      num_clusters,
                                      cluster_size,
                                      block_size,
                                      shared_bytes},
                                     ask,
                                     &num_active) == cudaSuccess &&
                          num_active >= num_clusters;
  if (!can_launch) {
    // An answer, and not an error of the next call that asks.
    static_cast<void>(cudaGetLastError());
  }
  return can_launch;
#else
  static_cast<void>(kernel);
  static_cast<void>(block_size);
  static_cast<void>(shared_bytes);
  return num_clusters * cluster_size <= ::emulation::kMaxClusterBlocks;
#endif
}

// As Launch, with num_clusters * cluster_size blocks. Not for graphs.
template <typename... Parameters, typename... Arguments>
Status LaunchClusters(const char* name,
                      void (*kernel)(Parameters...),
                      int64_t num_clusters,
                      int cluster_size,
                      int block_size,
                      int64_t shared_bytes,
                      cudaStream_t stream,
                      Arguments... arguments) {
  bool is_plain = num_clusters <= 0 || IsCountingMemory();
#ifndef __CUDACC__
  is_plain = is_plain || cluster_size == 1;
#endif
  if (is_plain) {
    return Launch(name,
                  kernel,
                  {num_clusters, block_size, shared_bytes},
                  stream,
                  arguments...);
  }
#ifdef __CUDACC__
  CERES_EXT_RETURN_IF_ERROR(FlushLaunches());
  const auto* const function = reinterpret_cast<const void*>(kernel);
  const ClusterLaunch launch(
      num_clusters, cluster_size, block_size, shared_bytes, stream);
  cudaError_t error = ClusterLaunch::Allow(function, cluster_size);
  if (error == cudaSuccess) {
    std::tuple<Parameters...> values(arguments...);
    error = std::apply(
        [&](auto&... value) {
          void* pointers[] = {&value...};
          return cudaLaunchKernelExC(&launch.config(), function, pointers);
        },
        values);
  }
#else
  static_cast<void>(stream);
  const cudaError_t error = ::emulation::LaunchClusters(
      num_clusters, cluster_size, block_size, shared_bytes, [&] {
        kernel(arguments...);
      });
#endif
  return error == cudaSuccess
             ? Status()
             : CudaError(std::string("Launch of ") + name, error);
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_CLUSTER_CUH_
