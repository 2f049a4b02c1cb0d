// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/colmap/colmap_origin.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "ceres_ext/photogrammetry.h"
#include "examples/colmap/colmap_problem.h"

namespace ceres_ext::colmap {
namespace {

// For a scene of extent L at distance D: if the rotations of the start are off
// by a = 0.01 radians, the first step leaves out D a^2 / 2. From D = 20 L on
// that is more than 1/1000 of the extent, or a pixel at a focal length of 1000.
constexpr double kMaxDistance = 20.0;  // times the extent

// Changes the order of the values.
double Median(std::vector<double>* values) {
  const auto middle =
      values->begin() + static_cast<std::ptrdiff_t>(values->size() / 2);
  std::nth_element(values->begin(), middle, values->end());
  return *middle;
}

}  // namespace

bool IsFar(const Model& model, double* origin) {
  std::vector<double> places = CameraCenters(model);
  for (const Point3D& point : model.points) {
    places.insert(places.end(), point.xyz, point.xyz + 3);
  }
  const size_t num_places = places.size() / 3;
  if (num_places == 0) {
    return false;
  }
  double center[3];
  std::vector<double> values(num_places);
  for (int k = 0; k < 3; ++k) {
    for (size_t i = 0; i < num_places; ++i) {
      values[i] = places[3 * i + k];
    }
    center[k] = Median(&values);
  }
  for (size_t i = 0; i < num_places; ++i) {
    values[i] = std::hypot(places[3 * i] - center[0],
                           places[3 * i + 1] - center[1],
                           places[3 * i + 2] - center[2]);
  }
  if (!(std::hypot(center[0], center[1], center[2]) >
        kMaxDistance * Median(&values))) {
    return false;
  }
  std::copy_n(center, 3, origin);
  return true;
}

MovedModel::MovedModel(const double* origin, Model* model) {
  std::copy_n(origin, 3, origin_);
  for (Point3D& point : model->points) {
    points_.insert(points_.end(), point.xyz, point.xyz + 3);
    for (int k = 0; k < 3; ++k) {
      point.xyz[k] -= origin[k];
    }
  }
  const auto move_pose = [&](double* pose) {
    translations_.insert(translations_.end(), pose + 4, pose + 7);
    MoveOrigin<EigenQuaternion>(origin, pose);
  };
  for (Image& image : model->images) {
    move_pose(image.pose);
  }
  for (Frame& frame : model->frames) {
    move_pose(frame.pose);
  }
}

void MovedModel::MoveBack(const ceres::Problem& problem, Model* model) const {
  MoveBack(
      [&problem](const double* block) {
        return problem.HasParameterBlock(block) &&
               !problem.IsParameterBlockConstant(block);
      },
      model);
}

void MovedModel::MoveBack(const std::function<bool(const double*)>& varies,
                          Model* model) const {
  for (size_t i = 0; i < model->points.size(); ++i) {
    double* const point = model->points[i].xyz;
    if (!varies(point)) {
      std::copy_n(&points_[3 * i], 3, point);
      continue;
    }
    for (int k = 0; k < 3; ++k) {
      point[k] += origin_[k];
    }
  }
  const double back[3] = {-origin_[0], -origin_[1], -origin_[2]};
  const double* before = translations_.data();
  const auto move_back = [&](double* pose, bool pose_varies) {
    if (pose_varies) {
      MoveOrigin<EigenQuaternion>(back, pose);
    } else {
      std::copy_n(before, 3, pose + 4);
    }
    before += 3;
  };
  // A pose is one block, or two.
  const auto is_varying = [&](const double* pose) {
    return varies(pose) || varies(pose + 4);
  };
  for (Image& image : model->images) {
    move_back(
        image.pose,
        is_varying(image.pose) ||
            (image.sensor >= 0 && (is_varying(FramePose(*model, image.frame)) ||
                                   varies(SensorPose(model, image)))));
  }
  for (Frame& frame : model->frames) {
    move_back(frame.pose, is_varying(frame.pose));
  }
}

}  // namespace ceres_ext::colmap
