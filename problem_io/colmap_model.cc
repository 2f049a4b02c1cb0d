// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "problem_io/colmap_model.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ceres_ext/camera_models.h"

namespace ceres_ext::colmap {
namespace {

const std::vector<CameraModelInfo>& CameraModels() {
  static const auto* const kModels = [] {
    auto* models = new std::vector<CameraModelInfo>;
    ForEachCameraModel([models](auto model) {
      models->push_back({model.kModelId,
                         model.kName,
                         model.kNumFocalLengths,
                         model.kNumParams});
    });
    return models;
  }();
  return *kModels;
}

}  // namespace

const CameraModelInfo* FindCameraModel(std::string_view name) {
  for (const CameraModelInfo& model : CameraModels()) {
    if (name == model.name) {
      return &model;
    }
  }
  return nullptr;
}

const CameraModelInfo* FindCameraModel(int id) {
  for (const CameraModelInfo& model : CameraModels()) {
    if (id == model.id) {
      return &model;
    }
  }
  return nullptr;
}

std::string CameraModelNames() {
  std::string names;
  for (const CameraModelInfo& model : CameraModels()) {
    names += (names.empty() ? "" : ", ") + std::string(model.name);
  }
  return names;
}

std::string CameraModelIds() {
  std::string ids;
  for (const CameraModelInfo& model : CameraModels()) {
    ids += (ids.empty() ? "" : ", ") + std::to_string(model.id) + " (" +
           model.name + ")";
  }
  return ids;
}

std::string CameraModelIdAndName(int id) {
  // Models of COLMAP 4, by id.
  static constexpr const char* kNames[] = {"SIMPLE_PINHOLE",
                                           "PINHOLE",
                                           "SIMPLE_RADIAL",
                                           "RADIAL",
                                           "OPENCV",
                                           "OPENCV_FISHEYE",
                                           "FULL_OPENCV",
                                           "FOV",
                                           "SIMPLE_RADIAL_FISHEYE",
                                           "RADIAL_FISHEYE",
                                           "THIN_PRISM_FISHEYE",
                                           "RAD_TAN_THIN_PRISM_FISHEYE",
                                           "SIMPLE_DIVISION",
                                           "DIVISION",
                                           "SIMPLE_FISHEYE",
                                           "FISHEYE",
                                           "EUCM",
                                           "EQUIRECTANGULAR"};
  constexpr int kNumNames = sizeof(kNames) / sizeof(kNames[0]);
  const std::string text = std::to_string(id);
  return id < 0 || id >= kNumNames ? text : text + " (" + kNames[id] + ")";
}

void SetTracks(Model* model) {
  // A counting sort by points of where they are seen.
  for (Point3D& point : model->points) {
    point.track_begin = 0;
    point.track_end = 0;
  }
  for (const int32_t point : model->point_index) {
    if (point >= 0) {
      ++model->points[point].track_end;
    }
  }
  int64_t num_elements = 0;
  for (Point3D& point : model->points) {
    const int64_t length = point.track_end;
    point.track_begin = num_elements;
    point.track_end = num_elements;
    num_elements += length;
  }
  model->track_elements.resize(num_elements);
  for (size_t i = 0; i < model->images.size(); ++i) {
    const Image& image = model->images[i];
    for (int64_t k = image.points2d_begin; k < image.points2d_end; ++k) {
      if (model->point_index[k] >= 0) {
        Point3D& point = model->points[model->point_index[k]];
        model->track_elements[point.track_end++] = {
            static_cast<int32_t>(i),
            static_cast<int32_t>(k - image.points2d_begin)};
      }
    }
  }
}

}  // namespace ceres_ext::colmap
