// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// The common part of the tests of problem_io and examples/bal: the real
// problems, random ones, and the cost of a problem by independent code.

#ifndef TESTS_BAL_BAL_TEST_UTIL_H_
#define TESTS_BAL_BAL_TEST_UTIL_H_

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "problem_io/bal_problem.h"

namespace ceres_ext::bal {

// Path of a file of the BAL data set, "" if it is not available. Looked for in
// the folder that the environment variable CERES_EXT_BAL_DIR names, in
// ../shared/data/bal beside the source tree and, for dubrovnik-16, in the data
// of the Ceres installation.
inline std::string FindBalFile(const std::string& name) {
  std::vector<std::string> paths = {std::string(CERES_EXT_TEST_SOURCE_DIR) +
                                    "/../shared/data/bal/" + name};
  if (const char* folder = std::getenv("CERES_EXT_BAL_DIR")) {
    paths.insert(paths.begin(), std::string(folder) + "/" + name);
  }
  if (name == "dubrovnik-16-22106-pre.txt.bz2") {
    paths.push_back(std::string(CERES_EXT_TEST_CERES_PREFIX) +
                    "/data/problem-16-22106-pre.txt");
  }
  for (const std::string& path : paths) {
    if (std::filesystem::exists(path)) {
      return path;
    }
  }
  return "";
}

inline std::string SkippedForLackOf(const std::string& name) {
  return "skipped: no " + name +
         " (set CERES_EXT_BAL_DIR to a folder that has it)";
}

inline std::string TempPath(const std::string& name) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  std::string path = std::string(test->test_suite_name()) + "_" + test->name() +
                     "_" + std::to_string(getpid()) + "_" + name;
  for (char& c : path) {
    c = c == '/' ? '_' : c;
  }
  return ::testing::TempDir() + path;
}

inline std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

inline void WriteBytes(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), bytes.size());
  ASSERT_TRUE(file.good()) << path;
}

// Doubles of all magnitudes, with all signs and special bit patterns.
inline BalProblem RandomProblem(int num_cameras,
                                int num_points,
                                int num_observations) {
  std::mt19937_64 random(7);
  const auto any_finite = [&random] {
    for (;;) {
      const uint64_t bits = random();
      double value;
      std::memcpy(&value, &bits, sizeof(value));
      if (std::isfinite(value)) {
        return value;
      }
    }
  };
  BalProblem problem;
  for (int i = 0; i < num_observations; ++i) {
    problem.camera_index.push_back(random() % num_cameras);
    problem.point_index.push_back(random() % num_points);
    problem.observations.push_back(any_finite());
    problem.observations.push_back(any_finite());
  }
  for (int i = 0; i < 9 * num_cameras; ++i) {
    problem.cameras.push_back(any_finite());
  }
  for (int i = 0; i < 3 * num_points; ++i) {
    problem.points.push_back(any_finite());
  }
  const double kSpecial[] = {0.0,
                             -0.0,
                             1.0 / 3.0,
                             std::numeric_limits<double>::max(),
                             std::numeric_limits<double>::min(),
                             std::numeric_limits<double>::denorm_min(),
                             -std::numeric_limits<double>::denorm_min()};
  std::copy(std::begin(kSpecial), std::end(kSpecial), problem.cameras.begin());
  return problem;
}

template <typename Array>
void ExpectSameBits(const Array& a, const Array& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(double)), 0);
}

inline void ExpectSameProblem(const BalProblem& a, const BalProblem& b) {
  EXPECT_EQ(a.camera_size, b.camera_size);
  EXPECT_EQ(a.camera_index, b.camera_index);
  EXPECT_EQ(a.point_index, b.point_index);
  ExpectSameBits(a.observations, b.observations);
  ExpectSameBits(a.cameras, b.cameras);
  ExpectSameBits(a.points, b.points);
}

// Half the sum of squared residuals, in long double and from the formulas of
// bal_problem.h: R X = X cos a + (k x X) sin a + k (k.X) (1 - cos a), and for
// quaternions R X = X + 2 w (v x X) + 2 v x (v x X) with |(w, v)| = 1.
inline double PlainCost(const BalProblem& problem) {
  using Real = long double;
  const auto cross = [](const Real* a, const Real* b, Real* c) {
    c[0] = a[1] * b[2] - a[2] * b[1];
    c[1] = a[2] * b[0] - a[0] * b[2];
    c[2] = a[0] * b[1] - a[1] * b[0];
  };
  Real cost = 0;
  for (int64_t i = 0; i < problem.num_observations(); ++i) {
    const double* camera =
        problem.cameras.data() +
        int64_t{problem.camera_index[i]} * problem.camera_size;
    const double* point =
        problem.points.data() + int64_t{problem.point_index[i]} * 3;
    const Real X[3] = {point[0], point[1], point[2]};
    Real P[3];
    if (problem.camera_size == 9) {
      const Real angle =
          std::sqrt(Real{camera[0]} * camera[0] + Real{camera[1]} * camera[1] +
                    Real{camera[2]} * camera[2]);
      Real k[3] = {0, 0, 0};
      for (int j = 0; j < 3 && angle > 0; ++j) {
        k[j] = camera[j] / angle;
      }
      Real kX[3];
      cross(k, X, kX);
      const Real dot = k[0] * X[0] + k[1] * X[1] + k[2] * X[2];
      for (int j = 0; j < 3; ++j) {
        P[j] = X[j] * std::cos(angle) + kX[j] * std::sin(angle) +
               k[j] * dot * (1 - std::cos(angle));
      }
    } else {
      Real norm = 0;
      for (int j = 0; j < 4; ++j) {
        norm += Real{camera[j]} * camera[j];
      }
      norm = std::sqrt(norm);
      const Real w = camera[0] / norm;
      const Real v[3] = {camera[1] / norm, camera[2] / norm, camera[3] / norm};
      Real vX[3];
      Real vvX[3];
      cross(v, X, vX);
      cross(v, vX, vvX);
      for (int j = 0; j < 3; ++j) {
        P[j] = X[j] + 2 * w * vX[j] + 2 * vvX[j];
      }
    }
    const double* t = camera + problem.camera_size - 6;
    const Real x = -(P[0] + t[0]) / (P[2] + t[2]);
    const Real y = -(P[1] + t[1]) / (P[2] + t[2]);
    const Real r2 = x * x + y * y;
    const Real scale = t[3] * (1 + t[4] * r2 + t[5] * r2 * r2);
    const Real dx = scale * x - problem.observations[2 * i];
    const Real dy = scale * y - problem.observations[2 * i + 1];
    cost += (dx * dx + dy * dy) / 2;
  }
  return static_cast<double>(cost);
}

}  // namespace ceres_ext::bal

#endif  // TESTS_BAL_BAL_TEST_UTIL_H_
