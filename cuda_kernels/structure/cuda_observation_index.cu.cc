// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "cuda_kernels/structure/cuda_observation_index.h"

#include <cuda_runtime.h>

#include <limits>
#include <string>

#include "cuda_kernels/machine/cuda_launch.cuh"
#include "cuda_kernels/machine/cuda_sort.h"

namespace ceres_ext::kernels {
namespace {

constexpr int kBlockSize = 256;

// keys[k] = (point, camera) of input k, values[k] = k; *first_bad = the lowest
// k out of range. One thread per observation. The minimum is of integers and
// so does not depend on the order of the atomics.
__global__ void MakePointKeysKernel(int32_t num_cameras,
                                    int32_t num_points,
                                    int64_t num_observations,
                                    const int32_t* camera_ids,
                                    const int32_t* point_ids,
                                    int camera_bits,
                                    uint64_t* keys,
                                    int32_t* values,
                                    int32_t* first_bad) {
  const int64_t k = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (k >= num_observations) {
    return;  // No barrier follows.
  }
  const int32_t camera = camera_ids[k];
  const int32_t point = point_ids[k];
  if (camera < 0 || camera >= num_cameras || point < 0 || point >= num_points) {
    atomicMin(first_bad, static_cast<int32_t>(k));
  }
  keys[k] = static_cast<uint64_t>(point) << camera_bits |
            static_cast<uint64_t>(camera);
  values[k] = static_cast<int32_t>(k);
}

// Takes the sorted keys apart, and makes the keys of the camera order.
__global__ void SplitPointKeysKernel(int64_t num_observations,
                                     const uint64_t* keys,
                                     int camera_bits,
                                     int32_t* camera_id,
                                     int32_t* point_id,
                                     uint64_t* camera_keys,
                                     int32_t* values) {
  const int64_t k = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (k >= num_observations) {
    return;  // No barrier follows.
  }
  const uint64_t key = keys[k];
  const uint64_t camera = key & ((uint64_t{1} << camera_bits) - 1);
  camera_id[k] = static_cast<int32_t>(camera);
  point_id[k] = static_cast<int32_t>(key >> camera_bits);
  camera_keys[k] = camera;
  values[k] = static_cast<int32_t>(k);
}

// begin[g] = number of the n sorted keys whose group, key >> shift, is below g,
// for g in [0, num_groups]. Thread k < n writes the groups after the one of
// key k - 1 up to its own, thread n those after the last key.
__global__ void GroupBeginKernel(int64_t n,
                                 const uint64_t* keys,
                                 int shift,
                                 int64_t num_groups,
                                 int64_t* begin) {
  const int64_t k = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (k > n) {
    return;  // No barrier follows.
  }
  const int64_t previous =
      k == 0 ? -1 : static_cast<int64_t>(keys[k - 1] >> shift);
  const int64_t last =
      k == n ? num_groups : static_cast<int64_t>(keys[k] >> shift);
  for (int64_t g = previous + 1; g <= last; ++g) {
    begin[g] = k;
  }
}

constexpr int kLengthBits = 10;

// keys = (place on the curve, decreasing length). One thread per point.
__global__ void PointOrderKernel(ObservationIndexView index,
                                 int group_bits,
                                 uint64_t* keys,
                                 int32_t* values) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= index.num_points) {
    return;  // No barrier follows.
  }
  const int64_t begin = index.point_begin[i];
  const int64_t end = index.point_begin[i + 1];
  // The end of the curve, (2^bits - 1, 0), is no pair: the first camera is not
  // above the last.
  uint64_t place = (uint64_t{1} << (2 * group_bits)) - 1;
  if (begin < end) {
    place = HilbertIndex(
        static_cast<uint32_t>(index.camera_id[begin] / kPointOrderGroup),
        static_cast<uint32_t>(index.camera_id[end - 1] / kPointOrderGroup),
        group_bits);
  }
  constexpr int64_t kLongest = (1 << kLengthBits) - 1;
  const int64_t length = end - begin < kLongest ? end - begin : kLongest;
  keys[i] = place << kLengthBits | static_cast<uint64_t>(kLongest - length);
  values[i] = static_cast<int32_t>(i);
}

