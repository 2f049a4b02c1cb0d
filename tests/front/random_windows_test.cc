// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Random windows against stock Ceres with DENSE_SCHUR: losses, constants,
// weights, manifolds, bounds, rows left out, cameras and points that nothing
// holds.
// With CERES_EXT_TEST_ON_CUDA on a device.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "batch_cases.h"
#include "bounded_batches.h"
#include "ceres/manifold.h"
#include "ceres/problem.h"
#include "ceres/product_manifold.h"
#include "ceres_ext/bal_cost_functions.h"
#include "gtest/gtest.h"
#include "tests/common/random_cases.h"

namespace ceres_ext {
namespace {

// An emulated device is slow.
#ifdef CERES_EXT_EMULATED
constexpr int kNumCases = 10;
constexpr int kNumBoundedCases = 20;
#else
constexpr int kNumCases = 60;
constexpr int kNumBoundedCases = 150;
#endif

Case RandomCase(int camera_size, Random* random) {
  const int num_cameras = 1 + random->Below(random->Chance(0.1) ? 30 : 8);
  const int num_points = 1 + random->Below(60);
  const int views =
      1 + random->Below(std::min(num_cameras, random->Chance(0.2) ? 30 : 5));
  Case one = MakeCase(num_cameras,
                      num_points,
                      views,
                      camera_size,
                      static_cast<unsigned>(random->Below(1 << 30)));
  const double p_camera = random->OneOf({0.0, 0.3, 0.8});
  const double p_point = random->OneOf({0.0, 0.1, 0.9});
  for (uint8_t& is_constant : one.camera_is_constant) {
    is_constant = random->Chance(p_camera) ? 1 : 0;
  }
  for (uint8_t& is_constant : one.point_is_constant) {
    is_constant = random->Chance(p_point) ? 1 : 0;
  }
  const double p_out = random->OneOf({0.0, 0.2, 0.6});
  for (size_t k = 0; k < one.weights.size(); ++k) {
    one.row_is_active[k] = random->Chance(p_out) ? 0 : 1;
    one.weights[k] = random->OneOf({0.1, 1.0, 1.0, 3.0});
  }
  return one;
}

TEST(RandomWindows, SolveAsCeres) {
  int64_t num_windows = 0;
  int64_t num_decided = 0;
  ceres::HuberLoss huber(1.0);
  ceres::CauchyLoss cauchy(2.0);
  ceres::TukeyLoss tukey(20.0);
  ceres::TolerantLoss tolerant(2.0, 0.5);
  // Manifolds of 9 values: constant intrinsics, 6 columns; a constant angle and
  // k2, 9 columns. Manifolds of 10 values: a turn with and without intrinsics,
  // 9 and 6 columns; only constant values, 10 columns.
  ceres::SubsetManifold pose(9, {6, 7, 8});
  ceres::SubsetManifold some(9, {1, 8});
  BalCameraManifold turn;
  ceres::ProductManifold<ceres::QuaternionManifold, ceres::SubsetManifold>
      turn_of_pose(ceres::QuaternionManifold(),
                   ceres::SubsetManifold(6, {3, 4, 5}));
  ceres::SubsetManifold constant_focal_length(10, {7});
  ForEachCase(kNumCases, [&](Random* random) {
    const int camera_size = random->Chance(0.3) ? 10 : 9;
    ceres::LossFunction* const loss = random->OneOf<ceres::LossFunction*>(
        {nullptr, nullptr, &huber, &cauchy, &tukey, &tolerant});
    ceres::Manifold* const manifold =
        camera_size == 10
            ? random->OneOf<ceres::Manifold*>(
                  {&turn, &turn_of_pose, &constant_focal_length})
            : random->OneOf<ceres::Manifold*>({nullptr, nullptr, &pose, &some});
    std::vector<Case> cases;
    for (int i = 0; i < 8; ++i) {
      cases.push_back(RandomCase(camera_size, random));
      cases.back().manifold = manifold;
    }
    ceres::Solver::Options options = SomeOptions();
    options.max_num_iterations = random->Below(9);
    options.jacobi_scaling = random->Chance(0.8);
    options.initial_trust_region_radius = random->OneOf({1e-2, 1e2, 1e4});
    Batch batch(cases, loss);
    BatchSummary summary;
    std::string error;
    ASSERT_TRUE(
        SolveBatch(options, OnMachine(), &batch.batch, &summary, &error))
        << error;
    for (size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE(i);
      const ProblemSummary& ours = summary.problems[i];
      const auto problem = MakeProblem(&cases[i], loss);
      const double cost =
          CostAt(cases[i], batch.ValuesOf(static_cast<int>(i)), loss);
      ceres::Solver::Summary ceres;
      ceres::Solve(options, problem.get(), &ceres);
      num_windows += ours.IsSolvedWhole() ? 1 : 0;
      ASSERT_EQ(ours.IsSolutionUsable(), ceres.IsSolutionUsable())
          << ours.message << " / " << ceres.message;
      if (!ceres.IsSolutionUsable()) {
        continue;
      }
      num_decided += ExpectSameDecisions(ours, ceres, options) ? 1 : 0;
      // A problem without freedom and noise ends with rounding errors.
      EXPECT_LE(ours.final_cost,
                ceres.final_cost * (1.0 + 1e-6) + 1e-9 * ceres.initial_cost);
      // The solution has that cost.
      EXPECT_NEAR(
          ours.final_cost, cost, 1e-9 * cost + 1e-12 * ceres.initial_cost);
    }
  });
  // Nearly all are windows and have no tie.
  EXPECT_GT(num_windows, 0);
  EXPECT_GT(num_decided, num_windows / 4);
}

TEST(RandomWindows, SolveBoundedOnesAsCeres) {
  ceres::HuberLoss huber(1.0);
  BalCameraManifold turn;
  ceres::SubsetManifold pose(9, {6, 7, 8});
  BoundedCounts counts;
  ForEachCase(kNumBoundedCases, [&](Random* random) {
    const int camera_size = random->Chance(0.3) ? 10 : 9;
    ceres::LossFunction* const loss = random->Chance(0.3) ? &huber : nullptr;
    ceres::Manifold* const manifold = random->Chance(0.5) ? nullptr
                                      : camera_size == 10
                                          ? static_cast<ceres::Manifold*>(&turn)
                                          : &pose;
    std::vector<Case> cases;
    for (int i = 0; i < 8; ++i) {
      cases.push_back(RandomCase(camera_size, random));
      cases.back().manifold = manifold;
    }
    ceres::Solver::Options options = RandomSearch(SomeOptions(), random);
    options.max_num_iterations = random->Below(9);
    options.jacobi_scaling = random->Chance(0.8);
    options.initial_trust_region_radius = random->OneOf({1e-2, 1e2, 1e4});
    Batch batch(cases, loss);
    const RandomBounds bounds(&batch.batch, random);
    ExpectBoundedAsCeres(options, &batch.batch, &counts);
  });
  ExpectCompared(counts);
}

}  // namespace
}  // namespace ceres_ext
