// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Whatever the bytes of a model's files, the reader returns a model that keeps
// its promises, and that is written and read back as it is, or one printable
// line. The files are in a folder of their own in /dev/shm.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "problem_io/colmap_model.h"
#include "problem_io/colmap_reader.h"
#include "problem_io/colmap_writer.h"
#include "tests/fuzz/colmap_fuzz_input.h"

namespace ceres_ext::colmap {
namespace {

namespace fs = std::filesystem;

void Require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

class Folder {
 public:
  Folder() {
    char path[] = "/dev/shm/colmap_reader_fuzzer.XXXXXX";
    Require(mkdtemp(path) != nullptr);
    path_ = path;
    fs::create_directory(path_ + "/input");
  }
  ~Folder() { fs::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void RequireFinite(const double* values, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    Require(std::isfinite(values[i]));
  }
}

void RequireIndex(int64_t index, size_t size) {
  Require(index >= 0 && index < static_cast<int64_t>(size));
}

void RequirePromises(const Model& model) {
  for (const Camera& camera : model.cameras) {
    Require(camera.model != nullptr && camera.width > 0 && camera.height > 0);
    RequireFinite(camera.params, camera.model->num_params);
  }
  int64_t end = 0;
  for (const Image& image : model.images) {
    RequireIndex(image.camera, model.cameras.size());
    RequireFinite(image.pose, 7);
    Require(image.points2d_begin == end);
    Require(image.points2d_end >= end);
    end = image.points2d_end;
  }
  Require(end == static_cast<int64_t>(model.point_index.size()));
  Require(model.points2d.size() == 2 * model.point_index.size());
  RequireFinite(model.points2d.data(), model.points2d.size());
  size_t num_seen = 0;
  for (const int32_t index : model.point_index) {
    if (index != -1) {
      RequireIndex(index, model.points.size());
      ++num_seen;
    }
  }
  Require(model.track_elements.size() == num_seen);
  end = 0;
  for (size_t i = 0; i < model.points.size(); ++i) {
    const Point3D& point = model.points[i];
    RequireFinite(point.xyz, 3);
    RequireFinite(&point.error, 1);
    Require(point.track_begin == end);
    Require(point.track_end >= end);
    end = point.track_end;
    for (int64_t k = point.track_begin; k < end; ++k) {
      const TrackElement& element = model.track_elements[k];
      RequireIndex(element.image, model.images.size());
      const Image& image = model.images[element.image];
      RequireIndex(element.point2d, image.points2d_end - image.points2d_begin);
      Require(model.point_index[image.points2d_begin + element.point2d] ==
              static_cast<int32_t>(i));
    }
  }
  size_t num_in_frames = 0;
  for (size_t i = 0; i < model.frames.size(); ++i) {
    const Frame& frame = model.frames[i];
    RequireIndex(frame.rig, model.rigs.size());
    const Rig& rig = model.rigs[frame.rig];
    num_in_frames += frame.images.size();
    for (const int32_t index : frame.images) {
      RequireIndex(index, model.images.size());
      const Image& image = model.images[index];
      Require(image.frame == static_cast<int32_t>(i));
      if (image.sensor >= 0) {
        RequireIndex(image.sensor, rig.sensors.size());
        Require(rig.sensors[image.sensor].has_pose);
      }
      Require(
          image.camera ==
          (image.sensor < 0 ? rig.camera : rig.sensors[image.sensor].camera));
    }
  }
  Require(model.rigs.empty() || num_in_frames == model.images.size());
}

// Written, read and written again, it is the same, in both forms.
void RequireRoundTrips(const std::string& folder, Model model) {
  for (const ModelFormat format : {MODEL_TEXT, MODEL_BINARY}) {
    model.format = format;
    std::string error;
    const std::string output = folder + "/output";
    fs::remove_all(output);
    if (!CanWriteModel(output, model, &error)) {
      continue;  // a name that this form can't hold
    }
    Require(WriteModel(output, model, &error));
    const std::string once = Pack(output, format == MODEL_BINARY);
    Require(ReadModel(output, &model, &error));
    Require(WriteModel(output, model, &error));
    Require(Pack(output, format == MODEL_BINARY) == once);
  }
}

}  // namespace
}  // namespace ceres_ext::colmap

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ceres_ext::colmap;
  static const Folder folder;
  const std::string input = folder.path() + "/input";
  Unpack(data, size, input);
  Model model;
  std::string error;
  if (ReadModel(input, &model, &error)) {
    Require(error.empty());
    RequirePromises(model);
    RequireRoundTrips(folder.path(), model);
    return 0;
  }
  Require(error.rfind(input, 0) == 0);
  Require(error.find(": expected ") != std::string::npos);
  Require(error.find(", found ") != std::string::npos);
  for (const char c : error) {
    Require(c >= ' ' && c <= '~');
  }
  Require(model.cameras.empty() && model.images.empty() &&
          model.points.empty() && model.points2d.empty());
  return 0;
}
