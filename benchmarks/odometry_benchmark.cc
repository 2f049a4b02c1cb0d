// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Windows of inertial odometry (keyframes with speed and biases, inertial
// residual blocks, inverse depths; Huber's loss; the camera and its clock vary)
// by the cost functions of ceres_ext/odometry_cost_functions.h, DENSE_SCHUR:
//
//   odometry_benchmark --machine=cuda,host,stock --threads=16 --batch=1000
//
// A line of JSON each: windows per second of a batch, from arrays to arrays,
// the median of --repeats; milliseconds of one window by itself, median and
// 99th percentile of --singles; the sum of final costs. With --drop each window
// also leaves the prior of its oldest keyframe and the points anchored there.
// stock: ceres::Solve with the same cost functions and one thread a window;
// making and destroying its ceres::Problem is not counted, and neither is a
// prior.
//
//   odometry_benchmark --living=300 --machine=cuda,host --threads=1
//
// A SlidingWindow of as many keyframes: milliseconds a keyframe, in which one
// is added and the oldest is dropped, median and 99th percentile.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/benchmark.h"
#include "ceres/ceres.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/odometry_cost_functions.h"
#include "ceres_ext/sliding_window.h"
#include "gflags/gflags.h"
#include "problem_io/simulated_odometry.h"

DEFINE_string(machine, "cuda,host,stock", "Which of cuda, host and stock.");
DEFINE_int32(threads, 1, "Threads of the host.");
DEFINE_int32(frames, 11, "Keyframes of a window.");
DEFINE_int32(points, 15, "Points that are new in a keyframe.");
DEFINE_int32(batch, 100, "Windows of a batch.");
DEFINE_int32(singles, 100, "Windows that are solved by themselves; 0: none.");
DEFINE_int32(repeats, 5, "Batches, after one that is not counted.");
DEFINE_int32(iterations, 10, "Iterations at most.");
DEFINE_bool(drop, false, "Leaves a prior of the oldest keyframe.");
DEFINE_int32(living, 0, "Keyframes of a SlidingWindow; 0: batches.");

namespace ceres_ext {
namespace {

using PoseManifold = ceres::ProductManifold<ceres::EigenQuaternionManifold,
                                            ceres::EuclideanManifold<3>>;

// Windows of different paths, end to end in arrays.
struct Windows {
  enum { kPoses, kSpeeds, kDepths, kCameras, kOffsets, kNumKinds };
  static constexpr int kSize[kNumKinds] = {7, 9, 1, 7, 1};

  std::vector<double> values[kNumKinds];
  std::vector<uint8_t> is_constant[kNumKinds];
  std::vector<uint8_t> is_dropped[kNumKinds];
  std::vector<int64_t> begin[kNumKinds];
  std::vector<InertialError<EigenQuaternion>> inertial;
  std::vector<InverseDepthError<EigenQuaternion>> sights;
  std::vector<int32_t> of_inertial[4];
  std::vector<int32_t> of_sights[5];
  std::vector<int64_t> inertial_begin;
  std::vector<int64_t> sights_begin;
  PoseManifold manifold;
  ceres::HuberLoss loss{1.5};

  int64_t size() const { return static_cast<int64_t>(begin[0].size()) - 1; }

