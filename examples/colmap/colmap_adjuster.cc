// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// COLMAP's bundle_adjuster with this library's solver: reads a model, refines
// it, writes it.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ceres/iteration_callback.h"
#include "ceres/problem.h"
#include "ceres/solver.h"
#include "ceres/types.h"
#include "ceres_ext/covariance.h"
#include "ceres_ext/options.h"
#include "ceres_ext/solve.h"
#include "ceres_ext/summary.h"
#include "examples/bal/adjuster_program.h"
#include "examples/bal/covariance_file.h"
#include "examples/bal/flag_enum.h"
#include "examples/bal/flag_help.h"
#include "examples/bal/interrupt.h"
#include "examples/bal/interrupt_callback.h"
#include "examples/bal/seconds_since.h"
#include "examples/bal/solve_report.h"
#include "examples/bal/solver_flags.h"
#include "examples/colmap/colmap_covariance.h"
#include "examples/colmap/colmap_origin.h"
#include "examples/colmap/colmap_problem.h"
#include "examples/colmap/model_arrays.h"
#include "examples/colmap/survey.h"
#include "examples/colmap/survey_report.h"
#include "gflags/gflags.h"
#include "problem_io/bal_writer.h"
#include "problem_io/colmap_model.h"
#include "problem_io/colmap_reader.h"
#include "problem_io/colmap_writer.h"
#include "problem_io/number_text.h"
#include "problem_io/safe_file.h"

// clang-format off
DEFINE_string(input_path, "", "Folder of the model to refine, as text or binary; where both are "
              "there, the binary files are read.");
DEFINE_string(output_path, "",
              "Folder to write the refined model to; may be that of the "
              "input.");
DEFINE_string(output_type, "auto",
              "Form of that model: auto (that of the input), TXT, BIN.");

DEFINE_bool(refine_focal_length, true, "Refine focal lengths.");
DEFINE_bool(refine_principal_point, false, "Refine principal points.");
DEFINE_bool(refine_extra_params, true, "Refine coefficients of distortion.");
DEFINE_bool(bound_intrinsics, false,
            "Keep refined focal lengths, principal points and coefficients of "
            "distortion within the limits of the next three, principal points "
            "within the image.");
DEFINE_double(min_focal_length_ratio, 0.1,
              "Least focal length, in units of the longer side of the image.");
DEFINE_double(max_focal_length_ratio, 10.0,
              "Largest focal length, in units of the longer side of the "
              "image.");
DEFINE_double(max_extra_param, 1.0,
              "Largest absolute value of a coefficient of distortion.");
DEFINE_double(focal_length_prior_weight, 0.0,
              "Weight of a soft prior on refined focal lengths at their values "
              "in the model: 1 over its standard deviation in pixels; 0: none.");
DEFINE_double(principal_point_prior_weight, 0.0,
              "The same of refined principal points.");
DEFINE_double(extra_params_prior_weight, 0.0,
              "The same of refined coefficients of distortion, which have no "
              "unit.");
DEFINE_bool(refine_rig_from_world, true,
            "Refine the poses of frames, or of images if there are no frames.");
DEFINE_bool(refine_sensor_from_rig, true,
            "Refine the poses of sensors in rigs of several sensors.");
DEFINE_bool(constant_rig_from_world_rotation, false,
            "Refine only the translations of the poses of frames.");
DEFINE_bool(refine_points3D, true, "Refine points.");
DEFINE_int32(min_track_length, 0,
             "Leave out points that fewer images see.");
DEFINE_string(loss_function_type, "TRIVIAL",
              "Loss of each reprojection error: TRIVIAL, SOFT_L1, CAUCHY, "
              "HUBER.");
DEFINE_double(loss_function_scale, 1.0,
              "Residual size, in pixels, above which the loss stops being "
              "quadratic.");
DEFINE_bool(split_pose, false,
            "Poses in two parameter blocks, as up to COLMAP 3.13, in place of "
            "one.");

