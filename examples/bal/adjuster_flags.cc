// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/adjuster_flags.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "examples/bal/flag_enum.h"
#include "examples/bal/flag_help.h"
#include "examples/bal/solver_flags.h"
#include "problem_io/number_text.h"

// clang-format off
DEFINE_string(input, "",
              "Problem to solve, in BAL format: plain text, gzip, bzip2 or "
              ".npz, detected by its first bytes. /dev/stdin works.");
DEFINE_string(batch, "",
              "A folder, instead of --input: all its files are solved as one "
              "batch of small problems (docs/batch.md). --output is then a "
              "folder, to which the refined problems are written under their "
              "names.");
DEFINE_bool(use_quaternions, false,
            "Represent rotations by quaternions (10 parameters per camera) "
            "instead of angle-axis vectors (9 parameters).");
DEFINE_bool(use_manifolds, false,
            "Keep quaternions at unit length by a manifold. Needs "
            "--use_quaternions.");
DEFINE_bool(robustify, false,
            "Huber's loss, one pixel wide, on every observation.");
DEFINE_string(cost_function, "analytic",
              "Derivatives of the reprojection error: analytic (this "
              "library's), autodiff (ceres::Jet, by Ceres on the host), "
              "device_autodiff (the same functor, by this library).");
DEFINE_string(problem, "arrays",
              "The input of the solver: arrays (if --cost_function is "
              "analytic, --solver is ceres_ext, and without "
              "--inner_iterations; otherwise as ceres) or ceres (a "
              "ceres::Problem, an object for each residual block).");

DEFINE_double(rotation_sigma, 0.0,
              "Standard deviation of the noise added to the angle-axis vector "
              "of each camera, in radians.");
DEFINE_double(translation_sigma, 0.0,
              "Standard deviation of the noise added to each camera's "
              "translation, in the normalised frame.");
DEFINE_double(point_sigma, 0.0,
              "Standard deviation of the noise added to each point, in the "
              "normalised frame.");
DEFINE_int32(random_seed, 38401, "Seed of the noise.");

DEFINE_string(output, "",
              "Write the refined problem to this BAL file, in the frame of the "
              "input; compressed if the name ends in .gz or .bz2, binary if it "
              "ends in .npz.");

DEFINE_bool(report_problem, false,
            "Add the residuals, the worst cameras and points and a sample of "
            "the positions to --report_json. solve_page.py plots them.");

DEFINE_string(linear_solver_ordering, "user",
              "user (points are eliminated first), automatic.");

DEFINE_int32(num_iterations, 5, "Iterations of the minimizer, at most.");
DEFINE_string(blocks_for_inner_iterations, "automatic",
              "automatic, cameras, points, cameras,points, points,cameras.");
// clang-format on

namespace ceres_ext::bal {
namespace {

constexpr const char kIntroduction[] =
    R"(bundle_adjuster --input=FILE [flags]

Refines cameras and points of a problem of the "Bundle Adjustment in the Large"
kind by Ceres's trust-region loop, with the linear solver and the cost functions
of Ceres Ext (--solver=ceres_ext) or with Ceres alone (--solver=ceres). Shows
progress, then the full report.

  bundle_adjuster --input=problem-16-22106-pre.txt --num_iterations=50
  bundle_adjuster --batch=WINDOWS --output=REFINED

Exit codes:
  0  the solution is usable
  1  a flag is unknown or has a value that is not accepted
  2  the input could not be read
  3  the solve failed (the report or a message says why), or --covariance did
  4  an output could not be written; the others are
  5  SIGINT, SIGTERM or SIGHUP ended the solve early; the solution so far is
     usable and all outputs hold it (a second signal kills)
)";

const std::vector<FlagGroup>& FlagGroups() {
  static const auto* const kGroups = [] {
    auto* groups = new std::vector<FlagGroup>{
        {"Problem",
         {"input",
          "batch",
          "use_quaternions",
          "use_manifolds",
          "cost_function",
          "problem",
          "robustify"}},
        {"Output", {"output", "report_problem"}},
        {"Solver", {}},
        {"Linear solver", {"linear_solver_ordering"}},
        {"Minimizer", {"num_iterations", "blocks_for_inner_iterations"}},
        {"Noise added to the start",
         {"rotation_sigma", "translation_sigma", "point_sigma", "random_seed"}},
    };
    AddSolverFlags(groups);
    return groups;
  }();
  return *kGroups;
}

bool CheckNotNegative(const char* flag, double value, std::string* error) {
  if (std::isfinite(value) && value >= 0.0) {
    return true;
  }
  *error = std::string("--") + flag + ": expected a number >= 0, found " +
           NumberText(value);
  return false;
}

// Refuses flags that --batch does not support.
bool CheckFlagsOfBatch(std::string* error) {
  for (const char* flag : {"input",
                           "covariance",
                           "initial_ply",
                           "final_ply",
                           "report_problem",
                           "warm_up",
                           "cost_function",
                           "problem",
                           "linear_solver_ordering",
                           "blocks_for_inner_iterations"}) {
    if (!gflags::GetCommandLineFlagInfoOrDie(flag).is_default) {
      *error = std::string("--") + flag + ": not available with --batch";
      return false;
    }
  }
  return true;
}

}  // namespace

