// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/adjuster_flags.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ceres/solver.h"
#include "ceres/types.h"
#include "ceres_ext/options.h"
#include "examples/bal/flag_help.h"

// clang-format off
DEFINE_string(input, "",
              "Problem to solve, in BAL format: plain text, gzip or bzip2, "
              "which its first bytes tell. /dev/stdin works.");
DEFINE_bool(use_quaternions, false,
            "Represent rotations by quaternions (10 parameters per camera) in "
            "place of angle-axis vectors (9 parameters).");
DEFINE_bool(use_manifolds, false,
            "Keep quaternions at unit length by a manifold. Needs "
            "--use_quaternions.");
DEFINE_bool(robustify, false,
            "Huber's loss, one pixel wide, on every observation.");
DEFINE_string(cost_function, "analytic",
              "Derivatives of the reprojection error: analytic (this "
              "library's), autodiff (ceres::Jet).");

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

DEFINE_string(initial_ply, "",
              "Write cameras and points as read from --input to this PLY file.");
DEFINE_string(final_ply, "",
              "Write the refined cameras and points to this PLY file, in the "
              "frame of the input.");
DEFINE_string(output, "",
              "Write the refined problem to this BAL file, in the frame of the "
              "input; compressed if the name ends in .gz or .bz2.");
DEFINE_string(report_json, "",
              "Write problem, flags, summary and iterations to this JSON "
              "file.");

DEFINE_string(checkpoint, "",
              "Write what --resume needs to this file: in the solve, at its end "
              "and when a signal ends it.");
DEFINE_double(checkpoint_seconds, 600.0,
              "Seconds between checkpoints in the solve, at least. Each costs "
              "one set-up and one evaluation.");
DEFINE_string(resume, "",
              "Go on from this checkpoint of --input's problem, whose own "
              "cameras and points are then not used; --num_iterations counts "
              "those before it too. May be the file of --checkpoint.");

DEFINE_string(solver, "ceres_ext",
              "Who solves: ceres_ext (this library under Ceres's trust-region "
              "loop, stock Ceres where it does not support the problem), ceres "
              "(stock Ceres alone).");
DEFINE_string(device, "auto",
              "Where ceres_ext runs: auto (a device where the problem seems "
              "large enough for one), host, cuda.");
DEFINE_int32(cuda_device, 0, "The number of the CUDA device of ceres_ext.");
DEFINE_int64(cuda_memory_limit_bytes, 0,
             "Most bytes that ceres_ext may hold on the device; 0: no limit. A "
             "problem that needs more is solved on the host.");
DEFINE_bool(cuda_graph, false,
            "Run PCG of ceres_ext as a CUDA graph that repeats itself.");
DEFINE_string(precision, "double",
              "What ceres_ext keeps per observation on a device: double, mixed "
              "(float; state, cost, gradient and sums stay double).");
DEFINE_bool(batch_evaluation, true,
            "Let ceres_ext evaluate residuals and Jacobians of its cost "
            "functions. If not, Ceres does.");
DEFINE_string(jacobian, "stored",
              "Jacobian blocks of ceres_ext: stored (once per step), "
              "recomputed (in every product).");
DEFINE_string(fallback, "to_ceres",
              "What ceres_ext does with a problem that it does not support: "
              "to_ceres (stock Ceres solves it, the report says so), refuse.");

DEFINE_string(linear_solver, "iterative_schur",
              "iterative_schur, cgnr (both also by ceres_ext), sparse_schur, "
              "dense_schur, sparse_normal_cholesky, dense_normal_cholesky, "
              "dense_qr.");
DEFINE_string(preconditioner, "automatic",
              "automatic (schur_jacobi for iterative_schur, jacobi for cgnr), "
              "identity, jacobi, schur_jacobi (these also by ceres_ext), "
              "schur_power_series_expansion, cluster_jacobi, "
              "cluster_tridiagonal.");
DEFINE_double(eta, 1e-2,
              "Accuracy of the iterative solve of each step (the q-tolerance "
              "of Nash and Sofer).");
DEFINE_int32(max_linear_solver_iterations, 500,
             "Iterations of the linear solver per step, at most.");
DEFINE_bool(explicit_schur_complement, false,
            "With iterative_schur, form the Schur complement.");
DEFINE_string(linear_solver_ordering, "user",
              "user (points are eliminated first), automatic.");
DEFINE_string(ordering_type, "amd",
              "Fill-reducing ordering of sparse factorisations: amd, nesdis.");
DEFINE_string(sparse_linear_algebra_library, "suite_sparse",
              "suite_sparse, eigen_sparse, accelerate_sparse, cuda_sparse.");
