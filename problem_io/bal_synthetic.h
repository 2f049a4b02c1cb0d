// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Bundle adjustment problems with known truth, of any size:
//
//   SyntheticOptions options;
//   FindBalSize("final-13682", &options);   // or set the three counts
//   SyntheticProblem synthetic;
//   std::string error;
//   if (!GenerateSynthetic(options, &synthetic, &error)) { ... }
//   ... synthetic.start, synthetic.true_cameras, synthetic.true_points ...
//
// The scene. Cameras drive through a city of square blocks, a camera every two
// metres, several laps where there are many of them. Each point belongs to a
// home camera, is in front of it like the facades of a street, and is seen by
// other cameras around that place, in this lap and in others, if it lies in
// their field of view. Track lengths follow P(length > 2 + x) ~ 1 / x^2: most
// are two or three, a few go into the hundreds. The start has drifted from the
// truth like odometry: a random walk along the trajectory.
//
// With LAYOUT_STRIPS an aircraft flies to and fro 100 metres above a square of
// land, in parallel strips 64 metres apart, with a camera every 24 metres that
// looks down: pictures overlap by 80 % along a strip and by 60 % across. Points
// are on the ground and are seen in their strip and in those beside it.
//
// Same options and seed, same bits: on every machine, for any compiler that
// keeps IEEE 754 (see portable_math.h) and for any number of threads.

#ifndef PROBLEM_IO_BAL_SYNTHETIC_H_
#define PROBLEM_IO_BAL_SYNTHETIC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "problem_io/bal_problem.h"

namespace ceres_ext::bal {

enum ObservationOrder {
  ORDER_BY_POINT,   // then by camera, as in most BAL files
  ORDER_BY_CAMERA,  // then by point
  ORDER_SHUFFLED,
};

enum SceneLayout {
  LAYOUT_CITY,
  LAYOUT_STRIPS,
  LAYOUT_PLACES,
};

struct SyntheticOptions {
  SceneLayout layout = LAYOUT_CITY;

  // Exact. At least two observations per point and no more than the scene lets
  // the cameras see.
  int32_t num_cameras = 100;
  int32_t num_points = 10000;
  int64_t num_observations = 50000;

  uint64_t seed = 1;

  // Standard deviation of each image coordinate, pixels.
  double pixel_noise = 0.5;
  // Part of the observations that are outliers: moved by up to outlier_size
  // pixels in x and in y, uniformly.
  double outlier_fraction = 0.01;
  double outlier_size = 20.0;

  // The start. Standard deviations of each component of rotation (radians) and
  // position (metres) where the drift ends, at the last camera; of the focal
  // lengths, relative; of the points, relative to the distance from their home
  // camera. Distortion starts at 0.
  double drift_rotation = 0.01;
  double drift_translation = 0.3;
  double focal_noise = 0.01;
  double point_noise = 0.005;

  ObservationOrder order = ORDER_BY_POINT;
  // Point ids in random order; otherwise they follow the home cameras.
  bool shuffle_points = false;

  // Degenerate cases.
  // Points with a single observation.
  int32_t num_points_seen_once = 0;
  // Points ten thousand times as far away.
  int32_t num_far_points = 0;
  // Cameras that see exactly weak_camera_points points (0 is possible); at
  // most half of all.
  int32_t num_weak_cameras = 0;
  int32_t weak_camera_points = 2;
  // All camera centers on one line, in a city.
  bool collinear_cameras = false;

  // 0: one per processor.
  int num_threads = 0;
};

struct SyntheticProblem {
  // 9-parameter cameras; observations with their noise, cameras and points at
  // the start.
  BalProblem start;
  std::vector<double> true_cameras;  // num_cameras x 9
  std::vector<double> true_points;   // num_points x 3
};

// False if the options can't be met; *error then says which and why.
bool GenerateSynthetic(const SyntheticOptions& options,
                       SyntheticProblem* problem,
                       std::string* error);

// The sizes of the 98 problems of the BAL data set.
struct BalSize {
  const char* name;  // "final-13682": family and number of cameras
  int32_t num_cameras;
  int32_t num_points;
  int64_t num_observations;
};
const std::vector<BalSize>& BalSizes();

// Sets the three counts of *options. False if there is no such name.
bool FindBalSize(const std::string& name, SyntheticOptions* options);

}  // namespace ceres_ext::bal

#endif  // PROBLEM_IO_BAL_SYNTHETIC_H_
