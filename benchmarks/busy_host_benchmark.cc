// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A small problem on the host while other processes keep its processors busy.
// scripts/measure runs it for several numbers of these.
//
//   busy_host_benchmark [--busy=N] [--threads=1,2] [--rounds=N]
//
// One line of JSON per linear solver, solver and number of threads: seconds of
// whole solves, the smallest and the median of the rounds, each round all of
// them in turn.
//
//   busy_host_benchmark --regions [--busy=N] [--threads=1,2] [--rounds=N]
//
// One line per number of threads: microseconds of a parallel region. Regions
// have two chunks a thread, each of 0, 2 or 20 us of work, and follow each
// other 0, 10 or 200 us apart.
//
//   busy_host_benchmark --vectors [--busy=N] [--threads=1,2] [--rounds=N]
//
// One line per number of threads and length: microseconds of two vector
// operations of PCG, x += alpha p and r -= alpha q with its sums.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "benchmarks/benchmark.h"
#include "ceres/ceres.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/solve.h"
#include "cuda_kernels/machine/host_context.h"
#include "cuda_kernels/machine/host_machine.h"
#include "cuda_kernels/ops/pcg.h"
#include "gflags/gflags.h"

DEFINE_int32(busy, 0, "Processes that do nothing but compute.");
DEFINE_string(threads, "1,2", "Numbers of threads.");
DEFINE_int32(rounds, 5, "How often each is measured.");
DEFINE_bool(regions, false, "Parallel regions instead of solves.");
DEFINE_bool(vectors, false, "Vector operations instead of solves.");

namespace ceres_ext {
namespace {

// Multiplications that take 1 us where nothing interrupts them. A thread that
// has lost its processor has them still to do.
class Work {
 public:
  Work() {
    constexpr int64_t kNum = 1000000;
    double seconds = 1.0;
    for (int i = 0; i < 50; ++i) {
      const double begin = Seconds();
      Multiply(kNum);
      seconds = std::min(seconds, Seconds() - begin);
    }
    num_per_microsecond_ = 1e-6 * kNum / seconds;
  }
  void operator()(double microseconds) const {
    Multiply(static_cast<int64_t>(microseconds * num_per_microsecond_));
  }

 private:
  static void Multiply(int64_t n) {
    volatile double x = 1.0;
    for (int64_t i = 0; i < n; ++i) {
      x = x * 1.0000001;
    }
  }

  double num_per_microsecond_ = 0.0;
};

// They end with this process.
class BusyProcesses {
 public:
  explicit BusyProcesses(int n) {
    for (int i = 0; i < n; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (volatile double x = 1.0;;) {
          x = x * 1.0000001;
        }
      }
      if (child > 0) {
        children_.push_back(child);
      }
    }
  }
  ~BusyProcesses() {
    for (const pid_t child : children_) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
  }
  BusyProcesses(const BusyProcesses&) = delete;
  BusyProcesses& operator=(const BusyProcesses&) = delete;

 private:
  std::vector<pid_t> children_;
};

struct Timed {
  double smallest = 0.0;
  double median = 0.0;
};
Timed Times(const std::vector<double>& seconds) {
  return {Percentile(seconds, 0.0), Median(seconds)};
}

// 40 cameras in a row, 1,500 points that six neighbours see each: 4,860
// parameters.
class SmallProblem {
 public:
  SmallProblem() {
    std::mt19937 random(1);
    std::normal_distribution<double> normal;
    for (int c = 0; c < kNumCameras; ++c) {
      double* camera = &cameras_[9 * c];
      camera[3] = 0.2 * c;
      camera[5] = -10.0;
      camera[6] = 500.0;
    }
    for (int p = 0; p < kNumPoints; ++p) {
      points_[3 * p] = -0.2 * (p % kNumCameras) + normal(random);
      points_[3 * p + 1] = normal(random);
      points_[3 * p + 2] = normal(random);
    }
    for (int p = 0; p < kNumPoints; ++p) {
      for (int i = 0; i < 6; ++i) {
        double* camera = &cameras_[9 * ((p + i) % kNumCameras)];
        const double* parameters[2] = {camera, &points_[3 * p]};
        double residual[2];
        BalReprojectionError(0, 0).Evaluate(parameters, residual, nullptr);
        const double y = residual[1] + normal(random);
        const double x = residual[0] + normal(random);
        problem_.AddResidualBlock(
            CreateBalReprojectionError(x, y), nullptr, camera, &points_[3 * p]);
      }
    }
    for (double& x : points_) {
      x += 0.05 * normal(random);
    }
    start_cameras_ = cameras_;
    start_points_ = points_;
  }

  double SolveSeconds(ceres::LinearSolverType type,
                      bool enabled,
                      int num_threads) {
    cameras_ = start_cameras_;
    points_ = start_points_;
    ceres::Solver::Options options;
    options.linear_solver_type = type;
    options.preconditioner_type =
        type == ceres::CGNR ? ceres::JACOBI : ceres::SCHUR_JACOBI;
    options.num_threads = num_threads;
    options.eta = 1e-2;
    options.max_num_iterations = 15;
    options.logging_type = ceres::SILENT;
    Options ext_options;
    ext_options.enabled = enabled;
    ext_options.device = DEVICE_HOST;
    Summary summary;
    const double begin = Seconds();
    Solve(options, ext_options, &problem_, &summary);
    return Seconds() - begin;
  }

