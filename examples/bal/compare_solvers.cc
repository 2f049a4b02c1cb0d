// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/compare_solvers.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iostream>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "examples/bal/adjuster_flags.h"
#include "examples/bal/adjuster_program.h"
#include "examples/bal/child_process.h"
#include "examples/bal/compared_solvers.h"
#include "examples/bal/comparison.h"
#include "examples/bal/comparison_page.h"
#include "examples/bal/flag_help.h"
#include "examples/bal/html_page.h"
#include "examples/bal/interrupt.h"
#include "examples/bal/seconds_since.h"
#include "examples/bal/solve_bal.h"
#include "examples/bal/solver_flags.h"
#include "gflags/gflags.h"
#include "nlohmann/json.hpp"
#include "problem_io/bal_problem.h"
#include "problem_io/bal_reader.h"
#include "problem_io/bal_writer.h"
#include "problem_io/number_text.h"
#include "problem_io/safe_file.h"

namespace ceres_ext::bal {
namespace {

using Json = nlohmann::ordered_json;
using Reasons = std::vector<std::pair<std::string, std::string>>;

// A process is given twice the time of its solve, ten times what reading took
// here, for reading, building and checking, and what it takes to start.
constexpr double kStartSeconds = 5.0;

bool IsGiven(const std::string& flag) {
  return !gflags::GetCommandLineFlagInfoOrDie(flag.c_str()).is_default;
}

// Flags that have no part in a run, or are set by it.
bool IsFlagOfComparison(const std::string& flag) {
  return flag == "input" || flag == "report_html" ||
         flag.rfind("compare", 0) == 0;
}

bool CheckFlags(std::string* error) {
  for (const char* flag : {"solver",
                           "linear_solver",
                           "preconditioner",
                           "device",
                           "jacobian",
                           "precision",
                           "fallback"}) {
    if (IsGiven(flag)) {
      *error = std::string("--") + flag +
               ": expected none with --compare, whose solvers have their own, "
               "found one";
      return false;
    }
  }
  for (const char* flag : {"output",
                           "covariance",
                           "covariance_scale",
                           "report_json",
                           "initial_ply",
                           "final_ply"}) {
    if (IsGiven(flag)) {
      *error = std::string("--") + flag +
               ": expected none with --compare, which has many solves, found "
               "one";
      return false;
    }
  }
  if (FLAGS_compare_repetitions < 1) {
    *error = "--compare_repetitions: expected a number >= 1, found " +
             std::to_string(FLAGS_compare_repetitions);
    return false;
  }
  if (!(FLAGS_compare_max_seconds > 0.0 &&
        std::isfinite(FLAGS_compare_max_seconds))) {
    *error = "--compare_max_seconds: expected a number > 0, found " +
             NumberText(FLAGS_compare_max_seconds);
    return false;
  }
  struct stat status;
  if (stat(FLAGS_input.c_str(), &status) == 0 && !S_ISREG(status.st_mode) &&
      !S_ISDIR(status.st_mode)) {
    *error =
        "--input: expected a file that can be read many times with --compare, "
        "found " +
        FLAGS_input;
    return false;
  }
  return true;
}

std::string FlagText(const std::string& flag, const std::string& value) {
  return "--" + flag + "=" + value;
}

// "" where the system does not say.
std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0) {
      return line.substr(std::min(line.size(), line.find(':') + 2));
    }
  }
  return "";
}

template <typename... Arrays>
uint32_t Checksum(const Arrays&... arrays) {
  uint32_t sum = 0;
  ((sum = crc32_z(sum,
                  reinterpret_cast<const Bytef*>(arrays.data()),
                  arrays.size() * sizeof(arrays[0]))),
   ...);
  return sum;
}

// The common part of all runs of a comparison.
Json Identity(const BalProblem& problem) {
  Json identity;
  identity["problem"] = {
      {"num_cameras", problem.num_cameras()},
      {"num_points", problem.num_points()},
      {"num_observations", problem.num_observations()},
      {"observations_crc32",
       Checksum(
           problem.camera_index, problem.point_index, problem.observations)},
      {"parameters_crc32", Checksum(problem.cameras, problem.points)}};
  identity["flags"] = Json::object();
  for (const auto& [flag, value] :
       FlagValues(BundleAdjusterProgram().flag_groups)) {
    if (!IsFlagOfComparison(flag)) {
      identity["flags"][flag] = value;
    }
  }
  identity["flags"]["compare_max_seconds"] =
      NumberText(FLAGS_compare_max_seconds);
  identity["machine"] = {
      {"processor", ProcessorName()},
      {"num_processors", std::thread::hardware_concurrency()}};
  return identity;
}

