// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The keyframes of an odometry of an inertial sensor and a camera, simulated on
// the trajectory of inertial_trajectory.h.

#ifndef CERES_EXT_PROBLEM_IO_SIMULATED_ODOMETRY_H_
#define CERES_EXT_PROBLEM_IO_SIMULATED_ODOMETRY_H_

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "Eigen/Core"
#include "Eigen/Geometry"
#include "ceres_ext/odometry_cost_functions.h"
#include "ceres_ext/preintegration.h"
#include "problem_io/inertial_trajectory.h"

namespace ceres_ext {

class SimulatedOdometry {
 public:
  // A point in the image of this keyframe and in that of its anchor.
  struct Sight {
    int64_t point = 0;
    int64_t anchor = 0;
    double inverse_depth = 0.0;  // a first guess
    InverseDepthError<EigenQuaternion> row;
  };
  struct Keyframe {
    std::array<double, 7> pose;  // first guesses
    std::array<double, 9> speed;
    InertialError<EigenQuaternion> row;  // from the one before
    std::vector<Sight> sights;
  };

  static constexpr double kInterval = 0.2;  // s
  static constexpr int kTrack = 6;          // keyframes that see a point

  // num_points: that are new in a keyframe.
  explicit SimulatedOdometry(int num_points, unsigned seed = 1)
      : num_points_(num_points), generator_(seed) {}

  // body_from_camera: the camera looks along the body's y axis.
  static std::array<double, 7> Camera() {
    const double half = std::sqrt(0.5);
    return {-half, 0.0, 0.0, half, 0.05, 0.02, -0.01};
  }

  // The next keyframe, from 0 on.
  Keyframe Next() {
    const int64_t k = next_++;
    Keyframe frame;
    const TrueState truth(kInterval * static_cast<double>(k));
    frame.speed = truth.Speed(bias_);
    frame.pose = truth.Pose();
    for (int i = 0; i < 3; ++i) {
      frame.pose[4 + i] += k > 0 ? Draw(0.02) : 0.0;
      frame.speed[i] += Draw(0.02);
    }
    if (k > 0) {
      frame.row = Increment(k - 1);
    }
    for (int64_t anchor = std::max<int64_t>(0, k - kTrack + 1); anchor < k;
         ++anchor) {
      for (int n = 0; n < num_points_; ++n) {
        See(anchor, anchor * num_points_ + n, k, &frame.sights);
      }
    }
    return frame;
  }

 private:
  double Draw(double sigma) {
    return std::normal_distribution<double>(0.0, sigma)(generator_);
  }

  InertialError<EigenQuaternion> Increment(int64_t k) {
    constexpr InertialNoise kNoise = {2e-4, 2e-3, 2e-5, 3e-4};
    constexpr int kSteps = 40;
    const double begin = kInterval * static_cast<double>(k);
    double integrated_with[6];
    std::copy_n(bias_, 6, integrated_with);
    const auto samples = SimulateSamples(
        begin, kInterval / kSteps, kSteps + 1, kNoise, &generator_, bias_);
    Preintegration increment(kNoise, integrated_with);
    InertialError<EigenQuaternion> row;
    std::string error;
    if (!increment.AddSamples(
            kSteps + 1, samples.data(), begin, samples.back().time, &error) ||
        !row.Set(increment, kGravity, &error)) {
      row.duration = NAN;  // No solve succeeds with it.
    }
    return row;
  }

  static Eigen::Isometry3d WorldFromCamera(int64_t k) {
    const TrueState truth(kInterval * static_cast<double>(k));
    const std::array<double, 7> camera = Camera();
    return Eigen::Translation3d(truth.position) * truth.rotation *
           Eigen::Translation3d(Eigen::Map<const Eigen::Vector3d>(&camera[4])) *
           Eigen::Map<const Eigen::Quaterniond>(camera.data());
  }

  void See(int64_t anchor, int64_t point, int64_t k, std::vector<Sight>* all) {
    constexpr double kPixel = 1.0 / 460.0;
    // The same point for each keyframe that sees it.
    std::mt19937 of_point(static_cast<unsigned>(point) + 77);
    std::uniform_real_distribution<double> uniform(-1.0, 1.0);
    Sight sight;
    sight.point = point;
    sight.anchor = anchor;
    sight.row = {};
    sight.row.anchor[0] = 0.6 * uniform(of_point);
    sight.row.anchor[1] = 0.45 * uniform(of_point);
    const double depth = 10.0 + 6.0 * uniform(of_point);
    sight.inverse_depth = (1.0 + 0.1 * uniform(of_point)) / depth;
    const Eigen::Vector3d seen =
        WorldFromCamera(k).inverse() * WorldFromCamera(anchor) *
        (depth *
         Eigen::Vector3d(sight.row.anchor[0], sight.row.anchor[1], 1.0));
    if (seen.z() < 0.5) {
      return;
    }
    sight.row.image[0] = seen.x() / seen.z() + Draw(kPixel);
    sight.row.image[1] = seen.y() / seen.z() + Draw(kPixel);
    sight.row.weight = 1.0 / kPixel;
    all->push_back(sight);
  }

  const int num_points_;
  std::mt19937 generator_;
  int64_t next_ = 0;
  double bias_[6] = {0.01, -0.02, 0.015, 0.1, -0.2, 0.05};
};

}  // namespace ceres_ext

#endif  // CERES_EXT_PROBLEM_IO_SIMULATED_ODOMETRY_H_
