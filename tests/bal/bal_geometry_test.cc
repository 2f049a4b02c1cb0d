// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "examples/bal/bal_geometry.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "problem_io/bal_problem.h"
#include "problem_io/bal_synthetic.h"
#include "tests/bal/bal_test_util.h"
#include "tests/bal/synthetic_scene.h"

namespace ceres_ext::bal {
namespace {

constexpr double kEpsilon = 2.220446049250313e-16;

BalProblem MakeProblem() {
  return MakeScene(OptionsOfSize(30, 1000, 4000)).start;
}

// One camera at angle-axis w and translation t, one point.
BalProblem OneCamera(double wx, double wy, double wz) {
  BalProblem problem;
  problem.camera_index = {0};
  problem.point_index = {0};
  problem.observations = {1.0, 2.0};
  problem.cameras = {wx, wy, wz, 0.5, -0.25, -8.0, 900.0, 0.1, -0.01};
  problem.points = {0.3, -0.2, 1.5};
  return problem;
}

void ExpectNear(const std::vector<double>& a,
                const std::vector<double>& b,
                double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i], b[i], tolerance) << i;
  }
}

TEST(BalGeometry, QuaternionOfAQuarterTurn) {
  BalProblem problem = OneCamera(0.0, 0.0, std::acos(-1.0) / 2.0);
  ToQuaternions(&problem);
  EXPECT_EQ(problem.camera_size, 10);
  EXPECT_EQ(problem.num_cameras(), 1);
  const double half = std::sqrt(0.5);
  ExpectNear(problem.cameras,
             {half, 0.0, 0.0, half, 0.5, -0.25, -8.0, 900.0, 0.1, -0.01},
             kEpsilon);
}

TEST(BalGeometry, QuaternionsAndBack) {
  for (const double angle : {0.0, 1e-300, 1e-12, 1e-8, 0.5, 3.0, 3.1415926}) {
    const BalProblem original =
        OneCamera(angle * 2.0 / 3.0, -angle / 3.0, angle * 2.0 / 3.0);
    BalProblem problem = original;
    ToQuaternions(&problem);
    ToAngleAxes(&problem);
    EXPECT_EQ(problem.camera_size, 9);
    // sin, cos, atan2 and a few products: some ten roundings of numbers up to
    // pi.
    ExpectNear(problem.cameras, original.cameras, 10 * kEpsilon * 3.2);
  }
}

TEST(BalGeometry, QuaternionsKeepTheCost) {
  BalProblem problem = MakeProblem();
  const double cost = PlainCost(problem);
  ToQuaternions(&problem);
  // A rotation off by some 10 eps moves a projection by 10 eps f tan, which is
  // 10 eps 1e3 = 2e-12 pixels; residuals are of the order of 10 pixels.
  EXPECT_NEAR(PlainCost(problem), cost, 1e-11 * cost);
  const BalProblem quaternions = problem;
  ToQuaternions(&problem);  // a second time: nothing
  EXPECT_EQ(problem.cameras, quaternions.cameras);
  ToAngleAxes(&problem);
  EXPECT_NEAR(PlainCost(problem), cost, 1e-11 * cost);
}

TEST(BalGeometry, CentersAreMappedToTheOrigin) {
  for (const bool quaternions : {false, true}) {
    // R c + t = 0: a point at the center has P = 0.
    BalProblem problem = OneCamera(0.0, 0.0, std::acos(-1.0) / 2.0);
    if (quaternions) {
      ToQuaternions(&problem);
    }
    // R: x -> y, y -> -x. c = -R't = -(-0.25, -0.5, -8)
    ExpectNear(CameraCenters(problem), {0.25, 0.5, 8.0}, 20 * kEpsilon);
  }
}

TEST(BalGeometry, NormalizeKeepsTheCostAndComesBack) {
  for (const bool quaternions : {false, true}) {
    BalProblem problem = MakeProblem();
    if (quaternions) {
      ToQuaternions(&problem);
    }
    const BalProblem original = problem;
    const double cost = PlainCost(problem);
    const Similarity frame = Normalize(&problem);
    // The city is some 100 m wide, points are 10 m from cameras: a relative
    // error of 10 * 10 eps in P.
    EXPECT_NEAR(PlainCost(problem), cost, 1e-10 * cost);

    for (int k = 0; k < 3; ++k) {
      std::vector<double> values;
      values.reserve(problem.num_points());
      for (int32_t i = 0; i < problem.num_points(); ++i) {
        values.push_back(problem.points[3 * i + k]);
      }
      std::sort(values.begin(), values.end());
      EXPECT_EQ(values[values.size() / 2], 0.0);
    }
    std::vector<double> distances;
    distances.reserve(problem.num_points());
    for (int64_t i = 0; i < problem.num_points(); ++i) {
      const double* X = problem.points.data() + 3 * i;
      distances.push_back(std::abs(X[0]) + std::abs(X[1]) + std::abs(X[2]));
    }
    std::sort(distances.begin(), distances.end());
    EXPECT_NEAR(distances[distances.size() / 2], 100.0, 1e-12 * 100.0);

    Undo(frame, &problem);
    // Coordinates up to 1e3 m through a few roundings.
    ExpectNear(problem.points, original.points, 10 * kEpsilon * 1e3);
    ExpectNear(problem.cameras, original.cameras, 10 * kEpsilon * 1e3);
  }
}

