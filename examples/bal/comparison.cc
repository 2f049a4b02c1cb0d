// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/comparison.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "problem_io/number_text.h"
#include "problem_io/safe_file.h"

namespace ceres_ext::bal {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "ceres_ext.comparison.1";
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr const char* kEndings[] = {
    "solved", "failed", "crashed", "out_of_time"};

std::string Dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

double Number(const Json& json) {
  return json.is_number() ? json.get<double>() : kNan;
}

// NaN if there is none.
double Number(const ComparedRun& run,
              const std::string& section,
              const std::string& name) {
  const Json::json_pointer place("/" + section + "/" + name);
  return run.report.contains(place) ? Number(run.report[place]) : kNan;
}

std::string String(const ComparedRun& run,
                   const std::string& section,
                   const std::string& name) {
  return run.report.value(Json::json_pointer("/" + section + "/" + name), "");
}

Json RunJson(const ComparedRun& run) {
  return {{"solver", run.solver},
          {"repetition", run.repetition},
          {"ending", kEndings[run.ending]},
          {"message", run.message},
          {"process_time_in_seconds", run.process_seconds},
          {"report", run.report}};
}

ComparedRun RunFromJson(const Json& json) {
  ComparedRun run;
  run.solver = json.at("solver");
  run.repetition = json.at("repetition");
  const auto ending =
      std::find(std::begin(kEndings), std::end(kEndings), json.at("ending"));
  if (ending == std::end(kEndings)) {
    json.at("ending").at(0);  // throws
  }
  run.ending = static_cast<RunEnding>(ending - std::begin(kEndings));
  run.message = json.at("message");
  run.process_seconds = json.at("process_time_in_seconds");
  run.report = json.at("report");
  if (run.ending == RUN_SOLVED) {
    for (const Json& iteration : run.report.at("iterations")) {
      iteration.at("cost");
      iteration.at("step_is_successful").get<bool>();
      iteration.at("cumulative_time_in_seconds").get<double>();
      iteration.at("linear_solver_iterations").get<double>();
    }
  }
  return run;
}

Spread SpreadOf(std::vector<double> values) {
  if (values.empty() || std::any_of(values.begin(), values.end(), [](double v) {
        return !std::isfinite(v);
      })) {
    return {kNan, kNan, kNan};
  }
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return {values.front(),
          0.5 * (values[(n - 1) / 2] + values[n / 2]),
          values.back()};
}

double SecondsTo(const ComparedRun& run, double cost) {
  for (const auto& [seconds, reached] : Progress(run)) {
    if (reached <= cost) {
      return seconds;
    }
  }
  return kNan;
}

bool IsIterative(const std::string& linear_solver_type) {
  return linear_solver_type == "ITERATIVE_SCHUR" ||
         linear_solver_type == "CGNR";
}

SolverResult EvaluateSolver(const std::string& solver,
                            const std::vector<const ComparedRun*>& runs,
                            double best_cost) {
  SolverResult result = {};
  result.solver = solver;
  result.final_cost = kNan;
  result.iterations = kNan;
  result.linear_iterations = kNan;
  result.num_runs = static_cast<int>(runs.size());
  std::vector<double> seconds_to[kNumExcesses];
  std::vector<double> total;
  std::vector<double> read_and_build;
  for (const ComparedRun* run : runs) {
    const std::string name =
        solver + ", run " + std::to_string(run->repetition + 1) + ": ";
    if (run->ending != RUN_SOLVED) {
      result.faults.push_back(name + run->message);
      continue;
    }
    const std::string fault = CostFault(*run);
    if (!fault.empty()) {
      result.faults.push_back(name + fault);
    }
    const std::string message = String(*run, "summary", "message");
    if (message.rfind("Maximum solver time reached", 0) == 0) {
      result.notes.push_back(name + message);
    }
    for (int k = 0; k < kNumExcesses; ++k) {
      seconds_to[k].push_back(
          SecondsTo(*run, (1.0 + kExcesses[k]) * best_cost));
    }
    total.push_back(Number(*run, "summary", "total_time_in_seconds"));
    read_and_build.push_back(Number(*run, "problem", "read_time_in_seconds") +
                             Number(*run, "problem", "build_time_in_seconds"));
    if (++result.num_solved > 1) {
      continue;
    }
    result.final_cost = Number(*run, "summary", "final_cost");
    const Json& iterations = run->report.at("iterations");
    result.iterations = static_cast<double>(iterations.size()) - 1.0;
    if (IsIterative(String(*run, "summary", "linear_solver_type_used"))) {
      result.linear_iterations = 0.0;
      for (const Json& iteration : iterations) {
        result.linear_iterations +=
            iteration.at("linear_solver_iterations").get<double>();
      }
    }
    result.device = String(*run, "ceres_ext", "device");
    result.method = String(*run, "ceres_ext", "method");
  }
  for (int k = 0; k < kNumExcesses; ++k) {
    result.seconds_to[k] = SpreadOf(std::move(seconds_to[k]));
  }
  result.total_seconds = SpreadOf(std::move(total));
  result.read_and_build_seconds = SpreadOf(std::move(read_and_build));
  return result;
}

// A dash where there is none.
std::string Digits(double value, int num_digits) {
  return std::isfinite(value) ? RoundedText(value, num_digits) : "-";
}

std::string Seconds(double seconds) { return Digits(seconds, 4); }

std::string CountText(double count) {
  return std::isfinite(count) ? NumberText(static_cast<int64_t>(count)) : "-";
}

}  // namespace

