// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Manifolds of observations against Ceres's objects: the derivatives that an
// evaluation uses, and x (+) delta on a device.

#include "ceres_ext/glue/manifolds.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ceres/manifold.h"
#include "ceres/parameter_block.h"
#include "ceres/problem_impl.h"
#include "ceres/product_manifold.h"
#include "ceres/sphere_manifold.h"
#include "ceres_ext/bal_cost_functions.h"
#include "gtest/gtest.h"
#include "tests/glue/bal_test_problem.h"
#include "tests/glue/on_machine.h"

namespace ceres_ext {
namespace {

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

class Manifolds : public OnMachine {
 protected:
  void AddObservations(int camera_size) {
    bal_ = MakeBalTestProblem(8, 60, 3, camera_size);
    for (size_t k = 0; k < bal_.camera_id.size(); ++k) {
      const double u = bal_.observations[2 * k];
      const double v = bal_.observations[2 * k + 1];
      problem_.AddResidualBlock(
          camera_size == 9 ? CreateBalReprojectionError(u, v)
                           : CreateBalReprojectionErrorQuaternion(u, v),
          nullptr,
          bal_.camera(bal_.camera_id[k]),
          bal_.point(bal_.point_id[k]));
    }
  }

  kernels::Status SetupModel() {
    Import(&problem_);
    return model_.Setup(structure_.observations[0].kind,
                        &blocks_.observations(0));
  }

  std::vector<double> State() {
    std::vector<double> state(program_->NumParameters());
    program_->ParameterBlocksToStateVector(state.data());
    return state;
  }

  // Cameras, points and derivatives at the state, against the blocks.
  void ExpectStateOfBlocks() {
    const std::vector<double> state = State();
    Buffer<double> x = Upload(state);
    const kernels::Status status = model_.Update(x.data(), true);
    ASSERT_TRUE(status.ok()) << status.message;
    const BatchState batch = model_.state();
    const BlockTable& cameras = blocks_.observations(0).cameras();
    const int rows = cameras.ambient_size;
    const int columns = cameras.padded_size;
    const std::vector<double> values =
        Download(int64_t{rows} * cameras.size(), batch.cameras);
    std::vector<double> tangents;
    if (batch.tangents != nullptr) {
      tangents =
          Download(int64_t{rows} * columns * cameras.size(), batch.tangents);
    }
    for (int32_t c = 0; c < cameras.size(); ++c) {
      SCOPED_TRACE("camera " + std::to_string(c));
      const double* expected = cameras.constant_value[c] != nullptr
                                   ? cameras.constant_value[c]
                                   : &state[cameras.state_offset[c]];
      const double* camera = &values[int64_t{rows} * c];
      for (int i = 0; i < rows; ++i) {
        ASSERT_EQ(camera[i], expected[i]);
      }
      if (tangents.empty()) {
        EXPECT_EQ(cameras.manifold[c], nullptr);
        EXPECT_EQ(cameras.tangent_size[c], columns);
        continue;
      }
      const int size = cameras.tangent_size[c];
      std::vector<double> plus_jacobian(rows * rows, 0.0);
      if (cameras.manifold[c] != nullptr) {
        ASSERT_TRUE(
            cameras.manifold[c]->PlusJacobian(camera, plus_jacobian.data()));
      } else {
        for (int i = 0; i < size; ++i) {
          plus_jacobian[size * i + i] = 1.0;
        }
      }
      for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < columns; ++j) {
          EXPECT_EQ(tangents[(int64_t{rows} * c + i) * columns + j],
                    j < size ? plus_jacobian[size * i + j] : 0.0)
              << i << " " << j;
        }
      }
    }
    const BlockTable& points = blocks_.observations(0).points();
    const std::vector<double> positions =
        Download(int64_t{3} * points.size(), batch.points);
    std::vector<double> scale(3 * points.size(), 1.0);
    if (batch.point_scale != nullptr) {
      scale = Download(int64_t{3} * points.size(), batch.point_scale);
    }
    for (int32_t p = 0; p < points.size(); ++p) {
      const bool constant = points.constant_value[p] != nullptr;
      const double* expected =
          constant ? points.constant_value[p] : &state[points.state_offset[p]];
      for (int i = 0; i < 3; ++i) {
        ASSERT_EQ(positions[3 * p + i], expected[i]);
        ASSERT_EQ(scale[3 * p + i], constant ? 0.0 : 1.0);
      }
    }
  }

