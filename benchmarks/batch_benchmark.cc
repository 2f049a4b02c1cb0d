// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Windows per second and latency of ceres_ext::SolveBatch, beside a loop of
// stock Ceres solves on as many threads.
//
//   batch_benchmark --window=W10,W20,W50 --machine=cuda,host,stock --threads=16
//
// A camera moves along a line; each point is in five images in a row, with
// noise of half a pixel. W10: 10 cameras, 500 points, 2,500 observations; W20:
// 20, 2,000, 10,000; W50: 50, 5,000, 25,000; P1: a pose with 200 points that
// are known, P6: the same with constant intrinsics; R10, R20, R50: W10, W20 and
// W50 as poses (quaternions), each with the three intrinsics of its own RADIAL
// camera; 32 different ones, repeated. Ten iterations each, double, 9 columns a
// camera, 6 in P6. C1: curve fits of 4 parameters and 20 residuals by a
// user-defined functor, with the tolerances of Ceres's defaults and at most 50
// iterations. A line of JSON each: windows per second from arrays to arrays,
// median of --repeats; the parts of it; milliseconds of one window by itself,
// percentiles of --singles; the mean of final costs; windows that ended with
// other bits than their first copy. Stock's ceres::Problem is made beforehand,
// which is not counted. cuda_solve and host_solve are ceres_ext::Solve, one
// window after the other.
//
//   batch_benchmark --resources --machine=cuda --submissions=200
//
// Prints the resources of the device, and how long Submit and Wait of a
// ceres_ext::WindowSolver take for one window at a time. With --iterations=0
// these are mostly what surrounds a kernel.
//
//   batch_benchmark --window=W10 --machine=cuda --stream_rates=500,5000
//
// Windows come at fixed intervals or as a Poisson process, and a
// ceres_ext::WindowSolver solves them in batches of --stream_batches, up to
// eight at once. A line each: windows per second, and from a window's coming to
// its result, the wait for its batch included, the median, the 99th percentile
// and the maximum of milliseconds. --stream_loads=0.1,0.9 are rates as parts of
// the fastest of WindowSolver::MeasureRates, which are printed too, with the
// size of submissions that ChooseSubmissionSize takes for each rate.
#ifdef CERES_EXT_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "benchmarks/batch_functors.h"
#include "benchmarks/benchmark.h"
#include "ceres/manifold.h"
#include "ceres/problem.h"
#include "ceres/product_manifold.h"
#include "ceres/rotation.h"
#include "ceres/solver.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/camera_models.h"
#include "ceres_ext/device_cost_function.h"
#include "ceres_ext/options.h"
#include "ceres_ext/photogrammetry.h"
#include "ceres_ext/solve.h"
#include "ceres_ext/window_solver.h"
#include "cuda_kernels/model/bal_model.h"
#include "gflags/gflags.h"

DEFINE_string(window, "W10,W20,W50", "Which windows.");
DEFINE_string(machine, "cuda,host,stock", "Which solvers.");
DEFINE_string(cuda_devices,
              "",
              "Several devices, as Options::cuda_devices: all, or 0+1.");
DEFINE_int32(threads, 1, "Threads of the host.");
DEFINE_string(count,
              "0",
              "Windows in a batch, a list; 0: 4096 W10, 2048 W20, 1024 W50.");
DEFINE_int32(constant_cameras,
             0,
             "Constant cameras of each window, its first.");
DEFINE_string(ext_options,
              "",
              "ceres_ext::Options, as ParseOptions reads them.");
DEFINE_bool(resources, false, "Print the resources of the device.");
DEFINE_int32(submissions, 0, "Windows that are submitted one by one.");
DEFINE_int32(repeats, 5, "Batches.");
DEFINE_int32(singles, 50, "Batches of one window.");
DEFINE_int32(iterations, 10, "Iterations of a window.");
DEFINE_string(stream_rates, "", "Windows per second that arrive, a list.");
DEFINE_string(stream_loads, "", "The same, as parts of the fastest rate.");
DEFINE_double(rates_seconds,
              2.0,
              "Seconds to measure rates with stream_loads.");
DEFINE_string(stream_batches, "1,4,16", "Windows of a submission, a list.");
DEFINE_double(stream_seconds, 2.0, "Seconds during which they arrive.");

namespace ceres_ext {
namespace {

constexpr int kDistinct = 32;
constexpr int kSubmissionsInFlight = 8;

struct Size {
  std::string name;
  int num_cameras;
  int num_points;
  int views;
  int count;
  bool has_constant_points = false;
  bool has_constant_intrinsics = false;
  bool has_poses = false;

