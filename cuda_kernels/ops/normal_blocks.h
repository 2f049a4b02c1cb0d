// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The blocks of the normal equations of min |J x - b|^2 + |D x|^2, eliminated
// by points. With Jc (R x F), Jp (R x E), b (R) of observation k, camera c,
// point p:
//
//   U_c = sum Jc' Jc        V_p = sum Jp' Jp       W_k = Jc' Jp  (F x E)
//   g_c = sum Jc' b         g_p = sum Jp' b
//   Vi_p = (V_p + D_p^2)^-1
//   S_c  = U_c - sum_p W_cp Vi_p W_cp'             W_cp = sum_{k of (c,p)} W_k
//   s_c  = g_c - sum_k W_k Vi_p g_p
//
// S_c is the diagonal block of the Schur complement without D_c^2, s its
// right-hand side. W_cp sums over the observations of point p by camera c, more
// than one if a pair repeats: these are adjacent.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_NORMAL_BLOCKS_H_
#define CERES_EXT_CUDA_KERNELS_OPS_NORMAL_BLOCKS_H_

#include <cstdint>

#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/base/breakdown.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/structure/observation_index.h"

namespace ceres_ext::kernels {

class CudaMachine;
class HostMachine;

// Computes those outputs whose data is not null. The host needs room for the
// sums of a camera (ReserveCameraSums), all outputs per camera together.
// Order: point sums in the order of the observations of the point; camera sums
// in a fixed order of the machine's own (host: HostWorkspace).
template <typename Source, BlockLayout kLayout>
struct NormalBlocksParams {
  using Shape = typename Source::Shape;

  ObservationIndexRef index;
  Source jacobian;
  // R per observation; may be null if neither gradient nor s is asked for.
  const double* b = nullptr;
  const double* point_diagonal = nullptr;  // D_p, E per point; null: zero

  // Per point.
  BlockRef<double, Shape::kPackedE, kLayout> v;  // packed, without D_p^2
  BlockRef<double, Shape::kPackedE, kLayout>
      v_inverse;                     // Vi, packed; needs `breakdown`
  double* point_gradient = nullptr;  // g_p, E

  // True if v_inverse is an input, of points that rows of other batches see as
  // well. Nothing of points is computed then, and schur_rhs is not to be asked
  // for.
  bool v_inverse_is_given = false;

  // Per camera.
  BlockRef<double, Shape::kPackedF, kLayout> u;  // packed
  double* camera_gradient = nullptr;             // g_c, F
  // These two need v_inverse.
  BlockRef<double, Shape::kPackedF, kLayout> schur_diagonal;  // S_c, packed
  double* schur_rhs = nullptr;                                // s_c, F

  // Set: the first point without Vi. Outputs that depend on the Vi of such a
  // point are unspecified. Not null if v_inverse is wanted; lives where the
  // outputs live.
  Breakdown* breakdown = nullptr;
};

// Sources as in ops/schur_products.h.
template <typename Source>
Status Run(const NormalBlocksParams<Source, kHostLayout>& params,
           HostMachine* machine);
template <typename Source, BlockLayout kLayout>
Status Run(const NormalBlocksParams<Source, kLayout>& params,
           CudaMachine* machine);

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_NORMAL_BLOCKS_H_
