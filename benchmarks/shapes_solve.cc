// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A problem as programs for photogrammetry have it, solved by this library or
// by stock Ceres: a pose of six parameters per image, one camera that all
// images share, or one for each image (f, cx, cy and one or five coefficients
// of radial distortion), a Cauchy loss, a prior on each position, the first
// pose constant. With --mixed_models images have the nine cameras of
// ceres_ext/camera_models.h in turn, and each model a camera. Cost functions
// are ceres::AutoDiffCostFunction or, with --device_functions,
// DeviceAutoDiffCostFunction.
//
//   shapes_solve --solver=ceres_ext|iterative_schur|sparse_schur|cuda_cgnr
//                [flags]
//
// Prints the full report, or writes it as bundle_adjuster does
// (docs/programs.md) for the part `shapes` of scripts/gpu_compare.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/shapes_functors.h"
#include "ceres/ceres.h"
#include "ceres/rotation.h"
#include "ceres_ext/camera_models.h"
#include "ceres_ext/solve.h"
#include "examples/bal/solve_report.h"
#include "gflags/gflags.h"
#include "problem_io/bal_problem.h"
#include "problem_io/bal_writer.h"

DEFINE_string(solver,
              "ceres_ext",
              "ceres_ext, iterative_schur, sparse_schur or cuda_cgnr.");
DEFINE_bool(device_functions, false, "Functors with a device form.");
DEFINE_bool(mixed_models, false, "All camera models, --coefficients aside.");
DEFINE_int32(images, 1000, "Number of images.");
DEFINE_int32(points, 714000, "Number of points.");
DEFINE_int32(views, 7, "Images that see a point.");
DEFINE_int32(coefficients, 1, "Coefficients of radial distortion, 1 or 5.");
DEFINE_bool(own_cameras, false, "A camera for each image, not one for all.");
DEFINE_int32(iterations, 8, "Iterations.");
DEFINE_double(eta, 0.1, "Ceres's eta.");
DEFINE_int32(threads, 16, "Threads of the host.");
DEFINE_string(precision, "double", "For Ceres Ext: double or mixed.");
DEFINE_string(preconditioner_blocks,
              "merged",
              "For Ceres Ext: single or merged.");
DEFINE_string(report_json, "", "The file of the report; printed if empty.");

namespace ceres_ext {
namespace {

template <int kNumResiduals, int... Ns, typename Functor>
ceres::CostFunction* Cost(const Functor& functor) {
  if (FLAGS_device_functions) {
    return new DeviceAutoDiffCostFunction<Functor, kNumResiduals, Ns...>(
        functor);
  }
  return new ceres::AutoDiffCostFunction<Functor, kNumResiduals, Ns...>(
      new Functor(functor));
}

// Measures the point from a pose and adds the observation.
template <typename Functor, typename Noise>
void AddObservation(double* pose,
                    double* camera,
                    double* point,
                    ceres::LossFunction* loss,
                    Noise&& noise,
                    ceres::Problem* problem) {
  double z[2] = {};
  Functor{0.0, 0.0}(pose, camera, point, z);
  const double u = z[0] + noise();
  const double v = z[1] + noise();
  problem->AddResidualBlock(Cost<2, 6, Functor::kCameraSize, 3>(Functor{u, v}),
                            loss,
                            pose,
                            camera,
                            point);
}

template <int kCoefficients>
int Run() {
  using Functor = Reprojection<kCoefficients>;
  // Room for each of them.
  constexpr int kCameraSize =
      kCoefficients == 0 ? kMaxCameraParams : Functor::kCameraSize;
  constexpr int kNumModels = 9;
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
  const int num_cameras = FLAGS_mixed_models  ? kNumModels
                          : FLAGS_own_cameras ? FLAGS_images
                                              : 1;
  std::vector<double> cameras(kCameraSize * num_cameras, 0.0);
  if (kCoefficients == 0) {
    int i = 0;
    ForEachCameraModel([&](auto model) {
      if constexpr (kHasDeviceForm<decltype(model)>) {
        double* const camera = &cameras[kCameraSize * i++];
        std::fill_n(camera, decltype(model)::kNumFocalLengths, 1000.0);
        if (decltype(model)::kNumExtraParams > 0) {
          camera[decltype(model)::kNumFocalLengths + 2] = -0.05;
        }
      }
    });
  } else {
    for (size_t i = 0; i < cameras.size(); i += kCameraSize) {
      cameras[i] = 1000.0;
      cameras[i + 3] = -0.05;
    }
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
      const auto noise = [&] { return normal(random); };
      if constexpr (kCoefficients == 0) {
        int i = 0;
        ForEachCameraModel([&](auto model) {
          if constexpr (kHasDeviceForm<decltype(model)>) {
            if (i++ == (first + v) % kNumModels) {
              AddObservation<ModelReprojection<decltype(model)>>(
                  pose,
                  &cameras[kCameraSize * (i - 1)],
                  point,
                  loss,
                  noise,
                  &problem);
            }
          }
        });
      } else {
        AddObservation<Functor>(
            pose,
            &cameras[FLAGS_own_cameras ? kCameraSize * (first + v) : 0],
            point,
            loss,
            noise,
            &problem);
      }
      scene.camera_index.push_back(first + v);
      scene.point_index.push_back(p);
    }
  }
  for (int i = 0; i < FLAGS_images; ++i) {
    double* pose = &poses[6 * i];
    problem.AddResidualBlock(
        Cost<3, 6>(PositionPrior{{pose[3], pose[4], pose[5]}}), nullptr, pose);
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
  } else if (FLAGS_solver == "sparse_schur") {
    options.linear_solver_type = ceres::SPARSE_SCHUR;
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
            bal::SolveReportJson(bal::ReportedBalProblem("shapes_solve", scene),
                                 flags,
                                 {},
                                 summary,
                                 {}),
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
  return FLAGS_mixed_models        ? ceres_ext::Run<0>()
         : FLAGS_coefficients == 1 ? ceres_ext::Run<1>()
                                   : ceres_ext::Run<5>();
}
