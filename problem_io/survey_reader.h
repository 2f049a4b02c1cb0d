// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Surveyors' input: points and camera positions with standard deviations, and
// measurements of points in images, as text.
//
//   ID X Y Z SIGMA [SIGMA [SIGMA]] [ROLE]    a point, or the name of an image
//   ID IMAGE x y [SIGMA]                     a measurement of a point
//
// Commas separate the fields of a line, or else tabs, or else spaces. With
// commas and tabs a name may have spaces inside. A "#" before a field makes the
// rest of the line a comment. Coordinates are right-handed, in any unit of
// length; x and y are pixels as in COLMAP (0, 0 is the upper left corner of the
// upper left pixel).
//
// One SIGMA is that of all three coordinates, two are that of X and Y and that
// of Z. 0 holds a coordinate fixed. ROLE is control (the default) or check.
#ifndef PROBLEM_IO_SURVEY_READER_H_
#define PROBLEM_IO_SURVEY_READER_H_

#include <cstdint>
#include <string>
#include <vector>

namespace ceres_ext::colmap {

struct SurveyedPoint {
  std::string id;  // or the name of an image
  double xyz[3];
  double sigma[3];
  bool is_check = false;
  int64_t line = 0;
};

struct SurveyMeasurement {
  std::string point;
  std::string image;
  double xy[2];        // pixels
  double sigma = 1.0;  // pixels, above 0
  int64_t line = 0;
};

// False, with "FILE:LINE: expected ..., found ..." in *error, if a line is
// malformed, an id is given twice, or there is no point.
bool ReadSurveyedPoints(const std::string& path,
                        std::vector<SurveyedPoint>* points,
                        std::string* error);

// Also false if two lines have the same point and image.
bool ReadSurveyMeasurements(const std::string& path,
                            std::vector<SurveyMeasurement>* measurements,
                            std::string* error);

}  // namespace ceres_ext::colmap

#endif  // PROBLEM_IO_SURVEY_READER_H_
