// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The scene of the small examples: cameras on an arc look at points in a box.
// The measurements have normal noise, and the start is near the truth.

#ifndef EXAMPLES_SCENE_H_
#define EXAMPLES_SCENE_H_

#include <cmath>
#include <cstdint>
#include <iostream>
#include <random>
#include <vector>

#include "ceres/rotation.h"

namespace examples {

struct Scene {
  // One image, in the format of BAL: rotation vector, translation, f, k1, k2.
  std::vector<double> cameras;  // num_cameras x 9
  std::vector<double> points;   // num_points x 3
  // Point point_index[i] is at observations[2 * i], in pixels from the
  // image's centre, in image camera_index[i].
  std::vector<int32_t> camera_index;
  std::vector<int32_t> point_index;
  std::vector<double> observations;

  std::vector<double> true_cameras;
  std::vector<double> true_points;
  double noise = 0.5;  // standard deviation of each coordinate, in pixels

  int num_cameras() const { return static_cast<int>(cameras.size()) / 9; }
  int num_points() const { return static_cast<int>(points.size()) / 3; }
  int num_observations() const { return static_cast<int>(camera_index.size()); }

  // The cost that the noise alone leaves when num_parameters are estimated, and
  // its standard deviation: sigma^2 / 2 times chi-squared.
  double ExpectedCost(int num_parameters) const {
    return 0.5 * noise * noise * (2 * num_observations() - num_parameters);
  }
  double CostDeviation(int num_parameters) const {
    return 0.5 * noise * noise *
           std::sqrt(2.0 * (2 * num_observations() - num_parameters));
  }
};

// The camera model of BAL: it looks along -z.
inline void Project(const double* camera, const double* point, double* pixel) {
  double p[3];
  ceres::AngleAxisRotatePoint(camera, point, p);
  const double x = -(p[0] + camera[3]) / (p[2] + camera[5]);
  const double y = -(p[1] + camera[4]) / (p[2] + camera[5]);
  const double r2 = x * x + y * y;
  const double scale = camera[6] * (1.0 + r2 * (camera[7] + r2 * camera[8]));
  pixel[0] = scale * x;
  pixel[1] = scale * y;
}

// The same scene at each call. All images have the same f, k1 and k2.
inline Scene MakeScene() {
  constexpr int kNumCameras = 12;
  constexpr int kNumPoints = 300;
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  Scene scene;
  for (int i = 0; i < kNumCameras; ++i) {
    const double angle = 0.15 * (i - 0.5 * kNumCameras);
    for (const double value :
         {0.02 * normal(random), angle, 0.02 * normal(random)}) {
      scene.true_cameras.push_back(value);
    }
    for (const double value : {0.2 * normal(random),
                               0.2 * normal(random),
                               -10.0 + 0.2 * normal(random)}) {
      scene.true_cameras.push_back(value);
    }
    for (const double value : {1000.0, -0.05, 0.01}) {
      scene.true_cameras.push_back(value);
    }
  }
  for (int i = 0; i < 3 * kNumPoints; ++i) {
    scene.true_points.push_back(2.0 * normal(random));
  }
  for (int i = 0; i < kNumPoints; ++i) {
    for (int j = 0; j < kNumCameras; ++j) {
      if ((i + j) % 3 == 0) {
        continue;  // not seen
      }
      double pixel[2];
      Project(&scene.true_cameras[9 * j], &scene.true_points[3 * i], pixel);
      scene.camera_index.push_back(j);
      scene.point_index.push_back(i);
      for (const double value : pixel) {
        scene.observations.push_back(value + scene.noise * normal(random));
      }
    }
  }
  scene.cameras = scene.true_cameras;
  for (int i = 0; i < kNumCameras; ++i) {
    for (int j = 0; j < 6; ++j) {
      scene.cameras[9 * i + j] += 0.01 * normal(random);
    }
  }
  scene.points = scene.true_points;
  for (double& value : scene.points) {
    value += 0.05 * normal(random);
  }
  return scene;
}

// "final cost 610.4; the noise alone leaves 606.8 +- 12.3"
inline void PrintCost(const Scene& scene, int num_parameters, double cost) {
  std::cout << "final cost " << cost << "; the noise alone leaves "
            << scene.ExpectedCost(num_parameters) << " +- "
            << scene.CostDeviation(num_parameters) << std::endl;
}

}  // namespace examples

#endif  // EXAMPLES_SCENE_H_
