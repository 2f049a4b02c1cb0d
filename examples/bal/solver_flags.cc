// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/solver_flags.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "ceres/solver.h"
#include "ceres/types.h"
#include "ceres_ext/front/option_table.h"
#include "ceres_ext/options.h"
#include "ceres_ext/solve.h"
#include "cuda_kernels/machine/host_processors.h"
#include "examples/bal/flag_enum.h"
#include "examples/bal/flag_help.h"
#include "problem_io/number_text.h"

// clang-format off
DEFINE_string(report_json, "",
              "Write problem, flags, summary and iterations to this JSON "
              "file. solve_page.py makes a page with plots of it.");
DEFINE_string(initial_ply, "",
              "Write cameras and points as read to this PLY file.");
DEFINE_string(final_ply, "",
              "Write the refined cameras and points to this PLY file, in the "
              "frame of the input.");

DEFINE_string(covariance, "",
              "Write the covariances at the solution to this file, in the "
              "frame of the input: arrays if the name ends in .npz, else a "
              "table of standard deviations. The reports and --final_ply show "
              "them too.");
DEFINE_string(covariance_scale, "a_posteriori",
              "Their scale: a_posteriori (the standard deviation of an image "
              "position is estimated from the solution) or a_priori (it is one "
              "pixel).");
DEFINE_double(covariance_sigmas, 3.0,
              "Semi-axes of their ellipsoids in --final_ply, in standard "
              "deviations; it shows those of the 1000 least accurate cameras "
              "and points.");

DEFINE_string(solver, "ceres_ext",
              "Solver: ceres_ext (this library under Ceres's trust-region "
              "loop; stock Ceres if it does not support the problem) or ceres "
              "(stock Ceres).");

DEFINE_string(linear_solver, "auto",
              "auto (with ceres_ext iterative_schur or an exact step for each "
              "step, whichever should be faster; with stock Ceres "
              "iterative_schur), iterative_schur, cgnr, sparse_schur, "
              "dense_schur, sparse_normal_cholesky, dense_normal_cholesky "
              "(also with ceres_ext), dense_qr (stock Ceres only).");
DEFINE_string(preconditioner, "automatic",
              "automatic (schur_jacobi for iterative_schur, jacobi for cgnr), "
              "identity, jacobi, schur_jacobi, schur_power_series_expansion "
              "(also with ceres_ext), two_level (ceres_ext only: schur_jacobi "
              "and a second level), auto (ceres_ext only: the same once it "
              "pays off), cluster_jacobi, cluster_tridiagonal (stock Ceres "
              "only).");
DEFINE_double(eta, 1e-2,
              "Accuracy of the iterative solve of each step (the q-tolerance "
              "of Nash and Sofer).");
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
DEFINE_bool(mixed_precision_solves, false,
            "Factorise in single precision and refine (direct solvers).");
DEFINE_int32(max_num_refinement_iterations, 0,
             "Iterations of that refinement, at most.");

DEFINE_int32(num_threads, -1, "Threads; -1 for one per processor.");
DEFINE_bool(warm_up, false,
            "Start CUDA and solve once before, from the same start, so that "
            "the times do not include starting CUDA, loading kernels and "
            "allocating memory.");
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
            "Minimize by line search instead of a trust region.");
DEFINE_bool(inner_iterations, false,
            "Refine some of the blocks by themselves after each successful "
            "step.");
// clang-format on

