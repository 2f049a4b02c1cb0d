// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The exact step, DENSE_SCHUR and SPARSE_SCHUR, beside PCG and stock Ceres:
// seconds of each stage of a Levenberg-Marquardt iteration, and until the cost
// is near the best one known.
//
//   exact_benchmark --like=venice-1778 --methods=dense,pcg,ceres_lapack
//   exact_benchmark --cameras=488 --methods=dense,dense_stored,ceres_cuda
//
// For each seed a process of its own makes the problem, touches its memory and
// solves it --solves times by each method in turn, from the same start; times
// leave the first one out, which loads libraries and code. A line of JSON a
// method: medians over the solves, and the least and the most of the whole
// iteration. Seconds of stages are of an iteration: of all solves of the linear
// system, rejected steps too, over their number. same_steps: how many
// iterations have taken or rejected their step as the first method did, from
// the first one on; cost_difference: the largest relative one of those.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/solve_benchmark.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/solve.h"
#include "examples/bal/solve_bal.h"
#include "gflags/gflags.h"
#include "problem_io/bal_synthetic.h"

DEFINE_int32(cameras,
             0,
             "In place of --like: so many cameras, 700 points each and 6.2 "
             "observations a point, as Choudhary, Gupta and Narayanan 2010 "
             "have.");
DEFINE_int32(
    reach,
    0,
    "As along a street without return: without observations by cameras "
    "more than so many behind the first one of their point, and points "
    "that are left with one. 0: as generated.");
DEFINE_string(methods,
              "dense,dense_stored,pcg,ceres_lapack",
              "In this order: dense, dense_stored, dense_mixed (a float "
              "factor, refined), dense_float (not refined, float Jacobian), "
              "sparse, auto, pcg, pcg_explicit (products by S), pcg_host: this "
              "library; ceres_eigen, ceres_lapack, ceres_cuda "
              "(DENSE_SCHUR), ceres_sparse (SPARSE_SCHUR): stock.");
DEFINE_int32(refinements, 3, "Refinements of a float factor's solution.");
DEFINE_bool(derivatives,
            false,
            "In place of solves: forward differences of sba against the "
            "analytic derivatives, at the start.");

