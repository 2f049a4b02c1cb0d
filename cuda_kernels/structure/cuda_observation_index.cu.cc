// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/structure/cuda_observation_index.h"

#include <cuda_runtime.h>

#include <limits>
#include <string>

#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_sort.h"

namespace ceres_ext::kernels {

Status CudaObservationIndex::Build(const ObservationPairs& pairs,
                                   CudaIndexScratch* scratch,
                                   CudaContext* context) {
  const int32_t num_cameras = pairs.num_cameras;
  const int32_t num_points = pairs.num_points;
  const int64_t n = pairs.num_observations;
  const int32_t* const camera_ids = pairs.camera;
  const int32_t* const point_ids = pairs.point;
  if (num_cameras < 0 || num_points < 0 || n < 0 ||
      n > std::numeric_limits<int32_t>::max()) {
    return Status(StatusCode::kInvalidArgument,
                  "An index of " + std::to_string(num_cameras) + " cameras, " +
                      std::to_string(num_points) + " points and " +
                      std::to_string(n) +
                      " observations: each count must be from 0 to 2^31 - 1.");
  }
  CERES_EXT_RETURN_IF_ERROR(
      point_begin_.Allocate(context, int64_t{num_points} + 1));
  CERES_EXT_RETURN_IF_ERROR(
      camera_begin_.Allocate(context, int64_t{num_cameras} + 1));
  CERES_EXT_RETURN_IF_ERROR(camera_id_.Allocate(context, n));
  CERES_EXT_RETURN_IF_ERROR(point_id_.Allocate(context, n));
  CERES_EXT_RETURN_IF_ERROR(camera_entry_.Allocate(context, 2 * n));
  CERES_EXT_RETURN_IF_ERROR(scratch->Reserve(n, context));
  int32_t* const camera_id = camera_id_.data();
  int32_t* const point_id = point_id_.data();
  uint64_t* const keys = scratch->keys_in.data();
  int32_t* const values = scratch->values_in.data();

  const cudaStream_t stream = context->stream();
  const int camera_bits = NumBits(num_cameras);
  const int point_bits = NumBits(num_points);
  constexpr int32_t kNoneBad = std::numeric_limits<int32_t>::max();
  int32_t first_bad = kNoneBad;
  int32_t* const device_first_bad = scratch->counts.data();
  CERES_EXT_RETURN_IF_ERROR(
      context->CopyToDevice(device_first_bad, &first_bad, sizeof(first_bad)));
  // The lowest observation out of range: a minimum of integers does not depend
  // on the order of the atomics.
  CERES_EXT_RETURN_IF_ERROR(
      ForEach("MakePointKeys", n, stream, [=] __device__(int64_t k) {
        const int32_t camera = camera_ids[k];
        const int32_t point = point_ids[k];
        if (camera < 0 || camera >= num_cameras || point < 0 ||
            point >= num_points) {
          atomicMin(device_first_bad, static_cast<int32_t>(k));
        }
        keys[k] = static_cast<uint64_t>(point) << camera_bits |
                  static_cast<uint64_t>(camera);
        values[k] = static_cast<int32_t>(k);
      }));
  CERES_EXT_RETURN_IF_ERROR(
      context->CopyToHost(&first_bad, device_first_bad, sizeof(first_bad)));
  if (first_bad != kNoneBad) {
    int32_t ids[2];
    CERES_EXT_RETURN_IF_ERROR(
        context->CopyToHost(&ids[0], camera_ids + first_bad, sizeof(int32_t)));
    CERES_EXT_RETURN_IF_ERROR(
        context->CopyToHost(&ids[1], point_ids + first_bad, sizeof(int32_t)));
    return Status(StatusCode::kInvalidArgument,
                  "Observation " + std::to_string(first_bad) + " has camera " +
                      std::to_string(ids[0]) + " and point " +
                      std::to_string(ids[1]) + "; there are " +
                      std::to_string(num_cameras) + " cameras and " +
                      std::to_string(num_points) + " points.");
  }
  CERES_EXT_RETURN_IF_ERROR(SortPairs(
      n, camera_bits + point_bits, camera_entry_.data() + n, scratch, context));
  CERES_EXT_RETURN_IF_ERROR(GroupBegins(
      n, camera_bits, num_points, point_begin_.data(), *scratch, context));
  // Takes the sorted keys apart, and makes the keys of the camera order.
  const uint64_t* const sorted_keys = scratch->keys_out.data();
  CERES_EXT_RETURN_IF_ERROR(
      ForEach("SplitPointKeys", n, stream, [=] __device__(int64_t k) {
        const uint64_t key = sorted_keys[k];
        const uint64_t camera = key & ((uint64_t{1} << camera_bits) - 1);
        camera_id[k] = static_cast<int32_t>(camera);
        point_id[k] = static_cast<int32_t>(key >> camera_bits);
        keys[k] = camera;
        values[k] = static_cast<int32_t>(k);
      }));
  CERES_EXT_RETURN_IF_ERROR(
      SortPairs(n, camera_bits, camera_entry_.data(), scratch, context));
  CERES_EXT_RETURN_IF_ERROR(
      GroupBegins(n, 0, num_cameras, camera_begin_.data(), *scratch, context));
  view_.num_cameras = num_cameras;
  view_.num_points = num_points;
  view_.num_observations = n;
  view_.point_begin = point_begin_.data();
  view_.camera_id = camera_id;
  view_.point_id = point_id;
  view_.camera_begin = camera_begin_.data();
  view_.camera_entry = camera_entry_.data();
  return {};
}

Status CudaObservationIndex::BuildOrdered(const ObservationPairs& pairs,
                                          int32_t* new_points,
                                          int32_t* point_order,
                                          CudaIndexScratch* scratch,
                                          CudaContext* context) {
  CERES_EXT_RETURN_IF_ERROR(Build(pairs, scratch, context));
  CERES_EXT_RETURN_IF_ERROR(scratch->rank.Allocate(context, pairs.num_points));
  CERES_EXT_RETURN_IF_ERROR(OrderPointsByCamera(
      ref(), point_order, scratch->rank.data(), scratch, context));
  const int32_t* const rank = scratch->rank.data();
  ObservationPairs renamed = pairs;
  renamed.point = new_points;
  CERES_EXT_RETURN_IF_ERROR(ForEach(
      "RenamePoints",
      pairs.num_observations,
      context->stream(),
      [=] __device__(int64_t k) { new_points[k] = rank[pairs.point[k]]; }));
  return Build(renamed, scratch, context);
}

Status OrderPointsByCamera(const ObservationIndexRef& index,
                           int32_t* point_order,
                           int32_t* point_rank,
                           CudaIndexScratch* scratch,
                           CudaContext* context) {
  const int64_t n = index.num_points;
  CERES_EXT_RETURN_IF_ERROR(scratch->Reserve(n, context));
  uint64_t* const keys = scratch->keys_in.data();
  int32_t* const values = scratch->values_in.data();
  // At least one. Fits in a key up to 2^29 cameras, more than a device holds.
  const int group_bits =
      NumBits(int64_t{index.num_cameras} / kPointOrderGroup + 2);
  constexpr int kLengthBits = 10;
  constexpr int64_t kLongest = (1 << kLengthBits) - 1;
  // By (place on the curve, decreasing length).
  CERES_EXT_RETURN_IF_ERROR(
      ForEach("PointOrder", n, context->stream(), [=] __device__(int64_t i) {
        const int64_t begin = index.point_begin[i];
        const int64_t end = index.point_begin[i + 1];
        // The end of the curve, (2^bits - 1, 0), is not a pair: the first
        // camera is not above the last.
        uint64_t place = (uint64_t{1} << (2 * group_bits)) - 1;
        if (begin < end) {
          place = HilbertIndex(
              static_cast<uint32_t>(index.camera_id[begin] / kPointOrderGroup),
              static_cast<uint32_t>(index.camera_id[end - 1] /
                                    kPointOrderGroup),
              group_bits);
        }
        const int64_t length = end - begin < kLongest ? end - begin : kLongest;
        keys[i] =
            place << kLengthBits | static_cast<uint64_t>(kLongest - length);
        values[i] = static_cast<int32_t>(i);
      }));
  CERES_EXT_RETURN_IF_ERROR(SortPairs(
      n, 2 * group_bits + kLengthBits, point_order, scratch, context));
  return ForEach(
      "InvertOrder", n, context->stream(), [=] __device__(int64_t r) {
        point_rank[point_order[r]] = static_cast<int32_t>(r);
      });
}

}  // namespace ceres_ext::kernels
