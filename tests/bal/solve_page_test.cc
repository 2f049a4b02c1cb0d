// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// bundle_adjuster --report_html: the page is whole, its numbers are those of
// the report, and a browser shows it well. Costs recomputed for the report.

#include "examples/bal/solve_page.h"

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "examples/bal/bal_geometry.h"
#include "examples/bal/html_page.h"
#include "examples/bal/reprojection_errors.h"
#include "examples/bal/svg_plot.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "problem_io/bal_problem.h"
#include "problem_io/bal_reader.h"
#include "tests/bal/bal_test_util.h"
#include "tests/bal/page_test_util.h"
#include "tests/bal/program_test_util.h"

namespace ceres_ext::bal {
namespace {

using Json = nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class SolvePageTest : public BundleAdjusterTest {
 protected:
  void SetUp() override {
    if (!HasPython()) {
      GTEST_SKIP() << "skipped: no python3";
    }
    BundleAdjusterTest::SetUp();
  }
};

// Numbers of the page by the fields of the report that their ids name.
void ExpectSameNumbers(const Json& page, const Json& report) {
  EXPECT_GE(page["numbers"].size(), 15u);
  for (const auto& [id, number] : page["numbers"].items()) {
    const size_t dot = id.find('.');
    const std::string section = id.substr(0, dot);
    if (section == "before" || section == "after") {
      continue;
    }
    ASSERT_TRUE(report.contains(section)) << id;
    ASSERT_TRUE(report[section].contains(id.substr(dot + 1))) << id;
    EXPECT_EQ(number, report[section][id.substr(dot + 1)]) << id;
  }
}

TEST_F(SolvePageTest, HoldsTheNumbersOfTheReport) {
  const std::string html = File("a <b> & \"c\".html");
  const std::string json = File("report.json");
  const std::string common = "--num_iterations=10 --input='" + input_ +
                             "' --report_html='" + html + "' --report_json='" +
                             json + "' ";
  for (const std::string flags :
       {"", "--solver=ceres", "--use_quaternions --robustify"}) {
    SCOPED_TRACE(flags);
    const Outcome outcome = Adjust(common + flags);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Json page = ReadPage(html);
    const Json report = Json::parse(ReadBytes(json));
    ExpectSameNumbers(page, report);
    EXPECT_EQ(page["title"], "Solve of " + input_);
    EXPECT_EQ(page["external"], Json::array());
    EXPECT_EQ(page["figures"].size(), 9u);

    // The recomputed costs are those of the solver, to their tolerance, which
    // is far below what a step changes.
    const Json& costs = report["recomputed_costs"];
    for (const std::string cost : {"initial_cost", "final_cost"}) {
      const double value = report["summary"][cost];
      const double tolerance = costs[cost + "_tolerance"];
      EXPECT_NEAR(costs[cost].get<double>(), value, tolerance);
      EXPECT_LT(tolerance, 1e-8 * value);
      EXPECT_GT(tolerance, 0.0);
    }
    // RMS is of |r|, so without a loss 2 cost = n RMS^2.
    if (flags.find("robustify") == std::string::npos) {
      const double rms = page["numbers"]["after.rms"];
      const double cost = costs["final_cost"];
      EXPECT_NEAR(0.5 * 900 * rms * rms, cost, 1e-12 * cost);
    }
  }
}

// No text from outside breaks the page: names with markup, invalid UTF-8,
// control characters.
TEST_F(SolvePageTest, EscapesWhatIsShown) {
  const std::string name = File("<b>&amp;'\"\x01\xff\xc3\xa9]]>.txt");
  std::filesystem::copy_file(input_, name);
  const std::string html = File("page.html");
  // In double quotes for the shell, which the name escapes.
  std::string quoted;
  for (const char c : name) {
    quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  const Outcome outcome =
      Adjust("--input='" + quoted + "' --report_html='" + html + "'");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::string title = ReadPage(html)["title"];
  EXPECT_THAT(title,
              HasSubstr("<b>&amp;'\"\xef\xbf\xbd\xef\xbf\xbd\xc3\xa9]]>"));
}

TEST(HtmlPage, EscapeText) {
  const std::string bad = "\xef\xbf\xbd";
  EXPECT_EQ(EscapeText("a<b>&\"'\n"), "a&lt;b&gt;&amp;&quot;'\n");
  // Two, three and four bytes, the largest and smallest of each.
  for (const std::string good : {"\xc2\x80",
                                 "\xdf\xbf",
                                 "\xe0\xa0\x80",
                                 "\xed\x9f\xbf",
                                 "\xef\xbf\xbd",
                                 "\xf0\x90\x80\x80",
                                 "\xf4\x8f\xbf\xbf"}) {
    EXPECT_EQ(EscapeText(good), good);
    // Cut off at the end, and before another character.
    const std::string cut = good.substr(0, good.size() - 1);
    EXPECT_THAT(EscapeText(cut), HasSubstr(bad));
    EXPECT_THAT(EscapeText(cut + "x"), ::testing::EndsWith(bad + "x"));
  }
  // Overlong, a surrogate, beyond the last, no character of XML.
  EXPECT_EQ(EscapeText("\xc0\x80"), bad + bad);
  EXPECT_EQ(EscapeText("\xe0\x80\x80"), bad + bad + bad);
  EXPECT_EQ(EscapeText("\xed\xa0\x80"), bad);
  EXPECT_EQ(EscapeText("\xef\xbf\xbf"), bad);
  EXPECT_EQ(EscapeText("\xf4\x90\x80\x80"), bad);
  EXPECT_EQ(EscapeText(std::string(1, '\0') + "\x1f"), bad + bad);
}

TEST(HtmlPage, Numbers) {
  EXPECT_EQ(ShortNumber(0.0), "0");
  EXPECT_EQ(ShortNumber(-1.25), "-1.25");
  EXPECT_EQ(ShortNumber(1234567.0), "1.23457e6");
  EXPECT_EQ(ShortNumber(1e-7), "1e-7");
  EXPECT_EQ(ShortNumber(1e100), "1e100");
  EXPECT_EQ(ShortNumber(kNan), "–");
  EXPECT_EQ(Data(0.1, "a.b"), "<data id=\"a.b\" value=\"0.1\">0.1</data>");
  EXPECT_EQ(Data(1.0 / 3.0),
            "<data value=\"0.3333333333333333\">0.333333</data>");
  EXPECT_EQ(Data(kNan), "<data value=\"\">–</data>");
}

// Ranges of all kinds: the ticks are round, few and inside.
TEST_F(SolvePageTest, PlotsOfAnyRange) {
  const std::vector<PlotPoints> lines = {
      {},
      {{0.0, 0.0}},
      {{1.0, 5.0}},
      {{1.0, kNan}, {kNan, 1.0}},
      {{0.0, 1e300}, {1.0, 1e-300}},
      {{-1e300, -1e300}, {1e300, 1e300}, {1e301, 1.0}, {1.0, -1e308}},
      {{0.0, 1.0}, {1.0, 1.0 + 1e-12}},
      {{0.0, 41000.0}, {1.0, 41000.5}},
      {{1e-9, -3.0}, {2e5, 7.0}},
      {{1.0, 0.0}, {2.0, -1.0}, {3.0, 99.0}},
      PlotPoints(100000, {1.0, 2.0})};
  std::string body;
  for (const PlotPoints& points : lines) {
    for (const bool is_log : {false, true}) {
      const std::string plot = LinePlot(
          "plot", {"x", is_log}, {"y", is_log}, {{"line", points, 3, true}});
      EXPECT_LT(plot.size(), 20000u);
      body += plot;
    }
  }
  body += BarPlot("bars", {}, "");
  body += BarPlot("bars", {{"a", 0.0, "none"}, {"b", kNan, "nan"}}, "");
  body += HistogramPlot("none", {"x"}, {"y"}, {0.0, 1.0}, {{"a", {0.0}}});
  body += CloudPlot("point", {"x"}, {"y"}, {1.0, 1.0}, {2.0, 2.0}, {}, "");
  const std::string path = File("plots.html");
  WriteBytes(path, HtmlPage("Plots", "", body));
  const Json page = ReadPage(path);
  EXPECT_EQ(page["figures"].size(), 2 * lines.size() + 4);
  for (const std::string text : page["texts"]) {
    EXPECT_LE(text.size(), 10u) << text;
  }
}

// Against long double, in a frame near the points and in one a million units
// away, where rounding counts: within the tolerance, which follows, and the
// same bits for any number of threads.
TEST_F(SolvePageTest, RecomputedCosts) {
  BalProblem problem;
  std::string error;
  ASSERT_TRUE(ReadBalFile(input_, &problem, &error)) << error;
  for (const bool is_quaternion : {false, true}) {
    if (is_quaternion) {
      ToQuaternions(&problem);
    }
    for (const double distance : {0.0, 1e6}) {
      BalProblem moved = problem;
      Similarity frame;
      frame.origin[0] = distance;
      Undo(frame, &moved);
      const ReprojectionErrors errors =
          ComputeReprojectionErrors(moved, false, 1);
      EXPECT_NEAR(errors.cost, PlainCost(moved), errors.tolerance);
      EXPECT_LT(errors.tolerance, (1.0 + distance) * 1e-10 * errors.cost);
      EXPECT_GT(errors.tolerance, (1.0 + distance) * 1e-16 * errors.cost);
      const ReprojectionErrors again =
          ComputeReprojectionErrors(moved, false, 3);
      EXPECT_EQ(errors.squared_norms, again.squared_norms);
      EXPECT_EQ(errors.cost, again.cost);
      EXPECT_EQ(errors.tolerance, again.tolerance);
    }
  }
}

// A problem with cameras and points that have no position, or that no camera or
// every camera sees.
TEST_F(SolvePageTest, ProblemsOfAnyShape) {
  BalProblem problem;
  problem.camera_index = {0};
  problem.point_index = {1};
  problem.observations = {1.0, 2.0};
  problem.cameras.assign(18, 0.0);
  problem.cameras[5] = problem.cameras[6] = 1.0;
  problem.points = {kNan, 0.0, 0.0, 3.0, 2.0, 1.0, 1e308, 0.0, 0.0};
  const ReprojectionErrors errors =
      ComputeReprojectionErrors(problem, false, 2);
  // P = (3, 2, 2), p = -(1.5, 1), r = -(2.5, 3).
  EXPECT_THAT(errors.squared_norms, ElementsAre(15.25));
  EXPECT_EQ(errors.cost, 7.625);
  const ReprojectionErrors robust = ComputeReprojectionErrors(problem, true, 2);
  EXPECT_DOUBLE_EQ(robust.cost, std::sqrt(15.25) - 0.5);
  problem.observations[0] = kNan;
  const ReprojectionErrors none = ComputeReprojectionErrors(problem, false, 1);
  EXPECT_TRUE(std::isnan(none.cost));
  for (const ReprojectionErrors* after :
       {static_cast<const ReprojectionErrors*>(nullptr), &errors, &none}) {
    const std::string path = File("page.html");
    WriteBytes(
        path,
        SolvePage(
            {"f", "input", {}}, {}, {}, BalSections(problem, errors, after)));
    const Json page = ReadPage(path);
    EXPECT_EQ(page["figures"].size(), 9u);
    EXPECT_THAT(
        page["rows"],
        Contains(Json::array({"camera", "observations", "RMS in pixels"})));
  }
}

// A page with a million points would be too large to download: here 60,000.
TEST_F(SolvePageTest, StaysSmall) {
  const std::string input = File("large.txt");
  ASSERT_EQ(Execute(BAL_GENERATE,
                    "--num_cameras=6000 --num_points=60000 "
                    "--num_observations=200000 --output='" +
                        input + "'")
                .code,
            0);
  const std::string html = File("page.html");
  ASSERT_EQ(Adjust("--num_iterations=1 --max_linear_solver_iterations=1 "
                   "--input='" +
                   input + "' --report_html='" + html + "'")
                .code,
            0);
  EXPECT_LT(std::filesystem::file_size(html), 500000u);
  // The worst points come first, and the largest |r| is not below theirs.
  const Json page = ReadPage(html);
  double rms = std::numeric_limits<double>::infinity();
  int num_worst = 0;
  for (const Json& row : page["rows"]) {
    if (row[0] == "point") {
      num_worst = 1;
    } else if (num_worst > 0 && num_worst <= 10) {
      ++num_worst;
      const double next = std::stod(row[2].get<std::string>());
      EXPECT_LE(next, rms);
      rms = next;
    }
  }
  EXPECT_EQ(num_worst, 11);
}

// A solve that fails has a page too.
TEST_F(SolvePageTest, FailedSolves) {
  const std::string center = File("center.txt");
  WriteBytes(center, "1 1 1\n0 0 1 2\n0\n0\n0\n0\n0\n0\n1\n0\n0\n0\n0\n0\n");
  const std::string html = File("page.html");
  EXPECT_EQ(
      Adjust("--input='" + center + "' --report_html='" + html + "'").code, 3);
  const Json page = ReadPage(html);
  EXPECT_EQ(page["figures"].size(), 9u);
  EXPECT_FALSE(page["numbers"].contains("recomputed_costs.final_cost"));
}

TEST_F(SolvePageTest, ABrowserShowsIt) {
  const std::string html = File("page.html");
  ASSERT_EQ(Adjust("--num_iterations=30 --input='" + input_ +
                   "' --report_html='" + html + "'")
                .code,
            0);
  ExpectGoodRendering(html);
}

}  // namespace
}  // namespace ceres_ext::bal
