// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Writes a seed corpus for colmap_reader_fuzzer into a folder that exists:
// small models, as text and binary, with rigs and without.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "problem_io/colmap_model.h"
#include "problem_io/colmap_writer.h"
#include "tests/fuzz/colmap_fuzz_input.h"

namespace ceres_ext::colmap {
namespace {

Model SmallModel(bool has_rigs) {
  Model model;
  for (const char* name : {"PINHOLE", "SIMPLE_RADIAL"}) {
    const auto i = static_cast<uint32_t>(model.cameras.size());
    model.cameras.push_back(
        {i + 1, FindCameraModel(name), 640, 480, {500.5, 320, 240, 0.125}});
    model.images.push_back({i + 7,
                            static_cast<int32_t>(i),
                            {0.5, -0.5, 0.5, 0.5, 1.0, 2.0, 3.0},
                            "image.png",
                            2 * i,
                            2 * i + 2});
    model.points2d.insert(model.points2d.end(), {1.5, 2.5, 10.0, 20.0});
    model.point_index.insert(model.point_index.end(), {0, i == 0 ? -1 : 1});
    model.points.push_back(
        {100 + int64_t{i}, {1.0, -2.0, 1e20}, -1.0, {255, 0, 17}, 0, 0});
    if (has_rigs) {
      model.rigs.push_back({i + 3, static_cast<int32_t>(i)});
      model.frames.push_back(
          {i + 5, static_cast<int32_t>(i), {static_cast<int32_t>(i)}});
      // The second rig has the first camera as another sensor.
      if (i == 1) {
        model.rigs[1].sensors = {
            {0, true, {0.5, 0.5, 0.5, 0.5, 1.0, 2.0, 3.0}}};
      }
    }
  }
  SetTracks(&model);
  return model;
}

int WriteSeeds(const std::string& folder) {
  for (const ModelFormat format : {MODEL_TEXT, MODEL_BINARY}) {
    for (const bool has_rigs : {false, true}) {
      Model model = SmallModel(has_rigs);
      model.format = format;
      const std::string name = std::string(format == MODEL_TEXT ? "t" : "b") +
                               (has_rigs ? "_rigs" : "");
      const std::string files = folder + "/files";
      std::string error;
      if (!WriteModel(files, model, &error)) {
        std::fprintf(stderr, "colmap_reader_seeds: %s\n", error.c_str());
        return 1;
      }
      std::ofstream(folder + "/" + name, std::ios::binary)
          << Pack(files, format == MODEL_BINARY);
      std::filesystem::remove_all(files);
    }
  }
  return 0;
}

}  // namespace
}  // namespace ceres_ext::colmap

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: colmap_reader_seeds FOLDER\n");
    return 1;
  }
  return ceres_ext::colmap::WriteSeeds(argv[1]);
}
