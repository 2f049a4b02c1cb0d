// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Windows of poses against stock Ceres with DENSE_SCHUR and derivatives by
// Jets: all camera models, rotations and priors. With CERES_EXT_TEST_ON_CUDA on
// a device.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "batch_cases.h"
#include "ceres/manifold.h"
#include "ceres/product_manifold.h"
#include "ceres_ext/solve.h"
#include "ceres_ext/window_solver.h"
#include "gtest/gtest.h"
#include "pose_cases.h"
#include "random_cases.h"

namespace ceres_ext {
namespace {

using EigenCase = PoseCase<EigenQuaternion>;
using EigenPose = ceres::ProductManifold<ceres::EigenQuaternionManifold,
                                         ceres::EuclideanManifold<3>>;
using QuaternionPose = ceres::ProductManifold<ceres::QuaternionManifold,
                                              ceres::EuclideanManifold<3>>;

constexpr double kNothing = 1e-12;

void ExpectSameSizes(const Summary& ours, const ceres::Solver::Summary& ceres) {
  // Ceres's problem lacks blocks that no residual block depends on.
  EXPECT_EQ(ours.num_parameter_blocks_reduced,
            ceres.num_parameter_blocks_reduced);
  EXPECT_EQ(ours.num_parameters_reduced, ceres.num_parameters_reduced);
  EXPECT_EQ(ours.num_effective_parameters_reduced,
            ceres.num_effective_parameters_reduced);
  EXPECT_EQ(ours.num_residual_blocks_reduced,
            ceres.num_residual_blocks_reduced);
  EXPECT_EQ(ours.num_residuals_reduced, ceres.num_residuals_reduced);
}

// The same ending after the same steps; costs differ by rounding. (SolveBatch's
// test says how much.)
template <typename Case>
void ExpectAsCeres(std::vector<Case> cases,
                   const ceres::Solver::Options& options) {
  std::vector<Case> of_ceres = cases;
  PoseBatch<Case> batch(&cases);
  BatchSummary summary;
  std::vector<Summary> full;
  std::string error;
  ASSERT_TRUE(
      SolveBatch(options, OnMachine(), &batch.batch, &summary, &error, &full))
      << error;
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    const ProblemSummary& ours = summary.problems[i];
    ceres::Solver::Summary ceres;
    ceres::Solve(options, of_ceres[i].MakeProblem().get(), &ceres);
    EXPECT_TRUE(ours.is_window) << ours.path_reason;
    EXPECT_EQ(ours.termination_type, ceres.termination_type)
        << ours.message << " / " << ceres.message;
    EXPECT_NEAR(
        ours.initial_cost, ceres.initial_cost, 1e-12 * ceres.initial_cost);
    EXPECT_NEAR(ours.fixed_cost, ceres.fixed_cost, 1e-12 * ceres.fixed_cost);
    // If the images have no noise to fit, only rounding is left.
    EXPECT_NEAR(
        ours.final_cost, ceres.final_cost, 1e-6 * ceres.final_cost + kNothing);
    if (!IsNearATie(ceres, options)) {
      EXPECT_EQ(ours.message.substr(0, 20), ceres.message.substr(0, 20));
      EXPECT_EQ(ours.num_successful_steps, ceres.num_successful_steps);
      EXPECT_EQ(ours.num_unsuccessful_steps, ceres.num_unsuccessful_steps);
    }
    ExpectSameSizes(full[i], ceres);
    // The solution has that cost.
    batch.CopyTo(static_cast<int>(i), &cases[i]);
    ceres::Solver::Options evaluate = options;
    evaluate.max_num_iterations = 0;
    ceres::Solve(evaluate, cases[i].MakeProblem().get(), &ceres);
    EXPECT_NEAR(
        ours.final_cost, ceres.final_cost, 1e-9 * ceres.final_cost + kNothing);
  }
}

// The first pose is constant, which holds the gauge.
template <typename Case>
std::vector<Case> SomePoseCases(ceres::Manifold* manifold) {
  std::vector<Case> cases;
  unsigned seed = 1;
  // S is in main memory above 37 poses.
  for (const int num_poses : {1, 2, 3, 12, 13, 38}) {
    cases.emplace_back(
        num_poses, std::max(30, 5 * num_poses), std::min(num_poses, 5), ++seed);
    cases.back().manifold = manifold;
    cases.back().pose_is_constant[0] = num_poses > 1 ? 1 : 0;
  }
  return cases;
}

template <typename Case>
void LeaveOutPriors(std::vector<Case>* cases) {
  for (Case& one : *cases) {
    for (int a = 2; a < Case::kNumArrays; ++a) {
      std::fill(one.arrays[a].is_active.begin(),
                one.arrays[a].is_active.end(),
                uint8_t{0});
    }
  }
}

template <typename Case>
void ExpectRotationAsCeres(ceres::Manifold* manifold) {
  auto cases = SomePoseCases<Case>(manifold);
  ExpectAsCeres(cases, SomeOptions());
  LeaveOutPriors(&cases);
  ExpectAsCeres(cases, SomeOptions());
}

TEST(PoseWindows, SolveAsCeresWithAngleAxes) {
  ExpectRotationAsCeres<PoseCase<AngleAxis>>(nullptr);
}
TEST(PoseWindows, SolveAsCeresWithQuaternions) {
  QuaternionPose pose;
  ExpectRotationAsCeres<PoseCase<Quaternion>>(&pose);
}
TEST(PoseWindows, SolveAsCeresWithEigenQuaternions) {
  EigenPose pose;
  ExpectRotationAsCeres<EigenCase>(&pose);
}

// Parts of poses that are constant.
TEST(PoseWindows, SolveAsCeresWithSubsets) {
  ceres::ProductManifold<ceres::EigenQuaternionManifold, ceres::SubsetManifold>
      without_z(ceres::EigenQuaternionManifold(),
                ceres::SubsetManifold(3, {2}));
  ceres::SubsetManifold translation(7, {0, 1, 2, 3});
  for (ceres::Manifold* const manifold :
       {static_cast<ceres::Manifold*>(&without_z),
        static_cast<ceres::Manifold*>(&translation)}) {
    ExpectAsCeres(SomePoseCases<EigenCase>(manifold), SomeOptions());
  }
  ceres::SubsetManifold some(6, {1, 5});
  using Case = PoseCase<AngleAxis>;
  ExpectAsCeres(SomePoseCases<Case>(&some), SomeOptions());
}

// A quaternion whose norm is not 1 turns and stretches.
TEST(PoseWindows, SolveAsCeresWithOtherNorms) {
  EigenPose pose;
  auto cases = SomePoseCases<EigenCase>(&pose);
  LeaveOutPriors(&cases);
  for (EigenCase& one : cases) {
    for (int i = 0; i < one.num_poses(); ++i) {
      for (int e = 0; e < 4; ++e) {
        one.poses[7 * i + e] *= i % 2 == 0 ? 1.01 : 0.98;
      }
    }
  }
  ExpectAsCeres(cases, SomeOptions());
}

TEST(PoseWindows, SolveAsCeresWithAllCameraModels) {
  EigenPose pose;
  ForEachCameraModel([&](auto camera) {
    using Camera = decltype(camera);
    SCOPED_TRACE(Camera::kName);
    std::vector<EigenCase> cases;
    for (unsigned seed = 0; seed < 2; ++seed) {
      cases.emplace_back(
          4, 30, 3, 100 + seed, CameraOf<EigenQuaternion, Camera>());
      cases.back().manifold = &pose;
      cases.back().pose_is_constant[0] = 1;
    }
    // Points behind a camera, and points that move to there.
    for (int e = 0; e < 6; ++e) {
      cases[1].points[3 * e + 2] = e % 2 == 0 ? -5.0 : 5.0;
    }
    ExpectAsCeres(cases, SomeOptions());
  });
}

// Whatever is constant, left out, weighted or lost. CERES_EXT_NUM_CASES=2000
// makes it 16,000 windows.
TEST(PoseWindows, SolveRandomOnesAsCeres) {
  EigenPose pose;
  ceres::HuberLoss huber(1.0);
  ceres::CauchyLoss cauchy(2.0);
  ceres::TolerantLoss tolerant(2.0, 0.5);
  int64_t num_windows = 0;
  int64_t num_decided = 0;
  ForEachCase(20, [&](Random* random) {
    const auto some_loss = [&] {
      return random->OneOf<ceres::LossFunction*>(
          {nullptr, &huber, &cauchy, &tolerant});
    };
    ceres::LossFunction* losses[EigenCase::kNumArrays];
    for (ceres::LossFunction*& loss : losses) {
      loss = some_loss();
    }
    std::vector<EigenCase> cases;
    for (int i = 0; i < 8; ++i) {
      const int num_poses = 1 + random->Below(random->Chance(0.1) ? 30 : 8);
      cases.emplace_back(num_poses,
                         1 + random->Below(60),
                         1 + random->Below(std::min(num_poses, 6)),
                         static_cast<unsigned>(random->Below(1 << 30)));
      EigenCase& one = cases.back();
      one.manifold = &pose;
      const double p_pose = random->OneOf({0.0, 0.3, 0.8});
      const double p_point = random->OneOf({0.0, 0.1, 0.9});
      for (uint8_t& is_constant : one.pose_is_constant) {
        is_constant = random->Chance(p_pose) ? 1 : 0;
      }
      for (uint8_t& is_constant : one.point_is_constant) {
        is_constant = random->Chance(p_point) ? 1 : 0;
      }
      for (int a = 0; a < EigenCase::kNumArrays; ++a) {
        EigenCase::Array& array = one.arrays[a];
        array.loss = losses[a];
        const double p_out = random->OneOf({0.0, 0.2, 1.0});
        for (size_t k = 0; k < array.weights.size(); ++k) {
          array.is_active[k] =
              random->Chance(a == 0 ? 0.5 * p_out : p_out) ? 0 : 1;
          array.weights[k] = random->OneOf({0.1, 1.0, 1.0, 3.0});
        }
      }
    }
    std::vector<EigenCase> of_ceres = cases;
    ceres::Solver::Options options = SomeOptions();
    options.max_num_iterations = random->Below(9);
    options.jacobi_scaling = random->Chance(0.8);
    options.initial_trust_region_radius = random->OneOf({1e-2, 1e2, 1e4});
    PoseBatch<EigenCase> batch(&cases);
    BatchSummary summary;
    std::string error;
    ASSERT_TRUE(
        SolveBatch(options, OnMachine(), &batch.batch, &summary, &error))
        << error;
    for (size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE(i);
      const ProblemSummary& ours = summary.problems[i];
      ceres::Solver::Summary ceres;
      ceres::Solve(options, of_ceres[i].MakeProblem().get(), &ceres);
      num_windows += ours.is_window ? 1 : 0;
      ASSERT_EQ(ours.IsSolutionUsable(), ceres.IsSolutionUsable())
          << ours.message << " / " << ceres.message;
      if (!ceres.IsSolutionUsable()) {
        continue;
      }
      EXPECT_NEAR(
          ours.initial_cost, ceres.initial_cost, 1e-12 * ceres.initial_cost);
      EXPECT_LE(ours.final_cost,
                ceres.final_cost * (1.0 + 1e-6) + 1e-9 * ceres.initial_cost);
      if (!IsNearATie(ceres, options)) {
        ++num_decided;
        EXPECT_EQ(ours.termination_type, ceres.termination_type)
            << ours.message << " / " << ceres.message;
        EXPECT_EQ(ours.num_successful_steps, ceres.num_successful_steps);
        EXPECT_EQ(ours.num_unsuccessful_steps, ceres.num_unsuccessful_steps);
      }
    }
  });
  EXPECT_GT(num_windows, 0);
  EXPECT_GT(num_decided, num_windows / 4);
}

// On a device one window alone is solved by a cluster of blocks.
TEST(PoseWindows, HaveTheSameBitsInAnyBatch) {
  EigenPose pose;
  const auto cases = SomePoseCases<EigenCase>(&pose);
  const auto solve = [](std::vector<EigenCase> some, int num_threads) {
    PoseBatch<EigenCase> batch(&some);
    ceres::Solver::Options options = SomeOptions();
    options.num_threads = num_threads;
    BatchSummary summary;
    EXPECT_TRUE(SolveBatch(options, OnMachine(), &batch.batch, &summary));
    EXPECT_EQ(summary.num_windows, some.size());
    std::vector<std::vector<double>> values;
    for (size_t i = 0; i < some.size(); ++i) {
      batch.CopyTo(static_cast<int>(i), &some[i]);
      values.push_back(some[i].poses);
      values.back().insert(
          values.back().end(), some[i].points.begin(), some[i].points.end());
    }
    return values;
  };
  std::vector<EigenCase> many;
  for (int k = 0; k < 3; ++k) {
    many.insert(many.end(), cases.rbegin(), cases.rend());
  }
  const auto in_batch = solve(many, 2);
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    const auto alone = solve({cases[i]}, 1);
    for (int k = 0; k < 3; ++k) {
      EXPECT_EQ(in_batch[cases.size() * (k + 1) - 1 - i], alone[0]);
    }
  }
}

