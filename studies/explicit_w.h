// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// For comparison only: products with the normal matrix and its Schur complement
// from stored blocks U, V and W_k = Jc' Jp (F x E, row-major) instead of the
// Jacobian, and back-substitution. Letters: cuda_kernels/ops/normal_blocks.h.
//
// Order, vectors and scalars: as the operations of implicit W
// (cuda_kernels/ops/schur_products.h), on the same loops and tiles.
#ifndef STUDIES_EXPLICIT_W_H_
#define STUDIES_EXPLICIT_W_H_

#include "benchmarks/traffic.h"
#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/ops/normal_blocks.h"
#include "cuda_kernels/structure/observation_index.h"

namespace ceres_ext::bal {

// The blocks of the normal equations, and W.
template <typename Source, kernels::BlockLayout kLayout>
struct ExplicitBlocksParams {
  using Value = typename Source::Value;

  kernels::NormalBlocksParams<Source, kLayout> normal;
  kernels::BlockRef<Value, Source::Shape::kWSize, kLayout> w;
};

// q = S p:
//   q_c = (U_c + D_c^2) p_c - sum_k W_k Vi_p sum_l W_l' p
template <typename T, typename Shape, kernels::BlockLayout kLayout>
struct SchurProductExplicitWParams {
  kernels::ObservationIndexRef index;
  kernels::BlockRef<const double, Shape::kPackedF, kLayout> u;
  kernels::BlockRef<const T, Shape::kWSize, kLayout> w;
  kernels::BlockRef<const double, Shape::kPackedE, kLayout> v_inverse;
  const double* camera_diagonal = nullptr;
  const double* p = nullptr;
  double* q = nullptr;
  const kernels::PcgScalars* scalars = nullptr;
};

// y_p = Vi_p (g_p - sum_k W_k' z_c)
template <typename T, typename Shape, kernels::BlockLayout kLayout>
struct BackSubstituteExplicitWParams {
  kernels::ObservationIndexRef index;
  kernels::BlockRef<const T, Shape::kWSize, kLayout> w;
  kernels::BlockRef<const double, Shape::kPackedE, kLayout> v_inverse;
  const double* point_gradient = nullptr;  // g_p
  const double* z = nullptr;
  double* y = nullptr;
};

// q = (J'J + D^2) p:
//   q_c = (U_c + D_c^2) p_c + sum_k W_k p_p
//   q_p = (V_p + D_p^2) p_p + sum_k W_k' p_c
template <typename T, typename Shape, kernels::BlockLayout kLayout>
struct NormalProductExplicitWParams {
  kernels::ObservationIndexRef index;
  kernels::BlockRef<const double, Shape::kPackedF, kLayout> u;
  kernels::BlockRef<const double, Shape::kPackedE, kLayout> v;
  kernels::BlockRef<const T, Shape::kWSize, kLayout> w;
  const double* camera_diagonal = nullptr;
  const double* point_diagonal = nullptr;
  const double* camera_p = nullptr;
  const double* point_p = nullptr;
  double* camera_q = nullptr;
  double* point_q = nullptr;
  const kernels::PcgScalars* scalars = nullptr;
};

// Sources: StoredJacobian<T, BalShape<9>, layout of the machine>, T double or
// float, and double in block-contiguous arrays on a device. W alone is also
// formed from recomputed Jacobians on a device.
template <typename Source>
kernels::Status Run(
    const ExplicitBlocksParams<Source, kernels::kHostLayout>& params,
    kernels::HostMachine* machine);
template <typename Source, kernels::BlockLayout kLayout>
kernels::Status Run(const ExplicitBlocksParams<Source, kLayout>& params,
                    kernels::CudaMachine* machine);
template <typename T, typename Shape>
kernels::Status Run(
    const SchurProductExplicitWParams<T, Shape, kernels::kHostLayout>& params,
    kernels::HostMachine* machine);
template <typename T, typename Shape, kernels::BlockLayout kLayout>
kernels::Status Run(
    const SchurProductExplicitWParams<T, Shape, kLayout>& params,
    kernels::CudaMachine* machine);
template <typename T, typename Shape>
kernels::Status Run(
    const BackSubstituteExplicitWParams<T, Shape, kernels::kHostLayout>& params,
    kernels::HostMachine* machine);
template <typename T, typename Shape, kernels::BlockLayout kLayout>
kernels::Status Run(
    const BackSubstituteExplicitWParams<T, Shape, kLayout>& params,
    kernels::CudaMachine* machine);
template <typename T, typename Shape>
kernels::Status Run(
    const NormalProductExplicitWParams<T, Shape, kernels::kHostLayout>& params,
    kernels::HostMachine* machine);
template <typename T, typename Shape, kernels::BlockLayout kLayout>
kernels::Status Run(
    const NormalProductExplicitWParams<T, Shape, kLayout>& params,
    kernels::CudaMachine* machine);

}  // namespace ceres_ext::bal

#endif  // STUDIES_EXPLICIT_W_H_