DEFINE_string(origin, "auto",
              "Origin of the coordinates of the solve: auto (the centre of the "
              "scene, if that is far from zero: more than 20 times the scene's "
              "extent), none (zero), or X,Y,Z. Files keep their coordinates.");

DEFINE_string(gcp, "",
              "Control and check points, lines of ID X Y Z SIGMA; 'Survey' in "
              "docs/programs.md has the formats of this and the next two.");
DEFINE_string(gcp_observations, "",
              "Measurements of the points of --gcp, lines of ID IMAGE x y.");
DEFINE_string(positions, "",
              "Positions of cameras, lines of IMAGE X Y Z SIGMA.");
DEFINE_string(georeference, "auto",
              "Brings the model into the frame of --gcp and --positions by a "
              "similarity: auto (unless it is near), always, never.");
DEFINE_bool(skip_missing_images, false,
            "Ignore lines of --gcp_observations and --positions whose images "
            "the model does not have.");

DEFINE_string(covariance_gauge, "inner",
              "Gauge of --covariance: inner (inner constraints), "
              "as_solved (relative to the constants of the solve: the pose of "
              "the first image and one coordinate of another).");

DEFINE_int32(max_num_iterations, 100, "Iterations of the minimizer, at most.");
// clang-format on

namespace ceres_ext::colmap {
namespace {

using bal::ExitCode;
using bal::Fail;

constexpr const char kIntroduction[] =
    R"(colmap_adjuster --input_path=FOLDER --output_path=FOLDER [flags]

Refines a model of COLMAP, as text or binary, as COLMAP's bundle_adjuster does,
whose flags of the same names, behind "BundleAdjustment.", mean the same; the
others are those of this library's bundle_adjuster. Shows progress, then the full
report.