// Blocks of poses that nothing but a prior holds, and bad input beside good.
TEST(PoseWindows, KeepBadProblemsToThemselves) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EigenPose pose;
  std::vector<EigenCase> cases;
  for (int i = 0; i < 8; ++i) {
    cases.emplace_back(3, 30, 3, 400 + i);
    cases.back().manifold = &pose;
    cases.back().pose_is_constant[0] = 1;
  }
  cases[1].observed[4] = kNan;
  cases[2].poses[9] = kNan;
  cases[3].params[1] = kNan;
  cases[4].pose_is_constant.assign(3, 1);
  cases[4].point_is_constant.assign(30, 1);
  // The same pose sees a point twice.
  cases[5].arrays[0].pose[0][1] = cases[5].arrays[0].pose[0][0];
  cases[5].arrays[0].point[1] = cases[5].arrays[0].point[0];
  // Only priors are left at a pose.
  for (int a = 0; a < 2; ++a) {
    for (size_t k = 0; k < cases[6].arrays[a].weights.size(); ++k) {
      cases[6].arrays[a].is_active[k] =
          cases[6].arrays[a].pose[0][k] == 1 ? 0 : 1;
    }
  }
  std::vector<EigenCase> of_ceres = cases;
  PoseBatch<EigenCase> batch(&cases);
  BatchSummary summary;
  ASSERT_TRUE(SolveBatch(SomeOptions(), OnMachine(), &batch.batch, &summary));
  for (int i = 0; i < 8; ++i) {
    SCOPED_TRACE(i);
    const ProblemSummary& ours = summary.problems[i];
    EXPECT_EQ(ours.is_window, i == 0 || i >= 6) << ours.path_reason;
    if (i >= 1 && i <= 3) {
      EXPECT_EQ(ours.termination_type, ceres::FAILURE);
      EXPECT_NE(ours.path_reason.find("not valid"), std::string::npos);
      continue;
    }
    ceres::Solver::Summary ceres;
    ceres::Solve(SomeOptions(), of_ceres[i].MakeProblem().get(), &ceres);
    EXPECT_EQ(ours.termination_type, ceres.termination_type) << ours.message;
    // If the images have no noise to fit, only rounding is left.
    EXPECT_NEAR(
        ours.final_cost, ceres.final_cost, 1e-6 * ceres.final_cost + kNothing);
  }
  EXPECT_NE(summary.problems[5].path_reason.find("twice"), std::string::npos);
}

