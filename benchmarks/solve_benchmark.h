// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The common part of benchmarks of whole solves: flags, and generated problems,
// each in a separate process and solved many times from the same start. For the
// one source of a program.
#ifndef CERES_EXT_BENCHMARKS_SOLVE_BENCHMARK_H_
#define CERES_EXT_BENCHMARKS_SOLVE_BENCHMARK_H_

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/benchmark.h"
#include "ceres_ext/summary.h"
#include "examples/bal/bal_geometry.h"
#include "examples/bal/solve_bal.h"
#include "gflags/gflags.h"
#include "problem_io/bal_problem.h"
#include "problem_io/bal_synthetic.h"

DEFINE_string(like, "", "Sizes of this problem of BAL.");
DEFINE_double(start,
              1.0,
              "How far from the truth a solve starts, times bal_generate's "
              "drift and noise of focal lengths and points.");
DEFINE_int32(seeds, 1, "Problems, of seeds 1, 2, ...");
DEFINE_int32(solves, 3, "For a problem, in each way.");
DEFINE_int32(threads, 16, "Threads of the host.");
DEFINE_int32(iterations, 10, "Iterations.");
DEFINE_double(eta, 0.1, "Ceres's eta, where PCG solves.");

namespace ceres_ext::bal {

// Calls run in a child process; false if it, or the process, has failed.
inline bool RunInProcess(const std::function<bool()>& run) {
  const pid_t child = fork();
  if (child == 0) {
    // Not _exit: what traces the child writes when it ends.
    std::exit(run() ? 0 : 1);
  }
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

// The body of main: calls run(seed), which returns true if it has worked, for
// seeds 1 to --seeds, each in a separate process. Defaults of flags are set to
// these.
inline int RunSeeds(
    int argc,
    char** argv,
    const std::vector<std::pair<const char*, const char*>>& defaults,
    bool (*run)(uint64_t seed)) {
  for (const auto& [flag, value] : defaults) {
    gflags::SetCommandLineOptionWithMode(
        flag, value, gflags::SET_FLAGS_DEFAULT);
  }
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  int code = 0;
  for (int seed = 1; seed <= FLAGS_seeds; ++seed) {
    code |= RunInProcess([&] { return run(seed); }) ? 0 : 1;
  }
  return code;
}

// ITERATIVE_SCHUR with SCHUR_JACOBI, --threads, --iterations and --eta; no
// tolerance ends a solve.
inline SolveBalOptions BenchmarkOptions() {
  SolveBalOptions options;
  ceres::Solver::Options& solver = options.solver_options;
  solver.linear_solver_type = ceres::ITERATIVE_SCHUR;
  solver.preconditioner_type = ceres::SCHUR_JACOBI;
  solver.num_threads = FLAGS_threads;
  solver.max_num_iterations = FLAGS_iterations;
  solver.eta = FLAGS_eta;
  solver.function_tolerance = 0.0;
  solver.logging_type = ceres::SILENT;
  return options;
}

// A normalised problem of these sizes, --start from the truth. False if
// there is none, which it says.
inline bool GenerateStart(SyntheticOptions options, BalProblem* start) {
  options.num_threads = FLAGS_threads;
  options.drift_rotation *= FLAGS_start;
  options.drift_translation *= FLAGS_start;
  options.focal_noise *= FLAGS_start;
  options.point_noise *= FLAGS_start;
  SyntheticProblem generated;
  std::string error;
  if (!GenerateSynthetic(options, &generated, &error)) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return false;
  }
  *start = std::move(generated.start);
  Normalize(start);
  return true;
}

// The same of the size of --like, `scale` times as large.
inline bool GenerateStartLike(double scale,
                              double outlier_fraction,
                              uint64_t seed,
                              BalProblem* start) {
  SyntheticOptions options;
  if (!FindBalSize(FLAGS_like, &options)) {
    std::fprintf(stderr, "--like=%s is unknown\n", FLAGS_like.c_str());
    return false;
  }
  options.seed = seed;
  options.outlier_fraction = outlier_fraction;
  options.num_cameras *= scale;
  options.num_points *= scale;
  options.num_observations *= scale;
  return GenerateStart(options, start);
}

// Sets *problem, a copy of `start` that was solved, back to it: in place, in
// memory that was touched before.
inline void Restore(const BalProblem& start, BalProblem* problem) {
  std::copy(
      start.cameras.begin(), start.cameras.end(), problem->cameras.begin());
  std::copy(start.points.begin(), start.points.end(), problem->points.begin());
}

// Seconds until a solve that began at `begin` has had this cost; not a number:
// never.
inline double SecondsTo(const Summary& summary, double cost, double begin) {
  for (const ceres::IterationSummary& iteration : summary.iterations) {
    if (iteration.cost <= cost) {
      return Rounded(begin + iteration.cumulative_time_in_seconds);
    }
  }
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace ceres_ext::bal

#endif  // CERES_EXT_BENCHMARKS_SOLVE_BENCHMARK_H_
