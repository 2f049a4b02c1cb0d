// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// A sparse model of COLMAP (colmap.github.io/format.html) as arrays.

#ifndef PROBLEM_IO_COLMAP_MODEL_H_
#define PROBLEM_IO_COLMAP_MODEL_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ceres_ext/camera_models.h"

namespace ceres_ext::colmap {

// The properties of a camera model (ceres_ext/camera_models.h) without its
// type.
struct CameraModelInfo {
  int id;
  const char* name;
  int num_focal_lengths;
  int num_params;
};

// nullptr if there is no such model.
const CameraModelInfo* FindCameraModel(std::string_view name);
const CameraModelInfo* FindCameraModel(int id);

// "SIMPLE_PINHOLE, PINHOLE, ..."
std::string CameraModelNames();

// "0 (SIMPLE_PINHOLE), 1 (PINHOLE), ..."
std::string CameraModelIds();

// cameras.txt and so on, or cameras.bin and so on.
enum ModelFormat { MODEL_TEXT, MODEL_BINARY };

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
  // Follows from the poses of frame and sensor if sensor is not -1
  // (SetPosesOfSensors).
  double pose[7];
  std::string name;
  // Its 2D points are number points2d_begin to points2d_end - 1 of all.
  int64_t points2d_begin;
  int64_t points2d_end;
  // Index into Model::frames, -1 without frames, and the sensor of its rig that
  // took it: an index into Rig::sensors, -1 for the reference sensor.
  int32_t frame = -1;
  int32_t sensor = -1;
};

struct Point3D {
  int64_t id;
  double xyz[3];
  // Mean reprojection error in pixels, -1 where it is not known.
  double error;
  uint8_t color[3];  // red, green, blue
  // Its track is elements number track_begin to track_end - 1 of all.
  int64_t track_begin;
  int64_t track_end;
};

struct TrackElement {
  int32_t image;    // index into Model::images
  int32_t point2d;  // number of the 2D point in its image
};

// Rigs and frames of COLMAP since 3.12. A rig has the pose of its reference
// sensor, which is a camera.
struct RigSensor {
  int32_t camera;  // index into Model::cameras
  bool has_pose;
  double pose[7];  // sensor_from_rig, in the layout of Image::pose
};

struct Rig {
  uint32_t id;
  // The reference sensor: an index into Model::cameras, -1 for a rig without
  // sensors.
  int32_t camera;
  std::vector<RigSensor> sensors = {};  // the others
};

struct Frame {
  uint32_t id;
  int32_t rig;                  // index into Model::rigs
  std::vector<int32_t> images;  // indices into Model::images, at most one of a
                                // sensor
  // rig_from_world of a frame without an image of the reference sensor; that
  // of others is the pose of that image (FramePose).
  double pose[7] = {0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0};
};

// Everything is in the order of the files.
struct Model {
  // Format of the files, and in which the model is written.
  ModelFormat format = MODEL_TEXT;
  std::vector<Camera> cameras;
  // Either both empty, or each image is in one frame.
  std::vector<Rig> rigs;
  std::vector<Frame> frames;
  std::vector<Image> images;
  std::vector<Point3D> points;
  // 2D points of all images: x and y in pixels from the upper left corner of
  // the image, and the point that is seen there, an index into points or -1.
  std::vector<double> points2d;
  std::vector<int32_t> point_index;
  // The inverse of point_index: tracks of all points.
  std::vector<TrackElement> track_elements;
};

// Makes the tracks that follow from point_index, in the order of images.
void SetTracks(Model* model);

// rig_from_world of the frame, 7 values that belong to the frame or an image.
double* FramePose(Model* model, int32_t frame);
const double* FramePose(const Model& model, int32_t frame);

// sensor_from_rig of an image whose sensor is not -1.
double* SensorPose(Model* model, const Image& image);

// Sets the poses of all images whose sensor is not -1: sensor_from_rig times
// rig_from_world, of quaternions of any norm but 0.
void SetPosesOfSensors(Model* model);

}  // namespace ceres_ext::colmap

#endif  // PROBLEM_IO_COLMAP_MODEL_H_
