// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Solves from many starts, and their ends, by each solver: stock Ceres with
// ITERATIVE_SCHUR, and this library with single and merged preconditioner
// blocks, exact steps, and linear_solver = auto. On the host, one thread.
//
//   many_starts_benchmark --problem=near_plane --starts=100
//   many_starts_benchmark --problem=full_opencv --starts=10
//
// near_plane: 26 images with a RADIAL camera each and 400 points. 5 % of the
// points start on the ray of one of their observations, 0.3 to 2 before the
// camera; the others are about 10 away. One observation in 300 is wrong by up
// to 2,000 pixels.
// full_opencv: 40 images around a scene with a FULL_OPENCV camera each. The
// coefficients of distortion start at 0, where those of numerator and
// denominator have opposite derivatives. The cost has a long flat valley, in
// which solves have not converged after 50 steps.
//
// Prints, for each solver: ends at more than 1.5 times the least cost of all
// solvers; ends called CONVERGENCE, and those of them that are said to be not
// a minimum (Summary::no_minimum); the geometric mean and the range of the
// final cost in % above stock Ceres's; steps, of them rejected, and iterations
// of PCG; with --remove the points removed, and the geometric mean of the cost
// after that, divided by the cost before.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "Eigen/Geometry"
#include "ceres/ceres.h"
#include "ceres_ext/camera_models.h"
#include "ceres_ext/device_cost_function.h"
#include "ceres_ext/photogrammetry.h"
#include "ceres_ext/solve.h"
#include "gflags/gflags.h"

DEFINE_string(problem, "near_plane", "near_plane or full_opencv.");
DEFINE_int32(starts, 100, "Number of starts, of seeds 1, 2, ...");
DEFINE_int32(iterations, 0, "Steps at most; 0: 100 and 50.");
DEFINE_bool(refine_principal_point, false, "Refined with full_opencv.");
DEFINE_bool(remove,
            false,
            "Removes the points that Summary::runaway_residuals names and "
            "solves again, until there are none.");
DEFINE_bool(costs, false, "Prints the final costs of each start.");

namespace ceres_ext {
namespace {

// A pose is a quaternion x, y, z, w and a translation.
struct Scene {
  std::vector<double> poses;   // 7 per image
  std::vector<double> params;  // of the camera of each image
  std::vector<double> points;  // 3 per point
  std::vector<int> image;      // of each observation
  std::vector<int> point;
  std::vector<double> pixels;

