// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Options::report: what a line holds, after which solves there is one, and what
// becomes of lines of several threads and processes, and of files that can't be
// written.

#include "ceres_ext/base/report.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ceres_ext/solve.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"

namespace ceres_ext {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

class Report : public ::testing::Test {
 protected:
  Report()
      : folder_(std::filesystem::temp_directory_path() /
                ("ceres_ext_report_" + std::to_string(getpid()))),
        file_((folder_ / "report.jsonl").string()) {
    std::filesystem::create_directories(folder_);
  }
  ~Report() override { std::filesystem::remove_all(folder_); }

  std::vector<std::string> Lines() const {
    std::ifstream stream(file_);
    std::vector<std::string> lines;
    for (std::string line; std::getline(stream, line);) {
      lines.push_back(line);
    }
    return lines;
  }

  template <typename Modify>
  static Summary SolveOnce(const Options& ext_options, Modify&& modify) {
    BalTestProblem bal = MakeBalTestProblem(8, 60, 4, 9);
    auto problem = BuildProblem(&bal, Derivatives::kAnalytic);
    ceres::Solver::Options options = TestOptions(&bal);
    modify(&bal, &options);
    Summary summary;
    Solve(options, ext_options, problem.get(), &summary);
    return summary;
  }

  Options WithReport() const {
    Options options;
    options.device = DEVICE_HOST;
    options.report = file_;
    return options;
  }