  int camera_size() const { return has_poses ? 7 : 9; }
  ceres::Manifold* manifold() const {
    static ceres::SubsetManifold pose_alone(9, {6, 7, 8});
    static ceres::ProductManifold<ceres::EigenQuaternionManifold,
                                  ceres::EuclideanManifold<3>>
        pose;
    return has_poses                 ? static_cast<ceres::Manifold*>(&pose)
           : has_constant_intrinsics ? &pose_alone
                                     : nullptr;
  }
};

const Size kSizes[] = {{"W10", 10, 500, 5, 4096},
                       {"W20", 20, 2000, 5, 2048},
                       {"W50", 50, 5000, 5, 1024},
                       {"R10", 10, 500, 5, 4096, false, false, true},
                       {"R20", 20, 2000, 5, 2048, false, false, true},
                       {"R50", 50, 5000, 5, 1024, false, false, true},
                       {"P1", 1, 200, 1, 65536, true, false},
                       {"P6", 1, 200, 1, 65536, true, true}};

// f, cx, cy, k1, k2; cx and cy are zero.
constexpr int kParams = RadialCamera::kNumParams;
using PoseError = ReprojectionError<RadialCamera, EigenQuaternion>;
using PoseCost = CostFunctionFor<DeviceAutoDiffCostFunction, PoseError>;
ceres::SubsetManifold* WithoutCenter() {
  static ceres::SubsetManifold params(kParams, {1, 2});
  return &params;
}

struct Windows {
  Size size;
  int count = 0;
  std::vector<double> cameras;
  std::vector<double> params;  // of each camera, if they are poses
  std::vector<double> points;
  std::vector<double> observations;
  std::vector<int32_t> camera_id;
  std::vector<int32_t> point_id;
  std::vector<uint8_t> camera_is_constant;
  std::vector<uint8_t> point_is_constant;
  std::vector<int64_t> camera_begin{0};
  std::vector<int64_t> point_begin{0};
  std::vector<int64_t> row_begin{0};
};

void AddWindow(unsigned seed, Windows* windows) {
  const Size& size = windows->size;
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  std::vector<double> cameras;
  for (int i = 0; i < size.num_cameras; ++i) {
    for (int e = 0; e < 3; ++e) {
      cameras.push_back(0.02 * normal(random));
    }
    cameras.push_back(-0.5 * i);
    cameras.push_back(0.05 * normal(random));
    cameras.push_back(0.05 * normal(random));
    cameras.insert(cameras.end(), {500.0, -0.01, 0.001});
  }
  const auto first_camera = static_cast<int32_t>(windows->camera_begin.back());
  const auto first_point = static_cast<int32_t>(windows->point_begin.back());
  for (int p = 0; p < size.num_points; ++p) {
    const int last = size.num_cameras - size.views;
    const int first = static_cast<int>(uniform(random) * (last + 1));
    const double point[3] = {
        0.5 * (first + 0.5 * size.views) + 2.0 * (uniform(random) - 0.5),
        3.0 * (uniform(random) - 0.5),
        -4.0 - 4.0 * uniform(random)};
    for (int c = first; c < first + size.views; ++c) {
      const auto state = kernels::PrepareBalCamera<3, double>(
          cameras.data() + int64_t{9} * c, nullptr);
      const double zero[2] = {};
      double observed[2];
      kernels::Residual(state, kernels::Project(state, point), zero, observed);
      windows->observations.push_back(observed[0] + 0.5 * normal(random));
      windows->observations.push_back(observed[1] + 0.5 * normal(random));
      windows->camera_id.push_back(first_camera + c);
      windows->point_id.push_back(first_point + p);
    }
    for (const double value : point) {
      windows->points.push_back(
          value + (size.has_constant_points ? 0.0 : 0.05 * normal(random)));
    }
  }
  for (size_t e = 0; e < cameras.size(); ++e) {
    windows->cameras.push_back(cameras[e] +
                               (e % 9 < 6 ? 0.01 * normal(random) : 0.0));
  }
  windows->camera_begin.push_back(first_camera + size.num_cameras);
  windows->point_begin.push_back(first_point + size.num_points);
  windows->row_begin.push_back(static_cast<int64_t>(windows->camera_id.size()));
}

// Poses and RADIAL cameras for BAL's, which look the other way: turned by pi
// about x, with y downwards.
void MakePoses(Windows* windows) {
  std::vector<double> poses;
  for (size_t i = 0; i < windows->cameras.size(); i += 9) {
    const double* const camera = &windows->cameras[i];
    double of_camera[4];
    ceres::AngleAxisToQuaternion(camera, of_camera);
    const double turn[4] = {0.0, 1.0, 0.0, 0.0};
    double q[4];
    ceres::QuaternionProduct(turn, of_camera, q);
    poses.insert(poses.end(),
                 {q[1], q[2], q[3], q[0], camera[3], -camera[4], -camera[5]});
    windows->params.insert(windows->params.end(),
                           {camera[6], 0.0, 0.0, camera[7], camera[8]});
  }
  windows->cameras = poses;
  for (size_t k = 1; k < windows->observations.size(); k += 2) {
    windows->observations[k] = -windows->observations[k];
  }
}

// first: of the kDistinct different ones.
Windows MakeWindows(const Size& size, int count, int first = 0) {
  Windows windows;
  windows.size = size;
  windows.count = count;
  for (int i = 0; i < count; ++i) {
    AddWindow((first + i) % kDistinct + 1, &windows);
  }
  for (int i = 0; i < count * size.num_cameras; ++i) {
    windows.camera_is_constant.push_back(
        i % size.num_cameras < FLAGS_constant_cameras ? 1 : 0);
  }
  windows.point_is_constant.assign(windows.points.size() / 3,
                                   size.has_constant_points ? 1 : 0);
  if (size.has_poses) {
    MakePoses(&windows);
  }
  return windows;
}

ceres::Solver::Options SolverOptions(int num_threads) {
  ceres::Solver::Options options;
  options.linear_solver_type = ceres::DENSE_SCHUR;
  options.max_num_iterations = FLAGS_iterations;
  options.function_tolerance = 0.0;
  options.gradient_tolerance = 0.0;
  options.parameter_tolerance = 0.0;
  options.num_threads = num_threads;
  options.logging_type = ceres::SILENT;
  return options;
}

Options ExtOptions(DeviceType device) {
  Options options;
  options.fallback = FALLBACK_REFUSE;
  std::string error;
  if (!FLAGS_ext_options.empty() &&
      !ParseOptions(FLAGS_ext_options, &options, &error)) {
    std::fprintf(stderr, "%s\n", error.c_str());
    std::exit(1);
  }
  options.device = device;
  options.cuda_devices = FLAGS_cuda_devices;
  return options;
}

struct Run {
  double seconds = 0.0;
  double mean_cost = 0.0;
  int64_t num_other_bits = 0;
  BatchSummary summary;
};

// The windows as a batch that refers to them.
ProblemBatch BatchOf(Windows* windows) {
  ProblemBatch batch;
  ArrayProblem::Parameters points;
  points.values = windows->points.data();
  points.num_blocks = windows->point_begin.back();
  points.size = 3;
  points.is_constant = windows->size.has_constant_points
                           ? windows->point_is_constant.data()
                           : nullptr;
  ArrayProblem::Parameters cameras;
  cameras.values = windows->cameras.data();
  cameras.num_blocks = windows->camera_begin.back();
  cameras.size = windows->size.camera_size();
  cameras.is_constant = windows->camera_is_constant.data();
  cameras.manifold = windows->size.manifold();
  const int c = batch.problem.AddParameters(cameras);
  const int p = batch.problem.AddParameters(points);
  batch.num_problems = windows->count;
  batch.parameter_begin = {windows->camera_begin.data(),
                           windows->point_begin.data()};
  const ArrayProblem::Index camera{c, windows->camera_id.data()};
  const ArrayProblem::Index point{p, windows->point_id.data()};
  if (windows->size.has_poses) {
    ArrayProblem::Parameters params = cameras;
    params.values = windows->params.data();
    params.size = kParams;
    params.manifold = WithoutCenter();
    const int of_camera = batch.problem.AddParameters(params);
    batch.problem.AddResiduals<PoseCost>(
        windows->row_begin.back(),
        windows->observations.data(),
        {point, camera, {of_camera, windows->camera_id.data()}});
    batch.parameter_begin.push_back(windows->camera_begin.data());
  } else {
    batch.problem.AddResiduals<BalReprojectionError>(
        windows->row_begin.back(),
        windows->observations.data(),
        {camera, point});
  }
  batch.residual_begin = {windows->row_begin.data()};
  return batch;
}

// Sets the seconds and the summary of a run. False, with the reason on standard
// error, if the batch is refused.
bool Solve(const ceres::Solver::Options& options,
           DeviceType device,
           ProblemBatch* batch,
           Run* run) {
  std::string error;
  const double begin = Seconds();
  if (!SolveBatch(options, ExtOptions(device), batch, &run->summary, &error)) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return false;
  }
  run->seconds = Seconds() - begin;
  return true;
}

// The batch from its start.
Run SolveAll(const Windows& start, DeviceType device) {
  Windows windows = start;
  ProblemBatch batch = BatchOf(&windows);
  Run run;
  if (!Solve(SolverOptions(FLAGS_threads), device, &batch, &run)) {
    return run;
  }
  const int64_t values =
      int64_t{windows.size.camera_size()} * windows.size.num_cameras;
  for (int i = 0; i < windows.count; ++i) {
    run.mean_cost += run.summary.problems[i].final_cost / windows.count;
    const double* const cameras = windows.cameras.data();
    run.num_other_bits += !std::equal(cameras + values * i,
                                      cameras + values * (i + 1),
                                      cameras + values * (i % kDistinct));
  }
  return run;
}

// ceres_ext::Solve of each window by itself. starts: kDistinct windows.
Run SolveOneByOne(const std::vector<Windows>& starts,
                  int count,
                  DeviceType device) {
  const Options ext_options = ExtOptions(device);
  Run run;
  for (int i = 0; i < count; ++i) {
    Windows window = starts[i % kDistinct];
    ProblemBatch batch = BatchOf(&window);
    Summary summary;
    const double begin = Seconds();
    ceres_ext::Solve(
        SolverOptions(FLAGS_threads), ext_options, &batch.problem, &summary);
    run.seconds += Seconds() - begin;
    run.mean_cost += summary.final_cost / count;
    run.summary.device = summary.device;
  }
  return run;
}

// Stock Ceres on threads, a problem each at a time.
Run SolveByThreads(const std::vector<std::unique_ptr<ceres::Problem>>& problems,
                   const ceres::Solver::Options& options) {
  const int count = static_cast<int>(problems.size());
  std::vector<double> costs(count);
  Run run;
  const double begin = Seconds();
  ForEachOnThreads(count, FLAGS_threads, [&](int64_t i) {
    ceres::Solver::Summary summary;
    ceres::Solve(options, problems[i].get(), &summary);
    costs[i] = summary.final_cost;
  });
  run.seconds = Seconds() - begin;
  for (const double cost : costs) {
    run.mean_cost += cost / count;
  }
  return run;
}

Run SolveByStock(const Windows& start) {
  Windows windows = start;
  std::vector<std::unique_ptr<ceres::Problem>> problems;
  for (int i = 0; i < windows.count; ++i) {
    ceres::Problem::Options of_problem;
    of_problem.manifold_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
    problems.push_back(std::make_unique<ceres::Problem>(of_problem));
    for (int64_t k = windows.row_begin[i]; k < windows.row_begin[i + 1]; ++k) {
      const int32_t id = windows.camera_id[k];
      const bool is_constant = windows.camera_is_constant[id] != 0;
      double* const point = &windows.points[int64_t{3} * windows.point_id[k]];
      double* const camera =
          &windows.cameras[int64_t{windows.size.camera_size()} * id];
      const double* const observed = &windows.observations[2 * k];
      if (windows.size.has_poses) {
        double* const params = &windows.params[int64_t{kParams} * id];
        problems[i]->AddResidualBlock(
            new PoseCost(new PoseError{observed[0], observed[1]}),
            nullptr,
            point,
            camera,
            params);
        problems[i]->SetManifold(params, WithoutCenter());
        if (is_constant) {
          problems[i]->SetParameterBlockConstant(params);
        }
      } else {
        problems[i]->AddResidualBlock(
            CreateBalReprojectionError(observed[0], observed[1]),
            nullptr,
            camera,
            point);
      }
      problems[i]->SetManifold(camera, windows.size.manifold());
      if (is_constant) {
        problems[i]->SetParameterBlockConstant(camera);
      }
      if (windows.size.has_constant_points) {
        problems[i]->SetParameterBlockConstant(point);
      }
    }
  }
  return SolveByThreads(problems, SolverOptions(1));
}

// solve(n): solves n problems from their start.
void Measure(const std::string& name,
             const std::string& machine,
             int count,
             const std::function<Run(int)>& solve) {
  std::vector<Run> runs;
  runs.reserve(FLAGS_repeats);
  solve(1);  // Starts the device.
  for (int i = 0; i < FLAGS_repeats; ++i) {
    runs.push_back(solve(count));
  }
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) {
    return a.seconds < b.seconds;
  });
  const Run& median = runs[runs.size() / 2];
  std::vector<double> single;
  std::vector<double> single_pack;
  single.reserve(FLAGS_singles);
  single_pack.reserve(FLAGS_singles);
  for (int i = 0; i < FLAGS_singles; ++i) {
    const Run run = solve(1);
    single.push_back(1e3 * run.seconds);
    single_pack.push_back(1e3 * run.summary.pack_time_in_seconds);
  }
  const BatchSummary& summary = median.summary;
  PrintLine({{"mode", "batch"},
             {"window", name},
             {"machine", machine},
             {"threads", FLAGS_threads},
             {"iterations", FLAGS_iterations},
             {"constant_cameras", FLAGS_constant_cameras},
             {"ext_options", FLAGS_ext_options},
             {"count", count},
             {"windows_per_second", Rounded(count / median.seconds)},
             {"pack_s", Rounded(summary.pack_time_in_seconds)},
             {"window_s", Rounded(summary.window_time_in_seconds)},
             {"total_s", Rounded(median.seconds)},
             {"single_ms_p50", Rounded(Percentile(single, 0.5))},
             {"single_ms_p90", Rounded(Percentile(single, 0.9))},
             {"single_ms_p99", Rounded(Percentile(single, 0.99))},
             {"single_ms_max", Rounded(Percentile(single, 1.0))},
             {"single_pack_ms_p50", Rounded(Percentile(single_pack, 0.5))},
             {"mean_cost", median.mean_cost},
             {"other_bits", median.num_other_bits},
             {"windows", summary.num_windows},
             {"device", summary.device}});
}

