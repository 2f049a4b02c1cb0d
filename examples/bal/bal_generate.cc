// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Writes synthetic bundle adjustment problems, see bal_synthetic.h.

#include <cstdint>
#include <cstdio>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "examples/bal/flag_help.h"
#include "examples/bal/interrupt.h"
#include "gflags/gflags.h"
#include "problem_io/bal_synthetic.h"
#include "problem_io/bal_writer.h"
#include "problem_io/colmap_model.h"
#include "problem_io/colmap_synthetic.h"
#include "problem_io/colmap_writer.h"
#include "problem_io/safe_file.h"

// clang-format off
DEFINE_string(output, "",
              "Write the problem, with its drifted start, to this BAL file; "
              "compressed if the name ends in .gz or .bz2, binary if it ends "
              "in .npz. With --camera_model a folder.");
DEFINE_string(truth, "",
              "Write the same observations with the true cameras and points to "
              "this BAL file, or folder.");
DEFINE_string(camera_model, "",
              "Write COLMAP models, with cameras of this model, instead of BAL "
              "files: SIMPLE_PINHOLE, PINHOLE, SIMPLE_RADIAL, RADIAL, "
              "OPENCV, OPENCV_FISHEYE, FULL_OPENCV, SIMPLE_RADIAL_FISHEYE, "
              "RADIAL_FISHEYE.");
DEFINE_int32(shared_cameras, 0,
             "Cameras that the images share, with --camera_model; 0 for one "
             "per image.");
DEFINE_string(like, "",
              "Take the sizes of this problem of the BAL data set, such as "
              "final-13682 (--list shows all), for the three counts below.");
DEFINE_bool(list, false, "Show the sizes that --like knows.");
DEFINE_int32(num_cameras, 100, "Cameras.");
DEFINE_int32(num_points, 10000, "Points.");
DEFINE_int64(num_observations, 50000, "Observations.");
DEFINE_string(layout, "city",
              "Way of the cameras: city (laps through its streets), strips "
              "(aerial pictures of a square of land, in parallel strips), "
              "places (clusters of images that are joined by streets).");
DEFINE_uint64(seed, 1, "The same seed gives the same bits on every machine.");
DEFINE_string(order, "point", "Order of observations: point, camera, shuffled.");
DEFINE_bool(shuffle_points, false,
            "Number points at random, not along the trajectory.");
DEFINE_double(pixel_noise, 0.5,
              "Standard deviation of each image coordinate, in pixels.");
DEFINE_double(outlier_fraction, 0.01, "Part of the observations that are "
              "outliers.");
DEFINE_double(outlier_size, 20.0,
              "Pixels by which outliers are off in x and y, at most.");
DEFINE_double(drift_rotation, 0.01,
              "Standard deviation of the last camera's rotation at the start, "
              "in radians; the drift is a random walk.");
DEFINE_double(drift_translation, 0.3,
              "Standard deviation of the last camera's position at the start, "
              "in metres; the drift is a random walk.");
DEFINE_double(focal_noise, 0.01,
              "Relative standard deviation of focal lengths at the start.");
DEFINE_double(point_noise, 0.005,
              "Standard deviation of points at the start, relative to the "
              "distance from their cameras.");
DEFINE_int32(num_points_seen_once, 0, "Points with a single observation.");
DEFINE_int32(num_far_points, 0, "Points ten thousand times as far away.");
DEFINE_int32(num_weak_cameras, 0,
             "Cameras with too few points, half of all at most.");
DEFINE_int32(weak_camera_points, 2, "Points that each of them sees.");
DEFINE_bool(collinear_cameras, false,
            "All camera centers on one line, in a city.");
DEFINE_int32(num_threads, 0,
             "Threads; 0 for one per processor. The bits do not depend on it.");
// clang-format on

namespace ceres_ext::bal {
namespace {

constexpr const char kIntroduction[] =
    R"(bal_generate --output=FILE [flags]

Writes a bundle adjustment problem with known truth: cameras that drive through
a city, fly in strips or stand about places, tracks of heavy-tailed length, pixel
noise, outliers, and a start that has drifted.

