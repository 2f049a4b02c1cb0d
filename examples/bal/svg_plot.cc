// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/svg_plot.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "examples/bal/html_page.h"

namespace ceres_ext::bal {
namespace {

// In units of the drawing, of which text is 12 high and at most 7.5 wide.
constexpr double kWidth = 480.0;
constexpr double kHeight = 300.0;
constexpr double kLeft = 72.0;
constexpr double kRight = 18.0;
constexpr double kTop = 10.0;
constexpr double kBottom = 50.0;
constexpr double kCharacter = 7.5;
constexpr double kBarPitch = 20.0;
constexpr double kBarHeight = 13.0;

constexpr int kNumColors = 8;
constexpr int kMaxTicks = 7;
// More points of a line than anybody sees at this width.
constexpr size_t kMaxLinePoints = 600;
// Few enough to tell them apart.
constexpr size_t kMaxMarkedPoints = 60;

// A place in the drawing, to a tenth.
std::string Place(double value) {
  char text[32];
  value = std::round(value * 10.0) / 10.0;
  return std::string(text, std::to_chars(text, text + sizeof(text), value).ptr);
}

std::string Attribute(const char* name, double value) {
  return std::string(" ") + name + "=\"" + Place(value) + "\"";
}

std::string Text(double x,
                 double y,
                 const std::string& anchor,
                 const std::string& text,
                 const std::string& more = "") {
  return "<text" + Attribute("x", x) + Attribute("y", y) + " text-anchor=\"" +
         anchor + "\"" + more + ">" + EscapeText(text) + "</text>\n";
}

std::string Line(double x1, double y1, double x2, double y2) {
  return "<path class=\"grid\" d=\"M" + Place(x1) + " " + Place(y1) + "L" +
         Place(x2) + " " + Place(y2) + "\"/>\n";
}

std::string Stroke(int color) {
  return " stroke=\"var(--c" + std::to_string(color % kNumColors) + ")\"";
}

std::string Fill(int color) {
  return " fill=\"var(--c" + std::to_string(color % kNumColors) + ")\"";
}

const char* Dashed(int color) { return color < kNumColors ? "" : " dashed"; }

std::string Drawing(double height, const std::string& content) {
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " +
         Place(kWidth) + " " + Place(height) + "\" role=\"img\">\n" + content +
         "</svg>\n";
}

std::string Key(int color, const std::string& name) {
  return "<span class=\"key\"><svg class=\"in\" viewBox=\"0 0 26 10\"><path "
         "class=\"series" +
         std::string(Dashed(color)) + "\"" + Stroke(color) +
         " d=\"M0 5h26\"/></svg>" + EscapeText(name) + "</span> ";
}

// 1, 2 or 5 times a power of ten, not below `step`.
double RoundStep(double step) {
  const double power = std::pow(10.0, std::floor(std::log10(step)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    // A step that is round already may be off by rounding.
    if (factor * power >= step * (1.0 - 1e-9)) {
      return factor * power;
    }
  }
  return 10.0 * power;
}

// From values to places of the drawing, between two ends.
class Scale {
 public:
  // The range is widened to round numbers if is_round.
  Scale(double low,
        double high,
        bool is_log,
        bool is_round,
        double begin,
        double end)
      : is_log_(is_log), begin_(begin), end_(end) {
    if (!(low <= high)) {  // nothing to show
      low = 1.0;
      high = 10.0;
    }
    is_log ? SetLog(low, high, is_round) : SetLinear(low, high, is_round);
  }

  double operator()(double value) const {
    const double t =
        ((is_log_ ? std::log10(value) : value) - low_) / (high_ - low_);
    return begin_ + (end_ - begin_) * std::clamp(t, 0.0, 1.0);
  }

  const std::vector<double>& ticks() const { return ticks_; }

 private:
  void SetLinear(double low, double high, bool is_round) {
    if (low == high) {
      const double margin = low == 0.0 ? 1.0 : 0.5 * std::abs(low);
      low -= margin;
      high += margin;
    }
    const double step = RoundStep((high - low) / (kMaxTicks - 1));
    low_ = is_round ? step * std::floor(low / step * (1.0 + 1e-12)) : low;
    high_ = is_round ? step * std::ceil(high / step * (1.0 - 1e-12)) : high;
    const double margin = 1e-9 * step;
    for (double i = std::ceil((low_ - margin) / step);
         i * step <= high_ + margin;
         ++i) {
      ticks_.push_back(i * step + 0.0);  // no -0
    }
  }

  void SetLog(double low, double high, bool is_round) {
    low_ = std::log10(low);
    high_ = std::log10(high);
    // Below a decade or so, 1, 2 and 5 are there too; far below, what a linear
    // axis would have.
    if (high_ - low_ < 0.5) {
      Scale linear(low, high, false, is_round, 0.0, 1.0);
      ticks_ = linear.ticks();
      ticks_.erase(std::remove_if(ticks_.begin(),
                                  ticks_.end(),
                                  [](double tick) { return tick <= 0.0; }),
                   ticks_.end());
      if (low == high || is_round) {
        low_ = std::log10(std::min(low, ticks_.front()));
        high_ = std::log10(std::max(high, ticks_.back()));
      }
      return;
    }
    if (is_round && high_ - low_ > 2.0) {
      low_ = std::floor(low_ + 1e-9);
      high_ = std::ceil(high_ - 1e-9);
    }
    const double decades = high_ - low_;
    const bool has_fractions = decades <= 2.0;
    const double step = std::max(1.0, std::ceil(decades / kMaxTicks));
    for (double i = std::floor(low_ / step) * step; i <= high_; i += step) {
      for (const double factor : {1.0, 2.0, 5.0}) {
        const double exponent = i + std::log10(factor);
        if ((factor == 1.0 || has_fractions) && exponent >= low_ - 1e-9 &&
            exponent <= high_ + 1e-9) {
          ticks_.push_back(factor * std::pow(10.0, i));
        }
      }
    }
  }

  bool is_log_;
  double begin_;
  double end_;
  double low_ = 0.0;
  double high_ = 1.0;
  std::vector<double> ticks_;
};

// Frame, grid, numbers and labels.
std::string Axes(const Axis& x,
                 const Axis& y,
                 const Scale& x_scale,
                 const Scale& y_scale,
                 double height) {
  const double bottom = height - kBottom;
  std::string svg;
  // Marks that hide others come last.
  double last = -kWidth;
  for (const double tick : x_scale.ticks()) {
    const double place = x_scale(tick);
    const std::string number = ShortNumber(tick);
    const double half = 0.5 * kCharacter * number.size();
    svg += Line(place, kTop, place, bottom);
    if (place - half > last) {
      svg += Text(place, bottom + 20.0, "middle", number);
      last = place + half;
    }
  }
  for (const double tick : y_scale.ticks()) {
    const double place = y_scale(tick);
    svg += Line(kLeft, place, kWidth - kRight, place);
    svg += Text(kLeft - 6.0, place + 4.0, "end", ShortNumber(tick));
  }
  const double middle = 0.5 * (kTop + bottom);
  svg += "<rect class=\"frame\"" + Attribute("x", kLeft) +
         Attribute("y", kTop) + Attribute("width", kWidth - kLeft - kRight) +
         Attribute("height", bottom - kTop) + "/>\n";
  svg += Text(0.5 * (kLeft + kWidth - kRight),
              height - 9.0,
              "middle",
              x.label,
              " class=\"label\"");
  svg += Text(
      13.0,
      middle,
      "middle",
      y.label,
      " class=\"label\" transform=\"rotate(-90 13 " + Place(middle) + ")\"");
  return svg;
}

std::string Keys(const std::vector<std::pair<int, std::string>>& names) {
  std::string keys;
  for (const auto& [color, name] : names) {
    keys += names.size() > 1 ? Key(color, name) : "";
  }
  return keys;
}

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void Add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

}  // namespace

std::string LinePlot(const std::string& title,
                     const Axis& x,
                     const Axis& y,
                     const std::vector<Series>& series) {
  std::vector<PlotPoints> shown;
  Range x_range;
  Range y_range;
  for (const Series& line : series) {
    PlotPoints& points = shown.emplace_back();
    for (const auto& [a, b] : line.points) {
      if (x.Shows(a) && y.Shows(b)) {
        points.emplace_back(a, b);
        x_range.Add(a);
        y_range.Add(b);
      }
    }
  }
  const Scale x_scale(
      x_range.low, x_range.high, x.is_log, false, kLeft, kWidth - kRight);
  const Scale y_scale(
      y_range.low, y_range.high, y.is_log, true, kHeight - kBottom, kTop);
  std::string svg = Axes(x, y, x_scale, y_scale, kHeight);
  std::vector<std::pair<int, std::string>> names;
  for (size_t i = 0; i < series.size(); ++i) {
    const PlotPoints& points = shown[i];
    names.emplace_back(series[i].color, series[i].name);
    if (points.empty()) {
      continue;
    }
    const size_t stride = 1 + points.size() / kMaxLinePoints;
    std::string line;
    std::string marks;
    for (size_t k = 0; k < points.size();
         k = k + 1 == points.size() ? k + 1
                                    : std::min(k + stride, points.size() - 1)) {
      const std::string px = Place(x_scale(points[k].first));
      const std::string py = Place(y_scale(points[k].second));
      const bool is_stepped = series[i].is_stepped && !line.empty();
      line.append(is_stepped ? "H" : line.empty() ? "M" : "L");
      line.append(px).append(is_stepped ? "V" : " ").append(py);
      marks.append("M").append(px).append(" ").append(py).append("h0");
    }
    svg += "<path class=\"series" + std::string(Dashed(series[i].color)) +
           "\"" + Stroke(series[i].color) + " d=\"" + line + "\"/>\n";
    if (points.size() <= kMaxMarkedPoints) {
      svg += "<path class=\"dots\" stroke-width=\"4.5\"" +
             Stroke(series[i].color) + " d=\"" + marks + "\"/>\n";
    }
  }
  return HtmlFigure(title, Drawing(kHeight, svg), Keys(names));
}

std::string HistogramPlot(const std::string& title,
                          const Axis& x,
                          const Axis& y,
                          const std::vector<double>& edges,
                          const std::vector<Histogram>& histograms) {
  Range counts;
  counts.Add(0.0);
  for (const Histogram& histogram : histograms) {
    for (const double count : histogram.counts) {
      counts.Add(count);
    }
  }
  const Scale x_scale(
      edges.front(), edges.back(), x.is_log, false, kLeft, kWidth - kRight);
  const Scale y_scale(
      0.0, counts.high, y.is_log, true, kHeight - kBottom, kTop);
  std::string svg = Axes(x, y, x_scale, y_scale, kHeight);
  std::vector<std::pair<int, std::string>> names;
  for (const Histogram& histogram : histograms) {
    names.emplace_back(histogram.color, histogram.name);
    std::string area =
        "M" + Place(x_scale(edges.front())) + " " + Place(y_scale(0.0));
    for (size_t i = 0; i < histogram.counts.size(); ++i) {
      area += "V" + Place(y_scale(histogram.counts[i])) + "H" +
              Place(x_scale(edges[i + 1]));
    }
    svg += "<path class=\"area\"" + Stroke(histogram.color) +
           Fill(histogram.color) + " d=\"" + area + "V" + Place(y_scale(0.0)) +
           "Z\"/>\n";
  }
  return HtmlFigure(title, Drawing(kHeight, svg), Keys(names));
}

std::string BarPlot(const std::string& title,
                    const std::vector<Bar>& bars,
                    const std::string& caption) {
  double label_size = 0.0;
  double text_size = 0.0;
  double largest = 0.0;
  for (const Bar& bar : bars) {
    label_size = std::max(label_size, kCharacter * bar.label.size());
    text_size = std::max(text_size, kCharacter * bar.text.size());
    largest = std::max(largest, std::isfinite(bar.value) ? bar.value : 0.0);
  }
  const double left = label_size + 8.0;
  const double width = std::max(40.0, kWidth - kRight - left - text_size - 6.0);
  std::string svg;
  double y = 4.0;
  for (const Bar& bar : bars) {
    const double length = std::isfinite(bar.value) && largest > 0.0
                              ? width * std::max(0.0, bar.value) / largest
                              : 0.0;
    svg += Text(left - 6.0, y + 11.0, "end", bar.label);
    svg += "<rect" + Fill(bar.color) + Attribute("x", left) +
           Attribute("y", y) + Attribute("width", length) +
           Attribute("height", kBarHeight) + "/>\n";
    svg += Text(left + length + 6.0, y + 11.0, "start", bar.text);
    y += kBarPitch;
  }
  return HtmlFigure(title, Drawing(y + 2.0, svg), caption);
}

std::string CloudPlot(const std::string& title,
                      const Axis& x,
                      const Axis& y,
                      std::pair<double, double> x_range,
                      std::pair<double, double> y_range,
                      const std::vector<Cloud>& clouds,
                      const std::string& caption) {
  // The wider range fills the width; the other gets what height it takes, or
  // what there is.
  const double inner_width = kWidth - kLeft - kRight;
  const auto widen = [](std::pair<double, double>* range, double size) {
    const double margin = 0.5 * (size - (range->second - range->first));
    range->first -= margin;
    range->second += margin;
  };
  const double x_size = std::max(x_range.second - x_range.first,
                                 std::numeric_limits<double>::min());
  const double y_size = std::max(y_range.second - y_range.first,
                                 std::numeric_limits<double>::min());
  const double inner_height =
      std::clamp(inner_width * y_size / x_size, 200.0, inner_width);
  const double unit = std::max(x_size / inner_width, y_size / inner_height);
  widen(&x_range, unit * inner_width);
  widen(&y_range, unit * inner_height);
  const double height = kTop + inner_height + kBottom;
  const Scale x_scale(
      x_range.first, x_range.second, false, false, kLeft, kWidth - kRight);
  const Scale y_scale(
      y_range.first, y_range.second, false, false, height - kBottom, kTop);
  std::string svg = Axes(x, y, x_scale, y_scale, height);
  std::vector<std::pair<int, std::string>> names;
  for (const Cloud& cloud : clouds) {
    names.emplace_back(cloud.color, cloud.name);
    std::string dots;
    for (const auto& [a, b] : cloud.points) {
      dots += "M" + Place(x_scale(a)) + " " + Place(y_scale(b)) + "h0";
    }
    if (!dots.empty()) {
      svg += "<path class=\"dots\" stroke-width=\"" + Place(cloud.dot_size) +
             "\"" + Stroke(cloud.color) + " d=\"" + dots + "\"/>\n";
    }
  }
  return HtmlFigure(title, Drawing(height, svg), Keys(names) + caption);
}

}  // namespace ceres_ext::bal
