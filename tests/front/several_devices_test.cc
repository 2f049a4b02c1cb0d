// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Options::cuda_devices: problems and batches by all devices of the computer,
// against one of them.

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "ceres/ceres.h"
#include "ceres/solver_plugin.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/base/ceres_version.h"
#include "ceres_ext/batch.h"
#include "ceres_ext/front/solve_parts.h"
#include "ceres_ext/import/problem_of_arrays.h"
#include "ceres_ext/solve.h"
#include "ceres_ext/window_solver.h"
#include "cuda_kernels/machine/cuda_context.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/front/others_capture.h"
#include "tests/front/rank_problem.h"

// ceres_ext/front/solve.cc
extern "C" ceres::internal::SolverPlugin* CeresCreateSolverPlugin(
    int abi_version, const char* settings, char* error, int error_size);

namespace ceres_ext {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const bool kIsQuiet = [] {
  SetQuiet(true);
  return true;
}();

class SeveralDevicesTest : public testing::Test, public RankProblem {
 protected:
  void SetUp() override {
    if (kernels::NumCudaDevices(nullptr) < 2) {
      GTEST_SKIP() << "skipped: no CUDA device beside another";
    }
  }

  static Options By(const std::string& devices) {
    Options ext_options;
    ext_options.device = DEVICE_CUDA;
    ext_options.cuda_devices = devices;
    ext_options.preconditioner_blocks = PRECONDITIONER_BLOCKS_SINGLE;
    ext_options.fallback = FALLBACK_REFUSE;
    return ext_options;
  }
  void SolveBy(const std::string& devices, const Case& c, Part* part) const {
    Make(c, 0, 1, part);
    ceres_ext::Solve(
        SomeOptions(c), By(devices), &part->problem, &part->summary);
  }
};

TEST_F(SeveralDevicesTest, SolveAsOneDoes) {
  for (Case c : AllCases()) {
    if (!c.has_priors && c.has_loss) {
      continue;  // Those with priors have what it has.
    }
    SCOPED_TRACE(testing::Message()
                 << "split " << (c.rows == Rows::kSplit) << " preconditioner "
                 << c.preconditioner << " loss " << c.has_loss << " priors "
                 << c.has_priors);
    Part alone;
    SolveBy("", c, &alone);
    ASSERT_TRUE(alone.summary.IsSolutionUsable()) << alone.summary.message;
    Part all;
    SolveBy("all", c, &all);
    ASSERT_EQ(all.summary.path, PATH_FULL) << all.summary.message;
    EXPECT_THAT(all.summary.path_reason, HasSubstr("ranks solve"));
    EXPECT_THAT(all.summary.path_reason, Not(HasSubstr("host memory")));
    ExpectAsAlone(all.summary, alone.summary);
    for (int run = 0; run < 3; ++run) {
      Part again;
      SolveBy("all", c, &again);
      EXPECT_EQ(again.summary.final_cost, all.summary.final_cost);
      EXPECT_EQ(again.values.cameras, all.values.cameras);
      EXPECT_EQ(again.values.intrinsics, all.values.intrinsics);
      EXPECT_EQ(again.values.points, all.values.points);
    }
  }
  // Devices are connected again.
  ReleaseIdleCommunicators();
  Part last;
  SolveBy("all", Case(), &last);
  EXPECT_TRUE(last.summary.IsSolutionUsable()) << last.summary.message;
}

// While another thread captures a stream the devices solve with the same bits,
// and the capture stays whole. The first solve makes communicators, the second
// one finds them.
TEST_F(SeveralDevicesTest, BesideACaptureOfAnotherThread) {
  Case c;
  c.has_loss = true;
  Part expected;
  SolveBy("all", c, &expected);
  ASSERT_TRUE(expected.summary.IsSolutionUsable()) << expected.summary.message;
  ReleaseIdleCommunicators();
  OthersCapture others;
  for (int i = 0; i < 2; ++i) {
    Part part;
    SolveBy("all", c, &part);
    EXPECT_EQ(part.values.cameras, expected.values.cameras)
        << part.summary.message;
    EXPECT_EQ(part.values.points, expected.values.points);
    EXPECT_EQ(OthersCapture::CaptureMode(), 0);
  }
  EXPECT_EQ(others.End(), "");
}

TEST_F(SeveralDevicesTest, SolveACeresProblem) {
  for (const Rows rows : {Rows::kBal, Rows::kSplit}) {
    Case c;
    c.rows = rows;
    c.has_loss = c.has_constants = true;
    Part alone;
    SolveBy("", c, &alone);
    Part part;
    Make(c, 0, 1, &part);
    ProblemOfArrays of_arrays(part.problem);
    Summary summary;
    ceres_ext::Solve(SomeOptions(c), By("all"), of_arrays.problem(), &summary);
    ASSERT_EQ(summary.path, PATH_FULL) << summary.message;
    EXPECT_THAT(summary.path_reason, HasSubstr("ranks solve"));
    ExpectAsAlone(summary, alone.summary);
    double cost = 0.0;
    ASSERT_TRUE(
        of_arrays.problem()->Evaluate({}, &cost, nullptr, nullptr, nullptr));
    EXPECT_NEAR(cost, summary.final_cost, 1e-10 * cost);
  }
}

// A program that calls ceres::Solve, with CERES_SOLVER_PLUGIN.
TEST_F(SeveralDevicesTest, ServeAProgramThatCallsCeres) {
  Case c;
  c.has_loss = c.has_constants = true;
  Part alone;
  SolveBy("", c, &alone);
  Part part;
  Make(c, 0, 1, &part);
  ProblemOfArrays of_arrays(part.problem);
  char error[256] = "";
  const std::unique_ptr<ceres::internal::SolverPlugin> plugin(
      CeresCreateSolverPlugin(ceres::internal::kSolverPluginAbiVersion,
                              "device=cuda,cuda_devices=all",
                              error,
                              sizeof(error)));
  ASSERT_NE(plugin, nullptr) << error;
  ceres::Solver::Summary summary;
  {
    const ceres::internal::ScopedSolverPlugin scoped(plugin.get());
    ceres::Solve(SomeOptions(c), of_arrays.problem(), &summary);
  }
  EXPECT_THAT(summary.message, HasSubstr("[Ceres Ext: path FULL on "));
  EXPECT_THAT(summary.message, HasSubstr("ranks solve"));
  EXPECT_NEAR(summary.final_cost,
              alone.summary.final_cost,
              1e-9 * alone.summary.final_cost);
  double cost = 0.0;
  ASSERT_TRUE(
      of_arrays.problem()->Evaluate({}, &cost, nullptr, nullptr, nullptr));
  EXPECT_NEAR(cost, summary.final_cost, 1e-10 * cost);
}

// One rank fails; the other, whose device waits for it, ends too.
TEST_F(SeveralDevicesTest, AnExceptionEndsAll) {
  class Thrower final : public ceres::IterationCallback {
   public:
    ceres::CallbackReturnType operator()(
        const ceres::IterationSummary& summary) final {
      if (summary.iteration == 2) {
        throw std::runtime_error("thrown on purpose");
      }
      return ceres::SOLVER_CONTINUE;
    }
  };
  const Case c;
  Part part;
  Make(c, 0, 1, &part);
  const std::vector<double> start = part.values.cameras;
  Thrower thrower;
  ceres::Solver::Options options = SomeOptions(c);
  options.callbacks.push_back(&thrower);
  ceres_ext::Solve(options, By("all"), &part.problem, &part.summary);
  EXPECT_EQ(part.summary.termination_type, ceres::FAILURE);
  EXPECT_THAT(part.summary.message, HasSubstr("thrown on purpose"));
  EXPECT_EQ(part.values.cameras, start);
  // The devices are there for the next solve.
  Part next;
  SolveBy("all", c, &next);
  EXPECT_TRUE(next.summary.IsSolutionUsable()) << next.summary.message;
}

// Windows of one size, each with values of its own.
class SomeWindows {
 public:
  explicit SomeWindows(int num_windows) {
    for (int i = 0; i < num_windows; ++i) {
      const BalTestProblem one =
          MakeBalTestProblem(5, 40, 4, 9, static_cast<unsigned>(i + 1));
      for (size_t k = 0; k < one.camera_id.size(); ++k) {
        camera_id_.push_back(5 * i + one.camera_id[k]);
        point_id_.push_back(40 * i + one.point_id[k]);
      }
      Append(one.cameras, &cameras);
      Append(one.points, &points);
      Append(one.observations, &observations_);
      camera_begin_.push_back(5 * (i + 1));
      point_begin_.push_back(40 * (i + 1));
      row_begin_.push_back(static_cast<int64_t>(camera_id_.size()));
    }
    ArrayProblem& arrays = batch.problem;
    const int c =
        arrays.AddParameters({cameras.data(), camera_begin_.back(), 9});
    const int p = arrays.AddParameters({points.data(), point_begin_.back(), 3});
    arrays.AddResiduals<BalReprojectionError>(
        row_begin_.back(),
        observations_.data(),
        {{c, camera_id_.data()}, {p, point_id_.data()}});
    batch.num_problems = num_windows;
    batch.parameter_begin = {camera_begin_.data(), point_begin_.data()};
    batch.residual_begin = {row_begin_.data()};
  }

