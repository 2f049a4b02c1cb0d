// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The waiting time of a user beside the iterations: a problem in memory, solved
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
#include <string>
#include <vector>

#include "benchmarks/doors_functors.h"
#include "benchmarks/solve_benchmark.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/solve.h"
#include "examples/bal/seconds_since.h"
#include "examples/bal/solve_bal.h"
#include "gflags/gflags.h"
#include "problem_io/bal_synthetic.h"

DEFINE_double(scale,
              1.0,
              "So many times as many cameras, points and observations.");
DEFINE_double(outlier_fraction,
              0.01,
              "Part of the observations that are outliers.");
DEFINE_string(door,
              "arrays,ceres",
              "Which doors, in this order: arrays, kept (arrays by one "
              "ArraySolver), functor (arrays of a user's functor), shared "
              "(arrays of another one, poses apart from intrinsics that 100 "
              "cameras share, with weights and a prior on each pose), "
              "kept_functor, kept_shared (these by one ArraySolver), ceres, "
              "own (a ceres::Problem that owns nothing, as docs/use.md has "
              "it).");
DEFINE_int32(best_iterations,
             0,
             "Iterations of the longer solve for the best cost; 0: none.");
DEFINE_int32(pcg_iterations, 100, "At most so many of PCG in a step.");
DEFINE_string(device, "cuda", "cuda or host.");
DEFINE_string(cuda_devices,
              "",
              "Several devices, as Options::cuda_devices: all, or 0+1.");
DEFINE_string(jacobian, "recomputed", "auto, stored or recomputed.");
DEFINE_string(cuda_graph, "auto", "auto, on or off.");
DEFINE_string(precision, "double", "double or mixed.");

