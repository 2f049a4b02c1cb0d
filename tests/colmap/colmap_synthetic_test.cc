// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "problem_io/colmap_synthetic.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "ceres/problem.h"
#include "examples/colmap/colmap_problem.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "problem_io/bal_problem.h"
#include "problem_io/colmap_reader.h"
#include "tests/bal/bal_test_util.h"
#include "tests/bal/program_test_util.h"
#include "tests/colmap/colmap_test_util.h"

namespace ceres_ext::colmap {
namespace {

namespace fs = std::filesystem;

bal::SyntheticOptions SceneOptions() {
  bal::SyntheticOptions options = bal::OptionsOfSize(20, 500, 2500);
  options.num_weak_cameras = 1;
  options.weak_camera_points = 0;
  options.order = bal::ORDER_SHUFFLED;
  return options;
}

double Cost(Model model, bool split_pose = false) {
  ProblemOptions options;
  options.split_pose = split_pose;
  ceres::Problem problem;
  BuildProblem(options, &model, &problem);
  double cost = -1.0;
  EXPECT_TRUE(problem.Evaluate(
      ceres::Problem::EvaluateOptions(), &cost, nullptr, nullptr, nullptr));
  return cost;
}

TEST(ColmapSynthetic, AllModelsSeeTheSceneWithItsErrors) {
  const bal::SyntheticProblem scene = MakeScene(SceneOptions());
  bal::BalProblem truth = scene.start;
  truth.cameras = scene.true_cameras;
  truth.points = scene.true_points;
  const double expected = bal::PlainCost(truth);
  for (const char* name : kCameraModels) {
    for (const int32_t shared : {0, 1, 3}) {
      SCOPED_TRACE(std::string(name) + " " + std::to_string(shared));
      const Model model = MakeModel(scene, name, shared, VALUES_OF_TRUTH);
      EXPECT_EQ(model.cameras.size(), shared == 0 ? 20u : shared);
      // Pixels of up to 2000 carry errors of about one, each after less than
      // 100 operations.
      const double tolerance = 2 * 100 * 2000 * 2.2e-16;
      EXPECT_NEAR(Cost(model), expected, tolerance * expected);
      EXPECT_NEAR(Cost(model, true), expected, tolerance * expected);
      for (size_t i = 0; i < model.images.size(); ++i) {
        const Image& image = model.images[i];
        EXPECT_EQ(image.id, i + 1);
        EXPECT_EQ(image.camera, static_cast<int>(i % model.cameras.size()));
        const Camera& camera = model.cameras[image.camera];
        EXPECT_EQ(camera.id, image.camera + 1u);
        const int focals = camera.model->num_focal_lengths;
        // The principal point, or the size of a panorama.
        const double part = focals == 0 ? 1.0 : 0.5;
        EXPECT_EQ(camera.params[focals], part * camera.width);
        EXPECT_EQ(camera.params[focals + 1], part * camera.height);
        for (int64_t k = image.points2d_begin; k < image.points2d_end; ++k) {
          EXPECT_GT(model.points2d[2 * k], 0.0);
          EXPECT_LT(model.points2d[2 * k], camera.width);
          EXPECT_GT(model.points2d[2 * k + 1], 0.0);
          EXPECT_LT(model.points2d[2 * k + 1], camera.height);
        }
      }
      EXPECT_EQ(model.points.front().id, 1);
      EXPECT_EQ(model.points.back().id, 500);
      EXPECT_EQ(
          std::count(model.point_index.begin(), model.point_index.end(), -1),
          0);
    }
  }
}

TEST(ColmapSynthetic, StartsWhereBalStarts) {
  const bal::SyntheticProblem scene = MakeScene(SceneOptions());
  // The model of BAL except for its frames of camera and image.
  const Model model = MakeModel(scene, "RADIAL", 0, VALUES_AT_START);
  const double expected = bal::PlainCost(scene.start);
  EXPECT_NEAR(Cost(model), expected, 1e-10 * expected);
  // No coefficients, and focal lengths that are off by as much as those of BAL.
  const Model start = MakeModel(scene, "FULL_OPENCV", 2, VALUES_AT_START);
  const Model truth = MakeModel(scene, "FULL_OPENCV", 2, VALUES_OF_TRUTH);
  for (int i = 0; i < 2; ++i) {
    const double* a = start.cameras[i].params;
    const double* b = truth.cameras[i].params;
    EXPECT_EQ(a[0], scene.start.cameras[9 * i + 6]);
    EXPECT_EQ(b[0], scene.true_cameras[9 * i + 6]);
    EXPECT_NEAR(a[1] / b[1], a[0] / b[0], 1e-15);
    EXPECT_NE(a[1], a[0]);
    EXPECT_LE(std::abs(a[1] / a[0] - 1.0), 0.02);
    for (int k = 4; k < 12; ++k) {
      EXPECT_EQ(a[k], 0.0);
      EXPECT_NE(b[k], 0.0);
    }
  }
  EXPECT_EQ(start.points2d, truth.points2d);
}

template <typename T>
void AddToHash(const T* values, int64_t num_values, uint64_t* hash) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(values);
  for (size_t i = 0; i < num_values * sizeof(T); ++i) {
    *hash = (*hash ^ bytes[i]) * 0x100000001b3u;
  }
}

// FNV-1a, as in bal_synthetic_test.cc and made once in the same ways.
TEST(ColmapSynthetic, SameBitsEverywhere) {
  const bal::SyntheticProblem scene = MakeScene(SceneOptions());
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char* name : kCameraModels) {
    if (name == std::string("FOV")) {
      // The nine models of which the hash was made.
      EXPECT_EQ(hash, 0xca6e47a7562fcb67u);
    } else if (name == std::string("EQUIRECTANGULAR")) {
      // The 17 models before it.
      EXPECT_EQ(hash, 0x4e8f8d046da808f8u);
    }
    for (const auto values : {VALUES_AT_START, VALUES_OF_TRUTH}) {
      const Model model = MakeModel(scene, name, 3, values);
      for (const Camera& camera : model.cameras) {
        // The hash was made with room for 12.
        AddToHash(camera.params, std::max(12, camera.model->num_params), &hash);
      }
      for (const Image& image : model.images) {
        AddToHash(image.pose, 7, &hash);
      }
      for (const Point3D& point : model.points) {
        AddToHash(point.xyz, 3, &hash);
      }
      AddToHash(model.points2d.data(), model.points2d.size(), &hash);
      AddToHash(model.point_index.data(), model.point_index.size(), &hash);
    }
  }
  EXPECT_EQ(hash, 0x456d30466d5ea75au);
}

