// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The measurements of the study on a device, and their order, on a small
// problem: on a GPU, skipped without one, and on the host, where no time passes
// on the device and cuSPARSE is missing (BAL_STUDY_EMULATED).

#include "studies/device_study.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "cuda_kernels/structure/cuda_observation_index.h"
#include "gtest/gtest.h"
#include "studies/host_study.h"
#include "tests/bal/synthetic_scene.h"

namespace ceres_ext::bal {
namespace {

class DeviceStudyTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string why_none;
    if (kernels::NumCudaDevices(&why_none) == 0) {
      GTEST_SKIP() << "skipped: no CUDA device (" << why_none << ")";
    }
    ASSERT_TRUE(kernels::CudaContext::Create({}, &context_).ok());
    problem_ = {"small", MakeScene(OptionsOfSize(6, 150, 700)).start};
    ASSERT_EQ(problem_.bal.num_observations(), 700);
    settings_.sizes = {"small"};
    settings_.num_lm_iterations = 2;
    settings_.num_pcg_iterations = 4;
    settings_.num_timed_pcg_iterations = 3;
    settings_.num_repetitions = 1;
  }

  // Rows by variant and Jacobian.
  static std::map<std::string, int> Count(const Json& rows) {
    std::map<std::string, int> counts;
    for (const Json& row : rows) {
      const std::string jacobian = row["jacobian"];
      ++counts[row.value("variant", "kernel") + ", " + jacobian];
    }
    return counts;
  }

  // Sums over at most 700 observations, through V + D^2 (and U + D^2), whose
  // condition number after scaling by the diagonal is at most 3 (9) times the
  // radius of 1e4: relative differences of n eps 9e4, for each iteration and
  // both directions. With blocks in float that is above one: a step that
  // differs by a tenth would be another step.
  static double Tolerance(const std::string& jacobian, int num_iterations) {
    const double eps = jacobian.find("float") == std::string::npos
                           ? std::numeric_limits<double>::epsilon()
                           : std::numeric_limits<float>::epsilon();
    return std::min(2 * num_iterations * 700 * 9e4 * eps, 0.1);
  }

  // Every machine takes the step of the host.
  static void CheckOneByOne(const Json& rows, const Json& on_host) {
    for (const Json& row : rows) {
      SCOPED_TRACE(row.dump());
      const auto expected = std::find_if(
          on_host.begin(), on_host.end(), [&row](const Json& of_host) {
            return of_host["use_schur"] == row["use_schur"] &&
                   of_host["explicit_w"] == row["explicit_w"];
          });
      ASSERT_NE(expected, on_host.end());
      const double cost = (*expected)["initial_cost"];
      // Costs are sums of double in any case.
      EXPECT_NEAR(row["initial_cost"],
                  cost,
                  2 * 700 * std::numeric_limits<double>::epsilon() * cost);
      EXPECT_NEAR(row["final_cost"],
                  (*expected)["final_cost"],
                  Tolerance(row["jacobian"].get<std::string>(), 1) * cost);
      EXPECT_EQ(row["num_accepted"], (*expected)["num_accepted"]);
      EXPECT_EQ(row["num_pcg_iterations"], (*expected)["num_pcg_iterations"]);
    }
  }

  // Each reports its end and its time; final projections are those of the
  // reference except for rounding.
  static void CheckWholeRuns(const Json& rows) {
    for (const Json& row : rows) {
      SCOPED_TRACE(row.dump());
      if (row["max_lm_iterations"] == 1) {
        EXPECT_FALSE(row.contains("eta"));
        continue;
      }
      EXPECT_EQ(row["eta"], 0.1);
      EXPECT_EQ(row["lm_seconds"].size(), row["num_lm_iterations"]);
      EXPECT_EQ(row["lm_pcg_iterations"].size(), row["num_lm_iterations"]);
      EXPECT_LT(row["final_cost"], row["initial_cost"]);
      const bool is_reference =
          row["variant"] == "cuda" && row["jacobian"] == "stored double";
      ASSERT_NE(is_reference, row.contains("pixel_difference"));
      if (row["jacobian"] == "stored double" ||
          row["jacobian"] == "recomputed double") {
        // Two steps of the bound below, of projections that move by less than
        // the largest initial residual, some hundred pixels.
        EXPECT_LE(
            row.value("pixel_difference", 0.0),
            2 * 8 * 700 * 9e4 * 1e3 * std::numeric_limits<double>::epsilon());
      }
    }
  }

