// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "problem_io/colmap_writer.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "problem_io/little_endian.h"
#include "problem_io/number_text.h"
#include "problem_io/safe_file.h"
#include "problem_io/text_writer.h"

namespace ceres_ext::colmap {
namespace {

// As the two readers (field_readers.h), with the same functions: fields of a
// file, one after another.
class TextFieldWriter {
 public:
  explicit TextFieldWriter(const std::string& path) : writer_(path) {}

  void Begin(const char* comment, size_t /*num_records*/) {
    writer_ << comment;
  }

  // One space between fields, and none at the end, which COLMAP's reader needs.
  template <typename T>
  void Number(T value) {
    Separate();
    writer_.Number(value);
  }

  void CameraModel(const CameraModelInfo& model) { Name(model.name); }
  void CameraSensor() { Name("CAMERA"); }

  void Name(std::string_view name) {
    Separate();
    writer_ << name;
  }

  void BeginPoints2d(int64_t /*size*/) { EndRecord(); }
  void BeginTrack(int64_t /*size*/) {}

  void EndRecord() {
    writer_ << "\n";
    at_line_begin_ = true;
  }

  bool Finish(std::string* error) { return writer_.Finish(error); }
  bool Close(std::string* error) { return writer_.Close(error); }

 private:
  void Separate() {
    if (!at_line_begin_) {
      writer_ << " ";
    }
    at_line_begin_ = false;
  }

  bal::TextWriter writer_;
  bool at_line_begin_ = true;
};

class BinaryFieldWriter {
 public:
  explicit BinaryFieldWriter(const std::string& path) : writer_(path) {}

  void Begin(const char* /*comment*/, size_t num_records) {
    Number(uint64_t{num_records});
  }

  template <typename T>
  void Number(T value) {
    char bytes[sizeof(T)];
    StoreLittleEndian(value, bytes);
    writer_ << std::string_view(bytes, sizeof(T));
  }

  void CameraModel(const CameraModelInfo& model) { Number(int32_t{model.id}); }
  void CameraSensor() { Number(int32_t{0}); }

  void Name(std::string_view name) {
    writer_ << name;
    Number(uint8_t{0});
  }

  void BeginPoints2d(int64_t size) { Number(size); }
  void BeginTrack(int64_t size) { Number(size); }
  void EndRecord() {}

  bool Finish(std::string* error) { return writer_.Finish(error); }
  bool Close(std::string* error) { return writer_.Close(error); }

