// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/colmap/colmap_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "examples/bal/byte_stream.h"
#include "examples/bal/number_text.h"

namespace ceres_ext::colmap {
namespace {

using bal::IsSpace;
using bal::Quoted;

constexpr int64_t kMaxCount = std::numeric_limits<int32_t>::max();

// Reads a file line by line and a line field by field. The first failure is
// kept in *error.
class FieldReader {
 public:
  FieldReader(const std::string& path, std::string* error)
      : path_(path), error_(error) {
    std::string found;
    stream_ = bal::OpenFile(path, &found);
    if (stream_ == nullptr) {
      *error_ = path_ + ": expected a readable file, found " + found;
    }
  }

  // To the next line that is neither empty nor a comment. False at the end of
  // the file and after a failure.
  bool NextLine() {
    while (AnyLine()) {
      SkipSpace();
      if (position_ < end_ && *position_ != '#') {
        return true;
      }
    }
    return false;
  }

  // To the next line, whatever is in it.
  bool AnyLine() {
    if (!error_->empty()) {
      return false;
    }
    size_t begin = next_;
    size_t searched = begin;
    for (;;) {
      const auto newline =
          std::find(buffer_.begin() + searched, buffer_.end(), '\n');
      if (newline != buffer_.end()) {
        end_ = buffer_.data() + (newline - buffer_.begin());
        next_ = newline + 1 - buffer_.begin();
        break;
      }
      // The whole buffer belongs to this line.
      buffer_.erase(buffer_.begin(), buffer_.begin() + begin);
      begin = 0;
      searched = buffer_.size();
      if (!at_end_) {
        const size_t size = std::max(size_t{1} << 18, searched);
        buffer_.resize(searched + size);
        const size_t num_read = stream_->Read(buffer_.data() + searched, size);
        at_end_ = num_read < size;
        buffer_.resize(searched + num_read);
        continue;
      }
      ++line_;
      if (!stream_->error().empty()) {
        return Fail("a readable line", stream_->error());
      }
      --line_;
      next_ = buffer_.size();
      end_ = buffer_.data() + next_;
      if (searched == 0) {
        return false;
      }
      break;
    }
    position_ = buffer_.data() + begin;
    ++line_;
    return true;
  }

  bool AtLineEnd() {
    SkipSpace();
    return position_ == end_;
  }

  // A number in [min, max]; `expected` completes "expected ...".
  template <typename T>
  bool Read(const char* expected,
            T* value,
            T min = std::numeric_limits<T>::lowest(),
            T max = std::numeric_limits<T>::max()) {
    SkipSpace();
    const char* stop = bal::ParseNumber(position_, end_, value);
    // NaN fails too.
    if (stop == nullptr || !(*value >= min && *value <= max)) {
      return Fail(expected, Found());
    }
    position_ = stop;
    return true;
  }

  bool ReadWord(std::string_view* word) {
    SkipSpace();
    const char* begin = position_;
    position_ = std::find_if(position_, end_, IsSpace);
    *word = std::string_view(begin, position_ - begin);
    return true;
  }

  // All that is left of the line but white space around it.
  std::string ReadRest() {
    SkipSpace();
    const char* stop = end_;
    while (stop > position_ && IsSpace(stop[-1])) {
      --stop;
    }
    std::string rest(position_, stop);
    position_ = end_;
    return rest;
  }

  bool ReadLineEnd(const char* expected) {
    return AtLineEnd() || Fail(expected, Found());
  }

  bool Fail(const std::string& expected, const std::string& found) {
    *error_ = path_ + ":" + std::to_string(line_) + ": expected " + expected +
              ", found " + found;
    return false;
  }

  bool good() const { return error_->empty(); }

 private:
  void SkipSpace() { position_ = std::find_if_not(position_, end_, IsSpace); }

  std::string Found() const {
    return position_ == end_ ? "the end of the line" : Quoted(position_, end_);
  }