namespace ceres_ext::bal {
namespace {

bool SetMethod(const std::string& method, SolveBalOptions* options) {
  ceres::Solver::Options& solver = options->solver_options;
  Options& ext = options->ext_options;
  solver.linear_solver_type = ceres::DENSE_SCHUR;
  ext.device = DEVICE_CUDA;
  ext.fallback = FALLBACK_REFUSE;
  ext.schur_factorization = SCHUR_FACTORIZATION_DENSE;
  options->problem = PROBLEM_ARRAYS;
  if (method == "dense") {
  } else if (method == "dense_stored") {
    ext.jacobian = JACOBIAN_STORED;
  } else if (method == "dense_mixed") {
    solver.use_mixed_precision_solves = true;
    solver.max_num_refinement_iterations = FLAGS_refinements;
  } else if (method == "dense_float") {
    solver.use_mixed_precision_solves = true;
    ext.precision = PRECISION_MIXED;
  } else if (method == "sparse") {
    ext.schur_factorization = SCHUR_FACTORIZATION_SPARSE;
  } else if (method == "auto") {
    ext.schur_factorization = SCHUR_FACTORIZATION_AUTO;
  } else if (method == "pcg" || method == "pcg_explicit" ||
             method == "pcg_host") {
    solver.linear_solver_type = ceres::ITERATIVE_SCHUR;
    solver.use_explicit_schur_complement = method == "pcg_explicit";
    ext.device = method == "pcg_host" ? DEVICE_HOST : DEVICE_CUDA;
  } else {
    ext.enabled = false;
    options->problem = PROBLEM_CERES;
    if (method == "ceres_lapack") {
      solver.dense_linear_algebra_library_type = ceres::LAPACK;
    } else if (method == "ceres_cuda") {
      solver.dense_linear_algebra_library_type = ceres::CUDA;
    } else if (method == "ceres_sparse") {
      solver.linear_solver_type = ceres::SPARSE_SCHUR;
    } else if (method != "ceres_eigen") {
      return false;
    }
  }
  return true;
}

// How far `summary` goes along with `first`.
struct Agreement {
  int same_steps = 0;
  double cost_difference = 0.0;
};
Agreement Compare(const Summary& summary, const Summary& first) {
  Agreement agreement;
  const size_t n = std::min(summary.iterations.size(), first.iterations.size());
  for (size_t k = 1; k < n; ++k) {
    const ceres::IterationSummary& a = summary.iterations[k];
    const ceres::IterationSummary& b = first.iterations[k];
    if (a.step_is_successful != b.step_is_successful) {
      break;
    }
    ++agreement.same_steps;
    agreement.cost_difference =
        std::max(agreement.cost_difference, std::abs(a.cost - b.cost) / b.cost);
  }
  return agreement;
}

void Print(uint64_t seed,
           const std::string& method,
           double best,
           const std::vector<Summary>& solves,
           const Summary& first_method) {
  // The first one loads libraries and code.
  const size_t first = solves.size() > 1 ? 1 : 0;
  const auto median = [&](const std::function<double(const Summary&)>& of) {
    std::vector<double> values;
    for (size_t i = first; i < solves.size(); ++i) {
      values.push_back(of(solves[i]));
    }
    return Rounded(Median(values));
  };
  const auto per = [&](double Summary::*seconds, int Summary::*number) {
    return median([seconds, number](const Summary& s) {
      return s.*seconds / std::max(1, s.*number);
    });
  };
  const auto per_solve = [&](double Summary::*seconds) {
    return per(seconds, &Summary::num_linear_solves);
  };
  std::vector<double> iterations;
  for (size_t i = first; i < solves.size(); ++i) {
    const auto& all = solves[i].iterations;
    for (size_t k = 1; k < all.size(); ++k) {
      iterations.push_back(all[k].iteration_time_in_seconds);
    }
  }
  const Summary& last = solves.back();
  const Agreement agreement = Compare(last, first_method);
  const auto least_and_most =
      std::minmax_element(iterations.begin(), iterations.end());
  const bool has_none = iterations.empty();
  PrintLine(
      {{"like", FLAGS_like},
       {"cameras", FLAGS_cameras},
       {"reach", FLAGS_reach},
       {"start", FLAGS_start},
       {"max_iterations", FLAGS_iterations},
       {"seed", seed},
       {"method", method},
       {"threads", FLAGS_threads},
       {"how", last.method},
       {"device", last.device},
       {"solves", solves.size()},
       {"iterations", static_cast<int>(last.iterations.size()) - 1},
       {"linear_solves", last.num_linear_solves},
       {"iteration", Rounded(Median(iterations))},
       {"iteration_least", has_none ? 0.0 : Rounded(*least_and_most.first)},
       {"iteration_most", has_none ? 0.0 : Rounded(*least_and_most.second)},
       {"linear_solver", per_solve(&Summary::linear_solver_time_in_seconds)},
       {"normal_blocks", per_solve(&Summary::normal_blocks_time_in_seconds)},
       {"schur", per_solve(&Summary::schur_time_in_seconds)},
       {"factorization", per_solve(&Summary::factorization_time_in_seconds)},
       {"pcg", per_solve(&Summary::pcg_time_in_seconds)},
       {"back_substitution",
        per_solve(&Summary::back_substitution_time_in_seconds)},
       {"residuals",
        per(&Summary::residual_evaluation_time_in_seconds,
            &Summary::num_residual_evaluations)},
       {"jacobian",
        per(&Summary::jacobian_evaluation_time_in_seconds,
            &Summary::num_jacobian_evaluations)},
       {"preprocessor", median([](const Summary& s) {
          return s.preprocessor_time_in_seconds;
        })},
       {"setup",
        median([](const Summary& s) { return s.setup_time_in_seconds; })},
       {"minimizer",
        median([](const Summary& s) { return s.minimizer_time_in_seconds; })},
       {"to_1_percent", SecondsTo(last, 1.01 * best, 0.0)},
       {"to_0.1_percent", SecondsTo(last, 1.001 * best, 0.0)},
       {"final_cost", last.final_cost},
       {"best_cost", best},
       {"same_steps", agreement.same_steps},
       {"cost_difference", Rounded(agreement.cost_difference)},
       {"bytes", last.memory_bytes},
       {"forecast_bytes", last.memory_forecast_bytes},
       {"reason", last.IsSolutionUsable() ? last.path_reason : last.message}});
}

// ||D - J|| / ||J|| in Frobenius norms, median and most over a sample of
// observations, of the blocks of camera and point. J: analytic. D: forward
// differences with a step of 1e-4 |x|, at least 1e-6, as sba has them, the
// solver that Choudhary, Gupta and Narayanan 2010 compare with.
void PrintDerivatives(uint64_t seed, const BalProblem& problem) {
  constexpr int64_t kSample = 20000;
  constexpr int kSizes[] = {9, 3};
  std::vector<double> errors[2];
  const int64_t num_observations = problem.num_observations();
  for (int64_t k = 0; k < num_observations;
       k += num_observations / kSample + 1) {
    const std::unique_ptr<ceres::CostFunction> function(
        CreateBalReprojectionError(problem.observations[2 * k],
                                   problem.observations[2 * k + 1]));
    double x[2][9];
    std::copy_n(&problem.cameras[9 * problem.camera_index[k]], 9, x[0]);
    std::copy_n(&problem.points[3 * problem.point_index[k]], 3, x[1]);
    const double* const blocks[] = {x[0], x[1]};
    double jacobian[2][18];
    double* jacobians[] = {jacobian[0], jacobian[1]};
    double residuals[2];
    function->Evaluate(blocks, residuals, jacobians);
    for (int b = 0; b < 2; ++b) {
      double difference = 0.0;
      double norm = 0.0;
      for (int j = 0; j < kSizes[b]; ++j) {
        const double at = x[b][j];
        const double step = std::max(1e-4 * std::abs(at), 1e-6);
        double moved[2];
        x[b][j] = at + step;
        function->Evaluate(blocks, moved, nullptr);
        x[b][j] = at;
        for (int r = 0; r < 2; ++r) {
          const double exact = jacobian[b][r * kSizes[b] + j];
          const double error = (moved[r] - residuals[r]) / step - exact;
          difference += error * error;
          norm += exact * exact;
        }
      }
      errors[b].push_back(std::sqrt(difference / norm));
    }
  }
  const auto most = [](const std::vector<double>& of) {
    return *std::max_element(of.begin(), of.end());
  };
  PrintLine({{"derivatives", "forward differences"},
             {"like", FLAGS_like},
             {"cameras", FLAGS_cameras},
             {"seed", seed},
             {"observations", errors[0].size()},
             {"camera_median", Rounded(Median(errors[0]))},
             {"camera_most", Rounded(most(errors[0]))},
             {"point_median", Rounded(Median(errors[1]))},
             {"point_most", Rounded(most(errors[1]))}});
}

// Observations are by point, then by camera.
void LimitReach(int32_t reach, BalProblem* problem) {
  const BalProblem from = *problem;
  problem->camera_index.clear();
  problem->point_index.clear();
  problem->observations.clear();
  problem->points.clear();
  const int64_t n = from.num_observations();
  for (int64_t begin = 0, end = 0; begin < n; begin = end) {
    const int32_t point = from.point_index[begin];
    int64_t kept = begin;
    for (end = begin; end < n && from.point_index[end] == point; ++end) {
      kept += from.camera_index[end] - from.camera_index[begin] <= reach;
    }
    if (kept - begin < 2) {
      continue;
    }
    const int32_t id = problem->num_points();
    for (int64_t k = begin; k < kept; ++k) {
      problem->camera_index.push_back(from.camera_index[k]);
      problem->point_index.push_back(id);
      problem->observations.push_back(from.observations[2 * k]);
      problem->observations.push_back(from.observations[2 * k + 1]);
    }
    for (int j = 0; j < 3; ++j) {
      problem->points.push_back(from.points[3 * point + j]);
    }
  }
}

bool RunSeed(uint64_t seed) {
  SyntheticOptions synthetic;
  if (FLAGS_cameras > 0) {
    synthetic.num_cameras = FLAGS_cameras;
    synthetic.num_points = 700 * FLAGS_cameras;
    synthetic.num_observations =
        std::llround(6.2 * static_cast<double>(synthetic.num_points));
  } else if (!FindBalSize(FLAGS_like, &synthetic)) {
    std::fprintf(stderr, "--like=%s is unknown\n", FLAGS_like.c_str());
    return false;
  }
  synthetic.seed = seed;
  BalProblem start;
  if (!GenerateStart(synthetic, &start)) {
    return false;
  }
  if (FLAGS_reach > 0) {
    LimitReach(FLAGS_reach, &start);
  }
  if (FLAGS_derivatives) {
    PrintDerivatives(seed, start);
    return true;
  }
  BalProblem problem = start;

  const std::vector<std::string> methods = SplitAtCommas(FLAGS_methods);
  double best = std::numeric_limits<double>::infinity();
  std::vector<std::vector<Summary>> all;
  for (const std::string& method : methods) {
    SolveBalOptions options = BenchmarkOptions();
    options.solver_options.max_linear_solver_iterations = 500;
    if (!SetMethod(method, &options)) {
      std::fprintf(stderr, "--methods: %s is unknown\n", method.c_str());
      return false;
    }
    all.emplace_back();
    for (int i = 0; i < FLAGS_solves; ++i) {
      Restore(start, &problem);
      Summary summary;
      double build_seconds = 0.0;
      SolveBal(options, &problem, &summary, &build_seconds);
      if (summary.IsSolutionUsable()) {
        best = std::min(best, summary.final_cost);
      }
      all.back().push_back(summary);
    }
  }
  for (size_t i = 0; i < methods.size(); ++i) {
    Print(seed, methods[i], best, all[i], all[0].back());
  }
  return true;
}

}  // namespace
}  // namespace ceres_ext::bal

int main(int argc, char** argv) {
  return ceres_ext::bal::RunSeeds(
      argc, argv, {{"iterations", "5"}}, ceres_ext::bal::RunSeed);
}
