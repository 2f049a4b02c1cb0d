// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "problem_io/colmap_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <new>
#include <string>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "problem_io/bal_reader.h"
#include "problem_io/field_readers.h"

namespace ceres_ext::colmap {
namespace {

constexpr int64_t kMaxCount = std::numeric_limits<int32_t>::max();

// Ids of 32 bits; the largest one stands for "none" in COLMAP.
constexpr uint32_t kMaxId = std::numeric_limits<uint32_t>::max() - 1;

template <typename Id>
using IdToIndex = std::unordered_map<Id, int32_t>;

std::string WithArticle(const std::string& name) {
  return (name[0] == 'I' ? "an " : "a ") + name;
}

// Gives the next index to an id that has just been read.
template <typename FieldReader, typename Id>
bool AddId(const char* name,
           Id id,
           FieldReader* reader,
           IdToIndex<Id>* index_of_id) {
  const int64_t index = index_of_id->size();
  if (!index_of_id->emplace(id, static_cast<int32_t>(index)).second) {
    return reader->Fail(WithArticle(name) + " of its own",
                        std::to_string(id) + " again");
  }
  return index < kMaxCount ||
         reader->Fail(name + std::string(" at most 2147483647 times"), "more");
}

// Reads the id of something that another file has to hold. `expected` is the
// name of the id, a comma and more.
template <typename FieldReader, typename Id>
bool ReadReference(const char* expected,
                   const char* file,
                   const IdToIndex<uint32_t>& index_of_id,
                   FieldReader* reader,
                   Id* id,
                   int32_t* index) {
  if (!reader->Read(expected, id)) {
    return false;
  }
  const int64_t wide = *id;
  const auto found = wide >= 0 && wide <= kMaxId
                         ? index_of_id.find(static_cast<uint32_t>(wide))
                         : index_of_id.end();
  if (found == index_of_id.end()) {
    const std::string name(expected, std::strcspn(expected, ","));
    return reader->Fail(
        WithArticle(name) + " of " + file + FieldReader::kSuffix,
        std::to_string(*id));
  }
  *index = found->second;
  return true;
}

// Quaternion w, x, y, z; translation.
template <typename FieldReader>
bool ReadPose(FieldReader* reader, double* pose) {
  double norm2 = 0.0;
  for (const int i : {3, 0, 1, 2}) {
    if (!reader->Read("QW QX QY QZ TX TY TZ, seven finite numbers", &pose[i])) {
      return false;
    }
    norm2 += pose[i] * pose[i];
  }
  if (!(norm2 > 0.0 && std::isfinite(norm2))) {
    return reader->Fail("QW QX QY QZ with a norm, about 1",
                        "one of 0 or infinity");
  }
  for (int i = 4; i < 7; ++i) {
    if (!reader->Read("QW QX QY QZ TX TY TZ, seven finite numbers", &pose[i])) {
      return false;
    }
  }
  return true;
}

template <typename FieldReader>
bool ReadSensor(const IdToIndex<uint32_t>& camera_of_id,
                FieldReader* reader,
                int32_t* camera) {
  uint32_t id = 0;
  return reader->ReadSensorType() && ReadReference("SENSOR_ID, an integer",
                                                   "cameras",
                                                   camera_of_id,
                                                   reader,
                                                   &id,
                                                   camera);
}

template <typename FieldReader>
class ModelReader {
 public:
  ModelReader(const std::string& folder, Model* model, std::string* error)
      : folder_(folder), model_(model), error_(error) {}

  bool Run() {
    const bool has_rigs = Exists("rigs") || Exists("frames");
    return ReadCameras() && (!has_rigs || ReadRigs()) && ReadImages() &&
           (!has_rigs || ReadFrames()) && ReadPoints() && CheckTracks();
  }

 private:
  std::string Path(const std::string& file) const {
    return folder_ + "/" + file + FieldReader::kSuffix;
  }

  bool Exists(const std::string& file) const {
    return access(Path(file).c_str(), F_OK) == 0;
  }

