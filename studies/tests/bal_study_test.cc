// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The counts of the study, and the record that it writes on a machine without a
// GPU.

#include <sys/wait.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "studies/host_study.h"
#include "studies/study_record.h"
#include "tests/bal/synthetic_scene.h"

namespace ceres_ext::bal {
namespace {

StudyProblem SmallProblem() {
  return {"small", MakeScene(OptionsOfSize(6, 150, 700)).start};
}

StudySettings SmallSettings() {
  StudySettings settings;
  settings.sizes = {"small"};
  settings.num_lm_iterations = 4;
  settings.num_pcg_iterations = 60;
  settings.gpu = false;
  return settings;
}

TEST(OperationTable, CountsByHand) {
  const Json table = OperationTable();
  ASSERT_EQ(table.size(), 8u);
  // W is 9 x 3: a product and a sum for each value. Jp e and Jc' y: 2 x 12
  // products; of the sums, a row of Jp e has two.
  const int expected[][3] = {
      {27, 27, 27}, {27, 27, 27}, {24, 22, 24}, {24, 22, 24}, {54, 27, 24}};
  for (size_t i = 0; i < 8; ++i) {
    const Json& counted = table[i]["counted"];
    EXPECT_GT(counted["multiplications"], 0) << table[i];
    if (i < 5) {
      EXPECT_EQ(counted["multiplications"], expected[i][0]) << table[i];
      EXPECT_EQ(counted["additions"], expected[i][1]) << table[i];
      EXPECT_EQ(counted["loads"], expected[i][2]) << table[i];
    }
  }
}

TEST(OperationTable, ImplicitProductsAreRight) {
  // W = Jc' Jp with entries that make every product exact.
  double jc[18];
  double jp[6];
  for (int i = 0; i < 18; ++i) {
    jc[i] = i - 7;
  }
  for (int i = 0; i < 6; ++i) {
    jp[i] = 3 - 2 * i;
  }
  const double e[3] = {1, -2, 4};
  const double z[9] = {1, 2, -1, 3, 0, 5, -4, 2, 1};
  double w[27];
  FormCoupling<9>(jc, jp, w);
  double explicit_q[9] = {};
  double implicit_q[9] = {};
  MultiplyExplicitToCamera<9>(w, e, explicit_q);
  MultiplyImplicit<3, 9>(jp, e, jc, implicit_q);
  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(explicit_q[i], implicit_q[i]) << i;
  }
  double explicit_s[3] = {};
  double implicit_s[3] = {};
  MultiplyExplicitToPoint<9>(w, z, explicit_s);
  MultiplyImplicit<9, 3>(jc, z, jp, implicit_s);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(explicit_s[i], implicit_s[i]) << i;
  }
}

