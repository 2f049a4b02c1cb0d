// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.

#include "cuda_kernels/model/bal_model.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/model/bal_evaluate.h"
#include "tests/model/bal_reference.h"

namespace ceres_ext::kernels {
namespace {

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
constexpr double kPi = 3.14159265358979323846;

const double kAngles[] = {0.0,
                          1e-300,
                          1e-160,
                          1e-12,
                          1e-8,
                          1e-4,
                          0.01,
                          0.5,
                          // Either side of where the series ends.
                          std::nextafter(1.0, 0.0),
                          1.0 + 1e-15,
                          1.5,
                          kPi - 1e-8,
                          kPi,
                          kPi + 1e-8,
                          4.0,
                          2 * kPi - 1e-8,
                          2 * kPi,
                          2 * kPi + 1e-8,
                          7.0,
                          20.0};

template <typename T>
CameraState<T> Prepare(const std::vector<T>& camera) {
  return camera.size() == 9 ? PrepareBalCamera<3, T>(camera.data(), nullptr)
                            : PrepareBalCamera<4, T>(camera.data(), nullptr);
}

// All numbers are exact in binary, so every result is too.
template <typename T>
class BalModelLiterals : public ::testing::Test {};
using Scalars = ::testing::Types<double, float>;
TYPED_TEST_SUITE(BalModelLiterals, Scalars);

TYPED_TEST(BalModelLiterals, ResidualAndJacobians) {
  using T = TypeParam;
  // Xc = (1, 2, -4), (x, y) = (1/4, 1/2), r2 = 5/16, d = 1 + 2 * 5/16 = 13/8.
  const T parameters[9] = {0, 0, 0, 0, 0, -2, 8, 2, 0};
  const T point[3] = {1, 2, -2};
  const T observation[2] = {1, 2};
  T rotation_map[9];
  const CameraState<T> camera = PrepareBalCamera<3>(parameters, rotation_map);
  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(camera.R[i], T(i % 4 == 0)) << i;
    EXPECT_EQ(rotation_map[i], T(i % 4 == 0)) << i;
  }
  T residual[2];
  T camera_jacobian[18];
  T point_jacobian[6];
  EvaluateByRotation<3>(camera,
                        rotation_map,
                        point,
                        observation,
                        residual,
                        camera_jacobian,
                        point_jacobian);
  // 8 * 13/8 * (1/4, 1/2) - (1, 2).
  EXPECT_EQ(residual[0], T(2.25));
  EXPECT_EQ(residual[1], T(4.5));
  // M = 2 (13/8 I + 4 (x, y) (x, y)') = [3.75 1; 1 5.25].
  const T expected_point[6] = {3.75, 1, 1.4375, 1, 5.25, 2.875};
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(point_jacobian[i], expected_point[i]) << i;
  }
  const T expected_camera[18] = {4.875,
                                 -8.9375,
                                 -6.5,
                                 3.75,
                                 1,
                                 1.4375,
                                 0.40625,
                                 0.625,
                                 0.1953125,
                                 16.25,
                                 -4.875,
                                 3.25,
                                 1,
                                 5.25,
                                 2.875,
                                 0.8125,
                                 1.25,
                                 0.390625};
  for (int i = 0; i < 18; ++i) {
    EXPECT_EQ(camera_jacobian[i], expected_camera[i]) << i;
  }
}

TYPED_TEST(BalModelLiterals, QuarterTurnQuaternionOfAnyNorm) {
  using T = TypeParam;
  // q / |q| turns by 180 degrees about z: R = diag(-1, -1, 1).
  const T q[4] = {0, 0, 0, 4};
  T R[9];
  T map[12];
  PrepareQuaternion(q, R, map);
  const T expected_R[9] = {-1, 0, 0, 0, -1, 0, 0, 0, 1};
  // 2 / 16 [ -v | [v]x ] with v = (0, 0, 4).
  const T expected_map[12] = {0, 0, -0.5, 0, 0, 0.5, 0, 0, -0.5, 0, 0, 0};
  for (int i = 0; i < 9; ++i) {
    EXPECT_EQ(R[i], expected_R[i]) << i;
  }
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(map[i], expected_map[i]) << i;
  }
}

