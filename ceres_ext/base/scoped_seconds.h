// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#ifndef CERES_EXT_BASE_SCOPED_SECONDS_H_
#define CERES_EXT_BASE_SCOPED_SECONDS_H_

#include <chrono>

namespace ceres_ext {

// Adds the life time of the object, in seconds, to *sum.
class ScopedSeconds {
 public:
  explicit ScopedSeconds(double* sum) : sum_(sum) {}
  ~ScopedSeconds() {
    *sum_ +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start_)
            .count();
  }
  ScopedSeconds(const ScopedSeconds&) = delete;
  ScopedSeconds& operator=(const ScopedSeconds&) = delete;

 private:
  double* sum_;
  std::chrono::steady_clock::time_point start_ =
      std::chrono::steady_clock::now();
};

}  // namespace ceres_ext

#endif  // CERES_EXT_BASE_SCOPED_SECONDS_H_