  void Add(int kind, const double* from, bool is_held, bool is_old) {
    values[kind].insert(values[kind].end(), from, from + kSize[kind]);
    is_constant[kind].push_back(is_held ? 1 : 0);
    is_dropped[kind].push_back(is_old ? 1 : 0);
  }
  int32_t Count(int kind) const {
    return static_cast<int32_t>(is_constant[kind].size());
  }
  void Mark() {
    for (int kind = 0; kind < kNumKinds; ++kind) {
      begin[kind].push_back(Count(kind));
    }
    inertial_begin.push_back(static_cast<int64_t>(inertial.size()));
    sights_begin.push_back(static_cast<int64_t>(sights.size()));
  }
};

void AddWindow(unsigned seed, Windows* to) {
  SimulatedOdometry odometry(FLAGS_points, seed);
  const int32_t first_pose = to->Count(Windows::kPoses);
  const int32_t camera = to->Count(Windows::kCameras);
  std::vector<int32_t> place(int64_t{FLAGS_points} * FLAGS_frames, -1);
  const auto start = SimulatedOdometry::Camera();
  const double offset = 0.0;
  to->Add(Windows::kCameras, start.data(), false, false);
  to->Add(Windows::kOffsets, &offset, false, false);
  for (int32_t k = 0; k < FLAGS_frames; ++k) {
    const SimulatedOdometry::Keyframe frame = odometry.Next();
    to->Add(Windows::kPoses, frame.pose.data(), k == 0, k == 0);
    to->Add(Windows::kSpeeds, frame.speed.data(), false, k == 0);
    const int32_t pose = first_pose + k;
    if (k > 0) {
      to->inertial.push_back(frame.row);
      const int32_t blocks[] = {pose - 1, pose - 1, pose, pose};
      for (int s = 0; s < 4; ++s) {
        to->of_inertial[s].push_back(blocks[s]);
      }
    }
    for (const SimulatedOdometry::Sight& sight : frame.sights) {
      int32_t& depth = place[sight.point];
      if (depth < 0) {
        depth = to->Count(Windows::kDepths);
        to->Add(
            Windows::kDepths, &sight.inverse_depth, false, sight.anchor == 0);
      }
      to->sights.push_back(sight.row);
      const int32_t blocks[] = {first_pose + static_cast<int32_t>(sight.anchor),
                                pose,
                                camera,
                                depth,
                                camera};
      for (int s = 0; s < 5; ++s) {
        to->of_sights[s].push_back(blocks[s]);
      }
    }
  }
}

void MakeWindows(int64_t n, unsigned first_seed, Windows* windows) {
  windows->Mark();
  for (int64_t i = 0; i < n; ++i) {
    AddWindow(first_seed + static_cast<unsigned>(i), windows);
    windows->Mark();
  }
}

ProblemBatch BatchOf(Windows* windows) {
  ProblemBatch batch;
  batch.num_problems = windows->size();
  for (int kind = 0; kind < Windows::kNumKinds; ++kind) {
    ArrayProblem::Parameters parameters;
    parameters.values = windows->values[kind].data();
    parameters.num_blocks = windows->Count(kind);
    parameters.size = Windows::kSize[kind];
    parameters.manifold = parameters.size == 7 ? &windows->manifold : nullptr;
    parameters.is_constant = windows->is_constant[kind].data();
    batch.problem.AddParameters(parameters);
    batch.parameter_begin.push_back(windows->begin[kind].data());
    if (FLAGS_drop) {
      batch.drop.parameter_is_dropped.push_back(
          windows->is_dropped[kind].data());
    }
  }
  const auto& of_inertial = windows->of_inertial;
  batch.problem.AddResiduals<InertialCost>(
      windows->inertial_begin.back(),
      windows->inertial.data(),
      {{Windows::kPoses, of_inertial[0].data()},
       {Windows::kSpeeds, of_inertial[1].data()},
       {Windows::kPoses, of_inertial[2].data()},
       {Windows::kSpeeds, of_inertial[3].data()}});
  const auto& of_sights = windows->of_sights;
  batch.problem.AddResiduals<InverseDepthCost>(
      windows->sights_begin.back(),
      windows->sights.data(),
      {{Windows::kPoses, of_sights[0].data()},
       {Windows::kPoses, of_sights[1].data()},
       {Windows::kCameras, of_sights[2].data()},
       {Windows::kDepths, of_sights[3].data()},
       {Windows::kOffsets, of_sights[4].data()}},
      &windows->loss);
  batch.residual_begin = {windows->inertial_begin.data(),
                          windows->sights_begin.data()};
  return batch;
}

ceres::Solver::Options SolverOptions() {
  ceres::Solver::Options options;
  options.linear_solver_type = ceres::DENSE_SCHUR;
  options.max_num_iterations = FLAGS_iterations;
  options.num_threads = FLAGS_threads;
  options.logging_type = ceres::SILENT;
  return options;
}

Options ExtOptions(const std::string& machine) {
  Options options;
  options.device = machine == "cuda" ? DEVICE_CUDA : DEVICE_HOST;
  return options;
}

// Seconds, and the sum of the final costs; -1 where a solve failed.
double SolveByBatch(const std::string& machine,
                    Windows* windows,
                    double* cost,
                    std::string* device) {
  ProblemBatch batch = BatchOf(windows);
  BatchSummary summary;
  std::string error;
  const double begin = Seconds();
  if (!SolveBatch(
          SolverOptions(), ExtOptions(machine), &batch, &summary, &error)) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return -1.0;
  }
  const double seconds = Seconds() - begin;
  *cost = 0.0;
  *device = summary.device;
  for (const ProblemSummary& one : summary.problems) {
    if (one.solved_as != SOLVED_AS_WINDOW || !one.IsSolutionUsable()) {
      std::fprintf(stderr, "%s\n", (one.path_reason + one.message).c_str());
      return -1.0;
    }
    *cost += one.final_cost;
  }
  return seconds;
}

// Window i as a problem that refers to the arrays.
std::unique_ptr<ceres::Problem> ProblemOf(int64_t i, Windows* windows) {
  ceres::Problem::Options options;
  options.manifold_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
  options.loss_function_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
  auto problem = std::make_unique<ceres::Problem>(options);
  const auto block = [&](int kind, int32_t place) {
    return windows->values[kind].data() + int64_t{Windows::kSize[kind]} * place;
  };
  for (int64_t k = windows->inertial_begin[i];
       k < windows->inertial_begin[i + 1];
       ++k) {
    const auto& of = windows->of_inertial;
    problem->AddResidualBlock(new InertialCost(windows->inertial[k]),
                              nullptr,
                              block(Windows::kPoses, of[0][k]),
                              block(Windows::kSpeeds, of[1][k]),
                              block(Windows::kPoses, of[2][k]),
                              block(Windows::kSpeeds, of[3][k]));
  }
  for (int64_t k = windows->sights_begin[i]; k < windows->sights_begin[i + 1];
       ++k) {
    const auto& of = windows->of_sights;
    problem->AddResidualBlock(new InverseDepthCost(windows->sights[k]),
                              &windows->loss,
                              block(Windows::kPoses, of[0][k]),
                              block(Windows::kPoses, of[1][k]),
                              block(Windows::kCameras, of[2][k]),
                              block(Windows::kDepths, of[3][k]),
                              block(Windows::kOffsets, of[4][k]));
  }
  for (const int kind : {Windows::kPoses, Windows::kCameras}) {
    for (int64_t b = windows->begin[kind][i]; b < windows->begin[kind][i + 1];
         ++b) {
      double* const values = block(kind, static_cast<int32_t>(b));
      problem->SetManifold(values, &windows->manifold);
      if (windows->is_constant[kind][b] != 0) {
        problem->SetParameterBlockConstant(values);
      }
    }
  }
  return problem;
}

double SolveByStock(Windows* windows, double* cost) {
  ceres::Solver::Options options = SolverOptions();
  options.num_threads = 1;
  std::vector<std::unique_ptr<ceres::Problem>> problems;
  for (int64_t i = 0; i < windows->size(); ++i) {
    problems.push_back(ProblemOf(i, windows));
  }
  std::vector<double> costs(problems.size());
  const double begin = Seconds();
  ForEachOnThreads(windows->size(), FLAGS_threads, [&](int64_t i) {
    ceres::Solver::Summary summary;
    ceres::Solve(options, problems[i].get(), &summary);
    costs[i] = summary.final_cost;
  });
  const double seconds = Seconds() - begin;
  *cost = 0.0;
  for (const double one : costs) {
    *cost += one;
  }
  return seconds;
}

// Seconds of n windows; -1 where a solve failed.
double Run(const std::string& machine,
           int64_t n,
           unsigned seed,
           double* cost,
           std::string* device) {
  Windows windows;
  MakeWindows(n, seed, &windows);
  return machine == "stock" ? SolveByStock(&windows, cost)
                            : SolveByBatch(machine, &windows, cost, device);
}

bool RunBatches(const std::string& machine) {
  double cost = 0.0;
  std::string device = "stock";
  std::vector<double> seconds;
  for (int r = 0; r <= FLAGS_repeats; ++r) {
    seconds.push_back(Run(machine, FLAGS_batch, 1, &cost, &device));
    if (seconds.back() < 0.0) {
      return false;
    }
  }
  seconds.erase(seconds.begin());
  const double cost_of_batch = cost;
  std::vector<double> singles;
  for (int k = 0; k < FLAGS_singles; ++k) {
    singles.push_back(1e3 * Run(machine, 1, 1 + k % 20, &cost, &device));
    if (singles.back() < 0.0) {
      return false;
    }
  }
  Json line;
  line["machine"] = machine;
  line["device"] = device;
  line["threads"] = FLAGS_threads;
  line["frames"] = FLAGS_frames;
  line["batch"] = FLAGS_batch;
  line["drop"] = FLAGS_drop;
  line["windows_per_second"] = Rounded(FLAGS_batch / Median(seconds));
  line["single_ms"] = Rounded(Median(singles));
  line["single_ms_p99"] = Rounded(Percentile(singles, 0.99));
  line["cost"] = cost_of_batch;
  PrintLine(line);
  return true;
}

// Adds a keyframe and solves. Returns milliseconds, -1 where a solve failed.
class Living {
 public:
  explicit Living(const std::string& machine)
      : window_(SolverOptions(), ExtOptions(machine)), odometry_(FLAGS_points) {
    poses_ = window_.AddBlockKind(7, &manifold_, &error_);
    speeds_ = window_.AddBlockKind(9, nullptr, &error_);
    depths_ = window_.AddBlockKind(1, nullptr, &error_);
    cameras_ = window_.AddBlockKind(7, &manifold_, &error_);
    offsets_ = window_.AddBlockKind(1, nullptr, &error_);
    inertial_ = window_.AddResidualKind<InertialCost>(
        {poses_, speeds_, poses_, speeds_}, nullptr, &error_);
    sights_ = window_.AddResidualKind<InverseDepthCost>(
        {poses_, poses_, cameras_, depths_, offsets_}, &loss_, &error_);
    const auto camera = SimulatedOdometry::Camera();
    const double offset = 0.0;
    is_well_ = window_.AddBlock(cameras_, 0, camera.data(), &error_) &&
               window_.AddBlock(offsets_, 0, &offset, &error_);
  }