// The middle of sorted coordinates, whatever their number, signs and sizes:
// few of them, more than one thread takes, all but some the same.
TEST(BalGeometry, NormalizeFindsMedians) {
  std::mt19937_64 random(1);
  for (const int64_t num_points : {2, 3, 4, 1000, 70000, 300001}) {
    for (const int exponent : {0, 300}) {
      BalProblem problem = OneCamera(0.1, 0.2, 0.3);
      problem.points.resize(3 * num_points);
      for (int64_t i = 0; i < 3 * num_points; ++i) {
        const auto bits = static_cast<int64_t>(random());
        const double size =
            std::ldexp(1.0 + 1e-19 * std::abs(static_cast<double>(bits)),
                       exponent == 0 ? 0 : static_cast<int>(bits % exponent));
        problem.points[i] = i % 3 == 0 ? size : bits % 2 == 0 ? size : -size;
        if (i % 3 == 2 && i % 5 != 0) {
          problem.points[i] = i % 2 == 0 ? 0.0 : -0.0;
        }
      }
      double median[3];
      for (int k = 0; k < 3; ++k) {
        std::vector<double> values;
        for (int64_t i = 0; i < num_points; ++i) {
          values.push_back(problem.points[3 * i + k]);
        }
        std::sort(values.begin(), values.end());
        median[k] = values[num_points / 2];
      }
      const Similarity frame = Normalize(&problem);
      for (int k = 0; k < 3; ++k) {
        EXPECT_EQ(frame.origin[k], median[k]) << num_points << ", " << k;
      }
    }
  }
}

TEST(BalGeometry, NormalizeLeavesAPointAlone) {
  BalProblem problem = OneCamera(0.1, 0.2, 0.3);
  const BalProblem original = problem;
  const Similarity frame = Normalize(&problem);
  EXPECT_EQ(frame.scale, 1.0);
  EXPECT_EQ(problem.points, original.points);
  EXPECT_EQ(problem.cameras, original.cameras);
}

double Deviation(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += (a[i] - b[i]) * (a[i] - b[i]);
  }
  return std::sqrt(sum / a.size());
}

TEST(BalGeometry, PerturbMovesWhatItIsAskedTo) {
  for (const bool quaternions : {false, true}) {
    BalProblem original = MakeProblem();
    if (quaternions) {
      ToQuaternions(&original);
    }
    BalProblem problem = original;
    Perturb(0.0, 0.0, 0.0, 1, &problem);
    EXPECT_EQ(problem.points, original.points);
    EXPECT_EQ(problem.cameras, original.cameras);

    Perturb(0.0, 0.0, 0.5, 1, &problem);
    EXPECT_EQ(problem.cameras, original.cameras);
    // 3000 samples: the deviation is known to 1 / sqrt(6000) = 1.3 %, and
    // five of these are 6.5 %.
    EXPECT_NEAR(Deviation(problem.points, original.points), 0.5, 0.033);
    BalProblem same = original;
    Perturb(0.0, 0.0, 0.5, 1, &same);
    EXPECT_EQ(same.points, problem.points);
    Perturb(0.0, 0.0, 0.5, 2, &same);
    EXPECT_NE(same.points, problem.points);

    // A rotation about the center.
    problem = original;
    Perturb(0.01, 0.0, 0.0, 1, &problem);
    EXPECT_EQ(problem.points, original.points);
    EXPECT_NE(problem.cameras, original.cameras);
    ExpectNear(CameraCenters(problem), CameraCenters(original), 1e-11);
    ToAngleAxes(&problem);
    BalProblem angle_axes = original;
    ToAngleAxes(&angle_axes);
    std::vector<double> now;
    std::vector<double> before;
    for (int i = 0; i < 30; ++i) {
      for (int k = 0; k < 3; ++k) {
        now.push_back(problem.cameras[9 * i + k]);
        before.push_back(angle_axes.cameras[9 * i + k]);
      }
    }
    // 90 samples: 7.5 %, five times.
    EXPECT_NEAR(Deviation(now, before), 0.01, 0.0038);

    problem = original;
    Perturb(0.0, 0.25, 0.0, 1, &problem);
    now.clear();
    before.clear();
    const int size = original.camera_size;
    for (int i = 0; i < 30; ++i) {
      for (int k = 0; k < size; ++k) {
        const bool translation = k >= size - 6 && k < size - 3;
        const double a = problem.cameras[size * i + k];
        const double b = original.cameras[size * i + k];
        if (translation) {
          now.push_back(a);
          before.push_back(b);
        } else {
          EXPECT_EQ(a, b);
        }
      }
    }
    EXPECT_NEAR(Deviation(now, before), 0.25, 0.095);
  }
}

}  // namespace
}  // namespace ceres_ext::bal
