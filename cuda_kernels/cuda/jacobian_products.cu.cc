// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// J x and column norms. J'y works on tiles: schur_products_*.cu.cc.
#include <cuda_runtime.h>

#include "cuda_kernels/cuda/jacobian_products_impl.cuh"
#include "cuda_kernels/cuda/recomputed_tiles.cuh"

namespace ceres_ext::kernels {
namespace {

// y_k = Jc x_c + Jp x_p with recomputed blocks.
// Mapping: one thread per observation, in point order.
// Traffic per observation: a camera record (L2), 8 B of ids, a row scale, 16 B
// out.
template <typename T, int C, bool kScaledRows>
__global__ void __launch_bounds__(kProductBlock) RecomputedRightMultiplyKernel(
    RightMultiplyParams<RecomputedJacobian<T, C, kScaledRows>> p,
    const CameraRecord<T>* records) {
  const int64_t k = int64_t{blockIdx.x} * kProductBlock + threadIdx.x;
  if (k >= p.index.num_observations) {
    return;  // No barrier follows.
  }
  const int32_t camera_id = p.index.camera_id[k];
  CameraRecord<T> camera;
  LoadRecord<true>(records + camera_id, &camera);
  const int64_t point = p.index.point_id[k];
  T x[3];
  T u[3];
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    const T value = p.jacobian.points[3 * point + i];
    x[i] = fabs(value) < Tame<T>::kLargest ? value : Tame<T>::kNaN;
    u[i] = static_cast<T>(p.point_x[3 * point + i]);
    if (p.jacobian.point_scale != nullptr) {
      u[i] *= p.jacobian.point_scale[3 * point + i];
    }
  }
  Projection<T> projection;
  ProjectTame(camera.state,
              x,
              p.jacobian.cameras + camera_id,
              p.jacobian.points + 3 * point,
              &projection);
  T y[2];
  Forward<kUseCamera, true, false>(camera, projection, nullptr, u, T(1), y);
  p.jacobian.template ScaleRows<2>(k, y);
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const double value = static_cast<double>(y[row]);
    p.y[2 * k + row] = p.accumulate ? p.y[2 * k + row] + value : value;
  }
}

template <typename T, int C, bool kScaledRows>
Status RecomputedRightMultiply(
    const RightMultiplyParams<RecomputedJacobian<T, C, kScaledRows>>& params,
    CudaMachine* machine) {
  const CameraRecord<T>* records;
  CERES_EXT_RETURN_IF_ERROR(RecordCameras(params.index,
                                          params.jacobian,
                                          params.camera_x,
                                          nullptr,
                                          machine,
                                          &records));
  return Launch(
      "RecomputedRightMultiply",
      RecomputedRightMultiplyKernel<T, C, kScaledRows>,
      {CeilDivide(params.index.num_observations, kProductBlock), kProductBlock},
      machine->stream(),
      params,
      records);
}

}  // namespace

#define CERES_EXT_INSTANTIATE(...)                                        \
  template <>                                                             \
  Status Run(                                                             \
      const RightMultiplyParams<RecomputedJacobian<__VA_ARGS__>>& params, \
      CudaMachine* machine) {                                             \
    return RecomputedRightMultiply(params, machine);                      \
  }                                                                       \
  template Status Run(                                                    \
      const SquaredColumnNormsParams<RecomputedJacobian<__VA_ARGS__>>&,   \
      CudaMachine*);
CERES_EXT_FOR_EACH_RECOMPUTED(CERES_EXT_INSTANTIATE)
#undef CERES_EXT_INSTANTIATE

#define CERES_EXT_INSTANTIATE(...)                                            \
  template Status Run(const RightMultiplyParams<__VA_ARGS__>&, CudaMachine*); \
  template Status Run(const SquaredColumnNormsParams<__VA_ARGS__>&,           \
                      CudaMachine*);
CERES_EXT_FOR_EACH_STORED_COLUMNS(CERES_EXT_INSTANTIATE_DEVICE_STORED)
#undef CERES_EXT_INSTANTIATE

}  // namespace ceres_ext::kernels
