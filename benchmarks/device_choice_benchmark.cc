// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The size from which the device is faster than the host, for the constants of
// DEVICE_AUTO (ceres_ext/plan/device_choice.cc): whole solves of growing
// problems on the host, on the device in a process that has no CUDA context,
// and on the device again in the same process; then the choice of DEVICE_AUTO
// in each state.
//
//   device_choice_benchmark [--threads=N] [--iterations=N] [--eta=E]
//
// One line per size, in seconds (minimizer and preprocessor, smallest of three
// where there may be several). Each size is a process of its own.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>

#include "benchmarks/solve_benchmark.h"
#include "examples/bal/solve_bal.h"
#include "gflags/gflags.h"
#include "problem_io/bal_synthetic.h"

DEFINE_string(jacobian, "stored", "stored or recomputed.");

namespace ceres_ext::bal {
namespace {

struct Solved {
  double seconds = 0.0;
  Summary summary;
};

Solved SolveOnce(DeviceType device, const BalProblem& start) {
  SolveBalOptions options = BenchmarkOptions();
  options.ext_options.device = device;
  StringToJacobianType(FLAGS_jacobian, &options.ext_options.jacobian);
  BalProblem problem = start;
  double build_seconds = 0.0;
  Solved solved;
  SolveBal(options, &problem, &solved.summary, &build_seconds);
  solved.seconds = solved.summary.preprocessor_time_in_seconds +
                   solved.summary.minimizer_time_in_seconds;
  return solved;
}

Solved SmallestOfThree(DeviceType device, const BalProblem& start) {
  Solved best = SolveOnce(device, start);
  for (int i = 1; i < 3; ++i) {
    Solved next = SolveOnce(device, start);
    if (next.seconds < best.seconds) {
      best = next;
    }
  }
  return best;
}

// "host" or "device"
const char* Taken(const Solved& solved) {
  return solved.summary.device.find("host") == 0 ? "host" : "device";
}

// In a process of its own.
bool Measure(int64_t num_observations) {
  SyntheticOptions synthetic;
  synthetic.num_observations = num_observations;
  synthetic.num_points = static_cast<int32_t>(num_observations / 5);
  synthetic.num_cameras =
      static_cast<int32_t>(std::max<int64_t>(20, num_observations / 1500));
  synthetic.drift_rotation *= 0.1;
  synthetic.drift_translation *= 0.1;
  SyntheticProblem problem;
  std::string error;
  if (!GenerateSynthetic(synthetic, &problem, &error)) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return false;
  }
  const BalProblem& start = problem.start;
  const Solved host = SmallestOfThree(DEVICE_HOST, start);
  const Solved cold_auto = SolveOnce(DEVICE_AUTO, start);
  // The first solve of the device is the one that DEVICE_AUTO has given to it.
  const Solved first = Taken(cold_auto) == std::string("host")
                           ? SolveOnce(DEVICE_CUDA, start)
                           : cold_auto;
  const Solved again = SmallestOfThree(DEVICE_CUDA, start);
  const Solved warm_auto = SolveOnce(DEVICE_AUTO, start);
  std::printf("%12lld %6lld %9.4f %9.4f %9.4f   %-6s %-6s  %s\n",
              static_cast<long long>(num_observations),
              static_cast<long long>(host.summary.num_pcg_iterations),
              host.seconds,
              first.seconds,
              again.seconds,
              Taken(cold_auto),
              Taken(warm_auto),
              again.summary.device.c_str());
  return std::fflush(stdout) == 0;
}

int Main() {
  std::printf(
      "observations    PCG      host     first     again   "
      "auto:  again   device\n");
  std::fflush(stdout);
  for (int64_t n = 1000; n <= 4000000; n *= 2) {
    if (!RunInProcess([n] { return Measure(n); })) {
      std::fprintf(
          stderr, "%lld observations: no result\n", static_cast<long long>(n));
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace ceres_ext::bal

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  return ceres_ext::bal::Main();
}
