// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Solves a problem of the "Bundle Adjustment in the Large" kind with this
// library or with Ceres alone. The flags are a superset of those of Ceres's own
// bundle_adjuster; docs/programs.md lists where defaults differ.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "ceres/iteration_callback.h"
#include "ceres_ext/solve.h"
#include "ceres_ext/summary.h"
#include "examples/bal/adjuster_flags.h"
#include "examples/bal/adjuster_program.h"
#include "examples/bal/bal_geometry.h"
#include "examples/bal/covariance_file.h"
#include "examples/bal/flag_help.h"
#include "examples/bal/interrupt.h"
#include "examples/bal/interrupt_callback.h"
#include "examples/bal/problem_report.h"
#include "examples/bal/reprojection_errors.h"
#include "examples/bal/seconds_since.h"
#include "examples/bal/solve_bal.h"
#include "examples/bal/solve_folder.h"
#include "examples/bal/solve_report.h"
#include "examples/bal/solver_flags.h"
#include "problem_io/bal_npz.h"
#include "problem_io/bal_problem.h"
#include "problem_io/bal_reader.h"
#include "problem_io/bal_writer.h"
#include "problem_io/progress_line.h"
#include "problem_io/safe_file.h"
#include "problem_io/text_writer.h"

namespace ceres_ext::bal {
namespace {

// Tells how far a solve is.
class ProgressCallback final : public ceres::IterationCallback {
 public:
  explicit ProgressCallback(int max_num_iterations)
      : line_("solving", max_num_iterations, /*is_at_most=*/true, &std::cerr) {}

  ceres::CallbackReturnType operator()(
      const ceres::IterationSummary& iteration) override {
    line_.Add(iteration.iteration > 0 ? 1 : 0);
    return ceres::SOLVER_CONTINUE;
  }

 private:
  ProgressLine line_;
};

// Starts CUDA while the problem is read, where it is sure to be used or, with
// --device=auto, the file is large.
class DeviceStart {
 public:
  DeviceStart(const Options& ext_options, const std::string& input) {
    constexpr uintmax_t kLarge = 64 << 20;
    std::error_code no_file;
    const uintmax_t size = std::filesystem::file_size(input, no_file);
    if (!ext_options.enabled || ext_options.device == DEVICE_HOST ||
        (ext_options.device == DEVICE_AUTO && (no_file || size < kLarge))) {
      return;
    }
    try {
      start_ = std::async(std::launch::async, [ext_options] {
        std::string ignored;  // The solve says the same.
        StartDevice(ext_options, &ignored);
      });
    } catch (const std::system_error&) {
      // Then the solve starts it.
    }
  }

  // Seconds that it took beyond now.
  double Wait() {
    const auto start = std::chrono::steady_clock::now();
    if (start_.valid()) {
      start_.wait();
    }
    return SecondsSince(start);
  }