namespace ceres_ext::bal {
namespace {

// Values of /proc/self/status, in bytes.
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

// solver: null, a solve by itself.
void SolveArrays(const SolveBalOptions& options,
                 ArraySolver* solver,
                 ArrayProblem* arrays,
                 Summary* summary) {
  if (solver == nullptr) {
    Solve(options.solver_options, options.ext_options, arrays, summary);
  } else {
    solver->Solve(options.solver_options, options.ext_options, arrays, summary);
  }
}

// The same residuals by a user's functor.
void SolveFunctor(const SolveBalOptions& options,
                  ArraySolver* solver,
                  BalProblem* problem,
                  Solved* solved) {
  ArrayProblem arrays;
  const int cameras = arrays.AddParameters(
      {problem->cameras.data(), problem->num_cameras(), 9});
  const int points =
      arrays.AddParameters({problem->points.data(), problem->num_points(), 3});
  arrays.AddResiduals<SnavelyCost>(problem->num_observations(),
                                   problem->observations.data(),
                                   {{cameras, problem->camera_index.data()},
                                    {points, problem->point_index.data()}});
  SolveArrays(options, solver, &arrays, &solved->summary);
}

// Poses, and intrinsics of the first of every 100 cameras.
void SolveShared(const SolveBalOptions& options,
                 ArraySolver* solver,
                 BalProblem* problem,
                 Solved* solved) {
  constexpr int kCamerasThatShare = 100;
  std::vector<double> poses;
  std::vector<double> intrinsics;
  std::vector<double> translations;
  for (int c = 0; c < problem->num_cameras(); ++c) {
    const double* const camera = problem->cameras.data() + 9 * c;
    poses.insert(poses.end(), camera, camera + 6);
    translations.insert(translations.end(), camera + 3, camera + 6);
    if (c % kCamerasThatShare == 0) {
      intrinsics.insert(intrinsics.end(), camera + 6, camera + 9);
    }
  }
  const int64_t n = problem->num_observations();
  std::vector<int32_t> intrinsics_index(n);
  for (int64_t i = 0; i < n; ++i) {
    intrinsics_index[i] = problem->camera_index[i] / kCamerasThatShare;
  }
  const std::vector<double> weights(n, 0.5);
  ArrayProblem arrays;
  const int pose_array =
      arrays.AddParameters({poses.data(), problem->num_cameras(), 6});
  const int intrinsics_array = arrays.AddParameters(
      {intrinsics.data(), static_cast<int64_t>(intrinsics.size()) / 3, 3});
  const int points =
      arrays.AddParameters({problem->points.data(), problem->num_points(), 3});
  arrays.AddResiduals<SharedSnavelyCost>(
      n,
      problem->observations.data(),
      {{pose_array, problem->camera_index.data()},
       {intrinsics_array, intrinsics_index.data()},
       {points, problem->point_index.data()}},
      nullptr,
      weights.data());
  arrays.AddResiduals<TranslationCost>(
      problem->num_cameras(), translations.data(), {{pose_array, nullptr}});
  SolveArrays(options, solver, &arrays, &solved->summary);
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
    SolveArrays(options, solver, &arrays, &solved.summary);
  } else if (door == "own") {
    SolveOwn(options, problem, &solved);
  } else if (door == "functor" || door == "kept_functor") {
    SolveFunctor(
        options, door == "functor" ? nullptr : solver, problem, &solved);
  } else if (door == "shared" || door == "kept_shared") {
    SolveShared(options, door == "shared" ? nullptr : solver, problem, &solved);
  } else {
    SolveBal(of_door, problem, &solved.summary, &solved.build_seconds);
  }
  solved.host_bytes = StatusBytes("VmHWM:") - before;
  return solved;
}

void Print(uint64_t seed, double best, const Solved& s) {
  const Summary& summary = s.summary;
  PrintLine(
      {{"like", FLAGS_like},
       {"scale", FLAGS_scale},
       {"seed", seed},
       {"door", s.door},
       {"path", SolvePathToString(summary.path)},
       {"device", summary.device},
       {"cuda_devices", FLAGS_cuda_devices},
       {"reason", summary.path_reason},
       {"build", Rounded(s.build_seconds)},
       {"context", Rounded(summary.context_time_in_seconds)},
       {"preprocessor", Rounded(summary.preprocessor_time_in_seconds)},
       {"setup", Rounded(summary.setup_time_in_seconds)},
       {"minimizer", Rounded(summary.minimizer_time_in_seconds)},
       {"postprocessor", Rounded(summary.postprocessor_time_in_seconds)},
       {"total", Rounded(s.build_seconds + summary.total_time_in_seconds)},
       {"to_1_percent", SecondsTo(summary, 1.01 * best, s.build_seconds)},
       {"to_0.1_percent", SecondsTo(summary, 1.001 * best, s.build_seconds)},
       {"iterations", static_cast<int>(summary.iterations.size()) - 1},
       {"pcg_iterations", summary.num_pcg_iterations},
       {"pcg", Rounded(summary.pcg_time_in_seconds)},
       {"final_cost", summary.final_cost},
       {"best_cost", best},
       {"host_bytes", s.host_bytes},
       {"device_bytes", summary.memory_bytes},
       {"device_forecast_bytes", summary.memory_forecast_bytes}});
}

bool RunSeed(uint64_t seed) {
  BalProblem start;
  if (!GenerateStartLike(FLAGS_scale, FLAGS_outlier_fraction, seed, &start)) {
    return false;
  }
  BalProblem problem = start;

  SolveBalOptions options = BenchmarkOptions();
  options.solver_options.max_linear_solver_iterations = FLAGS_pcg_iterations;
  options.ext_options.cuda_devices = FLAGS_cuda_devices;
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
  for (const std::string& door : SplitAtCommas(FLAGS_door)) {
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
  return ceres_ext::bal::RunSeeds(
      argc,
      argv,
      {{"like", "venice-1778"}, {"solves", "2"}, {"iterations", "12"}},
      ceres_ext::bal::RunSeed);
}
