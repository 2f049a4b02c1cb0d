// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// What the study counts, and the record it writes on a machine without a GPU.

#include <sys/wait.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "benchmarks/study/host_study.h"
#include "benchmarks/study/study_record.h"
#include "gtest/gtest.h"
#include "tests/study/small_problem.h"

namespace ceres_ext::bal {
namespace {

StudyProblem SmallProblem() { return {"small", MakeSmallProblem(6, 150, 700)}; }

StudySettings SmallSettings() {
  StudySettings settings;
  settings.sizes = {"small"};
  settings.num_lm_iterations = 4;
  settings.num_pcg_iterations = 60;
  settings.gpu = false;
  return settings;
}

TEST(OperationTable, FormulasAreWhatIsCounted) {
  int num_formulas = 0;
  for (const Json& row : OperationTable()) {
    if (row.contains("formula")) {
      EXPECT_EQ(row["formula"], row["counted"]) << row["product"];
      ++num_formulas;
    } else {
      EXPECT_GT(row["counted"]["multiplications"], 0) << row["product"];
    }
  }
  EXPECT_EQ(num_formulas, 5);
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

// With one run at a time and with several.
class StudyOnHost : public testing::TestWithParam<int> {};

TEST_P(StudyOnHost, FourConfigurationsLowerTheCost) {
  const std::vector<StudyProblem> problems = {SmallProblem()};
  StudySettings settings = SmallSettings();
  settings.host_jobs = GetParam();
  StudyRecord record(settings);
  ASSERT_TRUE(TimeOneByOneOnHost(problems[0], &record).ok());
  TimeRunsOnHost(problems, &record);
  EXPECT_EQ(record.num_failures(), 0);
  const Json& rows = record.Size(problems[0])["runs"];
  ASSERT_EQ(rows.size(), 8u);
  // Full runs end in any order: runs[c][all].
  const auto index_of = [](const Json& row) {
    return 2 * (row["use_schur"] ? 1 : 0) + (row["explicit_w"] ? 1 : 0);
  };
  Json runs[4][2];
  for (size_t i = 0; i < rows.size(); ++i) {
    SCOPED_TRACE(rows[i].dump());
    const bool all = i >= 4;
    Json& run = runs[index_of(rows[i])][all ? 1 : 0];
    EXPECT_TRUE(run.is_null());
    run = rows[i];
    EXPECT_EQ(run["variant"], "host");
    EXPECT_EQ(run["max_lm_iterations"], all ? 4 : 1);
    EXPECT_EQ(run["max_pcg_iterations"], all ? 60 : 1);
    EXPECT_EQ(run["num_lm_iterations"], all ? 4 : 1);
    EXPECT_EQ(run["num_pcg_iterations"], all ? 4 * 60 : 1);
    EXPECT_EQ(run["initial_cost"], rows[0]["initial_cost"]);
    EXPECT_LT(run["final_cost"], run["initial_cost"]);
    EXPECT_GT(run["total_seconds"], 0.0);
    EXPECT_GE(run["num_accepted"], 1);
  }
  for (const auto& run : runs) {
    EXPECT_LT(run[1]["final_cost"], run[0]["final_cost"]);
  }
  // Implicit and explicit W are the same iteration in other roundings: of sums
  // of at most 700 terms, in both directions, through blocks of V + D^2 or
  // U + D^2, whose condition number after scaling by the diagonal is at most 9
  // times the radius of 1e4.
  const double tolerance =
      2 * 700 * 9e4 * std::numeric_limits<double>::epsilon();
  for (const int c : {0, 2}) {
    const double implicit_cost = runs[c][0]["final_cost"];
    const double explicit_cost = runs[c + 1][0]["final_cost"];
    EXPECT_NEAR(explicit_cost, implicit_cost, tolerance * implicit_cost);
  }
}

INSTANTIATE_TEST_SUITE_P(Jobs, StudyOnHost, testing::Values(1, 3));

TEST(StudyOnHostTime, LeavesOutWhatWouldTakeTooLong) {
  const std::vector<StudyProblem> problems = {SmallProblem()};
  StudySettings settings = SmallSettings();
  settings.host_run_seconds = 0.0;
  StudyRecord record(settings);
  ASSERT_TRUE(TimeOneByOneOnHost(problems[0], &record).ok());
  TimeRunsOnHost(problems, &record);
  EXPECT_EQ(record.Size(problems[0])["runs"].size(), 4u);
  EXPECT_EQ(record.json()["skipped"].size(), 4u);
}

TEST(StudyOnHostTime, SkipsWhatHasNoTimeLeft) {
  const std::vector<StudyProblem> problems = {SmallProblem()};
  StudySettings settings = SmallSettings();
  settings.seconds = -1.0;
  StudyRecord record(settings);
  ASSERT_TRUE(TimeOneByOneOnHost(problems[0], &record).ok());
  TimeRunsOnHost(problems, &record);
  EXPECT_TRUE(record.Size(problems[0])["runs"].empty());
  // One iteration and all of them, in four configurations.
  EXPECT_EQ(record.json()["skipped"].size(), 8u);
  EXPECT_EQ(record.num_failures(), 0);
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
  EXPECT_EQ(RunProgram("--nogpu --sizes=4x60x200 --lm=1 --pcg=1 "
                       "--output=/nonexistent/record.json > /dev/null 2>&1"),
            4);
}

}  // namespace
}  // namespace ceres_ext::bal
