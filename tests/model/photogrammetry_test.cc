// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Each functor against its formula in long double, written out in rotation
// matrices after Rodrigues and in the camera models' own formulas, and its
// derivatives against differences of that.

#include "ceres_ext/photogrammetry.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "Eigen/Core"
#include "Eigen/Geometry"
#include "benchmarks/photogrammetry_errors.h"
#include "ceres/autodiff_cost_function.h"
#include "ceres/jet.h"
#include "ceres/manifold.h"
#include "ceres_ext/row_evaluation.h"
#include "gtest/gtest.h"
#include "tests/model/camera_models_reference.h"

namespace ceres_ext {
namespace {

using Vector = Eigen::Matrix<Real, Eigen::Dynamic, 1>;
using Vector3 = Eigen::Matrix<Real, 3, 1>;
using Matrix3 = Eigen::Matrix<Real, 3, 3>;
using Matrix4 = Eigen::Matrix<Real, 4, 4>;
using MatrixXd = Eigen::MatrixXd;
using Jet4 = ceres::Jet<double, 4>;

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
constexpr Real kPi = 3.141592653589793238462643383279502884L;

// ---- The reference: rotations as matrices.

Matrix3 CrossMatrix(const Vector3& v) {
  Matrix3 k;
  k << 0, -v[2], v[1], v[2], 0, -v[0], -v[1], v[0], 0;
  return k;
}

// Rodrigues: I + sin(t) K + (1 - cos t) K^2, K of the axis.
Matrix3 Rodrigues(const Vector3& v) {
  const Real t = v.norm();
  if (t == 0) {
    return Matrix3::Identity();
  }
  const Matrix3 k = CrossMatrix(v / t);
  const Real s = std::sin(t / 2);
  return Matrix3::Identity() + std::sin(t) * k + 2 * s * s * k * k;
}

// The rotation vector: the antisymmetric part is sin(t) times the axis, the
// trace 1 + 2 cos t.
Vector3 Logarithm(const Matrix3& r) {
  const Vector3 a =
      Vector3(r(2, 1) - r(1, 2), r(0, 2) - r(2, 0), r(1, 0) - r(0, 1)) / 2;
  const Real t = std::atan2(a.norm(), (r.trace() - 1) / 2);
  return t == 0 ? a : Vector3(a * (t / a.norm()));
}

Matrix4 Rigid(const Matrix3& rotation, const Vector3& translation) {
  Matrix4 rigid = Matrix4::Identity();
  rigid.topLeftCorner<3, 3>() = rotation;
  rigid.topRightCorner<3, 1>() = translation;
  return rigid;
}

Vector Map(const Matrix4& rigid, const Vector& point) {
  return rigid.topLeftCorner<3, 3>() * point + rigid.topRightCorner<3, 1>();
}

Vector RigidError(const Matrix4& pose, const Matrix4& measured) {
  const Matrix4 difference = pose * measured.inverse();
  Vector error(6);
  error << Logarithm(difference.topLeftCorner<3, 3>()),
      difference.topRightCorner<3, 1>();
  return error;
}

// w, x, y, z wherever they stand.
template <typename Rotation>
Eigen::Quaterniond Coefficients(const double* q) {
  return std::is_same_v<Rotation, Quaternion>
             ? Eigen::Quaterniond(q[0], q[1], q[2], q[3])
             : Eigen::Quaterniond(q[3], q[0], q[1], q[2]);
}

// The pose with its rotation moved by delta[0..2] as its manifold does, which
// for quaternions is a turn by 2 delta after it, and the translation by
// delta[3..5].
template <typename Rotation>
Matrix4 MovedPose(const double* pose, const Real* delta) {
  const Vector3 d(delta[0], delta[1], delta[2]);
  const double* t = pose + Rotation::kSize;
  const Vector3 translation(t[0] + delta[3], t[1] + delta[4], t[2] + delta[5]);
  if constexpr (std::is_same_v<Rotation, AngleAxis>) {
    return Rigid(Rodrigues(Vector3(pose[0], pose[1], pose[2]) + d),
                 translation);
  } else {
    const Eigen::Quaterniond q = Coefficients<Rotation>(pose);
    const Vector3 v(q.x(), q.y(), q.z());
    const Real norm = v.norm();
    const Vector3 vector =
        norm == 0 ? v : Vector3(v * (2 * std::atan2(norm, Real(q.w())) / norm));
    return Rigid(Rodrigues(2 * d) * Rodrigues(vector), translation);
  }
}

template <typename Rotation>
Matrix4 RealPose(const std::vector<double>& pose) {
  const Real zero[6] = {};
  return MovedPose<Rotation>(pose.data(), zero);
}

// ---- The functors.

// The contents of a functor's blocks.
struct Values {
  std::vector<std::vector<double>> poses;
  std::vector<double> point;
  std::vector<double> params;
};

using Reference = std::function<Vector(const std::vector<Matrix4>& poses,
                                       const Vector& point,
                                       const Vector& params)>;

// The order of a functor's blocks: a pose by its number, or one of these.
constexpr int kPoint = -1;
constexpr int kParams = -2;

// Residuals and derivatives, one column for each value of the blocks.
struct Evaluation {
  bool success = false;
  Eigen::VectorXd residuals;
  MatrixXd jacobian;
};

// By Jets of four partial derivatives each.
template <typename Error, int... kSizes, size_t... kBlocks>
Evaluation EvaluateInStrides(const Error& error,
                             const std::vector<double>& x,
                             std::integer_sequence<int, kSizes...>,
                             std::index_sequence<kBlocks...>) {
  constexpr int kNum = Error::kNumResiduals;
  constexpr int kTotal = (kSizes + ...);
  const int sizes[] = {kSizes...};
  Evaluation found;
  found.residuals.setZero(kNum);
  found.jacobian.setZero(kNum, kTotal);
  for (int begin = 0; begin < kTotal; begin += 4) {
    std::vector<Jet4> jets(kTotal);
    for (int i = 0; i < kTotal; ++i) {
      jets[i] =
          begin <= i && i < begin + 4 ? Jet4(x[i], i - begin) : Jet4(x[i]);
    }
    const Jet4* blocks[] = {((void)kBlocks, jets.data())...};
    for (size_t i = 1; i < sizeof...(kSizes); ++i) {
      blocks[i] = blocks[i - 1] + sizes[i - 1];
    }
    std::vector<Jet4> values(kNum);
    found.success = error(blocks[kBlocks]..., values.data());
    if (!found.success) {
      break;
    }
    for (int i = 0; i < kNum; ++i) {
      found.residuals[i] = values[i].a;
      for (int j = begin; j < std::min(begin + 4, kTotal); ++j) {
        found.jacobian(i, j) = values[i].v[j - begin];
      }
    }
  }
  return found;
}

template <typename Sizes, typename Error>
Evaluation EvaluateInStrides(const Error& error, const std::vector<double>& x) {
  return EvaluateInStrides(
      error, x, Sizes(), std::make_index_sequence<Sizes::size()>());
}

// By fn(blocks, residuals, Jacobians of the blocks).
template <typename Sizes, typename Function>
Evaluation EvaluateBlocks(const Sizes& sizes,
                          int num_residuals,
                          const std::vector<double>& x,
                          const Function& fn) {
  std::vector<const double*> blocks;
  std::vector<std::vector<double>> parts;
  const double* next = x.data();
  for (const int size : sizes) {
    blocks.push_back(next);
    next += size;
    parts.emplace_back(num_residuals * size);
  }
  EXPECT_EQ(next, x.data() + x.size());
  std::vector<double*> pointers;
  for (auto& part : parts) {
    pointers.push_back(part.data());
  }
  Evaluation found;
  found.residuals.setZero(num_residuals);
  found.success = fn(blocks.data(), found.residuals.data(), pointers.data());
  found.jacobian.setZero(num_residuals, x.size());
  int column = 0;
  for (const auto& part : parts) {
    const int size = static_cast<int>(part.size()) / num_residuals;
    for (int i = 0; i < num_residuals; ++i) {
      for (int j = 0; j < size; ++j) {
        found.jacobian(i, column + j) = part[i * size + j];
      }
    }
    column += size;
  }
  return found;
}

// By a cost function of Ceres.
Evaluation Evaluate(const ceres::CostFunction& cost,
                    const std::vector<double>& x) {
  return EvaluateBlocks(
      cost.parameter_block_sizes(), cost.num_residuals(), x, [&](auto... args) {
        return cost.Evaluate(args...);
      });
}

template <typename Sizes, typename Error>
Evaluation EvaluateByCeres(const Error& error, const std::vector<double>& x) {
  return Evaluate(CostFunctionFor<ceres::AutoDiffCostFunction, Error, Sizes>(
                      new Error(error)),
                  x);
}

template <typename Rotation>
MatrixXd PlusJacobian(const double* rotation) {
  Eigen::Matrix<double, Rotation::kSize, 3, Eigen::RowMajor> plus;
  if constexpr (std::is_same_v<Rotation, AngleAxis>) {
    plus.setIdentity();
  } else if constexpr (std::is_same_v<Rotation, Quaternion>) {
    ceres::QuaternionManifold().PlusJacobian(rotation, plus.data());
  } else {
    ceres::EigenQuaternionManifold().PlusJacobian(rotation, plus.data());
  }
  return plus;
}

// How far residuals and derivatives may lie from the reference, and the step of
// its differences.
struct Tolerances {
  double residual;
  double derivative;
  Real step;
};

// Pixels of at most 2000 after about 60 operations, each of which loses half an
// epsilon; their derivatives are at most 2e4 here. The differences of five
// points with step h are off by h^4 / 30 = 3e-22 times the fifth derivative, at
// most 1e10, and by 1e-19 / h = 1e-14 times the value: 2e-11, a tenth of that.
constexpr Tolerances kPixelTolerances = {
    30 * kEpsilon * 2000.0, 60 * kEpsilon * 2e4, 1e-5L};
// Logarithms of at most pi, positions and their derivatives of at most 20,
// after fewer operations. Differences: 3e-18 times 1e3, 1e-15 times 20.
constexpr Tolerances kPriorTolerances = {
    30 * kEpsilon * 20.0, 30 * kEpsilon * 20.0, 1e-4L};

// The values of a functor's blocks in their order, and by them the reference
// and its derivatives by poses (rotations in their three tangent coordinates),
// point and params.
template <typename Rotation>
class Expected {
 public:
  Expected(const Values& values,
           const std::vector<int>& order,
           const Reference& reference)
      : values_(values),
        reference_(reference),
        point_begin_(6 * static_cast<int>(values.poses.size())),
        params_begin_(point_begin_ + static_cast<int>(values.point.size())),
        num_columns_(params_begin_ + static_cast<int>(values.params.size())) {
    tangents_ = MatrixXd::Zero(100, num_columns_);
    for (const int what : order) {
      const int row = static_cast<int>(x_.size());
      const std::vector<double>& block = what == kPoint    ? values.point
                                         : what == kParams ? values.params
                                                           : values.poses[what];
      x_.insert(x_.end(), block.begin(), block.end());
      const int size = static_cast<int>(block.size());
      if (what >= 0) {
        tangents_.block(row, 6 * what, Rotation::kSize, 3) =
            PlusJacobian<Rotation>(block.data());
        tangents_.block(row + Rotation::kSize, 6 * what + 3, 3, 3)
            .setIdentity();
      } else {
        tangents_
            .block(
                row, what == kPoint ? point_begin_ : params_begin_, size, size)
            .setIdentity();
      }
    }
    tangents_.conservativeResize(x_.size(), num_columns_);
  }