DEFINE_string(dense_linear_algebra_library, "eigen",
              "eigen, lapack, cuda.");
DEFINE_string(visibility_clustering, "canonical_views",
              "Clusters of cluster_jacobi and cluster_tridiagonal: "
              "canonical_views, single_linkage.");
DEFINE_bool(use_spse_initialization, false,
            "Start iterative_schur from a power series expansion.");
DEFINE_double(spse_tolerance, 0.1,
              "Tolerance of the power series expansion.");
DEFINE_int32(max_num_spse_iterations, 5,
             "Iterations of the power series expansion, at most.");
DEFINE_bool(mixed_precision_solves, false,
            "Factorise in single precision and refine (direct solvers).");
DEFINE_int32(max_num_refinement_iterations, 0,
             "Iterations of that refinement, at most.");

DEFINE_int32(num_iterations, 5, "Iterations of the minimizer, at most.");
DEFINE_int32(num_threads, -1, "Threads; -1 for one per processor.");
DEFINE_double(max_solver_time, 1e32, "Seconds of the minimizer, at most.");
DEFINE_double(function_tolerance, 1e-16,
              "Stop when the cost changes by less, relative to the cost.");
DEFINE_double(gradient_tolerance, 1e-16,
              "Stop when no component of the gradient is larger.");
DEFINE_double(parameter_tolerance, 1e-16,
              "Stop when the step is shorter, relative to the parameters.");
DEFINE_string(trust_region_strategy, "levenberg_marquardt",
              "levenberg_marquardt, dogleg.");
DEFINE_string(dogleg, "traditional_dogleg",
              "traditional_dogleg, subspace_dogleg.");
DEFINE_bool(nonmonotonic_steps, false,
            "Let the cost rise for a few steps.");
DEFINE_bool(line_search, false,
            "Minimize by line search in place of a trust region.");
DEFINE_bool(inner_iterations, false,
            "Refine some of the blocks by themselves after each successful "
            "step.");
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

Exit codes:
  0  the solution is usable
  1  a flag is unknown or has a value that is not accepted
  2  the input or the checkpoint to resume from could not be read
  3  the solve failed (the report or a message says why)
  4  an output could not be written; the others are
  5  SIGINT, SIGTERM or SIGHUP ended the solve early; the solution so far is
     usable and all outputs hold it (a second signal kills)
)";

const std::vector<FlagGroup>& FlagGroups() {
  static const auto* const kGroups = new std::vector<FlagGroup>{
      {"Problem",
       {"input",
        "use_quaternions",
        "use_manifolds",
        "cost_function",
        "robustify"}},
      {"Output", {"report_json", "output", "initial_ply", "final_ply"}},
      {"Long runs", {"checkpoint", "checkpoint_seconds", "resume"}},
      {"Solver",
       {"solver",
        "device",
        "cuda_device",
        "cuda_memory_limit_bytes",
        "cuda_graph",
        "precision",
        "jacobian",
        "batch_evaluation",
        "fallback"}},
      {"Linear solver",
       {"linear_solver",
        "preconditioner",
        "eta",
        "max_linear_solver_iterations",
        "explicit_schur_complement",
        "linear_solver_ordering",
        "ordering_type",
        "sparse_linear_algebra_library",
        "dense_linear_algebra_library",
        "visibility_clustering",
        "use_spse_initialization",
        "spse_tolerance",
        "max_num_spse_iterations",
        "mixed_precision_solves",
        "max_num_refinement_iterations"}},
      {"Minimizer",
       {"num_iterations",
        "num_threads",
        "max_solver_time",
        "function_tolerance",
        "gradient_tolerance",
        "parameter_tolerance",
        "trust_region_strategy",
        "dogleg",
        "nonmonotonic_steps",
        "line_search",
        "inner_iterations",
        "blocks_for_inner_iterations"}},
      {"Noise added to the start",
       {"rotation_sigma", "translation_sigma", "point_sigma", "random_seed"}},
  };
  return *kGroups;
}

template <typename Enum>
struct EnumName {
  const char* name;
  Enum value;
};

// Case does not matter, as in Ceres.
template <typename Enum>
bool ParseEnum(const char* flag,
               const std::string& text,
               const std::vector<EnumName<Enum>>& names,
               Enum* value,
               std::string* error) {
  std::string lower = text;
  std::transform(
      lower.begin(), lower.end(), lower.begin(), [](unsigned char c) {
        return std::tolower(c);
      });
  std::string accepted;
  for (const EnumName<Enum>& entry : names) {
    if (lower == entry.name) {
      *value = entry.value;
      return true;
    }
    accepted += (accepted.empty() ? "" : ", ") + std::string(entry.name);
  }
  *error = std::string("--") + flag + ": expected one of " + accepted +
           ", found '" + text + "'";
  return false;
}

