// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Sums over the observations of a point, in point order: a thread takes a
// point, a warp takes one of more than kLongTrack observations, which would
// keep a thread busy long after all others. Included by .cu.cc files only.
#ifndef CERES_EXT_CUDA_KERNELS_CUDA_POINT_TASKS_CUH_
#define CERES_EXT_CUDA_KERNELS_CUDA_POINT_TASKS_CUH_

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/structure/cuda_workspace.h"
#include "cuda_kernels/structure/observation_index.h"

namespace ceres_ext::kernels {

inline constexpr int kPointTaskBlock = 128;

struct PointTasks {
  int32_t num_long_points = 0;
  const int32_t* long_point = nullptr;
};

// Observations begin, begin + stride, .. of the point; point < 0: no work.
struct PointTask {
  int64_t point = -1;
  int64_t begin = 0;
  int64_t end = 0;
  int stride = 1;
};

// kLong: the same point, or none, for all lanes of a warp.
template <bool kLong>
__device__ __forceinline__ PointTask
MakePointTask(const ObservationIndexRef& index, const PointTasks& tasks) {
  PointTask task;
  const int64_t thread = int64_t{blockIdx.x} * kPointTaskBlock + threadIdx.x;
  if constexpr (kLong) {
    const int64_t i = thread / kWarpSize;
    if (i >= tasks.num_long_points) {
      return task;
    }
    task.point = tasks.long_point[i];
    task.begin = index.point_begin[task.point] + thread % kWarpSize;
    task.end = index.point_begin[task.point + 1];
    task.stride = kWarpSize;
  } else {
    if (thread >= index.num_points) {
      return task;
    }
    task.begin = index.point_begin[thread];
    task.end = index.point_begin[thread + 1];
    if (task.end - task.begin <= kLongTrack) {
      task.point = thread;
    }
  }
  return task;
}

// Queues Kernel<false> and, where there are long points, Kernel<true>:
// kernel(params, tasks, others...).
template <typename Kernel, typename Params, typename... Others>
Status LaunchPointTasks(const char* name,
                        Kernel kernel,
                        Kernel long_kernel,
                        const ObservationIndexRef& index,
                        CudaMachine* machine,
                        const Params& params,
                        Others... others) {
  const PointTasks tasks{index.cuda_workspace->num_long_points,
                         index.cuda_workspace->long_point};
  CERES_EXT_RETURN_IF_ERROR(
      Launch(name,
             kernel,
             {CeilDivide(index.num_points, kPointTaskBlock), kPointTaskBlock},
             machine->stream(),
             params,
             tasks,
             others...));
  return Launch(
      name,
      long_kernel,
      {CeilDivide(int64_t{tasks.num_long_points} * kWarpSize, kPointTaskBlock),
       kPointTaskBlock},
      machine->stream(),
      params,
      tasks,
      others...);
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_CUDA_POINT_TASKS_CUH_
