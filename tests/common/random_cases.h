// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Tests of random cases. Each case has a generator of its own, seeded with the
// number of the case, and can be repeated alone:
//
//   CERES_EXT_NUM_CASES=1000000   in place of the few of a normal run
//   CERES_EXT_FIRST_CASE=4711     in place of 0
//
// A case that ends the process, or lasts a minute, reports its number.

#ifndef CERES_EXT_TESTS_COMMON_RANDOM_CASES_H_
#define CERES_EXT_TESTS_COMMON_RANDOM_CASES_H_

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace ceres_ext {

inline bool IsFinite(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double value) {
    return std::isfinite(value);
  });
}

class Random {
 public:
  explicit Random(int64_t seed) : generator_(seed) {}

  bool Chance(double probability) { return Uniform() < probability; }
  // In [0, n).
  int Below(int n) { return static_cast<int>(generator_() % n); }
  double Uniform(double from = 0.0, double to = 1.0) {
    return from +
           (to - from) * static_cast<double>(generator_() >> 11) / (1ull << 53);
  }
  template <typename T>
  T OneOf(std::initializer_list<T> values) {
    return values.begin()[Below(static_cast<int>(values.size()))];
  }
  std::mt19937_64& generator() { return generator_; }

 private:
  std::mt19937_64 generator_;
};

inline volatile int64_t current_case = -1;

inline void SayCaseAndEnd(int signal) {
  char text[80];
  const int size = std::snprintf(text,
                                 sizeof(text),
                                 "signal %d in CERES_EXT_FIRST_CASE=%lld\n",
                                 signal,
                                 static_cast<long long>(current_case));
  if (write(STDERR_FILENO, text, size) != size) {
    _exit(2);
  }
  ::signal(signal, SIG_DFL);
  raise(signal);
}

// fn(&random) for each case, until one fails.
template <typename Function>
void ForEachCase(int64_t num_cases, Function&& fn) {
  const auto given = [](const char* name, int64_t otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::atoll(text);
  };
  const int64_t first = given("CERES_EXT_FIRST_CASE", 0);
  const int64_t end = first + given("CERES_EXT_NUM_CASES", num_cases);
  for (const int signal : {SIGABRT, SIGALRM}) {
    ::signal(signal, &SayCaseAndEnd);
  }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  for (const int signal : {SIGSEGV, SIGFPE}) {  // else the sanitizer's
    ::signal(signal, &SayCaseAndEnd);
  }
#endif
  for (int64_t i = first; i < end && !::testing::Test::HasFailure(); ++i) {
    current_case = i;
    SCOPED_TRACE("CERES_EXT_FIRST_CASE=" + std::to_string(i));
    alarm(60);
    Random random(i);
    fn(&random);
  }
  alarm(0);
  std::printf("%lld cases\n", static_cast<long long>(end - first));
}

}  // namespace ceres_ext

#endif  // CERES_EXT_TESTS_COMMON_RANDOM_CASES_H_
