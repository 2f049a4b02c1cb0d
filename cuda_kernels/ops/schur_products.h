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
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/structure/observation_index.h"
#include "cuda_kernels/structure/traffic.h"

namespace ceres_ext::kernels {

class CudaMachine;
class HostMachine;

// q = S p from the Jacobian, U and W never formed:
//   y_k = Jc p_c,  e_p = Vi_p sum_k Jp' y_k,
//   q_c = D_c^2 p_c + sum_k Jc' (y_k - Jp e_p)
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

template <typename Source, BlockLayout kLayout>
Traffic GetTraffic(const SchurProductImplicitWParams<Source, kLayout>& p) {
  constexpr int C = Source::kCameraDim;
  Traffic traffic = kIndexTraffic;
  traffic += JacobianTraffic(p.jacobian);
  traffic +=
      {0,
       BytesIf(p.v_inverse),
       BytesIf(p.camera_diagonal, C) + BytesIf(p.p, C) + BytesIf(p.q, C)};
  return traffic;
}

// q = S p from stored blocks:
//   q_c = (U_c + D_c^2) p_c - sum_k W_k Vi_p sum_l W_l' p
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

template <typename T, int C, BlockLayout kLayout>
Traffic GetTraffic(const SchurProductExplicitWParams<T, C, kLayout>& p) {
  Traffic traffic = kIndexTraffic;
  traffic += {BytesIf(p.w),
              BytesIf(p.v_inverse),
              BytesIf(p.u) + BytesIf(p.camera_diagonal, C) + BytesIf(p.p, C) +
                  BytesIf(p.q, C)};
  return traffic;
}

// y_p = Vi_p sum_k Jp' (b_k - Jc z_c)
template <typename Source, BlockLayout kLayout>
struct BackSubstituteImplicitWParams {
  ObservationIndexView index;
  Source jacobian;
  const double* b = nullptr;
  BlockView<const double, 6, kLayout> v_inverse;
  const double* z = nullptr;  // C per camera
  double* y = nullptr;        // 3 per point
};

template <typename Source, BlockLayout kLayout>
Traffic GetTraffic(const BackSubstituteImplicitWParams<Source, kLayout>& p) {
  Traffic traffic = kIndexTraffic;
  traffic += JacobianTraffic(p.jacobian);
  traffic += {BytesIf(p.b, 2),
              BytesIf(p.v_inverse) + BytesIf(p.y, 3),
              BytesIf(p.z, Source::kCameraDim)};
  return traffic;
}

// y_p = Vi_p (g_p - sum_k W_k' z_c)
template <typename T, int C, BlockLayout kLayout>
struct BackSubstituteExplicitWParams {
  ObservationIndexView index;
  BlockView<const T, 3 * C, kLayout> w;
  BlockView<const double, 6, kLayout> v_inverse;
  const double* point_gradient = nullptr;  // g_p
  const double* z = nullptr;
  double* y = nullptr;
};

template <typename T, int C, BlockLayout kLayout>
Traffic GetTraffic(const BackSubstituteExplicitWParams<T, C, kLayout>& p) {
  Traffic traffic = kIndexTraffic;
  traffic +=
      {BytesIf(p.w),
       BytesIf(p.v_inverse) + BytesIf(p.point_gradient, 3) + BytesIf(p.y, 3),
       BytesIf(p.z, C)};
  return traffic;
}

// q = (J'J + D^2) p from the Jacobian, J and then J' in one pass:
//   y_k = Jc p_c + Jp p_p
//   q_c = D_c^2 p_c + sum_k Jc' y_k,  q_p = D_p^2 p_p + sum_k Jp' y_k
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

template <typename Source>
Traffic GetTraffic(const NormalProductImplicitWParams<Source>& p) {
  constexpr int C = Source::kCameraDim;
  Traffic traffic = kIndexTraffic;
  traffic += JacobianTraffic(p.jacobian);
  traffic += {0,
              BytesIf(p.point_diagonal, 3) + BytesIf(p.point_p, 3) +
                  BytesIf(p.point_q, 3),
              BytesIf(p.camera_diagonal, C) + BytesIf(p.camera_p, C) +
                  BytesIf(p.camera_q, C)};
  return traffic;
}

// q = (J'J + D^2) p from stored blocks:
//   q_c = (U_c + D_c^2) p_c + sum_k W_k p_p
//   q_p = (V_p + D_p^2) p_p + sum_k W_k' p_c
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

template <typename T, int C, BlockLayout kLayout>
Traffic GetTraffic(const NormalProductExplicitWParams<T, C, kLayout>& p) {
  Traffic traffic = kIndexTraffic;
  traffic += {BytesIf(p.w), BytesIf(p.v), BytesIf(p.u)};
  traffic += {0,
              BytesIf(p.point_diagonal, 3) + BytesIf(p.point_p, 3) +
                  BytesIf(p.point_q, 3),
              BytesIf(p.camera_diagonal, C) + BytesIf(p.camera_p, C) +
                  BytesIf(p.camera_q, C)};
  return traffic;
}

// Sources: StoredJacobian<T, C, layout of the machine> and
// RecomputedJacobian<T, C>, T double or float, C 9 or 10; the host recomputes
// in double alone. Other layouts on a device are instantiated from
// cuda/*_impl.cuh by who wants them.
template <typename Source>
Status Run(const SchurProductImplicitWParams<Source, kHostLayout>& params,
           HostMachine* machine);
template <typename Source, BlockLayout kLayout>
Status Run(const SchurProductImplicitWParams<Source, kLayout>& params,
           CudaMachine* machine);
template <typename T, int C>
Status Run(const SchurProductExplicitWParams<T, C, kHostLayout>& params,
           HostMachine* machine);
template <typename T, int C, BlockLayout kLayout>
Status Run(const SchurProductExplicitWParams<T, C, kLayout>& params,
           CudaMachine* machine);
template <typename Source>
Status Run(const BackSubstituteImplicitWParams<Source, kHostLayout>& params,
           HostMachine* machine);
template <typename Source, BlockLayout kLayout>
Status Run(const BackSubstituteImplicitWParams<Source, kLayout>& params,
           CudaMachine* machine);
template <typename T, int C>
Status Run(const BackSubstituteExplicitWParams<T, C, kHostLayout>& params,
           HostMachine* machine);
template <typename T, int C, BlockLayout kLayout>
Status Run(const BackSubstituteExplicitWParams<T, C, kLayout>& params,
           CudaMachine* machine);
template <typename Source>
Status Run(const NormalProductImplicitWParams<Source>& params,
           HostMachine* machine);
template <typename Source>
Status Run(const NormalProductImplicitWParams<Source>& params,
           CudaMachine* machine);
template <typename T, int C>
Status Run(const NormalProductExplicitWParams<T, C, kHostLayout>& params,
           HostMachine* machine);
template <typename T, int C, BlockLayout kLayout>
Status Run(const NormalProductExplicitWParams<T, C, kLayout>& params,
           CudaMachine* machine);

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_SCHUR_PRODUCTS_H_