TEST(BalModel, QuaternionMapTimesPlusJacobianIsTwo) {
  SampleGenerator generator(2);
  for (int k = 0; k < 1000; ++k) {
    const std::vector<double> camera =
        generator.Camera(10, generator.Uniform(-7.0, 7.0), true);
    const double* q = camera.data();
    double R[9];
    double map[12];
    PrepareQuaternion(q, R, map);
    // Plus turns the camera frame by 2 delta, whatever the norm of q.
    const double two[9] = {2, 0, 0, 0, 2, 0, 0, 0, 2};
    // PlusJacobian of ceres::QuaternionManifold.
    const double plus[12] = {-q[1],
                             -q[2],
                             -q[3],
                             q[0],
                             q[3],
                             -q[2],
                             -q[3],
                             q[0],
                             q[1],
                             q[2],
                             -q[1],
                             q[0]};
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 3; ++j) {
        double product = 0.0;
        for (int m = 0; m < 4; ++m) {
          product += map[4 * i + m] * plus[3 * m + j];
        }
        // Terms sum to 2 |q_m|^2 / |q|^2 in magnitude. Roundings: 3 in each
        // map entry through |q|^2 (counted twice for two factors of scale), 1
        // in the product, 3 in the sum: 12 eps of 2.
        EXPECT_NEAR(product, two[3 * i + j], 24 * kEpsilon);
      }
    }
  }
}

// R and the left Jacobian of SO(3) against long double, entry by entry. The
// reference differentiates R through dual numbers:
// [column i of J_l]x = dR/dw_i R'.
TEST(BalModel, RotationAndItsMapAtAllAngles) {
  if (!kLongDoubleIsWider) {
    GTEST_SKIP() << "skipped: long double has no more digits than double";
  }
  SampleGenerator generator(3);
  for (const double angle : kAngles) {
    for (int k = 0; k < 500; ++k) {
      const std::array<double, 3> axis = generator.Axis();
      double w[3];
      Dual<3> dual_w[3];
      for (int i = 0; i < 3; ++i) {
        w[i] = angle * axis[i];
        dual_w[i] = Dual<3>(w[i], i);
      }
      double R[9];
      double map[9];
      PrepareAngleAxis(w, R, map);

      Dual<3> unit[4];
      AngleAxisToUnitQuaternion(dual_w, unit);
      Dual<3> expected_R[9];
      for (int j = 0; j < 3; ++j) {
        Dual<3> e[3];
        e[j] = Dual<3>(1.0L);
        Dual<3> column[3];
        RotateReference(unit, e, column);
        for (int i = 0; i < 3; ++i) {
          expected_R[3 * i + j] = column[i];
        }
      }
      // Entries of R and J_l are sums of at most two products of factors of
      // size one, each with up to 6 roundings; theta itself has 4, and moves
      // sin and cos by theta times that: eps (8 + 2 theta) bounds half of the
      // sum of all, with 1/2 eps a rounding.
      const double tolerance = (8 + 2 * angle) * kEpsilon;
      for (int i = 0; i < 9; ++i) {
        EXPECT_NEAR(R[i], static_cast<double>(expected_R[i].a), tolerance)
            << "angle " << angle << " entry " << i;
      }
      for (int i = 0; i < 3; ++i) {
        // W = dR/dw_i R' is antisymmetric: W(2,1), W(0,2), W(1,0).
        const int rows[3] = {2, 0, 1};
        const int cols[3] = {1, 2, 0};
        for (int a = 0; a < 3; ++a) {
          long double W = 0.0L;
          for (int m = 0; m < 3; ++m) {
            W += expected_R[3 * rows[a] + m].v[i] *
                 expected_R[3 * cols[a] + m].a;
          }
          EXPECT_NEAR(map[3 * a + i], static_cast<double>(W), tolerance)
              << "angle " << angle << " entry " << a << ", " << i;
        }
      }
    }
  }
}

// About a coordinate axis the left Jacobian is singular at 2 pi; the entries
// that vanish there keep their relative accuracy.
TEST(BalModel, RotationMapKeepsDigitsWhereItIsSingular) {
  if (!kLongDoubleIsWider) {
    GTEST_SKIP() << "skipped: long double has no more digits than double";
  }
  for (const double angle : {kPi, 2 * kPi - 1e-8, 2 * kPi, 2 * kPi + 1e-8}) {
    const double w[3] = {0.0, angle, 0.0};
    double R[9];
    double map[9];
    PrepareAngleAxis(w, R, map);
    const long double theta = angle;
    const long double a = std::sin(theta) / theta;
    const long double half_sin = std::sin(theta / 2);
    const long double b_theta = 2 * half_sin * half_sin / theta;
    // 2 roundings each in half_sin, half_cos; 2 products and a division.
    const double tolerance = 8 * kEpsilon;
    EXPECT_NEAR(map[0] / a, 1.0, tolerance) << angle;
    EXPECT_NEAR(map[8] / a, 1.0, tolerance) << angle;
    EXPECT_NEAR(map[2] / b_theta, 1.0, tolerance) << angle;
    EXPECT_NEAR(map[6] / -b_theta, 1.0, tolerance) << angle;
    EXPECT_EQ(map[4], 1.0);
  }
}

