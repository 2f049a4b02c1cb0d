// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The compulsory memory traffic of an operation on an index: every array that
// it reads or writes, once, in bytes:
//   Traffic GetTraffic(const XParams& params)
// or, where there is no index, int64_t GetBytes(const XParams& params), which
// benchmarks divide by a time, and which docs/kernels.md tabulates.
#ifndef BENCHMARKS_TRAFFIC_H_
#define BENCHMARKS_TRAFFIC_H_

#include <cstdint>

#include "cuda_kernels/base/block_view.h"
#include "cuda_kernels/model/jacobian_source.h"
#include "cuda_kernels/ops/evaluate.h"
#include "cuda_kernels/ops/jacobian_products.h"
#include "cuda_kernels/ops/normal_blocks.h"
#include "cuda_kernels/ops/preconditioner.h"
#include "cuda_kernels/ops/schur_products.h"
#include "cuda_kernels/ops/vectors.h"
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
  int64_t Bytes(const ObservationIndexView& index) const {
    return per_observation * index.num_observations +
           per_point * index.num_points + per_camera * index.num_cameras;
  }
};

template <typename Params>
auto GetBytes(const Params& params)
    -> decltype(GetTraffic(params).Bytes(params.index)) {
  return GetTraffic(params).Bytes(params.index);
}

// Of one array, where it is there.
template <typename T>
int64_t BytesIf(const T* data, int64_t num_values) {
  return data == nullptr ? 0 : num_values * static_cast<int64_t>(sizeof(T));
}
template <typename T, int kSize, BlockLayout kLayout>
int64_t BytesIf(const BlockView<T, kSize, kLayout>& view) {
  return BytesIf(view.data, kSize);
}

// Of the index: the camera of each observation, and where points begin.
inline constexpr Traffic kIndexTraffic{4, 8, 0};

// All of a Jacobian.
template <typename T, typename Shape, BlockLayout kLayout>
Traffic JacobianTraffic(const StoredJacobian<T, Shape, kLayout>&) {
  return {
      static_cast<int64_t>(sizeof(T)) * (Shape::kFSize + Shape::kESize), 0, 0};
}
template <typename T, int C>
Traffic JacobianTraffic(const RecomputedJacobian<T, C>& source) {
  return {0,
          BytesIf(source.points, 3) + BytesIf(source.point_scale, 3),
          BytesIf(source.cameras, 1) +
              BytesIf(source.camera_maps, kBalLocalCameraDim * C)};
}

// The blocks of points alone.
template <typename T, typename Shape, BlockLayout kLayout>
Traffic PointJacobianTraffic(const StoredJacobian<T, Shape, kLayout>&) {
  return {static_cast<int64_t>(sizeof(T)) * Shape::kESize, 0, 0};
}
template <typename T, int C>
Traffic PointJacobianTraffic(const RecomputedJacobian<T, C>& source) {
  return {0,
          BytesIf(source.points, 3) + BytesIf(source.point_scale, 3),
          BytesIf(source.cameras, 1)};
}

// Of the operations.
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

template <int N, BlockLayout kLayout>
int64_t GetBytes(const InvertBlockDiagonalParams<N, kLayout>& p) {
  return 8 * p.num_blocks *
         (2 * PackedSize(N) + (p.diagonal == nullptr ? 0 : N));
}

template <int N, BlockLayout kLayout>
int64_t GetBytes(const ApplyBlockDiagonalParams<N, kLayout>& p) {
  return 8 * p.num_blocks * (PackedSize(N) + 2 * N);
}

inline int64_t GetBytes(const DotParams& p) { return 16 * p.n; }

}  // namespace ceres_ext::kernels

#endif  // BENCHMARKS_TRAFFIC_H_