  bool ReadCameras() {
    FieldReader reader(Path("cameras"), error_);
    while (reader.NextRecord("cameras")) {
      Camera camera = {};
      if (!reader.Read("CAMERA_ID, an integer from 0 to 4294967294",
                       &camera.id,
                       0u,
                       kMaxId) ||
          !AddId("CAMERA_ID", camera.id, &reader, &camera_of_id_) ||
          !reader.ReadCameraModel(&camera.model) ||
          !reader.template Read<int64_t>(
              "WIDTH, an integer from 1 on", &camera.width, 1) ||
          !reader.template Read<int64_t>(
              "HEIGHT, an integer from 1 on", &camera.height, 1)) {
        return false;
      }
      using Limits = std::numeric_limits<double>;
      const bool is_size = camera.model->num_focal_lengths == 0;
      const std::string params =
          std::to_string(camera.model->num_params) + " finite PARAMS" +
          (is_size ? " above 0" : "") + " for " + camera.model->name;
      for (int i = 0; i < camera.model->num_params; ++i) {
        if (!reader.template Read<double>(
                params,
                &camera.params[i],
                is_size ? Limits::min() : Limits::lowest())) {
          return false;
        }
      }
      if (!reader.EndRecord(params)) {
        return false;
      }
      model_->cameras.push_back(camera);
    }
    return reader.good();
  }

  bool ReadRigs() {
    FieldReader reader(Path("rigs"), error_);
    while (reader.NextRecord("rigs")) {
      Rig rig = {};
      uint32_t num_sensors = 0;
      rig.camera = -1;
      if (!reader.Read(
              "RIG_ID, an integer from 0 to 4294967294", &rig.id, 0u, kMaxId) ||
          !AddId("RIG_ID", rig.id, &reader, &rig_of_id_) ||
          !reader.Read("NUM_SENSORS, an integer", &num_sensors) ||
          (num_sensors > 0 &&
           !ReadSensor(camera_of_id_, &reader, &rig.camera))) {
        return false;
      }
      for (uint32_t i = 1; i < num_sensors; ++i) {
        if (!ReadRigSensor(&reader, &rig)) {
          return false;
        }
      }
      if (!reader.EndRecord("no more fields of this rig")) {
        return false;
      }
      model_->rigs.push_back(std::move(rig));
    }
    return reader.good();
  }

  // The next sensor behind the reference sensor.
  bool ReadRigSensor(FieldReader* reader, Rig* rig) {
    RigSensor sensor = {};
    if (!ReadSensor(camera_of_id_, reader, &sensor.camera)) {
      return false;
    }
    int32_t same = -1;
    if (FindSensor(*rig, sensor.camera, &same)) {
      return reader->Fail(
          "each SENSOR_ID of a rig once",
          std::to_string(model_->cameras[sensor.camera].id) + " again");
    }
    uint8_t has_pose = 0;
    if (!reader->template Read<uint8_t>("HAS_POSE, 0 or 1", &has_pose, 0, 1) ||
        (has_pose == 1 && !ReadPose(reader, sensor.pose))) {
      return false;
    }
    sensor.has_pose = has_pose == 1;
    rig->sensors.push_back(sensor);
    return true;
  }

  // Sets *sensor to Image::sensor of images of that camera. False if it is not
  // a sensor of the rig.
  static bool FindSensor(const Rig& rig, int32_t camera, int32_t* sensor) {
    const auto found = std::find_if(
        rig.sensors.begin(), rig.sensors.end(), [camera](const RigSensor& s) {
          return s.camera == camera;
        });
    *sensor = found == rig.sensors.end()
                  ? -1
                  : static_cast<int32_t>(found - rig.sensors.begin());
    return rig.camera == camera || *sensor >= 0;
  }

  bool ReadImages() {
    FieldReader reader(Path("images"), error_);
    while (reader.NextRecord("images")) {
      Image image = {};
      uint32_t camera_id = 0;
      if (!reader.Read("IMAGE_ID, an integer from 0 to 4294967294",
                       &image.id,
                       0u,
                       kMaxId) ||
          !AddId("IMAGE_ID", image.id, &reader, &image_of_id_) ||
          !ReadPose(&reader, image.pose) ||
          !ReadReference("CAMERA_ID, an integer",
                         "cameras",
                         camera_of_id_,
                         &reader,
                         &camera_id,
                         &image.camera) ||
          !reader.ReadName(&image.name) || !reader.BeginPoints2d()) {
        return false;
      }
      image.points2d_begin = point_ids_.size();
      while (reader.NextElement()) {
        double x = 0.0;
        double y = 0.0;
        int64_t point_id = 0;
        if (static_cast<int64_t>(point_ids_.size()) - image.points2d_begin ==
            kMaxCount) {
          return reader.Fail("at most 2147483647 2D points", "more");
        }
        if (!reader.Read("X of a 2D point, a finite number", &x) ||
            !reader.Read("Y of a 2D point, a finite number", &y) ||
            !reader.template Read<int64_t>(
                "POINT3D_ID of a 2D point, an integer from -1 on",
                &point_id,
                -1)) {
          return false;
        }
        model_->points2d.push_back(x);
        model_->points2d.push_back(y);
        point_ids_.push_back(point_id);
      }
      image.points2d_end = point_ids_.size();
      if (!reader.good()) {
        return false;
      }
      model_->images.push_back(std::move(image));
    }
    return reader.good();
  }