  colmap_adjuster --input_path=sparse/0 --output_path=refined

Exit codes:
  0  the solution is usable
  1  a flag is unknown or has a value that is not accepted
  2  the model, --gcp, --gcp_observations or --positions could not be read, or
     these do not fit the model
  3  the solve failed (the report or a message says why), or --covariance did
  4  an output could not be written; the others are
  5  SIGINT, SIGTERM or SIGHUP ended the solve early; the solution so far is
     usable and all outputs hold it (a second signal kills)
)";

bal::AdjusterProgram Program() {
  std::vector<bal::FlagGroup> groups = {
      {"Problem",
       {"input_path",
        "refine_focal_length",
        "refine_principal_point",
        "refine_extra_params",
        "bound_intrinsics",
        "min_focal_length_ratio",
        "max_focal_length_ratio",
        "max_extra_param",
        "focal_length_prior_weight",
        "principal_point_prior_weight",
        "extra_params_prior_weight",
        "refine_rig_from_world",
        "refine_sensor_from_rig",
        "constant_rig_from_world_rotation",
        "refine_points3D",
        "min_track_length",
        "loss_function_type",
        "loss_function_scale",
        "split_pose",
        "origin"}},
      {"Survey",
       {"gcp",
        "gcp_observations",
        "positions",
        "georeference",
        "skip_missing_images"}},
      {"Output", {"output_path", "output_type", "covariance_gauge"}},
      {"Solver", {}},
      {"Linear solver", {}},
      {"Minimizer", {"max_num_iterations"}},
  };
  bal::AddSolverFlags(&groups);
  return {"colmap_adjuster", "a model", kIntroduction, __FILE__, groups};
}

// Sets the defaults of COLMAP, if they differ from those of bundle_adjuster.
void SetDefaults() {
  for (const auto& [flag, value] :
       {std::pair("eta", "0.1"),
        std::pair("max_linear_solver_iterations", "200"),
        std::pair("function_tolerance", "0"),
        std::pair("gradient_tolerance", "1e-4"),
        std::pair("parameter_tolerance", "0")}) {
    gflags::SetCommandLineOptionWithMode(
        flag, value, gflags::SET_FLAGS_DEFAULT);
  }
}

enum OutputType { OUTPUT_AS_INPUT, OUTPUT_TEXT, OUTPUT_BINARY };
enum OriginType { ORIGIN_AUTO, ORIGIN_NONE, ORIGIN_GIVEN };

struct AdjusterOptions {
  OriginType origin_type = ORIGIN_AUTO;
  double origin[3] = {0.0, 0.0, 0.0};  // where it is given
  ProblemOptions problem;
  ceres::Solver::Options solver;
  ceres_ext::Options ext;
  OutputType output_type = OUTPUT_AS_INPUT;
  CovarianceGauge covariance_gauge = COVARIANCE_GAUGE_INNER;
  GeoreferenceMode georeference = GEOREFERENCE_AUTO;
};

bool ParseOrigin(AdjusterOptions* options, std::string* error) {
  if (FLAGS_origin == "auto" || FLAGS_origin == "none") {
    options->origin_type = FLAGS_origin == "auto" ? ORIGIN_AUTO : ORIGIN_NONE;
    return true;
  }
  options->origin_type = ORIGIN_GIVEN;
  std::string text = FLAGS_origin;
  const auto num_commas = std::count(text.begin(), text.end(), ',');
  std::replace(text.begin(), text.end(), ',', ' ');
  const char* begin = text.data();
  const char* const end = begin + text.size();
  bool is_valid = num_commas == 2;
  for (double& value : options->origin) {
    begin = is_valid ? bal::ParseNumber(begin, end, &value) : nullptr;
    is_valid = begin != nullptr && std::isfinite(value);
    begin += is_valid && begin != end ? 1 : 0;
  }
  if (is_valid && begin == end) {
    return true;
  }
  *error = "--origin: expected auto, none or three numbers X,Y,Z, found '" +
           FLAGS_origin + "'";
  return false;
}

// Reads the flags of bounds and priors of cameras.
bool IntrinsicsFromFlags(ProblemOptions* options, std::string* error) {
  const auto expect = [error](bool holds,
                              const std::string& flag,
                              const char* expected,
                              double found) {
    if (!holds) {
      *error = "--" + flag + ": expected " + expected + ", found " +
               bal::NumberText(found);
    }
    return holds;
  };
  options->bound_intrinsics = FLAGS_bound_intrinsics;
  IntrinsicsLimits& limits = options->intrinsics_limits;
  limits.min_focal_length_ratio = FLAGS_min_focal_length_ratio;
  limits.max_focal_length_ratio = FLAGS_max_focal_length_ratio;
  limits.max_extra_param = FLAGS_max_extra_param;
  IntrinsicsPriorWeights& weights = options->intrinsics_prior_weights;
  weights.focal_length = FLAGS_focal_length_prior_weight;
  weights.principal_point = FLAGS_principal_point_prior_weight;
  weights.extra_params = FLAGS_extra_params_prior_weight;
  for (const auto& [flag, weight] :
       {std::pair("focal_length_prior_weight", weights.focal_length),
        std::pair("principal_point_prior_weight", weights.principal_point),
        std::pair("extra_params_prior_weight", weights.extra_params)}) {
    if (!expect(weight >= 0.0 && std::isfinite(weight),
                flag,
                "a number of at least 0",
                weight)) {
      return false;
    }
  }
  return expect(limits.min_focal_length_ratio >= 0.0,
                "min_focal_length_ratio",
                "a number of at least 0",
                limits.min_focal_length_ratio) &&
         expect(limits.max_focal_length_ratio > limits.min_focal_length_ratio,
                "max_focal_length_ratio",
                "a number above --min_focal_length_ratio",
                limits.max_focal_length_ratio) &&
         expect(limits.max_extra_param > 0.0,
                "max_extra_param",
                "a number above 0",
                limits.max_extra_param);
}

// Checks all flags except paths.
bool OptionsFromFlags(AdjusterOptions* options, std::string* error) {
  for (const auto& [flag, path] :
       {std::pair("input_path", FLAGS_input_path),
        std::pair("output_path", FLAGS_output_path)}) {
    if (path.empty()) {
      *error = std::string("--") + flag +
               ": expected the name of a folder, found none; see --help";
      return false;
    }
  }
  if (!(FLAGS_loss_function_scale > 0.0 &&
        std::isfinite(FLAGS_loss_function_scale))) {
    *error = "--loss_function_scale: expected a number above 0, found " +
             bal::NumberText(FLAGS_loss_function_scale);
    return false;
  }
  ProblemOptions& problem = options->problem;
  problem.split_pose = FLAGS_split_pose;
  problem.refine_focal_length = FLAGS_refine_focal_length;
  problem.refine_principal_point = FLAGS_refine_principal_point;
  problem.refine_extra_params = FLAGS_refine_extra_params;
  problem.refine_rig_from_world = FLAGS_refine_rig_from_world;
  problem.refine_sensor_from_rig = FLAGS_refine_sensor_from_rig;
  problem.constant_rig_from_world_rotation =
      FLAGS_constant_rig_from_world_rotation;
  problem.refine_points3D = FLAGS_refine_points3D;
  problem.min_track_length = FLAGS_min_track_length;
  problem.loss_scale = FLAGS_loss_function_scale;
  options->solver.max_num_iterations = FLAGS_max_num_iterations;
  return bal::ParseEnum<LossType>("loss_function_type",
                                  FLAGS_loss_function_type,
                                  {{"TRIVIAL", LOSS_TRIVIAL},
                                   {"SOFT_L1", LOSS_SOFT_L1},
                                   {"CAUCHY", LOSS_CAUCHY},
                                   {"HUBER", LOSS_HUBER}},
                                  &problem.loss,
                                  error) &&
         bal::ParseEnum<OutputType>("output_type",
                                    FLAGS_output_type,
                                    {{"auto", OUTPUT_AS_INPUT},
                                     {"TXT", OUTPUT_TEXT},
                                     {"BIN", OUTPUT_BINARY}},
                                    &options->output_type,
                                    error) &&
         bal::ParseEnum<CovarianceGauge>(
             "covariance_gauge",
             FLAGS_covariance_gauge,
             {{"inner", COVARIANCE_GAUGE_INNER},
              {"as_solved", COVARIANCE_GAUGE_AS_GIVEN}},
             &options->covariance_gauge,
             error) &&
         bal::ParseEnum<GeoreferenceMode>("georeference",
                                          FLAGS_georeference,
                                          {{"auto", GEOREFERENCE_AUTO},
                                           {"always", GEOREFERENCE_ALWAYS},
                                           {"never", GEOREFERENCE_NEVER}},
                                          &options->georeference,
                                          error) &&
         IntrinsicsFromFlags(&problem, error) && ParseOrigin(options, error) &&
         bal::SolverOptionsFromFlags(&options->solver, &options->ext, error) &&
         options->solver.IsValid(error);
}

bool WritePly(const std::string& path,
              const Model& model,
              const std::vector<bal::Ellipsoid>& ellipsoids,
              std::string* error) {
  std::vector<double> points;
  for (const Point3D& point : model.points) {
    points.insert(points.end(), point.xyz, point.xyz + 3);
  }
  return bal::WritePlyFile(
      path, CameraCenters(model), points, ellipsoids, error);
}

// EXIT_USABLE_SOLUTION if all outputs can be written. Only the model may
// overwrite an input; `inputs` are the files that were read.
ExitCode CheckOutputs(const std::vector<std::string>& inputs,
                      const Model& model,
                      std::string* error) {
  const std::vector<bal::OutputFile> files = {
      {"final_ply", FLAGS_final_ply},
      {"covariance", FLAGS_covariance},
      {"report_json", FLAGS_report_json},
      {"initial_ply", FLAGS_initial_ply}};
  std::vector<bal::OutputFile> outputs;
  for (const std::string& path : ModelFiles(FLAGS_output_path, model)) {
    outputs.push_back({"output_path", path, "input_path"});
  }
  outputs.insert(outputs.end(), files.begin(), files.end());
  std::vector<bal::InputFile> input_files;
  input_files.reserve(inputs.size());
  for (const std::string& path : inputs) {
    input_files.push_back({"input_path", path});
  }
  for (const auto& [flag, path] :
       {std::pair("gcp", FLAGS_gcp),
        std::pair("gcp_observations", FLAGS_gcp_observations),
        std::pair("positions", FLAGS_positions)}) {
    if (!path.empty()) {
      input_files.push_back({flag, path});
    }
  }
  if (!bal::CheckDistinct(outputs, input_files, error)) {
    return bal::EXIT_USAGE;
  }
  if (!CanWriteModel(FLAGS_output_path, model, error)) {
    return bal::EXIT_OUTPUT;
  }
  for (const bal::OutputFile& file : files) {
    if (!bal::CanWrite(file.path, error)) {
      return bal::EXIT_OUTPUT;
    }
  }
  return bal::EXIT_USABLE_SOLUTION;
}

bool FindCovariance(const AdjusterOptions& options,
                    const double* origin,
                    Model* model,
                    Survey* survey,
                    bal::CovarianceReport* report,
                    std::string* error) {
  CovarianceOptions covariance;
  covariance.num_threads = options.solver.num_threads;
  covariance.gauge = options.covariance_gauge;
  covariance.scale = bal::CovarianceScaleFromFlags();
  covariance.ext = options.ext;
  ProblemOptions problem = options.problem;
  problem.fix_gauge =
      problem.fix_gauge && options.covariance_gauge != COVARIANCE_GAUGE_INNER;
  return ComputeModelCovariance(
      covariance, problem, origin, model, survey, report, error);
}

// The bundle adjustment of a model: as arrays, or as a ceres::Problem if arrays
// can't express it (a survey, poses in two blocks) or stock Ceres is to solve
// it.
class AdjusterProblem {
 public:
  // *model outlives the object, and *survey its construction.
  AdjusterProblem(const AdjusterOptions& options, Model* model, Survey* survey)
      : options_(options) {
    if (survey->is_empty() && !options.problem.split_pose &&
        options.ext.enabled) {
      arrays_.emplace(options.problem, ProblemSelection(), model);
      return;
    }
    problem_.emplace();
    BuildProblem(options.problem, model, &*problem_);
    survey->AddTo(options.problem, model, &*problem_);
    OrderPointsFirst(
        *problem_, *model, survey->ControlBlocks(), &options_.solver);
  }

