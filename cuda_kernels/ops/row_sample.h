// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A sample of the points of an index, so that each camera has a few: enough for
// what needs the geometry of a scene and not its weights. From it come the
// strongest neighbours of each camera, and the rows of a split problem
// (solver/row_sample.h). Vector operations (ops/vector_operation.h) without
// sums over elements: the same order on every machine.
#ifndef CERES_EXT_CUDA_KERNELS_OPS_ROW_SAMPLE_H_
#define CERES_EXT_CUDA_KERNELS_OPS_ROW_SAMPLE_H_

#include <cstdint>

#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/structure/observation_index.h"

namespace ceres_ext::kernels {

// The points of up to `per_camera` rows of each camera, evenly over those that
// it has: the i-th at per_camera * camera + i; index.num_points if there are
// fewer. Takes the row of the shorter point from each two, because random rows
// would mostly be of long ones.
struct SamplePointsParams {
  int64_t num_cameras = 0;
  int32_t per_camera = 0;
  ObservationIndexRef index;
  int32_t* camera = nullptr;
  int32_t* point = nullptr;

  CERES_EXT_HOST_DEVICE int64_t size() const {
    return num_cameras * per_camera;
  }
  CERES_EXT_HOST_DEVICE void Apply(int64_t at) const {
    constexpr int64_t kLeastRows = 3;
    const int64_t c = at / per_camera;
    const int64_t i = at - c * per_camera;
    const int64_t begin = index.camera_begin[c];
    const int64_t n = index.camera_begin[c + 1] - begin;
    const int64_t taken = n < per_camera ? n : per_camera;
    camera[at] = static_cast<int32_t>(c);
    if (i >= taken) {
      point[at] = index.num_points;
      return;
    }
    const int64_t first = i * n / taken;
    const int64_t second = (first + (i + 1) * n / taken) / 2;
    const int32_t a = index.point_id[index.camera_entry[begin + first]];
    const int32_t b = index.point_id[index.camera_entry[begin + second]];
    const int64_t of_a = NumRows(a);
    const int64_t of_b = NumRows(b);
    point[at] =
        of_a < kLeastRows || (of_b >= kLeastRows && of_b < of_a) ? b : a;
  }

 private:
  CERES_EXT_HOST_DEVICE int64_t NumRows(int32_t p) const {
    return index.point_begin[p + 1] - index.point_begin[p];
  }
};

// The rows of a sampled point that are looked at for neighbours: all, or
// kMostRows that are evenly spaced.
struct NeighborRows {
  static constexpr int64_t kMostRows = 32;
  int64_t begin = 0;
  int64_t size = 0;   // of the point
  int64_t every = 1;  // one of so many
  int32_t count = 0;

  CERES_EXT_HOST_DEVICE NeighborRows(const ObservationIndexRef& index,
                                     int32_t point) {
    if (point < index.num_points) {
      begin = index.point_begin[point];
      size = index.point_begin[point + 1] - begin;
      every = size <= kMostRows ? 1 : (size + kMostRows - 1) / kMostRows;
      count = static_cast<int32_t>((size + every - 1) / every);
    }
  }
};

// How many of each point of the sample.
struct CountNeighborsParams {
  int64_t n = 0;
  ObservationIndexRef index;
  const int32_t* point = nullptr;  // n
  int32_t* count = nullptr;        // n

  CERES_EXT_HOST_DEVICE void Apply(int64_t at) const {
    count[at] = NeighborRows(index, point[at]).count;
  }
};

// The cameras of these rows, the camera that the point was sampled for, and the
// weight of a common point, 1 / (its observations - 1).
struct ListNeighborsParams {
  static constexpr int kUnroll = 1;
  int64_t n = 0;
  ObservationIndexRef index;
  const int32_t* camera = nullptr;  // n, of the sample
  const int32_t* point = nullptr;   // n
  const int32_t* end = nullptr;     // n: inclusive sums of the counts
  int32_t* of_camera = nullptr;
  int32_t* neighbor = nullptr;
  double* weight = nullptr;

  CERES_EXT_HOST_DEVICE void Apply(int64_t at) const {
    const NeighborRows rows(index, point[at]);
    const int64_t others = rows.size > 2 ? rows.size - 1 : 1;
    const double value = 1.0 / static_cast<double>(others);
    const int64_t to = int64_t{end[at]} - rows.count;
    for (int32_t i = 0; i < rows.count; ++i) {
      of_camera[to + i] = camera[at];
      neighbor[to + i] = index.camera_id[rows.begin + rows.every * i];
      weight[to + i] = value;
    }
  }
};

// The strongest neighbours of each camera, by the sum of the weights of common
// points of the sample, which stands for all of the camera's; -1: it has fewer.
// If several are equal, those of near numbers, so that not all cameras have the
// same neighbours if all see the same points.
// Order: a neighbour's weights in the order of the sample.
struct StrongestNeighborsParams {
  static constexpr int kUnroll = 1;
  static constexpr int kStrongest = 8;
  int64_t n = 0;  // cameras
  int32_t per_camera = 0;
  const int64_t* camera_begin = nullptr;  // of the index
  ObservationIndexRef neighbors;   // neighbours as cameras, cameras as points
  const int32_t* input = nullptr;  // of that index
  const double* weight = nullptr;  // of its input
  int32_t* strongest = nullptr;    // kStrongest n
  double* strength = nullptr;      // kStrongest n