DeviceType DeviceOf(const std::string& machine) {
  return machine.rfind("cuda", 0) == 0 ? DEVICE_CUDA : DEVICE_HOST;
}

void MeasureWindows(const Size& size, const std::string& machine, int count) {
  count = count > 0 ? count : size.count;
  if (machine == "cuda_solve" || machine == "host_solve") {
    std::vector<Windows> starts;
    starts.reserve(kDistinct);
    for (int i = 0; i < kDistinct; ++i) {
      starts.push_back(MakeWindows(size, 1, i));
    }
    Measure(size.name, machine, count, [&](int n) {
      return SolveOneByOne(starts, n, DeviceOf(machine));
    });
    return;
  }
  const Windows windows = MakeWindows(size, count);
  const Windows one = MakeWindows(size, 1);
  Measure(size.name, machine, count, [&](int n) {
    const Windows& start = n == 1 ? one : windows;
    return machine == "stock" ? SolveByStock(start)
                              : SolveAll(start, DeviceOf(machine));
  });
}

// Curve fits, kDistinct different ones.
struct Curves {
  int count = 0;
  std::vector<double> parameters;
  std::vector<PeakError> errors;
  std::vector<int32_t> curve;
  std::vector<int64_t> curve_begin{0};
  std::vector<int64_t> row_begin{0};
};

