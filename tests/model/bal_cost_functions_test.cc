// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/bal_cost_functions.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

#include "ceres/autodiff_cost_function.h"
#include "ceres/problem.h"
#include "ceres/solver.h"
#include "gtest/gtest.h"
#include "tests/model/bal_reference.h"

namespace ceres_ext {
namespace {

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
constexpr double kPi = 3.14159265358979323846;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// The accuracy that is promised, relative to the norm of a column of the
// problem's Jacobian: 450 eps. Rounding errors of an entry, in eps: coordinates
// in the camera's frame are off by about 4 (|R X| + |t|) and lie at a depth of
// |z|, here at least 0.5 with |R X| + |t| at most 20, so 160 for a point at
// 0.5 and x, y there, a few times that for derivatives of the distortion. The
// norm of a column is that of all 32 observations of the camera or point: an
// entry that cancels is not held against its own size.
constexpr double kJacobianTolerance = 1e-13;
constexpr int kNumObservations = 32;

template <int kCameraDim>
std::unique_ptr<ceres::CostFunction> CreateAnalytic(const Sample& sample) {
  const double x = sample.observation[0];
  const double y = sample.observation[1];
  return std::unique_ptr<ceres::CostFunction>(
      kCameraDim == 9 ? CreateBalReprojectionError(x, y)
                      : CreateBalReprojectionErrorQuaternion(x, y));
}

template <int kCameraDim>
std::unique_ptr<ceres::CostFunction> CreateAutodiff(const Sample& sample) {
  using Functor = JetReprojection<kCameraDim>;
  return std::make_unique<
      ceres::AutoDiffCostFunction<Functor, 2, kCameraDim, 3>>(
      new Functor{{sample.observation[0], sample.observation[1]}});
}

struct Evaluation {
  bool success = false;
  double residual[2] = {};
  std::vector<double> camera;
  std::vector<double> point;
};

Evaluation EvaluateCost(const ceres::CostFunction& cost_function,
                        const Sample& sample) {
  Evaluation result;
  result.camera.resize(2 * sample.camera.size());
  result.point.resize(6);
  const double* parameters[2] = {sample.camera.data(), sample.point.data()};
  double* jacobians[2] = {result.camera.data(), result.point.data()};
  result.success =
      cost_function.Evaluate(parameters, result.residual, jacobians);
  return result;
}

template <typename A, typename B>
void Append(const A& from, B* to) {
  to->insert(to->end(), from.begin(), from.end());
}

// A camera moved so that the point is at a place in front of it.
void PlaceCamera(const std::array<double, 3>& point,
                 SampleGenerator* generator,
                 std::vector<double>* camera) {
  // With t = 0, R X is the negative of the offset that PointAt would undo.
  std::vector<double> turned = *camera;
  const int t = static_cast<int>(camera->size()) - 6;
  double rotated[3];
  if (camera->size() == 9) {
    ceres::AngleAxisRotatePoint(camera->data(), point.data(), rotated);
  } else {
    ceres::QuaternionRotatePoint(camera->data(), point.data(), rotated);
  }
  const double depth = generator->Uniform(0.5, 10.0);
  const double place[3] = {depth * generator->Uniform(-1.0, 1.0),
                           depth * generator->Uniform(-1.0, 1.0),
                           -depth};
  for (int i = 0; i < 3; ++i) {
    (*camera)[t + i] = place[i] - rotated[i];
  }
}

enum class Reference { kLongDouble, kJet };

// A camera's columns over its observations and a point's over its.
template <int kCameraDim>
double MaxJacobianError(Reference reference,
                        double angle,
                        bool distortion,
                        SampleGenerator* generator) {
  std::vector<Sample> of_camera;
  of_camera.reserve(kNumObservations);
  const std::vector<double> camera =
      generator->Camera(kCameraDim, angle, distortion);
  for (int k = 0; k < kNumObservations; ++k) {
    of_camera.push_back(generator->Observe(camera));
  }
  std::vector<Sample> of_point;
  const std::array<double, 3> point = {generator->Uniform(-5.0, 5.0),
                                       generator->Uniform(-5.0, 5.0),
                                       generator->Uniform(-5.0, 5.0)};
  for (int k = 0; k < kNumObservations; ++k) {
    Sample sample;
    sample.camera = generator->Camera(kCameraDim, angle, distortion);
    PlaceCamera(point, generator, &sample.camera);
    sample.point = point;
    sample.observation = {0.0, 0.0};
    of_point.push_back(sample);
  }

  double worst = 0.0;
  for (const std::vector<Sample>* samples : {&of_camera, &of_point}) {
    std::vector<double> actual;
    std::vector<long double> expected;
    for (const Sample& sample : *samples) {
      const Evaluation analytic =
          EvaluateCost(*CreateAnalytic<kCameraDim>(sample), sample);
      EXPECT_TRUE(analytic.success);
      Linearization exact;
      if (reference == Reference::kLongDouble) {
        exact = LinearizeReference<kCameraDim>(sample);
      } else {
        const Evaluation jet =
            EvaluateCost(*CreateAutodiff<kCameraDim>(sample), sample);
        Append(jet.camera, &exact.camera);
        Append(jet.point, &exact.point);
      }
      const bool is_camera = samples == &of_camera;
      Append(is_camera ? analytic.camera : analytic.point, &actual);
      Append(is_camera ? exact.camera : exact.point, &expected);
    }
    // The reference normalises the quaternion and differentiates that: some 16
    // roundings.
    const int num_turning = kCameraDim == 10 && samples == &of_camera ? 4 : 0;
    const long double noise =
        16 * (reference == Reference::kJet
                  ? static_cast<long double>(kEpsilon)
                  : std::numeric_limits<long double>::epsilon());
    worst = std::max(
        worst,
        MaxColumnError(
            2 * kNumObservations, actual, expected, num_turning, noise));
  }
  return worst;
}

// ceres::Jet decides where it has the digits: at moderate angles, at 0 and for
// quaternions. Near 0 the chain rule through the unit axis w / theta cancels:
// measured against long double, the Jets' relative error is 1e-13 at an angle
// of 1e-4, 1e-9 and more at 1e-8, 1e-13 at 1e-12, and NaN if theta^2
// underflows; about 2 pi +- 1e-8 with the axis along a coordinate it is 1e-7.
// There, long double decides.
TEST(BalCostFunctions, JacobiansOfAngleAxisAgainstJet) {
  SampleGenerator generator(1);
  for (int k = 0; k < 200; ++k) {
    EXPECT_LE(MaxJacobianError<9>(Reference::kJet,
                                  generator.Uniform(0.1, 6.0),
                                  k % 4 != 0,
                                  &generator),
              kJacobianTolerance);
  }
  for (const double angle : {0.0, kPi - 1e-8, kPi, kPi + 1e-8, 4.0, 7.0}) {
    for (int k = 0; k < 20; ++k) {
      EXPECT_LE(
          MaxJacobianError<9>(Reference::kJet, angle, k % 4 != 0, &generator),
          kJacobianTolerance)
          << angle;
    }
  }
}

TEST(BalCostFunctions, JacobiansOfQuaternionAgainstJet) {
  SampleGenerator generator(2);
  for (int k = 0; k < 200; ++k) {
    EXPECT_LE(MaxJacobianError<10>(Reference::kJet,
                                   generator.Uniform(-7.0, 7.0),
                                   k % 4 != 0,
                                   &generator),
              kJacobianTolerance);
  }
  for (const double angle : {0.0, 1e-300, 1e-12, 1e-8, kPi, 2 * kPi}) {
    for (int k = 0; k < 20; ++k) {
      EXPECT_LE(
          MaxJacobianError<10>(Reference::kJet, angle, k % 4 != 0, &generator),
          kJacobianTolerance)
          << angle;
    }
  }
}

TEST(BalCostFunctions, JacobiansAgainstLongDouble) {
  if (!kLongDoubleIsWider) {
    GTEST_SKIP() << "skipped: long double has no more digits than double";
  }
  SampleGenerator generator(3);
  std::vector<double> angles = {0.0,
                                1e-300,
                                1e-160,
                                1e-150,
                                1e-12,
                                1e-8,
                                1e-4,
                                0.01,
                                1.0,
                                kPi - 1e-8,
                                kPi,
                                kPi + 1e-8,
                                2 * kPi - 1e-8,
                                2 * kPi,
                                2 * kPi + 1e-8,
                                7.0,
                                20.0};
  for (int k = 0; k < 40; ++k) {
    angles.push_back(generator.Uniform(0.0, 10.0));
  }
  for (const double angle : angles) {
    for (int k = 0; k < 8; ++k) {
      EXPECT_LE(MaxJacobianError<9>(
                    Reference::kLongDouble, angle, k % 4 != 0, &generator),
                kJacobianTolerance)
          << angle;
      EXPECT_LE(MaxJacobianError<10>(
                    Reference::kLongDouble, angle, k % 4 != 0, &generator),
                kJacobianTolerance)
          << angle;
    }
  }
}

// Close to the optical centre but with exact coordinates, so that no digit is
// lost before the model starts: camera at the origin, or R = I and t + X exact.
TEST(BalCostFunctions, JacobiansNearTheOpticalCentre) {
  if (!kLongDoubleIsWider) {
    GTEST_SKIP() << "skipped: long double has no more digits than double";
  }
  SampleGenerator generator(4);
  const auto check = [](const Sample& sample) {
    const Evaluation analytic =
        EvaluateCost(*CreateAnalytic<9>(sample), sample);
    const Linearization exact = LinearizeReference<9>(sample);
    EXPECT_TRUE(analytic.success);
    EXPECT_LE(MaxColumnError(2, analytic.point, exact.point),
              kJacobianTolerance);
    // The columns of rotation, translation and of f, k1, k2.
    EXPECT_LE(MaxColumnError(2, analytic.camera, exact.camera),
              kJacobianTolerance);
  };
  for (const double depth : {4e-9, -4e-9, 1e-30, -1e-30}) {
    for (int k = 0; k < 20; ++k) {
      Sample sample;
      sample.camera = generator.Camera(9, 0.0, true);
      for (int i = 0; i < 3; ++i) {
        sample.camera[3 + i] = 0.0;
      }
      sample.point = {0.9 * depth, 0.7 * depth, -depth};
      sample.observation = {1.0, 2.0};
      check(sample);
    }
  }
  for (const double depth : {4e-9, -4e-9}) {
    for (int k = 0; k < 20; ++k) {
      Sample sample;
      sample.camera = generator.Camera(9, 0.0, true);
      sample.point = {-sample.camera[3] + 0.9 * depth,
                      -sample.camera[4] + 0.7 * depth,
                      -sample.camera[5] - depth};
      sample.observation = {1.0, 2.0};
      check(sample);
    }
  }
}

TEST(BalCostFunctions, ResidualsAreThoseOfTheExampleFunctors) {
  SampleGenerator generator(5);
  const auto check = [](const Sample& sample,
                        const ceres::CostFunction& ours,
                        const ceres::CostFunction& stock) {
    double r[2];
    double s[2];
    const double* parameters[2] = {sample.camera.data(), sample.point.data()};
    ASSERT_TRUE(ours.Evaluate(parameters, r, nullptr));
    ASSERT_TRUE(stock.Evaluate(parameters, s, nullptr));
    // |d residual / d Xc| is that of the translation columns. Either side makes
    // errors in Xc of at most 8 eps (1 + angle) (|R X| + |t|), an angle being
    // rounded by 2 eps, and 4 eps of the prediction.
    const Evaluation e = EvaluateCost(ours, sample);
    const int dim = static_cast<int>(sample.camera.size());
    const double angle =
        dim == 9
            ? std::hypot(sample.camera[0], sample.camera[1], sample.camera[2])
            : 0.0;
    const double size =
        std::hypot(sample.point[0], sample.point[1], sample.point[2]) +
        std::hypot(sample.camera[dim - 6],
                   sample.camera[dim - 5],
                   sample.camera[dim - 4]);
    for (int i = 0; i < 2; ++i) {
      double slope = 0.0;
      for (int j = dim - 6; j < dim - 3; ++j) {
        slope += std::abs(e.camera[dim * i + j]);
      }
      const double prediction = std::abs(s[i] + sample.observation[i]);
      const double polynomial = sample.camera[dim - 3] *
                                (1.0 + 4.0 * std::abs(sample.camera[dim - 2]) +
                                 16.0 * std::abs(sample.camera[dim - 1]));
      EXPECT_NEAR(r[i],
                  s[i],
                  kEpsilon * (16 * (1 + angle) * size * slope +
                              8 * (prediction + polynomial)));
    }
  };
  for (int k = 0; k < 5000; ++k) {
    const double angle = generator.Uniform(0.0, 7.0);
    const Sample nine =
        generator.Observe(generator.Camera(9, angle, k % 4 != 0));
    check(nine, *CreateAnalytic<9>(nine), *CreateAutodiff<9>(nine));
    const Sample ten =
        generator.Observe(generator.Camera(10, angle, k % 4 != 0));
    check(ten, *CreateAnalytic<10>(ten), *CreateAutodiff<10>(ten));
  }
}

TEST(BalCostFunctions, AnyCombinationOfOutputs) {
  SampleGenerator generator(6);
  const Sample sample = generator.Observe(generator.Camera(10, 1.0, true));
  const auto cost_function = CreateAnalytic<10>(sample);
  const Evaluation all = EvaluateCost(*cost_function, sample);
  const double* parameters[2] = {sample.camera.data(), sample.point.data()};
  for (int mask = 0; mask < 4; ++mask) {
    double residual[2];
    std::vector<double> camera(20, 7.0);
    std::vector<double> point(6, 7.0);
    double* jacobians[2] = {(mask & 1) != 0 ? camera.data() : nullptr,
                            (mask & 2) != 0 ? point.data() : nullptr};
    ASSERT_TRUE(cost_function->Evaluate(parameters, residual, jacobians));
    EXPECT_EQ(residual[0], all.residual[0]);
    EXPECT_EQ(residual[1], all.residual[1]);
    EXPECT_EQ(camera,
              (mask & 1) != 0 ? all.camera : std::vector<double>(20, 7));
    EXPECT_EQ(point, (mask & 2) != 0 ? all.point : std::vector<double>(6, 7));
  }
}

// ---------------------------------------------------------------------------
// At and behind the optical centre, and parameters that are not a camera.

bool AllFiniteValues(const Evaluation& e) {
  for (const double r : e.residual) {
    if (!std::isfinite(r)) {
      return false;
    }
  }
  for (const std::vector<double>* values : {&e.camera, &e.point}) {
    for (const double v : *values) {
      if (!std::isfinite(v)) {
        return false;
      }
    }
  }
  return true;
}

// Evaluate succeeds where autodiff's values are all finite, and where it
// succeeds all of its values are. Returns its success.
template <int kCameraDim>
bool EvaluateNoStricterThanAutodiff(const Sample& sample) {
  const Evaluation analytic =
      EvaluateCost(*CreateAnalytic<kCameraDim>(sample), sample);
  const Evaluation autodiff =
      EvaluateCost(*CreateAutodiff<kCameraDim>(sample), sample);
  if (AllFiniteValues(autodiff)) {
    EXPECT_TRUE(analytic.success);
  }
  if (analytic.success) {
    EXPECT_TRUE(AllFiniteValues(analytic));
  }
  return analytic.success;
}

TEST(BalCostFunctions, FailsExactlyAtTheOpticalCentre) {
  for (const double f : {500.0, 0.0}) {
    for (const double k : {0.0, 0.1}) {
      // R = I, t = (1, 2, 3).
      Sample nine{{0, 0, 0, 1, 2, 3, f, k, k}, {}, {3.0, 4.0}};
      Sample ten{{2, 0, 0, 0, 1, 2, 3, f, k, k}, {}, {3.0, 4.0}};
      const auto check = [&](std::array<double, 3> point, bool success) {
        nine.point = point;
        ten.point = point;
        EXPECT_EQ(EvaluateNoStricterThanAutodiff<9>(nine), success);
        EXPECT_EQ(EvaluateNoStricterThanAutodiff<10>(ten), success);
      };
      check({0, 0, -3}, false);
      check({0, -2, -3}, false);
      check({-1, 0, -3}, false);
      check({-1, -2, -3}, false);
      // One rounding of 3 away, on either side, and well behind.
      check({-1, -2, std::nextafter(-3.0, 0.0)}, true);
      check({-1, -2, std::nextafter(-3.0, -4.0)}, true);
      check({0, 0, std::nextafter(-3.0, 0.0)}, true);
      check({0, 0, 5}, true);
    }
  }
}

TEST(BalCostFunctions, FailsWhereAPowerOverflows) {
  const auto at = [](double x, double z) {
    return Sample{{0, 0, 0, 0, 0, 0, 500, 0.1, 0.1}, {x, 0, z}, {0, 0}};
  };
  EXPECT_TRUE(EvaluateNoStricterThanAutodiff<9>(at(1.0, -1e-50)));
  // r2^2 x = 1e350.
  EXPECT_FALSE(EvaluateNoStricterThanAutodiff<9>(at(1.0, -1e-70)));
  // 1 / z alone overflows.
  EXPECT_FALSE(EvaluateNoStricterThanAutodiff<9>(at(0.0, -1e-310)));
  // x = 1e-300 / 1e-300.
  EXPECT_TRUE(EvaluateNoStricterThanAutodiff<9>(at(1e-150, -1e-150)));
}

TEST(BalCostFunctions, FailsForParametersThatAreNoCamera) {
  SampleGenerator generator(7);
  const Sample nine = generator.Observe(generator.Camera(9, 1.0, true));
  const Sample ten = generator.Observe(generator.Camera(10, 1.0, true));
  const auto check = [](const Sample& sample, double bad) {
    const bool success = sample.camera.size() == 9
                             ? EvaluateNoStricterThanAutodiff<9>(sample)
                             : EvaluateNoStricterThanAutodiff<10>(sample);
    // A camera infinitely far behind or ahead sees all points at (0, 0).
    EXPECT_FALSE(success && std::isnan(bad));
  };
  for (const double bad : {kInfinity, -kInfinity, kNaN}) {
    for (const Sample& good : {nine, ten}) {
      for (size_t i = 0; i < good.camera.size(); ++i) {
        Sample sample = good;
        sample.camera[i] = bad;
        check(sample, bad);
      }
      for (int i = 0; i < 3; ++i) {
        Sample sample = good;
        sample.point[i] = bad;
        check(sample, bad);
      }
      Sample sample = good;
      sample.observation[1] = bad;
      check(sample, bad);
    }
  }
  Sample sample = ten;
  std::fill_n(sample.camera.begin(), 4, 0.0);
  EXPECT_FALSE(EvaluateNoStricterThanAutodiff<10>(sample));
}

TEST(BalCostFunctions, CeresRefusesAStartAtTheOpticalCentre) {
  double camera[9] = {0, 0, 0, 1, 2, 3, 500, 0, 0};
  double point[3] = {-1, -2, -3};
  ceres::Problem problem;
  problem.AddResidualBlock(
      CreateBalReprojectionError(1.0, 2.0), nullptr, camera, point);
  double cost = 0.0;
  EXPECT_FALSE(problem.Evaluate({}, &cost, nullptr, nullptr, nullptr));
  ceres::Solver::Options options;
  options.logging_type = ceres::SILENT;
  ceres::Solver::Summary summary;
  ceres::Solve(options, &problem, &summary);
  EXPECT_EQ(summary.termination_type, ceres::FAILURE);
  EXPECT_EQ(camera[5], 3.0);
  EXPECT_EQ(point[2], -3.0);
}

// Whatever step leads there, no NaN is accepted: a point that Gauss-Newton
// throws across the camera plane ends with finite parameters and lower cost.
TEST(BalCostFunctions, CeresStaysAtFiniteStates) {
  double cameras[2][9] = {{0, 0, 0, 0, 0, 0, 500, 0.1, 0.1},
                          {0, 0, 0, -1, 0, 0, 500, 0.1, 0.1}};
  double point[3] = {0.1, 0.1, -1e-3};
  ceres::Problem problem;
  for (int i = 0; i < 2; ++i) {
    problem.AddResidualBlock(CreateBalReprojectionError(40.0 - 100.0 * i, 25.0),
                             nullptr,
                             cameras[i],
                             point);
    problem.SetParameterBlockConstant(cameras[i]);
  }
  ceres::Solver::Options options;
  options.linear_solver_type = ceres::DENSE_QR;
  options.logging_type = ceres::SILENT;
  options.max_num_iterations = 200;
  ceres::Solver::Summary summary;
  ceres::Solve(options, &problem, &summary);
  EXPECT_TRUE(summary.IsSolutionUsable()) << summary.FullReport();
  EXPECT_LE(summary.final_cost, summary.initial_cost);
  for (const double x : point) {
    EXPECT_TRUE(std::isfinite(x));
  }
}

// ---------------------------------------------------------------------------
// Manifolds.

TEST(BalCostFunctions, TangentJacobianIsThatOfTheCameraMap) {
  SampleGenerator generator(8);
  std::vector<Sample> samples;
  ceres::Problem problem;
  samples.reserve(100);
  for (int k = 0; k < 100; ++k) {
    samples.push_back(generator.Observe(
        generator.Camera(10, generator.Uniform(0.0, 6.0), true)));
    problem.AddResidualBlock(CreateAnalytic<10>(samples[k]).release(),
                             nullptr,
                             samples[k].camera.data(),
                             samples[k].point.data());
  }
  SetBalCameraManifolds(&problem);
  for (Sample& sample : samples) {
    ASSERT_EQ(problem.ParameterBlockTangentSize(sample.camera.data()), 9);
    // Ceres: 2 x 10 times 10 x 9.
    const Evaluation ambient =
        EvaluateCost(*CreateAnalytic<10>(sample), sample);
    double plus[10 * 9];
    BalCameraManifold().PlusJacobian(sample.camera.data(), plus);
    // The tangent delta turns the camera's frame by 2 delta, see bal_model.h:
    // the Jacobian of an angle-axis camera turned so far from R = I, the old
    // rotation moved into the point, is the same up to that factor.
    Sample turned;
    turned.camera.assign(9, 0.0);
    std::copy(sample.camera.begin() + 4,
              sample.camera.end(),
              turned.camera.begin() + 3);
    ceres::QuaternionRotatePoint(
        sample.camera.data(), sample.point.data(), turned.point.data());
    turned.observation = sample.observation;
    const Evaluation local = EvaluateCost(*CreateAnalytic<9>(turned), turned);
    std::vector<double> tangent(18, 0.0);
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 9; ++j) {
        double magnitude = 0.0;
        for (int m = 0; m < 10; ++m) {
          tangent[9 * i + j] += ambient.camera[10 * i + m] * plus[9 * m + j];
          magnitude += std::abs(ambient.camera[10 * i + m] * plus[9 * m + j]);
        }
        // 10 terms summed, and 450 eps for either Jacobian.
        EXPECT_NEAR(
            tangent[9 * i + j],
            (j < 3 ? 2.0 : 1.0) * local.camera[9 * i + j],
            10 * kEpsilon * magnitude + 2 * kJacobianTolerance * magnitude);
      }
    }
  }
}

