// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Intercepts the calls of a test to CUDA's runtime: the linker passes each call
// of __real_f's name f, from anywhere, to __wrap_f (--wrap). The names are in
// cuda_faults_calls.txt; cuda_faults_calls_test.sh says where the library calls
// one that is not.
//
// Functions that free do so, whatever they return: a test counts the rest.

#include <cuda_runtime_api.h>

#include "tests/kernels/cuda_faults.h"

namespace {

cudaError_t Next(const char* call, cudaError_t error = cudaErrorLaunchFailure) {
  return static_cast<cudaError_t>(ceres_ext::cuda_faults().Next(call, error));
}

cudaError_t Held(cudaError_t error) {
  ceres_ext::cuda_faults().Hold(error == cudaSuccess ? 1 : 0);
  return error;
}

cudaError_t Freed(const char* call, cudaError_t error) {
  ceres_ext::cuda_faults().Hold(error == cudaSuccess ? -1 : 0);
  const cudaError_t next = Next(call);
  return next != cudaSuccess ? next : error;
}

}  // namespace

// A function of `parameters`, called with `arguments`: one that uses, that
// makes (and fails with `error`) and that frees something.
#define CERES_EXT_WRAP(name, parameters, arguments)                \
  extern "C" cudaError_t __real_##name parameters;                 \
  extern "C" cudaError_t __wrap_##name parameters {                \
    const cudaError_t error = Next(#name);                         \
    return error != cudaSuccess ? error : __real_##name arguments; \
  }
