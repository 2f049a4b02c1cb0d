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

#include "examples/bal/bal_synthetic.h"
#include "examples/bal/study/host_study.h"
#include "examples/bal/study/study_record.h"
#include "gtest/gtest.h"

namespace ceres_ext::bal {
namespace {

StudyProblem SmallProblem() {
  SyntheticOptions options;
  options.num_cameras = 6;
  options.num_points = 150;
  options.num_observations = 700;
  options.num_threads = 1;
  SyntheticProblem synthetic;
  std::string error;
  EXPECT_TRUE(GenerateSynthetic(options, &synthetic, &error)) << error;
  return {"small", synthetic.start};
}

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

TEST(StudyOnHost, FourConfigurationsLowerTheCost) {
  const StudyProblem problem = SmallProblem();
  StudyRecord record(SmallSettings());
  ASSERT_TRUE(StudyOnHost(problem, &record).ok());
  const Json& runs = record.Size(problem)["runs"];
  ASSERT_EQ(runs.size(), 8u);
  for (size_t i = 0; i < runs.size(); ++i) {
    SCOPED_TRACE(runs[i].dump());
    const bool all = i % 2 == 1;
    EXPECT_EQ(runs[i]["variant"], "host");
    EXPECT_EQ(runs[i]["max_lm_iterations"], all ? 4 : 1);
    EXPECT_EQ(runs[i]["max_pcg_iterations"], all ? 60 : 1);
    EXPECT_EQ(runs[i]["num_lm_iterations"], all ? 4 : 1);
    EXPECT_EQ(runs[i]["num_pcg_iterations"], all ? 4 * 60 : 1);
    EXPECT_EQ(runs[i]["initial_cost"], runs[0]["initial_cost"]);
    EXPECT_LT(runs[i]["final_cost"], runs[i]["initial_cost"]);
    EXPECT_GT(runs[i]["total_seconds"], 0.0);
    EXPECT_GE(runs[i]["num_accepted"], 1);
  }
  for (size_t i = 0; i < runs.size(); i += 2) {
    EXPECT_LT(runs[i + 1]["final_cost"], runs[i]["final_cost"]) << i;
  }
  // Implicit and explicit W are the same iteration in other roundings: of sums
  // of at most 700 terms, in both directions, through blocks of V + D^2 or
  // U + D^2, whose condition number after scaling by the diagonal is at most 9
  // times the radius of 1e4.
  const double tolerance =
      2 * 700 * 9e4 * std::numeric_limits<double>::epsilon();
  for (const size_t i : {0u, 4u}) {
    const double implicit_cost = runs[i]["final_cost"];
    const double explicit_cost = runs[i + 2]["final_cost"];
    EXPECT_NEAR(explicit_cost, implicit_cost, tolerance * implicit_cost);
  }
}

TEST(StudyOnHost, LeavesOutWhatWouldTakeTooLong) {
  const StudyProblem problem = SmallProblem();
  StudySettings settings = SmallSettings();
  settings.run_seconds = 0.0;
  StudyRecord record(settings);
  ASSERT_TRUE(StudyOnHost(problem, &record).ok());
  EXPECT_EQ(record.Size(problem)["runs"].size(), 4u);
  EXPECT_EQ(record.json()["skipped"].size(), 4u);
}

int RunProgram(const std::string& arguments) {
  const int status =
      std::system((std::string(BAL_STUDY) + " " + arguments).c_str());
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
  EXPECT_EQ(RunProgram("--nogpu --sizes=4x60x200 --lm=1 --pcg=1 "
                       "--output=/nonexistent/record.json > /dev/null 2>&1"),
            4);
}

}  // namespace
}  // namespace ceres_ext::bal