TEST(BalModel, HugeAndNonFiniteRotations) {
  double R[9];
  double map[9];
  const double huge[3] = {1e200, -1e200, 1e200};
  PrepareAngleAxis(huge, R, map);
  EXPECT_TRUE(AllFinite(R, 9));
  EXPECT_TRUE(AllFinite(map, 9));
  for (const double bad : {std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::quiet_NaN()}) {
    const double w[3] = {0.1, bad, 0.1};
    PrepareAngleAxis<double>(w, R, nullptr);
    EXPECT_FALSE(AllFinite(R, 9));
    const double q[4] = {0.1, bad, 0.1, 0.1};
    PrepareQuaternion<double>(q, R, nullptr);
    EXPECT_FALSE(AllFinite(R, 9));
  }
  const double zero[4] = {};
  PrepareQuaternion<double>(zero, R, nullptr);
  EXPECT_FALSE(AllFinite(R, 9));
}

// The four ways to use a Jacobian agree: matrix in local coordinates, matrix
// through a general map, matrix through a rotation map, products.
template <int kRotationDim, typename T>
void ExpectFormsAgree() {
  constexpr int kDim = kRotationDim + 6;
  SampleGenerator generator(4);
  for (int k = 0; k < 500; ++k) {
    const std::vector<double> parameters =
        generator.Camera(kDim, generator.Uniform(0.0, 7.0), k % 4 != 0);
    const Sample sample = generator.Observe(parameters);
    double rotation_map_double[3 * kRotationDim];
    const CameraState<double> camera_double =
        kRotationDim == 3
            ? PrepareBalCamera<3>(parameters.data(), rotation_map_double)
            : PrepareBalCamera<4>(parameters.data(), rotation_map_double);
    const CameraState<T> camera = CameraStateCast<T>(camera_double);
    T rotation_map[3 * kRotationDim];
    for (int i = 0; i < 3 * kRotationDim; ++i) {
      rotation_map[i] = static_cast<T>(rotation_map_double[i]);
    }
    T point[3];
    T observation[2];
    for (int i = 0; i < 3; ++i) {
      point[i] = static_cast<T>(sample.point[i]);
    }
    for (int i = 0; i < 2; ++i) {
      observation[i] = static_cast<T>(sample.observation[i]);
    }

    T map[9 * kDim];
    ExpandCameraMap<kRotationDim>(rotation_map, map);
    T residual[2][2];
    T jc[2][2 * kDim];
    T jp[2][6];
    EvaluateByRotation<kRotationDim>(
        camera, rotation_map, point, observation, residual[0], jc[0], jp[0]);
    Evaluate<kDim>(camera, map, point, observation, residual[1], jc[1], jp[1]);
    Projection<T> p;
    ASSERT_TRUE(ProjectForProducts(camera, point, &p));
    T local[18];
    CameraJacobian(camera, p, local);

    const T eps = std::numeric_limits<T>::epsilon();
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(residual[0][i], residual[1][i]);
      for (int j = 0; j < kDim; ++j) {
        // The general form adds zeros: equal except for contraction into FMA, 3
        // terms of the row's magnitude.
        T magnitude = 0;
        for (int m = 0; m < 9; ++m) {
          magnitude += std::abs(local[9 * i + m] * map[m * kDim + j]);
        }
        EXPECT_NEAR(
            jc[0][kDim * i + j], jc[1][kDim * i + j], 3 * eps * magnitude);
      }
      for (int j = 0; j < 3; ++j) {
        EXPECT_EQ(jp[0][3 * i + j], jp[1][3 * i + j]);
      }
    }

    // y = Jc q + Jp u, and (Jc' g, Jp' g), each against the matrices.
    T q[kDim];
    T u[3];
    T g[2];
    for (T& value : q) {
      value = static_cast<T>(generator.Uniform(-1.0, 1.0));
    }
    for (T& value : u) {
      value = static_cast<T>(generator.Uniform(-1.0, 1.0));
    }
    for (T& value : g) {
      value = static_cast<T>(generator.Uniform(-1.0, 1.0));
    }
    T q_local[9];
    T yc[2];
    T yp[2];
    CameraMapMultiply<kDim>(map, q, q_local);
    CameraMultiply(camera, p, q_local, yc);
    PointMultiply(camera, p, u, yp);
    // The products factor as M ([1 0 x; 0 1 y] (w x r + dt)): the terms of
    // that chain, not of the finished sum, set the size of the rounding
    // errors. |M| |[1 0 x; 0 1 y]| (2 |w| |r| + |dt|) bounds them; 16 roundings
    // on each side of the comparison.
    const T norm_M = std::abs(p.m00) + std::abs(p.m01) + std::abs(p.m11);
    const T norm_P = norm_M * (1 + std::abs(p.x) + std::abs(p.y));
    const T norm_r = std::abs(p.r[0]) + std::abs(p.r[1]) + std::abs(p.r[2]);
    T norm_map = 1;
    for (int i = 0; i < 3 * kRotationDim; ++i) {
      norm_map = std::max(norm_map, std::abs(rotation_map[i]));
    }
    const T intrinsics =
        std::abs(p.distortion) + std::abs(camera.f) * p.r2 * (1 + p.r2);
    const T scale_c = norm_P * (8 * norm_map * norm_r + 3) + 2 * intrinsics;
    const T scale_p = 3 * norm_P;
    T gc_local[9] = {};
    T gc[kDim];
    T gp[3] = {};
    CameraTransposeMultiplyAndAccumulate(camera, p, g, gc_local);
    CameraMapTransposeMultiply<kDim>(map, gc_local, gc);
    PointTransposeMultiplyAndAccumulate(camera, p, g, gp);
    for (int i = 0; i < 2; ++i) {
      T expected_c = 0;
      T expected_p = 0;
      for (int j = 0; j < kDim; ++j) {
        expected_c += jc[0][kDim * i + j] * q[j];
      }
      for (int j = 0; j < 3; ++j) {
        expected_p += jp[0][3 * i + j] * u[j];
      }
      EXPECT_NEAR(yc[i], expected_c, 32 * eps * scale_c);
      EXPECT_NEAR(yp[i], expected_p, 32 * eps * scale_p);
    }
    for (int j = 0; j < kDim; ++j) {
      EXPECT_NEAR(
          gc[j], jc[0][j] * g[0] + jc[0][kDim + j] * g[1], 32 * eps * scale_c);
    }
    for (int j = 0; j < 3; ++j) {
      EXPECT_NEAR(
          gp[j], jp[0][j] * g[0] + jp[0][3 + j] * g[1], 32 * eps * scale_p);
    }

    // Accumulation adds, also into a wider type.
    double wide[9];
    double wide_point[3];
    std::fill_n(wide, 9, 1.0);
    std::fill_n(wide_point, 3, 1.0);
    CameraTransposeMultiplyAndAccumulate(camera, p, g, wide);
    PointTransposeMultiplyAndAccumulate(camera, p, g, wide_point);
    for (int j = 0; j < 9; ++j) {
      EXPECT_NEAR(wide[j] - 1.0, gc_local[j], 32 * eps * (1 + scale_c));
    }
    for (int j = 0; j < 3; ++j) {
      EXPECT_NEAR(wide_point[j] - 1.0, gp[j], 32 * eps * (1 + scale_p));
    }
  }
}

