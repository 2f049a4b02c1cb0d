// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The problems of COLMAP's bundle_adjuster by the full path against stock
// Ceres's exact step: every camera model, its own or shared by images, poses in
// one block or two. On the host and, where there is one, on a device, real or
// emulated.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "Eigen/Core"
#include "ceres/problem.h"
#include "ceres/solver.h"
#include "ceres_ext/camera_models.h"
#include "ceres_ext/photogrammetry.h"
#include "ceres_ext/solve.h"
#include "examples/colmap/colmap_origin.h"
#include "examples/colmap/colmap_problem.h"
#include "examples/colmap/model_arrays.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/colmap/colmap_scene.h"
#include "tests/colmap/colmap_test_util.h"
#include "tests/common/has_device.h"

namespace ceres_ext::colmap {
namespace {

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
  // A rational function, or the coefficients of a thin prism, for
  // each image leave a valley along which stock Ceres takes hundreds of steps;
  // there the first steps are compared.
  const bool is_valley =
      shared == 0 &&
      (camera_model == std::string("FULL_OPENCV") ||
       camera_model == std::string("THIN_PRISM_FISHEYE") ||
       camera_model == std::string("RAD_TAN_THIN_PRISM_FISHEYE"));
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

int NumPoints(const ceres::Problem& problem, const Model& model) {
  return static_cast<int>(std::count_if(
      model.points.begin(), model.points.end(), [&](const Point3D& point) {
        return problem.HasParameterBlock(point.xyz);
      }));
}

int NumConstantPoints(const ceres::Problem& problem, const Model& model) {
  return static_cast<int>(std::count_if(
      model.points.begin(), model.points.end(), [&](const Point3D& point) {
        return problem.HasParameterBlock(point.xyz) &&
               problem.IsParameterBlockConstant(point.xyz);
      }));
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
  SetTracks(&model);
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
  // All images at one place: three points hold the gauge.
  for (Image& image : model.images) {
    std::fill_n(image.pose + 4, 3, 0.0);
  }
  ceres::Problem problem;
  BuildProblem(ProblemOptions(), &model, &problem);
  for (const int i : {5, 6}) {
    EXPECT_FALSE(problem.IsParameterBlockConstant(model.images[i].pose));
    EXPECT_EQ(problem.ParameterBlockTangentSize(model.images[i].pose), 6);
  }
  EXPECT_EQ(NumConstantPoints(problem, model), 3);
}

// A point of a plane with the origin and two others is not one of the three.
TEST(ColmapProblem, ThreePointsSpanTheSpace) {
  Model model = MakeModel(Scene(), "PINHOLE", 0, VALUES_AT_START);
  const double first[3][3] = {{1, 2, 3}, {-2, -4, -6}, {0, 1, 0}};
  const double last[3] = {2, 5, 6};
  for (int i = 0; i < 3; ++i) {
    std::copy_n(first[i], 3, model.points[i].xyz);
  }
  std::copy_n(last, 3, model.points[3].xyz);
  ProblemOptions options;
  options.gauge = GAUGE_THREE_POINTS;
  ceres::Problem problem;
  ProblemSelection selection;
  // A constant point comes first, wherever it is.
  selection.constant_points.assign(200, false);
  selection.constant_points[199] = true;
  BuildProblem(options, &model, &problem, selection);
  EXPECT_EQ(NumConstantPoints(problem, model), 3);
  for (const int i : {0, 2, 199}) {
    EXPECT_TRUE(problem.IsParameterBlockConstant(model.points[i].xyz)) << i;
  }
}

// Camera model, whether the pose of the sensor varies, where.
class ColmapRigTest : public ::testing::TestWithParam<
                          std::tuple<const char*, bool, DeviceType>> {};

TEST_P(ColmapRigTest, EndsWhereStockEnds) {
  const auto& [camera_model, refine_sensor, device] = GetParam();
  if (device == DEVICE_CUDA && !HasDevice()) {
    GTEST_SKIP() << "skipped: no CUDA device";
  }
  const Model start = MakeRigs(camera_model);
  ProblemOptions problem_options;
  problem_options.refine_sensor_from_rig = refine_sensor;
  ceres::Solver::Options options = TightOptions();
  options.linear_solver_type = ceres::SPARSE_SCHUR;
  Model stock = start;
  ceres::Problem stock_problem;
  BuildProblem(problem_options, &stock, &stock_problem);
  double* const sensor = stock.rigs[0].sensors[0].pose;
  EXPECT_EQ(stock_problem.HasParameterBlock(sensor), refine_sensor);
  ceres::Solver::Summary expected;
  ceres::Solve(options, &stock_problem, &expected);
  ASSERT_EQ(expected.termination_type, ceres::CONVERGENCE) << expected.message;
  if (refine_sensor) {
    // Half the sum of 4800 squared errors of half a pixel, less the freedom
    // of the parameters.
    EXPECT_LT(expected.final_cost, 600.0);
  }

  Model ours = start;
  ceres::Problem problem;
  BuildProblem(problem_options, &ours, &problem);
  options.linear_solver_type = ceres::ITERATIVE_SCHUR;
  options.preconditioner_type = ceres::SCHUR_JACOBI;
  options.eta = 1e-3;
  Options ext_options;
  ext_options.device = device;
  ext_options.fallback = FALLBACK_REFUSE;
  Summary summary;
  Solve(options, ext_options, &problem, &summary);
  ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
  EXPECT_EQ(summary.termination_type, ceres::CONVERGENCE) << summary.message;
  EXPECT_NEAR(
      summary.final_cost, expected.final_cost, 1e-6 * expected.final_cost);
  // The mean errors follow the poses of the other sensor's images.
  SetPosesOfSensors(&ours);
  UpdateErrors(&ours);
  for (const Point3D& point : ours.points) {
    EXPECT_LT(point.error, refine_sensor ? 3.0 : 300.0);
  }
}

// OPENCV has device forms, FOV has none.
INSTANTIATE_TEST_SUITE_P(Host,
                         ColmapRigTest,
                         ::testing::Combine(::testing::Values("OPENCV", "FOV"),
                                            ::testing::Bool(),
                                            ::testing::Values(DEVICE_HOST)));

INSTANTIATE_TEST_SUITE_P(Device,
                         ColmapRigTest,
                         ::testing::Combine(::testing::Values("OPENCV", "FOV"),
                                            ::testing::Bool(),
                                            ::testing::Values(DEVICE_CUDA)));

TEST(ColmapRigs, TheGaugeIsThatOfReferenceSensors) {
  Model model = MakeRigs("PINHOLE");
  // The first image in the order of ids is of the other sensor.
  model.images[8].id = 0;
  double* const sensor = model.rigs[0].sensors[0].pose;
  const auto constants = [&](const ProblemOptions& options,
                             const ProblemSelection& selection) {
    ceres::Problem problem;
    BuildProblem(options, &model, &problem, selection);
    std::vector<int> sizes;
    for (int i = 0; i < 8; ++i) {
      double* const pose = model.images[i].pose;
      sizes.push_back(problem.IsParameterBlockConstant(pose)
                          ? 0
                          : problem.ParameterBlockTangentSize(pose));
    }
    if (problem.HasParameterBlock(sensor)) {
      sizes.push_back(problem.IsParameterBlockConstant(sensor) ? 0 : 6);
    }
    return sizes;
  };
  using ::testing::ElementsAre;
  ProblemOptions options;
  ProblemSelection selection;
  EXPECT_THAT(constants(options, selection),
              ElementsAre(0, 5, 6, 6, 6, 6, 6, 6, 6));
  options.constant_rig_from_world_rotation = true;
  EXPECT_THAT(constants(options, selection),
              ElementsAre(0, 2, 3, 3, 3, 3, 3, 3, 6));
  options.constant_rig_from_world_rotation = false;
  options.refine_sensor_from_rig = false;
  EXPECT_THAT(constants(options, selection),
              ElementsAre(0, 5, 6, 6, 6, 6, 6, 6));
  options.refine_sensor_from_rig = true;
  selection.constant_sensors = {false, true};
  EXPECT_THAT(constants(options, selection),
              ElementsAre(0, 5, 6, 6, 6, 6, 6, 6));
  selection.constant_sensors.clear();
  // A frame that is constant is the first.
  selection.constant_poses.assign(16, false);
  selection.constant_poses[3] = selection.constant_poses[11] = true;
  EXPECT_THAT(constants(options, selection),
              ElementsAre(5, 6, 6, 0, 6, 6, 6, 6, 6));
  selection.constant_poses[5] = selection.constant_poses[13] = true;
  EXPECT_THAT(constants(options, selection),
              ElementsAre(6, 6, 6, 0, 6, 0, 6, 6, 6));
  // Without images of the reference sensor that of the other is constant.
  selection.constant_poses.clear();
  selection.images.assign(16, false);
  std::fill(selection.images.begin() + 8, selection.images.end(), true);
  EXPECT_THAT(constants(options, selection),
              ElementsAre(0, 5, 6, 6, 6, 6, 6, 6, 0));
  options.refine_rig_from_world = false;
  EXPECT_THAT(constants(options, selection),
              ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0));
}

TEST(ColmapProblem, SelectionsAreThoseOfColmap) {
  Model model = MakeModel(Scene(), "RADIAL", 0, VALUES_AT_START);
  ProblemOptions options;
  ProblemSelection selection;
  selection.images.assign(8, true);
  selection.images[7] = false;
  selection.constant_cameras.assign(8, false);
  selection.constant_cameras[2] = true;
  const Image& left_out = model.images[7];
  // Its points are constant, except the one that is added.
  const int32_t added = model.point_index[left_out.points2d_begin];
  std::vector<bool> is_seen(200, false);
  for (int64_t k = left_out.points2d_begin; k < left_out.points2d_end; ++k) {
    is_seen[model.point_index[k]] = true;
  }
  for (const bool with_added : {false, true}) {
    selection.added_points.assign(200, false);
    selection.added_points[added] = with_added;
    ceres::Problem problem;
    BuildProblem(options, &model, &problem, selection);
    EXPECT_EQ(problem.NumResidualBlocks(),
              left_out.points2d_begin + (with_added ? 1 : 0));
    EXPECT_EQ(problem.HasParameterBlock(left_out.pose), with_added);
    if (with_added) {
      EXPECT_TRUE(problem.IsParameterBlockConstant(left_out.pose));
      EXPECT_TRUE(problem.IsParameterBlockConstant(
          model.cameras[left_out.camera].params));
    }
    EXPECT_TRUE(problem.IsParameterBlockConstant(model.cameras[2].params));
    EXPECT_FALSE(problem.IsParameterBlockConstant(model.cameras[3].params));
    for (int32_t i = 0; i < 200; ++i) {
      EXPECT_EQ(problem.IsParameterBlockConstant(model.points[i].xyz),
                is_seen[i] && !(with_added && i == added));
    }
  }
  // Short tracks are left out, and no point varies.
  ProblemOptions short_tracks;
  short_tracks.min_track_length = 7;
  short_tracks.refine_points3D = false;
  int64_t expected = 0;
  for (const Point3D& point : model.points) {
    const int64_t length = point.track_end - point.track_begin;
    expected += length >= 7 ? length : 0;
  }
  ASSERT_GT(expected, 0);
  ceres::Problem problem;
  BuildProblem(short_tracks, &model, &problem);
  EXPECT_EQ(problem.NumResidualBlocks(), expected);
  EXPECT_EQ(NumConstantPoints(problem, model), NumPoints(problem, model));
}

// All values that a solve may change.
std::vector<double> Values(const Model& model) {
  std::vector<double> values;
  const auto add = [&values](const double* from, int n) {
    values.insert(values.end(), from, from + n);
  };
  for (const Point3D& point : model.points) {
    add(point.xyz, 3);
  }
  for (const Image& image : model.images) {
    add(image.pose, 7);
  }
  for (const Frame& frame : model.frames) {
    add(frame.pose, 7);
  }
  for (const Rig& rig : model.rigs) {
    for (const RigSensor& sensor : rig.sensors) {
      add(sensor.pose, 7);
    }
  }
  for (const Camera& camera : model.cameras) {
    add(camera.params, kMaxCameraParams);
  }
  return values;
}

void ExpectArraysHaveTheBitsOfTheProblem(const Model& start,
                                         const ProblemOptions& problem_options,
                                         const ProblemSelection& selection) {
  for (const auto& [solver, choice] :
       {std::pair(ceres::ITERATIVE_SCHUR, LINEAR_SOLVER_AS_GIVEN),
        std::pair(ceres::DENSE_SCHUR, LINEAR_SOLVER_AS_GIVEN),
        std::pair(ceres::ITERATIVE_SCHUR, LINEAR_SOLVER_AUTO)}) {
    for (const DeviceType device : {DEVICE_HOST, DEVICE_CUDA}) {
      if (device == DEVICE_CUDA && !HasDevice()) {
        continue;
      }
      SCOPED_TRACE(ceres::LinearSolverTypeToString(solver));
      SCOPED_TRACE(choice == LINEAR_SOLVER_AUTO ? "auto" : "as given");
      SCOPED_TRACE(DeviceTypeToString(device));
      ceres::Solver::Options options;
      options.logging_type = ceres::SILENT;
      options.linear_solver_type = solver;
      options.preconditioner_type = ceres::SCHUR_JACOBI;
      options.max_num_iterations = 4;
      Options ext_options;
      ext_options.device = device;
      ext_options.linear_solver = choice;

      Model by_problem = start;
      ceres::Problem problem;
      BuildProblem(problem_options, &by_problem, &problem, selection);
      ceres::Solver::Options with_ordering = options;
      // Without points that vary, arrays eliminate what Ceres chooses.
      if (NumConstantPoints(problem, by_problem) <
          NumPoints(problem, by_problem)) {
        OrderPointsFirst(problem, by_problem, /*control=*/{}, &with_ordering);
      }
      Summary expected;
      Solve(with_ordering, ext_options, &problem, &expected);

      Model by_arrays = start;
      ModelArrays arrays(problem_options, selection, &by_arrays);
      Summary summary;
      Solve(options, ext_options, arrays.problem(), &summary);
      EXPECT_TRUE(summary.IsSolutionUsable()) << summary.message;
      EXPECT_EQ(summary.path, PATH_FULL) << summary.path_reason;
      EXPECT_EQ(summary.path_reason, expected.path_reason);
      EXPECT_EQ(summary.method, expected.method);
      EXPECT_EQ(summary.initial_cost, expected.initial_cost);
      EXPECT_EQ(summary.final_cost, expected.final_cost);
      EXPECT_LT(summary.final_cost, summary.initial_cost);
      EXPECT_EQ(summary.num_residuals_reduced, expected.num_residuals_reduced);
      EXPECT_EQ(summary.num_effective_parameters_reduced,
                expected.num_effective_parameters_reduced);
      EXPECT_EQ(summary.linear_solver_ordering_used,
                expected.linear_solver_ordering_used);
      std::unordered_set<const double*> varying;
      std::vector<double*> blocks;
      problem.GetParameterBlocks(&blocks);
      for (const double* const block : blocks) {
        if (!problem.IsParameterBlockConstant(block)) {
          varying.insert(block);
        }
      }
      EXPECT_EQ(arrays.FindVarying().size(), varying.size());
      arrays.Store();
      EXPECT_EQ(Values(by_arrays), Values(by_problem));
    }
  }
}

TEST(ModelArrays, HaveTheBitsOfTheProblem) {
  ProblemOptions options;
  ProblemSelection selection;
  // Cameras of two models and two sizes.
  Model model = MakeModel(Scene(), "OPENCV", 3, VALUES_AT_START);
  Camera& camera = model.cameras[1];
  const double simple[4] = {
      camera.params[0], camera.params[2], camera.params[3], camera.params[4]};
  camera.model = FindCameraModel("SIMPLE_RADIAL");
  std::fill_n(camera.params, kMaxCameraParams, 0.0);
  std::copy_n(simple, 4, camera.params);
  ExpectArraysHaveTheBitsOfTheProblem(model, options, selection);
  options.loss = LOSS_CAUCHY;
  options.refine_principal_point = true;
  options.min_track_length = 5;
  ExpectArraysHaveTheBitsOfTheProblem(model, options, selection);
  options.gauge = GAUGE_THREE_POINTS;
  options.refine_extra_params = false;
  ExpectArraysHaveTheBitsOfTheProblem(model, options, selection);
  options = ProblemOptions();
  options.constant_rig_from_world_rotation = true;
  ExpectArraysHaveTheBitsOfTheProblem(model, options, selection);
  options = ProblemOptions();
  options.refine_points3D = false;
  ExpectArraysHaveTheBitsOfTheProblem(model, options, selection);
  options = ProblemOptions();
  options.bound_intrinsics = true;
  options.intrinsics_limits.max_extra_param = 0.02;
  ExpectArraysHaveTheBitsOfTheProblem(model, options, selection);
  options.refine_principal_point = true;
  options.intrinsics_prior_weights = {0.1, 0.2, 10.0};
  ExpectArraysHaveTheBitsOfTheProblem(model, options, selection);
  // A part of the images, points that others see, and constants.
  options = ProblemOptions();
  selection.images.assign(8, true);
  selection.images[2] = false;
  selection.added_points.assign(200, false);
  selection.constant_points.assign(200, false);
  for (size_t i = 0; i < 200; i += 3) {
    selection.added_points[i] = true;
    selection.constant_points[i] = i % 2 == 0;
  }
  selection.constant_poses.assign(8, false);
  selection.constant_poses[5] = true;
  selection.constant_cameras.assign(3, false);
  selection.constant_cameras[1] = true;
  ExpectArraysHaveTheBitsOfTheProblem(model, options, selection);
}

TEST(ModelArrays, OfRigsHaveTheBitsOfTheProblem) {
  const Model model = MakeRigs("RADIAL");
  ProblemOptions options;
  ProblemSelection selection;
  ExpectArraysHaveTheBitsOfTheProblem(model, options, selection);
  selection.constant_sensors = {false, true};
  ExpectArraysHaveTheBitsOfTheProblem(model, options, selection);
  selection.constant_sensors.clear();
  options.refine_sensor_from_rig = false;
  ExpectArraysHaveTheBitsOfTheProblem(model, options, selection);
  // Without images of the reference sensor.
  options.refine_sensor_from_rig = true;
  selection.images.assign(16, false);
  std::fill(selection.images.begin() + 8, selection.images.end(), true);
  ExpectArraysHaveTheBitsOfTheProblem(model, options, selection);
}

// Parameters that vary have COLMAP's limits, and priors hold them.
TEST(ColmapProblem, BoundsAndPriorsOfCameras) {
  const Model start = MakeModel(Scene(), "OPENCV", 3, VALUES_AT_START);
  ProblemOptions options;
  options.bound_intrinsics = true;
  options.intrinsics_limits.max_extra_param = 1e-3;
  ceres::Solver::Options solver_options;
  solver_options.logging_type = ceres::SILENT;
  for (const double weight : {0.0, 1e8}) {
    options.intrinsics_prior_weights = {weight, weight, weight};
    Model model = start;
    ceres::Problem problem;
    BuildProblem(options, &model, &problem);
    double* const params = model.cameras[0].params;
    const double side = static_cast<double>(
        std::max(model.cameras[0].width, model.cameras[0].height));
    constexpr double kMost = std::numeric_limits<double>::max();
    for (int i = 0; i < 8; ++i) {
      // The principal point is constant.
      const double expected = i < 2 ? 10.0 * side : i < 4 ? kMost : 1e-3;
      EXPECT_EQ(std::min(problem.GetParameterUpperBound(params, i), kMost),
                expected);
    }
    Summary summary;
    Options ext_options;
    ext_options.device = DEVICE_HOST;
    Solve(solver_options, ext_options, &problem, &summary);
    ASSERT_TRUE(summary.IsSolutionUsable()) << summary.message;
    EXPECT_TRUE(summary.is_constrained);
    for (size_t c = 0; c < model.cameras.size(); ++c) {
      for (int i = 0; i < 8; ++i) {
        const double x = model.cameras[c].params[i];
        const double before = start.cameras[c].params[i];
        if (i >= 4) {
          EXPECT_LE(std::abs(x), 1e-3);
        }
        // The prior is at values within the bounds or beyond them.
        if (weight > 0.0 && (i < 4 || std::abs(before) <= 1e-3)) {
          EXPECT_NEAR(x, before, 1e-3 * std::abs(before) + 1e-9);
        }
      }
    }
  }
}

// A prior of large weight moves a parameter to the expected value.
TEST(ColmapProblem, PriorsAtExpectedIntrinsics) {
  Model model = MakeModel(Scene(), "SIMPLE_RADIAL", 1, VALUES_AT_START);
  const Camera& camera = model.cameras[0];
  ProblemOptions options;
  options.intrinsics_prior_weights.focal_length = 1e8;
  const double expected = 1.01 * camera.params[0];
  options.expected_intrinsics[camera.id] = {
      expected, camera.params[1], camera.params[2], 0.0};
  ModelArrays arrays(options, ProblemSelection(), &model);
  Summary summary;
  Options ext_options;
  ext_options.device = DEVICE_HOST;
  Solve(TightOptions(), ext_options, arrays.problem(), &summary);
  ASSERT_TRUE(summary.IsSolutionUsable()) << summary.message;
  arrays.Store();
  EXPECT_NEAR(camera.params[0], expected, 1e-6 * expected);
}

// Without observations there is nothing to solve.
TEST(ModelArrays, OfNothing) {
  Model model;
  ModelArrays arrays(ProblemOptions(), ProblemSelection(), &model);
  Summary summary;
  Solve(ceres::Solver::Options(), Options(), arrays.problem(), &summary);
  EXPECT_EQ(summary.termination_type, ceres::CONVERGENCE) << summary.message;
  EXPECT_TRUE(arrays.FindVarying().empty());
}

TEST(ColmapProblem, NamesRunawayFocalLengths) {
  Model model = MakeModel(Scene(), "OPENCV", 3, VALUES_AT_START);
  std::vector<Camera> start = model.cameras;
  for (Camera& camera : start) {
    camera.params[0] = camera.params[1] = 1000.0;
  }
  model.cameras = start;
  EXPECT_TRUE(FindRunawayFocalLengths(start, model).empty());
  model.cameras[0].params[0] = 9999.0;
  model.cameras[0].params[1] = 101.0;
  model.cameras[1].params[0] = 10001.0;
  model.cameras[2].params[0] = -1000.0;
  model.cameras[2].params[1] = 99.0;
  const auto found = FindRunawayFocalLengths(start, model);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].camera_id, 2u);
  EXPECT_EQ(found[0].index, 0);
  EXPECT_EQ(found[0].end, 10001.0);
  EXPECT_EQ(found[2].camera_id, 3u);
  EXPECT_EQ(found[2].index, 1);
  EXPECT_EQ(RunawayText({found[2]}),
            "camera 3: the observations do not determine its focal length fy, "
            "which went from 1000 to 99 pixels\n");
}

