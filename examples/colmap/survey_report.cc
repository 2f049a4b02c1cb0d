// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/colmap/survey_report.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <sstream>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"

namespace ceres_ext::colmap {
namespace {

using Json = nlohmann::ordered_json;

// Items of one kind and role that have a result.
struct Group {
  std::string name;  // "control points"
  std::vector<const SurveyItem*> items;
  double rms[4] = {0.0, 0.0, 0.0, 0.0};  // X, Y, Z and all three
};

double Difference(const SurveyItem& item, int i) {
  return item.xyz[i] - item.given[i];
}

// Those that have items.
std::vector<Group> Groups(const Survey& survey) {
  std::vector<Group> groups;
  for (const auto& [kind, items] :
       {std::pair("points", &survey.points()),
        std::pair("positions", &survey.positions())}) {
    for (const bool is_check : {false, true}) {
      Group group;
      group.name = std::string(is_check ? "check " : "control ") + kind;
      for (const SurveyItem& item : *items) {
        if (item.surveyed.is_check == is_check && item.has_result()) {
          group.items.push_back(&item);
        }
      }
      if (group.items.empty()) {
        continue;
      }
      for (const SurveyItem* item : group.items) {
        for (int i = 0; i < 3; ++i) {
          group.rms[i] += Difference(*item, i) * Difference(*item, i);
        }
      }
      group.rms[3] = group.rms[0] + group.rms[1] + group.rms[2];
      for (double& value : group.rms) {
        value = std::sqrt(value / static_cast<double>(group.items.size()));
      }
      groups.push_back(std::move(group));
    }
  }
  return groups;
}

bool HasDeviations(const SurveyItem& item) {
  return std::isfinite(item.std_dev[0]);
}

Json ItemJson(const SurveyItem& item, const double* origin) {
  Json json;
  json["id"] = item.surveyed.id;
  json["role"] = item.surveyed.is_check ? "check" : "control";
  json["given"] = item.surveyed.xyz;
  json["sigma"] = item.surveyed.sigma;
  for (int i = 0; i < 3; ++i) {
    json["adjusted"].push_back(item.xyz[i] + origin[i]);
    json["difference"].push_back(Difference(item, i));
  }
  if (HasDeviations(item)) {
    json["standard_deviations"] = item.std_dev;
  }
  if (item.image < 0) {
    json["num_images"] = item.measurements.size();
    json["rms_in_pixels"] = item.rms_in_pixels;
  }
  return json;
}

}  // namespace

std::string SurveyText(const Survey& survey) {
  std::ostringstream text;
  text.precision(4);
  if (!survey.georeference_text().empty()) {
    text << survey.georeference_text() << "\n";
  }
  for (const SurveyItem& point : survey.points()) {
    text << (point.surveyed.is_check ? "Check point " : "Control point ")
         << point.surveyed.id << ", " << point.measurements.size()
         << " images: ";
    if (!point.has_result()) {
      text << "the measurements do not intersect\n";
      continue;
    }
    text << "adjusted minus given";
    for (int i = 0; i < 3; ++i) {
      text << (i == 0 ? " " : ", ") << Difference(point, i);
    }
    if (HasDeviations(point)) {
      text << "; standard deviations";
      for (int i = 0; i < 3; ++i) {
        text << (i == 0 ? " " : ", ") << point.std_dev[i];
      }
    }
    text << "; RMS " << point.rms_in_pixels << " pixels\n";
  }
  for (const Group& group : Groups(survey)) {
    text << "RMS of " << group.name << " (" << group.items.size() << "): X "
         << group.rms[0] << ", Y " << group.rms[1] << ", Z " << group.rms[2]
         << ", 3D " << group.rms[3] << "\n";
  }
  return text.str();
}

std::string SurveyJson(const Survey& survey) {
  Json json;
  json["georeference"] = survey.georeference_text();
  json["origin"] = {survey.origin()[0], survey.origin()[1], survey.origin()[2]};
  for (const auto& [name, items] :
       {std::pair("points", &survey.points()),
        std::pair("positions", &survey.positions())}) {
    json[name] = Json::array();
    for (const SurveyItem& item : *items) {
      json[name].push_back(ItemJson(item, survey.origin()));
    }
  }
  json["rms"] = Json::object();
  for (Group& group : Groups(survey)) {
    std::replace(group.name.begin(), group.name.end(), ' ', '_');
    json["rms"][group.name] = {{"count", group.items.size()},
                               {"x", group.rms[0]},
                               {"y", group.rms[1]},
                               {"z", group.rms[2]},
                               {"xyz", group.rms[3]}};
  }
  // Invalid UTF-8 (in an id) becomes U+FFFD.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ceres_ext::colmap
