// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The differences in source between the two Ceres that this project builds with
// (docs/which_ceres.md): 2.2.0 logs with glog and counts times in seconds, the
// next release does both with Abseil. No other file asks which of them it is.
// LOG, LOG_IF and VLOG are the same in both.

#ifndef CERES_EXT_BASE_CERES_VERSION_H_
#define CERES_EXT_BASE_CERES_VERSION_H_

#include <string>

#include "ceres/version.h"

#if CERES_VERSION_MAJOR > 2 || CERES_VERSION_MINOR > 2
#define CERES_EXT_CERES_HAS_ABSEIL
#include "absl/base/log_severity.h"
#include "absl/log/globals.h"
#include "absl/log/initialize.h"
#include "absl/log/log.h"
#include "absl/log/log_entry.h"
#include "absl/log/log_sink.h"
#include "absl/log/log_sink_registry.h"
#include "absl/time/time.h"
#else
#include "glog/logging.h"
#endif

namespace ceres_ext {

// Adds to a time that Ceres counts.
#if defined(CERES_EXT_CERES_HAS_ABSEIL)
inline void AddSeconds(double seconds, absl::Duration* time) {
  *time += absl::Seconds(seconds);
}
#else
inline void AddSeconds(double seconds, double* time) { *time += seconds; }
#endif

// The Ceres inside the Python package has a small glog of its own
// (MAX_LOG_LEVEL) and no program that starts or reads the log.
#if defined(CERES_EXT_CERES_HAS_ABSEIL)

// Call once in main. Sends the log to standard error.
inline void StartLogging(const char* /*program*/) {
  absl::SetStderrThreshold(absl::LogSeverityAtLeast::kInfo);
  absl::InitializeLog();
}

// If true, only fatal errors are logged.
inline void SetQuiet(bool is_quiet) {
  absl::SetMinLogLevel(is_quiet ? absl::LogSeverityAtLeast::kFatal
                                : absl::LogSeverityAtLeast::kInfo);
}

// Receives what is logged during its lifetime.
class LogReader : private absl::LogSink {
 public:
  LogReader() { absl::AddLogSink(this); }
  ~LogReader() override { absl::RemoveLogSink(this); }
  LogReader(const LogReader&) = delete;
  LogReader& operator=(const LogReader&) = delete;

 private:
  virtual void Read(bool is_error, const std::string& message) = 0;
  void Send(const absl::LogEntry& entry) final {
    Read(entry.log_severity() == absl::LogSeverity::kError,
         std::string(entry.text_message()));
  }
};

#elif !defined(MAX_LOG_LEVEL)

inline void StartLogging(const char* program) {
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(program);
}

inline void SetQuiet(bool is_quiet) {
  FLAGS_minloglevel = is_quiet ? google::GLOG_FATAL : google::GLOG_INFO;
}

class LogReader : private google::LogSink {
 public:
  LogReader() { google::AddLogSink(this); }
  ~LogReader() override { google::RemoveLogSink(this); }
  LogReader(const LogReader&) = delete;
  LogReader& operator=(const LogReader&) = delete;

 private:
  virtual void Read(bool is_error, const std::string& message) = 0;
  void send(google::LogSeverity severity,
            const char* /*full_filename*/,
            const char* /*base_filename*/,
            int /*line*/,
            const struct ::tm* /*time*/,
            const char* message,
            size_t length) final {
    Read(severity == google::GLOG_ERROR, std::string(message, length));
  }
};

#endif

}  // namespace ceres_ext

#endif  // CERES_EXT_BASE_CERES_VERSION_H_
