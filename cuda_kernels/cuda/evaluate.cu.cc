// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/ops/evaluate.h"

#include <cuda_runtime.h>

#include "cuda_kernels/cuda/evaluate_impl.cuh"
#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_machine.h"

namespace ceres_ext::kernels {
namespace {

// Mapping: one thread per camera.
template <CameraParameters kParameters, typename T, int C>
__global__ void __launch_bounds__(64)
    PrepareCamerasKernel(PrepareCamerasParams<T, C> p) {
  const int64_t c = int64_t{blockIdx.x} * 64 + threadIdx.x;
  if (c < p.num_cameras) {
    PrepareCamera<kParameters>(p, c);
  }
}

}  // namespace

template <typename T, int C>
Status Run(const PrepareCamerasParams<T, C>& params, CudaMachine* machine) {
  CERES_EXT_RETURN_IF_ERROR(Validate(params));
  const auto kernel =
      params.parameters == CameraParameters::kAngleAxis
          ? &PrepareCamerasKernel<CameraParameters::kAngleAxis, T, C>
          : &PrepareCamerasKernel<CameraParameters::kQuaternion, T, C>;
  return Launch("PrepareCameras",
                kernel,
                {CeilDivide(params.num_cameras, 64), 64},
                machine->stream(),
                params);
}

#define CERES_EXT_INSTANTIATE(T, C)                                       \
  template Status Run(const PrepareCamerasParams<T, C>&, CudaMachine*);   \
  template Status Run(const EvaluateJacobianParams<T, C, kDeviceLayout>&, \
                      CudaMachine*)

CERES_EXT_INSTANTIATE(double, 9);
CERES_EXT_INSTANTIATE(double, 10);
CERES_EXT_INSTANTIATE(float, 9);
CERES_EXT_INSTANTIATE(float, 10);
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext::kernels
