// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Windows of poses against stock Ceres with DENSE_SCHUR and derivatives by
// Jets: all camera models, rotations and priors, intrinsics that vary. With
// CERES_EXT_TEST_ON_CUDA on a device. Marginal priors also against the problem
// that they are from.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "Eigen/Cholesky"
#include "Eigen/Core"
#include "Eigen/Eigenvalues"
#include "batch_cases.h"
#include "bounded_batches.h"
#include "ceres/autodiff_cost_function.h"
#include "ceres/crs_matrix.h"
#include "ceres/manifold.h"
#include "ceres/product_manifold.h"
#include "ceres/sphere_manifold.h"
#include "ceres_ext/marginal_prior.h"
#include "ceres_ext/marginalize.h"
#include "ceres_ext/solve.h"
#include "ceres_ext/window_solver.h"
#include "gtest/gtest.h"
#include "pose_cases.h"
#include "tests/common/random_cases.h"

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
                   const ceres::Solver::Options& options,
                   double cost_tolerance = 1e-6) {
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
    EXPECT_EQ(ours.solved_as, SOLVED_AS_WINDOW) << ours.path_reason;
    EXPECT_EQ(ours.termination_type, ceres.termination_type)
        << ours.message << " / " << ceres.message;
    // If the images have no noise to fit, only rounding is left.
    EXPECT_NEAR(ours.final_cost,
                ceres.final_cost,
                cost_tolerance * ceres.final_cost + kNothing);
    if (ExpectSameDecisions(ours, ceres, options)) {
      EXPECT_EQ(ours.message.substr(0, 20), ceres.message.substr(0, 20));
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
  // S is in main memory above 33 poses.
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

// Priors of one pose, of two and of all of them in any order, some of the same
// pairs, of fewer residuals than columns and of as many. The first pose is
// constant.
template <typename Case>
void AddMarginals(std::vector<Case>* cases) {
  unsigned seed = 500;
  for (size_t i = 0; i < cases->size(); ++i) {
    Case& one = (*cases)[i];
    const int n = one.num_poses();
    one.AddMarginal(0, {0}, 3, ++seed);
    one.AddMarginal(0, {n - 1}, 3, ++seed);
    one.marginals[0][1].weight = 0.3;
    for (int p = 0; p + 1 < n; p += 2) {
      one.AddMarginal(1, {p, p + 1}, 12, ++seed);
      one.AddMarginal(1, {p + 1, p}, 12, ++seed);
      one.marginals[1].back().is_active = p % 4 == 0 ? 1 : 0;
    }
    std::vector<int32_t> all(n);
    std::iota(all.begin(), all.end(), 0);
    std::swap(all.front(), all[n / 2]);
    one.AddMarginal(2 + i, all, i % 2 == 0 ? 6 * n : 4 * n + 1, ++seed);
  }
}

template <typename Case>
void ExpectMixedPosesAsDouble(std::vector<Case> cases) {
  struct Copy {
    explicit Copy(const std::vector<Case>& from)
        : cases(from), of_cases(&cases), batch(of_cases.batch) {}
    std::vector<double> ValuesOf(int i) {
      of_cases.CopyTo(i, &cases[i]);
      std::vector<double> values = cases[i].poses;
      values.insert(
          values.end(), cases[i].points.begin(), cases[i].points.end());
      return values;
    }
    std::vector<Case> cases;
    PoseBatch<Case> of_cases;
    ProblemBatch& batch;
  };
  ExpectMixedAsDouble([&] { return std::make_unique<Copy>(cases); });
}

TEST(PoseWindows, MixedPrecisionEndsAtTheCostOfDouble) {
  auto angle_axes = SomePoseCases<PoseCase<AngleAxis>>(nullptr);
  ExpectMixedPosesAsDouble(angle_axes);
  LeaveOutPriors(&angle_axes);
  ExpectMixedPosesAsDouble(angle_axes);
  EigenPose pose;
  auto cases = SomePoseCases<EigenCase>(&pose);
  AddMarginals(&cases);
  ExpectMixedPosesAsDouble(cases);
}

// A list of ceres::Problems, in any order of their residual blocks.
TEST(PoseWindows, SolveAListOfProblemsAsCeres) {
  EigenPose pose;
  std::vector<EigenCase> cases = SomePoseCases<EigenCase>(&pose);
  AddMarginals(&cases);
  std::vector<EigenCase> of_ceres = cases;
  std::vector<std::unique_ptr<ceres::Problem>> owned;
  std::vector<ceres::Problem*> problems;
  for (EigenCase& one : cases) {
    owned.push_back(one.MakeProblem(/*priors_first=*/owned.size() % 2 == 0));
    problems.push_back(owned.back().get());
  }
  BatchSummary summary;
  std::string error;
  ASSERT_TRUE(
      SolveBatch(SomeOptions(), OnMachine(), problems, &summary, &error))
      << error;
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    const ProblemSummary& ours = summary.problems[i];
    EXPECT_EQ(ours.solved_as, SOLVED_AS_WINDOW) << ours.path_reason;
    ceres::Solver::Summary ceres;
    ceres::Solve(SomeOptions(), of_ceres[i].MakeProblem().get(), &ceres);
    EXPECT_EQ(ours.termination_type, ceres.termination_type);
    EXPECT_NEAR(
        ours.initial_cost, ceres.initial_cost, 1e-12 * ceres.initial_cost);
    EXPECT_NEAR(ours.final_cost, ceres.final_cost, 1e-6 * ceres.final_cost);
    double cost = 0.0;
    ASSERT_TRUE(problems[i]->Evaluate({}, &cost, nullptr, nullptr, nullptr));
    EXPECT_NEAR(ours.final_cost, cost, 1e-9 * cost);
  }
}

template <typename Case>
void ExpectMarginalsAsCeres(ceres::Manifold* manifold) {
  auto cases = SomePoseCases<Case>(manifold);
  AddMarginals(&cases);
  ExpectAsCeres(cases, SomeOptions(), 1e-9);
  LeaveOutPriors(&cases);
  ExpectAsCeres(cases, SomeOptions(), 1e-9);
}

TEST(PoseWindows, SolveMarginalPriorsAsCeresWithAngleAxes) {
  ExpectMarginalsAsCeres<PoseCase<AngleAxis>>(nullptr);
  ceres::SubsetManifold some(6, {1, 5});
  ExpectMarginalsAsCeres<PoseCase<AngleAxis>>(&some);
}
TEST(PoseWindows, SolveMarginalPriorsAsCeresWithQuaternions) {
  QuaternionPose pose;
  ExpectMarginalsAsCeres<PoseCase<Quaternion>>(&pose);
}
TEST(PoseWindows, SolveMarginalPriorsAsCeresWithEigenQuaternions) {
  EigenPose pose;
  ExpectMarginalsAsCeres<EigenCase>(&pose);
  ceres::SubsetManifold translation(7, {0, 1, 2, 3});
  ExpectMarginalsAsCeres<EigenCase>(&translation);
}

// Residuals, gradient and dense Jacobian by the tangents of `blocks`.
struct Linearization {
  std::vector<double> residuals;
  Eigen::VectorXd gradient;
  Eigen::MatrixXd jacobian;

  Linearization(ceres::Problem* problem, std::vector<double*> blocks) {
    ceres::Problem::EvaluateOptions options;
    options.parameter_blocks = std::move(blocks);
    double cost;
    std::vector<double> g;
    ceres::CRSMatrix j;
    EXPECT_TRUE(problem->Evaluate(options, &cost, &residuals, &g, &j));
    gradient = Eigen::Map<Eigen::VectorXd>(g.data(),
                                           static_cast<Eigen::Index>(g.size()));
    jacobian.setZero(j.num_rows, j.num_cols);
    for (int r = 0; r < j.num_rows; ++r) {
      for (int k = j.rows[r]; k < j.rows[r + 1]; ++k) {
        jacobian(r, j.cols[k]) = j.values[k];
      }
    }
  }
};

// Splits a case at its values into the residual blocks of an old pose and of
// the points that it sees, and the rest. The rest gets a marginal prior of the
// former.
template <typename Rotation>
PoseCase<Rotation> Marginalise(const PoseCase<Rotation>& full, int old) {
  using Case = PoseCase<Rotation>;
  std::vector<uint8_t> is_seen(full.num_points(), 0);
  for (int a = 0; a < 2; ++a) {
    const typename Case::Array& array = full.arrays[a];
    for (size_t k = 0; k < array.point.size(); ++k) {
      is_seen[array.point[k]] |= array.pose[0][k] == old ? 1 : 0;
    }
  }
  Case part = full;
  Case rest = full;
  for (int a = 0; a < Case::kNumArrays; ++a) {
    const typename Case::Array& array = full.arrays[a];
    for (size_t k = 0; k < array.weights.size(); ++k) {
      const bool is_old =
          a < 2 ? is_seen[array.point[k]] != 0
                : array.pose[0][k] == old ||
                      (Case::NumBlocks(a) == 2 && array.pose[1][k] == old);
      (is_old ? rest : part).arrays[a].is_active[k] = 0;
    }
  }
  const auto problem = part.MakeProblem();
  std::vector<double*> blocks = {&part.poses[Case::kPose * old]};
  for (int p = 0; p < part.num_points(); ++p) {
    if (is_seen[p] != 0) {
      blocks.push_back(&part.points[3 * p]);
    }
  }
  const auto num_old = static_cast<Eigen::Index>(3 + 3 * blocks.size());
  std::vector<int32_t> kept;
  std::vector<double> references;
  for (int i = 0; i < part.num_poses(); ++i) {
    double* const pose = &part.poses[Case::kPose * i];
    if (i != old && problem->HasParameterBlock(pose) &&
        !problem->IsParameterBlockConstant(pose)) {
      kept.push_back(i);
      blocks.push_back(pose);
      references.insert(references.end(), pose, pose + Case::kPose);
    }
  }
  const Linearization at_x(problem.get(), blocks);
  const Eigen::MatrixXd h = at_x.jacobian.transpose() * at_x.jacobian;
  const Eigen::Index n = h.rows() - num_old;
  const Eigen::LLT<Eigen::MatrixXd> of_old(h.topLeftCorner(num_old, num_old));
  EXPECT_EQ(of_old.info(), Eigen::Success);
  const Eigen::LLT<Eigen::MatrixXd> schur(
      h.bottomRightCorner(n, n) -
      h.bottomLeftCorner(n, num_old) *
          of_old.solve(h.topRightCorner(num_old, n)));
  EXPECT_EQ(schur.info(), Eigen::Success);
  const Eigen::VectorXd g =
      at_x.gradient.tail(n) - h.bottomLeftCorner(n, num_old) *
                                  of_old.solve(at_x.gradient.head(num_old));
  // Row-major L' is column-major L.
  const Eigen::MatrixXd l = schur.matrixL();
  const Eigen::VectorXd b = schur.matrixL().solve(g);
  std::string error;
  auto prior = MarginalPrior<Rotation>::Create(static_cast<int>(kept.size()),
                                               references.data(),
                                               static_cast<int>(n),
                                               l.data(),
                                               b.data(),
                                               &error);
  EXPECT_NE(prior, nullptr) << error;
  rest.marginals = {{{kept, std::move(prior)}}};
  return rest;
}

// At the optimum x of a problem the gradient by what is marginalised is zero,
// so that the prior has the gradient of its residual blocks, and x is also the
// optimum of what is left. Another start has to end there.
//
// Tolerance. The gradient g of what is left at x, with its rounding, moves the
// optimum by at most 2 |g| / lambda, with lambda the least eigenvalue of J'J
// and 2 for its change on the way. A solver can't see changes of the cost below
// its rounding, (n + 2) eps F for n residuals, and so ends within the square
// root of twice that over lambda.
template <typename Rotation>
void ExpectOptimumOfFullProblem(ceres::Manifold* manifold) {
  using Case = PoseCase<Rotation>;
  constexpr double kEps = std::numeric_limits<double>::epsilon();
  ceres::Solver::Options options = SomeOptions();
  options.max_num_iterations = 100;
  options.function_tolerance = 1e-300;
  options.gradient_tolerance = 1e-300;
  options.parameter_tolerance = 1e-300;
  Case full(6, 40, 3, 77);
  full.manifold = manifold;
  full.pose_is_constant[0] = 1;
  ceres::Solver::Summary ceres;
  ceres::Solve(options, full.MakeProblem().get(), &ceres);
  Case at_optimum = Marginalise(full, 2);
  const auto problem = at_optimum.MakeProblem();
  std::vector<double*> blocks;
  problem->GetParameterBlocks(&blocks);
  blocks.erase(std::remove_if(blocks.begin(),
                              blocks.end(),
                              [&](const double* block) {
                                return problem->IsParameterBlockConstant(block);
                              }),
               blocks.end());
  const Linearization of_rest(problem.get(), blocks);
  const Eigen::MatrixXd h = of_rest.jacobian.transpose() * of_rest.jacobian;
  const double lambda =
      Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd>(h).eigenvalues()[0];
  const auto n = static_cast<double>(of_rest.residuals.size());
  const double r = Eigen::Map<const Eigen::VectorXd>(
                       of_rest.residuals.data(),
                       static_cast<Eigen::Index>(of_rest.residuals.size()))
                       .norm();
  const double gradient =
      of_rest.gradient.norm() + n * kEps * of_rest.jacobian.norm() * r;
  const double tolerance = 2.0 * gradient / lambda +
                           std::sqrt(2.0 * (n + 2.0) * kEps * r * r / lambda);
  // The starts, and the end without the prior, are much farther away.
  EXPECT_LT(tolerance, 1e-5);
  std::vector<Case> cases(3, at_optimum);
  for (size_t i = 1; i < 3; ++i) {
    for (int p = 1; p < full.num_poses(); ++p) {
      for (int e = 0; e < 3; ++e) {
        cases[i].poses[Case::kPose * (p + 1) - 3 + e] += e == 0 ? 0.01 : -0.01;
      }
    }
  }
  cases[2].marginals[0][0].is_active = 0;
  PoseBatch<Case> batch(&cases);
  BatchSummary summary;
  ASSERT_TRUE(SolveBatch(options, OnMachine(), &batch.batch, &summary));
  for (int i = 0; i < 3; ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(summary.problems[i].solved_as, SOLVED_AS_WINDOW)
        << summary.problems[i].path_reason;
    batch.CopyTo(i, &cases[i]);
    double distance = 0.0;
    for (int p = 0; p < full.num_poses(); ++p) {
      for (int e = 0; p != 2 && e < Case::kPose; ++e) {
        const int value = Case::kPose * p + e;
        distance = std::max(
            distance, std::abs(cases[i].poses[value] - full.poses[value]));
      }
    }
    if (i < 2) {
      EXPECT_LT(distance, tolerance);
    } else {
      EXPECT_GT(distance, 100.0 * tolerance);
    }
  }
}

TEST(PoseWindows, KeepTheOptimumOfAMarginalisedProblem) {
  ExpectOptimumOfFullProblem<AngleAxis>(nullptr);
  EigenPose pose;
  ExpectOptimumOfFullProblem<EigenQuaternion>(&pose);
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
    if (Camera::kModelId == EquirectangularCamera::kModelId) {
      return;  // PanoramasAreSolvedInOtherWays
    }
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

TEST(PoseWindows, PanoramasAreSolvedInOtherWays) {
  EigenPose pose;
  std::vector<EigenCase> cases;
  cases.emplace_back(
      4, 30, 3, 100, CameraOf<EigenQuaternion, EquirectangularCamera>());
  cases[0].manifold = &pose;
  cases[0].pose_is_constant[0] = 1;
  std::vector<EigenCase> of_ceres = cases;
  PoseBatch<EigenCase> batch(&cases);
  BatchSummary summary;
  std::string error;
  ASSERT_TRUE(
      SolveBatch(SomeOptions(), OnMachine(), &batch.batch, &summary, &error))
      << error;
  const ProblemSummary& ours = summary.problems[0];
  EXPECT_NE(ours.solved_as, SOLVED_AS_WINDOW);
  ceres::Solver::Summary ceres;
  ceres::Solve(SomeOptions(), of_ceres[0].MakeProblem().get(), &ceres);
  EXPECT_EQ(ours.termination_type, ceres.termination_type) << ours.message;
  EXPECT_NEAR(
      ours.final_cost, ceres.final_cost, 1e-6 * ceres.final_cost + kNothing);
}

// Intrinsics of a pose's own, two of four values of which vary in one array and
// one in the other. The first pose is constant, its intrinsics vary; those of
// the third are constant. S is in main memory above 21 poses.
template <typename Rotation>
std::vector<PoseCase<Rotation>> SomeOwnCases(ceres::Manifold* manifold,
                                             ceres::Manifold* params,
                                             ceres::Manifold* other_params) {
  std::vector<PoseCase<Rotation>> cases;
  unsigned seed = 700;
  for (const int num_poses : {1, 2, 3, 12, 13, 21, 38}) {
    cases.emplace_back(num_poses,
                       std::max(30, 5 * num_poses),
                       std::min(num_poses, 5),
                       ++seed,
                       CameraOf<Rotation, SimpleRadialCamera>(),
                       IntrinsicsOfCase::kOwn);
    PoseCase<Rotation>& one = cases.back();
    one.manifold = manifold;
    one.params_manifold[0] = params;
    one.params_manifold[1] = other_params;
    one.pose_is_constant[0] = 1;
    if (num_poses > 2) {
      one.params_are_constant[0][2] = 1;
    }
  }
  return cases;
}

class PoseWindowsWithOwnIntrinsics : public ::testing::Test {
 protected:
  ceres::SubsetManifold radial_{4, {1, 2}};
  ceres::SubsetManifold focal_{4, {1, 2, 3}};
  EigenPose pose_;

  std::vector<EigenCase> Cases() {
    return SomeOwnCases<EigenQuaternion>(&pose_, &radial_, &focal_);
  }
  // Without priors, with them, and with marginal ones too.
  template <typename Case>
  static void ExpectCasesAsCeres(std::vector<Case> cases) {
    std::vector<Case> without = cases;
    LeaveOutPriors(&without);
    ExpectAsCeres(without, SomeOptions());
    ExpectAsCeres(cases, SomeOptions());
    AddMarginals(&cases);
    ExpectAsCeres(cases, SomeOptions());
  }
};

TEST_F(PoseWindowsWithOwnIntrinsics, MixedPrecisionEndsAtTheCostOfDouble) {
  ExpectMixedPosesAsDouble(Cases());
}

TEST_F(PoseWindowsWithOwnIntrinsics, SolveAsCeresWithAngleAxes) {
  ExpectCasesAsCeres(SomeOwnCases<AngleAxis>(nullptr, &radial_, &focal_));
  // A part of each pose is constant too.
  ceres::SubsetManifold some(6, {1, 5});
  ExpectCasesAsCeres(SomeOwnCases<AngleAxis>(&some, &focal_, &radial_));
}
TEST_F(PoseWindowsWithOwnIntrinsics, SolveAsCeresWithQuaternions) {
  QuaternionPose pose;
  ExpectCasesAsCeres(SomeOwnCases<Quaternion>(&pose, &radial_, &focal_));
}
TEST_F(PoseWindowsWithOwnIntrinsics, SolveAsCeresWithEigenQuaternions) {
  ExpectCasesAsCeres(Cases());
  // Intrinsics alone vary.
  ceres::SubsetManifold held(7, {0, 1, 2, 3, 4, 5, 6});
  ExpectCasesAsCeres(SomeOwnCases<EigenQuaternion>(&held, &radial_, &focal_));
}

TEST_F(PoseWindowsWithOwnIntrinsics, EndAsCeresByTheirParameters) {
  ceres::Solver::Options options = SomeOptions();
  options.function_tolerance = 0.0;
  options.gradient_tolerance = 0.0;
  // The norms of the state and of a step decide which step is the last.
  for (const double tolerance : {1e-2, 1e-3, 1e-4, 1e-5}) {
    SCOPED_TRACE(tolerance);
    options.parameter_tolerance = tolerance;
    std::vector<EigenCase> cases = Cases();
    PoseBatch<EigenCase> batch(&cases);
    BatchSummary summary;
    ASSERT_TRUE(SolveBatch(options, OnMachine(), &batch.batch, &summary));
    for (size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE(i);
      ceres::Solver::Summary ceres;
      ceres::Solve(options, cases[i].MakeProblem().get(), &ceres);
      const ProblemSummary& ours = summary.problems[i];
      EXPECT_EQ(ours.solved_as, SOLVED_AS_WINDOW) << ours.path_reason;
      EXPECT_EQ(ours.message.substr(0, 20), ceres.message.substr(0, 20));
      EXPECT_EQ(ours.num_successful_steps, ceres.num_successful_steps);
    }
  }
}

// The first and the last value of each model's parameters vary, and one more.
TEST_F(PoseWindowsWithOwnIntrinsics, SolveAsCeresWithAllCameraModels) {
  ForEachCameraModel([&](auto camera) {
    using Camera = decltype(camera);
    if (Camera::kModelId == EquirectangularCamera::kModelId) {
      return;
    }
    SCOPED_TRACE(Camera::kName);
    std::vector<int> held(Camera::kNumParams);
    std::iota(held.begin(), held.end(), 0);
    held.erase(held.end() - 1);
    held.erase(held.begin());
    if (!held.empty() && Camera::kNumParams % 2 == 0) {
      held.erase(held.begin());
    }
    ceres::SubsetManifold some(Camera::kNumParams, held);
    std::vector<EigenCase> cases;
    for (unsigned seed = 0; seed < 2; ++seed) {
      cases.emplace_back(4,
                         30,
                         3,
                         800 + seed,
                         CameraOf<EigenQuaternion, Camera>(),
                         IntrinsicsOfCase::kOwn);
      cases.back().manifold = &pose_;
      cases.back().params_manifold[0] = &some;
      cases.back().params_manifold[1] = &radial_;
      cases.back().pose_is_constant[0] = 1;
    }
    LeaveOutPriors(&cases);
    ExpectAsCeres(cases, SomeOptions());
    // Points behind a camera, and points that move to there. With many steps
    // rounding leads elsewhere: if SIMPLE_DIVISION begins 1e-13 apart, Ceres
    // ends 4 % apart.
    for (EigenCase& one : cases) {
      for (int e = 0; e < 6; ++e) {
        one.points[3 * e + 2] = e % 2 == 0 ? -5.0 : 5.0;
      }
    }
    ceres::Solver::Options options = SomeOptions();
    options.max_num_iterations = 3;
    ExpectAsCeres(cases, options);
  });
}

TEST_F(PoseWindowsWithOwnIntrinsics, SayWhyAProblemIsNone) {
  const auto expect_reason = [&](const std::function<void(EigenCase*)>& spoil,
                                 const std::string& reason) {
    std::vector<EigenCase> cases = {Cases()[3]};
    spoil(&cases[0]);
    PoseBatch<EigenCase> batch(&cases);
    BatchSummary summary;
    ASSERT_TRUE(SolveBatch(SomeOptions(), OnMachine(), &batch.batch, &summary));
    const ProblemSummary& one = summary.problems[0];
    EXPECT_EQ(one.IsSolvedWhole(), reason.empty());
    EXPECT_EQ(one.path_reason, reason);
    EXPECT_TRUE(one.IsSolutionUsable()) << one.message;
  };
  expect_reason([](EigenCase*) {}, "");
  expect_reason([](EigenCase* one) { one->params_manifold[0] = nullptr; },
                "more than 3 intrinsics of a camera vary");
  ceres::SphereManifold<4> sphere;
  expect_reason([&](EigenCase* one) { one->params_manifold[0] = &sphere; },
                "the manifold of intrinsics that vary is not a subset's");
  // Pose 4 takes the camera of pose 5, in all rows or in one.
  const auto take_other = [](EigenCase* one, bool in_all) {
    for (size_t k = 0; k < one->arrays[0].params.size(); ++k) {
      if (one->arrays[0].pose[0][k] == 4) {
        one->arrays[0].params[k] = 5;
        if (!in_all) {
          return;
        }
      }
    }
  };
  expect_reason([&](EigenCase* one) { take_other(one, true); },
                "poses share intrinsics that vary");
  expect_reason([&](EigenCase* one) { take_other(one, false); },
                "a pose has several blocks of intrinsics, and some vary");
  expect_reason(
      [](EigenCase* one) {
        for (int e = 0; e < 4; ++e) {
          one->poses[7 + e] *= 1.01;
        }
      },
      "the quaternion of a pose does not have the norm 1, beside intrinsics "
      "that vary");
}

TEST_F(PoseWindowsWithOwnIntrinsics, HaveTheBitsOfABatchInAWindowSolver) {
  std::vector<EigenCase> cases = Cases();
  AddMarginals(&cases);
  std::vector<EigenCase> same = cases;
  std::vector<EigenCase> alone = {cases[3]};
  PoseBatch<EigenCase> expected(&cases);
  BatchSummary summary;
  ASSERT_TRUE(
      SolveBatch(SomeOptions(), OnMachine(), &expected.batch, &summary));
  EXPECT_EQ(summary.num_windows, cases.size());
  PoseBatch<EigenCase> one(&alone);
  ASSERT_TRUE(SolveBatch(SomeOptions(), OnMachine(), &one.batch, &summary));
  expected.CopyTo(3, &cases[3]);
  one.CopyTo(0, &alone[0]);
  EXPECT_EQ(alone[0].poses, cases[3].poses);
  EXPECT_EQ(alone[0].params, cases[3].params);
  WindowCapacity capacity;
  capacity.num_cameras = 38;
  capacity.num_points = 190;
  capacity.num_rows = 950;
  capacity.num_priors = 108;
  capacity.num_marginal_poses = 38 + 2 * 38 + 2;
  capacity.num_marginal_rows = 4 * 38 + 1 + 12 * 38 + 2 * 3 + 2 * 38;
  capacity.num_problems = 7;
  std::string error;
  ceres::Solver::Options options = SomeOptions();
#ifdef CERES_EXT_EMULATED
  options.num_threads = 1;  // As in WindowSolver's test.
#endif
  const auto solver =
      WindowSolver::Create(options, OnMachine(), capacity, &error);
  ASSERT_NE(solver, nullptr) << error;
  PoseBatch<EigenCase> batch(&same);
  ASSERT_TRUE(solver->Wait(solver->Submit(batch.batch, &error), &summary))
      << error;
  EXPECT_EQ(summary.num_windows, same.size());
  for (int r = 0; r < PoseBatch<EigenCase>::kRoles; ++r) {
    EXPECT_EQ(batch.values[r], expected.values[r]);
  }
}

// Whatever is constant, left out, weighted or lost. CERES_EXT_NUM_CASES=2000
// makes it 16,000 windows.
// Random cases of one batch and what they point to.
struct RandomPoseCases {
  EigenPose pose;
  ceres::HuberLoss huber{1.0};
  ceres::CauchyLoss cauchy{2.0};
  ceres::TolerantLoss tolerant{2.0, 0.5};
  ceres::SubsetManifold opencv{8, {1, 2, 3, 5, 6}};
  ceres::SubsetManifold radial{4, {1, 2}};
  std::vector<EigenCase> cases;

  void Make(Random* random) {
    cases.clear();
    const auto some_loss = [&] {
      return random->OneOf<ceres::LossFunction*>(
          {nullptr, &huber, &cauchy, &tolerant});
    };
    ceres::LossFunction* losses[EigenCase::kNumArrays];
    for (ceres::LossFunction*& loss : losses) {
      loss = some_loss();
    }
    for (int i = 0; i < 8; ++i) {
      const int num_poses = 1 + random->Below(random->Chance(0.1) ? 30 : 8);
      const bool has_own = random->Chance(0.4);
      cases.emplace_back(
          num_poses,
          1 + random->Below(60),
          1 + random->Below(std::min(num_poses, 6)),
          static_cast<unsigned>(random->Below(1 << 30)),
          CameraOf<EigenQuaternion, OpenCvCamera>(),
          has_own ? IntrinsicsOfCase::kOwn : IntrinsicsOfCase::kShared);
      EigenCase& one = cases.back();
      one.manifold = &pose;
      if (has_own) {
        one.params_manifold[0] = &opencv;
        one.params_manifold[1] = &radial;
        for (auto& are_constant : one.params_are_constant) {
          const double p_params = random->OneOf({0.0, 0.5, 1.0});
          for (uint8_t& is_constant : are_constant) {
            is_constant = random->Chance(p_params) ? 1 : 0;
          }
        }
      }
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
    const int num_poses = 1 + random->Below(4);
    const int num_residuals = 1 + random->Below(6 * num_poses);
    for (EigenCase& one : cases) {
      std::vector<int32_t> of_prior(one.num_poses());
      std::iota(of_prior.begin(), of_prior.end(), 0);
      for (int k = random->Below(4); k > 0 && one.num_poses() >= num_poses;
           --k) {
        std::shuffle(of_prior.begin(), of_prior.end(), random->generator());
        one.AddMarginal(0,
                        {of_prior.begin(), of_prior.begin() + num_poses},
                        num_residuals,
                        static_cast<unsigned>(random->Below(1 << 30)));
        one.marginals[0].back().weight = random->OneOf({0.1, 1.0, 3.0});
        one.marginals[0].back().is_active = random->Chance(0.8) ? 1 : 0;
      }
    }
  }
};

ceres::Solver::Options RandomPoseOptions(Random* random) {
  ceres::Solver::Options options = SomeOptions();
  options.max_num_iterations = random->Below(9);
  options.jacobi_scaling = random->Chance(0.8);
  options.initial_trust_region_radius = random->OneOf({1e-2, 1e2, 1e4});
  return options;
}

TEST(PoseWindows, SolveBoundedOnesAsCeres) {
  RandomPoseCases of_batch;
  BoundedCounts counts;
  ForEachCase(20, [&](Random* random) {
    of_batch.Make(random);
    const ceres::Solver::Options options =
        RandomSearch(RandomPoseOptions(random), random);
    PoseBatch<EigenCase> batch(&of_batch.cases);
    const RandomBounds bounds(&batch.batch, random);
    ExpectBoundedAsCeres(options, &batch.batch, &counts);
  });
  ExpectCompared(counts);
}

TEST(PoseWindows, SolveRandomOnesAsCeres) {
  RandomPoseCases of_batch;
  int64_t num_windows = 0;
  int64_t num_own = 0;
  int64_t num_decided = 0;
  ForEachCase(20, [&](Random* random) {
    of_batch.Make(random);
    std::vector<EigenCase>& cases = of_batch.cases;
    std::vector<EigenCase> of_ceres = cases;
    const ceres::Solver::Options options = RandomPoseOptions(random);
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
      num_windows += ours.IsSolvedWhole() ? 1 : 0;
      num_own += ours.IsSolvedWhole() && cases[i].params.size() > 16 ? 1 : 0;
      ASSERT_EQ(ours.IsSolutionUsable(), ceres.IsSolutionUsable())
          << ours.message << " / " << ceres.message << " / "
          << ours.path_reason;
      if (!ceres.IsSolutionUsable()) {
        continue;
      }
      EXPECT_LE(ours.final_cost,
                ceres.final_cost * (1.0 + 1e-6) + 1e-9 * ceres.initial_cost);
      num_decided += ExpectSameDecisions(ours, ceres, options) ? 1 : 0;
    }
  });
  EXPECT_GT(num_own, 0);
  EXPECT_GT(num_windows, num_own);
  EXPECT_GT(num_decided, num_windows / 4);
}

// On a device one window alone is solved by a cluster of blocks.
TEST(PoseWindows, HaveTheSameBitsInAnyBatch) {
  EigenPose pose;
  auto cases = SomePoseCases<EigenCase>(&pose);
  AddMarginals(&cases);
  // Large enough for several threads of the host.
  cases.emplace_back(8, 400, 5, 700);
  cases.back().manifold = &pose;
  cases.back().pose_is_constant[0] = 1;
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
    EXPECT_EQ(solve({cases[i]}, 2), alone);
    EXPECT_EQ(solve({cases[i]}, 3), alone);
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
  const bool is_on_host = summary.device.rfind("host", 0) == 0;
  for (int i = 0; i < 8; ++i) {
    SCOPED_TRACE(i);
    const ProblemSummary& ours = summary.problems[i];
    EXPECT_EQ(ours.IsSolvedWhole(), i == 0 || i >= 6 || (i == 5 && is_on_host))
        << ours.path_reason;
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
  // The host solves it as a window.
  EXPECT_EQ(summary.problems[5].path_reason.find("twice") != std::string::npos,
            !is_on_host);
}

TEST(PoseWindows, SayWhyAProblemIsNone) {
  EigenPose pose;
  const auto expect_reason =
      [&](const std::function<void(PoseBatch<EigenCase>*)>& spoil,
          const std::string& reason) {
        std::vector<EigenCase> cases = {EigenCase(3, 30, 3, 1)};
        cases[0].manifold = &pose;
        cases[0].pose_is_constant[0] = 1;
        cases[0].AddMarginal(0, {1, 2}, 12, 1);
        PoseBatch<EigenCase> batch(&cases);
        spoil(&batch);
        BatchSummary summary;
        std::string error;
        ASSERT_TRUE(SolveBatch(
            SomeOptions(), OnMachine(), &batch.batch, &summary, &error))
            << error;
        const ProblemSummary& one = summary.problems[0];
        EXPECT_FALSE(one.IsSolvedWhole());
        EXPECT_NE(one.path_reason.find(reason), std::string::npos)
            << one.path_reason;
        EXPECT_TRUE(one.IsSolutionUsable()) << one.message;
      };
  expect_reason([](auto* b) { b->is_constant[2][1] = 0; },
                "a pose has several blocks of intrinsics, and some vary");
  expect_reason([](auto* b) { b->manifolds[1][1] = nullptr; },
                "a pose's quaternion has no manifold");
  ceres::HuberLoss huber(1.0);
  expect_reason(
      [&](auto* b) { b->batch.problem.mutable_residuals(5)->loss = &huber; },
      "marginal priors have no loss in windows");
  // A pose of another array.
  std::vector<double> others = {0.0, 0.0, 0.0, 1.0, 0.1, 0.2, 0.3};
  const int32_t first[] = {0};
  const int64_t one_of_each[] = {0, 1};
  expect_reason(
      [&](auto* b) {
        auto* const residuals = b->batch.problem.mutable_residuals(5);
        residuals->blocks[1] = {
            b->batch.problem.AddParameters({others.data(), 1, 7}), first};
        b->batch.parameter_begin.push_back(one_of_each);
      },
      "one array of cameras");
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
  AddMarginals(&cases);
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
  // One prior of all poses, one or two of 2, and two of one.
  capacity.num_marginal_poses = 38 + 2 * 38 + 2;
  capacity.num_marginal_rows = 4 * 38 + 1 + 12 * 38 + 2 * 3;
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
  const auto expect_refused = [&](int64_t WindowCapacity::*number,
                                  const std::string& reason) {
    WindowCapacity smaller = capacity;
    --(smaller.*number);
    const auto refusing =
        WindowSolver::Create(options, OnMachine(), smaller, &error);
    ASSERT_NE(refusing, nullptr) << error;
    EXPECT_EQ(refusing->Submit(batch.batch, &error), 0);
    EXPECT_EQ(error, reason);
  };
  expect_refused(&WindowCapacity::num_priors,
                 "problem 5 has 108 priors, but the capacity is 107");
  expect_refused(&WindowCapacity::num_marginal_poses,
                 "problem 5 has 116 poses of marginal priors, but the capacity "
                 "is 115");
  expect_refused(&WindowCapacity::num_marginal_rows,
                 "problem 5 has 615 residuals of marginal priors, but the "
                 "capacity is 614");
}

// The arrays of a batch belong to its problems.
TEST(PoseWindows, RefuseAMarginalPriorOfTwoProblems) {
  EigenPose pose;
  auto cases = SomePoseCases<EigenCase>(&pose);
  cases.erase(cases.begin() + 2, cases.end());
  cases[0].AddMarginal(0, {0}, 6, 1);
  PoseBatch<EigenCase> batch(&cases);
  batch.marginals[0].ids[0][0] = 1;
  BatchSummary summary;
  std::string error;
  EXPECT_FALSE(
      SolveBatch(SomeOptions(), OnMachine(), &batch.batch, &summary, &error));
  EXPECT_NE(error.find("another problem's"), std::string::npos) << error;
}

// Drops pose 2 of each case and the points that it sees.
struct Dropped {
  Dropped(const std::vector<EigenCase>& cases, ProblemBatch* batch) {
    for (const EigenCase& one : cases) {
      std::vector<uint8_t> of_points(one.num_points(), 0);
      for (int a = 0; a < 2; ++a) {
        for (size_t k = 0; k < one.arrays[a].point.size(); ++k) {
          of_points[one.arrays[a].point[k]] |=
              one.arrays[a].pose[0][k] == 2 ? 1 : 0;
        }
      }
      points.insert(points.end(), of_points.begin(), of_points.end());
      poses.resize(poses.size() + one.num_poses(), 0);
      poses[poses.size() - one.num_poses() + 2] = 1;
    }
    batch->drop.parameter_is_dropped = {
        points.data(), poses.data(), nullptr, nullptr};
  }
  std::vector<uint8_t> points;
  std::vector<uint8_t> poses;
};

// Priors are those of Marginalize at the solution, to the bit, also those of a
// WindowSolver, and windows have them.
TEST(PoseWindows, LeaveThePriorsOfDroppedBlocks) {
  EigenPose pose;
  std::vector<EigenCase> cases;
  for (const unsigned seed : {1U, 2U, 3U}) {
    cases.emplace_back(6, 40, 3, seed);
    cases.back().manifold = &pose;
    cases.back().pose_is_constant[0] = 1;
  }
  std::vector<EigenCase> same = cases;
  PoseBatch<EigenCase> batch(&cases);
  const Dropped dropped(cases, &batch.batch);
  // Problem 1 drops nothing.
  ProblemBatch& arrays = batch.batch;
  std::vector<uint8_t> points = dropped.points;
  std::vector<uint8_t> poses = dropped.poses;
  std::fill_n(points.begin() + 40, 40, 0);
  std::fill_n(poses.begin() + 6, 6, 0);
  arrays.drop.parameter_is_dropped[0] = points.data();
  arrays.drop.parameter_is_dropped[1] = poses.data();
  BatchSummary summary;
  std::string error;
  ceres::Solver::Options options = SomeOptions();
  ASSERT_TRUE(SolveBatch(options, OnMachine(), &arrays, &summary, &error))
      << error;
  EXPECT_EQ(summary.num_windows, 3);
  ASSERT_EQ(summary.marginals.size(), 3);
  EXPECT_EQ(summary.marginals[1].prior, nullptr);
  EXPECT_EQ(summary.marginals[1].message, "");
  for (const int i : {0, 2}) {
    SCOPED_TRACE(i);
    std::vector<EigenCase> one = {cases[i]};
    batch.CopyTo(i, &one[0]);
    PoseBatch<EigenCase> alone(&one);
    const Dropped of_one(one, &alone.batch);
    Marginal expected;
    ASSERT_TRUE(
        Marginalize(alone.batch.problem, alone.batch.drop, &expected, &error))
        << error;
    ASSERT_NE(expected.prior, nullptr);
    const Marginal& marginal = summary.marginals[i];
    ASSERT_NE(marginal.prior, nullptr) << marginal.message;
    EXPECT_EQ(marginal.prior->matrix(), expected.prior->matrix());
    EXPECT_EQ(marginal.prior->offset(), expected.prior->offset());
    EXPECT_EQ(marginal.num_rows, expected.num_rows);
    // Poses 1, 3 and 4, which see points of pose 2; pose 0 is constant.
    ASSERT_EQ(marginal.blocks.size(), 3);
    std::vector<int32_t> kept;
    for (size_t k = 0; k < 3; ++k) {
      EXPECT_EQ(marginal.blocks[k].parameters, 1);
      EXPECT_EQ(marginal.blocks[k].block,
                expected.blocks[k].block + 6 * int64_t{i});
      kept.push_back(static_cast<int32_t>(expected.blocks[k].block));
    }
    // The next window has the prior, and not what it is from.
    EigenCase& next = one[0];
    for (int a = 0; a < EigenCase::kNumArrays; ++a) {
      EigenCase::Array& array = next.arrays[a];
      for (size_t k = 0; k < array.is_active.size(); ++k) {
        const bool is_old =
            a < 2 ? of_one.points[array.point[k]] != 0
                  : array.pose[0][k] == 2 || (a == 4 && array.pose[1][k] == 2);
        array.is_active[k] = is_old ? 0 : 1;
      }
    }
    next.marginals = {{{kept, marginal.prior}}};
    PoseBatch<EigenCase> with_prior(&one);
    BatchSummary of_next;
    ASSERT_TRUE(
        SolveBatch(options, OnMachine(), &with_prior.batch, &of_next, &error))
        << error;
    EXPECT_EQ(of_next.problems[0].solved_as, SOLVED_AS_WINDOW)
        << of_next.problems[0].path_reason;
    // It begins at the optimum of what it was a part of.
    EXPECT_NEAR(of_next.problems[0].initial_cost + marginal.least_cost,
                summary.problems[i].final_cost,
                options.function_tolerance * summary.problems[i].final_cost);
  }

  WindowCapacity capacity;
  capacity.num_cameras = 6;
  capacity.num_points = 40;
  capacity.num_rows = 120;
  capacity.num_priors = 30;
  capacity.num_problems = 3;
#ifdef CERES_EXT_EMULATED
  options.num_threads = 1;  // As in WindowSolver's test.
#endif
  const auto solver =
      WindowSolver::Create(options, OnMachine(), capacity, &error);
  ASSERT_NE(solver, nullptr) << error;
  PoseBatch<EigenCase> as_it_comes(&same);
  as_it_comes.batch.drop = arrays.drop;
  BatchSummary of_solver;
  ASSERT_TRUE(
      solver->Wait(solver->Submit(as_it_comes.batch, &error), &of_solver))
      << error;
  EXPECT_EQ(of_solver.num_windows, 3);
  ASSERT_EQ(of_solver.marginals.size(), 3);
  EXPECT_EQ(of_solver.marginals[1].prior, nullptr);
  for (const int i : {0, 2}) {
    ASSERT_NE(of_solver.marginals[i].prior, nullptr);
    EXPECT_EQ(of_solver.marginals[i].prior->matrix(),
              summary.marginals[i].prior->matrix());
    EXPECT_EQ(of_solver.marginals[i].prior->offset(),
              summary.marginals[i].prior->offset());
  }
  // A problem without a solution has none.
  StopFlag stop;
  stop.Stop();
  ASSERT_TRUE(SolveBatch(
      options, OnMachine(), &arrays, &summary, &error, nullptr, &stop));
  ASSERT_EQ(summary.marginals.size(), 3);
  EXPECT_EQ(summary.marginals[0].prior, nullptr);
  EXPECT_EQ(summary.marginals[0].message, "the problem has no usable solution");
  arrays.drop.parameter_is_dropped.pop_back();
  EXPECT_FALSE(SolveBatch(options, OnMachine(), &arrays, &summary, &error));
  EXPECT_EQ(error, "parameter_is_dropped has 3 arrays, expected 4");
}

}  // namespace
}  // namespace ceres_ext