bool WriteComparison(const std::string& path,
                     const Comparison& comparison,
                     std::string* error) {
  Json json;
  json["format"] = kFormat;
  json["input"] = comparison.input;
  json["identity"] = comparison.identity;
  json["runs"] = Json::array();
  for (const ComparedRun& run : comparison.runs) {
    json["runs"].push_back(RunJson(run));
  }
  return WriteFile(path, {Dump(json, 1) + "\n"}, error);
}

bool ReadComparison(const std::string& path,
                    Comparison* comparison,
                    std::string* error) {
  comparison->runs.clear();
  const auto fail = [&path, error](const std::string& expected,
                                   const std::string& found) {
    *error = path + ": expected " + expected + ", found " + found;
    return false;
  };
  const auto fail_field = [&fail](const std::string& name,
                                  const Json& expected,
                                  const Json& found) {
    return fail("a comparison with " + name + " " + Dump(expected, -1),
                Dump(found, -1));
  };
  struct stat status;
  if (stat(path.c_str(), &status) != 0) {
    return errno == ENOENT || fail("a readable file", std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    return fail("a regular file", "another kind");
  }
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) {
    return fail("a readable file", "one that is not");
  }
  const Json json =
      Json::parse(text.str(), nullptr, /*allow_exceptions=*/false);
  const std::string kind = "a comparison of bundle_adjuster";
  if (!json.is_object() || json.value("format", Json()) != kFormat) {
    return fail(kind, "another kind of file");
  }
  try {
    // The text as it will be read: invalid UTF-8 has been replaced.
    const Json expected = Json::parse(Dump(comparison->identity, -1));
    for (const auto& [section, fields] : expected.items()) {
      const Json& others = json.at("identity").at(section);
      for (const auto& [name, value] : fields.items()) {
        const Json other = others.value(name, Json());
        if (other != value) {
          return fail_field(
              std::string(section).append(".").append(name), value, other);
        }
      }
    }
    for (const Json& run : json.at("runs")) {
      comparison->runs.push_back(RunFromJson(run));
    }
  } catch (const Json::exception& exception) {
    return fail(kind, exception.what());
  }
  return true;
}

