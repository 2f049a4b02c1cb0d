// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The report's recomputed costs and its part on the problem. pages_test.py
// tests the pages that are made of it.

#include "examples/bal/problem_report.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "examples/bal/bal_geometry.h"
#include "examples/bal/reprojection_errors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "problem_io/bal_problem.h"
#include "problem_io/bal_reader.h"
#include "tests/bal/bal_test_util.h"
#include "tests/bal/program_test_util.h"

namespace ceres_ext::bal {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

using ProblemReportTest = BundleAdjusterTest;

// Against long double, in a frame near the points and in one a million units
// away, where rounding counts: within the tolerance, which follows, and the
// same bits for any number of threads.
TEST_F(ProblemReportTest, RecomputedCosts) {
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
TEST_F(ProblemReportTest, ProblemsOfAnyShape) {
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
  const ProblemChecksums sums = ChecksumsOf(problem);
  for (const ReprojectionErrors* after :
       {static_cast<const ReprojectionErrors*>(nullptr), &errors, &none}) {
    const Json json =
        Json::parse(ProblemReportJson(problem, sums, errors, after));
    EXPECT_EQ(json["observations_crc32"], sums.observations);
    EXPECT_EQ(json["parameters_crc32"], sums.parameters);
    EXPECT_EQ(json.contains("after"), after != nullptr);
    EXPECT_DOUBLE_EQ(json["before"]["rms"], std::sqrt(15.25));
    EXPECT_DOUBLE_EQ(json["before"]["largest"], std::sqrt(15.25));
    // Quarters of decades from 1e-4 on.
    EXPECT_EQ(json["before"]["histogram"][18], 1);
    if (after == &none) {
      EXPECT_TRUE(json["after"]["rms"].is_null());
      EXPECT_TRUE(json["after"]["median"].is_null());
      EXPECT_EQ(json["after"]["num_not_finite"], 1);
    }
    // The only block with an observation is the worst one.
    EXPECT_EQ(json["points"]["worst"][0]["id"], 1);
    EXPECT_EQ(json["points"]["worst"][0]["num_observations"], 1);
    EXPECT_EQ(json["points"]["worst"][0]["rms"].is_null(), after == &none);
    EXPECT_EQ(json["points"]["worst"].size(), 3u);
    EXPECT_EQ(json["points"]["num_blocks"][0], 2);
    EXPECT_EQ(json["points"]["num_blocks"][1], 1);
    EXPECT_EQ(json["cameras"]["most_observations"], 1);
    EXPECT_EQ(json["camera_positions"].size(), 6u);
    EXPECT_EQ(json["point_positions"], Json({3.0, 2.0, 1.0}));
  }
  // Any other bit gives another checksum.
  BalProblem other = problem;
  other.point_index[0] = 0;
  EXPECT_NE(ChecksumsOf(other).observations, sums.observations);
  other.points[3] = 4.0;
  EXPECT_NE(ChecksumsOf(other).parameters, sums.parameters);
}

TEST_F(ProblemReportTest, NeedsAReport) {
  ExpectFailure("--input='" + input_ + "' --report_problem",
                1,
                "bundle_adjuster: --report_problem: expected --report_json "
                "too, found none");
}

}  // namespace
}  // namespace ceres_ext::bal