  const std::vector<double>& x() const { return x_; }

  void Compare(const Evaluation& found, const Tolerances& tolerances) const {
    ASSERT_TRUE(found.success);
    Vector delta = Vector::Zero(num_columns_);
    const Vector residuals = At(delta);
    ASSERT_EQ(residuals.size(), found.residuals.size());
    for (int i = 0; i < residuals.size(); ++i) {
      EXPECT_NEAR(found.residuals[i],
                  static_cast<double>(residuals[i]),
                  tolerances.residual)
          << "residual " << i;
    }
    const MatrixXd jacobian = found.jacobian * tangents_;
    for (int j = 0; j < num_columns_; ++j) {
      const auto moved = [&](int steps) {
        delta[j] = steps * tolerances.step;
        return At(delta);
      };
      const Vector difference =
          (8 * (moved(1) - moved(-1)) - (moved(2) - moved(-2))) /
          (12 * tolerances.step);
      delta[j] = 0;
      for (int i = 0; i < residuals.size(); ++i) {
        EXPECT_NEAR(jacobian(i, j),
                    static_cast<double>(difference[i]),
                    tolerances.derivative)
            << "residual " << i << " by " << j;
      }
    }
  }

 private:
  Vector At(const Vector& delta) const {
    std::vector<Matrix4> poses;
    for (const auto& pose : values_.poses) {
      poses.push_back(
          MovedPose<Rotation>(pose.data(), delta.data() + 6 * poses.size()));
    }
    Vector point(values_.point.size());
    Vector params(values_.params.size());
    for (int i = 0; i < point.size(); ++i) {
      point[i] = values_.point[i] + delta[point_begin_ + i];
    }
    for (int i = 0; i < params.size(); ++i) {
      params[i] = values_.params[i] + delta[params_begin_ + i];
    }
    return reference_(poses, point, params);
  }

