// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Functors of odometry against their formulas in long double, written out in
// matrices, and their derivatives against Jets and against differences.

#include "ceres_ext/odometry_errors.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "Eigen/Core"
#include "Eigen/Geometry"
#include "ceres/autodiff_cost_function.h"
#include "ceres_ext/inverse_depth_errors.h"
#include "ceres_ext/odometry_cost_functions.h"
#include "ceres_ext/odometry_priors.h"
#include "gtest/gtest.h"

namespace ceres_ext {
namespace {

using Real = long double;
using RealVector = Eigen::Matrix<Real, Eigen::Dynamic, 1>;
using RealVector3 = Eigen::Matrix<Real, 3, 1>;
using RealMatrix3 = Eigen::Matrix<Real, 3, 3>;
using Blocks = std::vector<std::vector<double>>;
using RowMatrix =
    Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

class Random {
 public:
  explicit Random(unsigned seed) : generator_(seed) {}
  double operator()(double scale) { return scale * normal_(generator_); }
  // A pose with a rotation by `angle`; uniform if it is below 0.
  template <typename Rotation>
  std::vector<double> Pose(double angle) {
    Eigen::Vector3d axis((*this)(1), (*this)(1), (*this)(1));
    axis.normalize();
    if (angle < 0.0) {
      angle = 3.0 * std::abs(std::sin((*this)(3)));
    }
    const Eigen::Quaterniond q(Eigen::AngleAxisd(angle, axis));
    std::vector<double> pose;
    if constexpr (Rotation::kSize == 3) {
      pose = {angle * axis[0], angle * axis[1], angle * axis[2]};
    } else if constexpr (std::is_same_v<Rotation, Quaternion>) {
      pose = {q.w(), q.x(), q.y(), q.z()};
    } else {
      pose = {q.x(), q.y(), q.z(), q.w()};
    }
    for (int i = 0; i < 3; ++i) {
      pose.push_back((*this)(3));
    }
    return pose;
  }

