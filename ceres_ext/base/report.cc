// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/base/report.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <initializer_list>
#include <string>
#include <utility>

#include "ceres/types.h"
#include "ceres_ext/base/ceres_version.h"

namespace ceres_ext {
namespace {

constexpr char kStandardError[] = "stderr";

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", c);
      quoted += escaped;
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

// With all digits that matter and a point in any locale. Stages that Ceres did
// not reach are negative.
std::string Number(double value) {
  if (!std::isfinite(value) || value < 0.0) {
    return "null";
  }
  char text[32];
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

// "2026-01-31T12:00:00.000Z", of now.
std::string Time() {
  using std::chrono::system_clock;
  const auto now = system_clock::now();
  const std::time_t seconds = system_clock::to_time_t(now);
  std::tm utc = {};
  gmtime_r(&seconds, &utc);
  char text[32];
  size_t size = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
  const auto since_epoch = now.time_since_epoch();
  const auto milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(since_epoch) % 1000;
  std::snprintf(text + size,
                sizeof(text) - size,
                ".%03dZ",
                static_cast<int>(milliseconds.count()));
  return text;
}

}  // namespace

std::string ReportLine(const Summary& summary) {
  const bool has_linear_solver = summary.num_linear_solves >= 0;
  const ceres::LinearSolverType type = summary.linear_solver_type_used;
  const bool is_iterative =
      has_linear_solver &&
      (type == ceres::ITERATIVE_SCHUR || type == ceres::CGNR);
  int64_t num_pcg_iterations = summary.num_pcg_iterations;
  if (is_iterative && summary.path == PATH_CERES) {
    // Without those of the step that ends the solve, which Ceres leaves out.
    for (const ceres::IterationSummary& iteration : summary.iterations) {
      num_pcg_iterations += iteration.linear_solver_iterations;
    }
  }
  const auto& groups = summary.linear_solver_ordering_used;
  const bool eliminates =
      has_linear_solver && ceres::IsSchurType(type) && !groups.empty();
  const std::initializer_list<std::pair<const char*, std::string>> fields = {
      {"time", Quoted(Time())},
      {"process", std::to_string(getpid())},
      {"path", Quoted(SolvePathToString(summary.path))},
      {"reason", Quoted(summary.path_reason)},
      {"device", Quoted(summary.device)},
      {"method", Quoted(summary.method)},
      {"host_losses", std::to_string(summary.num_host_losses)},
      {"host_loss_type", Quoted(summary.host_loss_type)},
      {"host_manifolds", std::to_string(summary.num_host_manifolds)},
      {"host_manifold_type", Quoted(summary.host_manifold_type)},
      {"degenerate_eliminated_blocks",
       std::to_string(summary.degenerate_eliminated_blocks.count)},
      {"degenerate_other_blocks",
       std::to_string(summary.degenerate_other_blocks.count)},
      {"runaway_trials", std::to_string(summary.num_runaway_trials)},
      {"no_minimum", Quoted(summary.no_minimum)},
      {"linear_solver_given",
       Quoted(
           ceres::LinearSolverTypeToString(summary.linear_solver_type_given))},
      {"linear_solver",
       has_linear_solver ? Quoted(ceres::LinearSolverTypeToString(type))
                         : "null"},
      {"preconditioner",
       is_iterative ? Quoted(ceres::PreconditionerTypeToString(
                          summary.preconditioner_type_used))
                    : "null"},
      {"residual_blocks", Number(summary.num_residual_blocks)},
      {"residuals", Number(summary.num_residuals)},
      {"parameter_blocks", Number(summary.num_parameter_blocks)},
      {"eliminated_blocks", std::to_string(eliminates ? groups[0] : 0)},
      {"successful_steps", Number(summary.num_successful_steps)},
      {"unsuccessful_steps", Number(summary.num_unsuccessful_steps)},
      {"pcg_iterations", std::to_string(num_pcg_iterations)},
      {"exact_steps", std::to_string(summary.num_exact_steps)},
      {"solves_at_pcg_limit", std::to_string(summary.num_solves_at_pcg_limit)},
      {"seconds", Number(summary.total_time_in_seconds)},
      {"linear_solver_seconds", Number(summary.linear_solver_time_in_seconds)},
      {"initial_cost", Number(summary.initial_cost)},
      {"final_cost", Number(summary.final_cost)},
      {"termination",
       Quoted(ceres::TerminationTypeToString(summary.termination_type))},
      {"message", Quoted(summary.message)}};
  std::string line;
  for (const auto& [name, value] : fields) {
    line += (line.empty() ? "{" : ",") + Quoted(name) + ":" + value;
  }
  return line + "}\n";
}

void AppendReport(const std::string& report, const Summary& summary) {
  const std::string line = ReportLine(summary);
  const bool is_file = report != kStandardError;
  // O_NONBLOCK: a pipe without a reader must not block the solve.
  const int file =
      is_file ? open(report.c_str(),
                     O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK,
                     0666)
              : STDERR_FILENO;
  std::string error;
  if (file < 0) {
    error = std::strerror(errno);
  } else {
    // One write, so that lines of other threads and processes do not mix.
    const ssize_t written = write(file, line.data(), line.size());
    if (written < 0) {
      error = std::strerror(errno);
    } else if (static_cast<size_t>(written) < line.size()) {
      error = "only " + std::to_string(written) + " of " +
              std::to_string(line.size()) + " bytes were written";
    }
    if (is_file) {
      close(file);
    }
  }
  if (!error.empty()) {
    LOG(ERROR) << "Ceres Ext can't write its report to '" << report
               << "': " << error << ".";
  }
}

}  // namespace ceres_ext