TEST(StudyOnHost, FourConfigurationsLowerTheCost) {
  const StudyProblem problem = SmallProblem();
  StudyRecord record(SmallSettings());
  ASSERT_TRUE(TimeOneByOneOnHost(problem, &record).ok());
  ASSERT_TRUE(TimeRunsOnHost(problem, &record).ok());
  EXPECT_EQ(record.num_failures(), 0);
  const Json& rows = record.Size(problem)["runs"];
  ASSERT_EQ(rows.size(), 8u);
  for (size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE(rows[i].dump());
    const Json& run = rows[i];
    const bool whole = i >= 4;
    EXPECT_EQ(run["variant"], "host");
    EXPECT_EQ(run["use_schur"], i % 4 >= 2);
    EXPECT_EQ(run["explicit_w"], i % 2 == 1);
    EXPECT_EQ(run["max_lm_iterations"], whole ? 4 : 1);
    EXPECT_EQ(run["max_pcg_iterations"], whole ? 60 : 1);
    EXPECT_LE(run["num_lm_iterations"], whole ? 4 : 1);
    EXPECT_EQ(run["initial_cost"], rows[0]["initial_cost"]);
    EXPECT_LT(run["final_cost"], run["initial_cost"]);
    EXPECT_GT(run["total_seconds"], 0.0);
    EXPECT_GE(run["num_accepted"], 1);
    ASSERT_EQ(run.contains("eta"), whole);
    if (whole) {
      // |r| <= 0.1 |b| takes fewer than the 60 that are allowed, and each is
      // noted.
      EXPECT_EQ(run["lm_seconds"].size(), run["num_lm_iterations"]);
      int num_pcg_iterations = 0;
      for (const Json& n : run["lm_pcg_iterations"]) {
        EXPECT_LT(n, 60);
        num_pcg_iterations += n.get<int>();
      }
      EXPECT_EQ(run["num_pcg_iterations"], num_pcg_iterations);
      EXPECT_LT(run["final_cost"], rows[i - 4]["final_cost"]);
    }
  }
  // Implicit and explicit W are the same iteration in other roundings: of sums
  // of at most 700 terms, in both directions, through blocks of V + D^2 or
  // U + D^2, whose condition number after scaling by the diagonal is at most 9
  // times the radius of 1e4.
  const double tolerance =
      2 * 700 * 9e4 * std::numeric_limits<double>::epsilon();
  for (const int c : {0, 2}) {
    const double implicit_cost = rows[c]["final_cost"];
    const double explicit_cost = rows[c + 1]["final_cost"];
    EXPECT_NEAR(explicit_cost, implicit_cost, tolerance * implicit_cost);
  }
}

TEST(StudyOnHost, EndsWhereTheCostHardlyFalls) {
  const StudyProblem problem = SmallProblem();
  StudySettings settings = SmallSettings();
  settings.num_lm_iterations = 50;
  settings.function_tolerance = 0.5;
  StudyRecord record(settings);
  ASSERT_TRUE(TimeRunsOnHost(problem, &record).ok());
  for (const Json& run : record.Size(problem)["runs"]) {
    SCOPED_TRACE(run.dump());
    EXPECT_EQ(run["end"], "function tolerance");
    EXPECT_LT(run["num_lm_iterations"], 50);
  }
}

TEST(StudyOnHost, TimeEndsAWholeRun) {
  const StudyProblem problem = SmallProblem();
  StudySettings settings = SmallSettings();
  settings.host_run_seconds = -1.0;
  StudyRecord record(settings);
  ASSERT_TRUE(TimeRunsOnHost(problem, &record).ok());
  ASSERT_EQ(record.Size(problem)["runs"].size(), 4u);
  for (const Json& run : record.Size(problem)["runs"]) {
    EXPECT_EQ(run["end"], "time");
    EXPECT_EQ(run["num_lm_iterations"], 0);
  }
}

// A file of final residuals of the device, all of them far away.
TEST(StudyOnHost, ComparesFinalProjections) {
  const StudyProblem problem = SmallProblem();
  StudySettings settings = SmallSettings();
  settings.residuals = testing::TempDir();
  const std::string file = ResidualsFile(settings, problem, {true, false});
  std::vector<double> residuals(1400, 1e9);
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(residuals.data()), 8 * 1400);
  StudyRecord record(settings);
  ASSERT_TRUE(TimeRunsOnHost(problem, &record).ok());
  std::remove(file.c_str());
  for (const Json& run : record.Size(problem)["runs"]) {
    const bool has_file = run["use_schur"] && !run["explicit_w"];
    ASSERT_EQ(run.contains("pixel_difference"), has_file);
    if (has_file) {
      // Residuals are thousands of pixels at most.
      EXPECT_NEAR(run["pixel_difference"], std::sqrt(2.0) * 1e9, 1e5);
    }
  }
}

TEST(StudyOnHost, SkipsWhatHasNoTimeLeft) {
  const StudyProblem problem = SmallProblem();
  StudySettings settings = SmallSettings();
  settings.seconds = -1.0;
  StudyRecord record(settings);
  ASSERT_TRUE(TimeOneByOneOnHost(problem, &record).ok());
  ASSERT_TRUE(TimeRunsOnHost(problem, &record).ok());
  EXPECT_TRUE(record.Size(problem)["runs"].empty());
  // One iteration and whole runs, in four configurations.
  EXPECT_EQ(record.json()["skipped"].size(), 8u);
  EXPECT_EQ(record.num_failures(), 0);
}

