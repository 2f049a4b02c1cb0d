// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// bundle_adjuster by the processes of an mpirun (docs/scale.md): each reads the
// observations of some of the points and solves with a device of its own.

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "ceres/loss_function.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/mpi_communicator.h"
#include "ceres_ext/solve.h"
#include "ceres_ext/summary.h"
#include "examples/bal/adjuster_flags.h"
#include "examples/bal/adjuster_program.h"
#include "examples/bal/bal_geometry.h"
#include "examples/bal/interrupt.h"
#include "examples/bal/interrupt_callback.h"
#include "examples/bal/seconds_since.h"
#include "examples/bal/solve_bal.h"
#include "examples/bal/solve_report.h"
#include "examples/bal/solver_flags.h"
#include "gflags/gflags.h"
#include "problem_io/bal_part.h"
#include "problem_io/bal_problem.h"
#include "problem_io/bal_reader.h"
#include "problem_io/bal_writer.h"
#include "problem_io/safe_file.h"
#include "problem_io/text_writer.h"

namespace ceres_ext::bal {
namespace {

constexpr const char kMpiIntroduction[] =
    R"(mpirun -n N mpi_bundle_adjuster --input=FILE [flags]

Does what bundle_adjuster does, with N processes, here or on several hosts. Each
reads the observations of some of the points, of an .npz file these alone, and
uses the CUDA device of its number on its host, or the host. The first process
shows the report and writes the outputs.

  mpirun -n 2 mpi_bundle_adjuster --input=problem.npz --output=refined.npz

Exit codes: as those of bundle_adjuster.
)";

class Ranks {
 public:
  Ranks() {
    int provided = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    MPI_Comm host = MPI_COMM_NULL;
    MPI_Comm_split_type(
        MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &rank_on_host_);
    MPI_Comm_size(host, &size_on_host_);
    MPI_Comm_free(&host);
  }
  ~Ranks() { MPI_Finalize(); }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int rank_on_host() const { return rank_on_host_; }
  int size_on_host() const { return size_on_host_; }
  bool is_first() const { return rank_ == 0; }

