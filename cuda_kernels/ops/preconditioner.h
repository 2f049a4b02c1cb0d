// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Block-diagonal preconditioners: M = diag(A_i + D_i^2), z = M^-1 r.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_PRECONDITIONER_H_
#define CERES_EXT_CUDA_KERNELS_OPS_PRECONDITIONER_H_

#include <cstdint>

#include "cuda_kernels/base/block_view.h"
#include "cuda_kernels/base/pcg_scalars.h"
#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/base/status.h"

namespace ceres_ext::kernels {

class CudaMachine;
class HostMachine;

// inverse_i = (A_i + D_i^2)^-1, N x N, all packed. A may be U or V (JACOBI) or
// S (SCHUR_JACOBI). A column of A_i that is zero and undamped counts as a unit
// column (small_matrix.h).
// A block that rounding has left not positive definite (S is a difference) is
// replaced by its diagonal, with elements below D_i^2 raised to that: a
// preconditioner need only be positive definite.
// Order: one thread owns a block.
template <int N, BlockLayout kLayout>
struct InvertBlockDiagonalParams {
  int64_t num_blocks = 0;
  BlockView<const double, PackedSize(N), kLayout> a;
  const double* diagonal = nullptr;  // D, N per block; null: zero
  // May be the array of a.
  BlockView<double, PackedSize(N), kLayout> inverse;
  // Set: the first block whose diagonal is not positive and finite,
  // Breakdown::kNone where all are. The inverse of such a block is unspecified.
  int32_t* first_breakdown = nullptr;
};

// z_i = inverse_i r_i.
// Order: sums within a block from column 0 on.
template <int N, BlockLayout kLayout>
struct ApplyBlockDiagonalParams {
  int64_t num_blocks = 0;
  BlockView<const double, PackedSize(N), kLayout> inverse;
  const double* r = nullptr;  // N per block
  double* z = nullptr;        // N per block
  // Where not null and ended, nothing is done.
  const PcgScalars* scalars = nullptr;
};

// N = 3, 9 and 10.
template <int N>
Status Run(const InvertBlockDiagonalParams<N, kHostLayout>& params,
           HostMachine* machine);
template <int N, BlockLayout kLayout>
Status Run(const InvertBlockDiagonalParams<N, kLayout>& params,
           CudaMachine* machine);
template <int N>
Status Run(const ApplyBlockDiagonalParams<N, kHostLayout>& params,
           HostMachine* machine);
template <int N, BlockLayout kLayout>
Status Run(const ApplyBlockDiagonalParams<N, kLayout>& params,
           CudaMachine* machine);

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_PRECONDITIONER_H_