  double Step(int64_t k) {
    const SimulatedOdometry::Keyframe frame = odometry_.Next();
    const double begin = Seconds();
    Add(frame, k);
    BatchSummary summary;
    if (!is_well_ || (k > 0 && !window_.Solve(&summary, &error_))) {
      std::fprintf(stderr, "%s\n", error_.c_str());
      return -1.0;
    }
    cost_ = k > 0 ? summary.problems[0].final_cost : 0.0;
    if (k > 0) {
      const ProblemSummary& solve = summary.problems[0];
      // The start counts as a step.
      iterations_ +=
          solve.num_successful_steps + solve.num_unsuccessful_steps - 1;
    }
    device_ = summary.device;
    return 1e3 * (Seconds() - begin);
  }
  double cost() const { return cost_; }
  int64_t iterations() const { return iterations_; }
  const std::string& device() const { return device_; }

 private:
  void Add(const SimulatedOdometry::Keyframe& frame, int64_t k) {
    is_well_ =
        is_well_ && window_.AddBlock(poses_, k, frame.pose.data(), &error_) &&
        window_.AddBlock(speeds_, k, frame.speed.data(), &error_) &&
        window_.SetConstant(poses_, k, k == 0, &error_) &&
        (k == 0 || window_.AddResidual(
                       inertial_, frame.row, {k - 1, k - 1, k, k}, &error_));
    for (const SimulatedOdometry::Sight& sight : frame.sights) {
      if (window_.Values(poses_, sight.anchor) == nullptr) {
        continue;
      }
      is_well_ = is_well_ &&
                 (window_.Values(depths_, sight.point) != nullptr ||
                  window_.AddBlock(
                      depths_, sight.point, &sight.inverse_depth, &error_)) &&
                 window_.AddResidual(sights_,
                                     sight.row,
                                     {sight.anchor, k, 0, sight.point, 0},
                                     &error_);
    }
    const int64_t oldest = k - FLAGS_frames + 1;
    if (oldest < 0) {
      return;
    }
    is_well_ = is_well_ && window_.Drop(poses_, oldest, &error_) &&
               window_.Drop(speeds_, oldest, &error_);
    for (const int64_t point : window_.Numbers(depths_)) {
      is_well_ = is_well_ && (point / FLAGS_points != oldest ||
                              window_.Drop(depths_, point, &error_));
    }
  }

