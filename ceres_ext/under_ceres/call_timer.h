// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#ifndef CERES_EXT_UNDER_CERES_CALL_TIMER_H_
#define CERES_EXT_UNDER_CERES_CALL_TIMER_H_

#include "ceres/execution_summary.h"
#include "ceres_ext/base/ceres_version.h"
#include "ceres_ext/base/scoped_seconds.h"

namespace ceres_ext {

// Adds the life time of the object to the time of *calls, which Ceres reports.
class CallTimer {
 public:
  explicit CallTimer(ceres::internal::CallStatistics* calls) : calls_(calls) {}
  ~CallTimer() { AddSeconds(clock_.seconds(), &calls_->time); }
  CallTimer(const CallTimer&) = delete;
  CallTimer& operator=(const CallTimer&) = delete;

 private:
  ceres::internal::CallStatistics* calls_;
  Clock clock_;
};

}  // namespace ceres_ext

#endif  // CERES_EXT_UNDER_CERES_CALL_TIMER_H_
