// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Windows as bytes: the *input* goes to a device in one piece, and the *output*
// comes back in one piece. Offsets follow from the counts, so host and device
// compute them with the same code.
#ifndef CERES_EXT_SMALL_WINDOW_WINDOW_ARENA_H_
#define CERES_EXT_SMALL_WINDOW_WINDOW_ARENA_H_

#include <cstdint>

#include "ceres_ext/small/window/window.h"
#include "cuda_kernels/base/host_device.h"
#include "cuda_kernels/model/robust_loss.h"

namespace ceres_ext {

// Offsets of a window's arrays in its input. Arrays of refined values have the
// start.
struct WindowInput {
  CERES_EXT_HOST_DEVICE WindowInput(int camera_size,
                                    const WindowCounts& counts,
                                    bool has_weights,
                                    bool has_losses) {
    const int64_t rows = counts.num_rows;
    int64_t end = 0;
    cameras = Take(8, int64_t{camera_size} * counts.num_cameras, &end);
    constant_cameras =
        Take(8, int64_t{camera_size} * counts.num_constant_cameras, &end);
    points = Take(8, 3 * int64_t{counts.num_points}, &end);
    constant_points = Take(8, 3 * int64_t{counts.num_constant_points}, &end);
    // Behind these, where TeamWindow::Bound finds them.
    bounds = Take(16, counts.NumBounds(camera_size), &end);
    observed = Take(8, 2 * rows, &end);
    weights = Take(8, has_weights ? rows : 0, &end);
    camera = Take(4, rows, &end);
    point = Take(4, rows, &end);
    point_begin = Take(4, int64_t{counts.all_points()} + 1, &end);
    chunk_begin = Take(4, int64_t{counts.num_chunks} + 1, &end);
    column_mask = Take(2, counts.num_cameras, &end);
    // Bounds may be for more cameras than a window has.
    const int32_t num_cameras = counts.num_cameras < kMaxWindowCameras
                                    ? counts.num_cameras
                                    : kMaxWindowCameras;
    pattern = Take(8, int64_t{PatternWords(num_cameras)} * num_cameras, &end);
    pairs = Take(2, PackedTriangle(num_cameras), &end);
    below = Take(1, PackedTriangle(num_cameras), &end);
    below_begin = Take(2, int64_t{num_cameras} + 1, &end);
    loss_id = Take(1, has_losses ? rows : 0, &end);
    intrinsics = Take(sizeof(WindowIntrinsics), counts.num_intrinsics, &end);
    intrinsics_of_row = Take(4, counts.num_intrinsics > 0 ? rows : 0, &end);
    scales = Take(8, counts.num_scales, &end);
    priors = Take(sizeof(WindowPrior), counts.num_priors, &end);
    prior_begin =
        Take(4, counts.num_priors > 0 ? counts.num_cameras + 1 : 0, &end);
    prior_sides = Take(4, 2 * int64_t{counts.num_priors}, &end);
    marginals = Take(sizeof(WindowMarginal), counts.num_marginals, &end);
    marginal_poses =
        Take(sizeof(WindowMarginalPose), counts.num_marginal_poses, &end);
    marginal_values = Take(8, counts.num_marginal_values, &end);
    num_bytes = end;
  }

  int64_t cameras;
  int64_t constant_cameras;
  int64_t points;
  int64_t constant_points;
  int64_t bounds;  // lower and upper one of each value
  int64_t observed;
  int64_t weights;
  int64_t camera;
  int64_t point;
  int64_t point_begin;
  int64_t chunk_begin;
  int64_t column_mask;
  int64_t pattern;
  int64_t pairs;
  int64_t below;
  int64_t below_begin;
  int64_t loss_id;
  int64_t intrinsics;
  int64_t intrinsics_of_row;
  int64_t scales;
  int64_t priors;
  // Sides of priors by varying camera: 2 k + s for camera s of prior k.
  int64_t prior_begin;
  int64_t prior_sides;
  int64_t marginals;
  int64_t marginal_poses;
  int64_t marginal_values;  // [A b]
  int64_t num_bytes;

