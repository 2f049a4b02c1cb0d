// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The Schur complement by points as a matrix,
//
//   S = U + D_c^2 - W (V + D_p^2)^-1 W'
//
// its lower triangle, block by block. Letters: ops/normal_blocks.h, which has
// computed Vi and the diagonal blocks S_c before, and the right-hand side s
// with them. Each of the other blocks has its couplings
// (structure/coupling_index.h):
//
//   S_ij = -sum over (k, l) of Jc_k' (Jp_k Vi_p Jp_l') Jc_l       i > j
//   S_ii = S_c + D_c^2
//
// Rows and columns are the unknowns of SchurUnknowns. Every element of the
// target's lower triangle is written: of a dense one, zeros where two cameras
// have no coupling.
// With the columns of the unknowns GatherValues (ops/manifolds.h) takes their
// right-hand side out of s, and ScatterValues brings their solution back.
//
// Order: one owner per block, which adds its couplings in a fixed order of the
// machine's own (host: host/schur_rows.h).
#ifndef CERES_EXT_CUDA_KERNELS_OPS_SCHUR_COMPLEMENT_H_
#define CERES_EXT_CUDA_KERNELS_OPS_SCHUR_COMPLEMENT_H_

#include <cstdint>
#include <string>

#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/base/status.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/model/nested_jacobian.h"
#include "cuda_kernels/structure/coupling_index.h"
#include "cuda_kernels/structure/host_schur_rows.h"
#include "cuda_kernels/structure/observation_index.h"
#include "cuda_kernels/structure/schur_matrix.h"

namespace ceres_ext::kernels {

class CudaMachine;
class HostMachine;

template <typename Source, BlockLayout kLayout>
struct SchurComplementParams {
  using Shape = typename Source::Shape;

  ObservationIndexRef index;
  CouplingIndexRef couplings;
  SchurUnknownsRef unknowns;
  Source jacobian;
  BlockRef<const double, Shape::kPackedE, kLayout> v_inverse;
  BlockRef<const double, Shape::kPackedF, kLayout> schur_diagonal;  // S_c
  const double* camera_diagonal = nullptr;  // D_c, F per camera; null: zero
  SchurTarget target;

  // On the host: for cameras of kLocalF columns (internal::CouplingScratch).
  HostSchurRowsRef rows;

  // Scratch of a device, ScratchBytes of it, aligned to 16: what it makes of
  // stored blocks so that a coupling reads whole lines, and sums of chunks.
  // Null on the host.
  unsigned char* scratch = nullptr;
};

// The data that a coupling needs from each of its observations if blocks are
// stored: both blocks, and Jp Vi of the first. Both arrays are aligned to 16
// bytes, in which they are read, and are whole words of these.
template <typename T, typename Shape>
struct CouplingRecord {
  alignas(16) double jp_vi[Shape::kESize];              // Jp Vi
  alignas(16) T blocks[Shape::kFSize + Shape::kESize];  // Jc, then Jp
};

namespace internal {

// Columns of the coordinates in which a device sums couplings, and what it
// keeps of an observation.
template <typename Source>
struct CouplingScratch {
  static constexpr int kLocalF = Source::Shape::kF;
  static constexpr int64_t kRecord =
      sizeof(CouplingRecord<typename Source::Value, typename Source::Shape>);
};
template <typename T, int C, bool kScaledRows>
struct CouplingScratch<RecomputedJacobian<T, C, kScaledRows>> {
  static constexpr int kLocalF = kBalLocalCameraDim;
  static constexpr int64_t kRecord = 0;
};
template <BlockLayout kLayout>
struct CouplingScratch<NestedJacobian<kLayout>> {
  static constexpr int kLocalF = NestedJacobian<kLayout>::Shape::kF;
  static constexpr int64_t kRecord = 0;
};

}  // namespace internal

// The entries that an index of couplings must list for a source: on the host
// blocks, where others work too; on a device observations, or points if a
// Jacobian depends only on these.
template <typename Source, BlockLayout kLayout>
inline constexpr CouplingList kCouplings = CouplingList::kObservations;
template <typename Source>
inline constexpr CouplingList kCouplings<Source, kHostLayout> =
    CouplingList::kBlocks;
template <typename T, int C>
inline constexpr CouplingList
    kCouplings<RecomputedJacobian<T, C, /*kScaledRows=*/false>, kDeviceLayout> =
        CouplingList::kPoints;
// On a device: kInvalidArgument if the index lists others.
template <typename Source, BlockLayout kLayout>
Status CheckCouplings(const SchurComplementParams<Source, kLayout>& p) {
  constexpr bool kPoints = kCouplings<Source, kLayout> == CouplingList::kPoints;
  if (p.couplings.num_couplings == 0 ||
      (p.couplings.point != nullptr) == kPoints) {
    return {};
  }
  return {StatusCode::kInvalidArgument,
          std::string("The Schur complement of this Jacobian needs an index of "
                      "couplings that lists ") +
              (kPoints ? "points, and this one lists observations."
                       : "observations, and this one lists points.")};
}

// On a device, known from the forecast, or exactly once the index exists.
template <typename Source>
int64_t ScratchBytes(int64_t num_observations, int64_t num_chunks) {
  using Scratch = internal::CouplingScratch<Source>;
  return Scratch::kRecord * num_observations +
         static_cast<int64_t>(sizeof(double)) * Scratch::kLocalF *
             Scratch::kLocalF * num_chunks;
}

// Sources: those of SchurProductImplicitW (ops/schur_products.h), of one index
// with couplings and unknowns of it. kInvalidArgument: a dense target whose
// stride is below n, no scratch or rows where some are needed, or, on a
// device, couplings that do not list what they have to.
template <typename Source>
Status Run(const SchurComplementParams<Source, kHostLayout>& params,
           HostMachine* machine);
template <typename Source, BlockLayout kLayout>
Status Run(const SchurComplementParams<Source, kLayout>& params,
           CudaMachine* machine);

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_SCHUR_COMPLEMENT_H_
