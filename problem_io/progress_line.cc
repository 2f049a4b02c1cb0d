// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "problem_io/progress_line.h"

#include <chrono>
#include <cmath>
#include <utility>

namespace ceres_ext::bal {
namespace {

constexpr double kSecondsBetweenLines = 10.0;
constexpr double kSecondsWorthALine = 60.0;

}  // namespace

double ProgressLine::SteadyClock() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

ProgressLine::ProgressLine(std::string what,
                           int64_t total,
                           bool is_at_most,
                           std::ostream* stream,
                           Clock clock)
    : what_(std::move(what)),
      total_(total),
      is_at_most_(is_at_most),
      stream_(stream),
      clock_(std::move(clock)),
      start_(clock_()),
      last_line_(start_) {}

void ProgressLine::Add(int64_t done) {
  const int64_t sum = done_ += done;
  // A thread that finds another one writing has nothing to add.
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) {
    return;
  }
  const double now = clock_();
  if (now - last_line_ < kSecondsBetweenLines || sum <= 0) {
    return;
  }
  const double elapsed = now - start_;
  if (total_ <= 0) {
    if (elapsed > kSecondsWorthALine) {
      last_line_ = now;
      *stream_ << what_ << ": " << std::lround(elapsed) << " s so far"
               << std::endl;
    }
    return;
  }
  const double left =
      elapsed * static_cast<double>(total_ - sum) / static_cast<double>(sum);
  if (left > kSecondsWorthALine) {
    last_line_ = now;
    *stream_ << what_ << ": " << 100 * sum / total_ << " %, "
             << (is_at_most_ ? "at most " : "about ") << std::lround(left)
             << " s to go" << std::endl;
  }
}

}  // namespace ceres_ext::bal
