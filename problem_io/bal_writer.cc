// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "problem_io/bal_writer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "problem_io/bal_npz.h"
#include "problem_io/for_each_chunk.h"
#include "problem_io/safe_file.h"
#include "problem_io/text_writer.h"

namespace ceres_ext::bal {
namespace {

template <typename T>
void AppendNumber(T value, char end, std::string* text) {
  char number[32];
  *text += std::string_view(
      number,
      std::to_chars(number, number + sizeof(number), value).ptr - number);
  *text += end;
}

// Writes what append(i, &text) appends for i = 0, ..., n - 1, in this order but
// made by all threads.
template <typename Function>
void WriteItems(int64_t n, const Function& append, TextWriter* writer) {
  constexpr int64_t kNumItems = 1 << 13;  // of a part
  const int64_t num_threads =
      std::min<int64_t>(NumThreads(0), 1 + n / kNumItems);
  std::vector<std::string> parts(4 * num_threads);
  const auto num_parts = static_cast<int64_t>(parts.size());
  for (int64_t begin = 0; begin < n; begin += num_parts * kNumItems) {
    ForEachChunk(static_cast<int>(num_threads),
                 num_parts,
                 [&](int, int64_t first, int64_t last) {
                   for (int64_t part = first; part < last; ++part) {
                     parts[part].clear();
                     const int64_t part_begin = begin + part * kNumItems;
                     const int64_t part_end =
                         std::min(n, part_begin + kNumItems);
                     for (int64_t i = part_begin; i < part_end; ++i) {
                       append(i, &parts[part]);
                     }
                   }
                 });
    for (const std::string& part : parts) {
      *writer << part;
    }
  }
}

// An octahedron whose faces are four triangles each.
struct Sphere {
  Sphere() {
    for (size_t axis = 0; axis < 3; ++axis) {
      for (const double sign : {1.0, -1.0}) {
        vertices.emplace_back();
        vertices.back()[axis] = sign;
      }
    }
    // Vertex 2 a is on axis a, 2 a + 1 opposite; one of each axis is a face.
    for (size_t octant = 0; octant < 8; ++octant) {
      const size_t x = octant & 1;
      size_t y = 2 + (octant >> 1 & 1);
      size_t z = 4 + (octant >> 2);
      // So that all are seen from outside with their vertices turning left.
      if ((x + y + z) % 2 != 0) {
        std::swap(y, z);
      }
      const size_t xy = Middle(x, y);
      const size_t yz = Middle(y, z);
      const size_t zx = Middle(z, x);
      faces.insert(faces.end(),
                   {{x, xy, zx}, {y, yz, xy}, {z, zx, yz}, {xy, yz, zx}});
    }
  }
  size_t Middle(size_t a, size_t b) {
    std::array<double, 3> middle = {};
    for (size_t i = 0; i < 3; ++i) {
      middle[i] = std::sqrt(0.5) * (vertices[a][i] + vertices[b][i]);
    }
    const auto found = std::find(vertices.begin(), vertices.end(), middle);
    const auto at = static_cast<size_t>(found - vertices.begin());
    if (found == vertices.end()) {
      vertices.push_back(middle);
    }
    return at;
  }
  std::vector<std::array<double, 3>> vertices;
  std::vector<std::array<size_t, 3>> faces;
};

}  // namespace

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
  try {
    WriteItems(
        problem.num_observations(),
        [&problem](int64_t i, std::string* text) {
          AppendNumber(problem.camera_index[i], ' ', text);
          AppendNumber(problem.point_index[i], ' ', text);
          AppendNumber(problem.observations[2 * i], ' ', text);
          AppendNumber(problem.observations[2 * i + 1], '\n', text);
        },
        &writer);
    for (const std::vector<double>* values :
         {&problem.cameras, &problem.points}) {
      WriteItems(
          static_cast<int64_t>(values->size()),
          [values](int64_t i, std::string* text) {
            AppendNumber((*values)[i], '\n', text);
          },
          &writer);
    }
  } catch (const std::bad_alloc&) {
    *error = CannotWrite(path, "too little memory");
    return false;
  }
  return writer.Close(error);
}

bool WritePlyFile(const std::string& path,
                  const std::vector<double>& camera_centers,
                  const std::vector<double>& points,
                  const std::vector<Ellipsoid>& ellipsoids,
                  std::string* error) {
  const Sphere sphere;
  TextWriter writer(path);
  writer << "ply\nformat ascii 1.0\nelement vertex ";
  writer.Number((camera_centers.size() + points.size()) / 3 +
                sphere.vertices.size() * ellipsoids.size());
  writer << "\nproperty float x\nproperty float y\nproperty float z\n"
            "property uchar red\nproperty uchar green\nproperty uchar blue\n";
  if (!ellipsoids.empty()) {
    writer << "element face ";
    writer.Number(sphere.faces.size() * ellipsoids.size());
    writer << "\nproperty list uchar int vertex_indices\n";
  }
  writer << "end_header\n";
  const auto write_vertices = [&writer](const std::vector<double>& xyz,
                                        const char* color) {
    for (size_t i = 0; i < xyz.size(); ++i) {
      writer.Number(static_cast<float>(xyz[i]));
      writer << (i % 3 == 2 ? color : " ");
    }
  };
  write_vertices(camera_centers, " 0 255 0\n");
  write_vertices(points, " 255 255 255\n");
  for (const Ellipsoid& ellipsoid : ellipsoids) {
    std::vector<double> xyz;
    for (const auto& vertex : sphere.vertices) {
      for (size_t i = 0; i < 3; ++i) {
        xyz.push_back(ellipsoid.center[i] + vertex[0] * ellipsoid.semi_axes[i] +
                      vertex[1] * ellipsoid.semi_axes[3 + i] +
                      vertex[2] * ellipsoid.semi_axes[6 + i]);
      }
    }
    write_vertices(xyz, " 255 0 0\n");
  }
  size_t first = (camera_centers.size() + points.size()) / 3;
  for (size_t e = 0; e < ellipsoids.size(); ++e) {
    for (const auto& face : sphere.faces) {
      writer << "3";
      for (const size_t vertex : face) {
        writer << " ";
        writer.Number(first + vertex);
      }
      writer << "\n";
    }
    first += sphere.vertices.size();
  }
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
