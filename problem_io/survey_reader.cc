// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "problem_io/survey_reader.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "problem_io/byte_stream.h"
#include "problem_io/number_text.h"

namespace ceres_ext::colmap {
namespace {

using bal::IsSpace;

std::string Quoted(std::string_view text) {
  return text.empty() ? "nothing"
                      : bal::Quoted(text.data(), text.data() + text.size());
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && IsSpace(text.front())) {
    text.remove_prefix(1);
  }
  while (!text.empty() && IsSpace(text.back())) {
    text.remove_suffix(1);
  }
  return text;
}

std::string_view WithoutComment(std::string_view line) {
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '#' &&
        (i == 0 || IsSpace(line[i - 1]) || line[i - 1] == ',')) {
      return line.substr(0, i);
    }
  }
  return line;
}

// The lines of a file that have fields.
class FieldLines {
 public:
  FieldLines(const std::string& path, std::string* error)
      : path_(path), error_(error) {
    std::string found;
    const std::unique_ptr<bal::ByteStream> stream = bal::OpenFile(path, &found);
    if (stream == nullptr || !bal::ReadAll(stream.get(), &bytes_)) {
      *error = path + ": expected a readable file, found " +
               (stream == nullptr ? found : stream->error());
      is_good_ = false;
      return;
    }
    rest_ = std::string_view(bytes_.data(), bytes_.size());
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    if (rest_.substr(0, kByteOrderMark.size()) == kByteOrderMark) {
      rest_.remove_prefix(kByteOrderMark.size());
    }
  }

  bool Next() {
    while (is_good_ && !rest_.empty()) {
      const size_t end = std::min(rest_.find('\n'), rest_.size());
      const std::string_view line =
          Trimmed(WithoutComment(rest_.substr(0, end)));
      rest_.remove_prefix(std::min(end + 1, rest_.size()));
      ++line_;
      if (!line.empty()) {
        Split(line);
        return true;
      }
    }
    return false;
  }

  // A name: the next field, not empty.
  bool Read(const std::string& expected, std::string* name) {
    const std::string_view field = Take();
    name->assign(field);
    return !field.empty() || Fail(expected, field);
  }
  // A finite number of at least `least`.
  bool Read(const std::string& expected, double least, double* value) {
    const std::string_view field = Take();
    return Parse(field, least, value) || Fail(expected, field);
  }
  // True if there is a field that is a number.
  bool IsNumber() const {
    double value = 0.0;
    return next_ < fields_.size() &&
           bal::ParseNumber(fields_[next_].data(),
                            fields_[next_].data() + fields_[next_].size(),
                            &value) != nullptr;
  }
  bool AtEnd() const { return next_ >= fields_.size(); }
  std::string_view Take() {
    return AtEnd() ? std::string_view() : fields_[next_++];
  }

  bool Fail(const std::string& expected, std::string_view found) {
    *error_ = path_ + ":" + std::to_string(line_) + ": expected " + expected +
              ", found " + Quoted(found);
    is_good_ = false;
    return false;
  }
  int64_t line() const { return line_; }
  bool good() const { return is_good_; }

 private:
  static bool Parse(std::string_view field, double least, double* value) {
    return !field.empty() &&
           bal::ParseNumber(field.data(), field.data() + field.size(), value) ==
               field.data() + field.size() &&
           std::isfinite(*value) && *value >= least;
  }
  void Split(std::string_view line) {
    fields_.clear();
    next_ = 0;
    const bool has_commas = line.find(',') != std::string_view::npos;
    const bool has_tabs = line.find('\t') != std::string_view::npos;
    while (true) {
      size_t end = 0;
      while (end < line.size() && !(has_commas ? line[end] == ','
                                    : has_tabs ? line[end] == '\t'
                                               : IsSpace(line[end]))) {
        ++end;
      }
      const std::string_view field = Trimmed(line.substr(0, end));
      if (!field.empty() || has_commas) {
        fields_.push_back(field);
      }
      if (end >= line.size()) {
        return;
      }
      line.remove_prefix(end + 1);
    }
  }