#define CERES_EXT_WRAP_MAKE(name, error_code, parameters, arguments)     \
  extern "C" cudaError_t __real_##name parameters;                       \
  extern "C" cudaError_t __wrap_##name parameters {                      \
    const cudaError_t error = Next(#name, error_code);                   \
    return error != cudaSuccess ? error : Held(__real_##name arguments); \
  }
#define CERES_EXT_WRAP_FREE(name, parameters, arguments) \
  extern "C" cudaError_t __real_##name parameters;       \
  extern "C" cudaError_t __wrap_##name parameters {      \
    return Freed(#name, __real_##name arguments);        \
  }

CERES_EXT_WRAP(__cudaLaunchKernel,
               (cudaKernel_t kernel,
                dim3 grid,
                dim3 block,
                void** arguments,
                size_t shared_bytes,
                cudaStream_t stream),
               (kernel, grid, block, arguments, shared_bytes, stream))
CERES_EXT_WRAP(cudaLaunchKernel,
               (const void* kernel,
                dim3 grid,
                dim3 block,
                void** arguments,
                size_t shared_bytes,
                cudaStream_t stream),
               (kernel, grid, block, arguments, shared_bytes, stream))
CERES_EXT_WRAP(cudaLaunchKernelExC,
               (const cudaLaunchConfig_t* config,
                const void* kernel,
                void** arguments),
               (config, kernel, arguments))
CERES_EXT_WRAP(cudaDeviceGetAttribute,
               (int* value, cudaDeviceAttr attribute, int device),
               (value, attribute, device))
CERES_EXT_WRAP(cudaDriverGetVersion, (int* version), (version))
CERES_EXT_WRAP(cudaEventElapsedTime,
               (float* ms, cudaEvent_t start, cudaEvent_t end),
               (ms, start, end))
CERES_EXT_WRAP(cudaEventRecord,
               (cudaEvent_t event, cudaStream_t stream),
               (event, stream))
CERES_EXT_WRAP(cudaStreamWaitEvent,
               (cudaStream_t stream, cudaEvent_t event, unsigned flags),
               (stream, event, flags))
CERES_EXT_WRAP(cudaEventQuery, (cudaEvent_t event), (event))
CERES_EXT_WRAP(cudaEventSynchronize, (cudaEvent_t event), (event))
CERES_EXT_WRAP(cudaFuncGetAttributes,
               (cudaFuncAttributes * attributes, const void* kernel),
               (attributes, kernel))
CERES_EXT_WRAP(cudaFuncSetAttribute,
               (const void* kernel, cudaFuncAttribute attribute, int value),
               (kernel, attribute, value))
CERES_EXT_WRAP(cudaGetDevice, (int* device), (device))
CERES_EXT_WRAP(cudaDeviceSynchronize, (), ())
CERES_EXT_WRAP(cudaGetDeviceCount, (int* count), (count))
CERES_EXT_WRAP(cudaPointerGetAttributes,
               (cudaPointerAttributes * attributes, const void* pointer),
               (attributes, pointer))
CERES_EXT_WRAP(cudaGetDeviceProperties,
               (cudaDeviceProp * properties, int device),
               (properties, device))
CERES_EXT_WRAP(cudaGraphAddEventRecordNode,
               (cudaGraphNode_t * node,
                cudaGraph_t graph,
                const cudaGraphNode_t* previous,
                size_t num_previous,
                cudaEvent_t event),
               (node, graph, previous, num_previous, event))
CERES_EXT_WRAP(cudaGraphAddKernelNode,
               (cudaGraphNode_t * node,
                cudaGraph_t graph,
                const cudaGraphNode_t* previous,
                size_t num_previous,
                const cudaKernelNodeParams* params),
               (node, graph, previous, num_previous, params))
CERES_EXT_WRAP(cudaGraphAddMemcpyNode1D,
               (cudaGraphNode_t * node,
                cudaGraph_t graph,
                const cudaGraphNode_t* previous,
                size_t num_previous,
                void* to,
                const void* from,
                size_t num_bytes,
                cudaMemcpyKind kind),
               (node, graph, previous, num_previous, to, from, num_bytes, kind))
CERES_EXT_WRAP(cudaGraphAddNode,
               (cudaGraphNode_t * node,
                cudaGraph_t graph,
                const cudaGraphNode_t* previous,
                const cudaGraphEdgeData* edges,
                size_t num_previous,
                cudaGraphNodeParams* params),
               (node, graph, previous, edges, num_previous, params))
CERES_EXT_WRAP(cudaGraphConditionalHandleCreate,
               (cudaGraphConditionalHandle * handle,
                cudaGraph_t graph,
                unsigned value,
                unsigned flags),
               (handle, graph, value, flags))
CERES_EXT_WRAP(cudaGraphExecKernelNodeSetParams,
               (cudaGraphExec_t executable,
                cudaGraphNode_t node,
                const cudaKernelNodeParams* params),
               (executable, node, params))
CERES_EXT_WRAP(cudaGraphLaunch,
               (cudaGraphExec_t graph, cudaStream_t stream),
               (graph, stream))
CERES_EXT_WRAP(cudaGraphUpload,
               (cudaGraphExec_t graph, cudaStream_t stream),
               (graph, stream))
CERES_EXT_WRAP(cudaMemGetInfo, (size_t * free, size_t* total), (free, total))
CERES_EXT_WRAP(cudaMemcpyAsync,
               (void* to,
                const void* from,
                size_t num_bytes,
                cudaMemcpyKind kind,
                cudaStream_t stream),
               (to, from, num_bytes, kind, stream))
CERES_EXT_WRAP(cudaMemsetAsync,
               (void* to, int value, size_t num_bytes, cudaStream_t stream),
               (to, value, num_bytes, stream))
CERES_EXT_WRAP(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
               (int* num_blocks,
                const void* kernel,
                int block_size,
                size_t shared_bytes,
                unsigned flags),
               (num_blocks, kernel, block_size, shared_bytes, flags))
CERES_EXT_WRAP(cudaOccupancyMaxActiveClusters,
               (int* num_clusters,
                const void* kernel,
                const cudaLaunchConfig_t* config),
               (num_clusters, kernel, config))
CERES_EXT_WRAP(cudaSetDevice, (int device), (device))
CERES_EXT_WRAP(cudaStreamQuery, (cudaStream_t stream), (stream))
CERES_EXT_WRAP(cudaStreamSynchronize, (cudaStream_t stream), (stream))

CERES_EXT_WRAP(cudaThreadExchangeStreamCaptureMode,
               (cudaStreamCaptureMode * mode),
               (mode))

CERES_EXT_WRAP_MAKE(cudaEventCreate,
                    cudaErrorLaunchFailure,
                    (cudaEvent_t * event),
                    (event))
CERES_EXT_WRAP_MAKE(cudaGraphCreate,
                    cudaErrorMemoryAllocation,
                    (cudaGraph_t * graph, unsigned flags),
                    (graph, flags))
CERES_EXT_WRAP_MAKE(cudaGraphInstantiate,
                    cudaErrorMemoryAllocation,
                    (cudaGraphExec_t * executable,
                     cudaGraph_t graph,
                     unsigned long long flags),  // NOLINT(runtime/int)
                    (executable, graph, flags))
CERES_EXT_WRAP_MAKE(cudaMalloc,
                    cudaErrorMemoryAllocation,
                    (void** data, size_t num_bytes),
                    (data, num_bytes))
CERES_EXT_WRAP_MAKE(cudaMallocHost,
                    cudaErrorMemoryAllocation,
                    (void** data, size_t num_bytes),
                    (data, num_bytes))
CERES_EXT_WRAP_MAKE(cudaStreamCreateWithFlags,
                    cudaErrorLaunchFailure,
                    (cudaStream_t * stream, unsigned flags),
                    (stream, flags))

CERES_EXT_WRAP_FREE(cudaEventDestroy, (cudaEvent_t event), (event))
CERES_EXT_WRAP_FREE(cudaFree, (void* data), (data))
CERES_EXT_WRAP_FREE(cudaFreeHost, (void* data), (data))
CERES_EXT_WRAP_FREE(cudaGraphDestroy, (cudaGraph_t graph), (graph))
CERES_EXT_WRAP_FREE(cudaGraphExecDestroy,
                    (cudaGraphExec_t executable),
                    (executable))
CERES_EXT_WRAP_FREE(cudaStreamDestroy, (cudaStream_t stream), (stream))

// Not counted: they only tell of others.
extern "C" cudaError_t __real_cudaGetLastError();
extern "C" cudaError_t __wrap_cudaGetLastError() {
  const int error = ceres_ext::cuda_faults().LastError(/*clear=*/true);
  const cudaError_t real = __real_cudaGetLastError();
  return error != 0 ? static_cast<cudaError_t>(error) : real;
}
extern "C" cudaError_t __real_cudaPeekAtLastError();
extern "C" cudaError_t __wrap_cudaPeekAtLastError() {
  const int error = ceres_ext::cuda_faults().LastError(/*clear=*/false);
  return error != 0 ? static_cast<cudaError_t>(error)
                    : __real_cudaPeekAtLastError();
}
