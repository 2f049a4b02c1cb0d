// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The common part of the tests of bundle_adjuster and bal_generate: running
// them.

#ifndef TESTS_BAL_PROGRAM_TEST_UTIL_H_
#define TESTS_BAL_PROGRAM_TEST_UTIL_H_

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/bal/bal_test_util.h"
#include "tests/bal/refusals.h"

namespace ceres_ext::bal {

struct Outcome {
  int code = -1;
  std::string out;
  std::string err;
};

// Arguments go through a shell.
inline Outcome Execute(const std::string& program,
                       const std::string& arguments) {
  const std::string out = TempPath("stdout");
  const std::string err = TempPath("stderr");
  const std::string command = "'" + program + "' " + arguments + " >'" + out +
                              "' 2>'" + err + "' </dev/null";
  const int status = std::system(command.c_str());
  Outcome outcome;
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  outcome.out = ReadBytes(out);
  outcome.err = ReadBytes(err);
  std::remove(out.c_str());
  std::remove(err.c_str());
  return outcome;
}

inline Outcome Adjust(const std::string& arguments) {
  return Execute(BUNDLE_ADJUSTER, arguments);
}

// Expects failure with this code and one line on stderr.
inline void ExpectFailure(const std::string& program,
                          const std::string& arguments,
                          int code,
                          const std::string& line) {
  SCOPED_TRACE(arguments);
  const Outcome outcome = Execute(program, arguments);
  EXPECT_EQ(outcome.code, code);
  EXPECT_EQ(outcome.err, line + "\n");
}
inline void ExpectFailure(const std::string& arguments,
                          int code,
                          const std::string& line) {
  ExpectFailure(BUNDLE_ADJUSTER, arguments, code, line);
}
// The line: the program's name and `error`.
inline void ExpectFails(const std::string& program,
                        const std::string& arguments,
                        int code,
                        const std::string& error) {
  ExpectFailure(
      program,
      arguments,
      code,
      std::filesystem::path(program).filename().string() + ": " + error);
}

// A section of refusals.txt: exit codes, arguments and errors.
inline void ExpectRefusals(const std::string& program,
                           const std::string& section,
                           const Values& values = {}) {
  for (const auto& row : Refusals(section, values)) {
    ExpectFails(program, row.at(1), std::stoi(row[0]), row.at(2));
  }
}

// A problem that solves in milliseconds. Removed at the end of the test.
class BundleAdjusterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    input_ = TempPath("input.txt");
    const Outcome outcome =
        Execute(BAL_GENERATE,
                "--num_cameras=8 --num_points=200 --num_observations=900 "
                "--output='" +
                    input_ + "'");
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  }

  ~BundleAdjusterTest() override {
    std::remove(input_.c_str());
    for (const std::string& file : files_) {
      std::remove(file.c_str());
    }
  }

  std::string File(const std::string& name) {
    files_.push_back(TempPath(name));
    return files_.back();
  }

  std::string input_;
  std::vector<std::string> files_;
};

}  // namespace ceres_ext::bal

#endif  // TESTS_BAL_PROGRAM_TEST_UTIL_H_
