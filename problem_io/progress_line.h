// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Tells the user how far a step of a program is, while more than a minute of it
// is left:
//
//   reading: 12 %, about 95 s to go

#ifndef PROBLEM_IO_PROGRESS_LINE_H_
#define PROBLEM_IO_PROGRESS_LINE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <ostream>
#include <string>

namespace ceres_ext::bal {

class ProgressLine {
 public:
  // Seconds of a clock that only goes forward.
  using Clock = std::function<double()>;

  // what: the step, such as "reading"; total: the amount of work, in any unit,
  // not positive if unknown; is_at_most: the step may end before all of it is
  // done. Lines go to *stream, which outlives the object.
  ProgressLine(std::string what,
               int64_t total,
               bool is_at_most,
               std::ostream* stream,
               Clock clock = SteadyClock);

  // So much more is done. Any number of threads at once. Writes a line where
  // ten seconds have passed since the start or the last line and, as fast as it
  // went so far, there is more than a minute to go; where the total is not
  // known, after a minute.
  void Add(int64_t done);

  static double SteadyClock();

 private:
  const std::string what_;
  const int64_t total_;
  const bool is_at_most_;
  std::ostream* const stream_;
  const Clock clock_;
  const double start_;
  std::atomic<int64_t> done_{0};
  std::mutex mutex_;
  double last_line_;
};

}  // namespace ceres_ext::bal

#endif  // PROBLEM_IO_PROGRESS_LINE_H_
