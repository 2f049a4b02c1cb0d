// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#ifndef TESTS_BAL_CHILD_TEST_UTIL_H_
#define TESTS_BAL_CHILD_TEST_UTIL_H_

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/bal/bal_test_util.h"

namespace ceres_ext::bal {

// A program that runs beside the test.
class Child {
 public:
  Child(const std::string& folder,
        const std::string& program,
        const std::vector<std::string>& arguments)
      : out_(folder + "/stdout"), err_(folder + "/stderr") {
    // From an earlier child.
    std::remove(out_.c_str());
    std::remove(err_.c_str());
    pid_ = fork();
    if (pid_ == 0) {
      // A test in the background may have been started with these ignored.
      for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
        signal(number, SIG_DFL);
      }
      std::vector<char*> argv = {const_cast<char*>(program.c_str())};
      for (const std::string& argument : arguments) {
        argv.push_back(const_cast<char*>(argument.c_str()));
      }
      argv.push_back(nullptr);
      constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC;
      dup2(open(out_.c_str(), kFlags, 0600), STDOUT_FILENO);
      dup2(open(err_.c_str(), kFlags, 0600), STDERR_FILENO);
      execv(program.c_str(), argv.data());
      _exit(127);
    }
  }

  ~Child() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      Wait();
    }
  }

  void Send(int number) { EXPECT_EQ(kill(pid_, number), 0); }

  // The status of waitpid.
  int Wait() {
    int status = -1;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

  template <typename Predicate>
  static bool WaitUntil(Predicate&& predicate) {
    const auto start = std::chrono::steady_clock::now();
    while (!predicate()) {
      if (std::chrono::steady_clock::now() - start > std::chrono::minutes(2)) {
        return false;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

  void WaitForOutput(const std::string& text) {
    EXPECT_TRUE(WaitUntil([&] {
      return ReadBytes(out_).find(text) != std::string::npos;
    })) << text;
  }

  void WaitForError(const std::string& text) {
    EXPECT_TRUE(WaitUntil([&] {
      return ReadBytes(err_).find(text) != std::string::npos;
    })) << text;
  }

  std::string out() const { return ReadBytes(out_); }
  std::string err() const { return ReadBytes(err_); }

 private:
  const std::string out_;
  const std::string err_;
  pid_t pid_;
};

inline bool IsKilledBy(int number, int status) {
  return WIFSIGNALED(status) && WTERMSIG(status) == number;
}

inline bool IsExit(int code, int status) {
  return WIFEXITED(status) && WEXITSTATUS(status) == code;
}

}  // namespace ceres_ext::bal

#endif  // TESTS_BAL_CHILD_TEST_UTIL_H_