Curves MakeCurves(int count) {
  constexpr int kRows = 20;
  Curves curves;
  curves.count = count;
  for (int i = 0; i < count; ++i) {
    std::mt19937 random(i % kDistinct + 1);
    std::normal_distribution<double> normal;
    const double height = 5.0 + normal(random);
    const double centre = 0.3 * normal(random);
    for (int k = 0; k < kRows; ++k) {
      const double x = -3.0 + 6.0 * (k + 0.5) / kRows;
      const double u = (x - centre) / 0.8;
      curves.errors.push_back(
          {x, height * std::exp(-0.5 * u * u) + 1.0 + 0.1 * normal(random)});
      curves.curve.push_back(i);
    }
    curves.parameters.insert(curves.parameters.end(), {4.0, 0.0, 1.2, 0.5});
    curves.curve_begin.push_back(i + 1);
    curves.row_begin.push_back(int64_t{kRows} * (i + 1));
  }
  return curves;
}

ceres::Solver::Options CurveOptions(int num_threads) {
  ceres::Solver::Options options;
  options.linear_solver_type = ceres::DENSE_NORMAL_CHOLESKY;
  options.num_threads = num_threads;
  options.logging_type = ceres::SILENT;
  return options;
}

Run FitAll(const Curves& start, DeviceType device) {
  std::vector<double> parameters = start.parameters;
  ProblemBatch batch;
  const int p =
      batch.problem.AddParameters({parameters.data(), start.count, 4});
  batch.problem.AddResiduals<PeakCost>(
      start.row_begin.back(), start.errors.data(), {{p, start.curve.data()}});
  batch.num_problems = start.count;
  batch.parameter_begin = {start.curve_begin.data()};
  batch.residual_begin = {start.row_begin.data()};
  Run run;
  if (!Solve(CurveOptions(FLAGS_threads), device, &batch, &run)) {
    return run;
  }
  for (int i = 0; i < start.count; ++i) {
    run.mean_cost += run.summary.problems[i].final_cost / start.count;
    const double* const values = parameters.data();
    run.num_other_bits += !std::equal(values + int64_t{4} * i,
                                      values + int64_t{4} * (i + 1),
                                      values + int64_t{4} * (i % kDistinct));
  }
  return run;
}

