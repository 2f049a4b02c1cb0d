// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The common needs of device bodies: checked launches, block and warp sums of
// fixed order. Included by .cu.cc files only.
#ifndef CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_LAUNCH_CUH_
#define CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_LAUNCH_CUH_

#include <cuda_runtime.h>

#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_context.h"
#include "cuda_kernels/machine/cuda_launch_buffer.h"
#include "cuda_kernels/machine/cuda_warp.cuh"

#define CERES_EXT_RETURN_IF_CUDA_ERROR(call)                           \
  do {                                                                 \
    const cudaError_t ceres_ext_error_ = (call);                       \
    if (ceres_ext_error_ != cudaSuccess) {                             \
      return ::ceres_ext::kernels::CudaError(#call, ceres_ext_error_); \
    }                                                                  \
  } while (false)

// The dynamic shared memory of a block as bytes, aligned to 16.
#ifdef __CUDACC__
#define CERES_EXT_DYNAMIC_SHARED(name) \
  extern __shared__ __align__(16) unsigned char name[]
#else
#define CERES_EXT_DYNAMIC_SHARED(name) \
  unsigned char* name = ::emulation::DynamicShared()
#endif

namespace ceres_ext::kernels {

// "cudaMalloc failed: out of memory." of a call, whose arguments are left out.
// The error is not left behind: it would be taken for one of the next call that
// asks.
inline Status CudaError(const std::string& call, cudaError_t error) {
  static_cast<void>(cudaGetLastError());
  return {StatusCode::kDeviceError,
          call.substr(0, call.find('(')) +
              " failed: " + cudaGetErrorString(error) + "."};
}

#ifdef __CUDACC__
// The graph that launches of this thread become nodes of, one after the other,
// in place of work on a stream; null: none. Set by CudaGraph.
struct GraphRecording {
  cudaGraph_t graph = nullptr;
  cudaGraphNode_t last = nullptr;
};
GraphRecording*& CurrentGraphRecording();
inline bool IsRecording() { return CurrentGraphRecording() != nullptr; }

// The answers of a device to questions about its kernels, asked once. Thread
// safe. A key starts with the device.
template <typename Key>
class KnownAnswers {
 public:
  // ask(&answer) returns CUDA's error, with which nothing is stored.
  template <typename Ask>
  cudaError_t Get(const Key& key, const Ask& ask, int* answer) {
    constexpr size_t kMostAnswers = 4096;
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto known = answers_.find(key);
    if (known != answers_.end()) {
      *answer = known->second;
      return cudaSuccess;
    }
    const cudaError_t error = ask(answer);
    try {
      if (error == cudaSuccess && answers_.size() < kMostAnswers) {
        answers_.emplace(key, *answer);
      }
    } catch (const std::exception&) {
      // No memory: it is asked again.
    }
    return error;
  }

 private:
  std::mutex mutex_;
  std::map<Key, int> answers_;
};

// Allows all dynamic shared memory that a block of this kernel may have on the
// current device. Every caller sets the same value, because other threads may
// launch the kernel at the same time. Setting it is cheap and legal during
// stream capture. It is set each time, because a reset of the device undoes it.
inline cudaError_t AllowSharedMemory(const void* kernel) {
  // Not destroyed: threads may launch when the process ends.
  static auto* const known = new KnownAnswers<std::tuple<int, const void*>>;
  int device = 0;
  int bytes = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = known->Get(
        {device, kernel},
        [&](int* most) {
          cudaFuncAttributes attributes = {};
          const cudaError_t failure = cudaDeviceGetAttribute(
              most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
          if (failure != cudaSuccess) {
            return failure;
          }
          const cudaError_t result = cudaFuncGetAttributes(&attributes, kernel);
          *most -= static_cast<int>(attributes.sharedSizeBytes);
          return result;
        },
        &bytes);
  }
  return error != cudaSuccess
             ? error
             : cudaFuncSetAttribute(
                   kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}
#else
inline bool IsRecording() { return false; }
#endif

CERES_EXT_HOST_DEVICE inline int64_t CeilDivide(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Blocks, threads of each, and bytes of its dynamic shared memory.
struct LaunchGrid {
  int64_t num_blocks;
  int64_t block_size;
  int64_t shared_bytes = 0;
};

// Queues, records or buffers (cuda_launch_buffer.h) kernel<<<grid,
// stream>>>(args...). The result of the launch itself
// is checked, and not CUDA's last error, which may belong to the caller. An
// empty grid is not launched and is not an error. Shared memory beyond 48 KB,
// what the kernel declares itself included, is allowed here.
template <typename... Parameters, typename... Arguments>
Status Launch(const char* name,
              void (*kernel)(Parameters...),
              const LaunchGrid& size,
              cudaStream_t stream,
              Arguments... arguments) {
  if (size.num_blocks <= 0 || IsCountingMemory()) {
    return Status();
  }
  if (size.num_blocks > 0x7fffffff) {
    return Status(StatusCode::kUnsupported,
                  std::string(name) + " needs more than 2^31 - 1 blocks.");
  }
#ifdef __CUDACC__
  cudaError_t error = cudaSuccess;
  constexpr int64_t kMostDeclared = 8 * 1024;
  if (size.shared_bytes > 48 * 1024 - kMostDeclared) {
    error = AllowSharedMemory(reinterpret_cast<const void*>(kernel));
  }
  if (error == cudaSuccess) {
    GraphRecording* const recording = CurrentGraphRecording();
    const dim3 grid(static_cast<unsigned>(size.num_blocks));
    const dim3 block(static_cast<unsigned>(size.block_size));
    const auto shared_bytes = static_cast<unsigned>(size.shared_bytes);
    // Values of the types that the kernel has; CUDA copies them.
    std::tuple<Parameters...> values(arguments...);
    LaunchBuffer* const buffer = CurrentLaunchBuffer();
    if (error == cudaSuccess && recording == nullptr && buffer != nullptr &&
        buffer->stream() == stream) {
      return std::apply(
          [&](auto&... value) {
            const void* const pointers[] = {&value..., nullptr};
            const size_t sizes[] = {sizeof(value)..., 0};
            return buffer->AddKernel({name,
                                      reinterpret_cast<const void*>(kernel),
                                      grid.x,
                                      block.x,
                                      shared_bytes},
                                     static_cast<int>(sizeof...(value)),
                                     pointers,
                                     sizes);
          },
          values);
    }
    error = std::apply(
        [&](auto&... value) {
          void* pointers[] = {&value...};
          if (recording == nullptr) {
            return cudaLaunchKernel(reinterpret_cast<const void*>(kernel),
                                    grid,
                                    block,
                                    pointers,
                                    shared_bytes,
                                    stream);
          }
          cudaKernelNodeParams node = {};
          node.func = reinterpret_cast<void*>(kernel);
          node.gridDim = grid;
          node.blockDim = block;
          node.sharedMemBytes = shared_bytes;
          node.kernelParams = pointers;
          const cudaGraphNode_t previous = recording->last;
          return cudaGraphAddKernelNode(&recording->last,
                                        recording->graph,
                                        &previous,
                                        previous == nullptr ? 0 : 1,
                                        &node);
        },
        values);
  }
#else
  static_cast<void>(stream);
  const cudaError_t error =
      ::emulation::Launch(size.num_blocks,
                          static_cast<int>(size.block_size),
                          size.shared_bytes,
                          [&] { kernel(arguments...); });
#endif
  return error == cudaSuccess
             ? Status()
             : CudaError(std::string("Launch of ") + name, error);
}

// Threads per block of the two below.
constexpr int kForEachBlock = 256;

template <typename Function>
__global__ void ForEachKernel(int64_t n, Function function) {
  const int64_t i = int64_t{blockIdx.x} * kForEachBlock + threadIdx.x;
  if (i < n) {
    function(i);
  }
}

// Queues function(i) for 0 <= i < n, one thread each.
template <typename Function>
Status ForEach(const char* name,
               int64_t n,
               cudaStream_t stream,
               const Function& function) {
  return Launch(name,
                ForEachKernel<Function>,
                {CeilDivide(n, kForEachBlock), kForEachBlock},
                stream,
                n,
                function);
}

template <typename Function>
__global__ void ForEachBlockKernel(Function function) {
  function(static_cast<int32_t>(blockIdx.x), static_cast<int32_t>(threadIdx.x));
}

// Queues function(block, thread) for num_blocks blocks of kForEachBlock
// threads.
template <typename Function>
Status ForEachBlock(const char* name,
                    int64_t num_blocks,
                    cudaStream_t stream,
                    const Function& function) {
  return Launch(name,
                ForEachBlockKernel<Function>,
                {num_blocks, kForEachBlock},
                stream,
                function);
}

template <typename T>
__global__ void SetValueKernel(T* at, T value) {
  *at = value;
}

// Queues *at = value.
template <typename T>
Status SetValue(const char* name, T* at, T value, cudaStream_t stream) {
  return Launch(name, SetValueKernel<T>, {1, 1}, stream, at, value);
}

// Asks for the cache line of *p; no register waits for it.
__device__ __forceinline__ void PrefetchToL2(const void* p) {
#ifdef __CUDACC__
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#else
  static_cast<void>(p);
#endif
}

// Sum over the lanes of a full warp, in a fixed tree; valid in every lane.
template <typename T>
__device__ __forceinline__ T WarpSum(T value) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kFullWarp, value, offset);
  }
  return value;
}

// Sum over a block of kBlockSize threads, in a fixed tree; valid in thread 0.
// Every thread must call it. Ends with a barrier, so that the shared memory of
// one call is free for the next.
template <int kBlockSize, typename T>
__device__ __forceinline__ T BlockSum(T value) {
  static_assert(kBlockSize % kWarpSize == 0, "whole warps");
  constexpr int kNumWarps = kBlockSize / kWarpSize;
  __shared__ T warp_sums[kNumWarps];
  value = WarpSum(value);
  if (threadIdx.x % kWarpSize == 0) {
    warp_sums[threadIdx.x / kWarpSize] = value;
  }
  __syncthreads();
  T sum = T(0);
  if (threadIdx.x == 0) {
    for (int w = 0; w < kNumWarps; ++w) {
      sum += warp_sums[w];
    }
  }
  __syncthreads();
  return sum;
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_MACHINE_CUDA_LAUNCH_CUH_
