// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A problem as programs for photogrammetry have it, solved by this library or
// by stock Ceres: a pose of six parameters per image, one camera that all
// images share, or one for each image (f, cx, cy and one or five coefficients
// of radial distortion), a Cauchy loss, a prior on each position, the first
// pose constant. Cost functions are ceres::AutoDiffCostFunction.
//
//   shapes_solve --solver=ceres_ext|iterative_schur|cuda_cgnr [flags]
//
// Prints the full report, or writes it as bundle_adjuster does
// (docs/bundle_adjuster.md) for the part `shapes` of scripts/gpu_compare.
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ceres/ceres.h"
#include "ceres/rotation.h"
#include "ceres_ext/solve.h"
#include "examples/bal/bal_problem.h"
#include "examples/bal/bal_writer.h"
#include "examples/bal/solve_report.h"
#include "gflags/gflags.h"

DEFINE_string(solver, "ceres_ext", "ceres_ext, iterative_schur or cuda_cgnr.");
DEFINE_int32(images, 1000, "Number of images.");
DEFINE_int32(points, 714000, "Number of points.");
DEFINE_int32(views, 7, "Images that see a point.");
DEFINE_int32(coefficients, 1, "Coefficients of radial distortion, 1 or 5.");
DEFINE_bool(own_cameras, false, "A camera for each image, not one for all.");
DEFINE_int32(iterations, 8, "Iterations.");
DEFINE_double(eta, 0.1, "Ceres's eta.");
DEFINE_int32(threads, 16, "Threads of the host.");
DEFINE_string(precision, "double", "Of Ceres Ext: double or mixed.");
DEFINE_string(preconditioner_blocks,
              "merged",
              "Of Ceres Ext: single or merged.");
DEFINE_string(report_json, "", "Where the report goes; empty: printed.");

