// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// CERES_SOLVER_PLUGIN: a good value gives every solve a plugin of its own;
// whatever is wrong is logged with variable, value and reason, and the solve is
// stock.

#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "ceres/solver_plugin.h"
#include "ceres_ext/base/ceres_version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/patches/patch_test_problem.h"
#include "tests/patches/wrapping_plugin.h"

namespace ceres_ext {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kVariable[] = "CERES_SOLVER_PLUGIN";

std::string TestLibrary(const std::string& name) {
  return std::string(CERES_EXT_PATCH_TEST_DIR) + "/lib" + name + ".so";
}

// Collects what is logged as an error.
class ErrorLog final : public LogReader {
 public:
  std::vector<std::string> errors;

 private:
  void Read(bool is_error, const std::string& message) override {
    if (is_error) {
      errors.push_back(message);
    }
  }
};

class SolverPluginEnvironmentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    unsetenv(kVariable);
    stock_ = SolveOnce();
  }
  void TearDown() override { unsetenv(kVariable); }

  static SolveResult SolveOnce() {
    PatchTestProblem problem;
    return Solve(problem, problem.Options(ceres::DENSE_SCHUR));
  }

  // Solves with the variable set and expects stock's result, with one error
  // that names the reason.
  void ExpectRefused(const std::string& value, const std::string& reason) {
    SCOPED_TRACE(value);
    setenv(kVariable, value.c_str(), 1);
    ErrorLog log;
    const SolveResult result = SolveOnce();
    ExpectSameBits(stock_, result);
    EXPECT_EQ(result.summary.message, stock_.summary.message);
    EXPECT_THAT(log.errors,
                ElementsAre(AllOf(
                    HasSubstr(std::string(kVariable) + "=\"" + value + "\""),
                    HasSubstr(reason),
                    HasSubstr("Using stock Ceres"))));
  }

  void ExpectPlugin(const std::string& value, const std::string& message) {
    SCOPED_TRACE(value);
    setenv(kVariable, value.c_str(), 1);
    ErrorLog log;
    const SolveResult result = SolveOnce();
    ExpectSameBits(stock_, result);
    EXPECT_THAT(result.summary.message, EndsWith(message));
    EXPECT_THAT(log.errors, IsEmpty());
  }

  SolveResult stock_;
};

TEST_F(SolverPluginEnvironmentTest, GoodPath) {
  const std::string path = TestLibrary("patch_test_plugin");
  ExpectPlugin(path, "[plugin  1]");
  ExpectPlugin(path + ":", "[plugin  1]");
  ExpectPlugin(path + ":threads=2,a:b/c", "[plugin threads=2,a:b/c 1]");
  // Not cached with the library: another value, and none at all.
  ExpectPlugin(path + ":again", "[plugin again 1]");
  unsetenv(kVariable);
  EXPECT_EQ(SolveOnce().summary.message, stock_.summary.message);
}

TEST_F(SolverPluginEnvironmentTest, GoodName) {
  const char* search_path = getenv("LD_LIBRARY_PATH");
  if (search_path == nullptr ||
      std::string(search_path).find(CERES_EXT_PATCH_TEST_DIR) ==
          std::string::npos) {
    GTEST_SKIP() << "skipped: LD_LIBRARY_PATH lacks " CERES_EXT_PATCH_TEST_DIR
                 << ", run through ctest";
  }
  ExpectPlugin("patch_test_plugin", "[plugin  1]");
  ExpectPlugin("patch_test_plugin:s", "[plugin s 1]");
}

TEST_F(SolverPluginEnvironmentTest, BadNames) {
  for (const char* value : {"",
                            ":",
                            ":settings",
                            "a b",
                            "a.b",
                            "libx.so",
                            "..",
                            "patch_test_plugin ",
                            "a\nb",
                            "\xc3\xa4"}) {
    ExpectRefused(value, "expected <library>[:<settings>]");
  }
}

TEST_F(SolverPluginEnvironmentTest, MissingFile) {
  ExpectRefused(TestLibrary("no_such_library"), "No such file or directory");
  ExpectRefused("no_such_library:s", "libno_such_library.so");
  // A folder, and a file that is not a library.
  ExpectRefused(std::string(CERES_EXT_PATCH_TEST_DIR) + "/", "cannot");
  ExpectRefused("/proc/self/cmdline", "/proc/self/cmdline");
}

TEST_F(SolverPluginEnvironmentTest, MissingEntryPoint) {
  ExpectRefused(TestLibrary("patch_test_no_entry"), "CeresCreateSolverPlugin");
}

TEST_F(SolverPluginEnvironmentTest, NotLinkedToThisCeres) {
  ExpectRefused(TestLibrary("patch_test_no_ceres"), "not linked to the Ceres");
}

TEST_F(SolverPluginEnvironmentTest, NullPlugin) {
  const std::string path = TestLibrary("patch_test_plugin");
  ExpectRefused(path + ":null", "asked for null");
  ExpectRefused(path + ":silent", "gave no reason");
  ExpectRefused(path + ":long", "xxxxxxxx");
  ExpectPlugin(path + ":good", "[plugin good 1]");
}

TEST_F(SolverPluginEnvironmentTest, HandOverGoesFirst) {
  setenv(kVariable, (TestLibrary("patch_test_plugin") + ":env").c_str(), 1);
  PluginRecord record;
  WrappingPlugin plugin(&record);
  ceres::internal::ScopedSolverPlugin scoped_plugin(&plugin);
  const SolveResult first = SolveOnce();
  EXPECT_EQ(record.num_finishes, 1);
  EXPECT_THAT(first.summary.message, Not(HasSubstr("[plugin")));
  const SolveResult second = SolveOnce();
  EXPECT_EQ(record.num_finishes, 1);
  EXPECT_THAT(second.summary.message, EndsWith("[plugin env 1]"));
}

TEST_F(SolverPluginEnvironmentTest, SolvesAtOnceHaveOneEach) {
  setenv(kVariable, (TestLibrary("patch_test_plugin") + ":many").c_str(), 1);
  SolveResult results[4];
  std::vector<std::thread> threads;
  for (SolveResult& result : results) {
    threads.emplace_back([&result] { result = SolveOnce(); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const SolveResult& result : results) {
    ExpectSameBits(stock_, result);
    EXPECT_THAT(result.summary.message, HasSubstr("[plugin many"));
  }
  ExpectPlugin(TestLibrary("patch_test_plugin") + ":last", "[plugin last 1]");
}

TEST_F(SolverPluginEnvironmentTest, InvalidOptionsCreateNone) {
  setenv(kVariable, TestLibrary("no_such_library").c_str(), 1);
  PatchTestProblem problem;
  ceres::Solver::Options options = problem.Options(ceres::DENSE_SCHUR);
  options.max_num_iterations = -1;
  ErrorLog log;
  EXPECT_EQ(Solve(problem, options).summary.termination_type, ceres::FAILURE);
  EXPECT_THAT(log.errors, ElementsAre(HasSubstr("Terminating")));
}

}  // namespace
}  // namespace ceres_ext
