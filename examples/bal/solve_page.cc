// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/solve_page.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "ceres/types.h"
#include "examples/bal/bal_geometry.h"
#include "examples/bal/html_page.h"
#include "examples/bal/svg_plot.h"

namespace ceres_ext::bal {
namespace {

using Rows = std::vector<std::vector<std::string>>;

constexpr size_t kNumWorstObservations = 10;
// Dots of the view from above, at 11 bytes each.
constexpr int64_t kMaxDots = 20000;
constexpr int64_t kMaxCameraDots = 5000;

// Bins of residuals: quarters of decades, with all that is smaller or larger in
// the outermost.
constexpr int kBinsPerDecade = 4;
constexpr int kSmallestDecade = -4;
constexpr int kNumBins = 9 * kBinsPerDecade;

std::string Percent(double part, double whole) {
  return ShortNumber(whole > 0.0 ? std::round(1000.0 * part / whole) / 10.0
                                 : 0.0) +
         " %";
}

std::string SummaryTable(const ReportedProblem& problem,
                         const SolveTimes& times,
                         const ceres_ext::Summary& summary) {
  Rows rows;
  const auto text = [&rows](const char* name, const std::string& value) {
    if (!value.empty()) {
      rows.push_back({name, EscapeText(value)});
    }
  };
  const auto number = [&rows](const std::string& name,
                              const std::string& id,
                              double value,
                              const std::string& unit = "") {
    rows.push_back({name, Data(value, id, 9) + unit});
  };
  text("Input", problem.input);
  for (const auto& [name, size] : problem.sizes) {
    number(EscapeText(name), "problem." + name, static_cast<double>(size));
  }
  text("Termination",
       ceres::TerminationTypeToString(summary.termination_type) +
           std::string(": ") + summary.message);
  text("Solved by",
       summary.path == PATH_CERES ? "Ceres alone" : "Ceres Ext under Ceres");
  text("Reason", summary.path_reason);
  text("Device", summary.device);
  text("Method", summary.method);
  text("Linear solver",
       std::string(
           ceres::LinearSolverTypeToString(summary.linear_solver_type_used)) +
           ", preconditioner " +
           ceres::PreconditionerTypeToString(summary.preconditioner_type_used));
  number("Threads",
         "summary.num_threads_used",
         static_cast<double>(summary.num_threads_used));
  number("Initial cost", "summary.initial_cost", summary.initial_cost);
  number("Final cost", "summary.final_cost", summary.final_cost);
  for (const auto& [name, cost] : problem.recomputed_costs) {
    number(EscapeText(name) + ", recomputed", "recomputed_costs." + name, cost);
  }
  number("Steps taken",
         "summary.num_successful_steps",
         summary.num_successful_steps);
  number("Steps rejected",
         "summary.num_unsuccessful_steps",
         summary.num_unsuccessful_steps);
  if (summary.path != PATH_CERES) {
    number("PCG iterations",
           "ceres_ext.num_pcg_iterations",
           static_cast<double>(summary.num_pcg_iterations));
    number("Memory",
           "ceres_ext.memory_bytes",
           static_cast<double>(summary.memory_bytes),
           " bytes");
  }
  number("Total time",
         "summary.total_time_in_seconds",
         summary.total_time_in_seconds,
         " s");
  number("Reading the input",
         "problem.read_time_in_seconds",
         times.read_in_seconds,
         " s");
  number("Building the problem",
         "problem.build_time_in_seconds",
         times.build_in_seconds,
         " s");
  return HtmlTable({}, rows);
}

template <typename Value>
PlotPoints ByIteration(const ceres_ext::Summary& summary, Value&& value) {
  PlotPoints points;
  for (const ceres::IterationSummary& iteration : summary.iterations) {
    points.emplace_back(iteration.iteration, value(iteration));
  }
  return points;
}

std::string Convergence(const ceres_ext::Summary& summary) {
  using Iteration = ceres::IterationSummary;
  PlotPoints by_time;
  PlotPoints by_iteration;
  PlotPoints linear_iterations;
  for (const Iteration& iteration : summary.iterations) {
    // The cost of a rejected step is not the state of the solve.
    if (iteration.step_is_successful || &iteration == &summary.iterations[0]) {
      by_time.emplace_back(iteration.cumulative_time_in_seconds,
                           iteration.cost);
      by_iteration.emplace_back(iteration.iteration, iteration.cost);
    }
    if (&iteration != &summary.iterations[0]) {
      linear_iterations.emplace_back(iteration.iteration,
                                     iteration.linear_solver_iterations);
    }
  }
  const Axis cost = {"cost", true};
  return LinePlot("Cost against time",
                  {"seconds since the solve began"},
                  cost,
                  {{"cost", by_time, 0, true}}) +
         LinePlot("Cost against iterations",
                  {"iteration"},
                  cost,
                  {{"cost", by_iteration, 0, true}}) +
         LinePlot("Iterations of the linear solver per step",
                  {"iteration"},
                  {"iterations"},
                  {{"iterations", linear_iterations, 1}}) +
         LinePlot("Trust-region radius",
                  {"iteration"},
                  {"radius", true},
                  {{"radius",
                    ByIteration(summary,
                                [](const Iteration& iteration) {
                                  return iteration.trust_region_radius;
                                }),
                    2}});
}

std::string Stages(const ceres_ext::Summary& summary) {
  std::vector<Bar> bars;
  const auto add = [&](const char* name, double seconds, int color) {
    if (seconds > 0.0) {
      bars.push_back({name,
                      seconds,
                      ShortNumber(std::round(seconds * 1e4) / 1e4) + " s, " +
                          Percent(seconds, summary.total_time_in_seconds),
                      color});
    }
  };
  add("total", summary.total_time_in_seconds, 0);
  add("preprocessor", summary.preprocessor_time_in_seconds, 0);
  add("residuals", summary.residual_evaluation_time_in_seconds, 0);
  add("Jacobian", summary.jacobian_evaluation_time_in_seconds, 0);
  add("linear solver", summary.linear_solver_time_in_seconds, 0);
  add("inner iterations", summary.inner_iteration_time_in_seconds, 0);
  add("postprocessor", summary.postprocessor_time_in_seconds, 0);
  std::string caption = "Shares are of the total.";
  if (summary.path != PATH_CERES) {
    add("set-up", summary.setup_time_in_seconds, 1);
    add("upload of rows", summary.import_time_in_seconds, 1);
    add("normal blocks", summary.normal_blocks_time_in_seconds, 1);
    if (summary.linear_solver_type_used == ceres::DENSE_SCHUR ||
        summary.linear_solver_type_used == ceres::SPARSE_SCHUR) {
      add("Schur complement", summary.schur_time_in_seconds, 1);
      add("factorization", summary.factorization_time_in_seconds, 1);
    } else {
      add("PCG", summary.pcg_time_in_seconds, 1);
    }
    add("back-substitution", summary.back_substitution_time_in_seconds, 1);
    caption += " Stages in the second colour are parts of the others.";
  }
  return BarPlot("Time of the stages", bars, caption);
}

std::vector<double> CountBins(const std::vector<double>& squared_norms) {
  std::vector<double> counts(kNumBins);
  for (const double norm2 : squared_norms) {
    if (std::isfinite(norm2)) {
      const double bin =
          kBinsPerDecade * (0.5 * std::log10(norm2) - kSmallestDecade);
      counts[static_cast<int>(
          std::clamp(std::floor(bin), 0.0, kNumBins - 1.0))] += 1.0;
    }
  }
  return counts;
}

std::string ResidualHistogram(const ReprojectionErrors& before,
                              const ReprojectionErrors* after) {
  std::vector<Histogram> histograms = {
      {"before", CountBins(before.squared_norms), 1}};
  if (after != nullptr) {
    histograms.push_back({"after", CountBins(after->squared_norms), 0});
  }
  // Without the empty bins at both ends.
  int begin = kNumBins;
  int end = 0;
  for (const Histogram& histogram : histograms) {
    for (int i = 0; i < kNumBins; ++i) {
      if (histogram.counts[i] > 0.0) {
        begin = std::min(begin, i);
        end = std::max(end, i + 1);
      }
    }
  }
  if (begin >= end) {
    begin = 0;
    end = kNumBins;
  }
  std::vector<double> edges;
  for (int i = begin; i <= end; ++i) {
    edges.push_back(std::pow(
        10.0, kSmallestDecade + static_cast<double>(i) / kBinsPerDecade));
  }
  for (Histogram& histogram : histograms) {
    histogram.counts = {histogram.counts.begin() + begin,
                        histogram.counts.begin() + end};
  }
  return HistogramPlot("Residuals",
                       {"|r| in pixels", true},
                       {"observations"},
                       edges,
                       histograms);
}

// Seven columns: what ResidualTable says of one state.
std::vector<std::string> ResidualRow(const std::string& name,
                                     std::vector<double> squared_norms) {
  const size_t n = squared_norms.size();
  squared_norms.erase(
      std::remove_if(squared_norms.begin(),
                     squared_norms.end(),
                     [](double norm2) { return !std::isfinite(norm2); }),
      squared_norms.end());
  const size_t size = squared_norms.size();
  const double sum =
      std::accumulate(squared_norms.begin(), squared_norms.end(), 0.0);
  std::vector<std::string> row = {
      name, Data(std::sqrt(sum / static_cast<double>(size)), name + ".rms")};
  for (const double part : {0.5, 0.9, 0.99, 1.0}) {
    double value = std::numeric_limits<double>::quiet_NaN();
    if (size > 0) {
      const auto place =
          squared_norms.begin() +
          static_cast<int64_t>(part * static_cast<double>(size - 1));
      std::nth_element(squared_norms.begin(), place, squared_norms.end());
      value = std::sqrt(*place);
    }
    row.push_back(Data(value));
  }
  row.push_back(Data(static_cast<double>(n - size)));
  return row;
}

std::string ResidualTable(const ReprojectionErrors& before,
                          const ReprojectionErrors* after) {
  Rows rows = {ResidualRow("before", before.squared_norms)};
  if (after != nullptr) {
    rows.push_back(ResidualRow("after", after->squared_norms));
  }
  return HtmlTable({"|r| in pixels",
                    "RMS",
                    "median",
                    "90 %",
                    "99 %",
                    "largest",
                    "not finite"},
                   rows);
}

// Values of the blocks that `index` names, one per observation.
std::vector<int64_t> CountObservations(const BalArray<int32_t>& index,
                                       int64_t num_blocks) {
  std::vector<int64_t> counts(num_blocks);
  for (const int32_t block : index) {
    ++counts[block];
  }
  return counts;
}

std::string WorstTable(const std::string& kind,
                       const BalArray<int32_t>& index,
                       const std::vector<int64_t>& counts,
                       const std::vector<double>& squared_norms) {
  std::vector<double> means(counts.size());
  for (size_t i = 0; i < index.size(); ++i) {
    means[index[i]] += squared_norms[i] / static_cast<double>(counts[index[i]]);
  }
  std::vector<int64_t> worst(counts.size());
  std::iota(worst.begin(), worst.end(), 0);
  // Values that are not finite come first.
  const auto badness = [&means](int64_t id) {
    return std::isnan(means[id]) ? std::numeric_limits<double>::infinity()
                                 : means[id];
  };
  const size_t size = std::min(kNumWorstObservations, worst.size());
  std::partial_sort(worst.begin(),
                    worst.begin() + static_cast<int64_t>(size),
                    worst.end(),
                    [&](int64_t a, int64_t b) {
                      return badness(a) != badness(b) ? badness(a) > badness(b)
                                                      : a < b;
                    });
  Rows rows;
  for (size_t i = 0; i < size; ++i) {
    const int64_t id = worst[i];
    rows.push_back({std::to_string(id),
                    std::to_string(counts[id]),
                    Data(std::sqrt(means[id]))});
  }
  return "<div><h3>Worst " + kind + "s</h3>" +
         HtmlTable({kind, "observations", "RMS in pixels"}, rows) + "</div>\n";
}

std::string CountPlot(const std::string& title,
                      const std::vector<int64_t>& counts) {
  constexpr int64_t kEdges[] = {
      0,      1,       2,
      3,      4,       5,
      6,      8,       10,
      15,     20,      30,
      50,     100,     200,
      500,    1000,    2000,
      5000,   10000,   20000,
      50000,  100000,  200000,
      500000, 1000000, std::numeric_limits<int64_t>::max()};
  constexpr int kNumCountBins = sizeof(kEdges) / sizeof(kEdges[0]) - 1;
  std::vector<int64_t> bins(kNumCountBins);
  int begin = kNumCountBins;
  int end = 0;
  for (const int64_t count : counts) {
    const int bin = static_cast<int>(
        std::upper_bound(kEdges, kEdges + kNumCountBins, count) - kEdges - 1);
    ++bins[bin];
    begin = std::min(begin, bin);
    end = std::max(end, bin + 1);
  }
  std::vector<Bar> bars;
  for (int i = begin; i < end; ++i) {
    const std::string from = std::to_string(kEdges[i]);
    bars.push_back({i + 1 == kNumCountBins ? from + "-"
                    : kEdges[i + 1] == kEdges[i] + 1
                        ? from
                        : from + "-" + std::to_string(kEdges[i + 1] - 1),
                    static_cast<double>(bins[i]),
                    std::to_string(bins[i]),
                    2});
  }
  const double sum = std::accumulate(counts.begin(), counts.end(), 0.0);
  return BarPlot(
      title,
      bars,
      "Mean " + ShortNumber(sum / static_cast<double>(counts.size())) +
          ", most " +
          std::to_string(*std::max_element(counts.begin(), counts.end())) +
          ".");
}

// At most max_size of the positions (3 each), evenly spread over their order,
// those that no axis can show left out.
std::vector<double> Sample(const std::vector<double>& positions,
                           int64_t max_size) {
  const int64_t n = static_cast<int64_t>(positions.size()) / 3;
  const int64_t size = std::min(n, max_size);
  std::vector<double> sample;
  for (int64_t k = 0; k < size; ++k) {
    const double* position = positions.data() + 3 * (k * n / size);
    const Axis axis;
    if (axis.Shows(position[0]) && axis.Shows(position[1]) &&
        axis.Shows(position[2])) {
      sample.insert(sample.end(), position, position + 3);
    }
  }
  return sample;
}

// From the second to the 98th hundredth of a coordinate.
std::pair<double, double> RobustRange(const std::vector<double>& positions,
                                      int axis) {
  std::vector<double> values;
  for (size_t i = axis; i < positions.size(); i += 3) {
    values.push_back(positions[i]);
  }
  if (values.empty()) {
    return {0.0, 1.0};
  }
  std::sort(values.begin(), values.end());
  const auto at = [&values](double part) {
    return values[static_cast<size_t>(part *
                                      static_cast<double>(values.size() - 1))];
  };
  return {at(0.02), at(0.98)};
}

std::string ViewFromAbove(const BalProblem& problem) {
  const std::vector<double> points = Sample(problem.points, kMaxDots);
  const std::vector<double> cameras =
      Sample(CameraCenters(problem), kMaxCameraDots);
  std::pair<double, double> ranges[3];
  int axes[3] = {0, 1, 2};
  for (const int axis : axes) {
    const auto of_points = RobustRange(points, axis);
    const auto of_cameras = RobustRange(cameras, axis);
    const double low = std::min(of_points.first, of_cameras.first);
    const double high = std::max(of_points.second, of_cameras.second);
    const double margin = 0.05 * (high - low);
    ranges[axis] = {low - margin, high + margin};
  }
  const auto size = [&ranges](int axis) {
    return ranges[axis].second - ranges[axis].first;
  };
  // The two widest; of x, y and z the first is to the right.
  std::stable_sort(
      axes, axes + 3, [&](int a, int b) { return size(a) > size(b); });
  const int right = std::min(axes[0], axes[1]);
  const int up = std::max(axes[0], axes[1]);
  int64_t num_outside = 0;
  const auto project = [&](const std::vector<double>& positions) {
    PlotPoints projected;
    for (size_t i = 0; i < positions.size(); i += 3) {
      const double a = positions[i + right];
      const double b = positions[i + up];
      if (a >= ranges[right].first && a <= ranges[right].second &&
          b >= ranges[up].first && b <= ranges[up].second) {
        projected.emplace_back(a, b);
      } else {
        ++num_outside;
      }
    }
    return projected;
  };
  const char* const kNames[] = {"x", "y", "z"};
  const std::vector<Cloud> clouds = {{"points", project(points), 0, 1.3},
                                     {"cameras", project(cameras), 1, 3.0}};
  return CloudPlot("Cameras and points along the two widest axes",
                   {kNames[right]},
                   {kNames[up]},
                   ranges[right],
                   ranges[up],
                   clouds,
                   "Shown: " + std::to_string(clouds[0].points.size()) +
                       " of " + std::to_string(problem.num_points()) +
                       " points, " + std::to_string(clouds[1].points.size()) +
                       " of " + std::to_string(problem.num_cameras()) +
                       " cameras; " + std::to_string(num_outside) +
                       " lie outside, where the outermost hundredths are.");
}

std::string Figures(const std::string& figures) {
  return "<div class=\"figures\">\n" + figures + "</div>\n";
}

}  // namespace

std::string SolvePage(const ReportedProblem& problem,
                      const SolveTimes& times,
                      const ceres_ext::Summary& summary,
                      const std::string& sections) {
  return HtmlPage(
      "Solve of",
      problem.input,
      SummaryTable(problem, times, summary) + "<h2>Convergence</h2>\n" +
          Figures(Convergence(summary) + Stages(summary)) + sections);
}

std::string BalSections(const BalProblem& problem,
                        const ReprojectionErrors& before,
                        const ReprojectionErrors* after) {
  const std::vector<int64_t> of_cameras =
      CountObservations(problem.camera_index, problem.num_cameras());
  const std::vector<int64_t> of_points =
      CountObservations(problem.point_index, problem.num_points());
  const std::vector<double>& norms =
      (after != nullptr ? *after : before).squared_norms;
  return "<h2>Residuals</h2>\n" + ResidualTable(before, after) +
         Figures(ResidualHistogram(before, after)) +
         Figures(WorstTable("camera", problem.camera_index, of_cameras, norms) +
                 WorstTable("point", problem.point_index, of_points, norms)) +
         "<h2>Structure</h2>\n" +
         Figures(CountPlot("Points by number of observations", of_points) +
                 CountPlot("Cameras by number of observations", of_cameras)) +
         "<h2>From above</h2>\n" + Figures(ViewFromAbove(problem));
}

}  // namespace ceres_ext::bal
