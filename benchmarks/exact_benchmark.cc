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
// solves it --solves times by each method in turn, from the same start. A line
// of JSON a method: medians over the solves, and the least and the most of the
// whole iteration. Seconds of stages are of an iteration: of all solves of the
// linear system, rejected steps too, over their number. same_steps: how many
// iterations have taken or rejected their step as the first method did, from
// the first one on; cost_difference: the largest relative one of those.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "benchmarks/seeds.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/solve.h"
#include "examples/bal/bal_synthetic.h"
#include "examples/bal/solve_bal.h"
#include "gflags/gflags.h"

DEFINE_string(like, "", "Sizes of this problem of BAL.");
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
DEFINE_int32(seeds, 1, "Problems, of seeds 1, 2, ...");
DEFINE_int32(solves, 3, "By each method; the first one is left out of times.");
DEFINE_int32(threads, 16, "Threads of the host.");
DEFINE_int32(iterations, 5, "Iterations.");
DEFINE_int32(refinements, 3, "Refinements of a float factor's solution.");
DEFINE_double(eta, 0.1, "Of pcg and pcg_explicit.");
DEFINE_double(start, 1.0, "How far from the truth a solve starts.");
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
    solver.preconditioner_type = ceres::SCHUR_JACOBI;
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

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0.0 : values[values.size() / 2];
}

// As JSON; null: none.
std::string Finite(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.17g", value);
  return std::isfinite(value) ? text : "null";
}

