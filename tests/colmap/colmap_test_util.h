// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The common part of the tests of COLMAP's models.

#ifndef TESTS_COLMAP_COLMAP_TEST_UTIL_H_
#define TESTS_COLMAP_COLMAP_TEST_UTIL_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "problem_io/bal_synthetic.h"
#include "problem_io/colmap_model.h"
#include "problem_io/colmap_synthetic.h"
#include "tests/bal/synthetic_scene.h"

namespace ceres_ext::colmap {

inline const char* const kCameraModels[] = {"SIMPLE_PINHOLE",
                                            "PINHOLE",
                                            "SIMPLE_RADIAL",
                                            "RADIAL",
                                            "OPENCV",
                                            "OPENCV_FISHEYE",
                                            "FULL_OPENCV",
                                            "SIMPLE_RADIAL_FISHEYE",
                                            "RADIAL_FISHEYE",
                                            "FOV",
                                            "THIN_PRISM_FISHEYE",
                                            "RAD_TAN_THIN_PRISM_FISHEYE",
                                            "SIMPLE_DIVISION",
                                            "DIVISION",
                                            "SIMPLE_FISHEYE",
                                            "FISHEYE",
                                            "EUCM",
                                            "EQUIRECTANGULAR"};

inline const char* Suffix(ModelFormat format) {
  return format == MODEL_BINARY ? ".bin" : ".txt";
}

inline Model MakeModel(const bal::SyntheticProblem& scene,
                       const std::string& camera_model,
                       int32_t num_shared_cameras,
                       SyntheticValues values) {
  SyntheticModelOptions options;
  options.camera_model = FindCameraModel(camera_model);
  options.num_shared_cameras = num_shared_cameras;
  Model model;
  std::string error;
  EXPECT_TRUE(MakeModel(scene, /*seed=*/1, options, values, &model, &error))
      << error;
  return model;
}

// All numbers and names are the same, whatever the format.
inline void ExpectSame(const Model& a, const Model& b) {
  ASSERT_EQ(a.cameras.size(), b.cameras.size());
  for (size_t i = 0; i < a.cameras.size(); ++i) {
    const Camera& x = a.cameras[i];
    const Camera& y = b.cameras[i];
    EXPECT_EQ(x.id, y.id);
    EXPECT_EQ(x.model, y.model);
    EXPECT_EQ(x.width, y.width);
    EXPECT_EQ(x.height, y.height);
    EXPECT_TRUE(std::equal(x.params, x.params + kMaxCameraParams, y.params));
  }
  ASSERT_EQ(a.images.size(), b.images.size());
  for (size_t i = 0; i < a.images.size(); ++i) {
    const Image& x = a.images[i];
    const Image& y = b.images[i];
    EXPECT_EQ(x.id, y.id);
    EXPECT_EQ(x.camera, y.camera);
    EXPECT_EQ(x.name, y.name);
    EXPECT_TRUE(std::equal(x.pose, x.pose + 7, y.pose));
    EXPECT_EQ(x.points2d_begin, y.points2d_begin);
    EXPECT_EQ(x.points2d_end, y.points2d_end);
  }
  ASSERT_EQ(a.points.size(), b.points.size());
  for (size_t i = 0; i < a.points.size(); ++i) {
    const Point3D& x = a.points[i];
    const Point3D& y = b.points[i];
    EXPECT_EQ(x.id, y.id);
    EXPECT_TRUE(std::equal(x.xyz, x.xyz + 3, y.xyz));
    EXPECT_TRUE(std::equal(x.color, x.color + 3, y.color));
    EXPECT_EQ(x.error, y.error);
    EXPECT_EQ(x.track_begin, y.track_begin);
    EXPECT_EQ(x.track_end, y.track_end);
  }
  ASSERT_EQ(a.track_elements.size(), b.track_elements.size());
  for (size_t i = 0; i < a.track_elements.size(); ++i) {
    EXPECT_EQ(a.track_elements[i].image, b.track_elements[i].image);
    EXPECT_EQ(a.track_elements[i].point2d, b.track_elements[i].point2d);
  }
  ASSERT_EQ(a.rigs.size(), b.rigs.size());
  for (size_t i = 0; i < a.rigs.size(); ++i) {
    EXPECT_EQ(a.rigs[i].id, b.rigs[i].id);
    EXPECT_EQ(a.rigs[i].camera, b.rigs[i].camera);
    ASSERT_EQ(a.rigs[i].sensors.size(), b.rigs[i].sensors.size());
    for (size_t k = 0; k < a.rigs[i].sensors.size(); ++k) {
      const RigSensor& x = a.rigs[i].sensors[k];
      const RigSensor& y = b.rigs[i].sensors[k];
      EXPECT_EQ(x.camera, y.camera);
      EXPECT_EQ(x.has_pose, y.has_pose);
      EXPECT_TRUE(std::equal(x.pose, x.pose + 7, y.pose));
    }
  }
  ASSERT_EQ(a.frames.size(), b.frames.size());
  for (size_t i = 0; i < a.frames.size(); ++i) {
    EXPECT_EQ(a.frames[i].id, b.frames[i].id);
    EXPECT_EQ(a.frames[i].rig, b.frames[i].rig);
    EXPECT_EQ(a.frames[i].images, b.frames[i].images);
    const double* pose = FramePose(a, static_cast<int32_t>(i));
    EXPECT_TRUE(
        std::equal(pose, pose + 7, FramePose(b, static_cast<int32_t>(i))));
  }
  EXPECT_EQ(a.points2d, b.points2d);
  EXPECT_EQ(a.point_index, b.point_index);
}

}  // namespace ceres_ext::colmap

#endif  // TESTS_COLMAP_COLMAP_TEST_UTIL_H_
