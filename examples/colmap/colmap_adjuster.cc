// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// COLMAP's bundle_adjuster with this library's solver: reads a model, refines
// it, writes it.

#include <algorithm>
#include <cmath>
#include <iostream>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "ceres/problem.h"
#include "ceres/solver.h"
#include "ceres_ext/options.h"
#include "ceres_ext/summary.h"
#include "examples/bal/flag_help.h"
#include "examples/bal/interrupt.h"
#include "examples/bal/safe_file.h"
#include "examples/bal/segmented_solve.h"
#include "examples/colmap/colmap_model.h"
#include "examples/colmap/colmap_problem.h"
#include "examples/colmap/colmap_reader.h"
#include "examples/colmap/colmap_writer.h"
#include "gflags/gflags.h"
#include "glog/logging.h"

// clang-format off
DEFINE_string(input_path, "", "Folder of the model to refine, in text form.");
DEFINE_string(output_path, "",
              "Folder to write the refined model to; may be that of the "
              "input.");

DEFINE_bool(refine_focal_length, true, "Refine focal lengths.");
DEFINE_bool(refine_principal_point, false, "Refine principal points.");
DEFINE_bool(refine_extra_params, true, "Refine coefficients of distortion.");
DEFINE_string(loss_function_type, "TRIVIAL",
              "Of each reprojection error: TRIVIAL, CAUCHY.");
DEFINE_double(loss_function_scale, 1.0,
              "Where the loss function turns from squares, in pixels.");
DEFINE_bool(split_pose, false,
            "Poses in two parameter blocks, as up to COLMAP 3.13, in place of "
            "one.");

DEFINE_string(solver, "ceres_ext",
              "Who solves: ceres_ext (this library under Ceres's trust-region "
              "loop), ceres (stock Ceres, with the same kind of linear "
              "solver).");
DEFINE_string(settings, "",
              "Fields of ceres_ext::Options as key=value,...: "
              "device=cuda,precision=mixed.");
DEFINE_double(eta, 1e-1,
              "Accuracy of the iterative solve of each step (the q-tolerance "
              "of Nash and Sofer).");
DEFINE_int32(max_num_iterations, 100, "Iterations of the minimizer, at most.");
DEFINE_int32(max_linear_solver_iterations, 200,
             "Iterations of the linear solver per step, at most.");
DEFINE_double(function_tolerance, 0.0,
              "Stop when the cost changes by less, relative to the cost.");
DEFINE_double(gradient_tolerance, 1e-4,
              "Stop when no component of the gradient is larger.");
DEFINE_double(parameter_tolerance, 0.0,
              "Stop when the step is shorter, relative to the parameters.");
DEFINE_int32(num_threads, -1, "Threads; -1 for one per processor.");
// clang-format on

namespace ceres_ext::colmap {
namespace {

constexpr const char kIntroduction[] =
    R"(colmap_adjuster --input_path=FOLDER --output_path=FOLDER [flags]

Refines a model of COLMAP in text form as COLMAP's bundle_adjuster does, whose
flags of the same names, behind "BundleAdjustment.", mean the same. Steps are
solved iteratively, whatever the number of images. Shows progress, then the full
report.