TEST(BalGenerate, WritesModelsAndRefuses) {
  const std::string folder = bal::TempPath("folder");
  fs::remove_all(folder);
  ASSERT_TRUE(fs::create_directory(folder));
  const std::string sizes =
      "--num_cameras=20 --num_points=500 --num_observations=2500 ";
  std::string error;
  const std::string output = folder + "/start";
  const std::string truth = folder + "/truth/";
  const bal::Outcome written =
      bal::Execute(BAL_GENERATE,
                   sizes +
                       "--camera_model=OPENCV_FISHEYE --shared_cameras=3 "
                       "--output='" +
                       output + "' --truth='" + truth + "'");
  ASSERT_EQ(written.code, 0) << written.err;
  bal::SyntheticOptions options = SceneOptions();
  options.num_weak_cameras = 0;
  options.order = bal::ORDER_BY_POINT;
  const bal::SyntheticProblem scene = MakeScene(options);
  Model model;
  ASSERT_TRUE(ReadModel(output, &model, &error)) << error;
  ExpectSame(model, MakeModel(scene, "OPENCV_FISHEYE", 3, VALUES_AT_START));
  ASSERT_TRUE(ReadModel(truth, &model, &error)) << error;
  ExpectSame(model, MakeModel(scene, "OPENCV_FISHEYE", 3, VALUES_OF_TRUTH));

  bal::WriteBytes(folder + "/file", "");
  bal::ExpectRefusals(
      BAL_GENERATE,
      "bal_generate of models",
      {{"sizes", sizes}, {"folder", folder}, {"models", CameraModelNames()}});
  fs::remove_all(folder);
}

}  // namespace
}  // namespace ceres_ext::colmap
