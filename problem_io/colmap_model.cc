// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "problem_io/colmap_model.h"

#include <cmath>
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

// v x p
void Cross(const double* v, const double* p, double* product) {
  product[0] = v[1] * p[2] - v[2] * p[1];
  product[1] = v[2] * p[0] - v[0] * p[2];
  product[2] = v[0] * p[1] - v[1] * p[0];
}

void Normalize(const double* q, double* normalized) {
  const double norm =
      std::sqrt(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3]);
  for (int i = 0; i < 4; ++i) {
    normalized[i] = q[i] / norm;
  }
}

// c_from_a = c_from_b b_from_a. With quaternions (v, w): (v_c w_b + w_c v_b +
// v_c x v_b, w_c w_b - v_c'v_b), and p + 2 w_c (v_c x p) + 2 v_c x (v_c x p) of
// the translation p, plus that of c_from_b.
void Compose(const double* c_from_b, const double* b_from_a, double* c_from_a) {
  double c[4];
  double b[4];
  Normalize(c_from_b, c);
  Normalize(b_from_a, b);
  double product[4];
  Cross(c, b, product);
  product[3] = c[3] * b[3];
  for (int i = 0; i < 3; ++i) {
    product[i] += c[i] * b[3] + c[3] * b[i];
    product[3] -= c[i] * b[i];
  }
  Normalize(product, c_from_a);
  const double* p = b_from_a + 4;
  double once[3];
  double twice[3];
  Cross(c, p, once);
  Cross(c, once, twice);
  for (int i = 0; i < 3; ++i) {
    c_from_a[4 + i] =
        p[i] + 2.0 * (c[3] * once[i] + twice[i]) + c_from_b[4 + i];
  }
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

const double* FramePose(const Model& model, int32_t frame) {
  for (const int32_t image : model.frames[frame].images) {
    if (model.images[image].sensor < 0) {
      return model.images[image].pose;
    }
  }
  return model.frames[frame].pose;
}

double* FramePose(Model* model, int32_t frame) {
  return const_cast<double*>(FramePose(*model, frame));
}

double* SensorPose(Model* model, const Image& image) {
  return model->rigs[model->frames[image.frame].rig].sensors[image.sensor].pose;
}

void SetPosesOfSensors(Model* model) {
  for (Image& image : model->images) {
    if (image.sensor >= 0) {
      Compose(
          SensorPose(model, image), FramePose(*model, image.frame), image.pose);
    }
  }
}

}  // namespace ceres_ext::colmap