 private:
  std::future<void> start_;
};

// "Seconds: read 0.595, build 0, start of CUDA 0.327, set-up 0.071, ..."
std::string WaitedFor(const SolveTimes& times,
                      const ceres_ext::Summary& summary,
                      double write_in_seconds,
                      double total_in_seconds) {
  std::ostringstream text;
  text.precision(3);
  text << "Seconds: read " << times.read_in_seconds << ", build "
       << times.build_in_seconds << ", start of CUDA "
       << summary.context_time_in_seconds << ", set-up "
       << summary.preprocessor_time_in_seconds - summary.context_time_in_seconds
       << ", solve " << summary.minimizer_time_in_seconds << ", return "
       << summary.postprocessor_time_in_seconds << ", write "
       << write_in_seconds << "; in all " << total_in_seconds;
  return text.str();
}

// True in one of several processes that mpirun has started, each of which would
// solve the same problem.
bool IsOneOfSeveral() {
  for (const char* name :
       {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"}) {
    const char* const size = std::getenv(name);
    if (size != nullptr && std::atoi(size) > 1) {
      return true;
    }
  }
  return false;
}

ExitCode Run() {
  if (IsOneOfSeveral()) {
    return Fail(EXIT_USAGE,
                "expected one process, found several of an mpirun; "
                "mpi_bundle_adjuster solves a problem with several");
  }
  if (!FLAGS_batch.empty()) {
    return SolveFolder();
  }
  std::string error;
  SolveBalOptions options;
  // Only the solution may replace the problem.
  const std::vector<OutputFile> outputs = {{"output", FLAGS_output, "input"},
                                           {"final_ply", FLAGS_final_ply},
                                           {"covariance", FLAGS_covariance},
                                           {"report_json", FLAGS_report_json},
                                           {"initial_ply", FLAGS_initial_ply}};
  if (!SolveOptionsFromFlags(&options, &error) ||
      !CheckDistinct(outputs, {{"input", FLAGS_input}}, &error)) {
    return Fail(EXIT_USAGE, error);
  }
  for (const OutputFile& output : outputs) {
    if (!CanWrite(output.path, &error)) {
      return Fail(EXIT_OUTPUT, error);
    }
  }

  const auto start = std::chrono::steady_clock::now();
  DeviceStart device_start(options.ext_options, FLAGS_input);
  BalProblem problem;
  BalReadOptions read_options;
  read_options.progress = &std::cerr;
  if (!ReadBalFile(FLAGS_input, &problem, &error, read_options)) {
    return Fail(EXIT_INPUT, error);
  }
  SolveTimes times;
  times.read_in_seconds = SecondsSince(start);
  std::cout << FLAGS_input << ": " << problem.num_cameras() << " cameras, "
            << problem.num_points() << " points, " << problem.num_observations()
            << " observations, read in " << times.read_in_seconds << " s"
            << std::endl;

  // From here on an output that fails is reported, and the others are written.
  ExitCode code = EXIT_USABLE_SOLUTION;
  const auto check_written = [&code, &error](bool is_written) {
    if (!is_written) {
      code = Fail(EXIT_OUTPUT, error);
    }
  };
  if (!FLAGS_initial_ply.empty()) {
    check_written(WritePlyFile(FLAGS_initial_ply,
                               CameraCenters(problem),
                               problem.points,
                               /*ellipsoids=*/{},
                               &error));
  }
  const ProblemChecksums checksums =
      FLAGS_report_problem ? ChecksumsOf(problem) : ProblemChecksums();
  const Similarity frame = StartFromFlags(&problem);

  const bool is_reported = !FLAGS_report_json.empty();
  const auto compute_errors = [&options, &problem] {
    return ComputeReprojectionErrors(
        problem, options.robustify, options.solver_options.num_threads);
  };
  ReprojectionErrors before;
  if (is_reported) {
    before = compute_errors();
  }

  double waited_in_seconds = device_start.Wait();
  if (FLAGS_warm_up) {
    waited_in_seconds = 0.0;
    WarmUp(options.ext_options);
    BalProblem same = problem;
    ceres_ext::Summary ignored;
    SolveBal(options, &same, &ignored, &times.build_in_seconds);
  }

  // Data that the solve does not change is written while it runs.
  std::unique_ptr<BalNpzWriter> npz_writer;
  if (EndsWith(FLAGS_output, ".npz")) {
    npz_writer = std::make_unique<BalNpzWriter>(FLAGS_output, problem);
  }
  ceres_ext::Summary summary;
  SetSignalPhase(SIGNAL_ENDS_SOLVE);
  options.progress = &std::cerr;
  ProgressCallback progress(options.solver_options.max_num_iterations);
  InterruptCallback interrupt;
  options.solver_options.callbacks = {&progress, &interrupt};
  SolveBal(options, &problem, &summary, &times.build_in_seconds);
  SetSignalPhase(SIGNAL_WAITS);
  const bool was_interrupted = interrupt.WasInterrupted(&summary);
  // As if the solve had started CUDA.
  for (double* seconds : {&summary.context_time_in_seconds,
                          &summary.preprocessor_time_in_seconds,
                          &summary.total_time_in_seconds}) {
    *seconds += waited_in_seconds;
  }
  for (ceres::IterationSummary& iteration : summary.iterations) {
    iteration.cumulative_time_in_seconds += waited_in_seconds;
  }
  std::cout << summary.FullReport() << std::endl;

  ReportedProblem reported = ReportedBalProblem(FLAGS_input, problem);
  ReprojectionErrors after;
  if (is_reported) {
    reported.recomputed_costs = {{"initial_cost", before.cost},
                                 {"initial_cost_tolerance", before.tolerance}};
    if (summary.IsSolutionUsable()) {
      after = compute_errors();
      reported.recomputed_costs.insert(
          reported.recomputed_costs.end(),
          {{"final_cost", after.cost},
           {"final_cost_tolerance", after.tolerance}});
    }
  }
  const auto solved = std::chrono::steady_clock::now();
  Undo(frame, &problem);
  ToAngleAxes(&problem);
  if (summary.IsSolutionUsable()) {
    if (!FLAGS_output.empty()) {
      check_written(npz_writer != nullptr
                        ? npz_writer->Finish(problem, &error)
                        : WriteBalFile(FLAGS_output, problem, &error));
    }
  }
  CovarianceReport covariance;
  bool has_covariance = false;
  if (summary.IsSolutionUsable() && !FLAGS_covariance.empty()) {
    has_covariance = ComputeBalCovariance(
        options, CovarianceScaleFromFlags(), &problem, &covariance, &error);
    if (has_covariance) {
      std::cout << CovarianceText(covariance);
      check_written(WriteCovarianceFile(FLAGS_covariance, covariance, &error));
    } else {
      code = Fail(EXIT_SOLVE_FAILED, "no covariance: " + error);
    }
  }
  if (summary.IsSolutionUsable() && !FLAGS_final_ply.empty()) {
    check_written(WritePlyFile(FLAGS_final_ply,
                               CameraCenters(problem),
                               problem.points,
                               Ellipsoids(covariance, FLAGS_covariance_sigmas),
                               &error));
  }
  if (is_reported) {
    std::vector<std::pair<std::string, std::string>> parts;
    if (FLAGS_report_problem) {
      parts.emplace_back(
          "problem_report",
          ProblemReportJson(problem,
                            checksums,
                            before,
                            summary.IsSolutionUsable() ? &after : nullptr));
    }
    if (has_covariance) {
      parts.emplace_back("covariance", CovarianceJson(covariance));
    }
    check_written(WriteTextFile(
        FLAGS_report_json,
        SolveReportJson(reported,
                        FlagValues(BundleAdjusterProgram().flag_groups),
                        times,
                        summary,
                        parts),
        &error));
  }
  if (std::none_of(outputs.begin(), outputs.end(), [](const OutputFile& file) {
        return IsStandardOutput(file.path);
      })) {
    // The covariance has its own line.
    std::cout << WaitedFor(times,
                           summary,
                           SecondsSince(solved) -
                               covariance.summary.total_time_in_seconds,
                           SecondsSince(start))
              << std::endl;
  }
  check_written(FlushStandardOutput(&error));
  if (!summary.IsSolutionUsable()) {
    return Fail(EXIT_SOLVE_FAILED, "the solve failed: " + summary.message);
  }
  return code == EXIT_USABLE_SOLUTION && was_interrupted ? EXIT_INTERRUPTED
                                                         : code;
}

}  // namespace
}  // namespace ceres_ext::bal

int main(int argc, char** argv) {
  return ceres_ext::bal::RunAdjuster(ceres_ext::bal::BundleAdjusterProgram(),
                                     &ceres_ext::bal::Run,
                                     argc,
                                     argv);
}