// The last line that this program wrote, else the last of all.
std::string LastLine(const std::string& errors) {
  std::string last;
  bool is_own = false;
  for (size_t begin = 0; begin < errors.size();) {
    const size_t end = std::min(errors.find('\n', begin), errors.size());
    const std::string line = errors.substr(begin, end - begin);
    const std::string name = "bundle_adjuster: ";
    const bool is_next_own = line.rfind(name, 0) == 0;
    if (!line.empty() && (is_next_own || !is_own)) {
      last = is_next_own ? line.substr(name.size()) : line;
      is_own = is_next_own;
    }
    begin = end + 1;
  }
  return last;
}

class Runner {
 public:
  explicit Runner(double read_seconds)
      : max_process_seconds_(2.0 * FLAGS_compare_max_seconds +
                             10.0 * read_seconds + kStartSeconds) {
    for (const auto& [flag, value] :
         FlagValues(BundleAdjusterProgram().flag_groups)) {
      if (IsGiven(flag) && !IsFlagOfComparison(flag)) {
        flags_.push_back(FlagText(flag, value));
      }
    }
    flags_.push_back(FlagText("input", FLAGS_input));
    flags_.push_back(FlagText("max_solver_time",
                              NumberText(std::min(FLAGS_max_solver_time,
                                                  FLAGS_compare_max_seconds))));
    flags_.push_back(FlagText("report_json", kChildOutput));
  }

  double max_process_seconds() const { return max_process_seconds_; }

  // Returns false, with one line in *error, if no process can be started.
  // *was_interrupted: the run does not count.
  bool Run(const ComparedSolver& solver,
           int repetition,
           int max_num_iterations,
           ComparedRun* run,
           bool* was_interrupted,
           std::string* error) const {
    std::vector<std::string> arguments = flags_;
    for (const auto& [flag, value] : solver.flags) {
      arguments.push_back(FlagText(flag, value));
    }
    arguments.push_back(
        FlagText("num_iterations", std::to_string(max_num_iterations)));
    ChildOutcome outcome;
    if (!RunChild(
            arguments,
            max_process_seconds_,
            &IsInterrupted,
            [](int process) {
              std::cout << " (process " << process << ") " << std::flush;
            },
            &outcome,
            error)) {
      return false;
    }
    *was_interrupted = outcome.was_interrupted;
    run->solver = solver.name;
    run->repetition = repetition;
    run->process_seconds = outcome.seconds;
    run->report =
        Json::parse(outcome.output, nullptr, /*allow_exceptions=*/false);
    if (!run->report.is_object()) {
      run->report = nullptr;
    }
    SetEnding(outcome, run);
    return true;
  }

 private:
  void SetEnding(const ChildOutcome& outcome, ComparedRun* run) const {
    const int status = outcome.status;
    if (outcome.was_out_of_time) {
      run->ending = RUN_OUT_OF_TIME;
      run->message = "killed after " + ShortNumber(max_process_seconds_) + " s";
    } else if (WIFSIGNALED(status)) {
      run->ending = RUN_CRASHED;
      run->message =
          std::string("ended by a signal: ") + strsignal(WTERMSIG(status)) +
          (WTERMSIG(status) == SIGKILL ? ", as where memory runs out" : "");
    } else if (WEXITSTATUS(status) == EXIT_USABLE_SOLUTION &&
               !run->report.is_null()) {
      // A solver must not count for the result of another.
      const bool is_other = run->solver.rfind("ceres_ext:", 0) == 0 &&
                            run->report.at("ceres_ext").at("path") != "FULL";
      run->ending = is_other ? RUN_FAILED : RUN_SOLVED;
      if (is_other) {
        run->message =
            "Ceres alone solved it: " +
            run->report.at("ceres_ext").at("path_reason").get<std::string>();
      }
    } else {
      run->ending = RUN_FAILED;
      run->message = LastLine(outcome.errors);
      if (run->message.empty()) {
        run->message =
            "ended with exit code " + std::to_string(WEXITSTATUS(status));
      }
    }
  }