Run FitByStock(const Curves& start) {
  std::vector<double> parameters = start.parameters;
  std::vector<std::unique_ptr<ceres::Problem>> problems;
  for (int i = 0; i < start.count; ++i) {
    problems.push_back(std::make_unique<ceres::Problem>());
    for (int64_t k = start.row_begin[i]; k < start.row_begin[i + 1]; ++k) {
      problems[i]->AddResidualBlock(
          new PeakCost(start.errors[k]), nullptr, &parameters[int64_t{4} * i]);
    }
  }
  return SolveByThreads(problems, CurveOptions(1));
}

void MeasureCurves(const std::string& machine, int count) {
  count = count > 0 ? count : 1 << 20;
  // Stock takes minutes for as many.
  const Curves curves = MakeCurves(machine == "cuda" ? count : count / 64 + 1);
  const Curves one = MakeCurves(1);
  Measure("C1", machine, curves.count, [&](int n) {
    const Curves& start = n == 1 ? one : curves;
    return machine == "stock" ? FitByStock(start)
                              : FitAll(start, DeviceOf(machine));
  });
}

// Seconds at which windows come, `rate` a second on average.
std::vector<double> Arrivals(double rate, bool is_poisson) {
  std::mt19937 random(1);
  std::exponential_distribution<double> gap(rate);
  std::vector<double> arrivals;
  for (double t = 0.0; t < FLAGS_stream_seconds;) {
    arrivals.push_back(t);
    t += is_poisson ? gap(random) : 1.0 / rate;
  }
  return arrivals;
}