  int num_images() const { return static_cast<int>(poses.size()) / 7; }
  int num_points() const { return static_cast<int>(points.size()) / 3; }
};

struct Solver {
  const char* name;
  bool is_stock;
  ceres::LinearSolverType type;
  PreconditionerBlocksType blocks;
  LinearSolverChoice choice;
};
constexpr Solver kSolvers[] = {{"stock ITERATIVE_SCHUR",
                                true,
                                ceres::ITERATIVE_SCHUR,
                                PRECONDITIONER_BLOCKS_SINGLE,
                                LINEAR_SOLVER_AS_GIVEN},
                               {"single blocks",
                                false,
                                ceres::ITERATIVE_SCHUR,
                                PRECONDITIONER_BLOCKS_SINGLE,
                                LINEAR_SOLVER_AS_GIVEN},
                               {"merged blocks",
                                false,
                                ceres::ITERATIVE_SCHUR,
                                PRECONDITIONER_BLOCKS_MERGED,
                                LINEAR_SOLVER_AS_GIVEN},
                               {"exact steps",
                                false,
                                ceres::DENSE_SCHUR,
                                PRECONDITIONER_BLOCKS_MERGED,
                                LINEAR_SOLVER_AS_GIVEN},
                               {"auto",
                                false,
                                ceres::ITERATIVE_SCHUR,
                                PRECONDITIONER_BLOCKS_MERGED,
                                LINEAR_SOLVER_AUTO}};

struct Result {
  double cost = std::numeric_limits<double>::infinity();
  bool is_convergence = false;
  bool is_no_minimum = false;
  int num_steps = 0;
  int num_rejected = 0;
  int num_iterations = 0;
  // With --remove: the number of points that were removed, and the last cost.
  int num_removed = 0;
  double cost_without = std::numeric_limits<double>::infinity();
};

using Random = std::mt19937;
double Normal(Random* random) {
  return std::normal_distribution<double>()(*random);
}
double Uniform(Random* random) {
  return std::uniform_real_distribution<double>(0.0, 1.0)(*random);
}

// The pose of a camera at a place that looks at another, y down.
void AddPose(const Eigen::Vector3d& center,
             const Eigen::Vector3d& look_at,
             Scene* scene) {
  const Eigen::Vector3d z = (look_at - center).normalized();
  const Eigen::Vector3d x =
      Eigen::Vector3d(0.0, 1.0, 0.0).cross(z).normalized();
  Eigen::Matrix3d R;
  R << x.transpose(), z.cross(x).transpose(), z.transpose();
  const Eigen::Quaterniond q(R);
  const Eigen::Vector3d t = -R * center;
  for (const double value : {q.x(), q.y(), q.z(), q.w(), t[0], t[1], t[2]}) {
    scene->poses.push_back(value);
  }
}

// Observes the point by the images that sees(image) names, unless these are
// fewer than two. error(): of a coordinate, called twice.
template <typename Camera, typename Sees, typename MakeError>
void AddPoint(const Eigen::Vector3d& point,
              double most_slope,
              const Sees& sees,
              const MakeError& error,
              Scene* scene) {
  const size_t num_before = scene->image.size();
  for (int i = 0; i < scene->num_images(); ++i) {
    const double* const pose = &scene->poses[7 * i];
    double in_camera[3];
    TransformPoint<EigenQuaternion>(pose, pose + 4, point.data(), in_camera);
    double pixel[2];
    if (!sees(i) || in_camera[2] < 1.0 ||
        std::abs(in_camera[0]) > most_slope * in_camera[2] ||
        std::abs(in_camera[1]) > most_slope * in_camera[2] ||
        !Camera::ImgFromCam(
            &scene->params[Camera::kNumParams * i], in_camera, pixel)) {
      continue;
    }
    double wrong[2];
    error(wrong);
    scene->image.push_back(i);
    scene->point.push_back(scene->num_points());
    scene->pixels.push_back(pixel[0] + wrong[0]);
    scene->pixels.push_back(pixel[1] + wrong[1]);
  }
  if (scene->image.size() < num_before + 2) {
    scene->image.resize(num_before);
    scene->point.resize(num_before);
    scene->pixels.resize(2 * num_before);
    return;
  }
  scene->points.insert(scene->points.end(), point.data(), point.data() + 3);
}

void MoveStart(double of_points,
               double of_rotations,
               double of_translations,
               Random* random,
               Scene* scene) {
  for (double& value : scene->points) {
    value += of_points * Normal(random);
  }
  for (int i = 0; i < scene->num_images(); ++i) {
    double* const pose = &scene->poses[7 * i];
    for (int k = 0; k < 7; ++k) {
      pose[k] += (k < 4 ? of_rotations : of_translations) * Normal(random);
    }
    Eigen::Map<Eigen::Vector4d>(pose).normalize();
  }
}

Scene MakeNearPlane(int seed) {
  Random random(seed);
  Scene scene;
  for (int i = 0; i < 26; ++i) {
    const Eigen::Vector3d center(12.0 * (Uniform(&random) - 0.5),
                                 0.5 * Normal(&random),
                                 -10.0 + 3.0 * Normal(&random));
    const Eigen::Vector3d look_at(Normal(&random), 0.5 * Normal(&random), 0.0);
    AddPose(center, look_at, &scene);
    const double focal = 1000.0 * std::exp(0.3 * Normal(&random));
    for (const double value : {focal,
                               500.0,
                               500.0,
                               0.05 * Normal(&random),
                               0.01 * Normal(&random)}) {
      scene.params.push_back(value);
    }
  }
  for (int i = 0; i < 400; ++i) {
    const Eigen::Vector3d point(
        3.0 * Normal(&random), 1.5 * Normal(&random), Normal(&random));
    AddPoint<RadialCamera>(
        point,
        0.7,
        [&](int /*image*/) { return Uniform(&random) < 0.2; },
        [&](double* error) {
          const double size =
              Uniform(&random) < 0.003 ? 2000.0 * Uniform(&random) : 0.0;
          const double angle = 2.0 * M_PI * Uniform(&random);
          error[0] = 0.5 * Normal(&random) + size * std::cos(angle);
          error[1] = 0.5 * Normal(&random) + size * std::sin(angle);
        },
        &scene);
  }
  MoveStart(0.1, 0.005, 0.05, &random, &scene);
  for (int i = 0; i < scene.num_images(); ++i) {
    scene.params[5 * i] *= std::exp(0.05 * Normal(&random));
    scene.params[5 * i + 3] = scene.params[5 * i + 4] = 0.0;
  }
  std::vector<std::vector<int>> rows(scene.num_points());
  for (size_t k = 0; k < scene.image.size(); ++k) {
    rows[scene.point[k]].push_back(static_cast<int>(k));
  }
  for (int j = 0; j < scene.num_points(); ++j) {
    if (Uniform(&random) >= 0.05) {
      continue;
    }
    const int k = rows[j][static_cast<size_t>(
        Uniform(&random) * static_cast<double>(rows[j].size()))];
    const double* const pose = &scene.poses[7 * scene.image[k]];
    const double* const params = &scene.params[5 * scene.image[k]];
    const double depth = std::pow(10.0, -0.5 + 0.8 * Uniform(&random));
    const Eigen::Vector3d in_camera(
        depth * (scene.pixels[2 * k] - params[1]) / params[0],
        depth * (scene.pixels[2 * k + 1] - params[2]) / params[0],
        depth);
    const Eigen::Vector3d point =
        Eigen::Quaterniond(pose[3], pose[0], pose[1], pose[2]).conjugate() *
        (in_camera - Eigen::Vector3d(pose[4], pose[5], pose[6]));
    std::copy_n(point.data(), 3, &scene.points[3 * j]);
  }
  return scene;
}

Scene MakeFullOpenCv(int seed) {
  constexpr int kNumImages = 40;
  Random random(seed);
  Scene scene;
  for (int i = 0; i < kNumImages; ++i) {
    const double angle = 2.0 * M_PI * i / kNumImages;
    const Eigen::Vector3d center(4.0 * std::cos(angle) + 0.2 * Normal(&random),
                                 0.5 * Normal(&random),
                                 4.0 * std::sin(angle) + 0.2 * Normal(&random));
    const Eigen::Vector3d look_at(
        0.2 * Normal(&random), 0.2 * Normal(&random), 0.2 * Normal(&random));
    AddPose(center, look_at, &scene);
    const double focal = 1000.0 + 20.0 * Normal(&random);
    for (const double value : {focal, focal, 500.0, 500.0, -0.1}) {
      scene.params.push_back(value);
    }
    for (const double size : {0.03, 0.001, 0.001, 0.01, 0.02, 0.02, 0.01}) {
      scene.params.push_back(size * Normal(&random));
    }
  }
  for (int j = 0; j < 500; ++j) {
    const Eigen::Vector3d point =
        1.2 *
        Eigen::Vector3d(Normal(&random), Normal(&random), Normal(&random));
    const double from = 2.0 * M_PI * Uniform(&random);
    AddPoint<FullOpenCvCamera>(
        point,
        0.5,
        [&](int image) {
          const double angle = 2.0 * M_PI * image / kNumImages;
          return std::abs(std::remainder(angle - from, 2.0 * M_PI)) < 0.8 &&
                 Uniform(&random) < 0.7;
        },
        [&](double* error) {
          error[0] = 0.3 * Normal(&random);
          error[1] = 0.3 * Normal(&random);
        },
        &scene);
  }
  MoveStart(0.02, 0.002, 0.002, &random, &scene);
  for (int i = 0; i < kNumImages; ++i) {
    double* const params = &scene.params[12 * i];
    params[0] = params[1] = 1000.0;
    std::fill(params + 4, params + 12, 0.0);
  }
  return scene;
}

template <typename Camera>
Result Solve(const Solver& solver,
             const std::vector<int>& constant_params,
             double function_tolerance,
             int num_iterations,
             Scene* scene_in,
             std::vector<int>* named) {
  Scene& scene = *scene_in;
  using Error = ReprojectionError<Camera, EigenQuaternion>;
  using Cost = CostFunctionFor<DeviceAutoDiffCostFunction, Error>;
  ceres::Problem problem;
  ceres::Solver::Options options;
  auto ordering = std::make_shared<ceres::ParameterBlockOrdering>();
  for (size_t k = 0; k < scene.image.size(); ++k) {
    double* const pose = &scene.poses[7 * scene.image[k]];
    double* const params = &scene.params[Camera::kNumParams * scene.image[k]];
    double* const point = &scene.points[3 * scene.point[k]];
    problem.AddResidualBlock(
        new Cost(new Error{scene.pixels[2 * k], scene.pixels[2 * k + 1]}),
        nullptr,
        point,
        pose,
        params);
    ordering->AddElementToGroup(point, 0);
    ordering->AddElementToGroup(pose, 1);
    ordering->AddElementToGroup(params, 1);
  }
  using Pose = ceres::ProductManifold<ceres::EigenQuaternionManifold,
                                      ceres::EuclideanManifold<3>>;
  for (int i = 0; i < scene.num_images(); ++i) {
    if (!problem.HasParameterBlock(&scene.poses[7 * i])) {
      continue;
    }
    problem.SetManifold(&scene.poses[7 * i], new Pose);
    if (!constant_params.empty()) {
      problem.SetManifold(
          &scene.params[Camera::kNumParams * i],
          new ceres::SubsetManifold(Camera::kNumParams, constant_params));
    }
  }
  if (problem.HasParameterBlock(scene.poses.data())) {
    problem.SetParameterBlockConstant(scene.poses.data());
  }
  options.linear_solver_type = solver.type;
  options.preconditioner_type = ceres::SCHUR_JACOBI;
  options.linear_solver_ordering = ordering;
  options.max_linear_solver_iterations = 200;
  options.max_num_iterations = num_iterations;
  options.function_tolerance = function_tolerance;
  options.logging_type = ceres::SILENT;
  Options ext_options;
  ext_options.enabled = !solver.is_stock;
  ext_options.device = DEVICE_HOST;
  ext_options.preconditioner_blocks = solver.blocks;
  ext_options.linear_solver = solver.choice;
  Summary summary;
  ceres_ext::Solve(options, ext_options, &problem, &summary);
  Result result;
  if (summary.IsSolutionUsable()) {
    result.cost = summary.final_cost;
  }
  result.is_convergence = summary.termination_type == ceres::CONVERGENCE;
  result.is_no_minimum = !summary.no_minimum.empty();
  for (const RunawayResidual& residual : summary.runaway_residuals) {
    for (const RunawayResidual::Block& block : residual.blocks) {
      if (block.is_eliminated) {
        named->push_back(static_cast<int>(block.values - scene.points.data()) /
                         3);
      }
    }
  }
  for (const ceres::IterationSummary& step : summary.iterations) {
    result.num_steps += step.iteration > 0 ? 1 : 0;
    result.num_rejected += step.step_is_successful ? 0 : 1;
    result.num_iterations += step.linear_solver_iterations;
  }
  return result;
}

// Solve, and with --remove from there once more without the points that are
// named, until none is, at most 30 times.
template <typename Camera>
Result SolveAndRemove(const Solver& solver,
                      const std::vector<int>& constant_params,
                      double function_tolerance,
                      int num_iterations,
                      Scene scene) {
  std::vector<int> named;
  Result result = Solve<Camera>(solver,
                                constant_params,
                                function_tolerance,
                                num_iterations,
                                &scene,
                                &named);
  result.cost_without = result.cost;
  for (int i = 0; FLAGS_remove && i < 30 && !named.empty(); ++i) {
    std::sort(named.begin(), named.end());
    named.erase(std::unique(named.begin(), named.end()), named.end());
    size_t num_left = 0;
    for (size_t k = 0; k < scene.image.size(); ++k) {
      if (!std::binary_search(named.begin(), named.end(), scene.point[k])) {
        scene.image[num_left] = scene.image[k];
        scene.point[num_left] = scene.point[k];
        scene.pixels[2 * num_left] = scene.pixels[2 * k];
        scene.pixels[2 * num_left + 1] = scene.pixels[2 * k + 1];
        ++num_left;
      }
    }
    scene.image.resize(num_left);
    scene.point.resize(num_left);
    scene.pixels.resize(2 * num_left);
    result.num_removed += static_cast<int>(named.size());
    named.clear();
    result.cost_without = Solve<Camera>(solver,
                                        constant_params,
                                        function_tolerance,
                                        num_iterations,
                                        &scene,
                                        &named)
                              .cost;
  }
  return result;
}

int Run() {
  const bool is_near = FLAGS_problem == "near_plane";
  if (!is_near && FLAGS_problem != "full_opencv") {
    std::fprintf(stderr,
                 "--problem: expected near_plane or full_opencv, found '%s'\n",
                 FLAGS_problem.c_str());
    return 1;
  }
  const int num_iterations = FLAGS_iterations > 0 ? FLAGS_iterations
                             : is_near            ? 100
                                                  : 50;
  std::vector<std::vector<Result>> results;  // of each start, of each solver
  for (int seed = 1; seed <= FLAGS_starts; ++seed) {
    const Scene scene = is_near ? MakeNearPlane(seed) : MakeFullOpenCv(seed);
    results.emplace_back();
    for (const Solver& solver : kSolvers) {
      const std::vector<int> full_opencv = FLAGS_refine_principal_point
                                               ? std::vector<int>()
                                               : std::vector<int>{2, 3};
      results.back().push_back(
          is_near ? SolveAndRemove<RadialCamera>(
                        solver, {1, 2}, 1e-6, num_iterations, scene)
                  : SolveAndRemove<FullOpenCvCamera>(
                        solver, full_opencv, 0.0, num_iterations, scene));
      if (FLAGS_costs) {
        std::printf("%s%.6e",
                    &solver == kSolvers ? "" : " ",
                    results.back().back().cost);
        if (FLAGS_remove) {
          std::printf(" (%d: %.6e)",
                      results.back().back().num_removed,
                      results.back().back().cost_without);
        }
      }
    }
    if (FLAGS_costs) {
      std::printf("\n");
      std::fflush(stdout);
    }
  }
  std::printf(
      "| solver | above 1.5 times the least | CONVERGENCE | said to be not "
      "a minimum | %% above stock: mean, from, to | steps (rejected) | PCG | "
      "removed, cost after / before |\n"
      "|---|---|---|---|---|---|---|---|\n");
  const auto num_starts = static_cast<double>(results.size());
  for (size_t s = 0; s < std::size(kSolvers); ++s) {
    int num_above = 0;
    int num_convergence = 0;
    int num_no_minimum = 0;
    int num_steps = 0;
    int num_rejected = 0;
    int num_pcg = 0;
    int num_removed = 0;
    double sum = 0.0;
    double sum_without = 0.0;
    double least = std::numeric_limits<double>::infinity();
    double most = -least;
    for (const std::vector<Result>& of_start : results) {
      double best = std::numeric_limits<double>::infinity();
      for (const Result& result : of_start) {
        best = std::min(best, result.cost);
      }
      const Result& result = of_start[s];
      num_above += result.cost > 1.5 * best ? 1 : 0;
      num_convergence += result.is_convergence ? 1 : 0;
      num_no_minimum += result.is_no_minimum ? 1 : 0;
      num_steps += result.num_steps;
      num_rejected += result.num_rejected;
      num_pcg +=
          kSolvers[s].type == ceres::DENSE_SCHUR ? 0 : result.num_iterations;
      const double above = 100.0 * (result.cost / of_start[0].cost - 1.0);
      sum += std::log(result.cost / of_start[0].cost);
      sum_without += std::log(result.cost_without / result.cost);
      num_removed += result.num_removed;
      least = std::min(least, above);
      most = std::max(most, above);
    }
    std::printf(
        "| %s | %d | %d | %d | %.3f, %.3f, %.3f | %d (%d) | %d | %d, %.2g |\n",
        kSolvers[s].name,
        num_above,
        num_convergence,
        num_no_minimum,
        100.0 * std::expm1(sum / num_starts),
        least,
        most,
        num_steps,
        num_rejected,
        num_pcg,
        num_removed,
        std::exp(sum_without / num_starts));
  }
  return 0;
}

}  // namespace
}  // namespace ceres_ext

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  return ceres_ext::Run();
}
