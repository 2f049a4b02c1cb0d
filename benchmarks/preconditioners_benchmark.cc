// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The default solver beside each of its parts, on generated problems: streets,
// strips and cities (problem_io/bal_synthetic.h), each made once in memory and
// solved many times.
//
//   preconditioners_benchmark --sizes=100k,700k --scenes=city --seeds=3
//
// For each size, scene, seed and start a process of its own makes the problem
// and solves it without and with Huber's loss by each solver, --solves times. A
// line of JSON a solver: steps, PCG iterations, the least seconds, and seconds
// and cost of each step that lowers the cost. `scripts/measure preconditioners`
// makes tables of these and compares the default with the others.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/solve_benchmark.h"
#include "ceres_ext/solve.h"
#include "examples/bal/solve_bal.h"
#include "gflags/gflags.h"
#include "problem_io/bal_synthetic.h"

DEFINE_string(sizes,
              "100k,700k,5M,29M",
              "Observations: 20k, 100k, 200k, 700k, 5M, 29M.");
DEFINE_string(scenes, "street,strips,city", "street, strips, city.");
DEFINE_string(starts, "near,far", "near, far.");
DEFINE_string(losses, "none,huber", "none, huber.");
DEFINE_string(solvers,
              "default,pcg,two_level,exact,pcg@0.01",
              "default (linear_solver = auto), pcg (SCHUR_JACOBI), two_level, "
              "exact; NAME@ETA with an eta other than 0.1, NAME@ETA@N with at "
              "least N iterations of PCG a step.");
DEFINE_string(device, "cuda", "cuda or host.");
DEFINE_string(precision, "double", "double or mixed.");
DEFINE_double(limit, 8.0, "Seconds after which a solve ends with its step.");
DEFINE_double(seconds, 1e9, "Seconds after which no problem begins.");
DEFINE_int64(most_of_exact,
             6000000,
             "Observations of a problem that is solved by exact steps, at "
             "most.");