// A submission of a stream.
struct Flight {
  Windows windows;
  ProblemBatch batch;
  WindowSolver::Ticket ticket = 0;  // 0: free
  size_t first = 0;                 // of its windows
};

// Null, with the reason on standard error, if it is refused.
std::unique_ptr<WindowSolver> MakeSolver(const Size& size,
                                         const std::string& machine,
                                         int batch_size,
                                         int num_in_flight) {
  WindowCapacity capacity;
  capacity.num_cameras = size.num_cameras;
  capacity.num_points = size.num_points;
  capacity.num_rows = int64_t{size.num_points} * size.views;
  capacity.num_problems = batch_size;
  capacity.num_submissions = num_in_flight;
  std::string error;
  auto solver = WindowSolver::Create(SolverOptions(FLAGS_threads),
                                     ExtOptions(DeviceOf(machine)),
                                     capacity,
                                     &error);
  if (solver == nullptr) {
    std::fprintf(stderr, "%s\n", error.c_str());
  }
  return solver;
}

// One window at a time, by a solver for one.
void SubmitOneByOne(const Size& size, const std::string& machine) {
  const auto solver = MakeSolver(size, machine, 1, 1);
  if (solver == nullptr) {
    return;
  }
  std::vector<double> submit;
  std::vector<double> wait;
  std::vector<double> both;
  std::string error;
  BatchSummary summary;
  for (int i = -3; i < FLAGS_submissions; ++i) {
    Windows window = MakeWindows(size, 1, (i + kDistinct) % kDistinct);
    const ProblemBatch batch = BatchOf(&window);
    const double begin = Seconds();
    const WindowSolver::Ticket ticket = solver->Submit(batch, &error);
    const double submitted = Seconds();
    if (!solver->Wait(ticket, &summary)) {
      std::fprintf(stderr, "%s\n", error.c_str());
      return;
    }
    const double end = Seconds();
    if (i >= 0) {  // The first start the device.
      submit.push_back(1e3 * (submitted - begin));
      wait.push_back(1e3 * (end - submitted));
      both.push_back(1e3 * (end - begin));
    }
  }
  PrintLine({{"mode", "submissions"},
             {"window", size.name},
             {"machine", machine},
             {"iterations", FLAGS_iterations},
             {"constant_cameras", FLAGS_constant_cameras},
             {"submissions", FLAGS_submissions},
             {"submit_ms_p50", Rounded(Percentile(submit, 0.5))},
             {"wait_ms_p50", Rounded(Percentile(wait, 0.5))},
             {"latency_ms_p50", Rounded(Percentile(both, 0.5))},
             {"latency_ms_p99", Rounded(Percentile(both, 0.99))},
             {"latency_ms_max", Rounded(Percentile(both, 1.0))},
             {"device", solver->device()}});
}