  PoseManifold manifold_;
  ceres::HuberLoss loss_{1.5};
  SlidingWindow window_;
  SimulatedOdometry odometry_;
  std::string error_;
  std::string device_;
  bool is_well_ = false;
  double cost_ = 0.0;
  int64_t iterations_ = 0;
  int poses_, speeds_, depths_, cameras_, offsets_, inertial_, sights_;
};

bool RunLiving(const std::string& machine) {
  Living living(machine);
  std::vector<double> times;
  for (int64_t k = 0; k < FLAGS_living; ++k) {
    const double ms = living.Step(k);
    if (ms < 0.0) {
      return false;
    }
    if (k >= FLAGS_frames) {
      times.push_back(ms);
    }
  }
  Json line;
  line["machine"] = machine;
  line["device"] = living.device();
  line["threads"] = FLAGS_threads;
  line["frames"] = FLAGS_frames;
  line["keyframes"] = FLAGS_living;
  line["keyframe_ms"] = Rounded(Median(times));
  line["keyframe_ms_p99"] = Rounded(Percentile(times, 0.99));
  line["iterations"] = living.iterations();
  line["cost"] = living.cost();
  PrintLine(line);
  return true;
}

}  // namespace
}  // namespace ceres_ext

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  for (const std::string& machine : ceres_ext::SplitAtCommas(FLAGS_machine)) {
    const bool is_done = FLAGS_living == 0    ? ceres_ext::RunBatches(machine)
                         : machine == "stock" ? true
                                              : ceres_ext::RunLiving(machine);
    if (!is_done) {
      return 1;
    }
  }
  return 0;
}
