// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The common part of the benchmarks: the clock, statistics, lists in flags, and
// records, which are lines of JSON.
#ifndef CERES_EXT_BENCHMARKS_BENCHMARK_H_
#define CERES_EXT_BENCHMARKS_BENCHMARK_H_

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "nlohmann/json.hpp"

namespace ceres_ext {

using Json = nlohmann::ordered_json;

// Seconds of a clock that only goes forwards.
inline double Seconds() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Calls function(i) for i from 0 to n - 1, one at a time on each of the
// threads.
template <typename Function>
void ForEachOnThreads(int64_t n, int num_threads, const Function& function) {
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    for (int64_t i = next++; i < n; i = next++) {
      function(i);
    }
  };
  std::vector<std::thread> threads;
  for (int t = 1; t < num_threads; ++t) {
    threads.emplace_back(work);
  }
  work();
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// The value that `part` of the values are below; 0 if there are none.
inline double Percentile(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  return values.empty()
             ? 0.0
             : values[std::min(values.size() - 1,
                               static_cast<size_t>(part * values.size()))];
}
inline double Median(const std::vector<double>& values) {
  return Percentile(values, 0.5);
}

inline std::vector<std::string> SplitAtCommas(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream list(text);
  for (std::string part; std::getline(list, part, ',');) {
    parts.push_back(part);
  }
  return parts;
}

inline std::vector<double> Numbers(const std::string& list) {
  std::vector<double> numbers;
  for (const std::string& part : SplitAtCommas(list)) {
    numbers.push_back(std::atof(part.c_str()));
  }
  return numbers;
}

inline bool Names(const std::string& list, const std::string& name) {
  const std::vector<std::string> parts = SplitAtCommas(list);
  return std::find(parts.begin(), parts.end(), name) != parts.end();
}

// To six digits, as times are printed.
inline double Rounded(double x) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", x);
  return std::atof(text);
}

// A line of JSON; numbers that are not finite are null.
inline void PrintLine(const Json& line) {
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

}  // namespace ceres_ext

#endif  // CERES_EXT_BENCHMARKS_BENCHMARK_H_