bool SolveOptionsFromFlags(SolveBalOptions* options, std::string* error) {
  if (!FLAGS_batch.empty()) {
    if (!CheckFlagsOfBatch(error)) {
      return false;
    }
  } else if (FLAGS_input.empty()) {
    *error = "--input: expected the name of a BAL file, found none; see --help";
    return false;
  }
  if (FLAGS_use_manifolds && !FLAGS_use_quaternions) {
    *error = "--use_manifolds: expected --use_quaternions too, found none";
    return false;
  }
  if (FLAGS_report_problem && FLAGS_report_json.empty()) {
    *error = "--report_problem: expected --report_json too, found none";
    return false;
  }
  options->solver_options.max_num_iterations = FLAGS_num_iterations;
  options->robustify = FLAGS_robustify;
  options->use_manifolds = FLAGS_use_manifolds;
  return ParseEnum<CostFunctionType>(
             "cost_function",
             FLAGS_cost_function,
             {{"analytic", COST_FUNCTION_ANALYTIC},
              {"autodiff", COST_FUNCTION_AUTODIFF},
              {"device_autodiff", COST_FUNCTION_DEVICE_AUTODIFF}},
             &options->cost_function,
             error) &&
         ParseEnum<ProblemType>(
             "problem",
             FLAGS_problem,
             {{"arrays", PROBLEM_ARRAYS}, {"ceres", PROBLEM_CERES}},
             &options->problem,
             error) &&
         ParseEnum<LinearSolverOrdering>(
             "linear_solver_ordering",
             FLAGS_linear_solver_ordering,
             {{"user", ORDERING_USER}, {"automatic", ORDERING_AUTOMATIC}},
             &options->ordering,
             error) &&
         ParseEnum<InnerIterationBlocks>(
             "blocks_for_inner_iterations",
             FLAGS_blocks_for_inner_iterations,
             {{"automatic", INNER_AUTOMATIC},
              {"cameras", INNER_CAMERAS},
              {"points", INNER_POINTS},
              {"cameras,points", INNER_CAMERAS_POINTS},
              {"points,cameras", INNER_POINTS_CAMERAS}},
             &options->inner_iteration_blocks,
             error) &&
         CheckNotNegative("rotation_sigma", FLAGS_rotation_sigma, error) &&
         CheckNotNegative(
             "translation_sigma", FLAGS_translation_sigma, error) &&
         CheckNotNegative("point_sigma", FLAGS_point_sigma, error) &&
         SolverOptionsFromFlags(
             &options->solver_options, &options->ext_options, error) &&
         options->solver_options.IsValid(error);
}

Similarity StartFromFlags(BalProblem* problem) {
  if (FLAGS_use_quaternions) {
    ToQuaternions(problem);
  }
  const Similarity frame = Normalize(problem);
  Perturb(FLAGS_rotation_sigma,
          FLAGS_translation_sigma,
          FLAGS_point_sigma,
          static_cast<uint32_t>(FLAGS_random_seed),
          problem);
  return frame;
}

AdjusterProgram BundleAdjusterProgram() {
  return {
      "bundle_adjuster", "a problem", kIntroduction, __FILE__, FlagGroups()};
}

}  // namespace ceres_ext::bal