  const std::string path_;
  std::string* error_;
  std::unique_ptr<bal::ByteStream> stream_;
  std::vector<char> buffer_;
  bool at_end_ = false;
  size_t next_ = 0;  // where the next line begins in buffer_
  // What is left of this line.
  const char* position_ = nullptr;
  const char* end_ = nullptr;
  int64_t line_ = 0;
};

// Ids of 32 bits; the largest one stands for "none" in COLMAP.
constexpr uint32_t kMaxId = std::numeric_limits<uint32_t>::max() - 1;

using IdToIndex = std::unordered_map<uint32_t, int32_t>;

bool ReadRigs(const std::string& path, std::string* error) {
  FieldReader reader(path, error);
  while (reader.NextLine()) {
    uint32_t id;
    uint32_t num_sensors;
    if (!reader.Read("RIG_ID, an integer", &id) ||
        !reader.Read("NUM_SENSORS, 1 at most (rigs of more are not supported)",
                     &num_sensors,
                     0u,
                     1u)) {
      return false;
    }
  }
  return reader.good();
}

bool ReadCameras(const std::string& path,
                 Model* model,
                 IdToIndex* camera_of_id,
                 std::string* error) {
  FieldReader reader(path, error);
  while (reader.NextLine()) {
    Camera camera = {};
    std::string_view name;
    if (!reader.Read("CAMERA_ID, an integer from 0 to 4294967294",
                     &camera.id,
                     0u,
                     kMaxId) ||
        !reader.ReadWord(&name)) {
      return false;
    }
    camera.model = FindCameraModel(name);
    if (camera.model == nullptr) {
      return reader.Fail("MODEL, one of " + CameraModelNames(),
                         Quoted(name.data(), name.data() + name.size()));
    }
    if (!camera_of_id
             ->emplace(camera.id, static_cast<int32_t>(model->cameras.size()))
             .second) {
      return reader.Fail("a CAMERA_ID of its own",
                         std::to_string(camera.id) + " again");
    }
    if (!reader.Read<int64_t>(
            "WIDTH, an integer from 1 on", &camera.width, 1) ||
        !reader.Read<int64_t>(
            "HEIGHT, an integer from 1 on", &camera.height, 1)) {
      return false;
    }
    const std::string params = std::to_string(camera.model->num_params) +
                               " finite PARAMS for " + camera.model->name;
    for (int i = 0; i < camera.model->num_params; ++i) {
      if (!reader.Read(params.c_str(), &camera.params[i])) {
        return false;
      }
    }
    if (!reader.ReadLineEnd(params.c_str())) {
      return false;
    }
    model->cameras.push_back(camera);
  }
  return reader.good();
}

// *point_ids: what each 2D point says that it sees.
bool ReadImages(const std::string& path,
                const IdToIndex& camera_of_id,
                Model* model,
                IdToIndex* image_of_id,
                std::vector<int64_t>* point_ids,
                std::string* error) {
  FieldReader reader(path, error);
  while (reader.NextLine()) {
    Image image = {};
    if (!reader.Read("IMAGE_ID, an integer from 0 to 4294967294",
                     &image.id,
                     0u,
                     kMaxId)) {
      return false;
    }
    if (!image_of_id
             ->emplace(image.id, static_cast<int32_t>(model->images.size()))
             .second) {
      return reader.Fail("an IMAGE_ID of its own",
                         std::to_string(image.id) + " again");
    }
    for (const int i : {3, 0, 1, 2, 4, 5, 6}) {
      if (!reader.Read("QW QX QY QZ TX TY TZ, seven finite numbers",
                       &image.pose[i])) {
        return false;
      }
    }
    const double* q = image.pose;
    const double norm2 = q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3];
    if (!(norm2 > 0.0 && std::isfinite(norm2))) {
      return reader.Fail("QW QX QY QZ with a norm, about 1",
                         "one of 0 or infinity");
    }
    uint32_t camera_id;
    if (!reader.Read("CAMERA_ID, an integer", &camera_id)) {
      return false;
    }
    const auto camera = camera_of_id.find(camera_id);
    if (camera == camera_of_id.end()) {
      return reader.Fail("a CAMERA_ID of cameras.txt",
                         std::to_string(camera_id));
    }
    image.camera = camera->second;
    image.name = reader.ReadRest();
    image.points2d_begin = point_ids->size();
    // The last line may be missing where it is empty.
    if (reader.AnyLine()) {
      while (!reader.AtLineEnd()) {
        double x;
        double y;
        int64_t point_id;
        if (!reader.Read("X of a 2D point, a finite number", &x) ||
            !reader.Read("Y of a 2D point, a finite number", &y) ||
            !reader.Read<int64_t>(
                "POINT3D_ID of a 2D point, an integer from -1 on",
                &point_id,
                -1)) {
          return false;
        }
        model->points2d.push_back(x);
        model->points2d.push_back(y);
        point_ids->push_back(point_id);
      }
    }
    image.points2d_end = point_ids->size();
    if (image.points2d_end - image.points2d_begin > kMaxCount) {
      return reader.Fail("at most 2147483647 2D points", "more");
    }
    model->images.push_back(std::move(image));
  }
  return reader.good();
}

bool ReadPoints(const std::string& path,
                const IdToIndex& image_of_id,
                const std::vector<int64_t>& point_ids,
                Model* model,
                std::string* error) {
  FieldReader reader(path, error);
  std::unordered_set<int64_t> ids;
  model->point_index.assign(point_ids.size(), -1);
  while (reader.NextLine()) {
    Point3D point = {};
    if (!reader.Read<int64_t>(
            "POINT3D_ID, an integer from 0 on", &point.id, 0)) {
      return false;
    }
    if (!ids.insert(point.id).second) {
      return reader.Fail("a POINT3D_ID of its own",
                         std::to_string(point.id) + " again");
    }
    if (static_cast<int64_t>(model->points.size()) == kMaxCount) {
      return reader.Fail("at most 2147483647 points", "more");
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
    if (!reader.Read("ERROR, a finite number", &point.error)) {
      return false;
    }
    while (!reader.AtLineEnd()) {
      uint32_t image_id;
      int64_t number;
      if (!reader.Read("IMAGE_ID of a track, an integer", &image_id) ||
          !reader.Read<int64_t>(
              "POINT2D_IDX of a track, an integer from 0 on", &number, 0)) {
        return false;
      }
      const auto image = image_of_id.find(image_id);
      if (image == image_of_id.end()) {
        return reader.Fail("an IMAGE_ID of images.txt",
                           std::to_string(image_id));
      }
      const Image& seen_in = model->images[image->second];
      const std::string element =
          std::to_string(image_id) + " " + std::to_string(number);
      if (number >= seen_in.points2d_end - seen_in.points2d_begin ||
          point_ids[seen_in.points2d_begin + number] != point.id) {
        return reader.Fail(
            "IMAGE_ID POINT2D_IDX of a 2D point that images.txt gives to this "
            "point",
            element);
      }
      int32_t* index = &model->point_index[seen_in.points2d_begin + number];
      if (*index >= 0) {
        return reader.Fail("each 2D point once", element + " again");
      }
      *index = static_cast<int32_t>(model->points.size());
    }
    model->points.push_back(point);
  }
  return reader.good();
}

bool Read(const std::string& folder, Model* model, std::string* error) {
  const std::string rigs = folder + "/rigs.txt";
  IdToIndex camera_of_id;
  IdToIndex image_of_id;
  std::vector<int64_t> point_ids;
  if ((access(rigs.c_str(), F_OK) == 0 && !ReadRigs(rigs, error)) ||
      !ReadCameras(folder + "/cameras.txt", model, &camera_of_id, error) ||
      !ReadImages(folder + "/images.txt",
                  camera_of_id,
                  model,
                  &image_of_id,
                  &point_ids,
                  error) ||
      !ReadPoints(
          folder + "/points3D.txt", image_of_id, point_ids, model, error)) {
    return false;
  }
  for (const Image& image : model->images) {
    for (int64_t k = image.points2d_begin; k < image.points2d_end; ++k) {
      if (point_ids[k] >= 0 && model->point_index[k] < 0) {
        *error = folder + "/points3D.txt: expected 2D point " +
                 std::to_string(k - image.points2d_begin) + " of image " +
                 std::to_string(image.id) + " in the track of point " +
                 std::to_string(point_ids[k]) + ", found it in none";
        return false;
      }
    }
  }
  return true;
}

}  // namespace

bool ReadModel(const std::string& folder, Model* model, std::string* error) {
  *model = Model();
  error->clear();
  try {
    if (Read(folder, model, error)) {
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