  const Values& values_;
  const Reference& reference_;
  int point_begin_;
  int params_begin_;
  int num_columns_;
  std::vector<double> x_;
  // Values of the blocks by what they are differentiated by.
  MatrixXd tangents_;
};

// By the derivatives that a functor brings.
template <typename Error, int... kSizes>
Evaluation EvaluateWritten(const Error& error,
                           const std::vector<double>& x,
                           std::integer_sequence<int, kSizes...> sizes) {
  return EvaluateBlocks(
      std::initializer_list<int>{kSizes...},
      Error::kNumResiduals,
      x,
      [&](auto... args) { return error.Differentiate(sizes, args...); });
}

// The derivatives of a functor are not those of a functor derived from it.
using PinholeError = ReprojectionError<PinholeCamera, Quaternion>;
static_assert(internal::HasDerivatives<PinholeError>());
static_assert(!internal::HasDerivatives<WeightedError<PinholeError>>());
static_assert(!internal::HasDerivatives<WhitenedError<PinholeError>>());

template <typename Rotation, typename Sizes, typename Error>
void ExpectAgrees(const Error& error,
                  const Values& values,
                  const std::vector<int>& order,
                  const Reference& reference,
                  const Tolerances& tolerances) {
  const Expected<Rotation> expected(values, order, reference);
  {
    SCOPED_TRACE("AutoDiffCostFunction");
    expected.Compare(EvaluateByCeres<Sizes>(error, expected.x()), tolerances);
  }
  if constexpr (internal::HasDerivatives<Error>()) {
    SCOPED_TRACE("written");
    expected.Compare(EvaluateWritten(error, expected.x(), Sizes()), tolerances);
  }
  SCOPED_TRACE("strides");
  expected.Compare(EvaluateInStrides<Sizes>(error, expected.x()), tolerances);
}

template <typename R>
class PhotogrammetryTest : public ::testing::Test {
 protected:
  double Uniform(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }
  std::vector<double> RandomVector(double norm) {
    Eigen::Vector3d v(Uniform(-1, 1), Uniform(-1, 1), Uniform(-1, 1));
    v *= norm / v.norm();
    return {v[0], v[1], v[2]};
  }

  // The rotation of the given vector; quaternions of either sign, with the norm
  // as near to 1 as doubles have it.
  std::vector<double> RotationOf(const std::vector<double>& vector) {
    if (std::is_same_v<R, AngleAxis>) {
      return vector;
    }
    const Vector3 v(vector[0], vector[1], vector[2]);
    const Real t = v.norm();
    const Real s = t == 0 ? 0.5L : std::sin(t / 2) / t;
    const Real sign = Uniform(-1, 1) < 0 ? -1 : 1;
    const double w = static_cast<double>(sign * std::cos(t / 2));
    const double x = static_cast<double>(sign * s * v[0]);
    const double y = static_cast<double>(sign * s * v[1]);
    const double z = static_cast<double>(sign * s * v[2]);
    return std::is_same_v<R, Quaternion> ? std::vector<double>{w, x, y, z}
                                         : std::vector<double>{x, y, z, w};
  }
  std::vector<double> PoseOf(const std::vector<double>& rotation_vector,
                             const Vector3& translation) {
    std::vector<double> pose = RotationOf(rotation_vector);
    for (int i = 0; i < 3; ++i) {
      pose.push_back(static_cast<double>(translation[i]));
    }
    return pose;
  }
  std::vector<double> RandomPose(double angle) {
    return PoseOf(RandomVector(angle),
                  Vector3(Uniform(-3, 3), Uniform(-3, 3), Uniform(-3, 3)));
  }

