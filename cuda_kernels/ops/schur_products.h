// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Products with the normal matrix J'J + D^2 and with its Schur complement by
// points, S = U + D_c^2 - W (V + D_p^2)^-1 W', and back-substitution.
// Letters and blocks: ops/normal_blocks.h. S is never formed.
//
// Order, all: sums over the observations of a point in their order; sums over
// the observations of a camera in a fixed order of the machine's own.
// Where `scalars` is not null and ended, nothing is done.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_SCHUR_PRODUCTS_H_
#define CERES_EXT_CUDA_KERNELS_OPS_SCHUR_PRODUCTS_H_

#include <cstdint>

#include "cuda_kernels/base/block_view.h"
#include "cuda_kernels/structure/observation_index.h"
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/small_matrix.h"

namespace ceres_ext::kernels {

class HostWorkspace;

// q = S p from the Jacobian, U and W never formed:
//   y_k = Jc p_c,  e_p = Vi_p sum_k Jp' y_k,
//   q_c = D_c^2 p_c + sum_k Jc' (y_k - Jp e_p)
// Traffic: 24 values of Jacobian and 8 B of ids per observation, 48 B per
// point.
template <typename Source, BlockLayout kLayout>
struct SchurProductImplicitWParams {
  ObservationIndexView index;
  Source jacobian;
  BlockView<const double, 6, kLayout> v_inverse;
  const double* camera_diagonal = nullptr;  // D_c, C per camera; null: zero
  const double* p = nullptr;                // C per camera
  double* q = nullptr;                      // C per camera
  const PcgScalars* scalars = nullptr;
};

// q = S p from stored blocks:
//   q_c = (U_c + D_c^2) p_c - sum_k W_k Vi_p sum_l W_l' p
// Traffic: 3 C values of W and 8 B of ids per observation, 48 B per point.
template <typename T, int C, BlockLayout kLayout>
struct SchurProductExplicitWParams {
  ObservationIndexView index;
  BlockView<const double, PackedSize(C), kLayout> u;
  BlockView<const T, 3 * C, kLayout> w;
  BlockView<const double, 6, kLayout> v_inverse;
  const double* camera_diagonal = nullptr;
  const double* p = nullptr;
  double* q = nullptr;
  const PcgScalars* scalars = nullptr;
};

// y_p = Vi_p sum_k Jp' (b_k - Jc z_c)
// Traffic: 24 values of Jacobian, 16 B of b, 4 B of ids per observation, 72 B
// per point.
template <typename Source, BlockLayout kLayout>
struct BackSubstituteImplicitWParams {
  ObservationIndexView index;
  Source jacobian;
  const double* b = nullptr;
  BlockView<const double, 6, kLayout> v_inverse;
  const double* z = nullptr;  // C per camera
  double* y = nullptr;        // 3 per point
};

// y_p = Vi_p (g_p - sum_k W_k' z_c)
// Traffic: 3 C values of W, 4 B of ids per observation, 96 B per point.
template <typename T, int C, BlockLayout kLayout>
struct BackSubstituteExplicitWParams {
  ObservationIndexView index;
  BlockView<const T, 3 * C, kLayout> w;
  BlockView<const double, 6, kLayout> v_inverse;
  const double* point_gradient = nullptr;  // g_p
  const double* z = nullptr;
  double* y = nullptr;
};

// q = (J'J + D^2) p from the Jacobian, J and then J' in one pass:
//   y_k = Jc p_c + Jp p_p
//   q_c = D_c^2 p_c + sum_k Jc' y_k,  q_p = D_p^2 p_p + sum_k Jp' y_k
// Traffic: 24 values of Jacobian and 8 B of ids per observation, 48 B per
// point.
template <typename Source>
struct NormalProductImplicitWParams {
  ObservationIndexView index;
  Source jacobian;
  const double* camera_diagonal = nullptr;  // null: zero
  const double* point_diagonal = nullptr;   // null: zero
  const double* camera_p = nullptr;
  const double* point_p = nullptr;
  double* camera_q = nullptr;
  double* point_q = nullptr;
  const PcgScalars* scalars = nullptr;
};

// q = (J'J + D^2) p from stored blocks:
//   q_c = (U_c + D_c^2) p_c + sum_k W_k p_p
//   q_p = (V_p + D_p^2) p_p + sum_k W_k' p_c
// Traffic: 3 C values of W and 8 B of ids per observation, 96 B per point.
template <typename T, int C, BlockLayout kLayout>
struct NormalProductExplicitWParams {
  ObservationIndexView index;
  BlockView<const double, PackedSize(C), kLayout> u;
  BlockView<const double, 6, kLayout> v;
  BlockView<const T, 3 * C, kLayout> w;
  const double* camera_diagonal = nullptr;
  const double* point_diagonal = nullptr;
  const double* camera_p = nullptr;
  const double* point_p = nullptr;
  double* camera_q = nullptr;
  double* point_q = nullptr;
  const PcgScalars* scalars = nullptr;
};

// Host bodies, for StoredJacobian<double or float, 9 or 10, kHostLayout> and
// RecomputedJacobian<double, 9 or 10>.
namespace host {

template <typename Source>
void SchurProductImplicitW(
    const SchurProductImplicitWParams<Source, kHostLayout>& params,
    HostWorkspace* workspace);

template <typename T, int C>
void SchurProductExplicitW(
    const SchurProductExplicitWParams<T, C, kHostLayout>& params,
    HostWorkspace* workspace);

template <typename Source>
void BackSubstituteImplicitW(
    const BackSubstituteImplicitWParams<Source, kHostLayout>& params,
    HostWorkspace* workspace);

template <typename T, int C>
void BackSubstituteExplicitW(
    const BackSubstituteExplicitWParams<T, C, kHostLayout>& params,
    HostWorkspace* workspace);

template <typename Source>
void NormalProductImplicitW(const NormalProductImplicitWParams<Source>& params,
                            HostWorkspace* workspace);

template <typename T, int C>
void NormalProductExplicitW(
    const NormalProductExplicitWParams<T, C, kHostLayout>& params,
    HostWorkspace* workspace);

}  // namespace host

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_SCHUR_PRODUCTS_H_
