// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/structure/observation_index.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

namespace ceres_ext::kernels {
namespace {

Status OutOfRange(const char* what, int64_t position, int32_t id, int32_t n) {
  return {StatusCode::kInvalidArgument,
          "Observation " + std::to_string(position) + " has " + what + " id " +
              std::to_string(id) + ", expected 0 <= id < " + std::to_string(n) +
              "."};
}

Status CheckIds(const ObservationPairs& pairs) {
  const auto [num_cameras, num_points, num_observations, camera, point] = pairs;
  if (num_cameras < 0 || num_points < 0 || num_observations < 0) {
    return {StatusCode::kInvalidArgument,
            "Negative size: " + std::to_string(num_cameras) + " cameras, " +
                std::to_string(num_points) + " points, " +
                std::to_string(num_observations) + " observations."};
  }
  if (num_observations > std::numeric_limits<int32_t>::max()) {
    return {StatusCode::kUnsupported,
            std::to_string(num_observations) +
                " observations, at most 2147483647 are supported."};
  }
  for (int64_t i = 0; i < num_observations; ++i) {
    if (camera[i] < 0 || camera[i] >= num_cameras) {
      return OutOfRange("camera", i, camera[i], num_cameras);
    }
    if (point[i] < 0 || point[i] >= num_points) {
      return OutOfRange("point", i, point[i], num_points);
    }
  }
  return {};
}

// begin[v] = how many of the n ids are smaller than v; begin has num_values + 1
// elements.
void CountingSortBegins(int32_t num_values,
                        int64_t n,
                        const int32_t* id,
                        int64_t* begin) {
  std::fill_n(begin, int64_t{num_values} + 1, 0);
  for (int64_t i = 0; i < n; ++i) {
    ++begin[id[i] + 1];
  }
  std::partial_sum(begin, begin + num_values + 1, begin);
}

}  // namespace

Status ObservationIndex::Build(const ObservationPairs& pairs,
                               int64_t* account) {
  view_ = {};
  const auto [num_cameras, num_points, n, camera, point] = pairs;
  CERES_EXT_RETURN_IF_ERROR(CheckIds(pairs));
  HostBuffer<int32_t> by_camera;
  HostBuffer<int64_t> next;
  CERES_EXT_RETURN_IF_ERROR(by_camera.Allocate(n));
  CERES_EXT_RETURN_IF_ERROR(next.Allocate(std::max(num_cameras, num_points)));
  CERES_EXT_RETURN_IF_ERROR(
      point_begin_.Allocate(int64_t{num_points} + 1, account));
  CERES_EXT_RETURN_IF_ERROR(camera_id_.Allocate(n, account));
  CERES_EXT_RETURN_IF_ERROR(point_id_.Allocate(n, account));
  CERES_EXT_RETURN_IF_ERROR(
      camera_begin_.Allocate(int64_t{num_cameras} + 1, account));
  CERES_EXT_RETURN_IF_ERROR(camera_entry_.Allocate(2 * n, account));

  int32_t* const input_id = camera_entry_.data() + n;

  // Two stable counting sorts, the less significant key first:
  // input -> (camera, input) -> (point, camera, input).
  CountingSortBegins(num_cameras, n, camera, camera_begin_.data());
  std::copy_n(camera_begin_.data(), num_cameras, next.data());
  for (int64_t i = 0; i < n; ++i) {
    by_camera.data()[next.data()[camera[i]]++] = static_cast<int32_t>(i);
  }
  CountingSortBegins(num_points, n, point, point_begin_.data());
  std::copy_n(point_begin_.data(), num_points, next.data());
  for (int64_t j = 0; j < n; ++j) {
    const int32_t i = by_camera.data()[j];
    input_id[next.data()[point[i]]++] = i;
  }

  std::copy_n(camera_begin_.data(), num_cameras, next.data());
  for (int64_t k = 0; k < n; ++k) {
    const int32_t i = input_id[k];
    camera_id_.data()[k] = camera[i];
    point_id_.data()[k] = point[i];
    camera_entry_.data()[next.data()[camera[i]]++] = static_cast<int32_t>(k);
  }

  view_.num_cameras = num_cameras;
  view_.num_points = num_points;
  view_.num_observations = n;
  view_.point_begin = point_begin_.data();
  view_.camera_id = camera_id_.data();
  view_.point_id = point_id_.data();
  view_.camera_begin = camera_begin_.data();
  view_.camera_entry = camera_entry_.data();
  return {};
}

}  // namespace ceres_ext::kernels
