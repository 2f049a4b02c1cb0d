// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Products with the Jacobian J = [Jp Jc] as a matrix, its column norms and
// scaling: what Ceres's trust-region loop asks of a Jacobian.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_JACOBIAN_PRODUCTS_H_
#define CERES_EXT_CUDA_KERNELS_OPS_JACOBIAN_PRODUCTS_H_

#include <cstdint>

#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/ops/vector_operation.h"
#include "cuda_kernels/structure/observation_index.h"

namespace ceres_ext::kernels {

class CudaMachine;
class HostMachine;

// y_k = Jc x_c + Jp x_p, or += .
// Order: columns from 0 on, cameras before points.
template <typename Source>
struct RightMultiplyParams {
  ObservationIndexRef index;
  Source jacobian;
  const double* camera_x = nullptr;  // F per camera
  const double* point_x = nullptr;   // E per point
  double* y = nullptr;               // R per observation
  bool accumulate = false;
};

// x_c = sum Jc' y_k, x_p = sum Jp' y_k, or += ; a null output is not computed.
// Order: as ops/normal_blocks.h.
template <typename Source>
struct LeftMultiplyParams {
  ObservationIndexRef index;
  Source jacobian;
  const double* y = nullptr;   // R per observation
  double* camera_x = nullptr;  // F per camera
  double* point_x = nullptr;   // E per point
  bool accumulate = false;
};

// x_j = |column j of J|^2; a null output is not computed.
// Order and traffic: as LeftMultiply, without y.
template <typename Source>
struct SquaredColumnNormsParams {
  ObservationIndexRef index;
  Source jacobian;
  double* camera_x = nullptr;
  double* point_x = nullptr;
};

// J = J diag(s), in place. A vector operation (ops/vector_operation.h) on the
// observations.
template <typename T, typename Shape, BlockLayout kLayout>
struct ScaleColumnsParams {
  ObservationIndexRef index;
  BlockRef<T, Shape::kFSize, kLayout> camera_blocks;
  BlockRef<T, Shape::kESize, kLayout> point_blocks;
  const double* camera_scale = nullptr;  // F per camera
  const double* point_scale = nullptr;   // E per point

  static constexpr int kUnroll = 1;
  int64_t size() const { return index.num_observations; }
  CERES_EXT_HOST_DEVICE void Apply(int64_t k) const {
    Scale<Shape::kF>(k,
                     camera_scale + int64_t{Shape::kF} * index.camera_id[k],
                     camera_blocks);
    Scale<Shape::kE>(
        k, point_scale + int64_t{Shape::kE} * index.point_id[k], point_blocks);
  }

 private:
  template <int N, typename Blocks>
  CERES_EXT_HOST_DEVICE static void Scale(int64_t k,
                                          const double* scale,
                                          const Blocks& blocks) {
    for (int r = 0; r < Shape::kNumResiduals; ++r) {
      for (int i = 0; i < N; ++i) {
        T& value = blocks(k, N * r + i);
        value = static_cast<T>(value * scale[i]);
      }
    }
  }
};

// Sources as in ops/schur_products.h.
template <typename Source>
Status Run(const RightMultiplyParams<Source>& params, HostMachine* machine);
template <typename Source>
Status Run(const RightMultiplyParams<Source>& params, CudaMachine* machine);
template <typename Source>
Status Run(const LeftMultiplyParams<Source>& params, HostMachine* machine);
template <typename Source>
Status Run(const LeftMultiplyParams<Source>& params, CudaMachine* machine);
template <typename Source>
Status Run(const SquaredColumnNormsParams<Source>& params,
           HostMachine* machine);
template <typename Source>
Status Run(const SquaredColumnNormsParams<Source>& params,
           CudaMachine* machine);

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_JACOBIAN_PRODUCTS_H_