  bool ReadFrames() {
    FieldReader reader(Path("frames"), error_);
    IdToIndex<uint32_t> frame_of_id;
    std::vector<bool> has_frame(model_->images.size(), false);
    while (reader.NextRecord("frames")) {
      Frame frame = {};
      uint32_t rig_id = 0;
      uint32_t num_data = 0;
      if (!reader.Read("FRAME_ID, an integer from 0 to 4294967294",
                       &frame.id,
                       0u,
                       kMaxId) ||
          !AddId("FRAME_ID", frame.id, &reader, &frame_of_id) ||
          !ReadReference("RIG_ID, an integer",
                         "rigs",
                         rig_of_id_,
                         &reader,
                         &rig_id,
                         &frame.rig) ||
          !ReadPose(&reader, frame.pose) ||
          !reader.Read("NUM_DATA_IDS, an integer from 1 to the number of "
                       "sensors of the rig",
                       &num_data,
                       1u,
                       static_cast<uint32_t>(
                           model_->rigs[frame.rig].sensors.size() + 1))) {
        return false;
      }
      for (uint32_t i = 0; i < num_data; ++i) {
        if (!ReadFrameImage(&reader, &has_frame, &frame)) {
          return false;
        }
      }
      if (!reader.EndRecord("no more fields of this frame")) {
        return false;
      }
      model_->frames.push_back(std::move(frame));
    }
    SetPosesOfSensors(model_);
    if (!reader.good()) {
      return false;
    }
    const auto without = std::find(has_frame.begin(), has_frame.end(), false);
    // As COLMAP does with models that it wrote before it had rigs.
    if (model_->rigs.empty() || without == has_frame.end()) {
      return true;
    }
    *error_ = Path("frames") + ": expected a frame of image " +
              std::to_string(model_->images[without - has_frame.begin()].id) +
              ", found none";
    return false;
  }

  // The next image of the frame, which becomes the last of model_->frames.
  bool ReadFrameImage(FieldReader* reader,
                      std::vector<bool>* has_frame,
                      Frame* frame) {
    const Rig& rig = model_->rigs[frame->rig];
    int32_t camera = 0;
    int32_t sensor = -1;
    int32_t index = 0;
    int64_t image_id = 0;
    if (!ReadSensor(camera_of_id_, reader, &camera)) {
      return false;
    }
    const std::string camera_id = std::to_string(model_->cameras[camera].id);
    if (!FindSensor(rig, camera, &sensor)) {
      return reader->Fail("a SENSOR_ID of rig " + std::to_string(rig.id),
                          camera_id);
    }
    if (sensor >= 0 && !rig.sensors[sensor].has_pose) {
      return reader->Fail(
          "a SENSOR_ID with a pose in rig " + std::to_string(rig.id),
          camera_id);
    }
    if (!ReadReference("DATA_ID, an integer",
                       "images",
                       image_of_id_,
                       reader,
                       &image_id,
                       &index)) {
      return false;
    }
    Image& image = model_->images[index];
    if (image.camera != camera) {
      return reader->Fail("a DATA_ID of an image of camera " + camera_id,
                          std::to_string(image_id));
    }
    if ((*has_frame)[index]) {
      return reader->Fail("each image in one frame",
                          std::to_string(image_id) + " again");
    }
    for (const int32_t other : frame->images) {
      if (model_->images[other].camera == camera) {
        return reader->Fail("each SENSOR_ID of a frame once",
                            camera_id + " again");
      }
    }
    (*has_frame)[index] = true;
    image.frame = static_cast<int32_t>(model_->frames.size());
    image.sensor = sensor;
    if (sensor < 0) {
      std::copy_n(frame->pose, 7, image.pose);
    }
    frame->images.push_back(index);
    return true;
  }