TEST(PoseWindows, SayWhyAProblemIsNone) {
  EigenPose pose;
  const auto expect_reason =
      [&](const std::function<void(PoseBatch<EigenCase>*)>& spoil,
          const std::string& reason) {
        std::vector<EigenCase> cases = {EigenCase(3, 30, 3, 1)};
        cases[0].manifold = &pose;
        cases[0].pose_is_constant[0] = 1;
        PoseBatch<EigenCase> batch(&cases);
        spoil(&batch);
        BatchSummary summary;
        std::string error;
        ASSERT_TRUE(SolveBatch(
            SomeOptions(), OnMachine(), &batch.batch, &summary, &error))
            << error;
        const ProblemSummary& one = summary.problems[0];
        EXPECT_FALSE(one.is_window);
        EXPECT_NE(one.path_reason.find(reason), std::string::npos)
            << one.path_reason;
        EXPECT_TRUE(one.IsSolutionUsable()) << one.message;
      };
  expect_reason([](auto* b) { b->is_constant[2][1] = 0; },
                "the intrinsics of a camera vary");
  expect_reason([](auto* b) { b->manifolds[1] = nullptr; },
                "a pose's quaternion has no manifold");
  // Another cost function: a ground control point.
  using Point = CostFunctionFor<ceres::AutoDiffCostFunction, PointPrior>;
  Point control(new PointPrior{{0.1, 0.2, 0.3}});
  ceres::CostFunction* const cost_functions[] = {&control};
  const int64_t begin[] = {0, 1};
  expect_reason(
      [&](auto* b) {
        ArrayProblem::Residuals residuals;
        residuals.num_blocks = 1;
        residuals.blocks = {{0, nullptr}};
        residuals.cost_functions = cost_functions;
        b->batch.problem.AddResiduals(residuals);
        b->batch.residual_begin.push_back(begin);
        b->batch.residual_is_active.push_back(nullptr);
      },
      "or of poses in one block, with priors");
}