TEST(BalModel, FormsAgreeAngleAxisDouble) { ExpectFormsAgree<3, double>(); }
TEST(BalModel, FormsAgreeAngleAxisFloat) { ExpectFormsAgree<3, float>(); }
TEST(BalModel, FormsAgreeQuaternionDouble) { ExpectFormsAgree<4, double>(); }
TEST(BalModel, FormsAgreeQuaternionFloat) { ExpectFormsAgree<4, float>(); }

// Float against double on the same numbers, those that float can hold.
// Rounding errors, with A = |r| + |t| the size of what cancels in Xc and
// z its depth: Xc is off by 4 eps A, and so is every (x, y) and 1 / z by
// 6 eps A / |z| relative to 1 + |(x, y)|. Residual and Jacobian are polynomials
// of degree at most 6 in (x, y, 1 / z) with at most 12 further roundings:
// (36 A / |z| + 12) eps of the sum of their terms' magnitudes.
TEST(BalModel, FloatAgainstDouble) {
  SampleGenerator generator(5);
  for (const int dim : {9, 10}) {
    for (int k = 0; k < 2000; ++k) {
      const std::vector<double> parameters =
          generator.Camera(dim, generator.Uniform(0.0, 7.0), k % 4 != 0);
      const Sample sample = generator.Observe(parameters);
      const CameraState<float> camera_float =
          CameraStateCast<float>(Prepare(parameters));
      const CameraState<double> camera = CameraStateCast<double>(camera_float);
      float point_float[3];
      double point[3];
      for (int i = 0; i < 3; ++i) {
        point_float[i] = static_cast<float>(sample.point[i]);
        point[i] = point_float[i];
      }
      const Projection<double> p = Project(camera, point);
      Projection<float> p_float;
      ASSERT_TRUE(ProjectForProducts(camera_float, point_float, &p_float));
      const float zero_float[2] = {};
      const double zero[2] = {};
      float residual_float[2];
      double residual[2];
      Residual(camera_float, p_float, zero_float, residual_float);
      Residual(camera, p, zero, residual);
      float jc_float[18];
      float jp_float[6];
      double jc[18];
      double jp[6];
      CameraJacobian(camera_float, p_float, jc_float);
      PointJacobian(camera_float, p_float, jp_float);
      CameraJacobian(camera, p, jc);
      PointJacobian(camera, p, jp);

      // Sums of the magnitudes of terms.
      const double f = std::abs(camera.f);
      const double depth = std::abs(p.r[2] + camera.t[2]);
      const double s = 1 + std::abs(p.x) + std::abs(p.y);
      const double r_norm = std::hypot(p.r[0], p.r[1], p.r[2]);
      const double size =
          r_norm + std::hypot(camera.t[0], camera.t[1], camera.t[2]);
      const double bound =
          (36 * size / depth + 12) * std::numeric_limits<float>::epsilon();
      const double d_terms =
          1 + s * s * (std::abs(camera.k1) + std::abs(camera.k2) * s * s);
      const double slope_terms =
          2 * (std::abs(camera.k1) + 2 * std::abs(camera.k2) * s * s);
      const double P_terms = f / depth * (d_terms + slope_terms * s * s) * s;
      for (int i = 0; i < 2; ++i) {
        EXPECT_NEAR(residual_float[i], residual[i], bound * f * d_terms * s);
        for (int j = 0; j < 3; ++j) {
          EXPECT_NEAR(jp_float[3 * i + j], jp[3 * i + j], bound * P_terms * 2);
        }
        const double scales[9] = {P_terms * r_norm * 2,
                                  P_terms * r_norm * 2,
                                  P_terms * r_norm * 2,
                                  P_terms,
                                  P_terms,
                                  P_terms,
                                  d_terms * s,
                                  f * s * s * s,
                                  f * s * s * s * s * s};
        for (int j = 0; j < 9; ++j) {
          EXPECT_NEAR(jc_float[9 * i + j], jc[9 * i + j], bound * scales[j])
              << j;
        }
      }
    }
  }
}

