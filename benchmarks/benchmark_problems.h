// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The observations in the problems of operations_benchmark. The same problem on
// every computer.
#ifndef CERES_EXT_BENCHMARKS_BENCHMARK_PROBLEMS_H_
#define CERES_EXT_BENCHMARKS_BENCHMARK_PROBLEMS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace ceres_ext {

struct BenchmarkProblem {
  int32_t num_cameras = 0;
  int32_t num_points = 0;
  // For each observation.
  std::vector<int32_t> camera;
  std::vector<int32_t> point;
};

// name, counts scaled by fraction:
//   sequence  final-13682's size (13,682 cameras, 4,456,117 points, 28,987,644
//             observations), points clustered as those of a long sequence are;
//             at least 200 cameras
//   city      the same size, points of bal_generate, seen in up to eight laps
//   shapes    1,000 images (at least 30), 5,000,000 observations, points seen
//             by 2 to 12 images that are near each other, in the order of the
//             points
//   a size of bal_generate's --like, as city
// Points and pairs of all but shapes are in random order. Empty, and a sentence
// in *error, where there is no such problem.
BenchmarkProblem MakeBenchmarkProblem(const std::string& name,
                                      double fraction,
                                      std::string* error);

}  // namespace ceres_ext

#endif  // CERES_EXT_BENCHMARKS_BENCHMARK_PROBLEMS_H_