 private:
  std::mt19937 generator_;
  std::normal_distribution<double> normal_;
};

// The rotation of a pose.
template <typename Rotation>
RealMatrix3 MatrixOf(const std::vector<double>& pose) {
  if constexpr (Rotation::kSize == 3) {
    const RealVector3 v(pose[0], pose[1], pose[2]);
    return v.isZero(0) ? RealMatrix3(RealMatrix3::Identity())
                       : Eigen::AngleAxis<Real>(v.norm(), v.normalized())
                             .toRotationMatrix();
  } else {
    const int w = std::is_same_v<Rotation, Quaternion> ? 0 : 3;
    const int v = std::is_same_v<Rotation, Quaternion> ? 1 : 0;
    return Eigen::Quaternion<Real>(pose[w], pose[v], pose[v + 1], pose[v + 2])
        .normalized()
        .toRotationMatrix();
  }
}

RealVector3 VectorOf(const double* values) {
  return {values[0], values[1], values[2]};
}

template <typename Rotation>
RealVector3 PlaceOf(const std::vector<double>& pose) {
  return VectorOf(pose.data() + Rotation::kSize);
}

RealVector3 Logarithm(const RealMatrix3& r) {
  const RealVector3 a =
      RealVector3(r(2, 1) - r(1, 2), r(0, 2) - r(2, 0), r(1, 0) - r(0, 1)) / 2;
  const Real t = std::atan2(a.norm(), (r.trace() - 1) / 2);
  return a.norm() == 0 ? a : RealVector3(a * (t / a.norm()));
}

// Residuals and derivatives of a cost function.
struct Evaluation {
  Evaluation(const ceres::CostFunction& cost, const Blocks& blocks)
      : residuals(cost.num_residuals()) {
    std::vector<const double*> values;
    std::vector<double*> to;
    for (const auto& block : blocks) {
      values.push_back(block.data());
      jacobians.emplace_back(cost.num_residuals(), block.size());
    }
    for (auto& jacobian : jacobians) {
      to.push_back(jacobian.data());
    }
    EXPECT_TRUE(cost.Evaluate(values.data(), residuals.data(), to.data()));
  }
  Eigen::VectorXd residuals;
  std::vector<RowMatrix> jacobians;
};

template <typename Error, typename Sizes>
struct JetsOf;
template <typename Error, int... kSizes>
struct JetsOf<Error, std::integer_sequence<int, kSizes...>> {
  using Type =
      ceres::AutoDiffCostFunction<Error, Error::kNumResiduals, kSizes...>;
};

// Central differences of fourth order by the values of block b. With h = 1e-4
// they have errors of 1e-16 fifth derivatives and of 1e4 roundings.
RowMatrix Differences(const ceres::CostFunction& cost,
                      const Blocks& blocks,
                      size_t b) {
  RowMatrix slopes(cost.num_residuals(), blocks[b].size());
  for (size_t k = 0; k < blocks[b].size(); ++k) {
    const auto at = [&](double by) {
      Blocks moved = blocks;
      moved[b][k] += by;
      std::vector<const double*> values;
      for (const auto& block : moved) {
        values.push_back(block.data());
      }
      Eigen::VectorXd residuals(cost.num_residuals());
      EXPECT_TRUE(cost.Evaluate(values.data(), residuals.data(), nullptr));
      return residuals;
    };
    const double h = 1e-4;
    slopes.col(static_cast<int>(k)) =
        (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
  }
  return slopes;
}

// scale: a bound of the terms that a residual or derivative sums, with weights.
template <typename Error>
void ExpectDerivatives(const Error& error, const Blocks& blocks, double scale) {
  const DeviceCostFunction<internal::WrittenModel<Error>> cost(error);
  const Evaluation written(cost, blocks);
  using Jets = typename JetsOf<Error, typename Error::BlockSizes>::Type;
  const Evaluation jets(Jets(new Error(error)), blocks);
  // Sums of up to 15 terms of weights times 40 roundings.
  const double rounding = 600 * kEpsilon * scale;
  EXPECT_LE((written.residuals - jets.residuals).cwiseAbs().maxCoeff(),
            rounding);
  for (size_t b = 0; b < blocks.size(); ++b) {
    EXPECT_LE((written.jacobians[b] - jets.jacobians[b]).cwiseAbs().maxCoeff(),
              rounding)
        << b;
    EXPECT_LE((written.jacobians[b] - Differences(cost, blocks, b))
                  .cwiseAbs()
                  .maxCoeff(),
              1e-10 * scale)
        << b;
    // A block alone has the same derivatives.
    std::vector<const double*> values;
    for (const auto& block : blocks) {
      values.push_back(block.data());
    }
    RowMatrix alone(cost.num_residuals(), blocks[b].size());
    std::vector<double*> to(blocks.size(), nullptr);
    to[b] = alone.data();
    Eigen::VectorXd residuals(cost.num_residuals());
    ASSERT_TRUE(cost.Evaluate(values.data(), residuals.data(), to.data()));
    EXPECT_EQ(alone, written.jacobians[b]);
    // Without derivatives.
    ASSERT_TRUE(cost.Evaluate(values.data(), residuals.data(), nullptr));
    EXPECT_LE((residuals - written.residuals).cwiseAbs().maxCoeff(), rounding);
  }
}

template <typename Error>
void ExpectResiduals(const Error& error,
                     const Blocks& blocks,
                     const RealVector& expected,
                     double scale) {
  const DeviceCostFunction<internal::WrittenModel<Error>> cost(error);
  const Evaluation found(cost, blocks);
  ASSERT_EQ(found.residuals.size(), expected.size());
  for (int i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(found.residuals[i],
                static_cast<double>(expected[i]),
                600 * kEpsilon * scale)
        << i;
  }
}

// ---- Inertial rows.

template <typename Rotation>
InertialError<Rotation> RandomInertial(Random* random) {
  InertialError<Rotation> error;
  error.duration = 0.5 + std::abs((*random)(0.2));
  const std::vector<double> q = random->Pose<Quaternion>(-1.0);
  std::copy_n(q.data(), 4, error.wxyz);
  std::copy_n(q.data() + 4, 3, error.position);
  for (double& v : error.velocity) v = (*random)(2.0);
  for (double& v : error.bias) v = (*random)(0.1);
  for (double& v : error.bias_jacobian) v = (*random)(0.5);
  for (double& v : error.gravity) v = (*random)(5.0);
  for (double& v : error.sqrt_information) v = (*random)(1.0);
  return error;
}

template <typename Rotation>
RealVector InertialReference(const InertialError<Rotation>& error,
                             const Blocks& blocks) {
  const RealMatrix3 r_i = MatrixOf<Rotation>(blocks[0]);
  const RealMatrix3 r_j = MatrixOf<Rotation>(blocks[2]);
  const Real t = error.duration;
  const RealVector3 g = VectorOf(error.gravity);
  Eigen::Matrix<Real, 6, 1> change;
  for (int k = 0; k < 6; ++k) {
    change[k] = Real{blocks[1][3 + k]} - error.bias[k];
  }
  const Eigen::Matrix<Real, 9, 1> correction =
      Eigen::Map<const Eigen::Matrix<double, 9, 6, Eigen::RowMajor>>(
          error.bias_jacobian)
          .cast<Real>() *
      change;
  const RealVector3 turn = correction.head<3>();
  RealMatrix3 measured =
      Eigen::Quaternion<Real>(
          error.wxyz[0], error.wxyz[1], error.wxyz[2], error.wxyz[3])
          .normalized()
          .toRotationMatrix();
  if (turn.norm() > 0) {
    measured *= Eigen::AngleAxis<Real>(turn.norm(), turn.normalized())
                    .toRotationMatrix();
  }
  const RealVector3 v_i = VectorOf(blocks[1].data());
  const RealVector3 v_j = VectorOf(blocks[3].data());
  RealVector raw(15);
  raw << Logarithm(measured.transpose() * r_i.transpose() * r_j),
      r_i.transpose() *
              (PlaceOf<Rotation>(blocks[2]) - PlaceOf<Rotation>(blocks[0]) -
               v_i * t - g * t * t / 2) -
          VectorOf(error.position) - correction.segment<3>(3),
      r_i.transpose() * (v_j - v_i - g * t) - VectorOf(error.velocity) -
          correction.segment<3>(6),
      VectorOf(blocks[3].data() + 3) - VectorOf(blocks[1].data() + 3),
      VectorOf(blocks[3].data() + 6) - VectorOf(blocks[1].data() + 6);
  RealVector whitened = RealVector::Zero(15);
  for (int i = 0, k = 0; i < 15; ++i) {
    for (int j = 0; j <= i; ++j, ++k) {
      whitened[i] += error.sqrt_information[k] * raw[j];
    }
  }
  return whitened;
}

template <typename T>
class OdometryErrorsTest : public ::testing::Test {};
using Rotations = ::testing::Types<EigenQuaternion, Quaternion, AngleAxis>;
TYPED_TEST_SUITE(OdometryErrorsTest, Rotations);

TYPED_TEST(OdometryErrorsTest, InertialRows) {
  using Rotation = TypeParam;
  for (unsigned seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    InertialError<Rotation> error = RandomInertial<Rotation>(&random);
    Blocks blocks = {random.Pose<Rotation>(-1.0),
                     std::vector<double>(9),
                     random.Pose<Rotation>(-1.0),
                     std::vector<double>(9)};
    for (const int b : {1, 3}) {
      for (double& value : blocks[b]) value = random(1.0);
    }
    if (seed % 4 == 0) {
      // No change of the biases, and a rotation as predicted.
      std::copy_n(error.bias, 6, blocks[1].data() + 3);
      blocks[2] = blocks[0];
      const double identity[4] = {1.0, 0.0, 0.0, 0.0};
      std::copy_n(identity, 4, error.wxyz);
    }
    // Weights of 4, lengths of 30.
    ExpectDerivatives(error, blocks, 120.0);
    ExpectResiduals(error, blocks, InertialReference(error, blocks), 120.0);
  }
}

// Residuals vanish at what is predicted, also in place of the first keyframe.
TYPED_TEST(OdometryErrorsTest, PredictsTheNextKeyframe) {
  using Rotation = TypeParam;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const InertialError<Rotation> error = RandomInertial<Rotation>(&random);
    Blocks blocks = {random.Pose<Rotation>(-1.0),
                     std::vector<double>(9),
                     std::vector<double>(Rotation::kSize + 3),
                     std::vector<double>(9)};
    for (double& value : blocks[1]) value = random(1.0);
    error.Predict(
        blocks[0].data(), blocks[1].data(), blocks[2].data(), blocks[3].data());
    ExpectResiduals(error, blocks, RealVector::Zero(15), 120.0);
    Blocks moved = {blocks[0], blocks[1]};
    error.Predict(
        moved[0].data(), moved[1].data(), moved[0].data(), moved[1].data());
    EXPECT_EQ(moved[0], blocks[2]);
    EXPECT_EQ(moved[1], blocks[3]);
  }
}

// ---- Inverse depths.

// In camera coordinates; the poses of keyframes are empty for one keyframe.
template <typename Rotation, typename Error>
RealVector3 InOtherCamera(const Error& error,
                          const Blocks& frames,
                          const std::vector<double>& camera,
                          const std::vector<double>& other,
                          double inverse_depth,
                          double offset) {
  RealVector3 ray;
  for (int k = 0; k < 2; ++k) {
    ray[k] = error.anchor[k] - Real{error.anchor_velocity[k]} * offset;
  }
  ray[2] = 1;
  RealVector3 at = MatrixOf<Rotation>(camera) * (ray / Real{inverse_depth}) +
                   PlaceOf<Rotation>(camera);
  if (!frames.empty()) {
    at = MatrixOf<Rotation>(frames[0]) * at + PlaceOf<Rotation>(frames[0]);
    at = MatrixOf<Rotation>(frames[1]).transpose() *
         (at - PlaceOf<Rotation>(frames[1]));
  }
  return MatrixOf<Rotation>(other).transpose() *
         (at - PlaceOf<Rotation>(other));
}

template <typename Rotation, int kNumFrames, int kNumCameras>
void CheckInverseDepths() {
  using Error = internal::InverseDepthRow<Rotation, kNumFrames, kNumCameras>;
  int num_cases = 0;
  for (unsigned seed = 1; num_cases < 30; ++seed) {
    ASSERT_LT(seed, 1000);
    SCOPED_TRACE(seed);
    Random random(seed);
    Error error;
    for (int k = 0; k < 2; ++k) {
      error.anchor[k] = random(0.3);
      error.anchor_velocity[k] = random(1.0);
      error.image[k] = random(0.3);
      error.velocity[k] = random(1.0);
    }
    error.weight = 2.0 + random(0.3);
    Blocks frames;
    if (kNumFrames == 2) {
      frames = {random.Pose<Rotation>(-1.0), random.Pose<Rotation>(-1.0)};
    }
    Blocks cameras;
    for (int c = 0; c < kNumCameras; ++c) {
      cameras.push_back(random.Pose<Rotation>(-1.0));
    }
    const double inverse_depth = 0.1 + std::abs(random(0.3));
    const double offset = random(0.1);
    const RealVector3 at = InOtherCamera<Rotation>(
        error, frames, cameras.front(), cameras.back(), inverse_depth, offset);
    Blocks blocks = frames;
    blocks.insert(blocks.end(), cameras.begin(), cameras.end());
    blocks.push_back({inverse_depth});
    blocks.push_back({offset});
    if (at[2] < 0) {
      // Behind the camera.
      const DeviceCostFunction<internal::WrittenModel<Error>> cost(error);
      const Evaluation found(cost, blocks);
      EXPECT_TRUE(found.residuals.isZero(0.0));
      for (const RowMatrix& jacobian : found.jacobians) {
        EXPECT_TRUE(jacobian.isZero(0.0));
      }
      continue;
    }
    // Image coordinates of up to 3.
    if (at[2] < 0.3 * at.norm()) {
      continue;
    }
    ++num_cases;
    RealVector expected(2);
    for (int k = 0; k < 2; ++k) {
      expected[k] = error.weight * (at[k] / at[2] - error.image[k] +
                                    Real{error.velocity[k]} * offset);
    }
    // Weights of 3, the square of coordinates, over depths times the inverse
    // depth of 0.1, lengths of 10.
    const double scale = 3e4;
    ExpectResiduals(error, blocks, expected, scale);
    ExpectDerivatives(error, blocks, scale);
    // The projection is smooth at infinity, if it is in front.
    blocks[blocks.size() - 2][0] = 0.0;
    const DeviceCostFunction<internal::WrittenModel<Error>> cost(error);
    const double largest =
        Evaluation(cost, blocks).residuals.cwiseAbs().maxCoeff();
    if (0.0 < largest && largest < 9.0) {
      ExpectDerivatives(error, blocks, scale);
    }
    blocks[blocks.size() - 2][0] = std::nan("");
    std::vector<const double*> values;
    for (const auto& block : blocks) {
      values.push_back(block.data());
    }
    double residuals[2];
    EXPECT_FALSE(cost.Evaluate(values.data(), residuals, nullptr));
  }
}

TYPED_TEST(OdometryErrorsTest, InverseDepths) {
  CheckInverseDepths<TypeParam, 2, 1>();
  CheckInverseDepths<TypeParam, 2, 2>();
  CheckInverseDepths<TypeParam, 1, 2>();
}

// ---- Rows of a keyframe.

// Whitened residuals and derivatives are those of the functor, multiplied.
template <typename Error>
void ExpectWhitened(const Error& error, const Blocks& blocks, Random* random) {
  constexpr int kNum = Error::kNumResiduals;
  WhitenedError<Error> whitened{error, {}};
  for (double& value : whitened.sqrt_information) {
    value = (*random)(1.0);
  }
  const Eigen::Map<const Eigen::Matrix<double, kNum, kNum, Eigen::RowMajor>> a(
      whitened.sqrt_information);
  const Evaluation plain(
      DeviceCostFunction<internal::WrittenModel<Error>>(error), blocks);
  const Evaluation found(
      DeviceCostFunction<internal::WhitenedModel<Error>>(whitened), blocks);
  // Sums of up to 9 terms of at most 4 times 30.
  constexpr double kRounding = 9 * 120 * kEpsilon;
  EXPECT_LE((found.residuals - a * plain.residuals).cwiseAbs().maxCoeff(),
            kRounding);
  for (size_t b = 0; b < blocks.size(); ++b) {
    const RowMatrix expected = a * plain.jacobians[b];
    EXPECT_LE((found.jacobians[b] - expected).cwiseAbs().maxCoeff(), kRounding);
  }
}

TYPED_TEST(OdometryErrorsTest, RowsOfOneKeyframe) {
  using Rotation = TypeParam;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const std::vector<double> pose = random.Pose<Rotation>(-1.0);
    const RealMatrix3 r = MatrixOf<Rotation>(pose);
    const RealVector3 p = PlaceOf<Rotation>(pose);
    const auto vector = [&] {
      return std::vector<double>{random(2), random(2), random(2)};
    };

    PlanarMotionError<Rotation> planar{};
    for (int k = 0; k < 3; ++k) {
      planar.directions[0][k] = random(1.0);
      planar.directions[1][k] = random(1.0);
      planar.point[k] = random(1.0);
      planar.normal[k] = random(1.0);
    }
    planar.height = random(2.0);
    const RealVector3 n = VectorOf(planar.normal);
    RealVector expected(3);
    expected << n.dot(r * VectorOf(planar.directions[0])),
        n.dot(r * VectorOf(planar.directions[1])),
        n.dot(r * VectorOf(planar.point) + p) - planar.height;
    ExpectResiduals(planar, {pose}, expected, 30.0);
    ExpectDerivatives(planar, {pose}, 30.0);
    ExpectWhitened(planar, {pose}, &random);

    const std::vector<double> antenna = vector();
    const std::vector<double> position = vector();
    const GnssPositionError<Rotation> gnss{
        {position[0], position[1], position[2]}};
    expected = VectorOf(position.data()) - r * VectorOf(antenna.data()) - p;
    ExpectResiduals(gnss, {pose, antenna}, expected, 30.0);
    ExpectDerivatives(gnss, {pose, antenna}, 30.0);
    ExpectWhitened(gnss, {pose, antenna}, &random);
    const double origin[3] = {1.0, 2.0, -4.0};
    const auto relative =
        GnssPositionError<Rotation>::RelativeTo(origin, position.data());
    for (int k = 0; k < 3; ++k) {
      EXPECT_EQ(relative.position[k], position[k] - origin[k]);
    }

    SpeedAndBiasPrior prior{};
    std::vector<double> speed(9);
    RealVector difference(9);
    for (int k = 0; k < 9; ++k) {
      prior.measured[k] = random(1.0);
      speed[k] = random(1.0);
      difference[k] = Real{speed[k]} - prior.measured[k];
    }
    ExpectResiduals(prior, {speed}, difference, 5.0);
    ExpectDerivatives(prior, {speed}, 5.0);
    ExpectWhitened(prior, {speed}, &random);
  }
}

}  // namespace
}  // namespace ceres_ext