TEST(SetBalCameraManifolds, OneObjectOwnedByTheProblem) {
  std::vector<std::array<double, 10>> cameras(3);
  double other[9] = {};
  ceres::Problem problem;
  for (auto& camera : cameras) {
    camera.fill(1.0);
    problem.AddParameterBlock(camera.data(), 10);
  }
  problem.AddParameterBlock(other, 9);
  std::string error;
  EXPECT_TRUE(SetBalCameraManifolds(
      {cameras[0].data(), cameras[1].data()}, &problem, &error));
  EXPECT_EQ(problem.GetManifold(cameras[0].data()),
            problem.GetManifold(cameras[1].data()));
  EXPECT_NE(problem.GetManifold(cameras[0].data()), nullptr);
  EXPECT_EQ(problem.GetManifold(cameras[2].data()), nullptr);
  // All of them, again: manifolds that were replaced are still owned.
  SetBalCameraManifolds(&problem);
  EXPECT_EQ(problem.GetManifold(cameras[0].data()),
            problem.GetManifold(cameras[2].data()));
  EXPECT_EQ(problem.GetManifold(other), nullptr);
}

TEST(SetBalCameraManifolds, ProblemThatOwnsNoManifolds) {
  std::array<double, 10> camera;
  camera.fill(1.0);
  const ceres::Manifold* manifold = nullptr;
  for (int k = 0; k < 2; ++k) {
    ceres::Problem::Options options;
    options.manifold_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
    ceres::Problem problem(options);
    problem.AddParameterBlock(camera.data(), 10);
    SetBalCameraManifolds(&problem);
    manifold = problem.GetManifold(camera.data());
  }
  // Outlives both problems.
  EXPECT_EQ(manifold->TangentSize(), 9);
}