// Windows come at a rate and are solved in batches as they fill: how long each
// waits and is solved.
void Stream(const Size& size,
            const std::string& machine,
            double rate,
            int batch_size,
            bool is_poisson) {
  const Windows start = MakeWindows(size, batch_size);
  std::string error;
  // Outlives the solver, which may have some in flight at the end.
  std::vector<Flight> flights(kSubmissionsInFlight);
  const auto solver =
      MakeSolver(size, machine, batch_size, kSubmissionsInFlight);
  if (solver == nullptr) {
    return;
  }
  for (Flight& flight : flights) {
    flight.windows = start;
    flight.batch = BatchOf(&flight.windows);
  }
  BatchSummary summary;
  // Starts the device.
  solver->Wait(solver->Submit(flights[0].batch, &error), &summary);
  const std::vector<double> arrivals = Arrivals(rate, is_poisson);
  const size_t n = arrivals.size() / batch_size * batch_size;
  std::vector<double> latency;
  latency.reserve(n);
  size_t next = 0;
  const double begin = Seconds();
  double now = 0.0;
  // More is offered than solved where it takes three times as long.
  while (latency.size() < n && now < 3.0 * FLAGS_stream_seconds) {
    for (Flight& flight : flights) {
      now = Seconds() - begin;
      if (flight.ticket != 0 &&
          solver->Poll(flight.ticket, &summary) == WindowSolver::State::kDone) {
        now = Seconds() - begin;
        flight.ticket = 0;
        for (int i = 0; i < batch_size; ++i) {
          latency.push_back(1e3 * (now - arrivals[flight.first + i]));
        }
      }
      if (flight.ticket == 0 && next < n &&
          now >= arrivals[next + batch_size - 1]) {
        flight.first = next;
        next += batch_size;
        std::copy(start.cameras.begin(),
                  start.cameras.end(),
                  flight.windows.cameras.begin());
        std::copy(start.params.begin(),
                  start.params.end(),
                  flight.windows.params.begin());
        std::copy(start.points.begin(),
                  start.points.end(),
                  flight.windows.points.begin());
        flight.ticket = solver->Submit(flight.batch, &error);
      }
    }
  }
  PrintLine(
      {{"mode", "stream"},
       {"window", size.name},
       {"machine", machine},
       {"arrivals", is_poisson ? "poisson" : "fixed"},
       {"batch", batch_size},
       {"offered_per_second", Rounded(rate)},
       {"arrived_per_second",
        Rounded(n > 1 ? static_cast<double>(n) / arrivals[n - 1] : 0.0)},
       {"windows_per_second",
        Rounded(latency.empty() ? 0.0
                                : static_cast<double>(latency.size()) / now)},
       {"latency_ms_p50", Rounded(Percentile(latency, 0.5))},
       {"latency_ms_p99", Rounded(Percentile(latency, 0.99))},
       {"latency_ms_max", Rounded(Percentile(latency, 1.0))},
       {"windows", latency.size()},
       {"device", solver->device()}});
}

// The rates of submissions of different sizes, which are printed.
std::vector<SubmissionRate> MeasureRates(const Size& size,
                                         const std::string& machine,
                                         int batch_size) {
  Windows windows = MakeWindows(size, batch_size);
  std::vector<SubmissionRate> rates;
  const auto solver =
      MakeSolver(size, machine, batch_size, kSubmissionsInFlight);
  std::string error;
  if (solver != nullptr &&
      !solver->MeasureRates(
          BatchOf(&windows), FLAGS_rates_seconds, &rates, &error)) {
    std::fprintf(stderr, "%s\n", error.c_str());
  }
  for (const SubmissionRate& rate : rates) {
    PrintLine({{"mode", "rates"},
               {"window", size.name},
               {"machine", machine},
               {"batch", rate.num_problems},
               {"windows_per_second", Rounded(rate.problems_per_second)}});
  }
  return rates;
}

