// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Times every operation of the library on a device or on the host.
//
//   operations_benchmark [--machine=cuda|host] [--threads=N]
//       [fraction [output.json [PROBLEM]]]
//
// PROBLEM (benchmark_problems.h): sequence (default), city, a size of
// bal_generate (dubrovnik-16), or shapes, whose rows are of several shapes.
// fraction scales its counts: default 1, 0.01 on the host. --machine: default
// cuda, or host in a build without CUDA. --threads: of the host, default 1.
//
// Each line: median of 9 runs between events, the bytes that must cross memory,
// and their rate as a share of a copy measured in the same run.
// scripts/gpu_alternate compares the rows of output.json by their names.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/benchmark_problems.h"
#include "benchmarks/observation_operations.h"
#include "benchmarks/operation_list.h"
#include "benchmarks/shape_operations.h"
#include "cuda_kernels/machine/cuda_machine.h"
#include "cuda_kernels/machine/host_machine.h"

namespace ceres_ext {
namespace {

struct Flags {
  std::string machine;
  int threads = 1;
  double fraction = 0.0;
  const char* json_path = nullptr;
  std::string problem = "sequence";
};

template <typename Machine>
int MeasureAll(const Flags& flags,
               const std::string& device,
               Machine* machine) {
  std::printf("%s, fraction %g\n", device.c_str(), flags.fraction);
  std::string error;
  const BenchmarkProblem problem =
      MakeBenchmarkProblem(flags.problem, flags.fraction, &error);
  if (problem.camera.empty()) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return 2;
  }
  const int64_t n = static_cast<int64_t>(problem.camera.size());
  std::printf("%d cameras, %d points, %lld observations\n",
              problem.num_cameras,
              problem.num_points,
              static_cast<long long>(n));
  Report<Machine> report(machine);
  if (flags.problem == "shapes") {
    ShapeBenchmark<Machine>(problem, machine, &report).MeasureAll();
  } else {
    ObservationBenchmark<Machine>(problem, machine, &report).MeasureAll();
  }
  if (flags.json_path != nullptr) {
    report.WriteJson(
        "  \"device\": \"" + device +
            "\",\n  \"cameras\": " + std::to_string(problem.num_cameras) +
            ",\n  \"points\": " + std::to_string(problem.num_points) +
            ",\n  \"observations\": " + std::to_string(n) + ",\n",
        flags.json_path);
  }
  return 0;
}

int MeasureOnHost(const Flags& flags) {
  kernels::HostMachine machine(flags.threads);
  return MeasureAll(
      flags, "host, " + std::to_string(flags.threads) + " threads", &machine);
}

#ifdef CERES_EXT_WITH_CUDA
int MeasureOnDevice(const Flags& flags) {
  std::string why_none;
  if (kernels::NumCudaDevices(&why_none) == 0) {
    std::printf("skipped: no CUDA device (%s)\n", why_none.c_str());
    return 0;
  }
  std::unique_ptr<kernels::CudaMachine> machine;
  OK_OR_EXIT(kernels::CudaMachine::Create({}, &machine));
  return MeasureAll(flags, machine->context()->device_name(), machine.get());
}
constexpr char kDefaultMachine[] = "cuda";
#else
int MeasureOnDevice(const Flags& /*flags*/) {
  std::fprintf(stderr, "Built without CUDA.\n");
  return 2;
}
constexpr char kDefaultMachine[] = "host";
#endif

int Main(int argc, char** argv) {
  Flags flags;
  flags.machine = kDefaultMachine;
  std::vector<const char*> arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--machine=", 0) == 0) {
      flags.machine = argument.substr(10);
    } else if (argument.rfind("--threads=", 0) == 0) {
      flags.threads = std::atoi(argv[i] + 10);
    } else if (argument.rfind("--", 0) == 0) {
      std::fprintf(stderr, "There is no flag %s.\n", argv[i]);
      return 2;
    } else {
      arguments.push_back(argv[i]);
    }
  }
  const bool on_host = flags.machine == "host";
  if ((!on_host && flags.machine != "cuda") || flags.threads < 1) {
    std::fprintf(stderr,
                 "cuda or host, and at least one thread, were expected.\n");
    return 2;
  }
  flags.fraction = on_host ? 0.01 : 1.0;
  if (!arguments.empty()) {
    flags.fraction = std::atof(arguments[0]);
  }
  if (!(flags.fraction > 0.0 && flags.fraction <= 4.0)) {
    std::fprintf(
        stderr, "A fraction from 0 to 4 was expected, not %s.\n", arguments[0]);
    return 2;
  }
  if (arguments.size() > 1) {
    flags.json_path = arguments[1];
  }
  if (arguments.size() > 2) {
    flags.problem = arguments[2];
  }
  return on_host ? MeasureOnHost(flags) : MeasureOnDevice(flags);
}

}  // namespace
}  // namespace ceres_ext

int main(int argc, char** argv) { return ceres_ext::Main(argc, argv); }