  bal_generate --like=final-13682 --output=final-like.txt
  bal_generate --num_cameras=20 --num_points=500 --num_observations=2000 \
      --output=start.txt --truth=truth.txt
  bal_generate --camera_model=OPENCV --shared_cameras=3 --output=FOLDER

Exit codes:
  0  the problem is written
  1  a flag is unknown or has a value that is not accepted
  4  an output file could not be written
)";

const std::vector<FlagGroup>& FlagGroups() {
  static const auto* const kGroups = new std::vector<FlagGroup>{
      {"Output",
       {"output",
        "truth",
        "camera_model",
        "shared_cameras",
        "order",
        "shuffle_points"}},
      {"Size",
       {"like", "list", "num_cameras", "num_points", "num_observations"}},
      {"Scene", {"layout"}},
      {"Observations", {"pixel_noise", "outlier_fraction", "outlier_size"}},
      {"Start",
       {"drift_rotation", "drift_translation", "focal_noise", "point_noise"}},
      {"Degenerate cases",
       {"num_points_seen_once",
        "num_far_points",
        "num_weak_cameras",
        "weak_camera_points",
        "collinear_cameras"}},
      {"Running", {"seed", "num_threads"}},
  };
  return *kGroups;
}

int Fail(int code, const std::string& error) {
  std::cerr << "bal_generate: " << error << std::endl;
  return code;
}

int WriteModels(const colmap::SyntheticModelOptions& options,
                const SyntheticProblem& synthetic) {
  int code = 0;
  for (const auto& [folder, values] :
       {std::pair(FLAGS_output, colmap::VALUES_AT_START),
        std::pair(FLAGS_truth, colmap::VALUES_OF_TRUTH)}) {
    colmap::Model model;
    std::string error;
    if (folder.empty()) {
      continue;
    }
    if (!colmap::MakeModel(
            synthetic, FLAGS_seed, options, values, &model, &error)) {
      return Fail(1, "--" + error);
    }
    if (!colmap::WriteModel(folder, model, &error)) {
      code = Fail(4, error);
    }
  }
  return code;
}

int Run() {
  if (FLAGS_list) {
    for (const BalSize& size : BalSizes()) {
      std::cout << size.name << ": " << size.num_cameras << " cameras, "
                << size.num_points << " points, " << size.num_observations
                << " observations\n";
    }
    std::string error;
    return FlushStandardOutput(&error) ? 0 : Fail(4, error);
  }
  SyntheticOptions options;
  options.num_cameras = FLAGS_num_cameras;
  options.num_points = FLAGS_num_points;
  options.num_observations = FLAGS_num_observations;
  if (!FLAGS_like.empty()) {
    for (const char* count :
         {"num_cameras", "num_points", "num_observations"}) {
      if (!gflags::GetCommandLineFlagInfoOrDie(count).is_default) {
        return Fail(1,
                    std::string("--") + count +
                        ": expected no count beside --like, found one");
      }
    }
    if (!FindBalSize(FLAGS_like, &options)) {
      return Fail(1,
                  "--like: expected a name that --list shows, found '" +
                      FLAGS_like + "'");
    }
  }
  if (FLAGS_order == "point") {
    options.order = ORDER_BY_POINT;
  } else if (FLAGS_order == "camera") {
    options.order = ORDER_BY_CAMERA;
  } else if (FLAGS_order == "shuffled") {
    options.order = ORDER_SHUFFLED;
  } else {
    return Fail(1,
                "--order: expected one of point, camera, shuffled, found '" +
                    FLAGS_order + "'");
  }
  if (FLAGS_layout == "city") {
    options.layout = LAYOUT_CITY;
  } else if (FLAGS_layout == "strips") {
    options.layout = LAYOUT_STRIPS;
  } else if (FLAGS_layout == "places") {
    options.layout = LAYOUT_PLACES;
  } else {
    return Fail(1,
                "--layout: expected one of city, strips, places, found '" +
                    FLAGS_layout + "'");
  }
  options.seed = FLAGS_seed;
  options.shuffle_points = FLAGS_shuffle_points;
  options.pixel_noise = FLAGS_pixel_noise;
  options.outlier_fraction = FLAGS_outlier_fraction;
  options.outlier_size = FLAGS_outlier_size;
  options.drift_rotation = FLAGS_drift_rotation;
  options.drift_translation = FLAGS_drift_translation;
  options.focal_noise = FLAGS_focal_noise;
  options.point_noise = FLAGS_point_noise;
  options.num_points_seen_once = FLAGS_num_points_seen_once;
  options.num_far_points = FLAGS_num_far_points;
  options.num_weak_cameras = FLAGS_num_weak_cameras;
  options.weak_camera_points = FLAGS_weak_camera_points;
  options.collinear_cameras = FLAGS_collinear_cameras;
  options.num_threads = FLAGS_num_threads;
  if (FLAGS_output.empty() && FLAGS_truth.empty()) {
    return Fail(1,
                "--output: expected the name of a file, found none; see "
                "--help");
  }
  colmap::SyntheticModelOptions model_options;
  model_options.camera_model = colmap::FindCameraModel(FLAGS_camera_model);
  model_options.num_shared_cameras = FLAGS_shared_cameras;
  const bool is_colmap = !FLAGS_camera_model.empty();
  if (is_colmap && model_options.camera_model == nullptr) {
    return Fail(1,
                "--camera_model: expected one of " +
                    colmap::CameraModelNames() + ", found '" +
                    FLAGS_camera_model + "'");
  }
  const int32_t max_shared = is_colmap ? options.num_cameras : 0;
  if (FLAGS_shared_cameras < 0 || FLAGS_shared_cameras > max_shared) {
    return Fail(1,
                "--shared_cameras: expected a number from 0 to " +
                    std::to_string(max_shared) +
                    (is_colmap ? "" : " without --camera_model") + ", found " +
                    std::to_string(FLAGS_shared_cameras));
  }

  std::string error;
  std::vector<OutputFile> outputs;
  for (const auto& [flag, path] :
       {std::pair("output", FLAGS_output), std::pair("truth", FLAGS_truth)}) {
    if (is_colmap && !path.empty()) {
      // The same folder, there already or not.
      outputs.push_back({flag, path + "/cameras.txt"});
      outputs.push_back({flag, colmap::WithoutSlashes(path)});
    } else {
      outputs.push_back({flag, path});
    }
  }
  if (!CheckDistinct(outputs, /*inputs=*/{}, &error)) {
    return Fail(1, error);
  }
  for (const std::string& path : {FLAGS_output, FLAGS_truth}) {
    if (!path.empty() &&
        !(is_colmap ? colmap::CanWriteModel(path, colmap::Model(), &error)
                    : CanWrite(path, &error))) {
      return Fail(4, error);
    }
  }

  HandleSignals("bal_generate");
  SyntheticProblem synthetic;
  if (!GenerateSynthetic(options, &synthetic, &error)) {
    return Fail(1, "--" + error);
  }
  if (is_colmap) {
    return WriteModels(model_options, synthetic);
  }
  int code = 0;
  if (!FLAGS_output.empty() &&
      !WriteBalFile(FLAGS_output, synthetic.start, &error)) {
    code = Fail(4, error);
  }
  if (!FLAGS_truth.empty()) {
    BalProblem truth = std::move(synthetic.start);
    truth.cameras = std::move(synthetic.true_cameras);
    truth.points = std::move(synthetic.true_points);
    if (!WriteBalFile(FLAGS_truth, truth, &error)) {
      code = Fail(4, error);
    }
  }
  return code;
}

int Main(int argc, char** argv) {
  gflags::SetVersionString(CERES_EXT_VERSION);
  ParseFlagsOrExit(kIntroduction, __FILE__, FlagGroups(), &argc, &argv);
  return Run();
}

}  // namespace
}  // namespace ceres_ext::bal

int main(int argc, char** argv) { return ceres_ext::bal::Main(argc, argv); }