namespace ceres_ext::bal {
namespace {

struct Size {
  const char* name;
  int32_t num_cameras;
  int32_t num_points;
  int64_t num_observations;
};
// Cameras, points and observations of problems of BAL from 700k on.
constexpr Size kSizes[] = {{"20k", 150, 4000, 20000},
                           {"100k", 400, 20000, 100000},
                           {"200k", 600, 40000, 200000},
                           {"700k", 1723, 156502, 678718},
                           {"5M", 1778, 993923, 5001946},
                           {"29M", 13682, 4456117, 28987644}};

struct Scene {
  const char* name;
  SceneLayout layout;
  double near;  // SyntheticOptions' drift and noise of points, times this
  double far;
  double outlier_fraction;
  double outlier_size;
};
// From ten times the drift a city of 600 images is near no minimum.
constexpr Scene kScenes[] = {{"street", LAYOUT_CITY, 0.1, 1.0, 0.01, 20.0},
                             {"strips", LAYOUT_STRIPS, 0.1, 1.0, 0.01, 20.0},
                             {"city", LAYOUT_PLACES, 1.0, 5.0, 0.005, 50.0}};

template <typename Named, size_t n>
const Named* Find(const Named (&all)[n], const std::string& name) {
  for (const Named& one : all) {
    if (name == one.name) {
      return &one;
    }
  }
  std::fprintf(stderr, "%s is unknown\n", name.c_str());
  return nullptr;
}

// NAME, NAME@ETA or NAME@ETA@N.
bool SetSolver(const std::string& solver, SolveBalOptions* options) {
  std::istringstream parts(solver);
  std::string name;
  std::getline(parts, name, '@');
  Options& ext = options->ext_options;
  char at = 0;
  if (parts >> options->solver_options.eta) {
    parts >> at >> options->solver_options.min_linear_solver_iterations;
  } else {
    options->solver_options.eta = FLAGS_eta;
  }
  if (name == "default") {
    ext.linear_solver = LINEAR_SOLVER_AUTO;
  } else if (name == "two_level") {
    ext.preconditioner = PRECONDITIONER_TWO_LEVEL;
  } else if (name == "auto") {
    ext.preconditioner = PRECONDITIONER_AUTO;
  } else if (name == "exact") {
    options->solver_options.linear_solver_type = ceres::SPARSE_SCHUR;
  } else if (name != "pcg") {
    std::fprintf(stderr, "--solvers: %s is unknown\n", solver.c_str());
    return false;
  }
  return true;
}

// A line about the fastest of --solves solves.
bool RunSolver(const Json& problem,
               const std::string& solver,
               const std::string& loss,
               const BalProblem& start,
               BalProblem* copy) {
  SolveBalOptions options = BenchmarkOptions();
  options.robustify = loss == "huber";
  options.solver_options.function_tolerance = 1e-6;
  options.solver_options.max_solver_time_in_seconds = FLAGS_limit;
  options.ext_options.fallback = FALLBACK_REFUSE;
  if (!StringToDeviceType(FLAGS_device, &options.ext_options.device) ||
      !StringToPrecisionType(FLAGS_precision, &options.ext_options.precision)) {
    std::fprintf(stderr, "--device or --precision is unknown\n");
    return false;
  }
  if (!SetSolver(solver, &options)) {
    return false;
  }
  Summary best;
  for (int i = 0; i < FLAGS_solves; ++i) {
    Restore(start, copy);
    Summary summary;
    double build_seconds = 0.0;
    SolveBal(options, copy, &summary, &build_seconds);
    if (i == 0 ||
        summary.minimizer_time_in_seconds < best.minimizer_time_in_seconds) {
      best = summary;
    }
  }
  Json line = problem;
  line["loss"] = loss;
  line["solver"] = solver;
  if (!best.IsSolutionUsable()) {
    line["ending"] = best.message;
    PrintLine(line);
    return solver == "exact";  // which may need too much memory
  }
  Json progress = Json::array();
  int num_rejected = 0;
  const double begin = best.iterations[0].cumulative_time_in_seconds;
  for (const ceres::IterationSummary& step : best.iterations) {
    if (step.step_is_successful || step.iteration == 0) {
      progress.push_back({step.iteration,
                          Rounded(step.cumulative_time_in_seconds - begin),
                          step.cost});
    } else {
      ++num_rejected;
    }
  }
  line["ending"] = "";
  line["steps"] = static_cast<int>(best.iterations.size()) - 1;
  line["rejected"] = num_rejected;
  line["pcg"] = best.num_pcg_iterations;
  line["with_second_level"] = best.num_coarse_iterations;
  line["seconds"] =
      Rounded(best.iterations.back().cumulative_time_in_seconds - begin);
  line["total"] = Rounded(best.total_time_in_seconds);
  line["seconds_of_second_level"] = Rounded(best.coarse_time_in_seconds);
  line["cost"] = best.final_cost;
  line["termination"] = ceres::TerminationTypeToString(best.termination_type);
  line["progress"] = progress;
  PrintLine(line);
  return true;
}

bool RunProblem(const Size& size,
                const Scene& scene,
                int seed,
                const std::string& start_name) {
  SyntheticOptions options;
  options.layout = scene.layout;
  options.num_cameras = size.num_cameras;
  options.num_points = size.num_points;
  options.num_observations = size.num_observations;
  options.seed = seed;
  options.outlier_fraction = scene.outlier_fraction;
  options.outlier_size = scene.outlier_size;
  FLAGS_start = start_name == "near" ? scene.near : scene.far;
  const double begin = Seconds();
  BalProblem start;
  if (!GenerateStart(options, &start)) {
    return false;
  }
  std::fprintf(stderr,
               "%s %s %d %s: made in %.2f s\n",
               size.name,
               scene.name,
               seed,
               start_name.c_str(),
               Seconds() - begin);
  BalProblem copy = start;
  const Json problem = {{"size", size.name},
                        {"scene", scene.name},
                        {"seed", seed},
                        {"start", start_name},
                        {"device", FLAGS_device},
                        {"precision", FLAGS_precision}};
  bool is_done = true;
  for (const std::string& loss : SplitAtCommas(FLAGS_losses)) {
    for (const std::string& solver : SplitAtCommas(FLAGS_solvers)) {
      if (solver == "exact" && size.num_observations > FLAGS_most_of_exact) {
        continue;
      }
      is_done &= RunSolver(problem, solver, loss, start, &copy);
    }
  }
  return is_done;
}

int Main(int argc, char** argv) {
  for (const auto& [flag, value] : {std::pair("iterations", "50"),
                                    std::pair("seeds", "3"),
                                    std::pair("solves", "2")}) {
    gflags::SetCommandLineOptionWithMode(
        flag, value, gflags::SET_FLAGS_DEFAULT);
  }
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  const double begin = Seconds();
  int code = 0;
  for (const std::string& size_name : SplitAtCommas(FLAGS_sizes)) {
    for (const std::string& scene_name : SplitAtCommas(FLAGS_scenes)) {
      const Size* const size = Find(kSizes, size_name);
      const Scene* const scene = Find(kScenes, scene_name);
      if (size == nullptr || scene == nullptr) {
        return 1;
      }
      for (int seed = 1; seed <= FLAGS_seeds; ++seed) {
        for (const std::string& start : SplitAtCommas(FLAGS_starts)) {
          if (Seconds() - begin > FLAGS_seconds) {
            std::fprintf(stderr,
                         "%s %s %d %s: no time left\n",
                         size->name,
                         scene->name,
                         seed,
                         start.c_str());
            continue;
          }
          code |= RunInProcess(
                      [&] { return RunProblem(*size, *scene, seed, start); })
                      ? 0
                      : 1;
        }
      }
    }
  }
  return code;
}

}  // namespace
}  // namespace ceres_ext::bal

int main(int argc, char** argv) { return ceres_ext::bal::Main(argc, argv); }