  BalTestProblem bal_;
  ceres::internal::ProblemImpl problem_;
  StateModel<TestMachine> model_;
};

TEST_F(Manifolds, None) {
  AddObservations(9);
  ASSERT_TRUE(SetupModel().ok());
  EXPECT_EQ(model_.state().tangents, nullptr);
  EXPECT_EQ(model_.state().point_scale, nullptr);
  ExpectStateOfBlocks();
}

TEST_F(Manifolds, SubsetsAndConstants) {
  AddObservations(9);
  problem_.SetManifold(bal_.camera(1), new ceres::SubsetManifold(9, {0, 4, 8}));
  problem_.SetManifold(bal_.camera(5), new ceres::SubsetManifold(9, {3}));
  problem_.SetParameterBlockConstant(bal_.camera(2));
  problem_.SetParameterBlockConstant(bal_.point(7));
  ASSERT_TRUE(SetupModel().ok());
  ExpectStateOfBlocks();
}

TEST_F(Manifolds, Quaternions) {
  AddObservations(10);
  for (int i = 0; i < 6; ++i) {
    problem_.SetManifold(bal_.camera(i), new BalCameraManifold());
  }
  problem_.SetManifold(bal_.camera(6), new ceres::SubsetManifold(10, {4, 9}));
  problem_.SetParameterBlockConstant(bal_.camera(3));
  ASSERT_TRUE(SetupModel().ok());
  ExpectStateOfBlocks();
}

#ifdef CERES_EXT_TEST_ON_CUDA
// sin and cos of a device differ from the host's by some units in the last
// place, and a product of quaternions has eight roundings.
class PlusOnADevice : public Manifolds,
                      public testing::WithParamInterface<int> {};

