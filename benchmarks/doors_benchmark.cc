// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// What a user waits for beside the iterations: a problem in memory, solved
// through each door (ceres_ext/array_problem.h, ceres::Problem).
//
//   doors_benchmark --like=final-13682 --door=arrays,ceres [--seeds=3]
//
// For each seed a process of its own makes the problem, touches its memory and
// solves it --solves times through each door, from the same start. A line of
// JSON a solve: seconds of building, of all the solve and its parts, until the
// cost is within 1 % and 0.1 % of the best one known (that of a longer solve,
// --best_iterations, or of any here), and the most host memory that the solve
// took at a time, a problem that is built for it included.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "benchmarks/seeds.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/solve.h"
#include "examples/bal/bal_synthetic.h"
#include "examples/bal/seconds_since.h"
#include "examples/bal/solve_bal.h"
#include "gflags/gflags.h"

DEFINE_string(like, "venice-1778", "Sizes of this problem of BAL.");
DEFINE_double(scale,
              1.0,
              "So many times as many cameras, points and observations.");
DEFINE_double(start,
              1.0,
              "How far from the truth a solve starts, times bal_generate's "
              "drift and noise of focal lengths and points.");
DEFINE_double(outlier_fraction,
              0.01,
              "Part of the observations that are outliers.");
DEFINE_string(door,
              "arrays,ceres",
              "Which doors, in this order: arrays, kept (arrays by one "
              "ArraySolver), ceres, own (a ceres::Problem that owns nothing, "
              "as docs/use.md has it).");
DEFINE_int32(seeds, 1, "Problems, of seeds 1, 2, ...");
DEFINE_int32(solves, 2, "Through each door.");
DEFINE_int32(threads, 16, "Threads of the host.");
DEFINE_int32(iterations, 12, "Iterations.");
DEFINE_int32(best_iterations,
             0,
             "Iterations of the longer solve for the best cost; 0: none.");
DEFINE_int32(pcg_iterations, 100, "At most so many of PCG in a step.");
DEFINE_double(eta, 0.1, "Ceres's eta.");
DEFINE_string(device, "cuda", "cuda or host.");
DEFINE_string(jacobian, "recomputed", "stored or recomputed.");
DEFINE_string(cuda_graph, "auto", "auto, on or off.");
DEFINE_string(precision, "double", "double or mixed.");

namespace ceres_ext::bal {
namespace {

// Of /proc/self/status, in bytes.
int64_t StatusBytes(const char* name) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word == name) {
      int64_t kilobytes = 0;
      status >> kilobytes;
      return 1024 * kilobytes;
    }
  }
  return 0;
}

struct Solved {
  std::string door;
  double build_seconds = 0.0;
  Summary summary;
  int64_t host_bytes = 0;
};

// The fastest way to a ceres::Problem, of cameras of 9 values (docs/use.md).
void SolveOwn(const SolveBalOptions& options,
              BalProblem* problem,
              Solved* solved) {
  const auto start = std::chrono::steady_clock::now();
  ceres::Problem::Options problem_options;
  problem_options.cost_function_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
  problem_options.loss_function_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
  problem_options.disable_all_safety_checks = true;
  ceres::Problem ceres_problem(problem_options);
  const int64_t n = problem->num_observations();
  std::deque<BalReprojectionError> cost_functions;
  for (int64_t i = 0; i < n; ++i) {
    cost_functions.emplace_back(problem->observations[2 * i],
                                problem->observations[2 * i + 1]);
    ceres_problem.AddResidualBlock(
        &cost_functions.back(),
        nullptr,
        problem->cameras.data() + 9 * int64_t{problem->camera_index[i]},
        problem->points.data() + 3 * int64_t{problem->point_index[i]});
  }
  solved->build_seconds = SecondsSince(start);
  Solve(options.solver_options,
        options.ext_options,
        &ceres_problem,
        &solved->summary);
}

Solved SolveOnce(const std::string& door,
                 const SolveBalOptions& options,
                 const BalProblem& start,
                 ArraySolver* solver,
                 BalProblem* problem) {
  Restore(start, problem);
  SolveBalOptions of_door = options;
  of_door.problem = door == "ceres" ? PROBLEM_CERES : PROBLEM_ARRAYS;
  Solved solved;
  solved.door = door;
  // The most so far is what there is now.
  std::ofstream("/proc/self/clear_refs") << 5;
  const int64_t before = StatusBytes("VmRSS:");
  if (door == "kept") {
    ArrayProblem arrays = BuildArrayProblem(
        /*loss=*/nullptr, /*manifold=*/nullptr, problem);
    solver->Solve(
        options.solver_options, options.ext_options, &arrays, &solved.summary);
  } else if (door == "own") {
    SolveOwn(options, problem, &solved);
  } else {
    SolveBal(of_door, nullptr, problem, &solved.summary, &solved.build_seconds);
  }
  solved.host_bytes = StatusBytes("VmHWM:") - before;
  return solved;
}

