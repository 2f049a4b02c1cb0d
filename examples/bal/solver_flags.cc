// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/solver_flags.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "ceres/solver.h"
#include "ceres/types.h"
#include "ceres_ext/options.h"
#include "cuda_kernels/machine/host_processors.h"
#include "examples/bal/flag_enum.h"
#include "examples/bal/flag_help.h"

// clang-format off
DEFINE_string(report_json, "",
              "Write problem, flags, summary and iterations to this JSON "
              "file.");
DEFINE_string(report_html, "",
              "Write a page with summary and plots to this HTML file, which "
              "needs no other.");
DEFINE_string(initial_ply, "",
              "Write cameras and points as read to this PLY file.");
DEFINE_string(final_ply, "",
              "Write the refined cameras and points to this PLY file, in the "
              "frame of the input.");

DEFINE_string(solver, "ceres_ext",
              "Which solver: ceres_ext (this library under Ceres's trust-region "
              "loop, stock Ceres where it does not support the problem), ceres "
              "(stock Ceres alone).");
DEFINE_string(device, "auto",
              "Where ceres_ext runs: auto (a device where the problem seems "
              "large enough for one), host, cuda.");
DEFINE_int32(cuda_device, 0, "The number of the CUDA device of ceres_ext.");
DEFINE_int64(cuda_memory_limit_bytes, 0,
             "Most bytes that ceres_ext may hold on the device; 0: no limit. A "
             "problem that needs more is solved on the host.");
DEFINE_string(cuda_graph, "auto",
              "Run PCG of ceres_ext as a CUDA graph that repeats itself: auto "
              "(unless a profiler, sanitizer or debugger is found), on, off.");
DEFINE_string(precision, "double",
              "What ceres_ext keeps per observation on a device: double, mixed "
              "(float; state, cost, gradient and sums stay double).");
DEFINE_bool(batch_evaluation, true,
            "Let ceres_ext evaluate residuals and Jacobians of its cost "
            "functions. If not, Ceres does.");
DEFINE_string(jacobian, "auto",
              "Jacobian blocks of ceres_ext: stored (once per step), "
              "recomputed (in every product), auto (recomputed on a device that "
              "gains by it, of this library's cost functions).");
DEFINE_string(fallback, "to_ceres",
              "What ceres_ext does with a problem that it does not support: "
              "to_ceres (stock Ceres solves it, the report says so), refuse.");

DEFINE_string(linear_solver, "iterative_schur",
              "iterative_schur, cgnr (both also by ceres_ext), sparse_schur, "
              "dense_schur (on a device also by ceres_ext), sparse_normal_cholesky, dense_normal_cholesky, "
              "dense_qr.");
DEFINE_string(preconditioner, "automatic",
              "automatic (schur_jacobi for iterative_schur, jacobi for cgnr), "
              "identity, jacobi, schur_jacobi (these also by ceres_ext), "
              "schur_power_series_expansion, cluster_jacobi, "
              "cluster_tridiagonal.");
DEFINE_string(preconditioner_blocks, "merged",
              "Blocks of jacobi and schur_jacobi of ceres_ext: merged "
              "(parameter blocks that occur only together are one), single.");
DEFINE_double(eta, 1e-2,
              "Accuracy of the iterative solve of each step (the q-tolerance "
              "of Nash and Sofer).");
DEFINE_string(forcing_sequence, "auto",
              "Accuracy of the solve of each step by ceres_ext: auto "
              "(model_cost where preconditioner blocks are merged, else "
              "constant), constant (eta, as Ceres), model_cost (eta, and more "
              "accurate where a step takes most of the linear model's cost "
              "away), eisenstat_walker "
              "(from eta down to eta / 100, as fast as the gradient falls).");
DEFINE_double(model_cost_tolerance, -1.0,
              "With eta below 0.1 ceres_ext ends the solve of a step with 0.1 "
              "where less than this times the cost is left to gain; 0 or below: "
              "never.");
DEFINE_int32(max_linear_solver_iterations, 500,
             "Iterations of the linear solver per step, at most.");