  std::unique_ptr<kernels::CudaContext> context_;
  StudyProblem problem_;
  StudySettings settings_;
};

TEST_F(DeviceStudyTest, MeasuresEveryVariant) {
  StudyRecord record(settings_);
  ASSERT_TRUE(TimeOneByOneOnHost(problem_, &record).ok());
  const Json on_host = record.Size(problem_)["runs"];
  record.Size(problem_)["runs"] = Json::array();
  DeviceStudy study(&problem_, context_.get(), &record);
  ASSERT_TRUE(study.Setup().ok());
  study.TimeIterations();
  const Json& size = record.Size(problem_);
  std::map<std::string, int> expected = {
      {"cuda, stored double", 4},
      {"cuda, stored float", 4},
      {"cuda, recomputed double", 2},
      {"cuda, recomputed float", 2},
      {"cuda block-contiguous, stored double", 4}};
  for (const char* variant :
       {"naive", "naive continuous", "paper", "paper block-contiguous"}) {
    expected[std::string(variant) + ", stored double"] = 4;
    expected[std::string(variant) + ", stored float"] = 4;
  }
#ifdef BAL_STUDY_EMULATED
  // Noted, and not in the way of what follows.
  EXPECT_EQ(record.num_failures(), 2);
  EXPECT_EQ(record.json()["skipped"].size(), 3u);
#else
  expected["cusparse CSR, stored double"] = 1;
  expected["cusparse CSR J', stored double"] = 1;
  expected["cusparse BSR, stored double"] = 1;
  EXPECT_EQ(record.num_failures(), 0);
  EXPECT_TRUE(record.json()["skipped"].empty());
#endif
  EXPECT_EQ(Count(size["iterations"]), expected);
  EXPECT_EQ(Count(size["runs"]), expected);
  CheckOneByOne(size["runs"], on_host);
  for (const Json& row : size["iterations"]) {
    SCOPED_TRACE(row.dump());
    const std::string jacobian = row["jacobian"];
    const bool is_ours =
        row["variant"] == "cuda" && jacobian == "stored double";
    EXPECT_NE(is_ours, row.contains("step_difference"));
    EXPECT_LE(row.value("step_difference", 0.0), Tolerance(jacobian, 3));
  }

  study.TimeKernels();
  const std::map<std::string, int> kernels = Count(size["kernels"]);
  EXPECT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels.at("kernel, stored double, block-contiguous"), 19);

  study.TimeReference();
  expected["cuda, stored double"] += 4;
  EXPECT_EQ(Count(size["runs"]), expected);
  study.TimeRuns();
  expected["cuda, recomputed double"] += 2;
  expected["cuda, recomputed float"] += 2;
  expected["paper, stored double"] += 4;
  expected["naive, stored double"] += 4;
  EXPECT_EQ(Count(size["runs"]), expected);
  study.TimeFloatRuns();
  expected["paper, stored float"] += 4;
  expected["naive, stored float"] += 4;
  expected["cuda, stored float"] += 4;
  EXPECT_EQ(Count(size["runs"]), expected);
  CheckWholeRuns(size["runs"]);
  EXPECT_EQ(size["rank_deficient"]["points"], 0);
}