TEST(DeviceOrder, IsAlongHilbertsCurve) {
  // Groups of four cameras: (first, last) group of points 0 to 3 are (0, 0),
  // (0, 1), (0, 0) and none; of 8 cameras the grid is 4 x 4, and the curve goes
  // from (0, 0) to (0, 1) through (1, 0) or straight, but never back.
  BalProblem bal;
  bal.cameras.resize(9 * 8);
  bal.points.resize(3 * 4);
  bal.camera_index = {0, 1, 0, 5, 0, 1, 2};
  bal.point_index = {0, 0, 1, 1, 2, 2, 2};
  bal.observations.resize(14);
  // Among equals the longer track comes first; a point without one is last.
  EXPECT_EQ(DeviceOrder(bal), (std::vector<int32_t>{2, 0, 1, 3}));
}

TEST(StudyRecord, KeepsSixDigits) {
  EXPECT_EQ(Rounded(0.12345678), 0.123457);
  EXPECT_EQ(Rounded(0.0), 0.0);
}

TEST(StudyRecord, CountsFailures) {
  StudyRecord record(SmallSettings());
  record.Check("a", {});
  record.Check("b", {kernels::StatusCode::kUnsupported, "too large"});
  EXPECT_EQ(record.num_failures(), 0);
  record.Check("c", {kernels::StatusCode::kOutOfMemory, "no memory"});
  EXPECT_EQ(record.num_failures(), 1);
  ASSERT_EQ(record.json()["skipped"].size(), 2u);
  EXPECT_EQ(record.json()["skipped"][1]["what"], "c");
  EXPECT_EQ(record.json()["skipped"][1]["why"], "no memory");
}

int RunProgram(const std::string& arguments) {
  const int status =
      std::system(("'" + std::string(BAL_STUDY) + "' " + arguments).c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(BalStudy, WritesARecord) {
  const std::string file = testing::TempDir() + "/bal_study_test.json";
  std::remove(file.c_str());
  ASSERT_EQ(RunProgram("--nogpu --sizes=4x60x200,6x150x700 --lm=2 --pcg=3 "
                       "--output=" +
                       file + " > /dev/null"),
            0);
  std::ifstream stream(file);
  const Json record = Json::parse(stream);
  EXPECT_EQ(record["format"], "ceres_ext_study");
  EXPECT_EQ(record["settings"]["num_lm_iterations"], 2);
  EXPECT_FALSE(record["machine"]["cpu"].get<std::string>().empty());
  ASSERT_EQ(record["sizes"].size(), 2u);
  EXPECT_EQ(record["sizes"][0]["num_cameras"], 4);
  EXPECT_EQ(record["sizes"][1]["num_points"], 150);
  EXPECT_EQ(record["sizes"][1]["num_observations"], 700);
  EXPECT_EQ(record["sizes"][1]["runs"].size(), 8u);
  EXPECT_TRUE(record["sizes"][1]["kernels"].empty());
  std::remove(file.c_str());
}

TEST(BalStudy, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(RunProgram("--nogpu --sizes=atlantis-7 > /dev/null 2>&1"), 1);
  EXPECT_EQ(RunProgram("--nogpu --lm=0 > /dev/null 2>&1"), 1);
  EXPECT_EQ(RunProgram("--nogpu --parts=runs,walks > /dev/null 2>&1"), 1);
  EXPECT_EQ(RunProgram("--nogpu --profile=some > /dev/null 2>&1"), 1);
  EXPECT_EQ(RunProgram("--nogpu --sizes=4x60x200 --lm=1 --pcg=1 "
                       "--output=/nonexistent/record.json > /dev/null 2>&1"),
            4);
}

}  // namespace
}  // namespace ceres_ext::bal
