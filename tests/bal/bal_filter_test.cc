// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// bal_filter as a program, and what bundle_adjuster reports of degenerate
// blocks. RemoveDegenerate has a test of its own (bal_degenerate_test).

#include <cstdint>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "problem_io/bal_problem.h"
#include "problem_io/bal_reader.h"
#include "problem_io/bal_writer.h"
#include "tests/bal/bal_test_util.h"
#include "tests/bal/program_test_util.h"

namespace ceres_ext::bal {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class BalFilterTest : public BundleAdjusterTest {
 protected:
  // Two points with one observation, and a camera with two, of points that have
  // others.
  void Generate(const std::string& path) {
    const Outcome outcome =
        Execute(BAL_GENERATE,
                "--num_cameras=8 --num_points=200 --num_observations=900 "
                "--num_points_seen_once=2 --num_weak_cameras=1 "
                "--weak_camera_points=2 --output='" +
                    path + "'");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  }
  static Outcome Filter(const std::string& input, const std::string& output) {
    return Execute(BAL_FILTER,
                   "--input='" + input + "'" +
                       (output.empty() ? "" : " --output='" + output + "'"));
  }
};

TEST_F(BalFilterTest, NothingToRemove) {
  const std::string output = File("same.txt");
  const Outcome outcome = Filter(input_, output);
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.out,
            input_ +
                ": 8 cameras, 200 points, 900 observations\n"
                "without degenerate blocks: 8 cameras, 200 points, 900 "
                "observations\n");
  EXPECT_EQ(ReadBytes(output), ReadBytes(input_));
}

TEST_F(BalFilterTest, ListsAndRemoves) {
  const std::string input = File("degenerate.txt");
  Generate(input);
  const std::string bytes = ReadBytes(input);
  const Outcome listed = Filter(input, "");
  EXPECT_EQ(listed.code, 0) << listed.err;
  EXPECT_THAT(listed.out,
              HasSubstr("\nround  kind    id        observations  relative "
                        "pivot\n1      camera  "));
  EXPECT_THAT(listed.out, HasSubstr("\n1      point   "));
  EXPECT_EQ(ReadBytes(input), bytes);

  std::string text;
  for (const char* name : {"a.txt", "a.gz", "a.bz2", "a.npz"}) {
    const std::string output = File(name);
    const Outcome outcome = Filter(input, output);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, listed.out);
    BalProblem problem;
    std::string error;
    ASSERT_TRUE(ReadBalFile(output, &problem, &error)) << error;
    EXPECT_EQ(problem.num_cameras(), 7);
    const std::string sizes =
        "without degenerate blocks: 7 cameras, " +
        std::to_string(problem.num_points()) + " points, " +
        std::to_string(problem.num_observations()) + " observations\n";
    EXPECT_THAT(outcome.out, HasSubstr(sizes));
    // Once is enough, and in its own place.
    const std::string once = ReadBytes(output);
    const Outcome again = Filter(output, output);
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_THAT(again.out, HasSubstr(sizes));
    EXPECT_EQ(ReadBytes(output), once);
  }
}

TEST_F(BalFilterTest, BundleAdjusterCountsThem) {
  const std::string input = File("degenerate.txt");
  const std::string filtered = File("filtered.npz");
  const std::string report = File("report.json");
  Generate(input);
  ASSERT_EQ(Filter(input, filtered).code, 0);
  for (const std::string& problem : {input, filtered}) {
    for (const std::string door : {"arrays", "ceres"}) {
      const Outcome outcome =
          Adjust("--input='" + problem + "' --problem=" + door +
                 " --device=host --report_json='" + report + "'");
      ASSERT_EQ(outcome.code, 0) << outcome.err;
      const auto json =
          nlohmann::json::parse(ReadBytes(report)).at("ceres_ext");
      const auto& cameras = json["degenerate_other_blocks"];
      const auto& points = json["degenerate_eliminated_blocks"];
      if (problem == filtered) {
        EXPECT_EQ(cameras["count"], 0);
        EXPECT_EQ(points["count"], 0);
        EXPECT_EQ(outcome.out.find("Degenerate"), std::string::npos);
        continue;
      }
      EXPECT_EQ(cameras["count"], 1);
      EXPECT_GE(points["count"], 2);
      EXPECT_EQ(cameras.count("worst_parameters"), door == "arrays" ? 1 : 0);
      EXPECT_LE(cameras["worst_relative_pivot"], 1e-12);
      // The one that bal_filter lists.
      EXPECT_THAT(
          Filter(input, "").out,
          HasSubstr("\n1      camera  " +
                    std::to_string(cameras["worst_block"].get<int>()) + " "));
      EXPECT_THAT(outcome.out,
                  HasSubstr("\nDegenerate blocks    1 not eliminated, the "
                            "worst block "));
    }
  }
}

TEST_F(BalFilterTest, RealProblemsHaveNone) {
  int num_found = 0;
  for (const char* name : {"dubrovnik-16-22106-pre.txt.bz2",
                           "ladybug-49-7776-pre.txt.bz2",
                           "trafalgar-21-11315-pre.txt.bz2"}) {
    const std::string path = FindBalFile(name);
    if (path.empty()) {
      continue;
    }
    ++num_found;
    const Outcome outcome = Filter(path, "");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.out,
                MatchesRegex("[^\n]*: ([0-9]* [a-z, ]*)*\nwithout degenerate "
                             "blocks: [^\n]*\n"));
  }
  if (num_found == 0) {
    GTEST_SKIP() << SkippedForLackOf("problem of the BAL data set");
  }
}

TEST_F(BalFilterTest, Failures) {
  EXPECT_EQ(Execute(BAL_FILTER, "--no_such_flag").code, 1);
  EXPECT_EQ(Execute(BAL_FILTER, "--help").code, 0);
  // One observation: nothing is left, and the output as it was.
  const std::string one = File("one.txt");
  const std::string output = File("output.txt");
  WriteBytes(one, "1 1 1\n0 0 1 2\n0 0 0 0 0 0 500 0 0\n0.1 0.2 -5\n");
  WriteBytes(output, "before");
  ExpectRefusals(BAL_FILTER,
                 "bal_filter",
                 {{"input", input_},
                  {"missing", File("missing")},
                  {"one", one},
                  {"output", output}});
  EXPECT_EQ(ReadBytes(output), "before");
}

// An observation whose residual is not finite ends a solve; its point goes.
TEST_F(BalFilterTest, APointAtTheOpticalCentreGoes) {
  const std::string input = File("centre.txt");
  BalProblem problem;
  std::string error;
  ASSERT_TRUE(ReadBalFile(input_, &problem, &error)) << error;
  // Camera 0 gets no rotation, and the first point that it sees for its place.
  for (int j = 0; j < 3; ++j) {
    problem.cameras[j] = 0.0;
  }
  int64_t k = 0;
  while (problem.camera_index[k] != 0) {
    ++k;
  }
  const int32_t point = problem.point_index[k];
  for (int j = 0; j < 3; ++j) {
    problem.cameras[3 + j] = -problem.points[3 * point + j];
  }
  ASSERT_TRUE(WriteBalFile(input, problem, &error)) << error;
  EXPECT_EQ(Adjust("--input='" + input + "'").code, 3);
  const Outcome outcome = Filter(input, input);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              HasSubstr("1      point   " + std::to_string(point)));
  EXPECT_EQ(Adjust("--input='" + input + "'").code, 0);
}

}  // namespace
}  // namespace ceres_ext::bal
