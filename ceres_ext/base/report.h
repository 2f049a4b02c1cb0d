// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Options::report: one line about each solve. Its fields: docs/options.md.

#ifndef CERES_EXT_BASE_REPORT_H_
#define CERES_EXT_BASE_REPORT_H_

#include <string>

#include "ceres_ext/summary.h"

namespace ceres_ext {

// A JSON object and a newline.
std::string ReportLine(const Summary& summary);

// Appends the line to the file `report`, or writes it to standard error where
// that is "stderr", in one write. Failures are logged as errors.
void AppendReport(const std::string& report, const Summary& summary);

}  // namespace ceres_ext

#endif  // CERES_EXT_BASE_REPORT_H_