// A model that is moved and moved back, with nothing changed between.
TEST(ColmapRigs, MoveWithTheOrigin) {
  Model model = MakeRigs("PINHOLE");
  // A frame without its image of the reference sensor has its own pose.
  std::copy_n(model.images[7].pose, 7, model.frames[7].pose);
  model.frames[7].images = {15};
  for (int64_t k = model.images[7].points2d_begin;
       k < model.images[7].points2d_end;
       ++k) {
    model.point_index[k] = -1;
  }
  model.images[7].frame = -1;
  SetTracks(&model);
  const Model before = model;
  const double origin[3] = {3e3, -4e3, 1e3};
  const MovedModel moved(origin, &model);
  const std::vector<double> centers = CameraCenters(before);
  const std::vector<double> moved_centers = CameraCenters(model);
  for (size_t i = 0; i < centers.size(); ++i) {
    EXPECT_NEAR(moved_centers[i], centers[i] - origin[i % 3], 1e-9);
  }
  // Poses of the other sensor follow from those of frames, moved or not.
  Model derived = model;
  SetPosesOfSensors(&derived);
  ceres::Problem problem;
  BuildProblem(ProblemOptions(), &model, &problem);
  EXPECT_TRUE(problem.HasParameterBlock(model.frames[7].pose));
  moved.MoveBack(problem, &model);
  for (size_t i = 0; i < model.images.size(); ++i) {
    for (int k = 0; k < 3; ++k) {
      EXPECT_NEAR(
          CameraCenters(derived)[3 * i + k], moved_centers[3 * i + k], 1e-9);
    }
    for (int k = 0; k < 7; ++k) {
      EXPECT_NEAR(model.images[i].pose[k], before.images[i].pose[k], 1e-9);
    }
  }
  // The first frame is constant.
  EXPECT_TRUE(std::equal(model.images[0].pose + 4,
                         model.images[0].pose + 7,
                         before.images[0].pose + 4));
  for (int k = 0; k < 7; ++k) {
    EXPECT_NEAR(model.frames[7].pose[k], before.frames[7].pose[k], 1e-9);
  }
}

