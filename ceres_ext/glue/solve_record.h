// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// What the pieces of one solve measure about themselves, for the summary.

#ifndef CERES_EXT_GLUE_SOLVE_RECORD_H_
#define CERES_EXT_GLUE_SOLVE_RECORD_H_

#include <chrono>
#include <cstdint>
#include <string>

namespace ceres_ext {

struct SolveRecord {
  std::string device;
  std::string method;
  int64_t num_pcg_iterations = 0;
  double setup_time_in_seconds = 0.0;
  double import_time_in_seconds = 0.0;
  double normal_blocks_time_in_seconds = 0.0;
  double pcg_time_in_seconds = 0.0;
  double back_substitution_time_in_seconds = 0.0;
  int64_t memory_bytes = 0;
  int64_t transfer_bytes = 0;
};

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

#endif  // CERES_EXT_GLUE_SOLVE_RECORD_H_
