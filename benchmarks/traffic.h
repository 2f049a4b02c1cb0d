// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The compulsory memory traffic of an operation on an index: every array that
// it reads or writes, once, in bytes. An operation (cuda_kernels/ops/) has
//   Traffic GetTraffic(const XParams& params)
// or, where there is no index, int64_t GetBytes(const XParams& params), which
// benchmarks divide by a time, and which docs/kernels.md tabulates.
#ifndef CERES_EXT_BENCHMARKS_TRAFFIC_H_
#define CERES_EXT_BENCHMARKS_TRAFFIC_H_

#include <cstdint>

#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/base/small_matrix.h"
#include "cuda_kernels/model/bal_model.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/ops/block_rows.h"
#include "cuda_kernels/ops/evaluate.h"
#include "cuda_kernels/ops/jacobian_products.h"
#include "cuda_kernels/ops/normal_blocks.h"
#include "cuda_kernels/ops/schur_complement.h"
#include "cuda_kernels/ops/schur_products.h"
#include "cuda_kernels/ops/vectors.h"
#include "cuda_kernels/structure/coupling_index.h"
#include "cuda_kernels/structure/observation_index.h"

namespace ceres_ext::kernels {

struct Traffic {
  int64_t per_observation = 0;
  int64_t per_point = 0;
  int64_t per_camera = 0;