TEST_F(DeviceStudyTest, TimeEndsAWholeRun) {
  settings_.run_seconds = -1.0;
  StudyRecord record(settings_);
  DeviceStudy study(&problem_, context_.get(), &record);
  ASSERT_TRUE(study.Setup().ok());
  study.TimeReference();
  ASSERT_EQ(record.Size(problem_)["runs"].size(), 4u);
  for (const Json& row : record.Size(problem_)["runs"]) {
    EXPECT_EQ(row["end"], "time");
    EXPECT_EQ(row["num_lm_iterations"], 0);
    EXPECT_EQ(row["final_cost"], row["initial_cost"]);
  }
}

TEST_F(DeviceStudyTest, SaysWhatThereWasNoTimeFor) {
  settings_.seconds = -1.0;
  StudyRecord record(settings_);
  DeviceStudy study(&problem_, context_.get(), &record);
  ASSERT_TRUE(study.Setup().ok());
  study.TimeIterations();
  // 48 of the device's own variants, 3 of cuSPARSE.
  EXPECT_EQ(record.json()["skipped"].size(), 51u);
  study.TimeKernels();
  EXPECT_EQ(record.json()["skipped"].size(), 51u + 2u);
  study.TimeReference();
  EXPECT_EQ(record.json()["skipped"].size(), 51u + 2u + 4u);
  study.TimeRuns();
  EXPECT_EQ(record.json()["skipped"].size(), 51u + 2u + 4u + 12u);
  study.TimeFloatRuns();
  EXPECT_EQ(record.json()["skipped"].size(), 51u + 2u + 4u + 12u + 12u);
  EXPECT_EQ(record.num_failures(), 0);
  EXPECT_TRUE(record.Size(problem_)["runs"].empty());
}

// The host's order is the device's, ties included.
TEST_F(DeviceStudyTest, HostHasTheOrderOfTheDevice) {
  BalProblem bal = MakeScene(OptionsOfSize(40, 900, 4000)).start;
  // Points are numbered along the trajectory, which is nearly the order.
  const int32_t n = bal.num_points();
  for (int32_t& point : bal.point_index) {
    point = static_cast<int32_t>(int64_t{point} * 377 % n);
  }
  ASSERT_EQ(std::gcd(377, n), 1);
  kernels::DeviceBuffer<int32_t> cameras;
  kernels::DeviceBuffer<int32_t> points;
  kernels::DeviceBuffer<int32_t> order;
  kernels::CudaIndexScratch scratch;
  kernels::CudaObservationIndex index;
  ASSERT_TRUE(cameras
                  .Assign(context_.get(),
                          bal.camera_index.data(),
                          bal.num_observations())
                  .ok());
  ASSERT_TRUE(points
                  .Assign(context_.get(),
                          bal.point_index.data(),
                          bal.num_observations())
                  .ok());
  ASSERT_TRUE(order.Allocate(context_.get(), n).ok());
  ASSERT_TRUE(index
                  .BuildOrdered({bal.num_cameras(),
                                 n,
                                 bal.num_observations(),
                                 cameras.data(),
                                 points.data()},
                                points.data(),
                                order.data(),
                                &scratch,
                                context_.get())
                  .ok());
  std::vector<int32_t> expected;
  ASSERT_TRUE(order.CopyToHost(&expected).ok());
  EXPECT_EQ(DeviceOrder(bal), expected);
}

TEST_F(DeviceStudyTest, NothingWithoutSetup) {
  StudyRecord record(settings_);
  DeviceStudy study(&problem_, context_.get(), &record);
  study.TimeIterations();
  study.TimeKernels();
  study.TimeReference();
  study.TimeRuns();
  study.TimeFloatRuns();
  EXPECT_TRUE(record.json()["sizes"].empty());
}

TEST_F(DeviceStudyTest, RunsForAProfiler) {
  for (const bool jacobians_only : {false, true}) {
    const kernels::Status status =
        RunForProfiler(problem_, jacobians_only, context_.get());
    EXPECT_TRUE(status.ok()) << status.message;
  }
}

}  // namespace
}  // namespace ceres_ext::bal