TEST(SetBalCameraManifolds, RefusesWhatIsNoCamera) {
  std::array<double, 10> camera;
  camera.fill(1.0);
  std::array<double, 10> stranger;
  double point[3] = {};
  ceres::Problem problem;
  problem.AddParameterBlock(camera.data(), 10);
  problem.AddParameterBlock(point, 3);
  std::string error;
  EXPECT_FALSE(SetBalCameraManifolds(
      {camera.data(), stranger.data()}, &problem, &error));
  EXPECT_NE(error.find("camera 1"), std::string::npos) << error;
  EXPECT_FALSE(SetBalCameraManifolds({point}, &problem, nullptr));
  EXPECT_EQ(problem.GetManifold(camera.data()), nullptr);
  EXPECT_TRUE(SetBalCameraManifolds({}, &problem, &error));
}

// ---------------------------------------------------------------------------
// Reading in bulk.

void ExpectModelMatches(const ceres::CostFunction& cost_function,
                        BatchModelKind kind) {
  const auto* batchable =
      dynamic_cast<const BatchableCostFunction*>(&cost_function);
  ASSERT_NE(batchable, nullptr);
  const BatchModel& model = batchable->batch_model();
  EXPECT_EQ(model.kind, kind);
  EXPECT_EQ(model.num_residuals, cost_function.num_residuals());
  ASSERT_EQ(static_cast<size_t>(model.num_parameter_blocks),
            cost_function.parameter_block_sizes().size());
  for (int i = 0; i < model.num_parameter_blocks; ++i) {
    EXPECT_EQ(model.parameter_block_sizes[i],
              cost_function.parameter_block_sizes()[i]);
  }
}