namespace ceres_ext {
namespace {

template <int kCoefficients>
struct Reprojection {
  static constexpr int kCameraSize = 3 + kCoefficients;
  template <typename T>
  bool operator()(const T* pose,
                  const T* camera,
                  const T* point,
                  T* residuals) const {
    T p[3];
    ceres::AngleAxisRotatePoint(pose, point, p);
    const T x = (p[0] + pose[3]) / (p[2] + pose[5]);
    const T y = (p[1] + pose[4]) / (p[2] + pose[5]);
    const T r2 = x * x + y * y;
    T scale(0.0);
    for (int i = kCoefficients; i > 0; --i) {
      scale = (scale + camera[2 + i]) * r2;
    }
    scale = camera[0] * (1.0 + scale);
    residuals[0] = scale * x + camera[1] - u;
    residuals[1] = scale * y + camera[2] - v;
    return true;
  }
  double u;
  double v;
};

struct PositionPrior {
  template <typename T>
  bool operator()(const T* pose, T* residuals) const {
    for (int i = 0; i < 3; ++i) {
      residuals[i] = 10.0 * (pose[3 + i] - mean[i]);
    }
    return true;
  }
  double mean[3];
};

template <int kCoefficients>
int Run() {
  using Functor = Reprojection<kCoefficients>;
  constexpr int kCameraSize = Functor::kCameraSize;
  std::mt19937 random(7);
  std::uniform_real_distribution<double> uniform(-1.0, 1.0);
  std::normal_distribution<double> normal;
  // Without its observations, which the cost functions hold.
  bal::BalProblem scene;
  scene.camera_size = 6;
  scene.cameras.resize(6 * FLAGS_images);
  scene.points.resize(3 * FLAGS_points);
  std::vector<double>& poses = scene.cameras;
  std::vector<double>& points = scene.points;
  std::vector<double> cameras(
      kCameraSize * (FLAGS_own_cameras ? FLAGS_images : 1), 0.0);
  for (size_t i = 0; i < cameras.size(); i += kCameraSize) {
    cameras[i] = 1000.0;
    cameras[i + 3] = -0.05;
  }
  // Images along a road look across it; points are beside the road.
  const double spacing = 0.2;
  for (int i = 0; i < FLAGS_images; ++i) {
    double* pose = &poses[6 * i];
    for (int j = 0; j < 3; ++j) {
      pose[j] = 0.02 * uniform(random);
    }
    const double center[3] = {spacing * i, 0.1 * uniform(random), 0.0};
    double rotated[3];
    ceres::AngleAxisRotatePoint(pose, center, rotated);
    for (int j = 0; j < 3; ++j) {
      pose[3 + j] = -rotated[j];
    }
  }
  ceres::Problem problem;
  ceres::LossFunction* loss = new ceres::CauchyLoss(2.0);
  for (int p = 0; p < FLAGS_points; ++p) {
    const int first = static_cast<int>(
        random() % static_cast<unsigned>(FLAGS_images - FLAGS_views));
    double* point = &points[3 * p];
    point[0] = spacing * (first + 0.5 * FLAGS_views) + 0.5 * uniform(random);
    point[1] = uniform(random);
    point[2] = 3.0 + uniform(random);
    for (int v = 0; v < FLAGS_views; ++v) {
      double* pose = &poses[6 * (first + v)];
      double* camera =
          &cameras[FLAGS_own_cameras ? kCameraSize * (first + v) : 0];
      double z[2];
      Functor{0.0, 0.0}(pose, camera, point, z);
      problem.AddResidualBlock(
          new ceres::AutoDiffCostFunction<Functor, 2, 6, kCameraSize, 3>(
              new Functor{z[0] + normal(random), z[1] + normal(random)}),
          loss,
          pose,
          camera,
          point);
      scene.camera_index.push_back(first + v);
      scene.point_index.push_back(p);
    }
  }
  for (int i = 0; i < FLAGS_images; ++i) {
    double* pose = &poses[6 * i];
    problem.AddResidualBlock(
        new ceres::AutoDiffCostFunction<PositionPrior, 3, 6>(
            new PositionPrior{{pose[3], pose[4], pose[5]}}),
        nullptr,
        pose);
  }
  // The start.
  for (size_t i = 0; i < cameras.size(); i += kCameraSize) {
    cameras[i] *= 1.01;
  }
  for (int i = 1; i < FLAGS_images; ++i) {
    for (int j = 0; j < 6; ++j) {
      poses[6 * i + j] += (j < 3 ? 1e-3 : 1e-2) * normal(random);
    }
  }
  for (double& value : points) {
    value += 0.02 * normal(random);
  }
  problem.SetParameterBlockConstant(poses.data());

  ceres::Solver::Options options;
  options.linear_solver_type = ceres::ITERATIVE_SCHUR;
  options.preconditioner_type = ceres::SCHUR_JACOBI;
  if (FLAGS_solver == "cuda_cgnr") {
    options.linear_solver_type = ceres::CGNR;
    options.preconditioner_type = ceres::JACOBI;
    options.sparse_linear_algebra_library_type = ceres::CUDA_SPARSE;
  }
  options.num_threads = FLAGS_threads;
  options.max_num_iterations = FLAGS_iterations;
  options.eta = FLAGS_eta;
  options.function_tolerance = 0.0;
  options.logging_type = ceres::SILENT;
  Options ext_options;
  ext_options.enabled = FLAGS_solver == "ceres_ext";
  ext_options.device = DEVICE_CUDA;
  ext_options.precision =
      FLAGS_precision == "mixed" ? PRECISION_MIXED : PRECISION_DOUBLE;
  if (!StringToPreconditionerBlocksType(FLAGS_preconditioner_blocks,
                                        &ext_options.preconditioner_blocks)) {
    std::fprintf(stderr,
                 "--preconditioner_blocks=%s: single or merged was expected.\n",
                 FLAGS_preconditioner_blocks.c_str());
    return 2;
  }
  Summary summary;
  Solve(options, ext_options, &problem, &summary);
  if (FLAGS_report_json.empty()) {
    std::printf("%s\nPCG iterations:", summary.FullReport().c_str());
    for (const ceres::IterationSummary& iteration : summary.iterations) {
      std::printf(" %d", iteration.linear_solver_iterations);
    }
    std::printf("\n");
  } else {
    std::vector<std::pair<std::string, std::string>> flags;
    std::vector<gflags::CommandLineFlagInfo> all;
    gflags::GetAllFlags(&all);
    for (const gflags::CommandLineFlagInfo& flag : all) {
      if (flag.filename == __FILE__) {
        flags.emplace_back(flag.name, flag.current_value);
      }
    }
    std::string error;
    if (!bal::WriteTextFile(
            FLAGS_report_json,
            bal::SolveReportJson("shapes_solve", flags, scene, {}, summary),
            &error)) {
      std::fprintf(stderr, "%s\n", error.c_str());
      return 4;
    }
  }
  return summary.IsSolutionUsable() ? 0 : 3;
}

}  // namespace
}  // namespace ceres_ext

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  if (FLAGS_images <= FLAGS_views || FLAGS_views < 2 || FLAGS_points < 1 ||
      (FLAGS_coefficients != 1 && FLAGS_coefficients != 5)) {
    std::fprintf(stderr,
                 "More images than views, two views and more, and 1 or 5 "
                 "coefficients were expected.\n");
    return 2;
  }
  return FLAGS_coefficients == 1 ? ceres_ext::Run<1>() : ceres_ext::Run<5>();
}