void StreamAll(const Size& size, const std::string& machine) {
  const std::vector<double> batch_sizes = Numbers(FLAGS_stream_batches);
  std::vector<double> arrival_rates = Numbers(FLAGS_stream_rates);
  if (!FLAGS_stream_loads.empty() && !batch_sizes.empty()) {
    const std::vector<SubmissionRate> rates =
        MeasureRates(size,
                     machine,
                     static_cast<int>(*std::max_element(batch_sizes.begin(),
                                                        batch_sizes.end())));
    double fastest = 0.0;
    for (const SubmissionRate& rate : rates) {
      fastest = std::max(fastest, rate.problems_per_second);
    }
    for (const double load : Numbers(FLAGS_stream_loads)) {
      if (load * fastest > 0.0) {
        arrival_rates.push_back(load * fastest);
        PrintLine({{"mode", "choice"},
                   {"window", size.name},
                   {"machine", machine},
                   {"offered_per_second", Rounded(load * fastest)},
                   {"batch", ChooseSubmissionSize(rates, load * fastest)}});
      }
    }
  }
  for (const double rate : arrival_rates) {
    for (const double batch_size : batch_sizes) {
      for (const bool is_poisson : {false, true}) {
        Stream(size, machine, rate, static_cast<int>(batch_size), is_poisson);
      }
    }
  }
}

#ifdef CERES_EXT_WITH_CUDA
// The first device has these; errors go to standard error.
void PrintDeviceResources() {
  cudaDeviceProp properties;
  int clock_khz = 0;
  int memory_clock_khz = 0;
  int driver = 0;
  for (const cudaError_t error :
       {cudaGetDeviceProperties(&properties, 0),
        cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, 0),
        cudaDeviceGetAttribute(
            &memory_clock_khz, cudaDevAttrMemoryClockRate, 0),
        cudaDriverGetVersion(&driver)}) {
    if (error != cudaSuccess) {
      std::fprintf(stderr, "no resources: %s\n", cudaGetErrorString(error));
      return;
    }
  }
  PrintLine(
      {{"mode", "resources"},
       {"device", properties.name},
       {"compute_capability",
        std::to_string(properties.major) + "." +
            std::to_string(properties.minor)},
       {"cuda_driver", driver},
       {"multiprocessors", properties.multiProcessorCount},
       {"threads_per_multiprocessor", properties.maxThreadsPerMultiProcessor},
       {"registers_per_block", properties.regsPerBlock},
       {"shared_kb_per_multiprocessor",
        properties.sharedMemPerMultiprocessor / 1024},
       {"shared_kb_per_block", properties.sharedMemPerBlockOptin / 1024},
       {"l2_mb", Rounded(properties.l2CacheSize / 1048576.0)},
       {"memory_gb",
        Rounded(static_cast<double>(properties.totalGlobalMem) / 1e9)},
       // Two transfers per clock; 128 bytes per clock and multiprocessor.
       {"memory_gb_per_second",
        Rounded(2e3 * memory_clock_khz * properties.memoryBusWidth / 8.0 /
                1e9)},
       {"shared_gb_per_second",
        Rounded(1e3 * clock_khz * 128.0 * properties.multiProcessorCount /
                1e9)}});
}
#endif

}  // namespace
}  // namespace ceres_ext

int main(int argc, char** argv) {
  using namespace ceres_ext;  // NOLINT(google-build-using-namespace)
  gflags::ParseCommandLineFlags(&argc, &argv, /*remove_flags=*/true);
  const char* const machines[] = {
      "cuda", "host", "cuda_solve", "host_solve", "stock"};
  const std::vector<double> counts = Numbers(FLAGS_count);
#ifdef CERES_EXT_WITH_CUDA
  if (FLAGS_resources && Names(FLAGS_machine, "cuda")) {
    PrintDeviceResources();
  }
#endif
  for (const Size& size : kSizes) {
    for (const std::string machine : machines) {
      if (!Names(FLAGS_window, size.name) || !Names(FLAGS_machine, machine)) {
        continue;
      }
      const bool has_solver = machine == "cuda" || machine == "host";
      if (FLAGS_submissions > 0) {
        if (has_solver) {
          SubmitOneByOne(size, machine);
        }
      } else if (FLAGS_stream_rates.empty() && FLAGS_stream_loads.empty()) {
        for (const double count : counts) {
          MeasureWindows(size, machine, static_cast<int>(count));
        }
      } else if (has_solver) {
        StreamAll(size, machine);
      }
    }
  }
  for (const std::string machine : {"cuda", "host", "stock"}) {
    if (Names(FLAGS_window, "C1") && Names(FLAGS_machine, machine)) {
      for (const double count : counts) {
        MeasureCurves(machine, static_cast<int>(count));
      }
    }
  }
  return 0;
}
