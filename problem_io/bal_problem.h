// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A bundle adjustment problem as plain arrays.

#ifndef PROBLEM_IO_BAL_PROBLEM_H_
#define PROBLEM_IO_BAL_PROBLEM_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace ceres_ext::bal {

// Cameras, points or observations of a file at most, and values of a camera.
inline constexpr int64_t kMaxCount = std::numeric_limits<int32_t>::max();
inline constexpr int kCameraSize = 9;

// Leaves new values uninitialised, so that the threads that fill a long array
// are the first to touch it.
template <typename T>
struct UninitializedAllocator : std::allocator<T> {
  template <typename U>
  struct rebind {
    using other = UninitializedAllocator<U>;
  };
  UninitializedAllocator() = default;
  template <typename U>
  explicit UninitializedAllocator(const UninitializedAllocator<U>&) {}

  template <typename U>
  void construct(U* value) {
    ::new (static_cast<void*>(value)) U;
  }
  template <typename U, typename... Args>
  void construct(U* value, Args&&... args) {
    ::new (static_cast<void*>(value)) U(std::forward<Args>(args)...);
  }
};

template <typename T>
using BalArray = std::vector<T, UninitializedAllocator<T>>;

// Observation i says that camera camera_index[i] sees point point_index[i] at
// (observations[2 i], observations[2 i + 1]) pixels. A camera with
//   R            rotation: angle-axis (3) or quaternion w x y z (4),
//   t            translation (3),
//   f, k1, k2    focal length in pixels, radial distortion (3)
// maps a point X to
//   P = R X + t,   p = -P / P.z,   f (1 + k1 |p|^2 + k2 |p|^4) p.
struct BalProblem {
  // 9: angle-axis rotations, 10: quaternions.
  int camera_size = 9;
  BalArray<int32_t> camera_index;  // num_observations
  BalArray<int32_t> point_index;   // num_observations
  BalArray<double> observations;   // num_observations x 2
  std::vector<double> cameras;     // num_cameras x camera_size
  std::vector<double> points;      // num_points x 3

  int32_t num_cameras() const {
    return static_cast<int32_t>(cameras.size() / camera_size);
  }
  int32_t num_points() const { return static_cast<int32_t>(points.size() / 3); }
  int64_t num_observations() const {
    return static_cast<int64_t>(camera_index.size());
  }
};

}  // namespace ceres_ext::bal

#endif  // PROBLEM_IO_BAL_PROBLEM_H_