  const std::string path_;
  std::string* error_;
  std::vector<char> bytes_;
  std::string_view rest_;
  std::vector<std::string_view> fields_;
  size_t next_ = 0;
  int64_t line_ = 0;
  bool is_good_ = true;
};

constexpr double kAnyNumber = -1.7976931348623157e308;

bool ReadSigmas(FieldLines* lines, double* sigma) {
  const std::string expected =
      "SIGMA, 1 to 3 numbers of at least 0 in the unit of the coordinates";
  int count = 0;
  do {
    if (!lines->Read(expected, 0.0, &sigma[count])) {
      return false;
    }
    ++count;
  } while (count < 3 && lines->IsNumber());
  if (count == 1) {
    sigma[1] = sigma[2] = sigma[0];
  } else if (count == 2) {
    sigma[2] = sigma[1];
    sigma[1] = sigma[0];
  }
  return true;
}

bool ReadRole(FieldLines* lines, bool* is_check) {
  *is_check = false;
  if (!lines->AtEnd()) {
    const std::string_view role = lines->Take();
    *is_check = role == "check";
    if (!*is_check && role != "control") {
      return lines->Fail("ROLE, control or check", role);
    }
  }
  return lines->AtEnd() || lines->Fail("the end of the line", lines->Take());
}

}  // namespace

bool ReadSurveyedPoints(const std::string& path,
                        std::vector<SurveyedPoint>* points,
                        std::string* error) {
  points->clear();
  FieldLines lines(path, error);
  std::map<std::string, int64_t> line_of;
  while (lines.Next()) {
    SurveyedPoint point;
    point.line = lines.line();
    if (!lines.Read("ID, the name of a point or image", &point.id)) {
      return false;
    }
    const auto [earlier, is_new] = line_of.emplace(point.id, point.line);
    if (!is_new) {
      return lines.Fail("an ID that is not in line " +
                            std::to_string(earlier->second) + " already",
                        point.id);
    }
    for (int i = 0; i < 3; ++i) {
      if (!lines.Read(std::string(1, "XYZ"[i]) + ", a finite number",
                      kAnyNumber,
                      &point.xyz[i])) {
        return false;
      }
    }
    if (!ReadSigmas(&lines, point.sigma) ||
        !ReadRole(&lines, &point.is_check)) {
      return false;
    }
    points->push_back(std::move(point));
  }
  if (lines.good() && points->empty()) {
    *error = path + ": expected a line ID X Y Z SIGMA, found none";
  }
  return lines.good() && !points->empty();
}

bool ReadSurveyMeasurements(const std::string& path,
                            std::vector<SurveyMeasurement>* measurements,
                            std::string* error) {
  measurements->clear();
  FieldLines lines(path, error);
  std::map<std::pair<std::string, std::string>, int64_t> line_of;
  while (lines.Next()) {
    SurveyMeasurement measurement;
    measurement.line = lines.line();
    if (!lines.Read("ID, the name of a point", &measurement.point) ||
        !lines.Read("IMAGE, the name of an image", &measurement.image) ||
        !lines.Read("x, a number of pixels", kAnyNumber, &measurement.xy[0]) ||
        !lines.Read("y, a number of pixels", kAnyNumber, &measurement.xy[1])) {
      return false;
    }
    if (!lines.AtEnd()) {
      const std::string expected = "SIGMA, a number of pixels above 0";
      if (!lines.Read(expected, 0.0, &measurement.sigma)) {
        return false;
      }
      if (measurement.sigma == 0.0) {
        return lines.Fail(expected, "0");
      }
      if (!lines.AtEnd()) {
        return lines.Fail("the end of the line", lines.Take());
      }
    }
    const auto [earlier, is_new] = line_of.emplace(
        std::pair(measurement.point, measurement.image), measurement.line);
    if (!is_new) {
      return lines.Fail("a point and an image that are not in line " +
                            std::to_string(earlier->second) + " already",
                        measurement.point + " " + measurement.image);
    }
    measurements->push_back(std::move(measurement));
  }
  if (lines.good() && measurements->empty()) {
    *error = path + ": expected a line ID IMAGE x y, found none";
  }
  return lines.good() && !measurements->empty();
}

}  // namespace ceres_ext::colmap