  colmap_adjuster --input_path=sparse/0 --output_path=refined

Exit codes:
  0  the solution is usable
  1  a flag is unknown or has a value that is not accepted
  2  the model could not be read
  3  the solve failed (the report or a message says why)
  4  the output could not be written
  5  SIGINT, SIGTERM or SIGHUP ended the solve early; the solution so far is
     usable and is written (a second signal kills)
)";

enum ExitCode {
  EXIT_USABLE_SOLUTION = 0,
  EXIT_USAGE = 1,
  EXIT_INPUT = 2,
  EXIT_SOLVE_FAILED = 3,
  EXIT_OUTPUT = 4,
  EXIT_INTERRUPTED = 5,
};

const std::vector<bal::FlagGroup>& FlagGroups() {
  static const auto* const kGroups = new std::vector<bal::FlagGroup>{
      {"Model", {"input_path", "output_path"}},
      {"Problem",
       {"refine_focal_length",
        "refine_principal_point",
        "refine_extra_params",
        "loss_function_type",
        "loss_function_scale",
        "split_pose"}},
      {"Solver",
       {"solver",
        "settings",
        "eta",
        "max_num_iterations",
        "max_linear_solver_iterations",
        "function_tolerance",
        "gradient_tolerance",
        "parameter_tolerance",
        "num_threads"}},
  };
  return *kGroups;
}

ExitCode Fail(ExitCode code, const std::string& error) {
  std::cout.flush();
  std::cerr << "colmap_adjuster: " << error << std::endl;
  return code;
}

bool SetOptions(ProblemOptions* problem_options,
                ceres::Solver::Options* options,
                ceres_ext::Options* ext_options,
                std::string* error) {
  const auto fail = [error](const char* flag,
                            const char* expected,
                            const std::string& found) {
    *error = std::string("--") + flag + ": expected " + expected + ", found " +
             found;
    return false;
  };
  if (FLAGS_input_path.empty()) {
    return fail("input_path", "the name of a folder", "none; see --help");
  }
  if (FLAGS_output_path.empty()) {
    return fail("output_path", "the name of a folder", "none; see --help");
  }
  problem_options->split_pose = FLAGS_split_pose;
  problem_options->refine_focal_length = FLAGS_refine_focal_length;
  problem_options->refine_principal_point = FLAGS_refine_principal_point;
  problem_options->refine_extra_params = FLAGS_refine_extra_params;
  problem_options->loss_scale = FLAGS_loss_function_scale;
  if (FLAGS_loss_function_type == "CAUCHY") {
    problem_options->loss = LOSS_CAUCHY;
  } else if (FLAGS_loss_function_type != "TRIVIAL") {
    return fail("loss_function_type",
                "one of TRIVIAL, CAUCHY",
                "'" + FLAGS_loss_function_type + "'");
  }
  if (!(FLAGS_loss_function_scale > 0.0 &&
        std::isfinite(FLAGS_loss_function_scale))) {
    return fail("loss_function_scale",
                "a number above 0",
                std::to_string(FLAGS_loss_function_scale));
  }
  if (FLAGS_num_threads != -1 && FLAGS_num_threads < 1) {
    return fail("num_threads",
                "-1 or a number >= 1",
                std::to_string(FLAGS_num_threads));
  }
  if (FLAGS_solver != "ceres_ext" && FLAGS_solver != "ceres") {
    return fail("solver", "one of ceres_ext, ceres", "'" + FLAGS_solver + "'");
  }
  if (!FLAGS_settings.empty() &&
      !ParseOptions(FLAGS_settings, ext_options, error)) {
    *error = "--settings: " + *error;
    return false;
  }
  if (FLAGS_solver == "ceres") {
    ext_options->enabled = false;
  }
  options->linear_solver_type = ceres::ITERATIVE_SCHUR;
  options->preconditioner_type = ceres::SCHUR_JACOBI;
  options->eta = FLAGS_eta;
  options->max_num_iterations = FLAGS_max_num_iterations;
  options->max_linear_solver_iterations = FLAGS_max_linear_solver_iterations;
  options->function_tolerance = FLAGS_function_tolerance;
  options->gradient_tolerance = FLAGS_gradient_tolerance;
  options->parameter_tolerance = FLAGS_parameter_tolerance;
  options->num_threads =
      FLAGS_num_threads != -1
          ? FLAGS_num_threads
          : std::max<int>(1, std::thread::hardware_concurrency());
  options->minimizer_progress_to_stdout = true;
  return options->IsValid(error);
}

ExitCode Run() {
  std::string error;
  ProblemOptions problem_options;
  ceres::Solver::Options options;
  ceres_ext::Options ext_options;
  if (!SetOptions(&problem_options, &options, &ext_options, &error)) {
    return Fail(EXIT_USAGE, error);
  }
  if (!CanWriteModel(FLAGS_output_path, &error)) {
    return Fail(EXIT_OUTPUT, error);
  }
  Model model;
  if (!ReadModel(WithoutSlashes(FLAGS_input_path), &model, &error)) {
    return Fail(EXIT_INPUT, error);
  }
  std::cout << FLAGS_input_path << ": " << model.cameras.size() << " cameras, "
            << model.images.size() << " images, " << model.points.size()
            << " points, " << model.point_index.size() << " 2D points"
            << std::endl;

  ceres::Problem problem;
  BuildProblem(problem_options, &model, &problem);
  bal::SolveControl control;
  control.is_interrupted = bal::IsInterrupted;
  ceres_ext::Summary summary;
  bal::SetSignalPhase(bal::SIGNAL_ENDS_SOLVE);
  bal::SolveInSegments(options, ext_options, &problem, &control, &summary);
  bal::SetSignalPhase(bal::SIGNAL_WAITS);
  std::cout << summary.FullReport() << std::endl;
  if (!summary.IsSolutionUsable()) {
    return Fail(EXIT_SOLVE_FAILED, "the solve failed: " + summary.message);
  }
  UpdateErrors(&model);
  if (!WriteModel(FLAGS_output_path, model, &error) ||
      !bal::FlushStandardOutput(&error)) {
    return Fail(EXIT_OUTPUT, error);
  }
  return control.was_interrupted ? EXIT_INTERRUPTED : EXIT_USABLE_SOLUTION;
}

int Main(int argc, char** argv) {
  // Ceres's warnings go to the terminal, not to files in /tmp.
  FLAGS_logtostderr = true;
  gflags::SetVersionString(CERES_EXT_VERSION);
  bal::ParseFlagsOrExit(kIntroduction, __FILE__, FlagGroups(), &argc, &argv);
  google::InitGoogleLogging(argv[0]);
  bal::HandleSignals("colmap_adjuster");
  try {
    return Run();
  } catch (const std::bad_alloc&) {
    return Fail(EXIT_SOLVE_FAILED,
                "expected a model that fits in memory, found no more memory");
  }
}

}  // namespace
}  // namespace ceres_ext::colmap

int main(int argc, char** argv) { return ceres_ext::colmap::Main(argc, argv); }
