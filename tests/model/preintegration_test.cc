// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Increments against a trajectory in closed form, bias Jacobians and
// covariances against differences of the increments.

#include "ceres_ext/preintegration.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "Eigen/Cholesky"
#include "Eigen/Core"
#include "Eigen/Geometry"
#include "ceres_ext/odometry_errors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "problem_io/inertial_trajectory.h"

namespace ceres_ext {
namespace {

using Vector9 = Eigen::Matrix<double, 9, 1>;

constexpr InertialNoise kNoise = {1e-3, 1e-2, 2e-4, 3e-3};
constexpr double kNoBias[6] = {};
constexpr double kBias[6] = {0.01, -0.02, 0.015, 0.1, -0.2, 0.05};

// (phi, dp, dv) of an increment by those of a reference.
Vector9 Difference(const Preintegration& of, const Preintegration& reference) {
  const Eigen::AngleAxisd turn(reference.rotation().conjugate() *
                               of.rotation());
  const double angle =
      turn.angle() > M_PI ? turn.angle() - 2 * M_PI : turn.angle();
  Vector9 difference;
  difference << angle * turn.axis(), of.position() - reference.position(),
      of.velocity() - reference.velocity();
  return difference;
}

std::vector<InertialSample> CleanSamples(double begin, double step, int n) {
  double bias[6];
  std::copy_n(kBias, 6, bias);
  return SimulateSamples(begin, step, n, kNoise, nullptr, bias);
}

// Measurements of n steps.
struct Steps {
  explicit Steps(int n) : gyroscope(n), accelerometer(n), duration(n) {
    for (int k = 0; k < n; ++k) {
      for (int i = 0; i < 3; ++i) {
        gyroscope[k][i] = 2.0 * std::sin(1.0 + 5 * k + i);
        accelerometer[k][i] = 9.0 * std::cos(2.0 + 7 * k + i);
      }
      duration[k] = 0.02 + 0.01 * std::sin(3.0 * k);
    }
  }
  Preintegration Integrate(const double* bias) const {
    Preintegration increment(kNoise, bias);
    std::string error;
    for (size_t k = 0; k < gyroscope.size(); ++k) {
      EXPECT_TRUE(increment.Add(
          duration[k], gyroscope[k].data(), accelerometer[k].data(), &error))
          << error;
    }
    return increment;
  }