  const double max_process_seconds_;
  std::vector<std::string> flags_;
};

double NumberAt(const ComparedRun& run, const std::string& place) {
  const Json::json_pointer pointer(place);
  return run.report.contains(pointer) && run.report[pointer].is_number()
             ? run.report[pointer].get<double>()
             : std::numeric_limits<double>::quiet_NaN();
}

void PrintRun(const ComparedRun& run) {
  std::cout << (run.ending == RUN_SOLVED
                    ? "cost " +
                          ShortNumber(NumberAt(run, "/summary/final_cost")) +
                          " in " +
                          ShortNumber(
                              NumberAt(run, "/summary/total_time_in_seconds")) +
                          " s"
                    : run.message)
            << std::endl;
}

bool IsThere(const Comparison& comparison,
             const std::string& solver,
             int repetition) {
  return std::any_of(comparison.runs.begin(),
                     comparison.runs.end(),
                     [&](const ComparedRun& run) {
                       return run.solver == solver &&
                              run.repetition == repetition;
                     });
}

// A short run of each estimates the time of a run: that of its process without
// the iteration, and so many iterations, which end when the solve has to.
ExitCode EstimateTimes(const Runner& runner,
                       const std::vector<ComparedSolver>& solvers,
                       const Comparison& comparison) {
  double estimate = 0.0;
  int num_runs = 0;
  for (const ComparedSolver& solver : solvers) {
    int num_left = 0;
    for (int k = 0; k < FLAGS_compare_repetitions; ++k) {
      num_left += IsThere(comparison, solver.name, k) ? 0 : 1;
    }
    num_runs += num_left;
    std::cout << solver.name << ": " << num_left << " of "
              << FLAGS_compare_repetitions << " to run";
    if (num_left == 0) {
      std::cout << std::endl;
      continue;
    }
    ComparedRun run;
    bool was_interrupted;
    std::string error;
    if (!runner.Run(solver,
                    /*repetition=*/0,
                    std::min(1, FLAGS_num_iterations),
                    &run,
                    &was_interrupted,
                    &error)) {
      return Fail(EXIT_SOLVE_FAILED, error);
    }
    if (was_interrupted) {
      std::cout << std::endl;
      return EXIT_INTERRUPTED;
    }
    if (run.ending != RUN_SOLVED) {
      std::cout << run.message << std::endl;
      estimate += num_left * run.process_seconds;
      continue;
    }
    const double iteration =
        NumberAt(run, "/iterations/1/iteration_time_in_seconds");
    const double solve = NumberAt(run, "/summary/total_time_in_seconds");
    const double whole_solve =
        std::min(std::isfinite(iteration)
                     ? solve + (FLAGS_num_iterations - 1) * iteration
                     : solve,
                 std::max(solve, FLAGS_compare_max_seconds));
    const double seconds = run.process_seconds - solve + whole_solve;
    estimate += num_left * seconds;
    std::cout << "about " << ShortNumber(std::round(100.0 * seconds) / 100.0)
              << " s each" << std::endl;
  }
  std::cout << num_runs << " runs: about " << ShortNumber(std::ceil(estimate))
            << " s, at most "
            << ShortNumber(std::ceil(num_runs * runner.max_process_seconds()))
            << " s" << std::endl;
  return EXIT_USABLE_SOLUTION;
}

}  // namespace