  const std::filesystem::path folder_;
  const std::string file_;
};

const auto kUnchanged = [](auto*, auto*) {};

TEST_F(Report, LineHasAllFields) {
  Summary summary;
  summary.path = PATH_FULL;
  summary.path_reason = "a \"reason\"\\";
  summary.device = "host, 2 threads";
  summary.method = "Schur";
  summary.num_host_losses = 3;
  summary.host_loss_type = "MyLoss<1>";
  summary.num_host_manifolds = 2;
  summary.host_manifold_type = "Mine";
  summary.degenerate_eliminated_blocks.count = 7;
  summary.degenerate_other_blocks.count = 1;
  summary.num_runaway_trials = 9;
  summary.no_minimum = "None.";
  summary.linear_solver_type_given = ceres::SPARSE_SCHUR;
  summary.linear_solver_type_used = ceres::ITERATIVE_SCHUR;
  summary.preconditioner_type_used = ceres::SCHUR_JACOBI;
  summary.num_linear_solves = 2;
  summary.num_residual_blocks = 3;
  summary.num_residuals = 6;
  summary.num_parameter_blocks = 5;
  summary.linear_solver_ordering_used = {4, 1};
  summary.num_successful_steps = 2;
  summary.num_unsuccessful_steps = 0;
  summary.num_pcg_iterations = 12;
  summary.num_exact_steps = 4;
  summary.num_solves_at_pcg_limit = 3;
  summary.total_time_in_seconds = 0.25;
  summary.linear_solver_time_in_seconds = 0.125;
  summary.initial_cost = 0.1;
  summary.final_cost = std::numeric_limits<double>::quiet_NaN();
  summary.termination_type = ceres::NO_CONVERGENCE;
  summary.message = "two\nlines\t";
  const std::string line = ReportLine(summary);
  // POSIX's expressions have no \d.
  EXPECT_THAT(
      line.substr(0, line.find(",\"process\"")),
      MatchesRegex("[{]\"time\":\"20[0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]"
                   ":[0-9][0-9]:[0-9][0-9][.][0-9][0-9][0-9]Z\""));
  EXPECT_EQ(line.substr(line.find(",\"process\"")),
            ",\"process\":" + std::to_string(getpid()) +
                ",\"path\":\"FULL\",\"reason\":\"a \\\"reason\\\"\\\\\","
                "\"device\":\"host, 2 threads\",\"method\":\"Schur\","
                "\"host_losses\":3,\"host_loss_type\":\"MyLoss<1>\","
                "\"host_manifolds\":2,\"host_manifold_type\":\"Mine\","
                "\"degenerate_eliminated_blocks\":7,"
                "\"degenerate_other_blocks\":1,\"runaway_trials\":9,"
                "\"no_minimum\":\"None.\","
                "\"linear_solver_given\":\"SPARSE_SCHUR\","
                "\"linear_solver\":\"ITERATIVE_SCHUR\","
                "\"preconditioner\":\"SCHUR_JACOBI\",\"residual_blocks\":3,"
                "\"residuals\":6,\"parameter_blocks\":5,"
                "\"eliminated_blocks\":4,\"successful_steps\":2,"
                "\"unsuccessful_steps\":0,\"pcg_iterations\":12,"
                "\"exact_steps\":4,\"solves_at_pcg_limit\":3,"
                "\"seconds\":0.25,\"linear_solver_seconds\":0.125,"
                "\"initial_cost\":0.1,\"final_cost\":null,"
                "\"termination\":\"NO_CONVERGENCE\","
                "\"message\":\"two\\u000alines\\u0009\"}\n");
}

TEST_F(Report, OfASolveThatAnExceptionEnds) {
  class Throws : public ceres::IterationCallback {
   public:
    ceres::CallbackReturnType operator()(
        const ceres::IterationSummary& /*summary*/) override {
      throw std::runtime_error("that's enough");
    }
  } callback;
  SolveOnce(WithReport(), [&](auto*, ceres::Solver::Options* options) {
    options->callbacks.push_back(&callback);
  });
  ASSERT_EQ(Lines().size(), 1u);
  EXPECT_THAT(Lines()[0],
              AllOf(HasSubstr("\"path\":\"FULL\""),
                    HasSubstr("\"termination\":\"FAILURE\""),
                    HasSubstr("ended the solve: that's enough")));
}

// Stock Ceres counts by itself.
TEST_F(Report, IterationsOfStockCeres) {
  Summary summary;
  summary.linear_solver_type_used = ceres::CGNR;
  summary.num_linear_solves = 2;
  summary.iterations.resize(3);
  summary.iterations[1].linear_solver_iterations = 7;
  summary.iterations[2].linear_solver_iterations = 5;
  EXPECT_THAT(ReportLine(summary), HasSubstr("\"pcg_iterations\":12,"));
  summary.linear_solver_type_used = ceres::DENSE_SCHUR;
  EXPECT_THAT(ReportLine(summary), HasSubstr("\"pcg_iterations\":0,"));
}

// The report of a solve that did not begin.
TEST_F(Report, WhatCeresDidNotComeToIsNull) {
  const std::string line = ReportLine(Summary());
  for (const char* field : {"linear_solver",
                            "preconditioner",
                            "residual_blocks",
                            "successful_steps",
                            "seconds",
                            "initial_cost"}) {
    EXPECT_THAT(line, HasSubstr(std::string("\"") + field + "\":null"));
  }
  EXPECT_THAT(line, HasSubstr("\"eliminated_blocks\":0"));
  EXPECT_THAT(line, HasSubstr("\"pcg_iterations\":0"));
}

TEST_F(Report, OfASolve) {
  const Summary summary = SolveOnce(WithReport(), kUnchanged);
  ASSERT_EQ(Lines().size(), 1u);
  const std::string line = Lines()[0];
  char cost[64];
  std::snprintf(cost, sizeof(cost), "\"final_cost\":%.6g", summary.final_cost);
  EXPECT_THAT(line,
              AllOf(HasSubstr("\"path\":\"FULL\""),
                    HasSubstr("\"device\":\"host, 1 thread\""),
                    HasSubstr("\"residual_blocks\":240"),
                    HasSubstr("\"residuals\":480"),
                    HasSubstr("\"parameter_blocks\":68"),
                    HasSubstr("\"eliminated_blocks\":60")));
  EXPECT_THAT(line,
              HasSubstr("\"pcg_iterations\":" +
                        std::to_string(summary.num_pcg_iterations)));
  EXPECT_THAT(line, HasSubstr(std::string(cost).substr(0, 18)));
  EXPECT_THAT(line, Not(HasSubstr("\"seconds\":null")));
}

// Declined, refused, failed, and those that end before they begin.
TEST_F(Report, OfEverySolve) {
  SolveOnce(WithReport(), [](auto*, ceres::Solver::Options* options) {
    options->linear_solver_type = ceres::DENSE_QR;
  });
  Options ext_options = WithReport();
  ext_options.enabled = false;
  SolveOnce(ext_options, kUnchanged);
  SolveOnce(WithReport(), [](auto*, ceres::Solver::Options* options) {
    options->minimizer_type = ceres::LINE_SEARCH;
  });
  SolveOnce(WithReport(), [](BalTestProblem* bal, auto*) {
    bal->point(3)[1] = std::numeric_limits<double>::infinity();
  });
  ext_options = WithReport();
  ext_options.fallback = FALLBACK_REFUSE;
  SolveOnce(ext_options, [](auto*, ceres::Solver::Options* options) {
    options->linear_solver_type = ceres::DENSE_QR;
  });
  SolveOnce(WithReport(), [](auto*, ceres::Solver::Options* options) {
    options->max_num_iterations = -1;
  });
  const std::vector<std::string> lines = Lines();
  ASSERT_EQ(lines.size(), 6u);
  const char* const expected[6][3] = {
      {"\"path\":\"CERES\"",
       "linear_solver_type DENSE_QR is not supported",
       "CONVERGENCE"},
      {"\"path\":\"CERES\"", "switched off", "CONVERGENCE"},
      {"\"path\":\"CERES\"", "LINE_SEARCH", "\"linear_solver\":null"},
      {"\"path\":\"CERES\"", "before it asked", "\"FAILURE\""},
      {"\"path\":\"CERES\"", "refuses the problem", "\"FAILURE\""},
      {"\"path\":\"CERES\"", "max_num_iterations", "\"FAILURE\""}};
  for (size_t i = 0; i < lines.size(); ++i) {
    for (const char* part : expected[i]) {
      EXPECT_THAT(lines[i], HasSubstr(part));
    }
  }
}

TEST_F(Report, OfSeveralThreadsAndProcesses) {
  constexpr int kProcesses = 3;
  constexpr int kThreads = 3;
  constexpr int kLines = 100;
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      std::vector<std::thread> threads;
      for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([this, t] {
          Summary summary;
          summary.message = std::string(3000, static_cast<char>('a' + t));
          for (int i = 0; i < kLines; ++i) {
            AppendReport(file_, summary);
          }
        });
      }
      for (std::thread& thread : threads) {
        thread.join();
      }
      _exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  const std::vector<std::string> lines = Lines();
  ASSERT_EQ(lines.size(), size_t{kProcesses * kThreads * kLines});
  for (const std::string& line : lines) {
    ASSERT_THAT(line, StartsWith("{\"time\":"));
    const std::string letters(3000, line[line.size() - 3]);
    ASSERT_THAT(line, EndsWith("\"message\":\"" + letters + "\"}"));
  }
}