__global__ void InvertOrderKernel(int64_t n,
                                  const int32_t* order,
                                  int32_t* rank) {
  const int64_t r = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (r >= n) {
    return;  // No barrier follows.
  }
  rank[order[r]] = static_cast<int32_t>(r);
}

__global__ void RenamePointsKernel(int64_t num_observations,
                                   const int32_t* rank,
                                   int32_t* point_ids) {
  const int64_t k = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (k >= num_observations) {
    return;  // No barrier follows.
  }
  point_ids[k] = rank[point_ids[k]];
}

Status ReserveScratch(int64_t n,
                      CudaIndexScratch* scratch,
                      CudaContext* context) {
  CERES_EXT_RETURN_IF_ERROR(scratch->keys_in.Allocate(context, n));
  CERES_EXT_RETURN_IF_ERROR(scratch->keys_out.Allocate(context, n));
  CERES_EXT_RETURN_IF_ERROR(scratch->values_in.Allocate(context, n));
  CERES_EXT_RETURN_IF_ERROR(scratch->values_out.Allocate(context, n));
  return scratch->counts.Allocate(context, 1);
}

}  // namespace

Status CudaObservationIndex::Build(int32_t num_cameras,
                                   int32_t num_points,
                                   int64_t num_observations,
                                   const int32_t* camera_ids,
                                   const int32_t* point_ids,
                                   CudaIndexScratch* scratch,
                                   CudaContext* context) {
  if (num_cameras < 0 || num_points < 0 || num_observations < 0 ||
      num_observations > std::numeric_limits<int32_t>::max()) {
    return Status(StatusCode::kInvalidArgument,
                  "An index of " + std::to_string(num_cameras) + " cameras, " +
                      std::to_string(num_points) + " points and " +
                      std::to_string(num_observations) +
                      " observations: each count must be from 0 to 2^31 - 1.");
  }
  num_cameras_ = num_cameras;
  num_points_ = num_points;
  num_observations_ = num_observations;
  const int64_t n = num_observations;
  CERES_EXT_RETURN_IF_ERROR(
      point_begin_.Allocate(context, int64_t{num_points} + 1));
  CERES_EXT_RETURN_IF_ERROR(
      camera_begin_.Allocate(context, int64_t{num_cameras} + 1));
  CERES_EXT_RETURN_IF_ERROR(camera_id_.Allocate(context, n));
  CERES_EXT_RETURN_IF_ERROR(point_id_.Allocate(context, n));
  CERES_EXT_RETURN_IF_ERROR(input_id_.Allocate(context, n));
  CERES_EXT_RETURN_IF_ERROR(camera_entry_.Allocate(context, n));
  CERES_EXT_RETURN_IF_ERROR(ReserveScratch(n, scratch, context));

  const cudaStream_t stream = context->stream();
  const int64_t num_blocks = CeilDivide(n, kBlockSize);
  const int camera_bits = NumBits(num_cameras);
  const int point_bits = NumBits(num_points);
  constexpr int32_t kNoneBad = std::numeric_limits<int32_t>::max();
  int32_t first_bad = kNoneBad;
  CERES_EXT_RETURN_IF_ERROR(scratch->counts.Assign(context, &first_bad, 1));
  CERES_EXT_RETURN_IF_ERROR(Launch("MakePointKeys",
                                   MakePointKeysKernel,
                                   num_blocks,
                                   kBlockSize,
                                   0,
                                   stream,
                                   num_cameras,
                                   num_points,
                                   n,
                                   camera_ids,
                                   point_ids,
                                   camera_bits,
                                   scratch->keys_in.data(),
                                   scratch->values_in.data(),
                                   scratch->counts.data()));
  CERES_EXT_RETURN_IF_ERROR(scratch->counts.CopyToHost(&first_bad));
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
  CERES_EXT_RETURN_IF_ERROR(SortPairs(scratch->keys_in.data(),
                                      scratch->keys_out.data(),
                                      scratch->values_in.data(),
                                      input_id_.data(),
                                      n,
                                      camera_bits + point_bits,
                                      &scratch->sort,
                                      context));
  CERES_EXT_RETURN_IF_ERROR(Launch("GroupBegin",
                                   GroupBeginKernel,
                                   CeilDivide(n + 1, kBlockSize),
                                   kBlockSize,
                                   0,
                                   stream,
                                   n,
                                   scratch->keys_out.data(),
                                   camera_bits,
                                   int64_t{num_points},
                                   point_begin_.data()));
  CERES_EXT_RETURN_IF_ERROR(Launch("SplitPointKeys",
                                   SplitPointKeysKernel,
                                   num_blocks,
                                   kBlockSize,
                                   0,
                                   stream,
                                   n,
                                   scratch->keys_out.data(),
                                   camera_bits,
                                   camera_id_.data(),
                                   point_id_.data(),
                                   scratch->keys_in.data(),
                                   scratch->values_in.data()));
  CERES_EXT_RETURN_IF_ERROR(SortPairs(scratch->keys_in.data(),
                                      scratch->keys_out.data(),
                                      scratch->values_in.data(),
                                      camera_entry_.data(),
                                      n,
                                      camera_bits,
                                      &scratch->sort,
                                      context));
  return Launch("GroupBegin",
                GroupBeginKernel,
                CeilDivide(n + 1, kBlockSize),
                kBlockSize,
                0,
                stream,
                n,
                scratch->keys_out.data(),
                0,
                int64_t{num_cameras},
                camera_begin_.data());
}