bool CheckNotNegative(const char* flag, double value, std::string* error) {
  if (std::isfinite(value) && value >= 0.0) {
    return true;
  }
  *error = std::string("--") + flag + ": expected a number >= 0, found " +
           std::to_string(value);
  return false;
}

bool SetLinearSolver(ceres::Solver::Options* options, std::string* error) {
  if (!ParseEnum<ceres::LinearSolverType>(
          "linear_solver",
          FLAGS_linear_solver,
          {{"iterative_schur", ceres::ITERATIVE_SCHUR},
           {"cgnr", ceres::CGNR},
           {"sparse_schur", ceres::SPARSE_SCHUR},
           {"dense_schur", ceres::DENSE_SCHUR},
           {"sparse_normal_cholesky", ceres::SPARSE_NORMAL_CHOLESKY},
           {"dense_normal_cholesky", ceres::DENSE_NORMAL_CHOLESKY},
           {"dense_qr", ceres::DENSE_QR}},
          &options->linear_solver_type,
          error) ||
      !ParseEnum<ceres::PreconditionerType>(
          "preconditioner",
          FLAGS_preconditioner,
          {{"automatic",
            options->linear_solver_type == ceres::ITERATIVE_SCHUR
                ? ceres::SCHUR_JACOBI
                : ceres::JACOBI},
           {"identity", ceres::IDENTITY},
           {"jacobi", ceres::JACOBI},
           {"schur_jacobi", ceres::SCHUR_JACOBI},
           {"schur_power_series_expansion",
            ceres::SCHUR_POWER_SERIES_EXPANSION},
           {"cluster_jacobi", ceres::CLUSTER_JACOBI},
           {"cluster_tridiagonal", ceres::CLUSTER_TRIDIAGONAL}},
          &options->preconditioner_type,
          error) ||
      !ParseEnum<ceres::VisibilityClusteringType>(
          "visibility_clustering",
          FLAGS_visibility_clustering,
          {{"canonical_views", ceres::CANONICAL_VIEWS},
           {"single_linkage", ceres::SINGLE_LINKAGE}},
          &options->visibility_clustering_type,
          error) ||
      !ParseEnum<ceres::SparseLinearAlgebraLibraryType>(
          "sparse_linear_algebra_library",
          FLAGS_sparse_linear_algebra_library,
          {{"suite_sparse", ceres::SUITE_SPARSE},
           {"eigen_sparse", ceres::EIGEN_SPARSE},
           {"accelerate_sparse", ceres::ACCELERATE_SPARSE},
           {"cuda_sparse", ceres::CUDA_SPARSE}},
          &options->sparse_linear_algebra_library_type,
          error) ||
      !ParseEnum<ceres::DenseLinearAlgebraLibraryType>(
          "dense_linear_algebra_library",
          FLAGS_dense_linear_algebra_library,
          {{"eigen", ceres::EIGEN},
           {"lapack", ceres::LAPACK},
           {"cuda", ceres::CUDA}},
          &options->dense_linear_algebra_library_type,
          error) ||
      !ParseEnum<ceres::LinearSolverOrderingType>(
          "ordering_type",
          FLAGS_ordering_type,
          {{"amd", ceres::AMD}, {"nesdis", ceres::NESDIS}},
          &options->linear_solver_ordering_type,
          error)) {
    return false;
  }
  options->eta = FLAGS_eta;
  options->max_linear_solver_iterations = FLAGS_max_linear_solver_iterations;
  options->use_explicit_schur_complement = FLAGS_explicit_schur_complement;
  options->use_spse_initialization = FLAGS_use_spse_initialization;
  options->spse_tolerance = FLAGS_spse_tolerance;
  options->max_num_spse_iterations = FLAGS_max_num_spse_iterations;
  options->use_mixed_precision_solves = FLAGS_mixed_precision_solves;
  options->max_num_refinement_iterations = FLAGS_max_num_refinement_iterations;
  return true;
}