  bool ReadPoints() {
    FieldReader reader(Path("points3D"), error_);
    IdToIndex<int64_t> point_of_id;
    model_->point_index.assign(point_ids_.size(), -1);
    while (reader.NextRecord("points")) {
      Point3D point = {};
      if (!reader.template Read<int64_t>(
              "POINT3D_ID, an integer from 0 on", &point.id, 0) ||
          !AddId("POINT3D_ID", point.id, &reader, &point_of_id)) {
        return false;
      }
      for (double& coordinate : point.xyz) {
        if (!reader.Read("X Y Z, three finite numbers", &coordinate)) {
          return false;
        }
      }
      for (uint8_t& color : point.color) {
        if (!reader.Read("R G B, three integers from 0 to 255", &color)) {
          return false;
        }
      }
      if (!reader.Read("ERROR, a finite number", &point.error) ||
          !reader.BeginTrack()) {
        return false;
      }
      point.track_begin = model_->track_elements.size();
      while (reader.NextElement()) {
        if (!ReadTrackElement(point.id, &reader)) {
          return false;
        }
      }
      point.track_end = model_->track_elements.size();
      if (!reader.good()) {
        return false;
      }
      model_->points.push_back(point);
    }
    return reader.good();
  }

  // State of the next point.
  bool ReadTrackElement(int64_t point_id, FieldReader* reader) {
    uint32_t image_id = 0;
    uint32_t number = 0;
    TrackElement element = {};
    if (!ReadReference("IMAGE_ID, an integer",
                       "images",
                       image_of_id_,
                       reader,
                       &image_id,
                       &element.image) ||
        !reader->Read("POINT2D_IDX of a track, an integer from 0 on",
                      &number)) {
      return false;
    }
    const Image& image = model_->images[element.image];
    const auto text = [&] {
      return std::to_string(image_id) + " " + std::to_string(number);
    };
    if (number >= image.points2d_end - image.points2d_begin ||
        point_ids_[image.points2d_begin + number] != point_id) {
      return reader->Fail(
          std::string("IMAGE_ID POINT2D_IDX of a 2D point that images") +
              FieldReader::kSuffix + " gives to this point",
          text());
    }
    int32_t* index = &model_->point_index[image.points2d_begin + number];
    if (*index >= 0) {
      return reader->Fail("each 2D point once", text() + " again");
    }
    *index = static_cast<int32_t>(model_->points.size());
    element.point2d = static_cast<int32_t>(number);
    model_->track_elements.push_back(element);
    return true;
  }

  bool CheckTracks() {
    for (const Image& image : model_->images) {
      for (int64_t k = image.points2d_begin; k < image.points2d_end; ++k) {
        if (point_ids_[k] >= 0 && model_->point_index[k] < 0) {
          *error_ = Path("points3D") + ": expected 2D point " +
                    std::to_string(k - image.points2d_begin) + " of image " +
                    std::to_string(image.id) + " in the track of point " +
                    std::to_string(point_ids_[k]) + ", found it in none";
          return false;
        }
      }
    }
    return true;
  }

  const std::string folder_;
  Model* model_;
  std::string* error_;
  IdToIndex<uint32_t> camera_of_id_;
  IdToIndex<uint32_t> rig_of_id_;
  IdToIndex<uint32_t> image_of_id_;
  // The point that each 2D point names.
  std::vector<int64_t> point_ids_;
};

// The format of which all three files exist, the binary one first; otherwise
// the one of which more exist.
ModelFormat FindFormat(const std::string& folder) {
  const auto count = [&folder](const char* suffix) {
    int num_files = 0;
    for (const char* file : {"/cameras", "/images", "/points3D"}) {
      num_files += access((folder + file + suffix).c_str(), F_OK) == 0;
    }
    return num_files;
  };
  const int num_binary = count(BinaryFieldReader::kSuffix);
  return num_binary == 3 || num_binary > count(TextFieldReader::kSuffix)
             ? MODEL_BINARY
             : MODEL_TEXT;
}

}  // namespace

bool ReadModel(const std::string& folder, Model* model, std::string* error) {
  *model = Model();
  error->clear();
  std::error_code ignored;
  if (std::filesystem::is_regular_file(folder, ignored)) {
    *error = folder + ": expected the folder of a model of COLMAP, found " +
             (bal::IsBalFile(folder)
                  ? "a problem in BAL format, which bundle_adjuster refines"
                  : "a file");
    return false;
  }
  try {
    model->format = FindFormat(folder);
    if (model->format == MODEL_BINARY
            ? ModelReader<BinaryFieldReader>(folder, model, error).Run()
            : ModelReader<TextFieldReader>(folder, model, error).Run()) {
      return true;
    }
  } catch (const std::bad_alloc&) {
    *error = folder + ": expected a model that fits in memory, found " +
             std::to_string(model->points2d.size() / 2) + " 2D points and more";
  }
  *model = Model();
  return false;
}

}  // namespace ceres_ext::colmap
