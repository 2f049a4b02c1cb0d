// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The compulsory memory traffic of an operation on an index: every array that
// it reads or writes, once, in bytes. Beside the parameters of an operation
// (ops/) stands
//   Traffic GetTraffic(const XParams& params)
// or, where there is no index, int64_t GetBytes(const XParams& params), which
// benchmarks divide by a time, and which docs/kernels.md tabulates.
#ifndef CERES_EXT_CUDA_KERNELS_STRUCTURE_TRAFFIC_H_
#define CERES_EXT_CUDA_KERNELS_STRUCTURE_TRAFFIC_H_

#include <cstdint>

#include "cuda_kernels/base/block_ref.h"
#include "cuda_kernels/model/jacobian_source.h"
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

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_STRUCTURE_TRAFFIC_H_