TEST(BatchableCostFunction, ModelAndConstantsOfManyBlocks) {
  std::vector<std::unique_ptr<ceres::CostFunction>> blocks;
  blocks.reserve(100);
  for (int k = 0; k < 100; ++k) {
    blocks.emplace_back(k % 3 == 0
                            ? CreateBalReprojectionErrorQuaternion(k, -0.1 * k)
                            : CreateBalReprojectionError(k, -0.1 * k));
  }
  ExpectModelMatches(*blocks[0], BatchModelKind::kBalQuaternion);
  ExpectModelMatches(*blocks[1], BatchModelKind::kBalAngleAxis);

  // As the header says: one dynamic_cast per run of a type.
  const std::type_info* type = nullptr;
  const BatchModel* model[2] = {};
  for (int k = 0; k < 100; ++k) {
    const ceres::CostFunction& block = *blocks[k];
    if (type == nullptr || *type != typeid(block)) {
      type = &typeid(block);
      ASSERT_NE(dynamic_cast<const BatchableCostFunction*>(&block), nullptr);
    }
    const auto& batchable = static_cast<const BatchableCostFunction&>(block);
    ASSERT_EQ(batchable.batch_model().constants_bytes, 2 * sizeof(double));
    std::vector<double> constants(3, 7.0);
    batchable.CopyConstants(constants.data());
    EXPECT_EQ(constants, (std::vector<double>{1.0 * k, -0.1 * k, 7.0}));
    // One object per type.
    const BatchModel*& expected = model[k % 3 == 0];
    if (expected == nullptr) {
      expected = &batchable.batch_model();
    }
    EXPECT_EQ(&batchable.batch_model(), expected);
  }
  EXPECT_NE(model[0], model[1]);
}

TEST(BatchableCostFunction, OtherCostFunctionsAreNot) {
  const Sample sample{std::vector<double>(9), {}, {}};
  EXPECT_EQ(dynamic_cast<const BatchableCostFunction*>(
                CreateAutodiff<9>(sample).get()),
            nullptr);
}

}  // namespace
}  // namespace ceres_ext