// As JSON; null: never.
std::string SecondsTo(const Solved& solved, double cost) {
  for (const ceres::IterationSummary& iteration : solved.summary.iterations) {
    if (iteration.cost <= cost) {
      return std::to_string(solved.build_seconds +
                            iteration.cumulative_time_in_seconds);
    }
  }
  return "null";
}

void Print(uint64_t seed, double best, const Solved& s) {
  const Summary& summary = s.summary;
  std::printf(
      "{\"like\":\"%s\",\"scale\":%g,\"seed\":%d,\"door\":\"%s\","
      "\"path\":\"%s\","
      "\"device\":\"%s\",\"build\":%.4f,\"context\":%.4f,"
      "\"preprocessor\":%.4f,\"setup\":%.4f,\"minimizer\":%.4f,"
      "\"postprocessor\":%.4f,\"total\":%.4f,\"to_1_percent\":%s,"
      "\"to_0.1_percent\":%s,\"iterations\":%d,\"pcg_iterations\":%d,"
      "\"final_cost\":%.17g,\"best_cost\":%.17g,\"host_bytes\":%lld,"
      "\"device_bytes\":%lld,\"device_forecast_bytes\":%lld}\n",
      FLAGS_like.c_str(),
      FLAGS_scale,
      static_cast<int>(seed),
      s.door.c_str(),
      SolvePathToString(summary.path),
      summary.device.c_str(),
      s.build_seconds,
      summary.context_time_in_seconds,
      summary.preprocessor_time_in_seconds,
      summary.setup_time_in_seconds,
      summary.minimizer_time_in_seconds,
      summary.postprocessor_time_in_seconds,
      s.build_seconds + summary.total_time_in_seconds,
      SecondsTo(s, 1.01 * best).c_str(),
      SecondsTo(s, 1.001 * best).c_str(),
      static_cast<int>(summary.iterations.size()) - 1,
      static_cast<int>(summary.num_pcg_iterations),
      summary.final_cost,
      best,
      static_cast<long long>(s.host_bytes),
      static_cast<long long>(summary.memory_bytes),
      static_cast<long long>(summary.memory_forecast_bytes));
  std::fflush(stdout);
}

bool RunSeed(uint64_t seed) {
  SyntheticOptions synthetic;
  std::string error;
  BalProblem start;
  synthetic.seed = seed;
  synthetic.outlier_fraction = FLAGS_outlier_fraction;
  synthetic.num_threads = FLAGS_threads;
  const bool is_known = FindBalSize(FLAGS_like, &synthetic);
  synthetic.num_cameras *= FLAGS_scale;
  synthetic.num_points *= FLAGS_scale;
  synthetic.num_observations *= FLAGS_scale;
  if (!is_known || !GenerateStart(synthetic, FLAGS_start, &start, &error)) {
    std::fprintf(stderr, "--like=%s: %s\n", FLAGS_like.c_str(), error.c_str());
    return false;
  }
  BalProblem problem = start;

  SolveBalOptions options;
  options.solver_options.linear_solver_type = ceres::ITERATIVE_SCHUR;
  options.solver_options.preconditioner_type = ceres::SCHUR_JACOBI;
  options.solver_options.num_threads = FLAGS_threads;
  options.solver_options.max_num_iterations = FLAGS_iterations;
  options.solver_options.max_linear_solver_iterations = FLAGS_pcg_iterations;
  options.solver_options.eta = FLAGS_eta;
  options.solver_options.function_tolerance = 0.0;
  options.solver_options.logging_type = ceres::SILENT;
  if (!StringToDeviceType(FLAGS_device, &options.ext_options.device) ||
      !StringToJacobianType(FLAGS_jacobian, &options.ext_options.jacobian) ||
      !StringToPrecisionType(FLAGS_precision, &options.ext_options.precision) ||
      !StringToCudaGraphType(FLAGS_cuda_graph,
                             &options.ext_options.cuda_graph)) {
    std::fprintf(
        stderr,
        "--device, --jacobian, --precision or --cuda_graph is unknown\n");
    return false;
  }

  ArraySolver solver;
  std::vector<Solved> all;
  std::stringstream doors(FLAGS_door);
  std::string door;
  while (std::getline(doors, door, ',')) {
    for (int i = 0; i < FLAGS_solves; ++i) {
      all.push_back(SolveOnce(door, options, start, &solver, &problem));
    }
  }
  double best = std::numeric_limits<double>::infinity();
  for (const Solved& solved : all) {
    best = std::min(best, solved.summary.final_cost);
  }
  if (FLAGS_best_iterations > 0) {
    options.solver_options.max_num_iterations = FLAGS_best_iterations;
    options.solver_options.eta = 0.01;
    options.solver_options.max_linear_solver_iterations = 500;
    best = std::min(best,
                    SolveOnce("arrays", options, start, &solver, &problem)
                        .summary.final_cost);
  }
  for (const Solved& solved : all) {
    Print(seed, best, solved);
  }
  return true;
}

}  // namespace
}  // namespace ceres_ext::bal

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  return ceres_ext::bal::RunSeeds(FLAGS_seeds, ceres_ext::bal::RunSeed);
}