TEST(PoseWindows, HaveTheBitsOfABatchInAWindowSolver) {
  EigenPose pose;
  auto cases = SomePoseCases<EigenCase>(&pose);
  auto same = cases;
  PoseBatch<EigenCase> expected(&cases);
  BatchSummary of_batch;
  ASSERT_TRUE(
      SolveBatch(SomeOptions(), OnMachine(), &expected.batch, &of_batch));
  WindowCapacity capacity;
  capacity.num_cameras = 38;
  capacity.num_points = 190;
  capacity.num_rows = 950;
  capacity.num_priors = 108;
  capacity.num_problems = 6;
  std::string error;
  ceres::Solver::Options options = SomeOptions();
#ifdef CERES_EXT_EMULATED
  options.num_threads = 1;  // As in WindowSolver's test.
#endif
  const auto solver =
      WindowSolver::Create(options, OnMachine(), capacity, &error);
  ASSERT_NE(solver, nullptr) << error;
  PoseBatch<EigenCase> batch(&same);
  BatchSummary summary;
  ASSERT_TRUE(solver->Wait(solver->Submit(batch.batch, &error), &summary))
      << error;
  EXPECT_EQ(summary.num_windows, 6);
  for (int r = 0; r < PoseBatch<EigenCase>::kRoles; ++r) {
    EXPECT_EQ(batch.values[r], expected.values[r]);
  }
  capacity.num_priors = 107;
  const auto smaller =
      WindowSolver::Create(options, OnMachine(), capacity, &error);
  ASSERT_NE(smaller, nullptr) << error;
  EXPECT_EQ(smaller->Submit(batch.batch, &error), 0);
  EXPECT_EQ(error, "problem 5 has 108 priors, but the capacity is 107");
}

}  // namespace
}  // namespace ceres_ext
