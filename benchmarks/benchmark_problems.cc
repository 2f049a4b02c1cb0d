// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
#include "benchmarks/benchmark_problems.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "problem_io/bal_synthetic.h"

namespace ceres_ext {
namespace {

// A point belongs to one of num_cameras / 70 places and is seen from cameras
// around it, 2 to 60 of them with a heavy tail.
BenchmarkProblem MakeSequence(double fraction) {
  BenchmarkProblem problem;
  problem.num_cameras = std::max(200, static_cast<int>(13682 * fraction));
  problem.num_points = static_cast<int>(4456117 * fraction);
  const int64_t num_observations = static_cast<int64_t>(28987644 * fraction);
  std::mt19937 random(7);
  std::uniform_real_distribution<double> uniform(0, 1);
  const int num_places = problem.num_cameras / 70;
  std::vector<int32_t> label(static_cast<size_t>(problem.num_points));
  for (int32_t i = 0; i < problem.num_points; ++i) {
    label[static_cast<size_t>(i)] = i;
  }
  std::shuffle(label.begin(), label.end(), random);
  std::vector<int> length(static_cast<size_t>(problem.num_points));
  int64_t total = 0;
  for (int& n : length) {
    n = std::min(60,
                 2 + static_cast<int>(
                         2.3 * std::pow(uniform(random) + 1e-4, -0.62) - 0.5));
    total += n;
  }
  while (total != num_observations) {
    int& n = length[random() % length.size()];
    const int change = total < num_observations ? 1 : -1;
    if (n + change >= 2 && n + change <= 60) {
      n += change;
      total += change;
    }
  }
  std::vector<std::pair<int32_t, int32_t>> pairs;
  pairs.reserve(static_cast<size_t>(num_observations));
  std::vector<int32_t> track;
  for (int32_t i = 0; i < problem.num_points; ++i) {
    const int n = length[static_cast<size_t>(i)];
    const int place =
        static_cast<int>(int64_t{i} * num_places / problem.num_points);
    const int base = place * 70 + static_cast<int>(uniform(random) * 30);
    track.clear();
    while (static_cast<int>(track.size()) < n) {
      int32_t c = base + static_cast<int>(uniform(random) * (40 + n));
      if (c >= problem.num_cameras) {
        c = problem.num_cameras - 1 -
            static_cast<int>(uniform(random) * (40 + n));
      }
      if (std::find(track.begin(), track.end(), c) == track.end()) {
        track.push_back(c);
      }
    }
    for (const int32_t c : track) {
      pairs.emplace_back(c, label[static_cast<size_t>(i)]);
    }
  }
  std::shuffle(pairs.begin(), pairs.end(), random);
  problem.camera.reserve(pairs.size());
  problem.point.reserve(pairs.size());
  for (const auto& [c, p] : pairs) {
    problem.camera.push_back(c);
    problem.point.push_back(p);
  }
  return problem;
}

// Tracks of 2 to 12 images among the 24 that follow the first.
BenchmarkProblem MakeShapes(double fraction) {
  BenchmarkProblem problem;
  problem.num_cameras = std::max(30, static_cast<int>(1000 * fraction));
  const int64_t num_observations = static_cast<int64_t>(5000000 * fraction);
  std::mt19937 random(3);
  while (static_cast<int64_t>(problem.camera.size()) < num_observations) {
    const int32_t point = problem.num_points++;
    int32_t image = static_cast<int32_t>(random() % problem.num_cameras);
    const int length = 2 + static_cast<int>(random() % 11);
    for (int i = 0; i < length; ++i) {
      problem.camera.push_back(image % problem.num_cameras);
      problem.point.push_back(point);
      image += 1 + static_cast<int32_t>(random() % 2);
    }
  }
  return problem;
}

// A size of bal_generate's.
BenchmarkProblem MakeCity(const std::string& size,
                          double fraction,
                          std::string* error) {
  bal::SyntheticOptions options;
  if (!bal::FindBalSize(size, &options)) {
    *error =
        "sequence, city, shapes or a size of bal_generate was expected, "
        "not " +
        size + ".";
    return {};
  }
  options.num_cameras = static_cast<int32_t>(options.num_cameras * fraction);
  options.num_points = static_cast<int32_t>(options.num_points * fraction);
  options.num_observations =
      static_cast<int64_t>(options.num_observations * fraction);
  options.shuffle_points = true;
  options.order = bal::ORDER_SHUFFLED;
  bal::SyntheticProblem city;
  if (!bal::GenerateSynthetic(options, &city, error)) {
    return {};
  }
  const bal::BalProblem& start = city.start;
  return {options.num_cameras,
          options.num_points,
          {start.camera_index.begin(), start.camera_index.end()},
          {start.point_index.begin(), start.point_index.end()}};
}

}  // namespace

BenchmarkProblem MakeBenchmarkProblem(const std::string& name,
                                      double fraction,
                                      std::string* error) {
  if (name == "sequence") {
    return MakeSequence(fraction);
  }
  if (name == "shapes") {
    return MakeShapes(fraction);
  }
  return MakeCity(name == "city" ? "final-13682" : name, fraction, error);
}

}  // namespace ceres_ext