TEST(ColmapProblem, TheLossIsThatOfTheOptions) {
  Model model = MakeModel(Scene(), "PINHOLE", 0, VALUES_AT_START);
  ceres::Problem plain;
  BuildProblem(ProblemOptions(), &model, &plain);
  std::vector<double> residuals;
  ASSERT_TRUE(plain.Evaluate(ceres::Problem::EvaluateOptions(),
                             nullptr,
                             &residuals,
                             nullptr,
                             nullptr));
  for (const LossType loss :
       {LOSS_TRIVIAL, LOSS_SOFT_L1, LOSS_CAUCHY, LOSS_HUBER}) {
    SCOPED_TRACE(loss);
    double expected = 0.0;
    for (size_t i = 0; i < residuals.size(); i += 2) {
      const double s =
          residuals[i] * residuals[i] + residuals[i + 1] * residuals[i + 1];
      expected +=
          0.5 * (loss == LOSS_TRIVIAL   ? s
                 : loss == LOSS_CAUCHY  ? 4.0 * std::log(1.0 + s / 4.0)
                 : loss == LOSS_SOFT_L1 ? 8.0 * (std::sqrt(1.0 + s / 4.0) - 1.0)
                 : s > 4.0              ? 4.0 * std::sqrt(s) - 4.0
                                        : s);
    }
    ProblemOptions options;
    options.loss = loss;
    options.loss_scale = 2.0;
    ceres::Problem problem;
    BuildProblem(options, &model, &problem);
    double cost;
    ASSERT_TRUE(problem.Evaluate(
        ceres::Problem::EvaluateOptions(), &cost, nullptr, nullptr, nullptr));
    EXPECT_NEAR(cost, expected, 1e-12 * expected);
  }
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
