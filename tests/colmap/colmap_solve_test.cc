// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The problems of COLMAP's bundle_adjuster by the full path against stock
// Ceres's exact step: every camera model, its own or shared by images, poses in
// one block or two. On the host and, where there is one, on a device, real or
// emulated.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "ceres/problem.h"
#include "ceres/solver.h"
#include "ceres_ext/solve.h"
#include "examples/colmap/colmap_problem.h"
#include "gtest/gtest.h"
#include "tests/colmap/colmap_test_util.h"
#include "tests/front/has_device.h"

namespace ceres_ext::colmap {
namespace {

// A start in the basin of the minimum.
const bal::SyntheticProblem& Scene() {
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

ceres::Solver::Options TightOptions() {
  ceres::Solver::Options options;
  options.logging_type = ceres::SILENT;
  options.max_num_iterations = 500;
  options.function_tolerance = 1e-10;
  options.parameter_tolerance = 1e-14;
  options.gradient_tolerance = 1e-12;
  return options;
}

// Camera model, number of shared cameras, split poses, where.
using Case = std::tuple<const char*, int, bool, DeviceType>;

class ColmapSolveTest : public ::testing::TestWithParam<Case> {};

TEST_P(ColmapSolveTest, EndsWhereStockEnds) {
  const auto& [camera_model, shared, split_pose, device] = GetParam();
  if (device == DEVICE_CUDA && !HasDevice()) {
    GTEST_SKIP() << "skipped: no CUDA device";
  }
  const Model start = MakeModel(Scene(), camera_model, shared, VALUES_AT_START);
  ProblemOptions problem_options;
  problem_options.split_pose = split_pose;

  Model stock = start;
  ceres::Problem stock_problem;
  BuildProblem(problem_options, &stock, &stock_problem);
  // A rational function for each image leaves a valley along which stock Ceres
  // takes more than a thousand steps; there the first steps are compared.
  const bool is_valley =
      camera_model == std::string("FULL_OPENCV") && shared == 0;
  const auto termination_type =
      is_valley ? ceres::NO_CONVERGENCE : ceres::CONVERGENCE;
  ceres::Solver::Options options = TightOptions();
  if (is_valley) {
    options.max_num_iterations = 5;
  }
  options.linear_solver_type = ceres::SPARSE_SCHUR;
  ceres::Solver::Summary expected;
  ceres::Solve(options, &stock_problem, &expected);
  ASSERT_EQ(expected.termination_type, termination_type) << expected.message;
  // Far below what the start costs, and half the sum of 2 x 1200 squared errors
  // of half a pixel.
  EXPECT_LT(expected.final_cost, 300.0);
  EXPECT_GT(expected.initial_cost, 5 * expected.final_cost);

  Model ours = start;
  ceres::Problem problem;
  BuildProblem(problem_options, &ours, &problem);
  options.linear_solver_type = ceres::ITERATIVE_SCHUR;
  options.preconditioner_type = ceres::SCHUR_JACOBI;
  options.eta = is_valley ? 1e-12 : 1e-3;
  Options ext_options;
  ext_options.device = device;
  ext_options.fallback = FALLBACK_REFUSE;
  Summary summary;
  Solve(options, ext_options, &problem, &summary);
  ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
  EXPECT_EQ(summary.device.rfind("host", 0) == 0, device == DEVICE_HOST)
      << summary.device;
  EXPECT_EQ(summary.termination_type, termination_type) << summary.message;
  EXPECT_NEAR(summary.initial_cost,
              expected.initial_cost,
              1e-12 * expected.initial_cost);
  EXPECT_NEAR(
      summary.final_cost, expected.final_cost, 1e-6 * expected.final_cost);
}

std::string CaseName(const ::testing::TestParamInfo<Case>& info) {
  const auto& [camera_model, shared, split_pose, device] = info.param;
  return std::string(camera_model) + (shared > 0 ? "_Shared" : "_Own") +
         (split_pose ? "_Split" : "_Whole");
}

INSTANTIATE_TEST_SUITE_P(Host,
                         ColmapSolveTest,
                         ::testing::Combine(::testing::ValuesIn(kCameraModels),
                                            ::testing::Values(0, 2),
                                            ::testing::Bool(),
                                            ::testing::Values(DEVICE_HOST)),
                         CaseName);

INSTANTIATE_TEST_SUITE_P(Device,
                         ColmapSolveTest,
                         ::testing::Combine(::testing::ValuesIn(kCameraModels),
                                            ::testing::Values(0, 2),
                                            ::testing::Bool(),
                                            ::testing::Values(DEVICE_CUDA)),
                         CaseName);

TEST(ColmapProblem, TakesWhatColmapTakes) {
  Model model = MakeModel(Scene(), "OPENCV", 2, VALUES_AT_START);
  // Ids need not follow the order, and the image with the smallest one has no
  // observations.
  for (int i = 0; i < 8; ++i) {
    model.images[i].id = 10 * ((i + 4) % 8 + 1);
  }
  Image& unseen = model.images[4];
  for (int64_t k = unseen.points2d_begin; k < unseen.points2d_end; ++k) {
    model.point_index[k] = -1;
  }
  model.images[5].pose[0] *= 3.0;
  model.images[5].pose[1] *= 3.0;
  model.images[5].pose[2] *= 3.0;
  model.images[5].pose[3] *= 3.0;
  for (const bool split_pose : {false, true}) {
    for (int refine = 0; refine < 8; ++refine) {
      ProblemOptions options;
      options.split_pose = split_pose;
      options.refine_focal_length = refine & 1;
      options.refine_principal_point = refine & 2;
      options.refine_extra_params = refine & 4;
      ceres::Problem problem;
      BuildProblem(options, &model, &problem);
      EXPECT_FALSE(problem.HasParameterBlock(unseen.pose));
      const int tangent =
          (refine & 1 ? 2 : 0) + (refine & 2 ? 2 : 0) + (refine & 4 ? 4 : 0);
      for (Camera& camera : model.cameras) {
        EXPECT_EQ(problem.ParameterBlockSize(camera.params), 8);
        EXPECT_EQ(problem.IsParameterBlockConstant(camera.params), refine == 0);
        if (refine != 0) {
          EXPECT_EQ(problem.ParameterBlockTangentSize(camera.params), tangent);
        }
      }
      for (int i = 0; i < 8; ++i) {
        double* pose = model.images[i].pose;
        if (i == 4) {
          continue;
        }
        EXPECT_NEAR(pose[0] * pose[0] + pose[1] * pose[1] + pose[2] * pose[2] +
                        pose[3] * pose[3],
                    1.0,
                    1e-15);
        // The smallest ids that are left.
        EXPECT_EQ(problem.IsParameterBlockConstant(pose), i == 5) << i;
        if (split_pose) {
          EXPECT_EQ(problem.ParameterBlockTangentSize(pose), 3);
          EXPECT_EQ(problem.IsParameterBlockConstant(pose + 4), i == 5);
          EXPECT_EQ(problem.ParameterBlockTangentSize(pose + 4),
                    i == 6 ? 2 : 3);
        } else {
          EXPECT_EQ(problem.ParameterBlockTangentSize(pose), i == 6 ? 5 : 6);
        }
      }
    }
  }
  // All images at one place: the scale is left free.
  for (Image& image : model.images) {
    std::fill_n(image.pose + 4, 3, 0.0);
  }
  ceres::Problem problem;
  BuildProblem(ProblemOptions(), &model, &problem);
  EXPECT_EQ(problem.ParameterBlockTangentSize(model.images[6].pose), 6);
}

TEST(ColmapProblem, TheLossIsCauchys) {
  Model model = MakeModel(Scene(), "PINHOLE", 0, VALUES_AT_START);
  ceres::Problem plain;
  BuildProblem(ProblemOptions(), &model, &plain);
  std::vector<double> residuals;
  ASSERT_TRUE(plain.Evaluate(ceres::Problem::EvaluateOptions(),
                             nullptr,
                             &residuals,
                             nullptr,
                             nullptr));
  double expected = 0.0;
  for (size_t i = 0; i < residuals.size(); i += 2) {
    const double s =
        residuals[i] * residuals[i] + residuals[i + 1] * residuals[i + 1];
    expected += 0.5 * 4.0 * std::log(1.0 + s / 4.0);
  }
  ProblemOptions options;
  options.loss = LOSS_CAUCHY;
  options.loss_scale = 2.0;
  ceres::Problem problem;
  BuildProblem(options, &model, &problem);
  double cost;
  ASSERT_TRUE(problem.Evaluate(
      ceres::Problem::EvaluateOptions(), &cost, nullptr, nullptr, nullptr));
  EXPECT_NEAR(cost, expected, 1e-12 * expected);
}

TEST(ColmapProblem, PointsBehindACameraHaveNoError) {
  Model model = MakeModel(Scene(), "RADIAL", 0, VALUES_OF_TRUTH);
  UpdateErrors(&model);
  double mean = 0.0;
  for (const Point3D& point : model.points) {
    mean += point.error / 200;
  }
  // sqrt(pi / 2) of the noise of half a pixel, by 1200 observations.
  EXPECT_NEAR(mean, 0.627, 0.05);
  // The first camera turned round.
  double* q = model.images[0].pose;
  const double turned[4] = {q[2], q[3], -q[0], -q[1]};
  std::copy_n(turned, 4, q);
  for (int i : {0, 2}) {
    q[4 + i] = -q[4 + i];
  }
  ceres::Problem problem;
  BuildProblem(ProblemOptions(), &model, &problem);
  std::vector<double> residuals;
  ASSERT_TRUE(problem.Evaluate(ceres::Problem::EvaluateOptions(),
                               nullptr,
                               &residuals,
                               nullptr,
                               nullptr));
  const int64_t num_behind = model.images[0].points2d_end;
  ASSERT_GT(num_behind, 0);
  for (int64_t i = 0; i < 2 * num_behind; ++i) {
    EXPECT_EQ(residuals[i], 0.0);
  }
  for (Image& image : model.images) {
    if (&image != &model.images[0]) {
      std::fill(model.point_index.begin() + image.points2d_begin,
                model.point_index.begin() + image.points2d_end,
                -1);
    }
  }
  UpdateErrors(&model);
  for (const Point3D& point : model.points) {
    EXPECT_EQ(point.error, -1.0);
  }
}

}  // namespace
}  // namespace ceres_ext::colmap
