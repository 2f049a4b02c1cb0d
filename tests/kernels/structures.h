// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Which camera sees which point, for tests of operations on observations.
#ifndef CERES_EXT_TESTS_KERNELS_STRUCTURES_H_
#define CERES_EXT_TESTS_KERNELS_STRUCTURES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "cuda_kernels/structure/observation_index.h"
#include "gtest/gtest.h"

namespace ceres_ext::kernels {

// The observations.
struct Structure {
  std::string name;
  int32_t num_cameras = 0;
  int32_t num_points = 0;
  std::vector<int32_t> camera;
  std::vector<int32_t> point;

  ObservationPairs pairs() const {
    return {num_cameras,
            num_points,
            static_cast<int64_t>(camera.size()),
            camera.data(),
            point.data()};
  }
  void Add(int32_t c, int32_t p) {
    camera.push_back(c);
    point.push_back(p);
  }
  void Shuffle(unsigned seed) {
    std::vector<size_t> order(camera.size());
    for (size_t i = 0; i < order.size(); ++i) {
      order[i] = i;
    }
    std::mt19937 generator(seed);
    std::shuffle(order.begin(), order.end(), generator);
    const Structure old = *this;
    for (size_t i = 0; i < order.size(); ++i) {
      camera[i] = old.camera[order[i]];
      point[i] = old.point[order[i]];
    }
  }
};

inline void PrintTo(const Structure& structure, std::ostream* os) {
  *os << structure.name;
}

// Every point is seen by `length` distinct cameras at most.
inline Structure RandomStructure(const std::string& name,
                                 int32_t num_cameras,
                                 int32_t num_points,
                                 int length,
                                 unsigned seed) {
  Structure structure{name, num_cameras, num_points, {}, {}};
  std::mt19937 generator(seed);
  std::vector<int32_t> cameras(num_cameras);
  for (int32_t c = 0; c < num_cameras; ++c) {
    cameras[c] = c;
  }
  for (int32_t p = 0; p < num_points; ++p) {
    std::shuffle(cameras.begin(), cameras.end(), generator);
    for (int j = 0; j < std::min<int>(length, num_cameras); ++j) {
      structure.Add(cameras[j], p);
    }
  }
  structure.Shuffle(seed);
  return structure;
}

// Structures at the edges of what an index may be. Every camera and point that
// has observations has enough of them for a full-rank block.
inline std::vector<Structure> EdgeStructures() {
  std::vector<Structure> all;
  all.push_back(RandomStructure("random", 6, 40, 3, 1));
  // More than one chunk of points, slots of a camera in several of them.
  all.push_back(RandomStructure("chunks", 8, 130, 5, 2));
  // Points with 0, 1, 31, 32 and 33 observations; camera 0 sees all others.
  Structure lengths{"lengths", 33, 15, {}, {}};
  const int kLengths[] = {0, 1, 31, 32, 33};
  for (int32_t p = 0; p < lengths.num_points; ++p) {
    for (int32_t c = 0; c < kLengths[p % 5]; ++c) {
      lengths.Add(c, p);
    }
  }
  lengths.Shuffle(3);
  all.push_back(lengths);
  // First, inner and last camera and point without an observation.
  Structure empty = RandomStructure("empty_blocks", 4, 30, 3, 4);
  for (int32_t& c : empty.camera) {
    c = c < 2 ? c + 1 : c + 2;
  }
  for (int32_t& p : empty.point) {
    p = p < 15 ? p + 1 : p + 2;
  }
  empty.num_cameras = 7;
  empty.num_points = 33;
  all.push_back(empty);
  // Pairs that repeat, up to three times.
  Structure repeated = RandomStructure("repeated", 5, 30, 3, 5);
  const size_t n = repeated.camera.size();
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < i % 3; ++j) {
      repeated.Add(repeated.camera[i], repeated.point[i]);
    }
  }
  repeated.Shuffle(5);
  all.push_back(repeated);
  all.push_back(RandomStructure("one_camera", 1, 25, 1, 6));
  all.push_back(RandomStructure("one_point", 20, 1, 20, 7));
  all.push_back(Structure{"no_observation", 3, 4, {}, {}});
  all.push_back(Structure{"nothing", 0, 0, {}, {}});
  return all;
}

inline std::string StructureName(
    const testing::TestParamInfo<Structure>& info) {
  return info.param.name;
}

}  // namespace ceres_ext::kernels

#endif  // CERES_EXT_TESTS_KERNELS_STRUCTURES_H_
