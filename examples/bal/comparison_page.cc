// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/comparison_page.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "examples/bal/html_page.h"
#include "examples/bal/svg_plot.h"

namespace ceres_ext::bal {
namespace {

using Rows = std::vector<std::vector<std::string>>;

// Beyond six digits costs are the same.
constexpr double kSmallestExcess = 1e-6;

std::string SpreadCell(const Spread& seconds, const std::string& id) {
  std::string cell = Data(seconds.median, id);
  if (seconds.lowest < seconds.highest) {
    cell += "<br/>" + ShortNumber(seconds.lowest, 4) + "–" +
            ShortNumber(seconds.highest, 4);
  }
  return cell;
}

std::string ResultTable(const ComparisonResult& result) {
  Rows rows;
  for (const SolverResult& solver : result.solvers) {
    const auto id = [&solver](const char* field) {
      return solver.solver + "." + field;
    };
    rows.push_back(
        {EscapeText(solver.solver),
         std::to_string(solver.num_solved) + " of " +
             std::to_string(solver.num_runs),
         SpreadCell(solver.seconds_to[0], id("1")),
         SpreadCell(solver.seconds_to[1], id("0.1")),
         SpreadCell(solver.seconds_to[2], id("0.01")),
         Data(solver.final_cost, id("final_cost"), 9),
         Data(solver.iterations, id("iterations")),
         Data(solver.linear_iterations, id("linear_iterations")),
         SpreadCell(solver.total_seconds, id("total")),
         Data(solver.read_and_build_seconds.median, id("read_and_build"))});
  }
  return HtmlTable({"solver",
                    "solved",
                    "s to 1 %",
                    "s to 0.1 %",
                    "s to 0.01 %",
                    "final cost",
                    "iter.",
                    "linear",
                    "total s",
                    "read, build s"},
                   rows);
}

std::string Notes(
    const ComparisonResult& result,
    const std::vector<std::pair<std::string, std::string>>& left_out) {
  Rows rows;
  for (const SolverResult& solver : result.solvers) {
    for (const std::string& fault : solver.faults) {
      rows.push_back({"<span class=\"bad\">fault</span>", EscapeText(fault)});
    }
  }
  for (const SolverResult& solver : result.solvers) {
    for (const std::string& note : solver.notes) {
      rows.push_back({"ended", EscapeText(note)});
    }
  }
  for (const auto& [solver, reason] : left_out) {
    rows.push_back(
        {"left out",
         EscapeText(std::string(solver).append(": ").append(reason))});
  }
  for (const SolverResult& solver : result.solvers) {
    if (!solver.method.empty()) {
      rows.push_back({EscapeText(solver.solver),
                      EscapeText(solver.device + "; " + solver.method)});
    }
  }
  return rows.empty() ? "" : HtmlTable({}, rows);
}

// The first run of each solver that has one.
std::vector<Series> CostSeries(const Comparison& comparison,
                               const ComparisonResult& result) {
  std::vector<Series> series;
  for (size_t i = 0; i < result.solvers.size(); ++i) {
    for (const ComparedRun& run : comparison.runs) {
      if (run.solver != result.solvers[i].solver || run.ending != RUN_SOLVED) {
        continue;
      }
      Series& line = series.emplace_back();
      line.name = run.solver;
      line.color = static_cast<int>(i);
      line.is_stepped = true;
      for (const auto& [seconds, cost] : Progress(run)) {
        const double excess = cost / result.best_cost - 1.0;
        line.points.emplace_back(seconds, std::fmax(excess, kSmallestExcess));
      }
      break;
    }
  }
  return series;
}

std::string Bars(const std::string& title,
                 const ComparisonResult& result,
                 Spread (*seconds)(const SolverResult&)) {
  std::vector<Bar> bars;
  for (size_t i = 0; i < result.solvers.size(); ++i) {
    const Spread spread = seconds(result.solvers[i]);
    bars.push_back({result.solvers[i].solver,
                    spread.median,
                    std::isfinite(spread.median)
                        ? ShortNumber(spread.median, 4) + " s"
                        : "not reached",
                    static_cast<int>(i)});
  }
  return BarPlot(title, bars, "");
}

}  // namespace

std::string ComparisonPage(
    const Comparison& comparison,
    const ComparisonResult& result,
    const std::vector<std::pair<std::string, std::string>>& left_out) {
  Rows about = {{"Best cost", Data(result.best_cost, "best_cost", 9)}};
  for (const auto& [section, fields] : comparison.identity.items()) {
    std::string values;
    for (const auto& [name, value] : fields.items()) {
      values += (values.empty() ? "" : ", ") + name + " " +
                (value.is_string() ? value.get<std::string>() : value.dump());
    }
    about.push_back({EscapeText(section), EscapeText(values)});
  }
  const std::vector<Series> series = CostSeries(comparison, result);
  const Axis excess = {"cost / best cost - 1", true};
  return HtmlPage(
      "Comparison on",
      comparison.input,
      ResultTable(result) + Notes(result, left_out) +
          "<p>Seconds count from the call that solves, so the set-up and the "
          "start of a device are in them and reading and building are not; "
          "they are medians over the runs, with their range. Seconds to 1 % "
          "are those until the first iteration whose cost is at most 1 % above "
          "the best final cost of all. The plots are of the first run that was "
          "solved; what is less than a millionth above the best is shown "
          "there.</p>\n"
          "<div class=\"figures\">\n" +
          LinePlot("Cost against time",
                   {"seconds since the solve began"},
                   excess,
                   series) +
          LinePlot("Cost against time, logarithmic",
                   {"seconds since the solve began", true},
                   excess,
                   series) +
          Bars("Time to 1 % above the best cost",
               result,
               [](const SolverResult& s) { return s.seconds_to[0]; }) +
          Bars("Time to 0.1 % above the best cost",
               result,
               [](const SolverResult& s) { return s.seconds_to[1]; }) +
          Bars("Time to 0.01 % above the best cost",
               result,
               [](const SolverResult& s) { return s.seconds_to[2]; }) +
          Bars("Total time of the solve",
               result,
               [](const SolverResult& s) { return s.total_seconds; }) +
          "</div>\n<h2>What all have in common</h2>\n" + HtmlTable({}, about));
}

}  // namespace ceres_ext::bal