Status CudaObservationIndex::BuildOrdered(int32_t num_cameras,
                                          int32_t num_points,
                                          int64_t num_observations,
                                          const int32_t* camera_ids,
                                          int32_t* point_ids,
                                          int32_t* point_order,
                                          CudaIndexScratch* scratch,
                                          CudaContext* context) {
  CERES_EXT_RETURN_IF_ERROR(Build(num_cameras,
                                  num_points,
                                  num_observations,
                                  camera_ids,
                                  point_ids,
                                  scratch,
                                  context));
  CERES_EXT_RETURN_IF_ERROR(scratch->rank.Allocate(context, num_points));
  CERES_EXT_RETURN_IF_ERROR(OrderPointsByCamera(
      view(), point_order, scratch->rank.data(), scratch, context));
  CERES_EXT_RETURN_IF_ERROR(Launch("RenamePoints",
                                   RenamePointsKernel,
                                   CeilDivide(num_observations, kBlockSize),
                                   kBlockSize,
                                   0,
                                   context->stream(),
                                   num_observations,
                                   scratch->rank.data(),
                                   point_ids));
  return Build(num_cameras,
               num_points,
               num_observations,
               camera_ids,
               point_ids,
               scratch,
               context);
}

ObservationIndexView CudaObservationIndex::view() const {
  ObservationIndexView view;
  view.num_cameras = num_cameras_;
  view.num_points = num_points_;
  view.num_observations = num_observations_;
  view.point_begin = point_begin_.data();
  view.camera_id = camera_id_.data();
  view.point_id = point_id_.data();
  view.input_id = input_id_.data();
  view.camera_begin = camera_begin_.data();
  view.camera_entry = camera_entry_.data();
  return view;
}

Status OrderPointsByCamera(const ObservationIndexView& index,
                           int32_t* point_order,
                           int32_t* point_rank,
                           CudaIndexScratch* scratch,
                           CudaContext* context) {
  const int64_t n = index.num_points;
  CERES_EXT_RETURN_IF_ERROR(ReserveScratch(n, scratch, context));
  const cudaStream_t stream = context->stream();
  const int64_t num_blocks = CeilDivide(n, kBlockSize);
  // At least one. Fits in a key up to 2^29 cameras, more than a device holds.
  const int group_bits =
      NumBits(int64_t{index.num_cameras} / kPointOrderGroup + 2);
  CERES_EXT_RETURN_IF_ERROR(Launch("PointOrder",
                                   PointOrderKernel,
                                   num_blocks,
                                   kBlockSize,
                                   0,
                                   stream,
                                   index,
                                   group_bits,
                                   scratch->keys_in.data(),
                                   scratch->values_in.data()));
  CERES_EXT_RETURN_IF_ERROR(SortPairs(scratch->keys_in.data(),
                                      scratch->keys_out.data(),
                                      scratch->values_in.data(),
                                      point_order,
                                      n,
                                      2 * group_bits + kLengthBits,
                                      &scratch->sort,
                                      context));
  return Launch("InvertOrder",
                InvertOrderKernel,
                num_blocks,
                kBlockSize,
                0,
                stream,
                n,
                point_order,
                point_rank);
}

}  // namespace ceres_ext::kernels
