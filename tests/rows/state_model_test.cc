// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Manifolds of observations against Ceres's objects: the derivatives that an
// evaluation uses.

#include "ceres_ext/rows/state_model.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "ceres/line_manifold.h"
#include "ceres/manifold.h"
#include "ceres/parameter_block.h"
#include "ceres/problem_impl.h"
#include "ceres/product_manifold.h"
#include "ceres/sphere_manifold.h"
#include "ceres_ext/bal_cost_functions.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/on_machine.h"
#include "tests/common/own_manifold.h"

namespace ceres_ext {
namespace {

// Norms of up to 9 values, and products by them, of a device, which sums in
// another order than Eigen.
constexpr double kTolerance =
    kIsHost<TestMachine>
        ? 0.0
        : 4 * (9 + 16) * std::numeric_limits<double>::epsilon();
double Size(const std::vector<double>& state) {
  double largest = 0.0;
  for (const double value : state) {
    largest = std::max(largest, std::fabs(value));
  }
  return 3 * largest;
}

// For other manifolds a device has Ceres's bits.
bool IsExact(const ceres::Manifold* manifold) {
  const std::string type = manifold == nullptr ? "" : TypeName(*manifold);
  return type.find("Sphere") == std::string::npos &&
         type.find("Line") == std::string::npos;
}

class Manifolds : public OnMachine {
 protected:
  void AddObservations(int camera_size) {
    bal_ = MakeBalTestProblem(8, 60, 3, camera_size);
    for (size_t k = 0; k < bal_.camera_id.size(); ++k) {
      problem_.AddResidualBlock(bal_.MakeCost(k),
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
      const double* expected = cameras.constant_value(c) != nullptr
                                   ? cameras.constant_value(c)
                                   : &state[cameras.state_offset(c)];
      const double* camera = &values[int64_t{rows} * c];
      for (int i = 0; i < rows; ++i) {
        ASSERT_EQ(camera[i], expected[i]);
      }
      if (tangents.empty()) {
        EXPECT_EQ(cameras.manifold(c), nullptr);
        EXPECT_EQ(cameras.tangent_size(c), columns);
        continue;
      }
      const int size = cameras.tangent_size(c);
      std::vector<double> plus_jacobian(rows * rows, 0.0);
      if (cameras.manifold(c) != nullptr) {
        ASSERT_TRUE(
            cameras.manifold(c)->PlusJacobian(camera, plus_jacobian.data()));
      } else {
        for (int i = 0; i < size; ++i) {
          plus_jacobian[size * i + i] = 1.0;
        }
      }
      for (int i = 0; i < rows; ++i) {
        for (int j = 0; j < columns; ++j) {
          EXPECT_NEAR(
              tangents[(int64_t{rows} * c + i) * columns + j],
              j < size ? plus_jacobian[size * i + j] : 0.0,
              IsExact(cameras.manifold(c)) ? 0.0 : kTolerance * Size(state))
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
      const bool constant = points.constant_value(p) != nullptr;
      const double* expected =
          constant ? points.constant_value(p) : &state[points.state_offset(p)];
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

// All of Ceres's manifolds for cameras, and a user-defined one.
TEST_F(Manifolds, OfAllKinds) {
  AddObservations(9);
  problem_.SetManifold(bal_.camera(0), new ceres::SphereManifold<9>());
  problem_.SetManifold(
      bal_.camera(1),
      new ceres::ProductManifold<ceres::LineManifold<3>,
                                 ceres::EuclideanManifold<3>>());
  problem_.SetManifold(bal_.camera(2), new OwnManifold(9));
  problem_.SetManifold(
      bal_.camera(4),
      new ceres::ProductManifold<ceres::EigenQuaternionManifold,
                                 ceres::SubsetManifold>(
          ceres::EigenQuaternionManifold(), ceres::SubsetManifold(5, {1, 3})));
  ASSERT_TRUE(SetupModel().ok());
  ExpectStateOfBlocks();
}

TEST_F(Manifolds, OfPoints) {
  AddObservations(9);
  problem_.SetManifold(bal_.point(4), new ceres::SphereManifold<3>());
  problem_.SetManifold(bal_.point(9), new ceres::SubsetManifold(3, {1}));
  problem_.SetManifold(bal_.point(12), new OwnManifold(3));
  problem_.SetParameterBlockConstant(bal_.point(14));
  ASSERT_TRUE(SetupModel().ok());
  EXPECT_EQ(model_.state().tangents, nullptr);
  ExpectStateOfBlocks();
  ASSERT_NE(model_.point_tangents(), nullptr);
  const BlockTable& points = blocks_.observations(0).points();
  const std::vector<double> tangents =
      Download(int64_t{9} * points.size(), model_.point_tangents());
  const std::vector<double> state = State();
  for (int32_t p = 0; p < points.size(); ++p) {
    const int size = points.tangent_size(p);
    std::vector<double> expected(9, 0.0);
    if (points.manifold(p) != nullptr) {
      double plus_jacobian[9];
      ASSERT_TRUE(points.manifold(p)->PlusJacobian(
          &state[points.state_offset(p)], plus_jacobian));
      for (int i = 0; i < 3; ++i) {
        std::copy_n(plus_jacobian + size * i, size, &expected[3 * i]);
      }
    } else if (size > 0) {
      expected[0] = expected[4] = expected[8] = 1.0;
    }
    for (int i = 0; i < 9; ++i) {
      EXPECT_NEAR(tangents[9 * p + i], expected[i], kTolerance * Size(state))
          << "point " << p;
    }
  }
}

// Cameras and points at once: the matrices of points follow.
TEST_F(Manifolds, OfCamerasAndPoints) {
  AddObservations(10);
  problem_.SetManifold(bal_.camera(3), new BalCameraManifold());
  problem_.SetManifold(bal_.point(4), new ceres::SubsetManifold(3, {0}));
  ASSERT_TRUE(SetupModel().ok());
  ExpectStateOfBlocks();
  const BlockTable& points = blocks_.observations(0).points();
  const std::vector<double> tangents =
      Download(int64_t{9} * points.size(), model_.point_tangents());
  for (int32_t p = 0; p < points.size(); ++p) {
    const bool is_subset = points.manifold(p) != nullptr;
    const std::vector<double> expected =
        is_subset ? std::vector<double>{0, 0, 0, 1, 0, 0, 0, 1, 0}
                  : std::vector<double>{1, 0, 0, 0, 1, 0, 0, 0, 1};
    EXPECT_EQ(std::vector<double>(tangents.begin() + 9 * p,
                                  tangents.begin() + 9 * p + 9),
              expected);
  }
}

TEST_F(Manifolds, AFailureNamesTheBlock) {
  AddObservations(9);
  Fault fault = Fault::kNone;
  problem_.SetManifold(bal_.camera(3), new OwnManifold(9, &fault));
  ASSERT_TRUE(SetupModel().ok());
  ExpectStateOfBlocks();
  fault = Fault::kFails;
  Buffer<double> x = Upload(State());
  EXPECT_TRUE(model_.Update(x.data(), false).ok());
  const kernels::Status status = model_.Update(x.data(), true);
  EXPECT_EQ(status.code, kernels::StatusCode::kNumericalFailure);
  const BlockTable& cameras = blocks_.observations(0).cameras();
  int32_t camera = 0;
  while (cameras.manifold(camera) == nullptr) {
    ++camera;
  }
  EXPECT_EQ(status.message,
            "Manifold::PlusJacobian of the parameter block at " +
                std::to_string(cameras.state_offset(camera)) +
                " of the state (ceres_ext::OwnManifold) failed");
}

}  // namespace
}  // namespace ceres_ext