  void AddCallback(ceres::IterationCallback* callback) {
    options_.solver.callbacks.push_back(callback);
  }
  void Solve(ceres_ext::Summary* summary) {
    if (arrays_.has_value()) {
      ceres_ext::Solve(
          options_.solver, options_.ext, arrays_->problem(), summary);
      arrays_->Store();
    } else {
      ceres_ext::Solve(options_.solver, options_.ext, &*problem_, summary);
    }
  }
  // The address in the model of a block of the problem.
  const double* PlaceOf(const RunawayResidual::Block& block) const {
    return arrays_.has_value() ? arrays_->PlaceOf(block) : block.values;
  }
  void MoveBack(const MovedModel& moved, Model* model) const {
    if (!arrays_.has_value()) {
      moved.MoveBack(*problem_, model);
      return;
    }
    const auto varying = arrays_->FindVarying();
    moved.MoveBack(
        [&varying](const double* block) { return varying.count(block) > 0; },
        model);
  }

 private:
  AdjusterOptions options_;
  // One of these.
  std::optional<ModelArrays> arrays_;
  std::optional<ceres::Problem> problem_;
};

ExitCode Run() {
  std::string error;
  AdjusterOptions options;
  if (!OptionsFromFlags(&options, &error)) {
    return Fail(bal::EXIT_USAGE, error);
  }
  auto start = std::chrono::steady_clock::now();
  Model model;
  if (!ReadModel(WithoutSlashes(FLAGS_input_path), &model, &error)) {
    return Fail(bal::EXIT_INPUT, error);
  }
  bal::SolveTimes times;
  times.read_in_seconds = bal::SecondsSince(start);
  std::cout << FLAGS_input_path << ": " << model.cameras.size() << " cameras, "
            << model.images.size() << " images, " << model.points.size()
            << " points, " << model.point_index.size() << " 2D points, as "
            << (model.format == MODEL_BINARY ? "binary" : "text")
            << ", read in " << times.read_in_seconds << " s" << std::endl;
  if (options.problem.split_pose && HasOtherSensors(model)) {
    return Fail(bal::EXIT_USAGE,
                "--split_pose: expected a model without rigs of several "
                "sensors, found " +
                    FLAGS_input_path);
  }
  const std::vector<Camera> start_cameras = model.cameras;
  const std::vector<std::string> inputs = ModelFiles(FLAGS_input_path, model);
  Survey survey;
  if (!survey.Read({FLAGS_gcp,
                    FLAGS_gcp_observations,
                    FLAGS_positions,
                    FLAGS_skip_missing_images},
                   options.problem,
                   model,
                   &error) ||
      !survey.Georeference(options.georeference, &model, &error)) {
    return Fail(bal::EXIT_INPUT, error);
  }
  if (!survey.is_empty() && HasOtherSensors(model)) {
    return Fail(bal::EXIT_USAGE,
                "--gcp, --positions: expected a model without rigs of several "
                "sensors, found " +
                    FLAGS_input_path);
  }
  if (const std::string pole =
          FindPole(model, options.problem.min_track_length);
      !pole.empty()) {
    return Fail(bal::EXIT_INPUT, FLAGS_input_path + ": " + pole);
  }
  options.problem.fix_gauge = !survey.has_control();
  if (options.output_type != OUTPUT_AS_INPUT) {
    model.format =
        options.output_type == OUTPUT_BINARY ? MODEL_BINARY : MODEL_TEXT;
  }
  ExitCode code = CheckOutputs(inputs, model, &error);
  if (code != bal::EXIT_USABLE_SOLUTION) {
    return Fail(code, error);
  }

  // From here on, an output that fails is reported and the others are written.
  const auto check_written = [&code, &error](bool is_written) {
    if (!is_written) {
      code = Fail(bal::EXIT_OUTPUT, error);
    }
  };
  if (!FLAGS_initial_ply.empty()) {
    check_written(
        WritePly(FLAGS_initial_ply, model, /*ellipsoids=*/{}, &error));
  }
  start = std::chrono::steady_clock::now();
  std::optional<MovedModel> moved;
  if (options.origin_type == ORIGIN_GIVEN ||
      (options.origin_type == ORIGIN_AUTO && IsFar(model, options.origin))) {
    moved.emplace(options.origin, &model);
    std::cout << FLAGS_input_path << ": solved with the origin at "
              << bal::NumberText(options.origin[0]) << ","
              << bal::NumberText(options.origin[1]) << ","
              << bal::NumberText(options.origin[2]) << " (--origin)"
              << std::endl;
  }
  survey.SetStart(moved.has_value() ? options.origin : nullptr, model);
  if (FLAGS_warm_up) {
    Model same = model;
    Survey same_survey = survey;
    AdjusterProblem problem(options, &same, &same_survey);
    bal::WarmUp(options.ext);
    ceres_ext::Summary ignored;
    problem.Solve(&ignored);
    start = std::chrono::steady_clock::now();
  }
  AdjusterProblem problem(options, &model, &survey);
  times.build_in_seconds = bal::SecondsSince(start);
  bal::InterruptCallback interrupt;
  problem.AddCallback(&interrupt);
  ceres_ext::Summary summary;
  bal::SetSignalPhase(bal::SIGNAL_ENDS_SOLVE);
  problem.Solve(&summary);
  bal::SetSignalPhase(bal::SIGNAL_WAITS);
  const bool was_interrupted = interrupt.WasInterrupted(&summary);
  const std::vector<RunawayFocalLength> runaways =
      FindRunawayFocalLengths(start_cameras, model);
  SetPosesOfSensors(&model);
  std::cout << summary.FullReport() << std::endl
            << RunawayText(runaways)
            << RunawayText(FindRunawayObservations(
                   summary,
                   [&problem](const RunawayResidual::Block& block) {
                     return problem.PlaceOf(block);
                   },
                   model));

  bal::CovarianceReport covariance;
  bool has_covariance = false;
  if (summary.IsSolutionUsable()) {
    UpdateErrors(&model);
    survey.SetResult(model);
    if (!FLAGS_covariance.empty()) {
      has_covariance =
          FindCovariance(options,
                         moved.has_value() ? options.origin : nullptr,
                         &model,
                         survey.is_empty() ? nullptr : &survey,
                         &covariance,
                         &error);
      if (!has_covariance) {
        code = Fail(bal::EXIT_SOLVE_FAILED, "no covariance: " + error);
      }
    }
    if (moved.has_value()) {
      problem.MoveBack(*moved, &model);
    }
    check_written(WriteModel(FLAGS_output_path, model, &error));
    if (has_covariance) {
      SetPositions(model, &covariance);
      std::cout << bal::CovarianceText(covariance);
      check_written(
          bal::WriteCovarianceFile(FLAGS_covariance, covariance, &error));
    }
    std::cout << SurveyText(survey);
    if (!FLAGS_final_ply.empty()) {
      check_written(
          WritePly(FLAGS_final_ply,
                   model,
                   bal::Ellipsoids(covariance, FLAGS_covariance_sigmas),
                   &error));
    }
  }
  const auto size = [](const auto& items) {
    return static_cast<int64_t>(items.size());
  };
  const bal::ReportedProblem reported = {
      "ceres_ext.colmap_adjuster.1",
      FLAGS_input_path,
      {{"num_cameras", size(model.cameras)},
       {"num_images", size(model.images)},
       {"num_points", size(model.points)},
       {"num_observations", size(model.track_elements)},
       {"num_runaway_focal_lengths", size(runaways)}}};
  const bool has_survey = summary.IsSolutionUsable() && !survey.is_empty();
  if (!FLAGS_report_json.empty()) {
    std::vector<std::pair<std::string, std::string>> parts;
    if (has_covariance) {
      parts.emplace_back("covariance", bal::CovarianceJson(covariance));
    }
    if (has_survey) {
      parts.emplace_back("survey", SurveyJson(survey));
    }
    check_written(bal::WriteTextFile(
        FLAGS_report_json,
        bal::SolveReportJson(reported,
                             bal::FlagValues(Program().flag_groups),
                             times,
                             summary,
                             parts),
        &error));
  }
  check_written(bal::FlushStandardOutput(&error));
  if (!summary.IsSolutionUsable()) {
    return Fail(bal::EXIT_SOLVE_FAILED, "the solve failed: " + summary.message);
  }
  return code == bal::EXIT_USABLE_SOLUTION && was_interrupted
             ? bal::EXIT_INTERRUPTED
             : code;
}

}  // namespace
}  // namespace ceres_ext::colmap

int main(int argc, char** argv) {
  ceres_ext::colmap::SetDefaults();
  return ceres_ext::bal::RunAdjuster(
      ceres_ext::colmap::Program(), &ceres_ext::colmap::Run, argc, argv);
}