bool SetMinimizer(ceres::Solver::Options* options, std::string* error) {
  options->minimizer_progress_to_stdout = true;
  options->max_num_iterations = FLAGS_num_iterations;
  if (FLAGS_num_threads != -1 && FLAGS_num_threads < 1) {
    *error = "--num_threads: expected -1 or a number >= 1, found " +
             std::to_string(FLAGS_num_threads);
    return false;
  }
  options->num_threads =
      FLAGS_num_threads != -1
          ? FLAGS_num_threads
          : std::max<int>(1, std::thread::hardware_concurrency());
  options->max_solver_time_in_seconds = FLAGS_max_solver_time;
  options->function_tolerance = FLAGS_function_tolerance;
  options->gradient_tolerance = FLAGS_gradient_tolerance;
  options->parameter_tolerance = FLAGS_parameter_tolerance;
  options->use_nonmonotonic_steps = FLAGS_nonmonotonic_steps;
  options->use_inner_iterations = FLAGS_inner_iterations;
  if (FLAGS_line_search) {
    options->minimizer_type = ceres::LINE_SEARCH;
  }
  return ParseEnum<ceres::TrustRegionStrategyType>(
             "trust_region_strategy",
             FLAGS_trust_region_strategy,
             {{"levenberg_marquardt", ceres::LEVENBERG_MARQUARDT},
              {"dogleg", ceres::DOGLEG}},
             &options->trust_region_strategy_type,
             error) &&
         ParseEnum<ceres::DoglegType>(
             "dogleg",
             FLAGS_dogleg,
             {{"traditional_dogleg", ceres::TRADITIONAL_DOGLEG},
              {"subspace_dogleg", ceres::SUBSPACE_DOGLEG}},
             &options->dogleg_type,
             error);
}

// The flags bear the names that ceres_ext::ParseOptions knows.
bool SetExtOptions(ceres_ext::Options* options, std::string* error) {
  const std::string settings =
      "device=" + FLAGS_device +
      ",cuda_device=" + std::to_string(FLAGS_cuda_device) +
      ",cuda_memory_limit_bytes=" +
      std::to_string(FLAGS_cuda_memory_limit_bytes) +
      ",cuda_graph=" + (FLAGS_cuda_graph ? "true" : "false") +
      ",precision=" + FLAGS_precision +
      ",batch_evaluation=" + (FLAGS_batch_evaluation ? "true" : "false") +
      ",jacobian=" + FLAGS_jacobian + ",fallback=" + FLAGS_fallback;
  return ParseEnum<bool>("solver",
                         FLAGS_solver,
                         {{"ceres_ext", true}, {"ceres", false}},
                         &options->enabled,
                         error) &&
         ceres_ext::ParseOptions(settings, options, error);
}

}  // namespace

bool SolveOptionsFromFlags(SolveBalOptions* options, std::string* error) {
  if (FLAGS_input.empty()) {
    *error = "--input: expected the name of a BAL file, found none; see --help";
    return false;
  }
  if (FLAGS_use_manifolds && !FLAGS_use_quaternions) {
    *error = "--use_manifolds: expected --use_quaternions too, found none";
    return false;
  }
  if (!FLAGS_resume.empty() &&
      (FLAGS_rotation_sigma != 0.0 || FLAGS_translation_sigma != 0.0 ||
       FLAGS_point_sigma != 0.0)) {
    *error =
        "--resume: expected no noise added to the start, found "
        "--rotation_sigma, --translation_sigma or --point_sigma";
    return false;
  }
  if (FLAGS_line_search && !(FLAGS_checkpoint + FLAGS_resume).empty()) {
    *error =
        "--line_search: expected neither --checkpoint nor --resume, which hold "
        "a trust region, found one";
    return false;
  }
  if (FLAGS_checkpoint.empty() &&
      !gflags::GetCommandLineFlagInfoOrDie("checkpoint_seconds").is_default) {
    *error = "--checkpoint_seconds: expected --checkpoint too, found none";
    return false;
  }
  options->robustify = FLAGS_robustify;
  options->use_manifolds = FLAGS_use_manifolds;
  return ParseEnum<CostFunctionType>("cost_function",
                                     FLAGS_cost_function,
                                     {{"analytic", COST_FUNCTION_ANALYTIC},
                                      {"autodiff", COST_FUNCTION_AUTODIFF}},
                                     &options->cost_function,
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
         CheckNotNegative(
             "checkpoint_seconds", FLAGS_checkpoint_seconds, error) &&
         SetExtOptions(&options->ext_options, error) &&
         SetMinimizer(&options->solver_options, error) &&
         SetLinearSolver(&options->solver_options, error) &&
         options->solver_options.IsValid(error);
}

void ParseAdjusterFlags(int* argc, char*** argv) {
  ParseFlagsOrExit(kIntroduction, __FILE__, FlagGroups(), argc, argv);
}

std::vector<std::pair<std::string, std::string>> AdjusterFlagValues() {
  return FlagValues(__FILE__);
}

}  // namespace ceres_ext::bal