ExitCode CompareSolvers() {
  std::string error;
  SolveBalOptions options;
  std::vector<ComparedSolver> solvers;
  const std::vector<OutputFile> outputs = {{"compare_json", FLAGS_compare_json},
                                           {"report_html", FLAGS_report_html}};
  if (!SolveOptionsFromFlags(&options, &error) || !CheckFlags(&error) ||
      !ParseComparedSolvers(FLAGS_compare_solvers, &solvers, &error) ||
      !CheckDistinct(outputs, {{"input", FLAGS_input}}, &error)) {
    return Fail(EXIT_USAGE, error);
  }
  for (const OutputFile& output : outputs) {
    if (!CanWrite(output.path, &error)) {
      return Fail(EXIT_OUTPUT, error);
    }
  }

  Comparison comparison;
  comparison.input = FLAGS_input;
  double read_seconds;
  int64_t num_camera_columns;
  {
    const auto start = std::chrono::steady_clock::now();
    BalProblem problem;
    if (!ReadBalFile(FLAGS_input, &problem, &error)) {
      return Fail(EXIT_INPUT, error);
    }
    read_seconds = SecondsSince(start);
    num_camera_columns =
        int64_t{problem.num_cameras()} * (FLAGS_use_quaternions ? 10 : 9);
    comparison.identity = Identity(problem);
  }
  if (!FLAGS_compare_json.empty() &&
      !ReadComparison(FLAGS_compare_json, &comparison, &error)) {
    return Fail(EXIT_INPUT, error);
  }

  Reasons left_out;
  for (auto solver = solvers.begin(); solver != solvers.end();) {
    const std::string why = WhyLeftOut(*solver, num_camera_columns);
    if (why.empty()) {
      ++solver;
    } else {
      std::cout << solver->name << ": left out: " << why << std::endl;
      left_out.emplace_back(solver->name, why);
      solver = solvers.erase(solver);
    }
  }
  const Runner runner(read_seconds);
  SetSignalPhase(SIGNAL_ENDS_COMPARISON);
  if (FLAGS_compare_dry_run) {
    const ExitCode code = EstimateTimes(runner, solvers, comparison);
    return FlushStandardOutput(&error) ? code : Fail(EXIT_OUTPUT, error);
  }

  ExitCode code = EXIT_USABLE_SOLUTION;
  const auto check_written = [&code, &error](bool is_written) {
    if (!is_written) {
      code = Fail(EXIT_OUTPUT, error);
    }
  };
  bool was_interrupted = false;
  // One of each before the next of any, so that a machine that slows down slows
  // all.
  for (int k = 0; k < FLAGS_compare_repetitions; ++k) {
    for (const ComparedSolver& solver : solvers) {
      was_interrupted = was_interrupted || IsInterrupted();
      if (was_interrupted) {
        break;
      }
      std::cout << solver.name << ", run " << k + 1 << " of "
                << FLAGS_compare_repetitions << std::flush;
      if (IsThere(comparison, solver.name, k)) {
        std::cout << ": in " << FLAGS_compare_json << std::endl;
        continue;
      }
      ComparedRun run;
      if (!runner.Run(solver,
                      k,
                      FLAGS_num_iterations,
                      &run,
                      &was_interrupted,
                      &error)) {
        return Fail(EXIT_SOLVE_FAILED, error);
      }
      if (was_interrupted) {
        std::cout << "interrupted" << std::endl;
        break;
      }
      PrintRun(run);
      comparison.runs.push_back(std::move(run));
      // The next write may go well; the last one decides about the exit code.
      if (!FLAGS_compare_json.empty() &&
          !WriteComparison(FLAGS_compare_json, comparison, &error)) {
        Fail(EXIT_OUTPUT, error);
      }
    }
  }
  SetSignalPhase(SIGNAL_WAITS);

  std::vector<std::string> names;
  for (const ComparedSolver& solver : ComparedSolvers()) {
    names.push_back(solver.name);
  }
  const ComparisonResult result = Evaluate(comparison, names);
  std::cout << "\n" << ComparisonTable(result);
  if (!FLAGS_compare_json.empty()) {
    check_written(WriteComparison(FLAGS_compare_json, comparison, &error));
  }
  if (!FLAGS_report_html.empty()) {
    check_written(WriteTextFile(FLAGS_report_html,
                                ComparisonPage(comparison, result, left_out),
                                &error));
  }
  check_written(FlushStandardOutput(&error));
  if (code != EXIT_USABLE_SOLUTION) {
    return code;
  }
  if (was_interrupted) {
    return EXIT_INTERRUPTED;
  }
  for (const ComparedRun& run : comparison.runs) {
    if (run.ending == RUN_SOLVED && !CostFault(run).empty()) {
      return Fail(EXIT_SOLVE_FAILED,
                  run.solver + ", run " + std::to_string(run.repetition + 1) +
                      ": " + CostFault(run));
    }
  }
  return std::isfinite(result.best_cost)
             ? code
             : Fail(EXIT_SOLVE_FAILED,
                    "expected a solver that solves the problem, found none");
}

}  // namespace ceres_ext::bal
