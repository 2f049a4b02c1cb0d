// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/colmap/colmap_model.h"

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

std::string CameraModelNames() {
  std::string names;
  for (const CameraModelInfo& model : CameraModels()) {
    names += (names.empty() ? "" : ", ") + std::string(model.name);
  }
  return names;
}

}  // namespace ceres_ext::colmap
