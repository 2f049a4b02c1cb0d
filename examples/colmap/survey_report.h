// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Residuals and standard deviations of surveyed points and positions, for
// readers and as JSON. Differences are adjusted minus given, in the unit of the
// coordinates.

#ifndef EXAMPLES_COLMAP_SURVEY_REPORT_H_
#define EXAMPLES_COLMAP_SURVEY_REPORT_H_

#include <string>

#include "examples/colmap/survey.h"

namespace ceres_ext::colmap {

// A line for each point, and the RMS of points and positions, control and
// check.
std::string SurveyText(const Survey& survey);
// A JSON object with all points and positions (docs/programs.md).
std::string SurveyJson(const Survey& survey);

}  // namespace ceres_ext::colmap

#endif  // EXAMPLES_COLMAP_SURVEY_REPORT_H_
