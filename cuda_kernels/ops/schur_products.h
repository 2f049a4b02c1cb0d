// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Products with the normal matrix J'J + D^2 and with its Schur complement by
// points, S = U + D_c^2 - W (V + D_p^2)^-1 W', and back-substitution.
// Letters and blocks: ops/normal_blocks.h. S is never formed.
//
// Order, all: sums over the observations of a point in their order; sums over
// the observations of a camera in a fixed order of the machine's own.
// If `scalars` is not null and ended, nothing is done. Vectors have R values
// per observation, E per point, F per camera.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_SCHUR_PRODUCTS_H_
#define CERES_EXT_CUDA_KERNELS_OPS_SCHUR_PRODUCTS_H_

#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/structure/observation_index.h"

namespace ceres_ext::kernels {

class CudaMachine;
class HostMachine;

// q = S p from the Jacobian, U and W never formed:
//   y_k = Jc p_c,  e_p = Vi_p sum_k Jp' y_k,
//   q_c = D_c^2 p_c + sum_k Jc' (y_k - Jp e_p)
// or, where eliminated_part is true, what the elimination subtracts, alone:
//   q_c = -sum_k Jc' Jp e_p
template <typename Source, BlockLayout kLayout>
struct SchurProductImplicitWParams {
  using Shape = typename Source::Shape;

  ObservationIndexRef index;
  Source jacobian;
  BlockRef<const double, Shape::kPackedE, kLayout> v_inverse;
  const double* camera_diagonal = nullptr;  // D_c; null: zero
  const double* p = nullptr;
  double* q = nullptr;
  const PcgScalars* scalars = nullptr;
  bool eliminated_part = false;  // camera_diagonal is then null
};

// y_p = Vi_p sum_k Jp' (b_k - Jc z_c)
template <typename Source, BlockLayout kLayout>
struct BackSubstituteImplicitWParams {
  using Shape = typename Source::Shape;

  ObservationIndexRef index;
  Source jacobian;
  const double* b = nullptr;
  BlockRef<const double, Shape::kPackedE, kLayout> v_inverse;
  const double* z = nullptr;
  double* y = nullptr;
};

// q = (J'J + D^2) p from the Jacobian, J and then J' in one pass:
//   y_k = Jc p_c + Jp p_p
//   q_c = D_c^2 p_c + sum_k Jc' y_k,  q_p = D_p^2 p_p + sum_k Jp' y_k
template <typename Source>
struct NormalProductImplicitWParams {
  ObservationIndexRef index;
  Source jacobian;
  const double* camera_diagonal = nullptr;  // null: zero
  const double* point_diagonal = nullptr;   // null: zero
  const double* camera_p = nullptr;
  const double* point_p = nullptr;
  double* camera_q = nullptr;
  double* point_q = nullptr;  // null: not wanted
  const PcgScalars* scalars = nullptr;
};

// Sources: StoredJacobian<T, BalShape<C>, layout of the machine> and
// RecomputedJacobian<T, C>, T double or float, C 9 or 10; the host recomputes
// in double alone. Other layouts on a device are instantiated from
// cuda/*_impl.cuh by who wants them.
template <typename Source>
Status Run(const SchurProductImplicitWParams<Source, kHostLayout>& params,
           HostMachine* machine);
template <typename Source, BlockLayout kLayout>
Status Run(const SchurProductImplicitWParams<Source, kLayout>& params,
           CudaMachine* machine);
template <typename Source>
Status Run(const BackSubstituteImplicitWParams<Source, kHostLayout>& params,
           HostMachine* machine);
template <typename Source, BlockLayout kLayout>
Status Run(const BackSubstituteImplicitWParams<Source, kLayout>& params,
           CudaMachine* machine);
template <typename Source>
Status Run(const NormalProductImplicitWParams<Source>& params,
           HostMachine* machine);
template <typename Source>
Status Run(const NormalProductImplicitWParams<Source>& params,
           CudaMachine* machine);

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_SCHUR_PRODUCTS_H_