// As JSON; null: never.
std::string SecondsTo(const Summary& summary, double cost) {
  for (const ceres::IterationSummary& iteration : summary.iterations) {
    if (iteration.cost <= cost) {
      return std::to_string(iteration.cumulative_time_in_seconds);
    }
  }
  return "null";
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
    return Median(values);
  };
  const auto per_solve = [&](double Summary::*seconds) {
    return median([seconds](const Summary& s) {
      return s.*seconds / std::max(1, s.num_linear_solves);
    });
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
  std::printf(
      "{\"like\":\"%s\",\"cameras\":%d,\"reach\":%d,\"start\":%g,"
      "\"max_iterations\":%d,\"seed\":%d,\"method\":\"%s\","
      "\"threads\":%d,\"how\":\"%s\",\"device\":\"%s\",\"solves\":%d,"
      "\"iterations\":%d,"
      "\"linear_solves\":%d,\"iteration\":%.6f,\"iteration_least\":%.6f,"
      "\"iteration_most\":%.6f,\"linear_solver\":%.6f,\"normal_blocks\":%.6f,"
      "\"schur\":%.6f,\"factorization\":%.6f,\"pcg\":%.6f,"
      "\"back_substitution\":%.6f,\"residuals\":%.6f,\"jacobian\":%.6f,"
      "\"preprocessor\":%.4f,\"setup\":%.4f,\"minimizer\":%.4f,"
      "\"to_1_percent\":%s,\"to_0.1_percent\":%s,\"final_cost\":%s,"
      "\"best_cost\":%s,\"same_steps\":%d,\"cost_difference\":%.3g,"
      "\"bytes\":%lld,\"forecast_bytes\":%lld,"
      "\"reason\":\"%s\"}\n",
      FLAGS_like.c_str(),
      FLAGS_cameras,
      FLAGS_reach,
      FLAGS_start,
      FLAGS_iterations,
      static_cast<int>(seed),
      method.c_str(),
      FLAGS_threads,
      last.method.c_str(),
      last.device.c_str(),
      static_cast<int>(solves.size()),
      static_cast<int>(last.iterations.size()) - 1,
      last.num_linear_solves,
      Median(iterations),
      iterations.empty()
          ? 0.0
          : *std::min_element(iterations.begin(), iterations.end()),
      iterations.empty()
          ? 0.0
          : *std::max_element(iterations.begin(), iterations.end()),
      median([](const Summary& s) {
        return s.linear_solver_time_in_seconds /
               std::max(1, s.num_linear_solves);
      }),
      per_solve(&Summary::normal_blocks_time_in_seconds),
      per_solve(&Summary::schur_time_in_seconds),
      per_solve(&Summary::factorization_time_in_seconds),
      per_solve(&Summary::pcg_time_in_seconds),
      per_solve(&Summary::back_substitution_time_in_seconds),
      median([](const Summary& s) {
        return s.residual_evaluation_time_in_seconds /
               std::max(1, s.num_residual_evaluations);
      }),
      median([](const Summary& s) {
        return s.jacobian_evaluation_time_in_seconds /
               std::max(1, s.num_jacobian_evaluations);
      }),
      median([](const Summary& s) { return s.preprocessor_time_in_seconds; }),
      median([](const Summary& s) { return s.setup_time_in_seconds; }),
      median([](const Summary& s) { return s.minimizer_time_in_seconds; }),
      SecondsTo(last, 1.01 * best).c_str(),
      SecondsTo(last, 1.001 * best).c_str(),
      Finite(last.final_cost).c_str(),
      Finite(best).c_str(),
      agreement.same_steps,
      agreement.cost_difference,
      static_cast<long long>(last.memory_bytes),
      static_cast<long long>(last.memory_forecast_bytes),
      last.IsSolutionUsable() ? last.path_reason.c_str()
                              : last.message.c_str());
  std::fflush(stdout);
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
  std::printf(
      "{\"derivatives\":\"forward differences\",\"like\":\"%s\","
      "\"cameras\":%d,\"seed\":%d,\"observations\":%d,"
      "\"camera_median\":%.3g,\"camera_most\":%.3g,"
      "\"point_median\":%.3g,\"point_most\":%.3g}\n",
      FLAGS_like.c_str(),
      FLAGS_cameras,
      static_cast<int>(seed),
      static_cast<int>(errors[0].size()),
      Median(errors[0]),
      most(errors[0]),
      Median(errors[1]),
      most(errors[1]));
  std::fflush(stdout);
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
  std::string error;
  BalProblem start;
  synthetic.seed = seed;
  synthetic.num_threads = FLAGS_threads;
  bool is_known = FLAGS_cameras > 0;
  if (is_known) {
    synthetic.num_cameras = FLAGS_cameras;
    synthetic.num_points = 700 * FLAGS_cameras;
    synthetic.num_observations =
        std::llround(6.2 * static_cast<double>(synthetic.num_points));
  } else {
    is_known = FindBalSize(FLAGS_like, &synthetic);
  }
  if (!is_known || !GenerateStart(synthetic, FLAGS_start, &start, &error)) {
    std::fprintf(stderr,
                 "--like=%s --cameras=%d: %s\n",
                 FLAGS_like.c_str(),
                 FLAGS_cameras,
                 error.c_str());
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

  std::vector<std::string> methods;
  std::stringstream list(FLAGS_methods);
  for (std::string method; std::getline(list, method, ',');) {
    methods.push_back(method);
  }
  double best = std::numeric_limits<double>::infinity();
  std::vector<std::vector<Summary>> all;
  for (const std::string& method : methods) {
    SolveBalOptions options;
    options.solver_options.num_threads = FLAGS_threads;
    options.solver_options.max_num_iterations = FLAGS_iterations;
    options.solver_options.max_linear_solver_iterations = 500;
    options.solver_options.eta = FLAGS_eta;
    options.solver_options.function_tolerance = 0.0;
    options.solver_options.logging_type = ceres::SILENT;
    if (!SetMethod(method, &options)) {
      std::fprintf(stderr, "--methods: %s is unknown\n", method.c_str());
      return false;
    }
    all.emplace_back();
    for (int i = 0; i < FLAGS_solves; ++i) {
      Restore(start, &problem);
      Summary summary;
      double build_seconds = 0.0;
      SolveBal(options, nullptr, &problem, &summary, &build_seconds);
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
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  return ceres_ext::bal::RunSeeds(FLAGS_seeds, ceres_ext::bal::RunSeed);
}
