// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Each camera model against values of COLMAP, against its formula written out
// in long double, and its derivatives against differences of that formula.

#include "ceres_ext/camera_models.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "ceres/jet.h"
#include "gtest/gtest.h"
#include "tests/model/camera_models_reference.h"

namespace ceres_ext {
namespace {

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

// The results of COLMAP 4.2.1 (pycolmap.Camera.img_from_cam).
struct Known {
  const char* name;
  int id;
  std::vector<double> params;
  double seen[2];       // of (0.75, -0.5, 1.25)
  double near_axis[2];  // of (0.001, 0.002, 1)
};

const Known kKnown[] = {
    {"SIMPLE_PINHOLE", 0, {900, 512, 384}, {1052.0, 24.0}, {512.9, 385.8}},
    {"PINHOLE", 1, {900, 950, 512, 384}, {1052.0, 4.0}, {512.9, 385.9}},
    {"SIMPLE_RADIAL",
     2,
     {900, 512, 384, -0.07},
     {1032.344, 37.103999999999985},
     {512.899999685, 385.79999937}},
    {"RADIAL",
     3,
     {900, 512, 384, -0.07, 0.02},
     {1035.26432, 35.15711999999996},
     {512.8999996850005, 385.7999993700009}},
    {"OPENCV",
     4,
     {900, 950, 512, 384, -0.07, 0.02, 0.003, -0.002},
     {1031.73632, 19.082960000000014},
     {512.8999978850004, 385.9000287850009}},
    {"OPENCV_FISHEYE",
     5,
     {900, 950, 512, 384, -0.07, 0.02, -0.005, 0.001},
     {968.3586994778518, 62.85869296003017},
     {512.8999981850066, 385.8999961683471}},
    {"FULL_OPENCV",
     6,
     {900,
      950,
      512,
      384,
      -0.07,
      0.02,
      0.003,
      -0.002,
      -0.005,
      0.04,
      -0.01,
      0.003},
     {1021.8500343150872, 26.039975852346004},
     {512.8999977050008, 385.90002840500165}},
    {"FOV",
     7,
     {900, 950, 512, 384, 0.8},
     {1024.5526149583616, 23.314826510782666},
     {512.9512836085205, 386.00826539576553}},
    {"SIMPLE_RADIAL_FISHEYE",
     8,
     {900, 512, 384, -0.07},
     {967.0614413566448, 80.6257057622368},
     {512.8999981850061, 385.79999637001214}},
    {"RADIAL_FISHEYE",
     9,
     {900, 512, 384, -0.07, 0.02},
     {968.4869401514378, 79.67537323237474},
     {512.8999981850066, 385.79999637001305}},
    {"THIN_PRISM_FISHEYE",
     10,
     {900,
      950,
      512,
      384,
      -0.07,
      0.02,
      0.003,
      -0.002,
      -0.005,
      0.001,
      0.004,
      -0.003},
     {967.1156886919574, 64.22780628942115},
     {512.9000143849526, 385.9000113682964}},
    {"RAD_TAN_THIN_PRISM_FISHEYE",
     11,
     {900,
      950,
      512,
      384,
      -0.07,
      0.02,
      -0.005,
      0.001,
      0.0005,
      -0.0002,
      0.003,
      -0.002,
      0.004,
      -0.003,
      0.002,
      0.001},
     {972.333352336419, 61.57718206932674},
     {512.9000278848192, 385.89999236838617}},
    {"SIMPLE_DIVISION",
     12,
     {900, 512, 384, -0.07},
     {1033.6567104837495, 36.22885967750028},
     {512.8999996850002, 385.7999993700004}},
    {"DIVISION",
     13,
     {900, 950, 512, 384, -0.07},
     {1033.6567104837495, 16.90824077069476},
     {512.8999996850002, 385.8999993350005}},
    {"SIMPLE_FISHEYE",
     14,
     {900, 512, 384},
     {979.8439763551946, 72.10401576320362},
     {512.8999985000045, 385.799997000009}},
    {"FISHEYE",
     15,
     {900, 950, 512, 384},
     {979.8439763551946, 54.776461083381605},
     {512.8999985000045, 385.8999968333428}},
    {"EUCM",
     16,
     {900, 950, 512, 384, 0.6, 1.2},
     {975.6715283255412, 57.712628215359814},
     {512.8999983800054, 385.8999965800113}},
    {"EQUIRECTANGULAR",
     17,
     {1000, 500},
     {586.0104348113153, 197.4116022753745},
     {500.15915489004027, 250.31830930261745}},
};

template <typename Model>
class CameraModelsTest : public ::testing::Test {
 protected:
  static constexpr int kNumParams = Model::kNumParams;

