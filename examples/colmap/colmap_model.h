// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A sparse model of COLMAP (colmap.github.io/format.html) as arrays.

#ifndef EXAMPLES_COLMAP_COLMAP_MODEL_H_
#define EXAMPLES_COLMAP_COLMAP_MODEL_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ceres_ext/camera_models.h"

namespace ceres_ext::colmap {

// What is known of a camera model (ceres_ext/camera_models.h) without its type.
struct CameraModelInfo {
  int id;
  const char* name;
  int num_focal_lengths;
  int num_params;
};

// nullptr if there is no such model.
const CameraModelInfo* FindCameraModel(std::string_view name);

// "SIMPLE_PINHOLE, PINHOLE, ..."
std::string CameraModelNames();

struct Camera {
  uint32_t id;
  const CameraModelInfo* model;
  int64_t width;  // pixels
  int64_t height;
  double params[kMaxCameraParams];
};

struct Image {
  uint32_t id;
  int32_t camera;  // index into Model::cameras
  // World to camera, as COLMAP keeps it: quaternion x, y, z, w; translation.
  double pose[7];
  std::string name;
  // Its 2D points are number points2d_begin to points2d_end - 1 of all.
  int64_t points2d_begin;
  int64_t points2d_end;
};

struct Point3D {
  int64_t id;
  double xyz[3];
  // Mean reprojection error in pixels, -1 where it is not known.
  double error;
  uint8_t color[3];  // red, green, blue
};

struct Model {
  std::vector<Camera> cameras;
  std::vector<Image> images;
  std::vector<Point3D> points;
  // 2D points of all images: x and y in pixels from the upper left corner of
  // the image, and the point that is seen there, an index into points or -1.
  std::vector<double> points2d;
  std::vector<int32_t> point_index;
};

}  // namespace ceres_ext::colmap

#endif  // EXAMPLES_COLMAP_COLMAP_MODEL_H_
