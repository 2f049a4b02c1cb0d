// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "problem_io/progress_line.h"

#include <cstdint>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace ceres_ext::bal {
namespace {

// A step of `total`, of which one is done each `seconds`; the lines it wrote.
std::string Lines(int64_t total, bool is_at_most, double seconds, int steps) {
  std::ostringstream stream;
  double now = 100.0;
  ProgressLine line(
      "doing", total, is_at_most, &stream, [&now] { return now; });
  for (int i = 0; i < steps; ++i) {
    now += seconds;
    line.Add(1);
  }
  return stream.str();
}

TEST(ProgressLine, SaysNothingOfShortSteps) {
  EXPECT_EQ(Lines(100, false, 0.5, 100), "");
  // A minute is left when the first line would come.
  EXPECT_EQ(Lines(70, false, 1.0, 70), "");
}

TEST(ProgressLine, SaysHowFarALongStepIs) {
  // After 10 s of 100, 90 are left, then 80, 70 and 60, which gives no line.
  EXPECT_EQ(Lines(100, false, 1.0, 100),
            "doing: 10 %, about 90 s to go\n"
            "doing: 20 %, about 80 s to go\n"
            "doing: 30 %, about 70 s to go\n");
  EXPECT_EQ(Lines(4, true, 40.0, 4),
            "doing: 25 %, at most 120 s to go\n"
            "doing: 50 %, at most 80 s to go\n");
}

TEST(ProgressLine, SaysWhatTimeItTookWhereTheEndIsUnknown) {
  EXPECT_EQ(Lines(-1, false, 30.0, 4),
            "doing: 90 s so far\ndoing: 120 s so far\n");
}

TEST(ProgressLine, CountsWhatAllThreadsDo) {
  std::ostringstream stream;
  double now = 0.0;
  ProgressLine line("doing", 1000000, false, &stream, [&now] { return now; });
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&line] {
      for (int k = 0; k < 25000; ++k) {
        line.Add(1);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  now = 20.0;
  line.Add(100000);
  EXPECT_EQ(stream.str(), "doing: 20 %, about 80 s to go\n");
}

}  // namespace
}  // namespace ceres_ext::bal