  // The largest of all ranks' codes. A rank with one of its own has said why.
  ExitCode Agree(ExitCode mine) const {
    const int code = mine;
    int all = 0;
    MPI_Allreduce(&code, &all, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    return static_cast<ExitCode>(all);
  }

  ExitCode FailOf(ExitCode code, const std::string& error) const {
    return Fail(code, "rank " + std::to_string(rank_) + ": " + error);
  }

  // All points to the first rank.
  void GatherPoints(const BalPart& part, std::vector<double>* points) const {
    std::vector<int> first(is_first() ? size_ : 0);
    std::vector<int> count(first.size());
    MPI_Gather(&part.first_point,
               1,
               MPI_INT,
               first.data(),
               1,
               MPI_INT,
               0,
               MPI_COMM_WORLD);
    MPI_Gather(&part.num_points,
               1,
               MPI_INT,
               count.data(),
               1,
               MPI_INT,
               0,
               MPI_COMM_WORLD);
    MPI_Datatype point = MPI_DATATYPE_NULL;
    MPI_Type_contiguous(3, MPI_DOUBLE, &point);
    MPI_Type_commit(&point);
    MPI_Gatherv(is_first() ? MPI_IN_PLACE
                           : points->data() + int64_t{3} * part.first_point,
                part.num_points,
                point,
                points->data(),
                count.data(),
                first.data(),
                point,
                0,
                MPI_COMM_WORLD);
    MPI_Type_free(&point);
  }

 private:
  int rank_ = 0;
  int size_ = 1;
  int rank_on_host_ = 0;
  int size_on_host_ = 1;
};

// Refuses flags of what one process does with the whole problem.
bool CheckFlags(std::string* error) {
  for (const char* flag : {"batch",
                           "blocks_for_inner_iterations",
                           "cost_function",
                           "covariance",
                           "cuda_devices",
                           "inner_iterations",
                           "linear_solver_ordering",
                           "problem",
                           "report_problem",
                           "solver",
                           "warm_up"}) {
    if (!gflags::GetCommandLineFlagInfoOrDie(flag).is_default) {
      *error =
          std::string("--") + flag + ": not available with mpi_bundle_adjuster";
      return false;
    }
  }
  return true;
}

// The whole problem of the input, with the cameras and points of `refined`.
bool WriteRefined(const BalProblem& refined, std::string* error) {
  BalProblem problem;
  if (!ReadBalFile(FLAGS_input, &problem, error)) {
    return false;
  }
  if (problem.cameras.size() != refined.cameras.size() ||
      problem.points.size() != refined.points.size()) {
    *error = FLAGS_input + ": expected the problem that was solved, found " +
             std::to_string(problem.num_cameras()) + " cameras and " +
             std::to_string(problem.num_points()) + " points";
    return false;
  }
  problem.cameras = refined.cameras;
  problem.points = refined.points;
  return WriteBalFile(FLAGS_output, problem, error);
}

ExitCode Run() {
  const Ranks ranks;
  std::string error;
  SolveBalOptions options;
  const std::vector<OutputFile> outputs = {{"output", FLAGS_output, "input"},
                                           {"final_ply", FLAGS_final_ply},
                                           {"report_json", FLAGS_report_json},
                                           {"initial_ply", FLAGS_initial_ply}};
  // All ranks have the same flags.
  if (!CheckFlags(&error) || !SolveOptionsFromFlags(&options, &error) ||
      !CheckDistinct(outputs, {{"input", FLAGS_input}}, &error)) {
    return ranks.is_first() ? Fail(EXIT_USAGE, error) : EXIT_USAGE;
  }
  const auto start = std::chrono::steady_clock::now();
  ExitCode code = EXIT_USABLE_SOLUTION;
  for (const OutputFile& output : outputs) {
    if (ranks.is_first() && !CanWrite(output.path, &error)) {
      code = Fail(EXIT_OUTPUT, error);
    }
  }
  BalProblem problem;
  BalPart part;
  BalReadOptions read_options;
  if (gflags::GetCommandLineFlagInfoOrDie("num_threads").is_default) {
    // The processors of a host are those of its ranks.
    options.solver_options.num_threads =
        std::max(1, options.solver_options.num_threads / ranks.size_on_host());
  }
  read_options.num_threads = options.solver_options.num_threads;
  read_options.progress = ranks.is_first() ? &std::cerr : nullptr;
  if (code == EXIT_USABLE_SOLUTION && !ReadBalPart(FLAGS_input,
                                                   ranks.rank(),
                                                   ranks.size(),
                                                   &problem,
                                                   &part,
                                                   &error,
                                                   read_options)) {
    code = ranks.FailOf(EXIT_INPUT, error);
  }
  code = ranks.Agree(code);
  if (code != EXIT_USABLE_SOLUTION) {
    return code;
  }
  SolveTimes times;
  times.read_in_seconds = SecondsSince(start);

  const auto check_written = [&code, &error](bool is_written) {
    if (!is_written) {
      code = Fail(EXIT_OUTPUT, error);
    }
  };
  int64_t num_observations = 0;
  MPI_Reduce(&part.num_observations,
             &num_observations,
             1,
             MPI_INT64_T,
             MPI_SUM,
             0,
             MPI_COMM_WORLD);
  if (ranks.is_first()) {
    std::cout << FLAGS_input << ": " << problem.num_cameras() << " cameras, "
              << problem.num_points() << " points, " << num_observations
              << " observations, read in " << times.read_in_seconds << " s by "
              << ranks.size() << " processes" << std::endl;
    if (!FLAGS_initial_ply.empty()) {
      check_written(WritePlyFile(FLAGS_initial_ply,
                                 CameraCenters(problem),
                                 problem.points,
                                 /*ellipsoids=*/{},
                                 &error));
    }
  }
  // Alike on all ranks, which all have all cameras and points.
  const Similarity frame = StartFromFlags(&problem);

  ceres_ext::Summary summary;
  InterruptCallback interrupt;
  {
    MpiCommunicator communicator(MPI_COMM_WORLD);
    options.ext_options.communicator = &communicator;
    if (gflags::GetCommandLineFlagInfoOrDie("cuda_device").is_default) {
      options.ext_options.cuda_device = ranks.rank_on_host();
    }
    ceres::HuberLoss huber(1.0);
    BalCameraManifold manifold;
    ArrayProblem arrays =
        BuildArrayProblem(options.robustify ? &huber : nullptr,
                          options.use_manifolds ? &manifold : nullptr,
                          &problem,
                          &part);
    SetSignalPhase(SIGNAL_ENDS_SOLVE);
    if (ranks.is_first()) {
      options.solver_options.callbacks = {&interrupt};
    }
    Solve(options.solver_options, options.ext_options, &arrays, &summary);
    SetSignalPhase(SIGNAL_WAITS);
    std::string failure;
    if (communicator.HasFailed(&failure)) {
      // MPI can't be left in order: a rank is gone or hangs.
      ranks.FailOf(EXIT_SOLVE_FAILED, "the solve failed: " + summary.message);
      MPI_Abort(MPI_COMM_WORLD, EXIT_SOLVE_FAILED);
    }
  }
  const bool was_interrupted = interrupt.WasInterrupted(&summary);
  if (ranks.is_first()) {
    std::cout << summary.FullReport() << std::endl;
  }
  if (!summary.IsSolutionUsable()) {
    return ranks.Agree(
        ranks.is_first()
            ? Fail(EXIT_SOLVE_FAILED, "the solve failed: " + summary.message)
            : EXIT_SOLVE_FAILED);
  }
  ranks.GatherPoints(part, &problem.points);
  if (ranks.is_first()) {
    ReportedProblem reported = ReportedBalProblem(FLAGS_input, problem);
    for (auto& [name, size] : reported.sizes) {
      if (name == "num_observations") {
        size = num_observations;
      }
    }
    Undo(frame, &problem);
    ToAngleAxes(&problem);
    if (!FLAGS_output.empty()) {
      check_written(WriteRefined(problem, &error));
    }
    if (!FLAGS_final_ply.empty()) {
      check_written(WritePlyFile(FLAGS_final_ply,
                                 CameraCenters(problem),
                                 problem.points,
                                 /*ellipsoids=*/{},
                                 &error));
    }
    if (!FLAGS_report_json.empty()) {
      check_written(WriteTextFile(
          FLAGS_report_json,
          SolveReportJson(reported,
                          FlagValues(BundleAdjusterProgram().flag_groups),
                          times,
                          summary,
                          /*parts=*/{}),
          &error));
    }
    check_written(FlushStandardOutput(&error));
    if (code == EXIT_USABLE_SOLUTION && was_interrupted) {
      code = EXIT_INTERRUPTED;
    }
  }
  return ranks.Agree(code);
}

}  // namespace
}  // namespace ceres_ext::bal

int main(int argc, char** argv) {
  ceres_ext::bal::AdjusterProgram program =
      ceres_ext::bal::BundleAdjusterProgram();
  program.name = "mpi_bundle_adjuster";
  program.introduction = ceres_ext::bal::kMpiIntroduction;
  return ceres_ext::bal::RunAdjuster(program, &ceres_ext::bal::Run, argc, argv);
}
