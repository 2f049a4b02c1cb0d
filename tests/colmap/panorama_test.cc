// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// EQUIRECTANGULAR cameras with points all around them: solves to the truth
// across the seam, on the host or on an emulated device, and the refusal of
// points at a pole.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "Eigen/Core"
#include "ceres/problem.h"
#include "ceres/solver.h"
#include "ceres_ext/camera_models.h"
#include "ceres_ext/photogrammetry.h"
#include "ceres_ext/solve.h"
#include "examples/colmap/colmap_problem.h"
#include "examples/colmap/model_arrays.h"
#include "examples/colmap/survey.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "problem_io/colmap_model.h"
#include "tests/bal/bal_test_util.h"
#include "tests/colmap/colmap_scene.h"
#include "tests/common/has_device.h"

namespace ceres_ext::colmap {
namespace {

using ::testing::HasSubstr;

constexpr double kWidth = 2000.0;
constexpr int kNumImages = 6;
constexpr int kNumPoints = 120;

void Project(const Model& model,
             const Image& image,
             const double* xyz,
             double* pixel) {
  double in_camera[3];
  TransformPoint<EigenQuaternion>(image.pose, image.pose + 4, xyz, in_camera);
  ASSERT_TRUE(EquirectangularCamera::ImgFromCam(
      model.cameras[image.camera].params, in_camera, pixel));
}

// Images in the middle of points that all of them see, without noise.
Model MakeTruth() {
  Model model;
  model.cameras.push_back({7,
                           FindCameraModel("EQUIRECTANGULAR"),
                           static_cast<int64_t>(kWidth),
                           static_cast<int64_t>(kWidth) / 2,
                           {kWidth, kWidth / 2}});
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform(-1.0, 1.0);
  for (int i = 0; i < kNumPoints; ++i) {
    const double longitude = 3.14 * uniform(random);
    const double distance = 5.0 + 2.0 * uniform(random);
    model.points.push_back({i + 1,
                            {distance * std::sin(longitude),
                             3.0 * uniform(random),
                             distance * std::cos(longitude)},
                            -1.0,
                            {0, 0, 0},
                            0,
                            0});
  }
  for (int i = 0; i < kNumImages; ++i) {
    Image image = {};
    image.id = i + 1;
    image.name = "panorama" + std::to_string(i + 1) + ".jpg";
    Eigen::Map<Eigen::Vector4d> q(image.pose);
    q << 0.2 * uniform(random), uniform(random), 0.2 * uniform(random), 1.0;
    q.normalize();
    for (int k = 4; k < 7; ++k) {
      image.pose[k] = uniform(random);
    }
    image.points2d_begin = static_cast<int64_t>(model.point_index.size());
    for (int p = 0; p < kNumPoints; ++p) {
      double pixel[2];
      Project(model, image, model.points[p].xyz, pixel);
      model.points2d.insert(model.points2d.end(), pixel, pixel + 2);
      model.point_index.push_back(p);
    }
    image.points2d_end = static_cast<int64_t>(model.point_index.size());
    model.images.push_back(image);
  }
  SetTracks(&model);
  return model;
}

// Off the truth except for the gauge: the first pose and the second
// translation.
Model MakeStart(const Model& truth) {
  Model start = truth;
  std::mt19937 random(2);
  std::uniform_real_distribution<double> off(-1.0, 1.0);
  for (size_t i = 1; i < start.images.size(); ++i) {
    double* const pose = start.images[i].pose;
    for (int k = 0; k < (i == 1 ? 4 : 7); ++k) {
      pose[k] += 0.02 * off(random);
    }
    Eigen::Map<Eigen::Vector4d>(pose).normalize();
  }
  for (Point3D& point : start.points) {
    for (double& coordinate : point.xyz) {
      coordinate += 0.1 * off(random);
    }
  }
  return start;
}

// Observations whose projection is on the other side of the seam.
int NumAcrossSeam(const Model& model) {
  int count = 0;
  for (const Image& image : model.images) {
    for (int64_t k = image.points2d_begin; k < image.points2d_end; ++k) {
      double pixel[2];
      Project(model, image, model.points[model.point_index[k]].xyz, pixel);
      count += std::abs(pixel[0] - model.points2d[2 * k]) > 0.5 * kWidth;
    }
  }
  return count;
}

void ExpectTruth(const Model& truth, Model found) {
  // Errors of less than 1e-6 pixels are 1e-6 * 2 pi / 2000 radians at a
  // distance of up to 9.
  for (size_t i = 0; i < truth.points.size(); ++i) {
    for (int k = 0; k < 3; ++k) {
      EXPECT_NEAR(found.points[i].xyz[k], truth.points[i].xyz[k], 3e-8);
    }
  }
  for (size_t i = 0; i < truth.images.size(); ++i) {
    for (int k = 0; k < 7; ++k) {
      EXPECT_NEAR(found.images[i].pose[k], truth.images[i].pose[k], 3e-8);
    }
  }
  for (int k = 0; k < 2; ++k) {
    EXPECT_EQ(found.cameras[0].params[k], truth.cameras[0].params[k]);
  }
  UpdateErrors(&found);
  for (const Point3D& point : found.points) {
    EXPECT_LT(point.error, 1e-6);
  }
}

// Everything that may vary or have a bound or a prior.
ProblemOptions AllOptions() {
  ProblemOptions options;
  options.refine_principal_point = true;
  options.bound_intrinsics = true;
  options.intrinsics_prior_weights = {1.0, 1.0, 1.0};
  return options;
}

TEST(Panorama, SolvesToTheTruthAcrossTheSeam) {
  const Model truth = MakeTruth();
  const Model start = MakeStart(truth);
  ASSERT_EQ(NumAcrossSeam(truth), 0);
  // Both sides: 2 % of the width beside the seam have points.
  EXPECT_GT(NumAcrossSeam(start), 5);
  for (const ProblemOptions& options : {ProblemOptions(), AllOptions()}) {
    Model model = start;
    ModelArrays arrays(options, ProblemSelection(), &model);
    Options ext_options;
    ext_options.device = kDevice;
    ext_options.fallback = FALLBACK_REFUSE;
    ceres::Solver::Options solver_options = TightOptions();
    solver_options.linear_solver_type = ceres::DENSE_SCHUR;
    Summary summary;
    Solve(solver_options, ext_options, arrays.problem(), &summary);
    ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
    ASSERT_TRUE(summary.IsSolutionUsable()) << summary.message;
    EXPECT_FALSE(summary.is_constrained);
    arrays.Store();
    ExpectTruth(truth, model);
  }
}

TEST(Panorama, SolvesSplitPoses) {
  const Model truth = MakeTruth();
  Model model = MakeStart(truth);
  ProblemOptions options;
  options.split_pose = true;
  ceres::Problem problem;
  BuildProblem(options, &model, &problem);
  Options ext_options;
  ext_options.device = kDevice;
  Summary summary;
  ceres::Solver::Options solver_options = TightOptions();
  solver_options.linear_solver_type = ceres::DENSE_SCHUR;
  Solve(solver_options, ext_options, &problem, &summary);
  ASSERT_TRUE(summary.IsSolutionUsable()) << summary.message;
  ExpectTruth(truth, model);
}

// The rest of this file is of the host.
#ifndef CERES_EXT_EMULATED

// A point of the vertical axis of the last image.
void MovePointToPole(double height, Model* model) {
  const double* const pose = model->images.back().pose;
  const double in_camera[3] = {-pose[4], height - pose[5], -pose[6]};
  const double inverse[4] = {pose[3], -pose[0], -pose[1], -pose[2]};
  ceres::QuaternionRotatePoint(inverse, in_camera, model->points[3].xyz);
}

TEST(Panorama, NamesAPointAtAPole) {
  const Model truth = MakeTruth();
  EXPECT_EQ(FindPole(truth, 0), "");
  for (const double height : {4.0, -0.5}) {
    Model model = truth;
    MovePointToPole(height, &model);
    EXPECT_EQ(FindPole(model, 0),
              "point 4 in image 6 (panorama6.jpg): expected a point off the "
              "vertical axis of its EQUIRECTANGULAR camera 7, found one at a "
              "pole, where x has no derivative");
    // Quaternions of a file may have any norm.
    for (int k = 0; k < 4; ++k) {
      model.images.back().pose[k] *= 1.5;
    }
    EXPECT_THAT(FindPole(model, 0), HasSubstr("point 4 in image 6"));
    // Not in the problem.
    model.points[3].track_end = model.points[3].track_begin + 6;
    EXPECT_THAT(FindPole(model, 6), HasSubstr("point 4 in image 6"));
    EXPECT_EQ(FindPole(model, 7), "");
    model.point_index[static_cast<size_t>(model.images.back().points2d_begin) +
                      3] = -1;
    EXPECT_EQ(FindPole(model, 0), "");
  }
}

TEST(Panorama, EvaluationFailsAtAPole) {
  Model model = MakeTruth();
  MovePointToPole(4.0, &model);
  ModelArrays arrays(ProblemOptions(), ProblemSelection(), &model);
  Options ext_options;
  ext_options.device = DEVICE_HOST;
  Summary summary;
  Solve(TightOptions(), ext_options, arrays.problem(), &summary);
  EXPECT_EQ(summary.termination_type, ceres::FAILURE) << summary.message;
  EXPECT_FALSE(summary.IsSolutionUsable());
}

// Points that are measured in front of, behind and beside the cameras are found
// where the rays meet.
TEST(Panorama, MeasuredPointsAllAround) {
  const Model truth = MakeTruth();
  std::string points;
  std::string measurements;
  for (size_t p = 0; p < truth.points.size(); p += 7) {
    char text[200];
    std::snprintf(text, sizeof(text), "p%zu 0 0 0 0.1 check\n", p);
    points += text;
    for (size_t i = 0; i < 3; ++i) {
      double pixel[2];
      Project(truth, truth.images[i], truth.points[p].xyz, pixel);
      std::snprintf(text,
                    sizeof(text),
                    "p%zu %s %.17g %.17g\n",
                    p,
                    truth.images[i].name.c_str(),
                    pixel[0],
                    pixel[1]);
      measurements += text;
    }
  }
  SurveyFiles files;
  files.points = bal::TempPath("points.txt");
  files.measurements = bal::TempPath("measured.txt");
  std::ofstream(files.points) << points;
  std::ofstream(files.measurements) << measurements;
  Survey survey;
  std::string error;
  ASSERT_TRUE(survey.Read(files, ProblemOptions(), truth, &error)) << error;
  survey.SetStart(nullptr, truth);
  ASSERT_GT(survey.points().size(), 10u);
  for (size_t i = 0; i < survey.points().size(); ++i) {
    for (int k = 0; k < 3; ++k) {
      EXPECT_NEAR(survey.points()[i].xyz[k], truth.points[7 * i].xyz[k], 3e-8);
    }
  }
}

#endif  // CERES_EXT_EMULATED

}  // namespace
}  // namespace ceres_ext::colmap