DEFINE_bool(explicit_schur_complement, false,
            "With iterative_schur, form the Schur complement.");
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
DEFINE_string(schur_factorization, "auto",
              "Factorisation of dense_schur and sparse_schur by ceres_ext on a "
              "device: dense, sparse (needs cuDSS), auto (the one that should "
              "be faster).");
DEFINE_bool(mixed_precision_solves, false,
            "Factorise in single precision and refine (direct solvers).");
DEFINE_int32(max_num_refinement_iterations, 0,
             "Iterations of that refinement, at most.");

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
// clang-format on

namespace ceres_ext::bal {
namespace {

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
  if (FLAGS_num_threads != -1 && FLAGS_num_threads < 1) {
    *error = "--num_threads: expected -1 or a number >= 1, found " +
             std::to_string(FLAGS_num_threads);
    return false;
  }
  options->num_threads = FLAGS_num_threads != -1
                             ? FLAGS_num_threads
                             : kernels::NumUsableProcessors();
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

// The flags bear the names that ceres_ext::ParseOptions knows. Its sentence
// about a value begins with the name.
bool SetExtOptions(ceres_ext::Options* options, std::string* error) {
  const std::pair<std::string, std::string> kSettings[] = {
      {"device", FLAGS_device},
      {"cuda_device", std::to_string(FLAGS_cuda_device)},
      {"cuda_memory_limit_bytes",
       std::to_string(FLAGS_cuda_memory_limit_bytes)},
      {"cuda_graph", FLAGS_cuda_graph},
      {"precision", FLAGS_precision},
      {"preconditioner_blocks", FLAGS_preconditioner_blocks},
      {"forcing_sequence", FLAGS_forcing_sequence},
      {"schur_factorization", FLAGS_schur_factorization},
      {"batch_evaluation", FLAGS_batch_evaluation ? "true" : "false"},
      {"jacobian", FLAGS_jacobian},
      {"fallback", FLAGS_fallback}};
  options->model_cost_tolerance = FLAGS_model_cost_tolerance;
  if (!ParseEnum<bool>("solver",
                       FLAGS_solver,
                       {{"ceres_ext", true}, {"ceres", false}},
                       &options->enabled,
                       error)) {
    return false;
  }
  for (const auto& [flag, value] : kSettings) {
    if (value.find(',') != std::string::npos) {
      *error = "--" + flag + ": expected one name, found '" + value + "'";
      return false;
    }
    if (!ceres_ext::ParseOptions(flag + "=" + value, options, error)) {
      *error = (error->rfind(flag + ":", 0) == 0 ? "--" : "") + *error;
      return false;
    }
  }
  return true;
}

}  // namespace

void AddSolverFlags(std::vector<FlagGroup>* groups) {
  const std::vector<FlagGroup> kGroups = {
      {"Output", {"report_json", "report_html", "initial_ply", "final_ply"}},
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
        "preconditioner_blocks",
        "eta",
        "forcing_sequence",
        "model_cost_tolerance",
        "max_linear_solver_iterations",
        "explicit_schur_complement",
        "ordering_type",
        "sparse_linear_algebra_library",
        "dense_linear_algebra_library",
        "visibility_clustering",
        "use_spse_initialization",
        "spse_tolerance",
        "max_num_spse_iterations",
        "schur_factorization",
        "mixed_precision_solves",
        "max_num_refinement_iterations"}},
      {"Minimizer",
       {"num_threads",
        "max_solver_time",
        "function_tolerance",
        "gradient_tolerance",
        "parameter_tolerance",
        "trust_region_strategy",
        "dogleg",
        "nonmonotonic_steps",
        "line_search",
        "inner_iterations"}},
  };
  for (const FlagGroup& group : kGroups) {
    const auto own =
        std::find_if(groups->begin(), groups->end(), [&](const FlagGroup& g) {
          return g.title == group.title;
        });
    if (own == groups->end()) {
      groups->push_back(group);
    } else {
      own->flags.insert(
          own->flags.end(), group.flags.begin(), group.flags.end());
    }
  }
}

bool SolverOptionsFromFlags(ceres::Solver::Options* options,
                            ceres_ext::Options* ext_options,
                            std::string* error) {
  return SetExtOptions(ext_options, error) && SetMinimizer(options, error) &&
         SetLinearSolver(options, error);
}

}  // namespace ceres_ext::bal