TEST_P(PlusOnADevice, IsThatOfTheManifolds) {
  const int camera_size = GetParam();
  AddObservations(camera_size);
  if (camera_size == 10) {
    problem_.SetManifold(bal_.camera(0), new BalCameraManifold());
    problem_.SetManifold(bal_.camera(4), new BalCameraManifold());
  }
  problem_.SetManifold(bal_.camera(1),
                       new ceres::SubsetManifold(camera_size, {2, 6}));
  problem_.SetParameterBlockConstant(bal_.camera(5));
  ASSERT_TRUE(SetupModel().ok());
  ExpectStateOfBlocks();
  const std::vector<double> state = State();
  std::mt19937 generator(9);
  std::uniform_real_distribution<double> uniform(-1.0, 1.0);
  std::vector<double> delta(program_->NumEffectiveParameters());
  for (double& value : delta) {
    value = uniform(generator);
  }
  Buffer<double> x = Upload(state);
  Buffer<double> d = Upload(delta);
  Buffer<double> y = Upload(state);
  kernels::PlusParams plus = model_.PlusCameras();
  plus.state = x.data();
  plus.delta = d.data();
  plus.state_plus_delta = y.data();
  ASSERT_TRUE(kernels::Run(plus, machine_.get()).ok());
  const std::vector<double> moved = Download(state.size(), y.data());
  std::vector<double> expected = state;
  const BlockTable& cameras = blocks_.observations(0).cameras();
  for (int32_t c = 0; c < cameras.size(); ++c) {
    const int at = cameras.state_offset[c];
    if (at < 0) {
      continue;
    }
    const double* step = &delta[cameras.tangent_offset[c]];
    if (cameras.manifold[c] != nullptr) {
      ASSERT_TRUE(cameras.manifold[c]->Plus(&state[at], step, &expected[at]));
    } else {
      for (int i = 0; i < camera_size; ++i) {
        expected[at + i] += step[i];
      }
    }
  }
  for (size_t i = 0; i < state.size(); ++i) {
    EXPECT_NEAR(
        moved[i], expected[i], 16 * kEpsilon * (std::fabs(expected[i]) + 1.0))
        << "value " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(CameraSizes, PlusOnADevice, testing::Values(9, 10));

TEST_F(Manifolds, ADeviceRefusesPointsWithManifolds) {
  AddObservations(9);
  problem_.SetManifold(bal_.point(4), new ceres::SphereManifold<3>());
  const kernels::Status status = SetupModel();
  EXPECT_EQ(status.code, kernels::StatusCode::kUnsupported);
  EXPECT_EQ(status.message, "a point has a manifold");
}

TEST_F(Manifolds, ADeviceRefusesAnUnknownManifoldAndNamesTheCamera) {
  AddObservations(9);
  problem_.SetManifold(bal_.camera(0), new ceres::SphereManifold<9>());
  const kernels::Status status = SetupModel();
  EXPECT_EQ(status.code, kernels::StatusCode::kUnsupported);
  const BlockTable& cameras = blocks_.observations(0).cameras();
  int32_t camera = 0;
  while (cameras.manifold[camera] == nullptr) {
    ++camera;
  }
  EXPECT_EQ(status.message,
            "camera " + std::to_string(camera) +
                " has a manifold that the device doesn't know");
}
#else
TEST_F(Manifolds, PointsOnTheHost) {
  AddObservations(9);
  problem_.SetManifold(bal_.point(4), new ceres::SphereManifold<3>());
  problem_.SetManifold(bal_.point(9), new ceres::SubsetManifold(3, {1}));
  ASSERT_TRUE(SetupModel().ok());
  ExpectStateOfBlocks();
  ASSERT_TRUE(model_.has_point_tangents());
  const BlockTable& points = blocks_.observations(0).points();
  const std::vector<double> state = State();
  for (int32_t p = 0; p < points.size(); ++p) {
    const int size = points.tangent_size[p];
    std::vector<double> expected(9, 0.0);
    if (points.manifold[p] == nullptr) {
      expected[0] = expected[4] = expected[8] = 1.0;
    } else {
      double plus_jacobian[9];
      ASSERT_TRUE(points.manifold[p]->PlusJacobian(
          &state[points.state_offset[p]], plus_jacobian));
      for (int i = 0; i < 3; ++i) {
        std::copy_n(plus_jacobian + size * i, size, &expected[3 * i]);
      }
    }
    for (int i = 0; i < 9; ++i) {
      EXPECT_EQ(model_.point_tangents()[9 * p + i], expected[i])
          << "point " << p;
    }
  }
}

// A manifold that has no derivative any more once *fails is set.
class FailingManifold final : public ceres::Manifold {
 public:
  explicit FailingManifold(const bool* fails) : fails_(fails) {}
  int AmbientSize() const final { return 9; }
  int TangentSize() const final { return 9; }
  bool Plus(const double* x, const double* delta, double* y) const final {
    return identity_.Plus(x, delta, y);
  }
  bool PlusJacobian(const double* x, double* jacobian) const final {
    return !*fails_ && identity_.PlusJacobian(x, jacobian);
  }
  bool Minus(const double* y, const double* x, double* delta) const final {
    return identity_.Minus(y, x, delta);
  }
  bool MinusJacobian(const double* x, double* jacobian) const final {
    return identity_.MinusJacobian(x, jacobian);
  }

 private:
  const bool* fails_;
  ceres::EuclideanManifold<9> identity_;
};

TEST_F(Manifolds, AFailureNamesTheCamera) {
  AddObservations(9);
  bool fails = false;
  problem_.SetManifold(bal_.camera(3), new FailingManifold(&fails));
  ASSERT_TRUE(SetupModel().ok());
  ExpectStateOfBlocks();
  fails = true;
  Buffer<double> x = Upload(State());
  const kernels::Status status = model_.Update(x.data(), true);
  EXPECT_EQ(status.code, kernels::StatusCode::kNumericalFailure);
  const auto& manifolds = blocks_.observations(0).cameras().manifold;
  const auto camera = std::find_if(manifolds.begin(),
                                   manifolds.end(),
                                   [](const auto* m) { return m != nullptr; }) -
                      manifolds.begin();
  EXPECT_EQ(status.message,
            "Manifold::PlusJacobian failed for camera " +
                std::to_string(camera) + ".");
}
#endif

}  // namespace
}  // namespace ceres_ext