  // Focal lengths, principal point and small coefficients.
  void RandomParams(std::mt19937* random, double* params) {
    std::uniform_real_distribution<double> uniform(-1.0, 1.0);
    for (int i = 0; i < kNumParams; ++i) {
      params[i] =
          i < Model::kNumFocalLengths       ? 1000.0 + 200.0 * uniform(*random)
          : i < Model::kNumFocalLengths + 2 ? 500.0 + 50.0 * uniform(*random)
                                            : 0.05 * uniform(*random);
    }
  }

  // A point whose distance from the axis, over its depth, is r.
  void PointAt(double r, std::mt19937* random, double* point) {
    std::uniform_real_distribution<double> angle(0.0, 6.2831853);
    std::uniform_real_distribution<double> depth(0.1, 100.0);
    const double a = angle(*random);
    point[2] = depth(*random);
    point[0] = r * std::cos(a) * point[2];
    point[1] = r * std::sin(a) * point[2];
  }
};

using Models = ::testing::Types<SimplePinholeCamera,
                                PinholeCamera,
                                SimpleRadialCamera,
                                RadialCamera,
                                OpenCvCamera,
                                OpenCvFisheyeCamera,
                                FullOpenCvCamera,
                                FovCamera,
                                SimpleRadialFisheyeCamera,
                                RadialFisheyeCamera,
                                ThinPrismFisheyeCamera,
                                RadTanThinPrismFisheyeCamera,
                                SimpleDivisionCamera,
                                DivisionCamera,
                                SimpleFisheyeCamera,
                                FisheyeCamera,
                                EucmCamera,
                                EquirectangularCamera>;
TYPED_TEST_SUITE(CameraModelsTest, Models);

// On the axis, on both sides of r = 0.01 where the series ends, and up to 63
// degrees from the axis.
constexpr double kRadii[] = {
    0.0, 1e-200, 1e-8, 1e-3, 0.0099999, 0.0100001, 0.1, 0.5, 1.0, 2.0};

TYPED_TEST(CameraModelsTest, AgreesWithColmap) {
  const Known* known =
      std::find_if(std::begin(kKnown), std::end(kKnown), [](const Known& k) {
        return std::string(k.name) == TypeParam::kName;
      });
  ASSERT_NE(known, std::end(kKnown));
  EXPECT_EQ(known->id, TypeParam::kModelId);
  ASSERT_EQ(known->params.size(), static_cast<size_t>(TypeParam::kNumParams));
  const double points[2][3] = {{0.75, -0.5, 1.25}, {0.001, 0.002, 1.0}};
  for (const auto& point : points) {
    double pixel[2];
    ASSERT_TRUE(TypeParam::ImgFromCam(known->params.data(), point, pixel));
    const double* expected =
        &point == &points[0] ? known->seen : known->near_axis;
    for (int i = 0; i < 2; ++i) {
      // Pixels of about 1000, each the result of less than 20 operations, here
      // and there.
      EXPECT_NEAR(pixel[i], expected[i], 40 * kEpsilon * 1000.0);
    }
  }
}

TYPED_TEST(CameraModelsTest, AgreesWithItsFormula) {
  std::mt19937 random(1);
  for (const double r : kRadii) {
    for (int trial = 0; trial < 100; ++trial) {
      double params[TypeParam::kNumParams];
      double point[3];
      this->RandomParams(&random, params);
      this->PointAt(r, &random, point);
      Real real_params[TypeParam::kNumParams];
      std::copy_n(params, TypeParam::kNumParams, real_params);
      const Real real_point[3] = {point[0], point[1], point[2]};
      double pixel[2];
      Real expected[2];
      ASSERT_TRUE(TypeParam::ImgFromCam(params, point, pixel));
      CameraReference(TypeParam::kName, real_params, real_point, expected);
      // Terms of the distortion are at most 0.05 r^9 f r with r = 2 (fisheyes:
      // t < 1.2), and the denominator of FULL_OPENCV is kept away from 0 below.
      const Real r2 = r * r;
      const Real denominator =
          TypeParam::kModelId != FullOpenCvCamera::kModelId
              ? 1.0
              : std::abs(1 + params[9] * r2 + params[10] * r2 * r2 +
                         params[11] * r2 * r2 * r2);
      if (denominator < 0.5) {
        continue;
      }
      const double scale =
          1200.0 * std::max(1.0, r) * (1.0 + 0.2 * r2 * r2 * r2);
      for (int i = 0; i < 2; ++i) {
        EXPECT_NEAR(pixel[i],
                    static_cast<double>(expected[i]),
                    40 * kEpsilon * (600.0 + scale))
            << r;
      }
    }
  }
}

TYPED_TEST(CameraModelsTest, DerivativesAreDifferencesOfTheFormula) {
  constexpr int kNumParams = TypeParam::kNumParams;
  using Jet = ceres::Jet<double, kNumParams + 3>;
  std::mt19937 random(2);
  for (const double r : kRadii) {
    if (r > 1.0) {
      continue;
    }
    for (int trial = 0; trial < 20; ++trial) {
      double params[kNumParams];
      double point[3];
      this->RandomParams(&random, params);
      this->PointAt(r, &random, point);
      Jet jet_params[kNumParams];
      Jet jet_point[3];
      Real x[kNumParams + 3];
      for (int i = 0; i < kNumParams; ++i) {
        x[i] = params[i];
        jet_params[i] = Jet(params[i], i);
      }
      for (int i = 0; i < 3; ++i) {
        x[kNumParams + i] = point[i];
        jet_point[i] = Jet(point[i], kNumParams + i);
      }
      Jet pixel[2];
      ASSERT_TRUE(TypeParam::ImgFromCam(jet_params, jet_point, pixel));
      for (int j = 0; j < kNumParams + 3; ++j) {
        // A step h that is small beside what the pixel depends on, 1 for
        // coefficients and the depth Z for the point: the difference is off by
        // h^2 times the third derivative, here at most 1e4 f, and by the
        // rounding of 1000 pixels over h.
        const Real unit = j < kNumParams ? 1.0 : point[2];
        const Real h = 1e-6L * unit;
        Real ahead[2];
        Real behind[2];
        const Real value = x[j];
        x[j] = value + h;
        CameraReference(TypeParam::kName, x, x + kNumParams, ahead);
        x[j] = value - h;
        CameraReference(TypeParam::kName, x, x + kNumParams, behind);
        x[j] = value;
        for (int i = 0; i < 2; ++i) {
          const double expected =
              static_cast<double>((ahead[i] - behind[i]) / (2 * h));
          EXPECT_NEAR(pixel[i].v[j] * static_cast<double>(unit),
                      expected * static_cast<double>(unit),
                      1e-12 * 1e4 * 1200.0 + 1e3 * 1e-19 / 1e-6)
              << r << " " << j;
        }
      }
    }
  }
}

TYPED_TEST(CameraModelsTest, SeesNothingBehindIt) {
  if (TypeParam::kModelId == EquirectangularCamera::kModelId) {
    return;  // Panorama.SeesAllAroundExceptAtThePoles
  }
  std::mt19937 random(3);
  double params[TypeParam::kNumParams];
  this->RandomParams(&random, params);
  if (TypeParam::kModelId == SimpleDivisionCamera::kModelId ||
      TypeParam::kModelId == DivisionCamera::kModelId) {
    // A field of view below half of the sphere.
    params[TypeParam::kNumParams - 1] = 0.05;
  }
  for (const double z : {-1.0,
                         -1e-300,
                         0.0,
                         0.5 * kEpsilon,
                         std::numeric_limits<double>::quiet_NaN()}) {
    const double point[3] = {1.0, 1.0, z};
    double pixel[2] = {7.0, 8.0};
    EXPECT_FALSE(TypeParam::ImgFromCam(params, point, pixel)) << z;
    EXPECT_EQ(pixel[0], 7.0);
    EXPECT_EQ(pixel[1], 8.0);
  }
  const double point[3] = {0.0, 0.0, kEpsilon};
  double pixel[2];
  EXPECT_TRUE(TypeParam::ImgFromCam(params, point, pixel));
  // On the axis, whatever the coefficients.
  EXPECT_EQ(pixel[0], params[TypeParam::kNumFocalLengths]);
  EXPECT_EQ(pixel[1], params[TypeParam::kNumFocalLengths + 1]);
}

TEST(CameraModels, DivisionSeesBehindItAndEndsWhereItsRootDoes) {
  // k = -1/8 and the direction (1, 0, -1/2): Z^2 - 4 k X^2 = 3/4, x = 2 / (-1/2
  // + sqrt(3) / 2), and x / (1 + k x^2) = X / Z = -2.
  const double wide[4] = {100.0, 50.0, 40.0, -0.125};
  const double behind[3] = {1.0, 0.0, -0.5};
  double pixel[2];
  ASSERT_TRUE(SimpleDivisionCamera::ImgFromCam(wide, behind, pixel));
  const double x = 2.0 / (std::sqrt(0.75) - 0.5);
  EXPECT_NEAR(x / (1.0 - 0.125 * x * x), -2.0, 1e-14);
  EXPECT_NEAR(pixel[0], 100.0 * x + 50.0, 1e-11);
  EXPECT_EQ(pixel[1], 40.0);
  // r = 2 is the largest with 1 - 4 k r^2 >= 0.
  const double narrow[4] = {100.0, 50.0, 40.0, 0.0625};
  for (const double r : {1.99, 2.0, 2.01}) {
    const double point[3] = {0.0, 3.0 * r, 3.0};
    EXPECT_EQ(SimpleDivisionCamera::ImgFromCam(narrow, point, pixel), r < 2.0);
  }
}

TEST(CameraModels, EucmSeesNothingWhereItsDenominatorEnds) {
  const double point[3] = {1.0, 0.0, 1.0};
  double pixel[2];
  // d^2 = 1 + beta, and 2 sqrt(1 + beta) - 1 of alpha = 2.
  const double alpha2[6] = {100.0, 100.0, 50.0, 40.0, 2.0, -0.7};
  EXPECT_TRUE(EucmCamera::ImgFromCam(alpha2, point, pixel));
  EXPECT_NEAR(pixel[0], 50.0 + 100.0 / (2.0 * std::sqrt(0.3) - 1.0), 1e-10);
  const double no_denominator[6] = {100.0, 100.0, 50.0, 40.0, 2.0, -0.8};
  EXPECT_FALSE(EucmCamera::ImgFromCam(no_denominator, point, pixel));
  const double no_root[6] = {100.0, 100.0, 50.0, 40.0, 0.5, -1.5};
  EXPECT_FALSE(EucmCamera::ImgFromCam(no_root, point, pixel));
}

TEST(Panorama, SeesAllAroundExceptAtThePoles) {
  const double params[2] = {400.0, 200.0};
  // By hand: ahead, right, left, behind on both sides of the seam, and 45
  // degrees down and up.
  const double kSeen[][5] = {{0, 0, 2, 200, 100},
                             {3, 0, 0, 300, 100},
                             {-1, 0, 0, 100, 100},
                             {0.0, 0, -1, 400, 100},
                             {-0.0, 0, -1, 0, 100},
                             {0, 5, 5, 200, 150},
                             {-7, -7, 0, 100, 50},
                             // Nearer to a pole than that it is refused.
                             {2e-12, 1, 0, 300, 200}};
  for (const auto& seen : kSeen) {
    double pixel[2];
    ASSERT_TRUE(EquirectangularCamera::ImgFromCam(params, seen, pixel));
    // Less than 5 roundings of up to 400 pixels, and 2e-12 radians.
    EXPECT_NEAR(pixel[0], seen[3], 5 * kEpsilon * 400.0);
    EXPECT_NEAR(pixel[1], seen[4], 5 * kEpsilon * 400.0 + 2e-12 * 64.0);
  }
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const double kUnseen[][3] = {{0, 1, 0},
                               {0, -3, 0},
                               {5e-13, 1, 0},
                               {0, -2, 1e-12},
                               {0, 0, 0},
                               {kNan, 0, 1},
                               {1, kNan, 1},
                               {1, 0, kNan}};
  for (const auto& unseen : kUnseen) {
    double pixel[2] = {7.0, 8.0};
    EXPECT_FALSE(EquirectangularCamera::ImgFromCam(params, unseen, pixel));
    EXPECT_EQ(pixel[0], 7.0);
    EXPECT_EQ(pixel[1], 8.0);
  }
}

// The camera turns a whole time below a point whose measurement stays.
TEST(Panorama, ErrorsTakeTheShorterWayAroundTheSeam) {
  using Jet = ceres::Jet<double, 1>;
  const Jet params[2] = {Jet(400.0), Jet(200.0)};
  constexpr double kPi = 3.14159265358979323846;
  for (const double measured : {1.0, 130.0, 399.0}) {
    for (int degree = 0; degree < 360; ++degree) {
      const Jet angle(kPi / 180.0 * (degree - 179.5), 0);
      const Jet point[3] = {3.0 * sin(angle), Jet(1.0), 3.0 * cos(angle)};
      Jet error[2];
      ASSERT_TRUE(EquirectangularCamera::ImgFromCam(params, point, error));
      error[0] -= measured;
      EquirectangularCamera::TakeShorterWay(params, error);
      const double x = 400.0 / 360.0 * (degree + 0.5);
      EXPECT_NEAR(error[0].a,
                  std::remainder(x - measured, 400.0),
                  20 * kEpsilon * 400.0);
      // No jump, and no sign of one, in the derivative.
      EXPECT_NEAR(error[0].v[0], 200.0 / kPi, 20 * kEpsilon * 400.0);
    }
  }
}

TEST(CameraModels, TheListNamesAll) {
  std::vector<std::string> names;
  ForEachCameraModel([&names](auto model) {
    names.push_back(decltype(model)::kName);
    EXPECT_LE(decltype(model)::kNumParams, kMaxCameraParams);
  });
  ASSERT_EQ(names.size(), std::size(kKnown));
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(names[i], kKnown[i].name);
  }
}

}  // namespace
}  // namespace ceres_ext
