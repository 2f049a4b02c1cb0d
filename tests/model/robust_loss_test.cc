// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "cuda_kernels/model/robust_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ceres/crs_matrix.h"
#include "ceres/loss_function.h"
#include "ceres/problem.h"
#include "ceres_ext/bal_cost_functions.h"
#include "gtest/gtest.h"

namespace ceres_ext::kernels {
namespace {

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

struct Pair {
  std::string name;
  RobustLoss loss;
  std::shared_ptr<ceres::LossFunction> ceres_loss;
};

std::vector<Pair> AllLosses() {
  std::vector<Pair> losses;
  losses.push_back(
      {"trivial", RobustLoss(), std::make_shared<ceres::TrivialLoss>()});
  for (const double a : {0.01, 0.7, 1.0, 30.0}) {
    const std::string suffix = " " + std::to_string(a);
    losses.push_back({"huber" + suffix,
                      RobustLoss(RobustLossKind::kHuber, a),
                      std::make_shared<ceres::HuberLoss>(a)});
    losses.push_back({"soft l1" + suffix,
                      RobustLoss(RobustLossKind::kSoftLOne, a),
                      std::make_shared<ceres::SoftLOneLoss>(a)});
    losses.push_back({"cauchy" + suffix,
                      RobustLoss(RobustLossKind::kCauchy, a),
                      std::make_shared<ceres::CauchyLoss>(a)});
    losses.push_back({"arctan" + suffix,
                      RobustLoss(RobustLossKind::kArctan, a),
                      std::make_shared<ceres::ArctanLoss>(a)});
    losses.push_back({"tukey" + suffix,
                      RobustLoss(RobustLossKind::kTukey, a),
                      std::make_shared<ceres::TukeyLoss>(a)});
    for (const double b : {0.1, 2.0}) {
      losses.push_back({"tolerant" + suffix + " " + std::to_string(b),
                        RobustLoss(RobustLossKind::kTolerant, a, b),
                        std::make_shared<ceres::TolerantLoss>(a, b)});
    }
  }
  losses.push_back({"tolerant 0 1",
                    RobustLoss(RobustLossKind::kTolerant, 0.0, 1.0),
                    std::make_shared<ceres::TolerantLoss>(0.0, 1.0)});
  return losses;
}

// 0, and 1e-30 to 1e30.
std::vector<double> SquaredNorms() {
  std::vector<double> values = {0.0};
  std::mt19937 generator(1);
  std::uniform_real_distribution<double> exponent(-30.0, 30.0);
  std::uniform_real_distribution<double> moderate(-3.0, 3.0);
  for (int k = 0; k < 1000; ++k) {
    values.push_back(std::pow(10.0, exponent(generator)));
    values.push_back(std::pow(10.0, moderate(generator)));
  }
  return values;
}

TEST(RobustLoss, ByHand) {
  double rho[3];
  RobustLoss(RobustLossKind::kHuber, 2.0).Evaluate(16.0, rho);
  EXPECT_EQ(rho[0], 12.0);
  EXPECT_EQ(rho[1], 0.5);
  EXPECT_EQ(rho[2], -0.5 / 32.0);
  // On the border, the inlier's formula.
  RobustLoss(RobustLossKind::kHuber, 2.0).Evaluate(4.0, rho);
  EXPECT_EQ(rho[0], 4.0);
  EXPECT_EQ(rho[1], 1.0);
  EXPECT_EQ(rho[2], 0.0);
  RobustLoss(RobustLossKind::kSoftLOne, 1.0).Evaluate(3.0, rho);
  EXPECT_EQ(rho[0], 2.0);
  EXPECT_EQ(rho[1], 0.5);
  EXPECT_EQ(rho[2], -0.0625);
  RobustLoss(RobustLossKind::kTukey, 2.0).Evaluate(2.0, rho);
  EXPECT_NEAR(rho[0], 4.0 / 3.0 * 0.875, 2 * kEpsilon);
  EXPECT_EQ(rho[1], 0.25);
  EXPECT_EQ(rho[2], -0.25);
  RobustLoss(RobustLossKind::kTukey, 2.0).Evaluate(5.0, rho);
  EXPECT_EQ(rho[1], 0.0);
  EXPECT_EQ(rho[2], 0.0);
}

// Both sides evaluate the same formulas with at most 8 roundings each; what
// differs is how errors of intermediate values count:
//  rho    Huber and Tukey subtract terms of 2 a sqrt(s) and a^2. Ceres's soft
//  L1
//         and Cauchy have a sum 1 + x, off by eps, whose root or logarithm is
//         scaled by a^2. Tolerant: x is off by eps (s + a) / b, and b log(.)
//         by that times b, by eps b, and by the offset's eps b.
//  rho'   relative except for Tukey's (1 - x)^2, of size one; for tolerant the
//         error of x above is one of rho' too.
//  rho''  as rho', in units of 1 / a^2 for Tukey. Ceres's tolerant loss drops
//         rho'' from x = 36.7 on, where it is below e^-36.7 / b, and rho' is 1.
TEST(RobustLoss, AgainstCeres) {
  for (const Pair& pair : AllLosses()) {
    const double a = pair.loss.a;
    const double b = pair.loss.b;
    for (const double s : SquaredNorms()) {
      double rho[3];
      double expected[3];
      pair.loss.Evaluate(s, rho);
      pair.ceres_loss->Evaluate(s, expected);
      double value_scale = expected[0];
      double slope_factor = 1.0;
      double slope_scale = expected[1];
      double curvature_scale = std::abs(expected[2]);
      double dropped = 0.0;
      switch (pair.loss.kind) {
        case RobustLossKind::kTrivial:
        case RobustLossKind::kScale:
        case RobustLossKind::kArctan:
          break;
        case RobustLossKind::kHuber:
        case RobustLossKind::kCauchy:
          value_scale += 2 * a * a;
          break;
        case RobustLossKind::kSoftLOne:
          value_scale += 4 * a * a;
          break;
        case RobustLossKind::kTukey:
          value_scale += a * a;
          slope_scale = 1.0;
          curvature_scale = 2.0 / (a * a);
          break;
        case RobustLossKind::kTolerant:
          value_scale += s + a + 2 * b + pair.loss.offset;
          slope_factor += (s + a) / b;
          dropped = std::exp(-36.7);
          break;
      }
      EXPECT_NEAR(rho[0], expected[0], 16 * kEpsilon * value_scale)
          << pair.name << " at " << s;
      EXPECT_NEAR(
          rho[1], expected[1], 16 * kEpsilon * slope_factor * slope_scale)
          << pair.name << " at " << s;
      EXPECT_NEAR(rho[2],
                  expected[2],
                  16 * kEpsilon * slope_factor * curvature_scale +
                      (expected[2] == 0.0 && dropped > 0 ? dropped / b : 0.0))
          << pair.name << " at " << s;
    }
  }
}

// rho(s) = s + O(s^2): no digit is lost for residuals far below the scale.
TEST(RobustLoss, SmallResidualsKeepTheirDigits) {
  for (const double s : {1e-12, 1e-20, 1e-100}) {
    for (const RobustLoss& loss : {RobustLoss(RobustLossKind::kHuber, 1.0),
                                   RobustLoss(RobustLossKind::kSoftLOne, 1.0),
                                   RobustLoss(RobustLossKind::kCauchy, 1.0),
                                   RobustLoss(RobustLossKind::kArctan, 1.0),
                                   RobustLoss(RobustLossKind::kTukey, 1.0)}) {
      double rho[3];
      loss.Evaluate(s, rho);
      // The next term of the series is at most s^2.
      EXPECT_NEAR(rho[0] / s, 1.0, s + 4 * kEpsilon);
    }
  }
}

TEST(RobustLoss, SlopesStayPositive) {
  for (const Pair& pair : AllLosses()) {
    if (pair.loss.kind == RobustLossKind::kTukey) {
      continue;
    }
    for (const double s : {1e100, 1e300, std::numeric_limits<double>::max()}) {
      double rho[3];
      pair.loss.Evaluate(s, rho);
      EXPECT_GT(rho[1], 0.0) << pair.name;
      EXPECT_FALSE(std::isnan(rho[2])) << pair.name;
    }
  }
  // Far below the threshold, where e^x underflows.
  double rho[3];
  RobustLoss(RobustLossKind::kTolerant, 1000.0, 1.0).Evaluate(0.0, rho);
  EXPECT_EQ(rho[0], 0.0);
  EXPECT_GT(rho[1], 0.0);
}

// The two identities that define the corrector.
// The losses that a recomputed Jacobian supports; also chains, by their sums
// and products.
TEST(RobustLoss, ConcaveIsWithoutSecondTerm) {
  std::vector<RobustLoss> losses;
  for (const Pair& pair : AllLosses()) {
    losses.push_back(pair.loss);
  }
  losses.push_back(RobustLoss(RobustLossKind::kScale, 0.25));
  losses.push_back(RobustLoss(RobustLossKind::kScale, 0.0));
  losses.push_back(RobustLoss(RobustLossKind::kScale, -2.0));
  const auto is_concave = [](const RobustLoss* chain) {
    bool is_concave = true;
    for (const double s : SquaredNorms()) {
      double rho[3];
      RobustLoss::EvaluateChain(chain, 0, s, rho);
      is_concave = is_concave && rho[1] >= 0.0 && rho[2] <= 0.0;
    }
    return is_concave;
  };
  for (const RobustLoss& inner : losses) {
    EXPECT_EQ(inner.IsConcave(), is_concave(&inner))
        << static_cast<int>(inner.kind) << " " << inner.a;
    for (const RobustLoss& outer : losses) {
      if (inner.IsConcave() && outer.IsConcave()) {
        RobustLoss chain[2] = {inner, outer};
        chain[0].next = 1;
        EXPECT_TRUE(is_concave(chain))
            << static_cast<int>(outer.kind) << " " << outer.a << " of "
            << static_cast<int>(inner.kind) << " " << inner.a;
      }
    }
  }
  EXPECT_FALSE(RobustLoss(RobustLossKind::kScale,
                          std::numeric_limits<double>::quiet_NaN())
                   .IsConcave());
}

TEST(LossCorrector, GradientAndGaussNewtonHessian) {
  std::mt19937 generator(2);
  std::normal_distribution<double> normal;
  const auto check = [&](const double* rho, double* r, double* J) {
    const double s = r[0] * r[0] + r[1] * r[1];
    const double r0[2] = {r[0], r[1]};
    const double J0[6] = {J[0], J[1], J[2], J[3], J[4], J[5]};
    const LossCorrector corrector(s, rho);
    corrector.CorrectJacobian<2, 3>(r, J);
    corrector.CorrectResidual<2>(r);
    const double curvature = std::max(rho[2], 0.0);
    for (int i = 0; i < 3; ++i) {
      const double rJ_i = J0[i] * r0[0] + J0[3 + i] * r0[1];
      // J~ is a difference of terms up to sqrt(rho') |J| root, root = 1 -
      // alpha; 8 roundings in each factor of a product.
      const double root = std::sqrt(1.0 + 2.0 * s * curvature / rho[1]);
      const double size_i =
          rho[1] * std::hypot(r0[0], r0[1]) * std::hypot(J0[i], J0[3 + i]);
      EXPECT_NEAR(J[i] * r[0] + J[3 + i] * r[1],
                  rho[1] * rJ_i,
                  16 * kEpsilon * root * size_i);
      for (int j = 0; j < 3; ++j) {
        const double rJ_j = J0[j] * r0[0] + J0[3 + j] * r0[1];
        EXPECT_NEAR(J[i] * J[j] + J[3 + i] * J[3 + j],
                    rho[1] * (J0[i] * J0[j] + J0[3 + i] * J0[3 + j]) +
                        2.0 * curvature * rJ_i * rJ_j,
                    16 * kEpsilon * root * root * rho[1] *
                        std::hypot(J0[i], J0[3 + i]) *
                        std::hypot(J0[j], J0[3 + j]));
      }
    }
  };
  for (int k = 0; k < 1000; ++k) {
    double r[2] = {normal(generator), normal(generator)};
    double J[6];
    for (double& value : J) {
      value = normal(generator);
    }
    if (k == 0) {
      r[0] = r[1] = 0.0;
    }
    const double rho[3] = {0.0, std::exp(normal(generator)), normal(generator)};
    check(rho, r, J);
  }
}

// The input that ceres::Problem gives a solver is the output of the corrector.
TEST(LossCorrector, AgainstCeresProblem) {
  const double observation[2] = {12.0, -7.0};
  for (const Pair& pair : AllLosses()) {
    double camera[9] = {0.1, 0.2, -0.1, 0.3, 0.2, -0.1, 50.0, 0.1, 0.01};
    double point[3] = {0.4, -0.6, -3.0};
    ceres::Problem::Options options;
    options.loss_function_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
    ceres::Problem problem(options);
    problem.AddResidualBlock(
        CreateBalReprojectionError(observation[0], observation[1]),
        pair.ceres_loss.get(),
        camera,
        point);
    ceres::Problem::EvaluateOptions evaluate;
    evaluate.parameter_blocks = {camera, point};
    std::vector<double> expected_residual;
    ceres::CRSMatrix expected;
    double expected_cost = 0.0;
    ASSERT_TRUE(problem.Evaluate(
        evaluate, &expected_cost, &expected_residual, nullptr, &expected));

    double r[2];
    double jc[18];
    double jp[6];
    double* jacobians[2] = {jc, jp};
    const double* parameters[2] = {camera, point};
    ASSERT_TRUE(BalReprojectionError(observation[0], observation[1])
                    .Evaluate(parameters, r, jacobians));
    const double s = r[0] * r[0] + r[1] * r[1];
    double rho[3];
    pair.loss.Evaluate(s, rho);
    const LossCorrector corrector(s, rho);
    const double root = std::max(
        1.0, rho[1] > 0 ? std::sqrt(1.0 + 2.0 * s * rho[2] / rho[1]) : 1.0);
    // 16 eps (1 + (s + a) / b) from rho, see AgainstCeres; the corrector has as
    // many roundings of terms up to sqrt(rho') |J| root.
    const double factor = pair.loss.kind == RobustLossKind::kTolerant
                              ? 1.0 + (s + pair.loss.a) / pair.loss.b
                              : 1.0;
    const double tolerance = 32 * kEpsilon * factor;
    const double scale = std::sqrt(rho[1]) * root;
    corrector.CorrectJacobian<2, 9>(r, jc);
    corrector.CorrectJacobian<2, 3>(r, jp);
    const double r_norm = std::sqrt(s);
    corrector.CorrectResidual<2>(r);
    EXPECT_NEAR(0.5 * rho[0],
                expected_cost,
                tolerance * (expected_cost + s + pair.loss.a * pair.loss.a))
        << pair.name;
    for (int i = 0; i < 2; ++i) {
      EXPECT_NEAR(r[i], expected_residual[i], tolerance * scale * r_norm)
          << pair.name;
      for (int j = 0; j < 12; ++j) {
        const double actual = j < 9 ? jc[9 * i + j] : jp[3 * i + j - 9];
        const double column =
            std::hypot(expected.values[j], expected.values[12 + j]);
        EXPECT_NEAR(
            actual, expected.values[12 * i + j], tolerance * root * column)
            << pair.name << " column " << j;
      }
    }
  }
}

}  // namespace
}  // namespace ceres_ext::kernels