 private:
  bal::TextWriter writer_;
};

template <typename FieldWriter>
void WritePose(const double* pose, FieldWriter* writer) {
  for (const int i : {3, 0, 1, 2, 4, 5, 6}) {
    writer->Number(pose[i]);
  }
}

template <typename FieldWriter>
void WriteCameras(const Model& model, FieldWriter* writer) {
  writer->Begin("# CAMERA_ID MODEL WIDTH HEIGHT PARAMS[]\n",
                model.cameras.size());
  for (const Camera& camera : model.cameras) {
    writer->Number(camera.id);
    writer->CameraModel(*camera.model);
    writer->Number(camera.width);
    writer->Number(camera.height);
    for (int i = 0; i < camera.model->num_params; ++i) {
      writer->Number(camera.params[i]);
    }
    writer->EndRecord();
  }
}

template <typename FieldWriter>
void WriteImages(const Model& model, FieldWriter* writer) {
  writer->Begin(
      "# IMAGE_ID QW QX QY QZ TX TY TZ CAMERA_ID NAME\n"
      "# POINTS2D[] as X Y POINT3D_ID\n",
      model.images.size());
  for (const Image& image : model.images) {
    writer->Number(image.id);
    WritePose(image.pose, writer);
    writer->Number(model.cameras[image.camera].id);
    writer->Name(image.name);
    writer->BeginPoints2d(image.points2d_end - image.points2d_begin);
    for (int64_t k = image.points2d_begin; k < image.points2d_end; ++k) {
      writer->Number(model.points2d[2 * k]);
      writer->Number(model.points2d[2 * k + 1]);
      const int32_t point = model.point_index[k];
      writer->Number(point < 0 ? int64_t{-1} : model.points[point].id);
    }
    writer->EndRecord();
  }
}

template <typename FieldWriter>
void WritePoints(const Model& model, FieldWriter* writer) {
  writer->Begin(
      "# POINT3D_ID X Y Z R G B ERROR TRACK[] as IMAGE_ID POINT2D_IDX\n",
      model.points.size());
  for (const Point3D& point : model.points) {
    writer->Number(point.id);
    for (const double coordinate : point.xyz) {
      writer->Number(coordinate);
    }
    for (const uint8_t color : point.color) {
      writer->Number(color);
    }
    writer->Number(point.error);
    writer->BeginTrack(point.track_end - point.track_begin);
    for (int64_t k = point.track_begin; k < point.track_end; ++k) {
      const TrackElement& element = model.track_elements[k];
      writer->Number(model.images[element.image].id);
      writer->Number(element.point2d);
    }
    writer->EndRecord();
  }
}

template <typename FieldWriter>
void WriteRigs(const Model& model, FieldWriter* writer) {
  writer->Begin(
      "# RIG_ID NUM_SENSORS SENSOR_TYPE SENSOR_ID\n"
      "# and for each other sensor: SENSOR_TYPE SENSOR_ID HAS_POSE [QW QX QY "
      "QZ TX TY TZ]\n",
      model.rigs.size());
  for (const Rig& rig : model.rigs) {
    writer->Number(rig.id);
    writer->Number(rig.camera < 0
                       ? uint32_t{0}
                       : static_cast<uint32_t>(rig.sensors.size() + 1));
    if (rig.camera >= 0) {
      writer->CameraSensor();
      writer->Number(model.cameras[rig.camera].id);
    }
    for (const RigSensor& sensor : rig.sensors) {
      writer->CameraSensor();
      writer->Number(model.cameras[sensor.camera].id);
      writer->Number(uint8_t{sensor.has_pose});
      if (sensor.has_pose) {
        WritePose(sensor.pose, writer);
      }
    }
    writer->EndRecord();
  }
}

template <typename FieldWriter>
void WriteFrames(const Model& model, FieldWriter* writer) {
  writer->Begin(
      "# FRAME_ID RIG_ID QW QX QY QZ TX TY TZ NUM_DATA_IDS "
      "DATA_IDS[] as SENSOR_TYPE SENSOR_ID DATA_ID\n",
      model.frames.size());
  for (size_t i = 0; i < model.frames.size(); ++i) {
    const Frame& frame = model.frames[i];
    writer->Number(frame.id);
    writer->Number(model.rigs[frame.rig].id);
    WritePose(FramePose(model, static_cast<int32_t>(i)), writer);
    writer->Number(static_cast<uint32_t>(frame.images.size()));
    for (const int32_t index : frame.images) {
      const Image& image = model.images[index];
      writer->CameraSensor();
      writer->Number(model.cameras[image.camera].id);
      writer->Number(uint64_t{image.id});
    }
    writer->EndRecord();
  }
}

constexpr const char* kFiles[] = {
    "cameras", "images", "points3D", "rigs", "frames"};
constexpr int kNumFilesWithoutRigs = 3;

template <typename FieldWriter>
bool WriteFiles(const std::vector<std::string>& paths,
                const Model& model,
                std::string* error) {
  // In the order of kFiles.
  constexpr void (*kWrite[])(const Model&, FieldWriter*) = {
      WriteCameras, WriteImages, WritePoints, WriteRigs, WriteFrames};
  std::vector<std::unique_ptr<FieldWriter>> writers;
  for (const std::string& path : paths) {
    writers.push_back(std::make_unique<FieldWriter>(path));
    kWrite[writers.size() - 1](model, writers.back().get());
  }
  for (const auto& writer : writers) {
    if (!writer->Finish(error)) {
      return false;
    }
  }
  for (const auto& writer : writers) {
    if (!writer->Close(error)) {
      return false;
    }
  }
  return true;
}

bool IsFolder(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

// The property that a name lacks in order to be read back unchanged; nullptr if
// there is none.
const char* FaultOfName(const std::string& name, ModelFormat format) {
  if (format == MODEL_BINARY) {
    return name.find('\0') != std::string::npos ? "no zero byte" : nullptr;
  }
  if (name.find('\n') != std::string::npos) {
    return "no line end";
  }
  return !name.empty() &&
                 (bal::IsSpace(name.front()) || bal::IsSpace(name.back()))
             ? "no white space at its ends"
             : nullptr;
}

bool CheckNames(const std::string& path,
                const Model& model,
                std::string* error) {
  const char* expected = nullptr;
  const auto image = std::find_if(
      model.images.begin(), model.images.end(), [&](const Image& image) {
        expected = FaultOfName(image.name, model.format);
        return expected != nullptr;
      });
  if (image == model.images.end()) {
    return true;
  }
  *error = path + ": expected " + expected + " in the NAME of image " +
           std::to_string(image->id) + ", found one";
  return false;
}

std::string FilePath(const std::string& folder,
                     const char* file,
                     ModelFormat format) {
  return folder + "/" + file + (format == MODEL_BINARY ? ".bin" : ".txt");
}

// An existing file of a model that is not one of these; "" if there is none.
std::string OtherFile(const std::string& folder,
                      const std::vector<std::string>& files) {
  for (const ModelFormat format : {MODEL_BINARY, MODEL_TEXT}) {
    for (const char* file : kFiles) {
      std::string path = FilePath(folder, file, format);
      if (access(path.c_str(), F_OK) == 0 &&
          std::find(files.begin(), files.end(), path) == files.end()) {
        return path;
      }
    }
  }
  return "";
}

}  // namespace

std::string WithoutSlashes(std::string folder) {
  while (folder.size() > 1 && folder.back() == '/') {
    folder.pop_back();
  }
  return folder;
}

std::vector<std::string> ModelFiles(const std::string& path,
                                    const Model& model) {
  std::vector<std::string> files;
  for (const char* file : kFiles) {
    if (files.size() < kNumFilesWithoutRigs || !model.rigs.empty()) {
      files.push_back(FilePath(WithoutSlashes(path), file, model.format));
    }
  }
  return files;
}

bool CanWriteModel(const std::string& path,
                   const Model& model,
                   std::string* error) {
  const std::string folder = WithoutSlashes(path);
  const std::vector<std::string> files = ModelFiles(folder, model);
  if (!CheckNames(files[1], model, error)) {
    return false;
  }
  if (!IsFolder(folder)) {
    if (access(folder.c_str(), F_OK) == 0) {
      *error = folder + ": expected a folder, found a file";
      return false;
    }
    return bal::CanWrite(folder, error);
  }
  const std::string other = OtherFile(folder, files);
  if (!other.empty()) {
    *error = folder +
             ": expected a folder without other files of a model, found " +
             other.substr(folder.size() + 1);
    return false;
  }
  for (const std::string& file : files) {
    if (!bal::CanWrite(file, error)) {
      return false;
    }
  }
  return true;
}

bool WriteModel(const std::string& path,
                const Model& model,
                std::string* error) {
  const std::string folder = WithoutSlashes(path);
  if (!CanWriteModel(folder, model, error)) {
    return false;
  }
  const bool is_new = mkdir(folder.c_str(), 0777) == 0;
  if (!is_new && errno != EEXIST) {
    *error = folder + ": expected a folder that can be created, found " +
             std::strerror(errno);
    return false;
  }
  const std::vector<std::string> files = ModelFiles(folder, model);
  const bool good = model.format == MODEL_BINARY
                        ? WriteFiles<BinaryFieldWriter>(files, model, error)
                        : WriteFiles<TextFieldWriter>(files, model, error);
  if (!good && is_new) {
    // It stays where a file has got into its place.
    rmdir(folder.c_str());
  }
  return good;
}

}  // namespace ceres_ext::colmap