  ProblemBatch batch;
  std::vector<double> cameras;
  std::vector<double> points;

 private:
  static void Append(const std::vector<double>& from, std::vector<double>* to) {
    to->insert(to->end(), from.begin(), from.end());
  }

  std::vector<double> observations_;
  std::vector<int32_t> camera_id_;
  std::vector<int32_t> point_id_;
  std::vector<int64_t> camera_begin_{0};
  std::vector<int64_t> point_begin_{0};
  std::vector<int64_t> row_begin_{0};
};

ceres::Solver::Options OptionsOfWindows() {
  ceres::Solver::Options options;
  options.linear_solver_type = ceres::DENSE_SCHUR;
  options.num_threads = 4;
  options.logging_type = ceres::SILENT;
  return options;
}

TEST_F(SeveralDevicesTest, ABatchHasTheBitsOfOne) {
  for (const int num_windows : {1, 2, 301}) {
    SomeWindows alone(num_windows);
    SomeWindows all(num_windows);
    BatchSummary of_one;
    BatchSummary of_all;
    std::string error;
    ASSERT_TRUE(
        SolveBatch(OptionsOfWindows(), By(""), &alone.batch, &of_one, &error))
        << error;
    std::vector<Summary> full;
    ASSERT_TRUE(SolveBatch(
        OptionsOfWindows(), By("all"), &all.batch, &of_all, &error, &full))
        << error;
    EXPECT_EQ(of_all.num_windows, num_windows);
    if (num_windows > 1) {
      EXPECT_THAT(of_all.device, HasSubstr("CUDA device 1"));
    }
    EXPECT_EQ(all.cameras, alone.cameras);
    EXPECT_EQ(all.points, alone.points);
    for (int i = 0; i < num_windows; ++i) {
      EXPECT_EQ(of_all.problems[i].final_cost, of_one.problems[i].final_cost);
      EXPECT_EQ(full[i].final_cost, of_one.problems[i].final_cost);
      EXPECT_EQ(full[i].num_residual_blocks, 160);
    }
  }
}

TEST_F(SeveralDevicesTest, AWindowSolverHasLanesOnAll) {
  WindowCapacity capacity;
  capacity.num_cameras = 5;
  capacity.num_points = 40;
  capacity.num_rows = 160;
  capacity.num_problems = 3;
  capacity.num_submissions = 4;
  std::string error;
  const auto solver =
      WindowSolver::Create(OptionsOfWindows(), By("all"), capacity, &error);
  ASSERT_NE(solver, nullptr) << error;
  EXPECT_THAT(solver->device(), HasSubstr("CUDA device 1"));
  SomeWindows alone(3);
  BatchSummary of_one;
  ASSERT_TRUE(
      SolveBatch(OptionsOfWindows(), By(""), &alone.batch, &of_one, &error));
  std::vector<std::unique_ptr<SomeWindows>> windows;
  std::vector<WindowSolver::Ticket> tickets;
  for (int i = 0; i < 4; ++i) {
    windows.push_back(std::make_unique<SomeWindows>(3));
    tickets.push_back(solver->Submit(windows.back()->batch, &error));
    ASSERT_NE(tickets.back(), 0) << error;
  }
  for (int i = 0; i < 4; ++i) {
    BatchSummary summary;
    ASSERT_TRUE(solver->Wait(tickets[i], &summary));
    EXPECT_EQ(summary.num_windows, 3);
    EXPECT_EQ(windows[i]->cameras, alone.cameras);
  }
}

}  // namespace
}  // namespace ceres_ext