  Traffic& operator+=(const Traffic& other) {
    per_observation += other.per_observation;
    per_point += other.per_point;
    per_camera += other.per_camera;
    return *this;
  }
  int64_t Bytes(const ObservationIndexRef& index) const {
    return per_observation * index.num_observations +
           per_point * index.num_points + per_camera * index.num_cameras;
  }
};

template <typename Params>
auto GetBytes(const Params& params)
    -> decltype(GetTraffic(params).Bytes(params.index)) {
  return GetTraffic(params).Bytes(params.index);
}

// Traffic of one array, if it exists.
template <typename T>
int64_t BytesIf(const T* data, int64_t num_values) {
  return data == nullptr ? 0 : num_values * static_cast<int64_t>(sizeof(T));
}
template <typename T, int kSize, BlockLayout kLayout>
int64_t BytesIf(const BlockRef<T, kSize, kLayout>& view) {
  return BytesIf(view.data, kSize);
}

// Traffic of the index: the camera of each observation, and the beginnings of
// points.
inline constexpr Traffic kIndexTraffic{4, 8, 0};

// All of a Jacobian.
template <typename T, typename Shape, BlockLayout kLayout>
Traffic JacobianTraffic(const StoredJacobian<T, Shape, kLayout>&) {
  return {
      static_cast<int64_t>(sizeof(T)) * (Shape::kFSize + Shape::kESize), 0, 0};
}
template <typename T, int C, bool kScaledRows>
Traffic JacobianTraffic(const RecomputedJacobian<T, C, kScaledRows>& source) {
  return {BytesIf(source.row_scale, 1),
          BytesIf(source.points, 3) + BytesIf(source.point_scale, 3),
          BytesIf(source.cameras, 1) +
              BytesIf(source.camera_maps, kBalLocalCameraDim * C)};
}

// The blocks of points alone.
template <typename T, typename Shape, BlockLayout kLayout>
Traffic PointJacobianTraffic(const StoredJacobian<T, Shape, kLayout>&) {
  return {static_cast<int64_t>(sizeof(T)) * Shape::kESize, 0, 0};
}
template <typename T, int C, bool kScaledRows>
Traffic PointJacobianTraffic(
    const RecomputedJacobian<T, C, kScaledRows>& source) {
  return {BytesIf(source.row_scale, 1),
          BytesIf(source.points, 3) + BytesIf(source.point_scale, 3),
          BytesIf(source.cameras, 1)};
}

template <typename T, int C>
int64_t GetBytes(const PrepareCamerasParams<T, C>& p) {
  const int A = static_cast<int>(p.parameters);
  return p.num_cameras * (BytesIf(p.cameras, A) + BytesIf(p.tangent, A * C) +
                          BytesIf(p.camera_scale, C) + BytesIf(p.states, 1) +
                          BytesIf(p.maps, kBalLocalCameraDim * C));
}

inline Traffic GetTraffic(const EvaluateCostParams& p) {
  Traffic traffic = kIndexTraffic;
  traffic += {BytesIf(p.observations, 2) + BytesIf(p.residuals, 2),
              BytesIf(p.points, 3),
              BytesIf(p.cameras, 1)};
  return traffic;
}

template <typename T, int C, BlockLayout kLayout>
Traffic GetTraffic(const EvaluateJacobianParams<T, C, kLayout>& p) {
  Traffic traffic = kIndexTraffic;
  traffic +=
      {BytesIf(p.observations, 2) + BytesIf(p.residuals, 2) +
           BytesIf(p.camera_blocks) + BytesIf(p.point_blocks),
       BytesIf(p.points, 3) + BytesIf(p.point_scale, 3) +
           BytesIf(p.point_gradient, 3),
       BytesIf(p.cameras, 1) + BytesIf(p.camera_maps, kBalLocalCameraDim * C) +
           BytesIf(p.camera_gradient, C)};
  return traffic;
}

template <typename Source>
Traffic GetTraffic(const RightMultiplyParams<Source>& p) {
  using Shape = typename Source::Shape;
  Traffic traffic = kIndexTraffic;
  traffic += JacobianTraffic(p.jacobian);
  traffic += {BytesIf(p.y, Shape::kNumResiduals * (p.accumulate ? 2 : 1)),
              BytesIf(p.point_x, Shape::kE),
              BytesIf(p.camera_x, Shape::kF)};
  return traffic;
}

template <typename Source>
Traffic GetTraffic(const LeftMultiplyParams<Source>& p) {
  using Shape = typename Source::Shape;
  Traffic traffic = kIndexTraffic;
  traffic += p.camera_x == nullptr ? PointJacobianTraffic(p.jacobian)
                                   : JacobianTraffic(p.jacobian);
  const int times = p.accumulate ? 2 : 1;
  traffic += {BytesIf(p.y, Shape::kNumResiduals),
              BytesIf(p.point_x, Shape::kE * times),
              BytesIf(p.camera_x, Shape::kF * times)};
  return traffic;
}

template <typename Source>
Traffic GetTraffic(const SquaredColumnNormsParams<Source>& p) {
  using Shape = typename Source::Shape;
  Traffic traffic = kIndexTraffic;
  traffic += p.camera_x == nullptr ? PointJacobianTraffic(p.jacobian)
                                   : JacobianTraffic(p.jacobian);
  traffic += {0, BytesIf(p.point_x, Shape::kE), BytesIf(p.camera_x, Shape::kF)};
  return traffic;
}

template <typename T, typename Shape, BlockLayout kLayout>
Traffic GetTraffic(const ScaleColumnsParams<T, Shape, kLayout>& p) {
  Traffic traffic = kIndexTraffic;
  traffic += {2 * (BytesIf(p.camera_blocks) + BytesIf(p.point_blocks)),
              BytesIf(p.point_scale, Shape::kE),
              BytesIf(p.camera_scale, Shape::kF)};
  return traffic;
}

template <typename Source, BlockLayout kLayout>
Traffic GetTraffic(const NormalBlocksParams<Source, kLayout>& p) {
  using Shape = typename Source::Shape;
  const bool camera_blocks =
      p.u.data != nullptr || p.camera_gradient != nullptr ||
      p.schur_diagonal.data != nullptr || p.schur_rhs != nullptr;
  const bool gradient = p.point_gradient != nullptr ||
                        p.camera_gradient != nullptr || p.schur_rhs != nullptr;
  Traffic traffic = kIndexTraffic;
  traffic += camera_blocks ? JacobianTraffic(p.jacobian)
                           : PointJacobianTraffic(p.jacobian);
  traffic +=
      {gradient ? BytesIf(p.b, Shape::kNumResiduals) : 0,
       BytesIf(p.v) + BytesIf(p.v_inverse) +
           BytesIf(p.point_gradient, Shape::kE) +
           (p.v_inverse.data == nullptr ? 0
                                        : BytesIf(p.point_diagonal, Shape::kE)),
       BytesIf(p.u) + BytesIf(p.camera_gradient, Shape::kF) +
           BytesIf(p.schur_diagonal) + BytesIf(p.schur_rhs, Shape::kF)};
  return traffic;
}

template <typename Source, BlockLayout kLayout>
Traffic GetTraffic(const SchurProductImplicitWParams<Source, kLayout>& p) {
  using Shape = typename Source::Shape;
  Traffic traffic = kIndexTraffic;
  traffic += JacobianTraffic(p.jacobian);
  traffic += {0,
              BytesIf(p.v_inverse),
              BytesIf(p.camera_diagonal, Shape::kF) + BytesIf(p.p, Shape::kF) +
                  BytesIf(p.q, Shape::kF)};
  return traffic;
}

template <typename Source, BlockLayout kLayout>
Traffic GetTraffic(const BackSubstituteImplicitWParams<Source, kLayout>& p) {
  using Shape = typename Source::Shape;
  Traffic traffic = kIndexTraffic;
  traffic += JacobianTraffic(p.jacobian);
  traffic += {BytesIf(p.b, Shape::kNumResiduals),
              BytesIf(p.v_inverse) + BytesIf(p.y, Shape::kE),
              BytesIf(p.z, Shape::kF)};
  return traffic;
}

template <typename Source>
Traffic GetTraffic(const NormalProductImplicitWParams<Source>& p) {
  using Shape = typename Source::Shape;
  Traffic traffic = kIndexTraffic;
  traffic += JacobianTraffic(p.jacobian);
  traffic +=
      {0,
       BytesIf(p.point_diagonal, Shape::kE) + BytesIf(p.point_p, Shape::kE) +
           BytesIf(p.point_q, Shape::kE),
       BytesIf(p.camera_diagonal, Shape::kF) + BytesIf(p.camera_p, Shape::kF) +
           BytesIf(p.camera_q, Shape::kF)};
  return traffic;
}

// Bytes that couplings, blocks and observations ask memory for. Unlike other
// operations', what a coupling reads is counted for each of them: no cache
// holds the Jacobian between two that share an observation.
template <typename Source, BlockLayout kLayout>
int64_t GetBytes(const SchurComplementParams<Source, kLayout>& p) {
  using Shape = typename Source::Shape;
  using Value = typename Source::Value;
  constexpr int64_t kDouble = sizeof(double);
  const int64_t n = p.unknowns.num_unknowns;
  const int64_t num_blocks = p.couplings.num_blocks;
  constexpr bool kObservations =
      kCouplings<Source, kLayout> == CouplingList::kObservations;
  int64_t per_coupling = kObservations ? sizeof(int64_t) : 0;
  int64_t per_observation = 0;
  if constexpr (IsRecomputed<Source>::value) {
    // The number of the point, the point and its scaled Vi, the factors of both
    // rows.
    constexpr int64_t kValue = sizeof(Value);
    per_coupling += sizeof(int32_t) + kDouble * (Shape::kPackedE + Shape::kE) +
                    kValue * (p.jacobian.row_scale == nullptr ? 0 : 2);
  } else {
    constexpr int64_t kRecord = sizeof(CouplingRecord<Value, Shape>);
    constexpr int64_t kBlocks = sizeof(Value) * (Shape::kFSize + Shape::kESize);
    per_coupling +=
        kDouble * Shape::kESize + sizeof(Value) * Shape::kFSize + kBlocks;
    // Read, and written as records.
    per_observation = kBlocks + kDouble * Shape::kPackedE + kRecord;
  }
  // A block's ids, and values: of a dense target all but those above the
  // diagonal.
  const int64_t written = p.target.row_begin == nullptr
                              ? n * p.target.stride - n * (n - 1) / 2
                              : num_blocks * Shape::kF * Shape::kF;
  return per_coupling * p.couplings.num_couplings +
         per_observation * p.index.num_observations + 16 * num_blocks +
         kDouble * written;
}

// Multiplications and additions. A coupling of recomputed blocks projects its
// point twice.
template <typename Source, BlockLayout kLayout>
int64_t GetFlops(const SchurComplementParams<Source, kLayout>& p) {
  using Shape = typename Source::Shape;
  constexpr int64_t R = Shape::kNumResiduals;
  constexpr int64_t E = Shape::kE;
  constexpr int64_t F = internal::CouplingScratch<Source>::kLocalF;
  // Jp Vi, times Jp', times Jc, and Jc' times that.
  int64_t flops = 2 * (R * R * E + R * R * F + R * F * F);
  if (IsRecomputed<Source>::value) {
    // 83 for a projection, 30 and 31 for the two blocks (model/bal_model.h).
    flops += 2 * R * E * E + 2 * (83 + 30 + 31);
  }
  return flops * p.couplings.num_couplings;
}

// Compulsory bytes.
template <int kN>
int64_t GetBytes(const InvertBlocksParams<kN>& p) {
  return 8 * p.n *
         (2 * PackedSize(p.columns) + (p.diagonal == nullptr ? 0 : p.columns));
}

// Compulsory bytes.
template <int kN>
int64_t GetBytes(const ApplyBlocksParams<kN>& p) {
  return 8 * p.n * (PackedSize(p.columns) + 2 * p.columns);
}

inline int64_t GetBytes(const DotParams& p) { return 16 * p.n; }

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_BENCHMARKS_TRAFFIC_H_
