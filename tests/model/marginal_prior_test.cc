// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/marginal_prior.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ceres/gradient_checker.h"
#include "ceres/manifold.h"
#include "ceres/numeric_diff_options.h"
#include "gtest/gtest.h"

namespace ceres_ext {
namespace {

// d of a pose with A = I and b = 0.
template <typename Rotation>
std::vector<double> Difference(const double* pose, const double* reference) {
  std::vector<double> a(36, 0.0);
  for (int e = 0; e < 6; ++e) {
    a[7 * e] = 1.0;
  }
  const double b[6] = {};
  const auto prior =
      MarginalPrior<Rotation>::Create(1, reference, 6, a.data(), b, nullptr);
  std::vector<double> d(6);
  EXPECT_TRUE(prior->Evaluate(&pose, d.data(), nullptr));
  return d;
}

// Turns of 2 |delta|, up to nearly pi.
template <typename Rotation, typename Manifold>
void ExpectMinus() {
  const Manifold manifold;
  for (const double turn : {0.0, 1e-200, 1e-9, 0.1, 0.8, 1.5, 1.57}) {
    SCOPED_TRACE(turn);
    const double reference[7] = {0.5, -0.1, 0.7, -0.5, 1.0, 2.0, 3.0};
    const double delta[3] = {0.48 * turn, 0.6 * turn, -0.64 * turn};
    double pose[7] = {0.0, 0.0, 0.0, 0.0, 1.1, 1.8, 3.3};
    manifold.Plus(reference, delta, pose);
    double minus[3];
    manifold.Minus(pose, reference, minus);
    const std::vector<double> d = Difference<Rotation>(pose, reference);
    // A few roundings of values of up to 1.6.
    for (int e = 0; e < 3; ++e) {
      EXPECT_NEAR(d[e], minus[e], 1e-15);
      EXPECT_NEAR(d[e], delta[e], 1e-15);
      EXPECT_EQ(d[3 + e], pose[4 + e] - reference[4 + e]);
    }
    for (int e = 0; e < 4; ++e) {
      pose[e] = -pose[e];
    }
    EXPECT_EQ(d, Difference<Rotation>(pose, reference));
  }
}

TEST(MarginalPrior, HasTheDifferencesOfCeressManifolds) {
  ExpectMinus<Quaternion, ceres::QuaternionManifold>();
  ExpectMinus<EigenQuaternion, ceres::EigenQuaternionManifold>();
  const double pose[6] = {0.1, 0.2, 0.3, 1.0, 2.0, 3.0};
  const double reference[6] = {0.3, -0.2, 3.0, 0.0, 4.0, 3.0};
  const std::vector<double> d = Difference<AngleAxis>(pose, reference);
  for (int e = 0; e < 6; ++e) {
    EXPECT_EQ(d[e], pose[e] - reference[e]);
  }
}

// Three poses and five residuals, against numeric differences.
template <typename Rotation>
void ExpectDerivatives() {
  constexpr int kPose = Rotation::kSize + 3;
  std::vector<double> references;
  std::vector<double> poses;
  for (int k = 0; k < 3; ++k) {
    for (int e = 0; e < kPose; ++e) {
      references.push_back(std::cos(1.0 + 5.0 * k + e));
      // The first pose is at its reference.
      poses.push_back(references.back() + 0.3 * k * std::sin(3.0 * k + e));
    }
  }
  std::vector<double> a(size_t{5} * 18);
  for (size_t e = 0; e < a.size(); ++e) {
    a[e] = std::sin(1.0 + 7.0 * static_cast<double>(e));
  }
  const double b[5] = {0.1, -0.2, 0.3, -0.4, 0.5};
  std::string error;
  const auto prior = MarginalPrior<Rotation>::Create(
      3, references.data(), 5, a.data(), b, &error);
  ASSERT_NE(prior, nullptr) << error;
  EXPECT_EQ(prior->num_residuals(), 5);
  EXPECT_EQ(prior->parameter_block_sizes(), std::vector<int32_t>(3, kPose));
  const std::vector<const ceres::Manifold*>* const no_manifolds = nullptr;
  const ceres::GradientChecker checker(
      prior.get(), no_manifolds, ceres::NumericDiffOptions());
  const double* const blocks[] = {&poses[0], &poses[kPose], &poses[2 * kPose]};
  ceres::GradientChecker::ProbeResults results;
  // Numeric differences have errors of some 1e-10.
  EXPECT_TRUE(checker.Probe(blocks, 1e-8, &results)) << results.error_log;
  // A single block's derivative is the same as among all.
  std::vector<double> of_one(5 * kPose);
  double* jacobians[] = {nullptr, of_one.data(), nullptr};
  double r[5];
  ASSERT_TRUE(prior->Evaluate(blocks, r, jacobians));
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(r[i], results.residuals[i]);
    for (int e = 0; e < kPose; ++e) {
      EXPECT_EQ(of_one[kPose * i + e], results.jacobians[1](i, e));
    }
  }
}

TEST(MarginalPrior, HasExactDerivatives) {
  ExpectDerivatives<AngleAxis>();
  ExpectDerivatives<Quaternion>();
  ExpectDerivatives<EigenQuaternion>();
}

TEST(MarginalPrior, SaysWhatIsNotValid) {
  using Prior = MarginalPrior<Quaternion>;
  std::vector<double> references = {1.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0};
  std::vector<double> a(6, 1.0);
  std::vector<double> b = {0.5};
  std::string error;
  const auto create = [&](int num_poses, int num_residuals) {
    return Prior::Create(num_poses,
                         references.data(),
                         num_residuals,
                         a.data(),
                         b.data(),
                         &error);
  };
  EXPECT_NE(create(1, 1), nullptr);
  EXPECT_EQ(create(0, 1), nullptr);
  EXPECT_EQ(error,
            "a marginal prior has 0 poses and 1 residuals; expected at least "
            "one of each");
  EXPECT_EQ(create(1, 0), nullptr);
  a[4] = std::numeric_limits<double>::infinity();
  EXPECT_EQ(create(1, 1), nullptr);
  EXPECT_EQ(error, "a marginal prior has A[4] = inf; expected a finite value");
  a[4] = 1.0;
  b[0] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(create(1, 1), nullptr);
  b[0] = 0.5;
  references[0] = 0.0;
  EXPECT_EQ(create(1, 1), nullptr);
  EXPECT_EQ(error, "a marginal prior has a zero quaternion in reference 0");
}

}  // namespace
}  // namespace ceres_ext