  CERES_EXT_HOST_DEVICE void Apply(int64_t c) const {
    int32_t* const best = strongest + kStrongest * c;
    double* const best_sum = strength + kStrongest * c;
    for (int r = 0; r < kStrongest; ++r) {
      best[r] = -1;
      best_sum[r] = 0.0;
    }
    const int64_t num_rows = camera_begin[c + 1] - camera_begin[c];
    const int64_t taken = num_rows < per_camera ? num_rows : per_camera;
    const double scale = static_cast<double>(num_rows) /
                         static_cast<double>(taken > 1 ? taken : 1);
    const int64_t end = neighbors.point_begin[c + 1];
    for (int64_t k = neighbors.point_begin[c]; k < end;) {
      const int32_t other = neighbors.camera_id[k];
      double sum = 0.0;
      for (; k < end && neighbors.camera_id[k] == other; ++k) {
        sum += weight[input[k]];
      }
      if (other != c) {
        Insert(c, other, scale * sum, best, best_sum);
      }
    }
  }

 private:
  CERES_EXT_HOST_DEVICE static int64_t Distance(int64_t c, int32_t other) {
    return other < c ? c - other : other - c;
  }
  // Neighbours come in ascending order.
  CERES_EXT_HOST_DEVICE static void Insert(
      int64_t c, int32_t other, double sum, int32_t* best, double* best_sum) {
    int r = kStrongest;
    for (; r > 0; --r) {
      const bool is_behind = best[r - 1] >= 0 &&
                             (best_sum[r - 1] > sum ||
                              (best_sum[r - 1] == sum &&
                               Distance(c, best[r - 1]) <= Distance(c, other)));
      if (is_behind) {
        break;
      }
      if (r < kStrongest) {
        best[r] = best[r - 1];
        best_sum[r] = best_sum[r - 1];
      }
    }
    if (r < kStrongest) {
      best[r] = other;
      best_sum[r] = sum;
    }
  }
};

// For each point of a sample the cluster of its camera; num_clusters if it is
// in none.
struct ClusterOfSampleParams {
  int64_t n = 0;
  int32_t num_clusters = 0;
  const int32_t* camera = nullptr;   // n
  const int32_t* cluster = nullptr;  // of each camera, -1: none
  int32_t* of_sample = nullptr;      // n

  CERES_EXT_HOST_DEVICE void Apply(int64_t at) const {
    const int32_t of_camera = cluster[camera[at]];
    of_sample[at] = of_camera < 0 ? num_clusters : of_camera;
  }
};

// Parts of sampled points: the rows by the cameras of a cluster that the point
// was sampled for.
struct SampledParts {
  // A camera may see a point thousands of times: S sums pairs of rows.
  static constexpr int kMostOfCamera = 16;
  // One row alone says nothing once its point is eliminated.
  static constexpr int kLeastRows = 2;
  ObservationIndexRef index;
  const int32_t* cluster = nullptr;       // of each camera, -1: none
  const int32_t* part_cluster = nullptr;  // of each part
  const int32_t* part_point = nullptr;    // index.num_points: no part

  // How many rows part p has. row: where they are listed, may be null.
  CERES_EXT_HOST_DEVICE int64_t List(int64_t p, int32_t* row) const {
    const int32_t point = part_point[p];
    if (point >= index.num_points) {
      return 0;
    }
    int64_t count = 0;
    int64_t of_camera = 0;
    const int64_t begin = index.point_begin[point];
    for (int64_t k = begin; k < index.point_begin[point + 1]; ++k) {
      const int32_t camera = index.camera_id[k];
      of_camera =
          k > begin && camera == index.camera_id[k - 1] ? of_camera + 1 : 0;
      if (of_camera < kMostOfCamera && cluster[camera] == part_cluster[p]) {
        if (row != nullptr) {
          row[count] = static_cast<int32_t>(k);
        }
        ++count;
      }
    }
    return count;
  }
};

// The rows of each part, 0 where there are too few, and whether it has any.
struct CountPartRowsParams {
  static constexpr int kUnroll = 1;
  int64_t n = 0;  // parts
  SampledParts parts;
  int64_t* num_rows = nullptr;
  int32_t* is_taken = nullptr;

  CERES_EXT_HOST_DEVICE void Apply(int64_t p) const {
    const int64_t count = parts.List(p, nullptr);
    is_taken[p] = count >= SampledParts::kLeastRows ? 1 : 0;
    num_rows[p] = is_taken[p] != 0 ? count : 0;
  }
};

// These rows, part by part, each of which is one point.
struct ListPartRowsParams {
  static constexpr int kUnroll = 1;
  int64_t n = 0;
  SampledParts parts;
  const int64_t* end = nullptr;     // inclusive sums of num_rows
  const int32_t* number = nullptr;  // of is_taken
  int32_t* row = nullptr;           // the place in the index
  int32_t* camera = nullptr;
  int32_t* point = nullptr;          // of the split problem
  int32_t* point_of_part = nullptr;  // of each of these its point of the index

  CERES_EXT_HOST_DEVICE void Apply(int64_t p) const {
    const int64_t begin = p == 0 ? 0 : end[p - 1];
    if (end[p] == begin) {
      return;
    }
    parts.List(p, row + begin);
    for (int64_t i = begin; i < end[p]; ++i) {
      camera[i] = parts.index.camera_id[row[i]];
      point[i] = number[p] - 1;
    }
    point_of_part[number[p] - 1] = parts.part_point[p];
  }
};

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_CUDA_KERNELS_OPS_ROW_SAMPLE_H_