// ---------------------------------------------------------------------------
// At and behind the optical centre.

template <typename T>
void ExpectLeftOut(const CameraState<T>& camera, const T* point) {
  Projection<T> p;
  EXPECT_FALSE(ProjectForProducts(camera, point, &p));
  T jc[18];
  T jp[6];
  CameraJacobian(camera, p, jc);
  PointJacobian(camera, p, jp);
  for (const T value : jc) {
    EXPECT_EQ(value, T(0));
  }
  for (const T value : jp) {
    EXPECT_EQ(value, T(0));
  }
  const T ones[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  T y[2];
  CameraMultiply(camera, p, ones, y);
  EXPECT_EQ(y[0], T(0));
  EXPECT_EQ(y[1], T(0));
  PointMultiply(camera, p, ones, y);
  EXPECT_EQ(y[0], T(0));
  EXPECT_EQ(y[1], T(0));
  T sum[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  CameraTransposeMultiplyAndAccumulate(camera, p, ones, sum);
  PointTransposeMultiplyAndAccumulate(camera, p, ones, sum);
  for (const T value : sum) {
    EXPECT_EQ(value, T(1));
  }
}

TYPED_TEST(BalModelLiterals, AtTheCentreEvaluationIsNotFinite) {
  using T = TypeParam;
  const T observation[2] = {1, 2};
  // Depth 0 with Xc = (1, 2, 0), (1, 0, 0) and 0, with and without distortion,
  // with focal length 0 too.
  for (const T f : {T(500), T(0)}) {
    for (const T k : {T(0), T(0.1)}) {
      const T parameters[9] = {0, 0, 0, 1, 2, 3, f, k, k};
      const CameraState<T> camera = PrepareBalCamera<3, T>(parameters, nullptr);
      const T points[3][3] = {{0, 0, -3}, {0, -2, -3}, {-1, -2, -3}};
      for (const T* point : points) {
        T residual[2];
        Residual(camera, Project(camera, point), observation, residual);
        EXPECT_FALSE(AllFinite(residual, 2));
        ExpectLeftOut(camera, point);
      }
    }
  }
}

TEST(BalModel, BehindTheCameraFormulasContinue) {
  // The projection of -Xc is that of Xc; derivatives with respect to Xc change
  // sign. R = I, t = 0.
  const double parameters[9] = {0, 0, 0, 0, 0, 0, 700, 0.1, -0.02};
  const CameraState<double> camera =
      PrepareBalCamera<3, double>(parameters, nullptr);
  const double ahead[3] = {0.3, -0.4, -2.0};
  const double behind[3] = {-0.3, 0.4, 2.0};
  const Projection<double> a = Project(camera, ahead);
  Projection<double> b;
  EXPECT_TRUE(ProjectForProducts(camera, behind, &b));
  EXPECT_EQ(a.x, b.x);
  EXPECT_EQ(a.y, b.y);
  double ja[6];
  double jb[6];
  PointJacobian(camera, a, ja);
  PointJacobian(camera, b, jb);
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(ja[i], -jb[i]);
  }
}

// As in Ladybug-1723: in double the depth is 4e-9, in float camera and point
// meet, or their depth is the noise of rounding them.
TEST(BalModel, ClosePointsWorkInDoubleAndAreLeftOutInFloat) {
  for (const double depth : {4e-9, -4e-9, 1e-12, 4e-8}) {
    const double parameters[9] = {0, 0, 0, 0.7, -0.1, -1.3, 500, 1e-7, 1e-14};
    const CameraState<double> camera =
        PrepareBalCamera<3, double>(parameters, nullptr);
    // t + X is exact.
    const double point[3] = {-0.7 + depth / 4, 0.1 + depth / 8, 1.3 + depth};
    Projection<double> p;
    EXPECT_TRUE(ProjectForProducts(camera, point, &p));
    const double exact_depth = point[2] - 1.3;
    EXPECT_NEAR(p.x * -exact_depth, point[0] + 0.7, kEpsilon * 1e-8);
    double jc[18];
    CameraJacobian(camera, p, jc);
    EXPECT_TRUE(AllFinite(jc, 18));

    const float point_float[3] = {static_cast<float>(point[0]),
                                  static_cast<float>(point[1]),
                                  static_cast<float>(point[2])};
    ExpectLeftOut(CameraStateCast<float>(camera), point_float);
  }
}

TEST(BalModel, SmallScenesAreNotLeftOutInFloat) {
  // A small depth that is not the difference of large numbers has its digits.
  const double parameters[9] = {0.3, 0.2, 0.1, 0, 0, 0, 500, 0, 0};
  const CameraState<double> camera =
      PrepareBalCamera<3, double>(parameters, nullptr);
  const std::array<double, 3> point = SampleGenerator::PointAt(
      std::vector<double>(parameters, parameters + 9), 0.5, 0.2, 4e-9);
  const float point_float[3] = {static_cast<float>(point[0]),
                                static_cast<float>(point[1]),
                                static_cast<float>(point[2])};
  Projection<float> p;
  EXPECT_TRUE(
      ProjectForProducts(CameraStateCast<float>(camera), point_float, &p));
  // 4 roundings of r and 2 of the quotient, magnified by |r| / |z| < 2.
  EXPECT_NEAR(p.x, 0.5, 8 * std::numeric_limits<float>::epsilon());
}

TEST(BalModel, OverflowOfTheHighestPowerLeavesOut) {
  // f r2^2 x overflows in float at x = 1e8 and f = 1e3; in double it doesn't.
  const double parameters[9] = {0, 0, 0, 0, 0, 0, 1e3, 0, 0};
  const CameraState<double> camera =
      PrepareBalCamera<3, double>(parameters, nullptr);
  const double point[3] = {1, 0, -1e-8};
  const float point_float[3] = {1, 0, -1e-8f};
  Projection<double> p;
  EXPECT_TRUE(ProjectForProducts(camera, point, &p));
  ExpectLeftOut(CameraStateCast<float>(camera), point_float);
  const double far_out[3] = {1, 0, -1e-100};
  ExpectLeftOut(camera, far_out);
}

}  // namespace
}  // namespace ceres_ext::kernels