std::vector<std::pair<double, double>> Progress(const ComparedRun& run) {
  std::vector<std::pair<double, double>> progress;
  if (run.report.contains("iterations")) {
    for (const Json& iteration : run.report["iterations"]) {
      // The cost of a rejected step is not the state of the solve.
      if (progress.empty() || iteration.at("step_is_successful")) {
        progress.emplace_back(
            Number(iteration.at("cumulative_time_in_seconds")),
            Number(iteration.at("cost")));
      }
    }
  }
  return progress;
}

std::string CostFault(const ComparedRun& run) {
  for (const std::string name : {"initial_cost", "final_cost"}) {
    const double reported = Number(run, "summary", name);
    const double recomputed = Number(run, "recomputed_costs", name);
    const double tolerance =
        Number(run, "recomputed_costs", name + "_tolerance");
    // True for NaN too.
    if (!(std::abs(reported - recomputed) <= tolerance)) {
      return "expected " + name + " " + NumberText(recomputed) +
             " (recomputed) within " + NumberText(tolerance) + ", found " +
             NumberText(reported);
    }
  }
  return "";
}

ComparisonResult Evaluate(const Comparison& comparison,
                          const std::vector<std::string>& solvers) {
  ComparisonResult result;
  result.best_cost = kNan;
  for (const ComparedRun& run : comparison.runs) {
    if (run.ending == RUN_SOLVED && CostFault(run).empty()) {
      // fmin: the number where one is NaN.
      result.best_cost =
          std::fmin(result.best_cost, Number(run, "summary", "final_cost"));
    }
  }
  for (const std::string& solver : solvers) {
    std::vector<const ComparedRun*> runs;
    for (const ComparedRun& run : comparison.runs) {
      if (run.solver == solver) {
        runs.push_back(&run);
      }
    }
    if (!runs.empty()) {
      result.solvers.push_back(EvaluateSolver(solver, runs, result.best_cost));
    }
  }
  return result;
}

std::string ComparisonTable(const ComparisonResult& result) {
  std::vector<std::vector<std::string>> rows = {{"solver",
                                                 "solved",
                                                 "to 1 %",
                                                 "to 0.1 %",
                                                 "to 0.01 %",
                                                 "final cost",
                                                 "iterations",
                                                 "linear",
                                                 "total (s)",
                                                 "from",
                                                 "to",
                                                 "read, build"}};
  for (const SolverResult& solver : result.solvers) {
    std::vector<std::string>& row = rows.emplace_back(
        std::vector<std::string>{solver.solver,
                                 std::to_string(solver.num_solved) + "/" +
                                     std::to_string(solver.num_runs)});
    for (const Spread& seconds : solver.seconds_to) {
      row.push_back(Seconds(seconds.median));
    }
    row.push_back(Digits(solver.final_cost, 10));
    row.push_back(CountText(solver.iterations));
    row.push_back(CountText(solver.linear_iterations));
    row.push_back(Seconds(solver.total_seconds.median));
    row.push_back(Seconds(solver.total_seconds.lowest));
    row.push_back(Seconds(solver.total_seconds.highest));
    row.push_back(Seconds(solver.read_and_build_seconds.median));
  }
  std::vector<size_t> widths(rows[0].size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string table;
  for (const auto& row : rows) {
    std::string line = row[0] + std::string(widths[0] - row[0].size(), ' ');
    for (size_t i = 1; i < row.size(); ++i) {
      line += "  " + std::string(widths[i] - row[i].size(), ' ') + row[i];
    }
    table += line + "\n";
  }
  table += "Seconds are medians. The best cost is " +
           (std::isfinite(result.best_cost) ? NumberText(result.best_cost)
                                            : std::string("not known")) +
           ".\n";
  for (const SolverResult& solver : result.solvers) {
    for (const auto* lines : {&solver.faults, &solver.notes}) {
      for (const std::string& line : *lines) {
        table += line + "\n";
      }
    }
  }
  return table;
}

}  // namespace ceres_ext::bal
