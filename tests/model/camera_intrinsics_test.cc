// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "ceres_ext/camera_intrinsics.h"

#include <cmath>
#include <limits>
#include <vector>

#include "ceres/jet.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ceres_ext {
namespace {

using ::testing::ElementsAre;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Bounds {
  std::vector<double> lower;
  std::vector<double> upper;
};

template <typename Camera>
Bounds BoundsOf(const IntrinsicsLimits& limits, double width, double height) {
  Bounds bounds{std::vector<double>(Camera::kNumParams, std::nan("")),
                std::vector<double>(Camera::kNumParams, std::nan(""))};
  SetIntrinsicsBounds<Camera>(
      limits, width, height, bounds.lower.data(), bounds.upper.data());
  return bounds;
}

TEST(CameraIntrinsics, BoundsByHand) {
  const Bounds simple =
      BoundsOf<SimplePinholeCamera>(IntrinsicsLimits(), 640, 480);
  EXPECT_THAT(simple.lower, ElementsAre(64, 0, 0));
  EXPECT_THAT(simple.upper, ElementsAre(6400, 640, 480));
  IntrinsicsLimits limits;
  limits.min_focal_length_ratio = 0.5;
  limits.max_focal_length_ratio = 2.0;
  limits.max_extra_param = 0.25;
  const Bounds open_cv = BoundsOf<OpenCvCamera>(limits, 100, 300);
  EXPECT_THAT(open_cv.lower,
              ElementsAre(150, 150, 0, 0, -0.25, -0.25, -0.25, -0.25));
  EXPECT_THAT(open_cv.upper,
              ElementsAre(600, 600, 100, 300, 0.25, 0.25, 0.25, 0.25));
  const Bounds eucm = BoundsOf<EucmCamera>(IntrinsicsLimits(), 10, 20);
  EXPECT_THAT(eucm.lower, ElementsAre(2, 2, 0, 0, 0, 0));
  EXPECT_THAT(eucm.upper, ElementsAre(200, 200, 10, 20, 1, kInfinity));
  // The parameters of a panorama are its size.
  const Bounds panorama =
      BoundsOf<EquirectangularCamera>(IntrinsicsLimits(), 20, 10);
  EXPECT_THAT(panorama.lower, ElementsAre(-kInfinity, -kInfinity));
  EXPECT_THAT(panorama.upper, ElementsAre(kInfinity, kInfinity));
  const double size[] = {20, 10};
  const auto prior =
      MakeIntrinsicsPrior<EquirectangularCamera>(size, {1, 1, 1});
  EXPECT_THAT(prior.weights, ElementsAre(0, 0));
}

TEST(CameraIntrinsics, EveryModelHasIntervals) {
  ForEachCameraModel([](auto camera) {
    const Bounds bounds =
        BoundsOf<decltype(camera)>(IntrinsicsLimits(), 1000, 800);
    for (int i = 0; i < camera.kNumParams; ++i) {
      EXPECT_LT(bounds.lower[i], bounds.upper[i]) << camera.kName << " " << i;
    }
  });
}

TEST(CameraIntrinsics, PriorByHand) {
  const double measured[] = {100, 110, 50, 40, 0.1, 0.2, 0.3, 0.4};
  const auto prior =
      MakeIntrinsicsPrior<OpenCvCamera>(measured, {0.5, 0.0, 10.0});
  EXPECT_TRUE((IntrinsicsPriorWeights{0.0, 0.0, 1.0}).HasAny());
  EXPECT_FALSE(IntrinsicsPriorWeights().HasAny());
  const double params[] = {102, 100, 51, 41, 0.1, 0.2, 0.3, 0.5};
  double residuals[8];
  ASSERT_TRUE(prior(params, residuals));
  for (int i = 0; i < 8; ++i) {
    const double weight = i < 2 ? 0.5 : i < 4 ? 0.0 : 10.0;
    EXPECT_EQ(residuals[i], weight * (params[i] - measured[i]));
  }
  // The derivatives are the weights.
  using Jet = ceres::Jet<double, 8>;
  Jet jets[8];
  Jet derivatives[8];
  for (int i = 0; i < 8; ++i) {
    jets[i] = Jet(params[i], i);
  }
  ASSERT_TRUE(prior(jets, derivatives));
  for (int i = 0; i < 8; ++i) {
    for (int j = 0; j < 8; ++j) {
      EXPECT_EQ(derivatives[i].v[j], i == j ? prior.weights[i] : 0.0);
    }
  }
}

}  // namespace
}  // namespace ceres_ext
