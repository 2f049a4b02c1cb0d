// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Reads and writes a pycolmap.Reconstruction where it is in memory, at once
// instead of value by value.
//
// Arrays of pycolmap are views of its objects. Their addresses say where the 2D
// points of an image, the points and the poses of frames are. Ids and tracks,
// which have no arrays, are beside them: Layout compares the first of each with
// pycolmap's answers, and each track with the 2D points.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ceres_ext/camera_models.h"
#include "nanobind/nanobind.h"
#include "nanobind/ndarray.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/vector.h"
#include "problem_io/colmap_model.h"
#include "python/src/array.h"
#include "python/src/colmap.h"
#include "python/src/module.h"

namespace nb = nanobind;
using namespace nanobind::literals;

namespace ceres_ext::python {
namespace {

// pycolmap's objects are not where Layout expects them.
struct UnknownLayout {};

// Places of pycolmap 4.2, in bytes.
struct Layout {
  // Behind Point2D::xy.
  static constexpr int64_t kPointId = 16;
  // Behind Point3D::xyz.
  static constexpr int64_t kError = 24;
  static constexpr int64_t kTrackBegin = 32;
  static constexpr int64_t kTrackEnd = 40;
  static constexpr int64_t kColor = 56;
};

// As pycolmap has them.
struct TrackElementInMemory {
  uint32_t image;
  uint32_t point2d;
};

template <typename T>
T Load(const char* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

// The address of a numpy array's values.
char* AddressOf(nb::handle array) {
  return static_cast<char*>(nb::cast<nb::ndarray<>>(array).data());
}

void Check(bool is_as_expected) {
  if (!is_as_expected) {
    throw UnknownLayout();
  }
}

struct PointInMemory {
  int64_t id;
  char* xyz = nullptr;
  // Its number among the points of the last model that has it.
  int32_t number = -1;
  int64_t read = -1;

  const TrackElementInMemory* track_begin() const {
    return Load<const TrackElementInMemory*>(xyz + Layout::kTrackBegin);
  }
  const TrackElementInMemory* track_end() const {
    return Load<const TrackElementInMemory*>(xyz + Layout::kTrackEnd);
  }
};

struct ImageInMemory {
  std::string name;
  uint32_t camera_id;
  uint32_t frame_id;
  const char* points2d = nullptr;
  int64_t stride = 0;
  int64_t num_points2d = 0;

  const char* point2d(int64_t k) const { return points2d + stride * k; }
  // -1: none.
  int64_t PointId(int64_t k) const {
    return Load<int64_t>(point2d(k) + Layout::kPointId);
  }
};

// Each has its number in the last model that has it.
struct FrameInMemory {
  nb::object object;
  int32_t number;
  uint32_t rig_id;
};

struct RigInMemory {
  nb::object object;
  int32_t number;
  uint32_t camera_id;  // of the reference sensor
  std::vector<std::pair<nb::object, uint32_t>> others;  // and their cameras
};

struct CameraInMemory {
  nb::object object;
  int32_t number;
  colmap::Camera camera;  // without parameters
};

// A 2D point of a model.
struct Seen {
  PointInMemory* point;
  const char* point2d;
};

class ColmapMirror {
 public:
  explicit ColmapMirror(nb::object reconstruction)
      : reconstruction_(std::move(reconstruction)) {}

  // The next Read asks pycolmap for all addresses again.
  void Forget() {
    images_.clear();
    points_.clear();
    frames_.clear();
    rigs_.clear();
    cameras_.clear();
    num_checked_ = 0;
  }

  // The model of images with all they see and of added points with the other
  // images that see these; and flags of points that further images see. Items
  // are in the order of their ids, images have the 2D points of points alone.
  // None if the layout of pycolmap's objects is unknown.
  nb::object Read(const std::vector<uint32_t>& images,
                  const std::vector<int64_t>& added) {
    auto model = std::make_unique<ColmapModel>();
    std::vector<uint8_t> partly_seen;
    try {
      ReadModel(images, added, &model->model, &partly_seen);
    } catch (const UnknownLayout&) {
      Forget();
      return nb::none();
    }
    return nb::make_tuple(
        nb::cast(model.release(), nb::rv_policy::take_ownership),
        MakeArray(std::move(partly_seen), 0));
  }

  // Writes the values of the model of the last Read that have changed.
  void Write(const ColmapModel& of_python) {
    const colmap::Model& model = of_python.model;
    if (model.points.size() != points_before_.size() ||
        model.cameras.size() != cameras_before_.size() ||
        model.frames.size() != poses_before_.size()) {
      throw ValueError("model: expected that of the last read");
    }
    for (size_t i = 0; i < model.points.size(); ++i) {
      const colmap::Point3D& point = model.points[i];
      if (!std::equal(point.xyz, point.xyz + 3, points_before_[i].begin())) {
        std::memcpy(FindPoint(point.id)->xyz, point.xyz, sizeof(point.xyz));
      }
    }
    for (size_t i = 0; i < model.cameras.size(); ++i) {
      const colmap::Camera& camera = model.cameras[i];
      const int size = camera.model->num_params;
      if (!std::equal(camera.params,
                      camera.params + size,
                      cameras_before_[i].begin())) {
        WriteArray(
            FindCamera(camera.id).object.attr("params"), camera.params, size);
      }
    }
    for (size_t i = 0; i < model.frames.size(); ++i) {
      const double* const pose =
          colmap::FramePose(model, static_cast<int32_t>(i));
      if (!std::equal(pose, pose + kPoseSize, poses_before_[i].begin())) {
        WriteArray(FindFrame(model.frames[i].id)
                       .object.attr("rig_from_world")
                       .attr("params"),
                   pose,
                   kPoseSize);
      }
    }
    for (const colmap::Rig& rig : model.rigs) {
      WriteSensors(rig);
    }
  }

 private:
  static constexpr int kPoseSize = 7;

  static void WriteArray(nb::handle array, const double* values, int size) {
    std::memcpy(AddressOf(array), values, sizeof(double) * size);
  }

  // pycolmap returns copies of these poses.
  void WriteSensors(const colmap::Rig& rig) {
    const RigInMemory& in_memory = FindRig(rig.id);
    for (size_t k = 0; k < rig.sensors.size(); ++k) {
      const colmap::RigSensor& sensor = rig.sensors[k];
      if (!sensor.has_pose) {
        continue;
      }
      const nb::object& id = in_memory.others[k].first;
      const nb::object pose = in_memory.object.attr("sensor_from_rig")(id);
      const nb::object array = pose.attr("params");
      if (std::memcmp(AddressOf(array), sensor.pose, sizeof(sensor.pose)) !=
          0) {
        WriteArray(array, sensor.pose, kPoseSize);
        in_memory.object.attr("set_sensor_from_rig")(id, pose);
      }
    }
  }

  PointInMemory* FindPoint(int64_t id) {
    PointInMemory& point = points_[id];
    if (point.xyz == nullptr) {
      nb::object object;
      try {
        object = nb::object(reconstruction_.attr("points3D")[nb::int_(id)]);
      } catch (const nb::python_error&) {
        points_.erase(id);
        throw ValueError(
            "config: expected points with a pose in the reconstruction, "
            "found " +
            std::to_string(id));
      }
      point.id = id;
      point.xyz = AddressOf(object.attr("xyz"));
      // Some are enough, since all have one layout.
      constexpr int kMaxChecked = 8;
      if (num_checked_ < kMaxChecked) {
        ++num_checked_;
        CheckPoint(object, point);
      }
    }
    return &point;
  }

  static void CheckPoint(nb::handle object, const PointInMemory& point) {
    // So error and track are between xyz and color.
    Check(AddressOf(object.attr("color")) == point.xyz + Layout::kColor);
    Check(Load<double>(point.xyz + Layout::kError) ==
          nb::cast<double>(object.attr("error")));
    const nb::object elements = object.attr("track").attr("elements");
    Check(point.track_end() - point.track_begin() ==
          static_cast<std::ptrdiff_t>(nb::len(elements)));
    const TrackElementInMemory* next = point.track_begin();
    for (const nb::handle element : elements) {
      Check(next->image == nb::cast<uint32_t>(element.attr("image_id")) &&
            next->point2d == nb::cast<uint32_t>(element.attr("point2D_idx")));
      ++next;
    }
  }

  // Throws ValueError if the image has no pose.
  const ImageInMemory& FindImage(uint32_t id) {
    const auto found = images_.find(id);
    if (found != images_.end()) {
      return found->second;
    }
    const nb::object all = reconstruction_.attr("images");
    if (!nb::cast<bool>(all.attr("__contains__")(id))) {
      ThrowWithoutPose(id);
    }
    const nb::object object = all[nb::int_(id)];
    ImageInMemory image;
    image.name = nb::cast<std::string>(object.attr("name"));
    image.camera_id = nb::cast<uint32_t>(object.attr("camera_id"));
    image.frame_id = nb::cast<uint32_t>(object.attr("frame_id"));
    const nb::object points2d = object.attr("points2D");
    image.num_points2d = static_cast<int64_t>(nb::len(points2d));
    const int64_t n = image.num_points2d;
    if (n > 0) {
      const auto place = [&](int64_t k) {
        return AddressOf(points2d[nb::int_(k)].attr("xy"));
      };
      image.points2d = place(0);
      image.stride = n > 1 ? place(1) - image.points2d : 0;
      Check(place(n - 1) == image.point2d(n - 1));
      Check(n == 1 || image.stride >= Layout::kPointId + int64_t{8});
      for (const int64_t k : {int64_t{0}, n / 2, n - 1}) {
        Check(static_cast<uint64_t>(image.PointId(k)) ==
              nb::cast<uint64_t>(points2d[nb::int_(k)].attr("point3D_id")));
      }
    }
    return images_.emplace(id, std::move(image)).first->second;
  }

  [[noreturn]] static void ThrowWithoutPose(uint32_t id) {
    throw ValueError(
        "config: expected images with a pose in the reconstruction, found " +
        std::to_string(id));
  }

  FrameInMemory& FindFrame(uint32_t id) {
    FrameInMemory& frame = frames_[id];
    if (!frame.object.is_valid()) {
      nb::object object = reconstruction_.attr("frames")[nb::int_(id)];
      frame.rig_id = nb::cast<uint32_t>(object.attr("rig_id"));
      frame.object = std::move(object);
    }
    return frame;
  }

  RigInMemory& FindRig(uint32_t id) {
    RigInMemory& rig = rigs_[id];
    if (!rig.object.is_valid()) {
      nb::object object = reconstruction_.attr("rigs")[nb::int_(id)];
      const auto camera_of = [](nb::handle sensor) {
        Check(nb::cast<std::string>(sensor.attr("type").attr("name")) ==
              "CAMERA");
        return nb::cast<uint32_t>(sensor.attr("id"));
      };
      rig.camera_id = camera_of(object.attr("ref_sensor_id"));
      for (const nb::handle sensor : object.attr("non_ref_sensors")) {
        rig.others.emplace_back(nb::borrow(sensor), camera_of(sensor));
      }
      std::sort(
          rig.others.begin(),
          rig.others.end(),
          [](const auto& a, const auto& b) { return a.second < b.second; });
      rig.object = std::move(object);
    }
    return rig;
  }

  CameraInMemory& FindCamera(uint32_t id) {
    CameraInMemory& camera = cameras_[id];
    if (!camera.object.is_valid()) {
      nb::object object = reconstruction_.attr("cameras")[nb::int_(id)];
      const std::string name = nb::cast<std::string>(object.attr("model_name"));
      camera.camera = {};
      camera.camera.id = id;
      camera.camera.model = colmap::FindCameraModel(name);
      if (camera.camera.model == nullptr) {
        throw ValueError("camera " + std::to_string(id) + ": expected one of " +
                         colmap::CameraModelNames() + ", found " + name +
                         ", which is not supported");
      }
      camera.camera.width = nb::cast<int64_t>(object.attr("width"));
      camera.camera.height = nb::cast<int64_t>(object.attr("height"));
      camera.object = std::move(object);
    }
    return camera;
  }

  void ReadModel(const std::vector<uint32_t>& images,
                 const std::vector<int64_t>& added,
                 colmap::Model* model,
                 std::vector<uint8_t>* partly_seen) {
    ++num_reads_;
    std::vector<PointInMemory*> found;
    const auto add = [&](int64_t id) {
      PointInMemory* const point = FindPoint(id);
      if (point->read != num_reads_) {
        point->read = num_reads_;
        found.push_back(point);
      }
      return point;
    };
    std::map<uint32_t, std::vector<Seen>> seen;
    for (const uint32_t id : images) {
      const ImageInMemory& image = FindImage(id);
      std::vector<Seen>& of_image = seen[id];
      for (int64_t k = 0; k < image.num_points2d; ++k) {
        const int64_t point_id = image.PointId(k);
        if (point_id >= 0) {
          of_image.push_back({add(point_id), image.point2d(k)});
        }
      }
    }
    std::map<uint32_t, std::vector<Seen>> by_others;
    for (const int64_t id : added) {
      PointInMemory* const point = add(id);
      const TrackElementInMemory* const end = point->track_end();
      for (const auto* e = point->track_begin(); e != end; ++e) {
        if (seen.count(e->image) == 0) {
          const ImageInMemory& image = FindImage(e->image);
          Check(e->point2d < image.num_points2d &&
                image.PointId(e->point2d) == id);
          by_others[e->image].push_back({point, image.point2d(e->point2d)});
        }
      }
    }
    for (auto& [id, of_image] : by_others) {
      std::sort(
          of_image.begin(), of_image.end(), [](const Seen& a, const Seen& b) {
            return a.point2d < b.point2d;
          });
    }
    seen.merge(by_others);
    std::sort(found.begin(),
              found.end(),
              [](const PointInMemory* a, const PointInMemory* b) {
                return a->id < b->id;
              });
    ReadPoints(found, model);
    ReadFrames(seen, model);
    for (auto& image : model->images) {
      image.points2d_begin = static_cast<int64_t>(model->point_index.size());
      for (const Seen& one : seen[image.id]) {
        model->point_index.push_back(one.point->number);
        model->points2d.push_back(Load<double>(one.point2d));
        model->points2d.push_back(Load<double>(one.point2d + sizeof(double)));
      }
      image.points2d_end = static_cast<int64_t>(model->point_index.size());
    }
    colmap::SetTracks(model);
    partly_seen->resize(found.size());
    for (size_t i = 0; i < found.size(); ++i) {
      const int64_t length = found[i]->track_end() - found[i]->track_begin();
      const int64_t num_seen =
          model->points[i].track_end - model->points[i].track_begin;
      Check(num_seen <= length);
      (*partly_seen)[i] = num_seen < length ? 1 : 0;
    }
  }

  void ReadPoints(const std::vector<PointInMemory*>& found,
                  colmap::Model* model) {
    points_before_.clear();
    for (PointInMemory* const point : found) {
      point->number = static_cast<int32_t>(model->points.size());
      colmap::Point3D& read = model->points.emplace_back();
      read = {};
      read.id = point->id;
      std::memcpy(read.xyz, point->xyz, sizeof(read.xyz));
      std::memcpy(read.color, point->xyz + Layout::kColor, sizeof(read.color));
      read.error = Load<double>(point->xyz + Layout::kError);
      points_before_.push_back({read.xyz[0], read.xyz[1], read.xyz[2]});
    }
  }

  // The images in the order of their ids, with their frames, rigs and cameras.
  void ReadFrames(const std::map<uint32_t, std::vector<Seen>>& seen,
                  colmap::Model* model) {
    std::map<uint32_t, FrameInMemory*> frames;
    std::map<uint32_t, RigInMemory*> rigs;
    std::map<uint32_t, CameraInMemory*> cameras;
    const auto add_camera = [&](uint32_t id) {
      cameras.emplace(id, &FindCamera(id));
    };
    for (const auto& [id, of_image] : seen) {
      const ImageInMemory& image = FindImage(id);
      FrameInMemory& frame = FindFrame(image.frame_id);
      if (!frames.emplace(image.frame_id, &frame).second) {
        continue;
      }
      if (!nb::cast<bool>(frame.object.attr("has_pose")())) {
        ThrowWithoutPose(id);
      }
      RigInMemory& rig = FindRig(frame.rig_id);
      if (rigs.emplace(frame.rig_id, &rig).second) {
        add_camera(rig.camera_id);
        for (const auto& [sensor, camera_id] : rig.others) {
          add_camera(camera_id);
        }
      }
    }
    cameras_before_.clear();
    poses_before_.clear();
    for (const auto& [id, camera] : cameras) {
      camera->number = static_cast<int32_t>(model->cameras.size());
      model->cameras.push_back(camera->camera);
      std::memcpy(model->cameras.back().params,
                  AddressOf(camera->object.attr("params")),
                  sizeof(double) * camera->camera.model->num_params);
      std::copy_n(model->cameras.back().params,
                  kMaxCameraParams,
                  cameras_before_.emplace_back().begin());
    }
    for (const auto& [id, rig] : rigs) {
      rig->number = static_cast<int32_t>(model->rigs.size());
      model->rigs.push_back({id, cameras.at(rig->camera_id)->number});
      const nb::object poses = rig->others.empty()
                                   ? nb::object()
                                   : rig->object.attr("non_ref_sensors");
      for (const auto& [sensor, camera_id] : rig->others) {
        colmap::RigSensor read = {};
        read.camera = cameras.at(camera_id)->number;
        const nb::object pose = poses[sensor];
        read.has_pose = !pose.is_none();
        if (read.has_pose) {
          std::memcpy(
              read.pose, AddressOf(pose.attr("params")), sizeof(read.pose));
        }
        model->rigs.back().sensors.push_back(read);
      }
    }
    for (const auto& [id, frame] : frames) {
      frame->number = static_cast<int32_t>(model->frames.size());
      colmap::Frame read;
      read.id = id;
      read.rig = rigs.at(frame->rig_id)->number;
      std::memcpy(
          read.pose,
          AddressOf(frame->object.attr("rig_from_world").attr("params")),
          sizeof(read.pose));
      std::copy_n(read.pose, kPoseSize, poses_before_.emplace_back().begin());
      model->frames.push_back(std::move(read));
    }
    for (const auto& [id, of_image] : seen) {
      const ImageInMemory& image = FindImage(id);
      colmap::Image read = {};
      read.id = id;
      read.name = image.name;
      Check(cameras.count(image.camera_id) > 0);
      read.camera = cameras.at(image.camera_id)->number;
      read.frame = frames.at(image.frame_id)->number;
      colmap::Frame& frame = model->frames[read.frame];
      const std::vector<colmap::RigSensor>& sensors =
          model->rigs[frame.rig].sensors;
      const auto sensor = std::find_if(
          sensors.begin(), sensors.end(), [&](const colmap::RigSensor& s) {
            return s.camera == read.camera;
          });
      if (sensor == sensors.end()) {
        std::copy_n(frame.pose, 7, read.pose);
      } else {
        Check(sensor->has_pose);
        read.sensor = static_cast<int32_t>(sensor - sensors.begin());
      }
      frame.images.push_back(static_cast<int32_t>(model->images.size()));
      model->images.push_back(std::move(read));
    }
    colmap::SetPosesOfSensors(model);
  }

  nb::object reconstruction_;
  std::unordered_map<uint32_t, ImageInMemory> images_;
  std::unordered_map<int64_t, PointInMemory> points_;
  std::unordered_map<uint32_t, FrameInMemory> frames_;
  std::unordered_map<uint32_t, RigInMemory> rigs_;
  std::unordered_map<uint32_t, CameraInMemory> cameras_;
  // Values of the model of the last Read as they were.
  std::vector<std::array<double, 3>> points_before_;
  std::vector<std::array<double, kMaxCameraParams>> cameras_before_;
  std::vector<std::array<double, kPoseSize>> poses_before_;
  int64_t num_reads_ = 0;
  int num_checked_ = 0;
};

}  // namespace

void AddColmapMirror(nb::module_* module) {
  nb::class_<ColmapMirror>(
      *module,
      "_ColmapMirror",
      "Reads and writes a pycolmap.Reconstruction where it is in memory.")
      .def(nb::init<nb::object>(), "reconstruction"_a)
      .def("forget", &ColmapMirror::Forget)
      .def("read",
           &ColmapMirror::Read,
           "images"_a,
           "added"_a,
           nb::sig("def read(self, images: collections.abc.Sequence[int], "
                   "added: collections.abc.Sequence[int]) -> "
                   "tuple[ColmapModel, numpy.typing.NDArray[numpy.uint8]] | "
                   "None"))
      .def("write", &ColmapMirror::Write, "model"_a);
}

}  // namespace ceres_ext::python
