// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Plots as figures of a page (html_page.h). Colours are numbers of its palette;
// from the eighth on they come again, dashed.

#ifndef EXAMPLES_BAL_SVG_PLOT_H_
#define EXAMPLES_BAL_SVG_PLOT_H_

#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace ceres_ext::bal {

struct Axis {
  std::string label;
  bool is_log = false;

  // Far enough from the largest double to subtract.
  bool Shows(double value) const {
    return value >= (is_log ? std::numeric_limits<double>::min() : -1e300) &&
           value <= 1e300;
  }
};

using PlotPoints = std::vector<std::pair<double, double>>;

struct Series {
  std::string name;
  // In the order of x. Points that an axis can't show (not finite, or not
  // positive on a logarithmic one) are left out; of many, some are shown.
  PlotPoints points;
  int color = 0;
  // The value stays until the next point.
  bool is_stepped = false;
};

// The name of a series is below the plot if there are several.
std::string LinePlot(const std::string& title,
                     const Axis& x,
                     const Axis& y,
                     const std::vector<Series>& series);

struct Histogram {
  std::string name;
  std::vector<double> counts;
  int color = 0;
};

// The bins of all lie between edges, one more than counts.
std::string HistogramPlot(const std::string& title,
                          const Axis& x,
                          const Axis& y,
                          const std::vector<double>& edges,
                          const std::vector<Histogram>& histograms);

struct Bar {
  std::string label;
  double value = 0.0;
  std::string text;  // behind the bar
  int color = 0;
};

std::string BarPlot(const std::string& title,
                    const std::vector<Bar>& bars,
                    const std::string& caption);

struct Cloud {
  std::string name;
  PlotPoints points;
  int color = 0;
  double dot_size = 1.0;  // of 480 to the width of the plot
};

// With one scale on both axes, which show these ranges.
std::string CloudPlot(const std::string& title,
                      const Axis& x,
                      const Axis& y,
                      std::pair<double, double> x_range,
                      std::pair<double, double> y_range,
                      const std::vector<Cloud>& clouds,
                      const std::string& caption);

}  // namespace ceres_ext::bal

#endif  // EXAMPLES_BAL_SVG_PLOT_H_
