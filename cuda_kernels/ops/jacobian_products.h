// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Products with the Jacobian J = [Jp Jc] as a matrix, its column norms and
// scaling: what Ceres's trust-region loop asks of a Jacobian.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_JACOBIAN_PRODUCTS_H_
#define CERES_EXT_CUDA_KERNELS_OPS_JACOBIAN_PRODUCTS_H_

#include <cstdint>

#include "cuda_kernels/base/block_view.h"
#include "cuda_kernels/structure/observation_index.h"

namespace ceres_ext::kernels {

class HostWorkspace;

// y_k = Jc x_c + Jp x_p, or += .
// Order: columns from 0 on, cameras before points. Traffic: 24 values of
// Jacobian, 16 B (accumulate: 32 B) of y, 8 B of ids per observation.
template <typename Source>
struct RightMultiplyParams {
  ObservationIndexView index;
  Source jacobian;
  const double* camera_x = nullptr;  // C per camera
  const double* point_x = nullptr;   // 3 per point
  double* y = nullptr;               // 2 per observation
  bool accumulate = false;
};

// x_c = sum Jc' y_k, x_p = sum Jp' y_k, or += ; a null output is not computed.
// Order: as ops/normal_blocks.h. Traffic: 24 values of Jacobian, 16 B of y,
// 8 B of ids per observation.
template <typename Source>
struct LeftMultiplyParams {
  ObservationIndexView index;
  Source jacobian;
  const double* y = nullptr;   // 2 per observation
  double* camera_x = nullptr;  // C per camera
  double* point_x = nullptr;   // 3 per point
  bool accumulate = false;
};

// x_j = |column j of J|^2; a null output is not computed.
// Order and traffic: as LeftMultiply, without y.
template <typename Source>
struct SquaredColumnNormsParams {
  ObservationIndexView index;
  Source jacobian;
  double* camera_x = nullptr;
  double* point_x = nullptr;
};

// J = J diag(s), in place.
// Order: no sums. Traffic: 48 values of Jacobian, 8 B of ids per observation.
template <typename T, int C, BlockLayout kLayout>
struct ScaleColumnsParams {
  ObservationIndexView index;
  BlockView<T, 2 * C, kLayout> camera_blocks;
  BlockView<T, 6, kLayout> point_blocks;
  const double* camera_scale = nullptr;  // C per camera
  const double* point_scale = nullptr;   // 3 per point
};

// Host bodies. Sources as in ops/schur_products.h.
namespace host {

template <typename Source>
void RightMultiply(const RightMultiplyParams<Source>& params,
                   HostWorkspace* workspace);

template <typename Source>
void LeftMultiply(const LeftMultiplyParams<Source>& params,
                  HostWorkspace* workspace);

template <typename Source>
void SquaredColumnNorms(const SquaredColumnNormsParams<Source>& params,
                        HostWorkspace* workspace);

template <typename T, int C>
void ScaleColumns(const ScaleColumnsParams<T, C, kHostLayout>& params,
                  HostWorkspace* workspace);

}  // namespace host

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_JACOBIAN_PRODUCTS_H_