namespace ceres_ext::bal {
namespace {

// False if the programs have more values (Ceres's), --solver or a report of
// their own.
bool IsFlag(const OptionRow& row) {
  const std::string name = row.name;
  return name != "enabled" && name != "linear_solver" &&
         name != "preconditioner" && name != "report";
}

template <typename T>
void Define(const OptionRow& row, const std::string& help, const T& value) {
  // gflags keeps pointers to all of these.
  static auto& texts = *new std::deque<std::string>;
  static auto& values = *new std::deque<T>;
  gflags::FlagRegisterer(row.name,
                         texts.emplace_back(help).c_str(),
                         __FILE__,
                         &values.emplace_back(value),
                         &values.emplace_back(value));
}

// A flag for each row.
[[maybe_unused]] const bool kAreDefined = [] {
  const ceres_ext::Options defaults;
  for (const OptionRow& row : OptionTable()) {
    if (!IsFlag(row)) {
      continue;
    }
    std::visit(
        [&](const auto& field) {
          if constexpr (std::is_same_v<std::decay_t<decltype(field)>,
                                       EnumField>) {
            Define(
                row,
                std::string(row.sentence) + " One of " + row.Accepted() + ".",
                row.Get(defaults));
          } else {
            Define(row, row.sentence, defaults.*field);
          }
        },
        row.field);
  }
  return true;
}();

// After SetMinimizer.
bool SetLinearSolver(ceres::Solver::Options* options,
                     ceres_ext::Options* ext_options,
                     std::string* error) {
  if (!ParseEnum<ceres::LinearSolverType>(
          "linear_solver",
          FLAGS_linear_solver,
          {{"auto", ceres::ITERATIVE_SCHUR},
           {"iterative_schur", ceres::ITERATIVE_SCHUR},
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
           {"two_level", ceres::SCHUR_JACOBI},
           {"auto", ceres::SCHUR_JACOBI},
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
  if (FLAGS_preconditioner == "two_level" || FLAGS_preconditioner == "auto") {
    if (FLAGS_solver == "ceres") {
      *error = "--preconditioner: " + FLAGS_preconditioner +
               " needs --solver=ceres_ext";
      return false;
    }
    ext_options->preconditioner = FLAGS_preconditioner == "auto"
                                      ? PRECONDITIONER_AUTO
                                      : PRECONDITIONER_TWO_LEVEL;
  }
  if (FLAGS_linear_solver == "auto") {
    // An option of PCG selects PCG.
    if (FLAGS_preconditioner == "automatic" && !FLAGS_use_spse_initialization &&
        !FLAGS_explicit_schur_complement) {
      ext_options->linear_solver = LINEAR_SOLVER_AUTO;
    }
    if (options->trust_region_strategy_type == ceres::DOGLEG) {
      options->linear_solver_type = ceres::SPARSE_SCHUR;  // which it needs
    }
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

bool SetExtOptions(ceres_ext::Options* options, std::string* error) {
  for (const OptionRow& row : OptionTable()) {
    if (IsFlag(row) &&
        !row.Set(gflags::GetCommandLineFlagInfoOrDie(row.name).current_value,
                 options,
                 error)) {
      *error = "--" + *error;
      return false;
    }
  }
  return ParseEnum<bool>("solver",
                         FLAGS_solver,
                         {{"ceres_ext", true}, {"ceres", false}},
                         &options->enabled,
                         error) &&
         options->IsValid(error);
}

}  // namespace

void AddSolverFlags(std::vector<FlagGroup>* groups) {
  std::vector<FlagGroup> added = {
      {"Output",
       {"report_json",
        "initial_ply",
        "final_ply",
        "covariance",
        "covariance_scale",
        "covariance_sigmas"}},
      {"Solver", {"solver"}},
      {"Linear solver", {"linear_solver", "preconditioner"}},
  };
  for (const OptionRow& row : OptionTable()) {
    if (IsFlag(row)) {
      added.push_back({row.group, {row.name}});
    }
  }
  const std::vector<FlagGroup> kLast = {
      {"Linear solver",
       {"eta",
        "max_linear_solver_iterations",
        "explicit_schur_complement",
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
       {"num_threads",
        "warm_up",
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
  added.insert(added.end(), kLast.begin(), kLast.end());
  for (const FlagGroup& group : added) {
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
  if (FLAGS_covariance_scale != "a_posteriori" &&
      FLAGS_covariance_scale != "a_priori") {
    *error = "--covariance_scale: expected a_posteriori or a_priori, found '" +
             FLAGS_covariance_scale + "'";
    return false;
  }
  if (!(FLAGS_covariance_sigmas > 0.0 &&
        std::isfinite(FLAGS_covariance_sigmas))) {
    *error = "--covariance_sigmas: expected a number above 0, found " +
             NumberText(FLAGS_covariance_sigmas);
    return false;
  }
  return SetExtOptions(ext_options, error) && SetMinimizer(options, error) &&
         SetLinearSolver(options, ext_options, error);
}

CovarianceScale CovarianceScaleFromFlags() {
  return FLAGS_covariance_scale == "a_priori" ? COVARIANCE_SCALE_A_PRIORI
                                              : COVARIANCE_SCALE_A_POSTERIORI;
}

void WarmUp(const ceres_ext::Options& ext_options) {
  if (ext_options.enabled && ext_options.device != DEVICE_HOST) {
    std::string ignored;  // The solve says the same.
    StartDevice(ext_options, &ignored);
  }
}

}  // namespace ceres_ext::bal