 private:
  // n elements of `size` bytes; the end is a multiple of 8 again.
  CERES_EXT_HOST_DEVICE static int64_t Take(int64_t size,
                                            int64_t n,
                                            int64_t* end) {
    const int64_t begin = *end;
    *end += (size * n + 7) / 8 * 8;
    return begin;
  }
};

struct WindowOutput {
  CERES_EXT_HOST_DEVICE WindowOutput(int camera_size,
                                     const WindowCounts& counts) {
    cameras = (sizeof(WindowResult) + 7) / 8 * 8;
    points = cameras + int64_t{8} * camera_size * counts.num_cameras;
    num_bytes = points + int64_t{24} * counts.num_points;
  }

  int64_t cameras;
  int64_t points;
  int64_t num_bytes;
};

// A window in arenas of many windows.
struct WindowRecord {
  WindowCounts counts;
  bool has_weights = false;
  bool has_losses = false;
  bool has_quaternions = false;  // Poses turn by quaternions.
  int64_t input_begin = 0;       // in bytes, a multiple of 8
  int64_t output_begin = 0;      // likewise
};

CERES_EXT_HOST_DEVICE inline Window ViewWindow(
    int camera_size,
    const WindowRecord& record,
    const kernels::RobustLoss* losses,
    const unsigned char* inputs,
    unsigned char* outputs,
    double* scratch) {
  const WindowInput at(
      camera_size, record.counts, record.has_weights, record.has_losses);
  const WindowOutput out(camera_size, record.counts);
  const unsigned char* const input = inputs + record.input_begin;
  unsigned char* const output = outputs + record.output_begin;
  Window window;
  window.counts = record.counts;
  window.observed = reinterpret_cast<const double*>(input + at.observed);
  window.camera = reinterpret_cast<const int32_t*>(input + at.camera);
  window.point = reinterpret_cast<const int32_t*>(input + at.point);
  window.point_begin = reinterpret_cast<const int32_t*>(input + at.point_begin);
  window.chunk_begin = reinterpret_cast<const int32_t*>(input + at.chunk_begin);
  window.column_mask =
      reinterpret_cast<const uint16_t*>(input + at.column_mask);
  window.pattern = reinterpret_cast<const uint64_t*>(input + at.pattern);
  window.pairs = reinterpret_cast<const uint16_t*>(input + at.pairs);
  window.below = input + at.below;
  window.below_begin =
      reinterpret_cast<const uint16_t*>(input + at.below_begin);
  window.constant_cameras =
      reinterpret_cast<const double*>(input + at.constant_cameras);
  window.constant_points =
      reinterpret_cast<const double*>(input + at.constant_points);
  window.loss.losses = losses;
  window.loss.loss_id = record.has_losses ? input + at.loss_id : nullptr;
  window.loss.weights =
      record.has_weights ? reinterpret_cast<const double*>(input + at.weights)
                         : nullptr;
  window.cameras = reinterpret_cast<double*>(output + out.cameras);
  window.points = reinterpret_cast<double*>(output + out.points);
  window.scratch = scratch;
  window.result = reinterpret_cast<WindowResult*>(output);
  return window;
}

// Copies the start to the refined values.
template <typename Team>
CERES_EXT_HOST_DEVICE void CopyStart(int camera_size,
                                     const WindowRecord& record,
                                     const unsigned char* inputs,
                                     const Window& window,
                                     Team* team) {
  const WindowInput at(
      camera_size, record.counts, record.has_weights, record.has_losses);
  const unsigned char* const input = inputs + record.input_begin;
  const auto* const cameras =
      reinterpret_cast<const double*>(input + at.cameras);
  const auto* const points = reinterpret_cast<const double*>(input + at.points);
  const int first = team->block() * team->size() + team->rank();
  const int stride = team->num_blocks() * team->size();
  for (int e = first; e < camera_size * record.counts.num_cameras;
       e += stride) {
    window.cameras[e] = cameras[e];
  }
  for (int e = first; e < 3 * record.counts.num_points; e += stride) {
    window.points[e] = points[e];
  }
  team->Join();
}

}  // namespace ceres_ext

#endif  // CERES_EXT_SMALL_WINDOW_WINDOW_ARENA_H_
