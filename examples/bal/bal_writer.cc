// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/bal_writer.h"

#include <cstdint>
#include <string>
#include <vector>

#include "examples/bal/bal_npz.h"
#include "examples/bal/text_writer.h"

namespace ceres_ext::bal {

bool WriteBalFile(const std::string& path,
                  const BalProblem& problem,
                  std::string* error) {
  if (problem.camera_size != 9) {
    *error = path + ": expected cameras with 9 parameters, found " +
             std::to_string(problem.camera_size);
    return false;
  }
  if (EndsWith(path, ".npz")) {
    return WriteBalNpz(path, problem, error);
  }
  TextWriter writer(path);
  writer.Number(problem.num_cameras()) << " ";
  writer.Number(problem.num_points()) << " ";
  writer.Number(problem.num_observations()) << "\n";
  for (int64_t i = 0; i < problem.num_observations(); ++i) {
    writer.Number(problem.camera_index[i]) << " ";
    writer.Number(problem.point_index[i]) << " ";
    writer.Number(problem.observations[2 * i]) << " ";
    writer.Number(problem.observations[2 * i + 1]) << "\n";
  }
  for (const double parameter : problem.cameras) {
    writer.Number(parameter) << "\n";
  }
  for (const double coordinate : problem.points) {
    writer.Number(coordinate) << "\n";
  }
  return writer.Close(error);
}

bool WritePlyFile(const std::string& path,
                  const std::vector<double>& camera_centers,
                  const std::vector<double>& points,
                  std::string* error) {
  TextWriter writer(path);
  writer << "ply\nformat ascii 1.0\nelement vertex ";
  writer.Number((camera_centers.size() + points.size()) / 3);
  writer << "\nproperty float x\nproperty float y\nproperty float z\n"
            "property uchar red\nproperty uchar green\nproperty uchar blue\n"
            "end_header\n";
  const auto write_vertices = [&writer](const std::vector<double>& xyz,
                                        const char* color) {
    for (size_t i = 0; i < xyz.size(); ++i) {
      writer.Number(static_cast<float>(xyz[i]));
      writer << (i % 3 == 2 ? color : " ");
    }
  };
  write_vertices(camera_centers, " 0 255 0\n");
  write_vertices(points, " 255 255 255\n");
  return writer.Close(error);
}

bool WriteTextFile(const std::string& path,
                   const std::string& text,
                   std::string* error) {
  TextWriter writer(path);
  writer << text;
  return writer.Close(error);
}

}  // namespace ceres_ext::bal
