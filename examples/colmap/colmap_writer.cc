// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/colmap/colmap_writer.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "examples/bal/safe_file.h"
#include "examples/bal/text_writer.h"

namespace ceres_ext::colmap {
namespace {

using bal::TextWriter;

void WriteCameras(const Model& model, TextWriter* writer) {
  *writer << "# CAMERA_ID MODEL WIDTH HEIGHT PARAMS[]\n";
  for (const Camera& camera : model.cameras) {
    writer->Number(camera.id) << " " << camera.model->name << " ";
    writer->Number(camera.width) << " ";
    writer->Number(camera.height);
    for (int i = 0; i < camera.model->num_params; ++i) {
      (*writer << " ").Number(camera.params[i]);
    }
    *writer << "\n";
  }
}

void WriteImages(const Model& model, TextWriter* writer) {
  *writer << "# IMAGE_ID QW QX QY QZ TX TY TZ CAMERA_ID NAME\n"
             "# POINTS2D[] as X Y POINT3D_ID\n";
  for (const Image& image : model.images) {
    writer->Number(image.id);
    for (const int i : {3, 0, 1, 2, 4, 5, 6}) {
      (*writer << " ").Number(image.pose[i]);
    }
    (*writer << " ").Number(model.cameras[image.camera].id);
    *writer << " " << image.name << "\n";
    for (int64_t k = image.points2d_begin; k < image.points2d_end; ++k) {
      *writer << (k == image.points2d_begin ? "" : " ");
      writer->Number(model.points2d[2 * k]) << " ";
      writer->Number(model.points2d[2 * k + 1]) << " ";
      const int32_t point = model.point_index[k];
      writer->Number(point < 0 ? int64_t{-1} : model.points[point].id);
    }
    *writer << "\n";
  }
}

void WritePoints(const Model& model, TextWriter* writer) {
  // A counting sort by points of where they are seen.
  struct Seen {
    uint32_t image_id;
    int32_t number;  // of the 2D point in its image
  };
  const int64_t num_points = model.points.size();
  std::vector<int64_t> begin(num_points + 2, 0);
  for (const int32_t point : model.point_index) {
    if (point >= 0) {
      ++begin[point + 2];
    }
  }
  for (int64_t i = 0; i < num_points; ++i) {
    begin[i + 2] += begin[i + 1];
  }
  std::vector<Seen> seen(begin[num_points + 1]);
  for (const Image& image : model.images) {
    for (int64_t k = image.points2d_begin; k < image.points2d_end; ++k) {
      if (model.point_index[k] >= 0) {
        seen[begin[model.point_index[k] + 1]++] = {
            image.id, static_cast<int32_t>(k - image.points2d_begin)};
      }
    }
  }
  *writer << "# POINT3D_ID X Y Z R G B ERROR TRACK[] as IMAGE_ID POINT2D_IDX\n";
  for (int64_t i = 0; i < num_points; ++i) {
    const Point3D& point = model.points[i];
    writer->Number(point.id);
    for (const double coordinate : point.xyz) {
      (*writer << " ").Number(coordinate);
    }
    for (const uint8_t color : point.color) {
      (*writer << " ").Number(int{color});
    }
    (*writer << " ").Number(point.error);
    for (int64_t k = begin[i]; k < begin[i + 1]; ++k) {
      (*writer << " ").Number(seen[k].image_id);
      (*writer << " ").Number(seen[k].number);
    }
    *writer << "\n";
  }
}

bool IsFolder(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

}  // namespace

std::string WithoutSlashes(std::string folder) {
  while (folder.size() > 1 && folder.back() == '/') {
    folder.pop_back();
  }
  return folder;
}

bool CanWriteModel(const std::string& path, std::string* error) {
  const std::string folder = WithoutSlashes(path);
  if (!IsFolder(folder)) {
    if (access(folder.c_str(), F_OK) == 0) {
      *error = folder + ": expected a folder, found a file";
      return false;
    }
    return bal::CanWrite(folder, error);
  }
  for (const char* name : {"cameras.bin",
                           "images.bin",
                           "points3D.bin",
                           "rigs.bin",
                           "frames.bin",
                           "rigs.txt",
                           "frames.txt"}) {
    if (access((folder + "/" + name).c_str(), F_OK) == 0) {
      *error = folder +
               ": expected a folder without other files of a model, found " +
               name;
      return false;
    }
  }
  for (const char* name : {"cameras.txt", "images.txt", "points3D.txt"}) {
    if (!bal::CanWrite(folder + "/" + name, error)) {
      return false;
    }
  }
  return true;
}

bool WriteModel(const std::string& path,
                const Model& model,
                std::string* error) {
  const std::string folder = WithoutSlashes(path);
  if (!CanWriteModel(folder, error)) {
    return false;
  }
  const bool is_new = mkdir(folder.c_str(), 0777) == 0;
  if (!is_new && errno != EEXIST) {
    *error = folder + ": expected a folder that can be created, found " +
             std::strerror(errno);
    return false;
  }
  bool good;
  {
    TextWriter cameras(folder + "/cameras.txt");
    TextWriter images(folder + "/images.txt");
    TextWriter points(folder + "/points3D.txt");
    WriteCameras(model, &cameras);
    WriteImages(model, &images);
    WritePoints(model, &points);
    good = cameras.Finish(error) && images.Finish(error) &&
           points.Finish(error) && cameras.Close(error) &&
           images.Close(error) && points.Close(error);
  }
  if (!good && is_new) {
    // It stays where a file has got into its place.
    rmdir(folder.c_str());
  }
  return good;
}

}  // namespace ceres_ext::colmap
