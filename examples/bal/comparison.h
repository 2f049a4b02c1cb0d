// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Solves of one problem by several solvers, each from the same start in a
// process of its own, and what they say about each other.
// docs/programs.md describes the file.

#ifndef EXAMPLES_BAL_COMPARISON_H_
#define EXAMPLES_BAL_COMPARISON_H_

#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"

namespace ceres_ext::bal {

enum RunEnding {
  // The solution is usable, and report is there.
  RUN_SOLVED,
  // The program said why not.
  RUN_FAILED,
  // A signal ended it that this program did not send.
  RUN_CRASHED,
  // Killed: it did not end in time.
  RUN_OUT_OF_TIME,
};

// NOLINTNEXTLINE(bugprone-exception-escape): of assertions in Json's moves.
struct ComparedRun {
  std::string solver;
  int repetition = 0;
  RunEnding ending = RUN_FAILED;
  std::string message;  // of what was not solved
  double process_seconds = 0.0;
  // As --report_json; null if none was written.
  nlohmann::ordered_json report;
};

// NOLINTNEXTLINE(bugprone-exception-escape): the same.
struct Comparison {
  std::string input;
  // The common properties of runs: sizes and checksums of the problem, flags,
  // machine; an object of objects. Only runs with one identity are comparable.
  nlohmann::ordered_json identity;
  std::vector<ComparedRun> runs;
};

// Whole or not at all, as a SafeFile. On failure returns false and sets *error
// to one line; so does the one below.
bool WriteComparison(const std::string& path,
                     const Comparison& comparison,
                     std::string* error);

// The runs of the regular file at path, which has to be of
// comparison->identity. A missing file has none.
bool ReadComparison(const std::string& path,
                    Comparison* comparison,
                    std::string* error);

// Seconds since the solve began and the cost then, at the start and after each
// step that was taken.
std::vector<std::pair<double, double>> Progress(const ComparedRun& run);

// One line if a cost that the solver reports is further from the recomputed one
// than its tolerance, or one of them is missing; otherwise empty.
std::string CostFault(const ComparedRun& run);

// Over the repetitions; not finite if one of them lacks the number.
struct Spread {
  double lowest = 0.0;
  double median = 0.0;
  double highest = 0.0;
};

// How far above the best cost, as parts of it.
constexpr double kExcesses[] = {0.01, 0.001, 0.0001};
constexpr int kNumExcesses = 3;

struct SolverResult {
  std::string solver;
  int num_runs = 0;
  int num_solved = 0;
  // Until the first iteration with a cost of at most (1 + kExcesses[k]) times
  // the best.
  Spread seconds_to[kNumExcesses];
  Spread total_seconds;
  Spread read_and_build_seconds;
  // Values of the first solved run; NaN if there is none, and linear_iterations
  // also if the solver is a factorisation.
  double final_cost;
  double iterations;
  double linear_iterations;
  std::string device;  // of ceres_ext
  std::string method;
  // One line each on runs that were not solved, or costs that are not right.
  std::vector<std::string> faults;
  // On runs whose time was over.
  std::vector<std::string> notes;
};

struct ComparisonResult {
  // Lowest of all final costs of runs that were solved and whose costs are
  // right; NaN if there is none.
  double best_cost;
  // In the order of their names in solvers.
  std::vector<SolverResult> solvers;
};

ComparisonResult Evaluate(const Comparison& comparison,
                          const std::vector<std::string>& solvers);

// For a terminal.
std::string ComparisonTable(const ComparisonResult& result);

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_COMPARISON_H_
