// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#ifndef CERES_EXT_BASE_SCOPED_SECONDS_H_
#define CERES_EXT_BASE_SCOPED_SECONDS_H_

#include <chrono>

namespace ceres_ext {

// Seconds since it was made.
class Clock {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                         start_)
        .count();
  }

 private:
  std::chrono::steady_clock::time_point start_ =
      std::chrono::steady_clock::now();
};

// Adds the life time of the object, in seconds, to *sum.
class ScopedSeconds {
 public:
  explicit ScopedSeconds(double* sum) : sum_(sum) {}
  ~ScopedSeconds() { *sum_ += clock_.seconds(); }
  ScopedSeconds(const ScopedSeconds&) = delete;
  ScopedSeconds& operator=(const ScopedSeconds&) = delete;

 private:
  double* sum_;
  Clock clock_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_BASE_SCOPED_SECONDS_H_