  template <typename Camera>
  std::vector<double> RandomParams() {
    std::vector<double> params(Camera::kNumParams);
    for (int i = 0; i < Camera::kNumParams; ++i) {
      params[i] = i < Camera::kNumFocalLengths       ? Uniform(800, 1200)
                  : i < Camera::kNumFocalLengths + 2 ? Uniform(450, 550)
                                                     : Uniform(-0.05, 0.05);
    }
    return params;
  }
  // Up to 35 degrees from the axis.
  Vector3 PointInCamera() {
    const double depth = Uniform(3, 6);
    return {Uniform(-0.5, 0.5) * depth, Uniform(-0.5, 0.5) * depth, depth};
  }
  // A point of the world which cam_from_world takes there.
  std::vector<double> PointSeen(const Matrix4& cam_from_world) {
    const Vector point = Map(cam_from_world.inverse(), PointInCamera());
    return {static_cast<double>(point[0]),
            static_cast<double>(point[1]),
            static_cast<double>(point[2])};
  }

  std::mt19937 random_{1};
};

using Rotations = ::testing::Types<AngleAxis, Quaternion, EigenQuaternion>;
TYPED_TEST_SUITE(PhotogrammetryTest, Rotations);

// None, small (1e-8: 1 - cos is 0 in doubles), any, close to pi and beyond.
constexpr double kAngles[] = {
    0.0, 1e-300, 1e-12, 1e-8, 1e-3, 0.7, 3.14159, 5.0};

template <typename Camera>
Vector ReferencePixel(const Vector& in_camera,
                      const Vector& params,
                      const double* observed) {
  Vector pixel(2);
  CameraReference(Camera::kName, params.data(), in_camera.data(), pixel.data());
  pixel -= Vector(Eigen::Map<const Eigen::Vector2d>(observed).cast<Real>());
  if (Camera::kModelId == EquirectangularCamera::kModelId) {
    pixel[0] -= params[0] * std::round(pixel[0] / params[0]);
  }
  return pixel;
}

// A camera sees a point that a rotation has turned, whatever wrote the
// rotation: one kind of rotation has all cameras, the others have one.
TYPED_TEST(PhotogrammetryTest, ReprojectionOfAllCameras) {
  ForEachCameraModel([&](auto camera) {
    using Camera = decltype(camera);
    using Error = ReprojectionError<Camera, TypeParam>;
    if constexpr (std::is_same_v<TypeParam, Quaternion> ||
                  std::is_same_v<Camera, OpenCvCamera>) {
      SCOPED_TRACE(Camera::kName);
      for (const double angle : kAngles) {
        SCOPED_TRACE(angle);
        Values values{{this->RandomPose(angle)},
                      {},
                      this->template RandomParams<Camera>()};
        values.point = this->PointSeen(RealPose<TypeParam>(values.poses[0]));
        const double seen[2] = {612.25, 388.5};
        const Reference reference = [&](const std::vector<Matrix4>& poses,
                                        const Vector& point,
                                        const Vector& params) {
          return ReferencePixel<Camera>(Map(poses[0], point), params, seen);
        };
        ExpectAgrees<TypeParam, typename Error::BlockSizes>(
            Error{seen[0], seen[1]},
            values,
            {kPoint, 0, kParams},
            reference,
            kPixelTolerances);
      }
    }
  });
}

TYPED_TEST(PhotogrammetryTest, SplitWeightedAndWhitenedReprojection) {
  using Camera = OpenCvCamera;
  using Error = ReprojectionError<Camera, TypeParam>;
  for (const double angle : kAngles) {
    SCOPED_TRACE(angle);
    Values values{
        {this->RandomPose(angle)}, {}, this->template RandomParams<Camera>()};
    values.point = this->PointSeen(RealPose<TypeParam>(values.poses[0]));
    const double seen[2] = {612.25, 388.5};
    const Error error{seen[0], seen[1]};
    const Reference reference = [&](const std::vector<Matrix4>& poses,
                                    const Vector& point,
                                    const Vector& params) {
      return ReferencePixel<Camera>(Map(poses[0], point), params, seen);
    };
    ExpectAgrees<TypeParam, typename Error::SplitBlockSizes>(
        error, values, {0, kPoint, kParams}, reference, kPixelTolerances);

    const WeightedError<Error> weighted{error, 0.25};
    const Reference weighted_reference =
        [&](const auto& poses, const Vector& point, const Vector& params) {
          return Vector(reference(poses, point, params) / 4);
        };
    ExpectAgrees<TypeParam, typename Error::BlockSizes>(weighted,
                                                        values,
                                                        {kPoint, 0, kParams},
                                                        weighted_reference,
                                                        kPixelTolerances);

    // Row-major, and not symmetric.
    const WhitenedError<Error> whitened{error, {0.5, -0.25, 0.125, 0.75}};
    const Reference whitened_reference =
        [&](const auto& poses, const Vector& point, const Vector& params) {
          const Vector r = reference(poses, point, params);
          Vector a(2);
          a << r[0] / 2 - r[1] / 4, r[0] / 8 + 3 * r[1] / 4;
          return a;
        };
    ExpectAgrees<TypeParam, typename Error::SplitBlockSizes>(
        whitened,
        values,
        {0, kPoint, kParams},
        whitened_reference,
        kPixelTolerances);
  }
}

TYPED_TEST(PhotogrammetryTest, ReprojectionInRigs) {
  using Camera = FullOpenCvCamera;
  using Error = RigReprojectionError<Camera, TypeParam>;
  using ConstantError = ConstantRigReprojectionError<Camera, TypeParam>;
  for (const double angle : kAngles) {
    for (const double rig_angle : {0.0, 1e-8, 1.1}) {
      SCOPED_TRACE(angle);
      Values values{{this->RandomPose(rig_angle), this->RandomPose(angle)},
                    {},
                    this->template RandomParams<Camera>()};
      const Matrix4 cam_from_rig = RealPose<TypeParam>(values.poses[0]);
      values.point =
          this->PointSeen(cam_from_rig * RealPose<TypeParam>(values.poses[1]));
      const double seen[2] = {612.25, 388.5};
      const Reference reference = [&](const std::vector<Matrix4>& poses,
                                      const Vector& point,
                                      const Vector& params) {
        return ReferencePixel<Camera>(
            Map(poses[0] * poses[1], point), params, seen);
      };
      ExpectAgrees<TypeParam, typename Error::BlockSizes>(
          Error{seen[0], seen[1]},
          values,
          {kPoint, 0, 1, kParams},
          reference,
          kPixelTolerances);
      ExpectAgrees<TypeParam, typename Error::SplitBlockSizes>(
          Error{seen[0], seen[1]},
          values,
          {0, 1, kPoint, kParams},
          reference,
          kPixelTolerances);

      // Constants need no norm of 1.
      std::vector<double> constant = values.poses[0];
      for (int i = 0; i < TypeParam::kSize && TypeParam::kSize == 4; ++i) {
        constant[i] *= 3.0;
      }
      const ConstantError constant_error(seen[0], seen[1], constant.data());
      const Reference constant_reference =
          [&](const auto& poses, const Vector& point, const Vector& params) {
            return reference({cam_from_rig, poses[0]}, point, params);
          };
      values.poses.erase(values.poses.begin());
      ExpectAgrees<TypeParam, typename ConstantError::BlockSizes>(
          constant_error,
          values,
          {kPoint, 0, kParams},
          constant_reference,
          kPixelTolerances);
      ExpectAgrees<TypeParam, typename ConstantError::SplitBlockSizes>(
          constant_error,
          values,
          {0, kPoint, kParams},
          constant_reference,
          kPixelTolerances);
    }
  }
}

// (4e6, -5e6, 0.5) + (1.5, -2, 0.75)
constexpr double kFarPosition[] = {4000001.5, -5000002.0, 1.25};

TYPED_TEST(PhotogrammetryTest, PositionPriors) {
  using Error = PositionPrior<TypeParam>;
  for (const double angle : kAngles) {
    SCOPED_TRACE(angle);
    const Values values{{this->RandomPose(angle)}, {}, {}};
    const Error error{{1.5, -2.0, 0.75}};
    const Reference reference =
        [](const std::vector<Matrix4>& poses, const Vector&, const Vector&) {
          // The position of the camera's origin in the world.
          return Vector(Vector3(1.5L, -2.0L, 0.75L) -
                        Map(poses[0].inverse(), Vector3::Zero()));
        };
    ExpectAgrees<TypeParam, typename Error::BlockSizes>(
        error, values, {0}, reference, kPriorTolerances);
    ExpectAgrees<TypeParam, typename Error::SplitBlockSizes>(
        error, values, {0}, reference, kPriorTolerances);
  }
}

// R X + t = R (X - o) + (t + R o), to the roundings of far coordinates.
TYPED_TEST(PhotogrammetryTest, MovedOrigins) {
  const double origin[3] = {4e6, -5e6, 0.5};
  const double back[3] = {-4e6, 5e6, -0.5};
  for (const double angle : kAngles) {
    SCOPED_TRACE(angle);
    const std::vector<double> near = this->RandomPose(angle);
    std::vector<double> far = near;
    MoveOrigin<TypeParam>(back, far.data());
    EXPECT_GT(
        std::abs(far[TypeParam::kSize] - near[TypeParam::kSize]) +
            std::abs(far[TypeParam::kSize + 1] - near[TypeParam::kSize + 1]) +
            std::abs(far[TypeParam::kSize + 2] - near[TypeParam::kSize + 2]),
        1e6);
    std::vector<double> moved = far;
    MoveOrigin<TypeParam>(origin, moved.data());
    std::vector<double> split = far;
    MoveOrigin<TypeParam>(
        origin, split.data(), split.data() + TypeParam::kSize);
    EXPECT_EQ(split, moved);
    for (int i = 0; i < TypeParam::kSize + 3; ++i) {
      // There and back, 30 roundings each of numbers up to |o|.
      EXPECT_NEAR(moved[i], near[i], 60 * kEpsilon * 6.5e6);
    }
    const auto prior =
        PositionPrior<TypeParam>::RelativeTo(origin, kFarPosition);
    EXPECT_EQ(prior.position[0], 1.5);
    EXPECT_EQ(prior.position[1], -2.0);
    EXPECT_EQ(prior.position[2], 0.75);
  }
}

// Errors of a pose by this angle: none, small, on both sides of a right angle,
// where the formula of the logarithm changes, and close to pi.
constexpr double kErrorAngles[] = {
    0.0, 1e-300, 1e-12, 1e-8, 0.019, 0.021, 1.0, 1.5707, 1.5709, 3.1};

TYPED_TEST(PhotogrammetryTest, PosePriors) {
  using Error = PosePrior<TypeParam>;
  for (const double angle : {0.0, 0.7, 3.1}) {
    for (const double error_angle : kErrorAngles) {
      SCOPED_TRACE(error_angle);
      const std::vector<double> vector = this->RandomVector(angle);
      const std::vector<double> measured =
          this->PoseOf(vector, Vector3(0.5L, -1.0L, 2.0L));
      // Rotation = Exp(error) measured, at 0 the same numbers, or the same
      // rotation by the other quaternion.
      std::vector<double> pose = measured;
      for (int i = 0; i < TypeParam::kSize && TypeParam::kSize == 4; ++i) {
        pose[i] = -pose[i];
      }
      if (error_angle != 0.0) {
        const std::vector<double> e = this->RandomVector(error_angle);
        const Vector3 v =
            Logarithm(Rodrigues({e[0], e[1], e[2]}) *
                      Rodrigues({vector[0], vector[1], vector[2]}));
        pose = this->PoseOf({static_cast<double>(v[0]),
                             static_cast<double>(v[1]),
                             static_cast<double>(v[2])},
                            Vector3(0.25L, -1.5L, 2.5L));
      }
      Values values{{pose}, {}, {}};
      const Error error(measured.data());
      const Matrix4 real_measured = RealPose<TypeParam>(measured);
      const Reference reference =
          [&](const std::vector<Matrix4>& poses, const Vector&, const Vector&) {
            return RigidError(poses[0], real_measured);
          };
      ExpectAgrees<TypeParam, typename Error::BlockSizes>(
          error, values, {0}, reference, kPriorTolerances);
      ExpectAgrees<TypeParam, typename Error::SplitBlockSizes>(
          error, values, {0}, reference, kPriorTolerances);

      if (error_angle == 0.0) {
        values.poses = {measured};
        ExpectAgrees<TypeParam, typename Error::BlockSizes>(
            error, values, {0}, reference, kPriorTolerances);
      }

      // Constants need no norm of 1.
      if (TypeParam::kSize == 4) {
        std::vector<double> longer = measured;
        for (int i = 0; i < 4; ++i) {
          longer[i] *= 3.0;
        }
        ExpectAgrees<TypeParam, typename Error::BlockSizes>(
            Error(longer.data()), values, {0}, reference, kPriorTolerances);
      }
    }
  }
}

TYPED_TEST(PhotogrammetryTest, RelativePosePriors) {
  using Error = RelativePosePrior<TypeParam>;
  for (const double angle : {0.0, 0.9}) {
    for (const double error_angle : kErrorAngles) {
      SCOPED_TRACE(error_angle);
      const std::vector<double> vector = this->RandomVector(angle);
      const std::vector<double> measured =
          this->PoseOf(vector, Vector3(0.5L, -1.0L, 2.0L));
      const Matrix4 real_measured = RealPose<TypeParam>(measured);
      // i_from_world = Exp(error) measured j_from_world.
      const std::vector<double> j = this->RandomPose(angle);
      const std::vector<double> e = this->RandomVector(error_angle);
      const Matrix4 real_i =
          Rigid(Rodrigues({e[0], e[1], e[2]}), Vector3(0.25L, 0.5L, -0.125L)) *
          real_measured * RealPose<TypeParam>(j);
      const Vector3 v = Logarithm(real_i.topLeftCorner<3, 3>());
      const std::vector<double> i = this->PoseOf({static_cast<double>(v[0]),
                                                  static_cast<double>(v[1]),
                                                  static_cast<double>(v[2])},
                                                 real_i.topRightCorner<3, 1>());
      const Values values{{i, j}, {}, {}};
      const Reference reference =
          [&](const std::vector<Matrix4>& poses, const Vector&, const Vector&) {
            return RigidError(poses[0] * poses[1].inverse(), real_measured);
          };
      const Error error(measured.data());
      ExpectAgrees<TypeParam, typename Error::BlockSizes>(
          error, values, {0, 1}, reference, kPriorTolerances);
      ExpectAgrees<TypeParam, typename Error::SplitBlockSizes>(
          error, values, {0, 1}, reference, kPriorTolerances);
    }
  }
}

TYPED_TEST(PhotogrammetryTest, ALogarithmOfPiIsFinite) {
  std::vector<double> measured = this->PoseOf({0.0, 0.0, 0.0}, Vector3::Zero());
  const PosePrior<TypeParam> error(measured.data());
  std::vector<double> pose =
      this->PoseOf({0.0, static_cast<double>(kPi), 0.0}, Vector3::Zero());
  if (TypeParam::kSize == 4) {
    // w = 0, where one angle has two logarithms.
    for (int i = 0; i < 4; ++i) {
      pose[i] = std::round(pose[i]);
    }
  }
  const Evaluation found =
      EvaluateInStrides<typename PosePrior<TypeParam>::BlockSizes>(error, pose);
  ASSERT_TRUE(found.success);
  EXPECT_NEAR(
      std::abs(found.residuals[1]), static_cast<double>(kPi), 4 * kEpsilon);
  EXPECT_TRUE(found.jacobian.allFinite());
}

TYPED_TEST(PhotogrammetryTest, SeesNothingBehindTheCamera) {
  using Camera = SimpleRadialFisheyeCamera;
  using Error = ReprojectionError<Camera, TypeParam>;
  using RigError = RigReprojectionError<Camera, TypeParam>;
  const double kNan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> pose =
      this->PoseOf({0.0, 0.0, 0.0}, Vector3::Zero());
  const auto params = this->template RandomParams<Camera>();
  for (const double depth : {-1.0, 0.0, 0.5 * kEpsilon, kEpsilon, kNan}) {
    SCOPED_TRACE(depth);
    std::vector<double> x = {0.0, 0.0, depth};
    x.insert(x.end(), pose.begin(), pose.end());
    std::vector<double> rig_x = x;
    x.insert(x.end(), params.begin(), params.end());
    rig_x.insert(rig_x.end(), pose.begin(), pose.end());
    rig_x.insert(rig_x.end(), params.begin(), params.end());
    const auto check = [&](const Evaluation& found) {
      EXPECT_EQ(found.success, !std::isnan(depth));
      if (found.success) {
        EXPECT_EQ(found.residuals[0] == 0.0, depth < kEpsilon);
        EXPECT_EQ(found.residuals[1] == 0.0, depth < kEpsilon);
        EXPECT_EQ(found.jacobian.isZero(0.0), depth < kEpsilon);
      }
    };
    using Sizes = typename Error::BlockSizes;
    const Error error{1.0, 2.0};
    check(EvaluateInStrides<Sizes>(error, x));
    check(EvaluateInStrides<Sizes>(
        WhitenedError<Error>{error, {1.0, 2.0, 3.0, 4.0}}, x));
    check(EvaluateInStrides<Sizes>(WeightedError<Error>{error, 2.0}, x));
    check(EvaluateInStrides<Sizes>(
        ConstantRigReprojectionError<Camera, TypeParam>(1.0, 2.0, pose.data()),
        x));
    check(EvaluateInStrides<typename RigError::BlockSizes>(RigError{1.0, 2.0},
                                                           rig_x));
  }
}

TYPED_TEST(PhotogrammetryTest, QuaternionsOfAnotherNormAreNotNormalized) {
  if constexpr (TypeParam::kSize == 4) {
    const double rotation[4] = {0.5, -1.0, 0.75, 0.25};
    const double translation[3] = {1.0, 2.0, 3.0};
    const double point[3] = {-2.0, 0.5, 1.5};
    double transformed[3];
    TransformPoint<TypeParam>(rotation, translation, point, transformed);
    const Eigen::Quaterniond q = Coefficients<TypeParam>(rotation);
    const Matrix3 v = CrossMatrix({q.x(), q.y(), q.z()});
    const Matrix3 matrix =
        Matrix3::Identity() + 2 * Real(q.w()) * v + 2 * v * v;
    const Vector expected =
        Map(Rigid(matrix, {1, 2, 3}), Vector3(-2, 0.5, 1.5));
    for (int i = 0; i < 3; ++i) {
      EXPECT_NEAR(transformed[i], static_cast<double>(expected[i]), 1e-14);
    }
  }
}

// A class that derives from a model has the derivatives of its own projection.
struct ShearedCamera : SimpleRadialCamera {
  template <typename T>
  static bool ImgFromCam(const T* params, const T* point, T* pixel) {
    if (!SimpleRadialCamera::ImgFromCam(params, point, pixel)) {
      return false;
    }
    pixel[0] += 0.5 * pixel[1];
    return true;
  }
};
static_assert(internal::HasDistortion<SimpleRadialCamera>());
static_assert(!internal::HasDistortion<ShearedCamera>());

TEST(Photogrammetry, DerivedCamerasHaveTheirOwnDerivatives) {
  using Error = ReprojectionError<ShearedCamera, EigenQuaternion>;
  const std::vector<double> x = {
      0.3, -0.2, 4.0, 0.0, 0.0, 0.0, 1.0, 0.1, 0.2, 0.5, 800, 600, 400, 0.1};
  const Error error{612.25, 388.5};
  const Evaluation written = EvaluateWritten(error, x, Error::BlockSizes());
  const Evaluation jets = EvaluateByCeres<Error::BlockSizes>(error, x);
  ASSERT_TRUE(written.success && jets.success);
  // Both round some tens of operations.
  EXPECT_LT((written.residuals - jets.residuals).norm(),
            1e-13 * jets.residuals.norm());
  EXPECT_LT((written.jacobian - jets.jacobian).norm(),
            1e-13 * jets.jacobian.norm());
}

TEST(Photogrammetry, PointPriors) {
  const PointPrior error{{1.5, -2.0, 0.75}};
  const Values values{{}, {0.1, 0.2, 0.3}, {}};
  const Reference reference =
      [](const auto&, const Vector& point, const Vector&) {
        return Vector(point - Vector3(1.5L, -2.0L, 0.75L));
      };
  ExpectAgrees<AngleAxis, PointPrior::BlockSizes>(
      error, values, {kPoint}, reference, kPriorTolerances);
  const double origin[3] = {4e6, -5e6, 0.5};
  const PointPrior far = PointPrior::RelativeTo(origin, kFarPosition);
  EXPECT_TRUE(std::equal(far.position, far.position + 3, error.position));
}

// Directions: residuals by hand, and written derivatives against Jets.
TEST(Photogrammetry, Directions) {
  const auto expect_agrees = [](const auto& error,
                                const std::vector<double>& x,
                                const Eigen::Vector3d& expected) {
    using Error = std::decay_t<decltype(error)>;
    const Evaluation written =
        EvaluateWritten(error, x, typename Error::BlockSizes());
    const Evaluation jets =
        EvaluateByCeres<typename Error::BlockSizes>(error, x);
    ASSERT_TRUE(written.success && jets.success);
    for (const Evaluation* found : {&written, &jets}) {
      EXPECT_LT((found->residuals - expected).norm(), 1e-15);
    }
    // Products of two and sums of three factors that are below 8.
    EXPECT_LT((written.jacobian - jets.jacobian).norm(), 1e-14);
  };
  // s (X - c) = 0.5 (2, -1, 3.5)
  expect_agrees(DirectionError{{0.5, 0.25, -1.0}},
                {1.0, 2.0, -0.5, 3.0, 1.0, 3.0, 0.5},
                {-0.5, 0.75, -2.75});
  // Less 0.5 * 2 (1, 0, 0.5).
  expect_agrees(RigDirectionError{{0.5, 0.25, -1.0}, {1.0, 0.0, 0.5}},
                {1.0, 2.0, -0.5, 3.0, 1.0, 3.0, 0.5, 2.0},
                {0.5, 0.75, -2.25});
  // Less 0.5 R (1, 2, 3), R = (e_y, e_z, e_x)'.
  expect_agrees(
      SensorDirectionError{{0.5, 0.25, -1.0}, {0, 1, 0, 0, 0, 1, 1, 0, 0}},
      {1.0, 2.0, -0.5, 3.0, 1.0, 3.0, 0.5, 1.0, 2.0, 3.0},
      {0.5, 2.25, -2.25});
}

// Each case is whole: its list of blocks, a cost function, finite values, and
// an object that can be copied to a device byte by byte.
TEST(Photogrammetry, TheListOfCases) {
  std::vector<std::string> names;
  ForEachPhotogrammetryCase([&](const auto& visited) {
    using Case = std::decay_t<decltype(visited)>;
    using Error = typename Case::Error;
    static_assert(std::is_trivially_copyable_v<Error>);
    SCOPED_TRACE(visited.name);
    const Evaluation found = EvaluateByCeres<typename Case::BlockSizes>(
        visited.error, visited.parameters);
    ASSERT_TRUE(found.success);
    EXPECT_TRUE(found.jacobian.allFinite());
    EXPECT_FALSE(found.jacobian.isZero(0.0));
    names.push_back(visited.name);
  });
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::unique(names.begin(), names.end()), names.end());
  EXPECT_EQ(names.size(), 50);
}

TEST(SquareRootInformation, WhitensACovariance) {
  // Radians and metres: variances that lie 1e12 apart.
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform(-1.0, 1.0);
  Eigen::Matrix<double, 6, 6, Eigen::RowMajor> covariance;
  covariance.setIdentity();
  for (int k = 0; k < 4; ++k) {
    Eigen::Matrix<double, 6, 1> v;
    for (int i = 0; i < 6; ++i) {
      v[i] = uniform(random);
    }
    covariance += v * v.transpose();
  }
  Eigen::Matrix<double, 6, 1> scale;
  scale << 1e-5, 2e-5, 3e-5, 10.0, 20.0, 30.0;
  covariance = scale.asDiagonal() * covariance * scale.asDiagonal();
  Eigen::Matrix<double, 6, 6, Eigen::RowMajor> a;
  std::string error;
  ASSERT_TRUE(SquareRootInformation<6>(covariance.data(), a.data(), &error))
      << error;
  // A C A' = I, which is A'A C = I. The condition of C is below 30 after
  // scaling, and the factorisation loses 6 epsilon of that.
  const Eigen::Matrix<Real, 6, 6> real_a = a.cast<Real>();
  const Eigen::Matrix<Real, 6, 6> whitened =
      real_a * covariance.cast<Real>() * real_a.transpose();
  for (int i = 0; i < 6; ++i) {
    for (int j = 0; j < 6; ++j) {
      EXPECT_NEAR(static_cast<double>(whitened(i, j)),
                  i == j ? 1.0 : 0.0,
                  6 * 30 * kEpsilon);
    }
  }
  const double variance = 0.25;
  double one = 0.0;
  ASSERT_TRUE(SquareRootInformation<1>(&variance, &one, nullptr));
  EXPECT_EQ(one, 2.0);
}

TEST(SquareRootInformation, RefusesWhatIsNoCovariance) {
  const double kNan = std::numeric_limits<double>::quiet_NaN();
  const double kInfinity = std::numeric_limits<double>::infinity();
  struct {
    double covariance[4];
    const char* what;
  } const cases[] = {
      {{kNan, 0.0, 0.0, 1.0}, "the covariance is not finite at (0, 0)"},
      {{1.0, 0.0, kInfinity, 1.0}, "the covariance is not finite at (1, 0)"},
      {{1.0, kNan, 0.0, 1.0}, "the covariance is not finite at (1, 0)"},
      {{1.0, 0.5, 0.25, 1.0}, "the covariance is not symmetric at (1, 0)"},
      {{1e200, 0.5e200, 0.25e200, 1e200},
       "the covariance is not symmetric at (1, 0)"},
      {{0.0, 0.0, 0.0, 0.0}, "the covariance is not positive definite"},
      {{-1.0, 0.0, 0.0, 1.0}, "the covariance is not positive definite"},
      {{1.0, 2.0, 2.0, 1.0}, "the covariance is not positive definite"},
      // Singular, though rounding leaves a pivot of 1.1e-16.
      {{0.01, 0.03, 0.03, std::nextafter(0.09, 1.0)},
       "the covariance is not positive definite"}};
  for (const auto& [covariance, what] : cases) {
    double a[4] = {7.0, 7.0, 7.0, 7.0};
    std::string error;
    EXPECT_FALSE(SquareRootInformation<2>(covariance, a, &error));
    EXPECT_EQ(error,
              std::string(what) +
                  "; expected a symmetric positive definite matrix of 2 x 2 "
                  "values");
    EXPECT_FALSE(SquareRootInformation<2>(covariance, a, nullptr));
    EXPECT_EQ(a[0] + a[1] + a[2] + a[3], 28.0);
  }
}

}  // namespace
}  // namespace ceres_ext