  std::vector<Eigen::Vector3d> gyroscope;
  std::vector<Eigen::Vector3d> accelerometer;
  std::vector<double> duration;
};

// The error of a trajectory of a second is of second order in the step, and a
// cut between samples changes no more than that.
TEST(Preintegration, FindsATrajectoryWithSecondOrder) {
  const double begin = 0.3;
  const TrueState from(begin);
  const TrueState to(begin + 1.0);
  const Eigen::Map<const Eigen::Vector3d> g(kGravity);
  const Eigen::Quaterniond rotation = from.rotation.conjugate() * to.rotation;
  const Eigen::Vector3d position =
      from.rotation.conjugate() *
      (to.position - from.position - from.velocity - 0.5 * g);
  const Eigen::Vector3d velocity =
      from.rotation.conjugate() * (to.velocity - from.velocity - g);
  double error_of[3][3];
  for (int level = 0; level < 3; ++level) {
    const int n = 50 << level;
    const auto samples = CleanSamples(begin, 1.0 / n, n + 1);
    Preintegration increment(kNoise, kBias);
    std::string error;
    const double middle = begin + 0.4031;
    ASSERT_TRUE(
        increment.AddSamples(n + 1, samples.data(), begin, middle, &error))
        << error;
    // The last sample's time is rounded.
    ASSERT_TRUE(increment.AddSamples(
        n + 1, samples.data(), middle, samples[n].time, &error))
        << error;
    EXPECT_NEAR(increment.duration(), 1.0, 1e-14 * n);
    error_of[level][0] = increment.rotation().angularDistance(rotation);
    error_of[level][1] = (increment.position() - position).norm();
    error_of[level][2] = (increment.velocity() - velocity).norm();
  }
  for (int i = 0; i < 3; ++i) {
    // Second derivatives of the inputs are some 10 per second^2, and steps 20
    // ms long: t^2 / 24 * 10 = 2e-4.
    EXPECT_LT(error_of[0][i], 2e-4);
    for (int level = 0; level < 2; ++level) {
      const double ratio = error_of[level][i] / error_of[level + 1][i];
      EXPECT_NEAR(ratio, 4.0, 0.4) << i;
    }
  }
}

// A constant rate is integrated without an error, as is a constant force
// without one.
TEST(Preintegration, ConstantMeasurementsHaveAClosedForm) {
  const double rate[3] = {0.3, -0.4, 1.2};
  const double no_rate[3] = {};
  const double force[3] = {1.0, 2.0, -3.0};
  Preintegration turning(kNoise, kNoBias);
  Preintegration straight(kNoise, kNoBias);
  for (int k = 0; k < 100; ++k) {
    ASSERT_TRUE(turning.Add(0.01, rate, no_rate, nullptr));
    ASSERT_TRUE(straight.Add(0.01, no_rate, force, nullptr));
  }
  // 100 products of quaternions, each with some 4 roundings.
  constexpr double kTolerance = 400 * std::numeric_limits<double>::epsilon();
  const Eigen::Quaterniond whole(
      Eigen::AngleAxisd(1.3, Eigen::Vector3d(0.3, -0.4, 1.2) / 1.3));
  EXPECT_LT((turning.rotation().coeffs() - whole.coeffs()).norm(), kTolerance);
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(straight.velocity()[i], force[i], 3 * kTolerance);
    EXPECT_NEAR(straight.position()[i], 0.5 * force[i], 3 * kTolerance);
  }
}

TEST(Preintegration, BiasJacobianIsTheDerivative) {
  const Steps steps(12);
  const Preintegration at = steps.Integrate(kBias);
  for (int j = 0; j < 6; ++j) {
    // Errors of h^2 times third derivatives, up to 1e-2, and of 12 roundings
    // over h.
    const double h = 1e-5;
    double bias[6];
    std::copy_n(kBias, 6, bias);
    bias[j] += h;
    const Vector9 forward = Difference(steps.Integrate(bias), at);
    bias[j] -= 2 * h;
    const Vector9 back = Difference(steps.Integrate(bias), at);
    const Vector9 slope = (forward - back) / (2 * h);
    EXPECT_LT((slope - at.bias_jacobian().col(j)).cwiseAbs().maxCoeff(), 1e-9)
        << j;
  }
  EXPECT_GT(at.bias_jacobian().cwiseAbs().maxCoeff(), 0.1);
}

// The sum over all inputs of noise, with the derivatives of the increments by
// each from differences.
TEST(Preintegration, CovarianceIsThatOfTheInputs) {
  const int n = 6;
  const Steps steps(n);
  const Preintegration at = steps.Integrate(kBias);
  Preintegration::Covariance expected = Preintegration::Covariance::Zero();
  const double h = 1e-5;
  for (int k = 0; k < n; ++k) {
    const double t = steps.duration[k];
    for (int j = 0; j < 6; ++j) {
      const auto moved = [&](double by, int from, int to) {
        Steps changed = steps;
        for (int s = from; s < to; ++s) {
          (j < 3 ? changed.gyroscope : changed.accelerometer)[s][j % 3] += by;
        }
        return Difference(changed.Integrate(kBias), at);
      };
      Eigen::Matrix<double, 15, 1> slope = Eigen::Matrix<double, 15, 1>::Zero();
      slope.head<9>() = (moved(h, k, k + 1) - moved(-h, k, k + 1)) / (2 * h);
      const double white = j < 3 ? kNoise.gyroscope : kNoise.accelerometer;
      expected += white * white / t * slope * slope.transpose();
      // A bias that has moved by the end of step k is in all later ones, of
      // which it is subtracted.
      slope.head<9>() = (moved(-h, k + 1, n) - moved(h, k + 1, n)) / (2 * h);
      slope[9 + j] = 1.0;
      const double walk =
          j < 3 ? kNoise.gyroscope_bias : kNoise.accelerometer_bias;
      expected += walk * walk * t * slope * slope.transpose();
    }
    for (int i = 3; i < 6; ++i) {
      expected(i, i) +=
          kNoise.accelerometer * kNoise.accelerometer * t * t * t / 12;
    }
  }
  const Eigen::Matrix<double, 15, 1> sigma = expected.diagonal().cwiseSqrt();
  const Preintegration::Covariance scaled =
      sigma.cwiseInverse().asDiagonal() *
      Preintegration::Covariance(at.covariance() - expected) *
      sigma.cwiseInverse().asDiagonal();
  EXPECT_LT(scaled.cwiseAbs().maxCoeff(), 1e-8);
  EXPECT_EQ(at.covariance(), at.covariance().transpose());
}

// The variances of an integrated and a twice integrated white noise of density
// s^2 are s^2 T and s^2 T^3 / 3, for any number of steps.
TEST(Preintegration, WhiteNoiseIsContinuous) {
  const double rest[3] = {};
  for (const int n : {1, 2, 7}) {
    Preintegration increment({1e-3, 1e-2, 1e-12, 1e-12}, kNoBias);
    for (int k = 0; k < n; ++k) {
      ASSERT_TRUE(increment.Add(0.5 / n, rest, rest, nullptr));
    }
    const auto& covariance = increment.covariance();
    for (int i = 0; i < 3; ++i) {
      EXPECT_NEAR(covariance(i, i), 1e-6 * 0.5, 1e-18);
      EXPECT_NEAR(covariance(3 + i, 3 + i), 1e-4 * 0.125 / 3, 1e-17);
      EXPECT_NEAR(covariance(3 + i, 6 + i), 1e-4 * 0.25 / 2, 1e-17);
      EXPECT_NEAR(covariance(6 + i, 6 + i), 1e-4 * 0.5, 1e-17);
    }
    InertialError<EigenQuaternion> row;
    std::string error;
    EXPECT_TRUE(row.Set(increment, kGravity, &error)) << error;
  }
}

// Squares of whitened errors of noisy measurements and walking biases are those
// of 15 normal numbers: their mean over 400 is 15 with a deviation of sqrt(30 /
// 400).
TEST(Preintegration, NoiseHasTheCovariance) {
  std::mt19937 generator(7);
  const int n = 40;
  const double step = 0.005;
  Preintegration reference(kNoise, kBias);
  double sum = 0.0;
  for (int run = 0; run < 401; ++run) {
    double bias[6];
    std::copy_n(kBias, 6, bias);
    auto samples = SimulateSamples(
        0.0, step, n + 1, kNoise, run > 0 ? &generator : nullptr, bias);
    samples.pop_back();
    Preintegration increment(kNoise, kBias);
    for (const InertialSample& sample : samples) {
      ASSERT_TRUE(
          increment.Add(step, sample.gyroscope, sample.accelerometer, nullptr));
    }
    if (run == 0) {
      reference = increment;
      continue;
    }
    Eigen::Matrix<double, 15, 1> difference;
    difference << Difference(increment, reference),
        Eigen::Map<const Eigen::Matrix<double, 6, 1>>(bias) -
            Eigen::Map<const Eigen::Matrix<double, 6, 1>>(kBias);
    sum += difference.dot(reference.covariance().llt().solve(difference));
  }
  EXPECT_NEAR(sum / 400, 15.0, 4 * std::sqrt(30.0 / 400));
}

TEST(Preintegration, SaysWhatIsNotValid) {
  using ::testing::HasSubstr;
  Preintegration increment(kNoise, kBias);
  std::string error;
  const double zero[3] = {};
  const double bad[3] = {0.0, std::nan(""), 0.0};
  for (const double duration : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_FALSE(increment.Add(duration, zero, zero, &error));
    EXPECT_THAT(error, HasSubstr("expected one above 0"));
  }
  EXPECT_FALSE(increment.Add(1.0, bad, zero, &error));
  EXPECT_FALSE(increment.Add(1.0, zero, bad, nullptr));
  EXPECT_THAT(error, HasSubstr("not finite"));
  auto samples = CleanSamples(0.0, 0.01, 11);
  const auto refuses = [&](double begin, double end) {
    return !increment.AddSamples(11, samples.data(), begin, end, &error);
  };
  EXPECT_TRUE(refuses(-0.001, 0.05));
  EXPECT_THAT(error, HasSubstr("do not cover"));
  EXPECT_TRUE(refuses(0.05, 0.101));
  EXPECT_TRUE(refuses(0.05, 0.05));
  EXPECT_THAT(error, HasSubstr("an end after the beginning"));
  EXPECT_TRUE(refuses(0.05, std::nan("")));
  samples[3].time = samples[2].time;
  EXPECT_TRUE(refuses(0.0, 0.05));
  EXPECT_THAT(error, HasSubstr("sample 3 is not later"));
  samples[3].time = 0.03;
  samples[4].gyroscope[2] = HUGE_VAL;
  EXPECT_TRUE(refuses(0.0, 0.1));
  EXPECT_EQ(increment.duration(), 0.0);
  EXPECT_TRUE(increment.covariance().isZero(0.0));
  InertialError<EigenQuaternion> row;
  EXPECT_FALSE(row.Set(increment, kGravity, &error));
  EXPECT_THAT(error, HasSubstr("not positive definite"));
  ASSERT_TRUE(increment.AddSamples(11, samples.data(), 0.0, 0.03, &error));
  EXPECT_TRUE(row.Set(increment, kGravity, &error));
  Preintegration without(InertialNoise{1e-3, 1e-2, 0.0, 1e-3}, kBias);
  ASSERT_TRUE(without.AddSamples(11, samples.data(), 0.0, 0.03, &error));
  EXPECT_FALSE(row.Set(without, kGravity, &error));
}

}  // namespace
}  // namespace ceres_ext
