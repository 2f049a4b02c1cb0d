// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The scene of the tests that solve, also with rigs.

#ifndef TESTS_COLMAP_COLMAP_SCENE_H_
#define TESTS_COLMAP_COLMAP_SCENE_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "Eigen/Core"
#include "ceres/solver.h"
#include "ceres_ext/camera_models.h"
#include "ceres_ext/photogrammetry.h"
#include "problem_io/bal_synthetic.h"
#include "problem_io/colmap_model.h"
#include "tests/bal/synthetic_scene.h"
#include "tests/colmap/colmap_test_util.h"

namespace ceres_ext::colmap {

// A start in the basin of the minimum.
inline const bal::SyntheticProblem& Scene() {
  static const auto* const kScene = [] {
    bal::SyntheticOptions options = bal::OptionsOfSize(8, 200, 1200);
    options.outlier_fraction = 0.0;
    options.drift_rotation = 1e-3;
    options.drift_translation = 0.03;
    options.focal_noise = 2e-3;
    options.point_noise = 1e-3;
    return new bal::SyntheticProblem(MakeScene(options));
  }();
  return *kScene;
}

inline ceres::Solver::Options TightOptions() {
  ceres::Solver::Options options;
  options.logging_type = ceres::SILENT;
  options.max_num_iterations = 500;
  options.function_tolerance = 1e-10;
  options.parameter_tolerance = 1e-14;
  options.gradient_tolerance = 1e-12;
  return options;
}

// Each image of `model` becomes a frame, with another image through the second
// camera, whose pose in the rig is the same in all frames.
inline Model MakeRigs(const std::string& camera_model) {
  Model model = MakeModel(Scene(), camera_model, 2, VALUES_OF_TRUTH);
  RigSensor sensor = {1, true, {0.02, -0.05, 0.03, 0.998, 0.1, -0.2, 0.05}};
  model.rigs = {{1, 0, {sensor}}};
  std::mt19937 random(1);
  std::normal_distribution<double> noise(0.0, 0.5);
  const size_t num_images = model.images.size();
  for (size_t i = 0; i < num_images; ++i) {
    Image& image = model.images[i];
    image.camera = 0;
    image.frame = static_cast<int32_t>(i);
    model.frames.push_back(
        {100u + image.id,
         0,
         {static_cast<int32_t>(i), static_cast<int32_t>(num_images + i)}});
  }
  for (size_t i = 0; i < num_images; ++i) {
    Image image = model.images[i];
    image.id += num_images;
    image.camera = 1;
    image.sensor = 0;
    model.images.push_back(image);
  }
  SetPosesOfSensors(&model);
  std::vector<double> points2d;
  std::vector<int32_t> point_index;
  for (Image& image : model.images) {
    const int64_t begin = point_index.size();
    ForEachCameraModel([&](auto tag) {
      if (tag.kModelId != model.cameras[image.camera].model->id) {
        return;
      }
      for (int64_t k = image.points2d_begin; k < image.points2d_end; ++k) {
        double in_camera[3];
        double pixel[2];
        TransformPoint<EigenQuaternion>(image.pose,
                                        image.pose + 4,
                                        model.points[model.point_index[k]].xyz,
                                        in_camera);
        if (decltype(tag)::ImgFromCam(
                model.cameras[image.camera].params, in_camera, pixel)) {
          points2d.push_back(pixel[0] + noise(random));
          points2d.push_back(pixel[1] + noise(random));
          point_index.push_back(model.point_index[k]);
        }
      }
    });
    image.points2d_begin = begin;
    image.points2d_end = point_index.size();
  }
  model.points2d = points2d;
  model.point_index = point_index;
  SetTracks(&model);
  // Off the truth: frames, the sensor and points.
  std::uniform_real_distribution<double> off(-1.0, 1.0);
  const auto change_pose = [&](double* pose) {
    for (int k = 0; k < 7; ++k) {
      pose[k] += (k < 4 ? 1e-4 : 1e-2) * off(random);
    }
    Eigen::Map<Eigen::Vector4d>(pose).normalize();
  };
  for (size_t i = 0; i < num_images; ++i) {
    change_pose(model.images[i].pose);
  }
  change_pose(model.rigs[0].sensors[0].pose);
  for (Point3D& point : model.points) {
    for (double& coordinate : point.xyz) {
      coordinate += 1e-3 * off(random);
    }
  }
  SetPosesOfSensors(&model);
  return model;
}

}  // namespace ceres_ext::colmap

#endif  // TESTS_COLMAP_COLMAP_SCENE_H_