 private:
  static constexpr int kNumCameras = 40;
  static constexpr int kNumPoints = 1500;

  ceres::Problem problem_;
  std::vector<double> cameras_ = std::vector<double>(9 * kNumCameras);
  std::vector<double> points_ = std::vector<double>(3 * kNumPoints);
  std::vector<double> start_cameras_;
  std::vector<double> start_points_;
};

void MeasureSolves() {
  struct Variant {
    ceres::LinearSolverType type;
    bool enabled;
    int num_threads;
    std::vector<double> seconds;
  };
  std::vector<Variant> variants;
  for (const auto type : {ceres::CGNR, ceres::ITERATIVE_SCHUR}) {
    for (const bool enabled : {false, true}) {
      for (const int num_threads : Numbers(FLAGS_threads)) {
        variants.push_back({type, enabled, num_threads, {}});
      }
    }
  }
  SmallProblem problem;
  for (int round = 0; round < FLAGS_rounds; ++round) {
    for (Variant& v : variants) {
      v.seconds.push_back(
          problem.SolveSeconds(v.type, v.enabled, v.num_threads));
    }
  }
  for (const Variant& v : variants) {
    const Timed times = Times(v.seconds);
    PrintLine({{"linear_solver", ceres::LinearSolverTypeToString(v.type)},
               {"solver", v.enabled ? "ceres_ext" : "stock"},
               {"threads", v.num_threads},
               {"busy", FLAGS_busy},
               {"smallest", Rounded(times.smallest)},
               {"median", Rounded(times.median)}});
  }
}

// Microseconds a call of fn, smallest and median of the rounds.
Timed MicrosecondsOf(int num_calls, const std::function<double()>& seconds) {
  std::vector<double> all;
  for (int round = 0; round < FLAGS_rounds; ++round) {
    double sum = 0.0;
    for (int i = 0; i < num_calls; ++i) {
      sum += seconds();
    }
    all.push_back(1e6 * sum / num_calls);
  }
  return Times(all);
}

void MeasureRegions() {
  const Work work;
  for (const int num_threads : Numbers(FLAGS_threads)) {
    kernels::HostContext context(num_threads);
    for (const double chunk : {0.0, 2.0, 20.0}) {
      for (const double gap : {0.0, 10.0, 200.0}) {
        const Timed times = MicrosecondsOf(1000, [&] {
          work(gap);
          const double begin = Seconds();
          context.ParallelFor(
              2 * num_threads, 1, [&](int64_t, int64_t) { work(chunk); });
          return Seconds() - begin;
        });
        PrintLine({{"threads", num_threads},
                   {"busy", FLAGS_busy},
                   {"chunk_us", chunk},
                   {"gap_us", gap},
                   {"smallest", Rounded(times.smallest)},
                   {"median", Rounded(times.median)}});
      }
    }
  }
}

void MeasureVectors() {
  for (const int num_threads : Numbers(FLAGS_threads)) {
    kernels::HostMachine machine(num_threads);
    for (int64_t n = 1024; n <= 1 << 20; n *= 2) {
      std::vector<double> x(n, 1.0);
      std::vector<double> p(n, 1.0);
      std::vector<double> q(n, 1.0);
      std::vector<double> r(n, 1.0);
      kernels::PcgScalars scalars;
      kernels::PcgAdvanceParams advance{n, p.data(), x.data(), &scalars};
      kernels::PcgResidualParams residual;
      residual.n = n;
      residual.rhs = p.data();
      residual.q = q.data();
      residual.x = x.data();
      residual.r = r.data();
      residual.scalars = &scalars;
      const int num_calls = static_cast<int>((1 << 24) / n);
      const auto measure = [&](const auto& params) {
        return MicrosecondsOf(num_calls, [&] {
          scalars = kernels::PcgScalars();
          scalars.alpha = 1e-3;
          const double begin = Seconds();
          static_cast<void>(Run(params, &machine));
          return Seconds() - begin;
        });
      };
      const Timed element = measure(advance);
      const Timed sums = measure(residual);
      PrintLine({{"threads", num_threads},
                 {"busy", FLAGS_busy},
                 {"n", n},
                 {"x_smallest", Rounded(element.smallest)},
                 {"x_median", Rounded(element.median)},
                 {"r_smallest", Rounded(sums.smallest)},
                 {"r_median", Rounded(sums.median)}});
    }
  }
}

int Main() {
  const BusyProcesses busy(FLAGS_busy);
  if (FLAGS_regions) {
    MeasureRegions();
  } else if (FLAGS_vectors) {
    MeasureVectors();
  } else {
    MeasureSolves();
  }
  return 0;
}

}  // namespace
}  // namespace ceres_ext

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  return ceres_ext::Main();
}