TEST_F(Report, OnStandardError) {
  Options ext_options = WithReport();
  ext_options.report = "stderr";
  ::testing::internal::CaptureStderr();
  SolveOnce(ext_options, kUnchanged);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(StartsWith("{\"time\":"), EndsWith("}\n")));
  EXPECT_FALSE(std::filesystem::exists("stderr"));
}

// One logged error names the file, and the solve is not affected.
TEST_F(Report, ThatCantBeWritten) {
  const Summary expected = SolveOnce(WithReport(), kUnchanged);
  const std::string pipe = (folder_ / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  // No such folder, a folder, a pipe without a reader, a full device.
  for (const std::string& place : {(folder_ / "none" / "file").string(),
                                   folder_.string(),
                                   pipe,
                                   std::string("/dev/full")}) {
    Options ext_options = WithReport();
    ext_options.report = place;
    ::testing::internal::CaptureStderr();
    const Summary summary = SolveOnce(ext_options, kUnchanged);
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(log, HasSubstr("can't write its report to '" + place + "'"));
    EXPECT_EQ(log.find("report to"), log.rfind("report to"));
    EXPECT_EQ(summary.final_cost, expected.final_cost);
    EXPECT_EQ(summary.path, PATH_FULL);
  }
}

}  // namespace
}  // namespace ceres_ext
