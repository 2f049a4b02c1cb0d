// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A problem of arrays by the processes of an mpirun, each with a device of its
// own and a part of the points (docs/scale.md):
//
//   mpirun -n 2 scale_benchmark --like=final-13682
//
// Each process makes the whole problem and keeps its part. Rank 0 prints a line
// of JSON a solve. doors_benchmark --cuda_devices has the same by threads.
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include "benchmarks/solve_benchmark.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/mpi_communicator.h"
#include "ceres_ext/solve.h"
#include "examples/bal/solve_bal.h"
#include "gflags/gflags.h"
#include "problem_io/bal_part.h"
#include "problem_io/bal_synthetic.h"

DEFINE_double(scale,
              1.0,
              "So many times as many cameras, points and observations.");
DEFINE_string(device, "cuda", "cuda or host.");
DEFINE_string(precision, "double", "double or mixed.");
DEFINE_int32(devices_per_host, 0, "Devices of a host; 0: one for each rank.");

namespace ceres_ext::bal {
namespace {

bool RunSeed(uint64_t seed) {
  BalProblem start;
  if (!GenerateStartLike(FLAGS_scale, 0.0, seed, &start)) {
    return false;
  }
  MpiCommunicator communicator(MPI_COMM_WORLD);
  const int rank = communicator.rank();
  SolveBalOptions options = BenchmarkOptions();
  Options& ext_options = options.ext_options;
  if (!StringToDeviceType(FLAGS_device, &ext_options.device) ||
      !StringToPrecisionType(FLAGS_precision, &ext_options.precision)) {
    std::fprintf(stderr, "--device or --precision is unknown\n");
    return false;
  }
  ext_options.communicator = &communicator;
  ext_options.cuda_device =
      FLAGS_devices_per_host > 0 ? rank % FLAGS_devices_per_host : rank;
  ext_options.fallback = FALLBACK_REFUSE;
  const BalPart part = CutPart(start, rank, communicator.size());
  KeepPart(part, &start);
  for (int i = 0; i < FLAGS_solves; ++i) {
    BalProblem problem = start;
    ArrayProblem arrays = BuildArrayProblem(
        /*loss=*/nullptr, /*manifold=*/nullptr, &problem, &part);
    Summary summary;
    Solve(options.solver_options, ext_options, &arrays, &summary);
    if (!summary.IsSolutionUsable()) {
      std::fprintf(stderr, "rank %d: %s\n", rank, summary.message.c_str());
      return false;
    }
    if (rank == 0) {
      PrintLine(
          {{"like", FLAGS_like},
           {"scale", FLAGS_scale},
           {"seed", seed},
           {"ranks", communicator.size()},
           {"device", summary.device},
           {"precision", FLAGS_precision},
           {"reason", summary.path_reason},
           {"preprocessor", Rounded(summary.preprocessor_time_in_seconds)},
           {"minimizer", Rounded(summary.minimizer_time_in_seconds)},
           {"total", Rounded(summary.total_time_in_seconds)},
           {"iterations", static_cast<int>(summary.iterations.size()) - 1},
           {"pcg_iterations", summary.num_pcg_iterations},
           {"pcg", Rounded(summary.pcg_time_in_seconds)},
           {"final_cost", summary.final_cost},
           {"device_bytes", summary.memory_bytes}});
    }
  }
  return true;
}

}  // namespace
}  // namespace ceres_ext::bal

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  const bool is_done = ceres_ext::bal::RunSeed(1);
  MPI_Finalize();
  return is_done ? 0 : 1;
}
