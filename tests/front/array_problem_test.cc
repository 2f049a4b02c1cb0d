// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Problems of arrays: solved as the ceres::Problem of the same blocks is, bit
// for bit; what they can't be solved without one; what is refused.

#include "ceres_ext/array_problem.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ceres/autodiff_cost_function.h"
#include "ceres/ceres.h"
#include "ceres/manifold.h"
#include "ceres/rotation.h"
#include "ceres_ext/bal_cost_functions.h"
#include "ceres_ext/base/sentence.h"
#include "ceres_ext/device_cost_function.h"
#include "ceres_ext/solve.h"
#include "gtest/gtest.h"
#include "tests/common/bal_test_problem.h"
#include "tests/common/functors.h"
#include "tests/common/has_device.h"
#include "tests/common/same_summary.h"

namespace ceres_ext {
namespace {

// A problem and what its arrays point to.
struct Arrays {
  explicit Arrays(int camera_size)
      : bal(MakeBalTestProblem(12, 150, 6, camera_size)) {}

  ArrayProblem Make() const {
    ArrayProblem problem;
    ArrayProblem::Parameters cameras = of_cameras;
    cameras.values = const_cast<double*>(bal.cameras.data());
    cameras.num_blocks = bal.num_cameras();
    cameras.size = bal.camera_size;
    ArrayProblem::Parameters points = of_points;
    points.values = const_cast<double*>(bal.points.data());
    points.num_blocks = bal.num_points();
    points.size = 3;
    const std::vector<ArrayProblem::Index> blocks = {
        {problem.AddParameters(cameras), bal.camera_id.data()},
        {problem.AddParameters(points), bal.point_id.data()}};
    const auto n = static_cast<int64_t>(bal.camera_id.size());
    if (bal.camera_size == 10) {
      problem.AddResiduals<BalQuaternionReprojectionError>(
          n, bal.observations.data(), blocks, loss);
    } else if (use_functor) {
      problem.AddResiduals<FunctorCost>(
          n, bal.observations.data(), blocks, loss);
    } else {
      problem.AddResiduals<BalReprojectionError>(
          n, bal.observations.data(), blocks, loss);
    }
    return problem;
  }

  // The same, block by block.
  std::unique_ptr<ceres::Problem> MakeProblem() {
    ceres::Problem::Options options;
    options.loss_function_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
    options.manifold_ownership = ceres::DO_NOT_TAKE_OWNERSHIP;
    auto problem = std::make_unique<ceres::Problem>(options);
    const auto add = [&](const ArrayProblem::Parameters& p,
                         int i,
                         int size,
                         double* block) {
      problem->AddParameterBlock(
          block, size, p.manifolds != nullptr ? p.manifolds[i] : p.manifold);
      if (p.is_constant != nullptr && p.is_constant[i] != 0) {
        problem->SetParameterBlockConstant(block);
      }
    };
    for (int i = 0; i < bal.num_cameras(); ++i) {
      add(of_cameras, i, bal.camera_size, bal.camera(i));
    }
    for (int j = 0; j < bal.num_points(); ++j) {
      add(of_points, j, 3, bal.point(j));
    }
    for (size_t k = 0; k < bal.camera_id.size(); ++k) {
      ceres::CostFunction* const cost =
          use_functor && bal.camera_size == 9
              ? new FunctorCost(AutodiffReprojection<3>{
                    bal.observations[2 * k], bal.observations[2 * k + 1]})
              : bal.MakeCost(k);
      problem->AddResidualBlock(
          cost, loss, bal.camera(bal.camera_id[k]), bal.point(bal.point_id[k]));
    }
    return problem;
  }

  BalTestProblem bal;
  ArrayProblem::Parameters of_cameras;
  ArrayProblem::Parameters of_points;
  ceres::LossFunction* loss = nullptr;
  bool use_functor = false;
};

ceres::Solver::Options SolverOptions() {
  ceres::Solver::Options options;
  options.linear_solver_type = ceres::ITERATIVE_SCHUR;
  options.preconditioner_type = ceres::SCHUR_JACOBI;
  options.max_num_iterations = 6;
  options.logging_type = ceres::SILENT;
  options.num_threads = 2;
  return options;
}

Options On(DeviceType device) {
  Options options;
  options.device = device;
  return options;
}

std::vector<DeviceType> Devices() {
  std::vector<DeviceType> devices = {DEVICE_HOST};
  if (HasDevice()) {
    devices.push_back(DEVICE_CUDA);
  }
  return devices;
}

// Solves both ways; the same bits.
void ExpectSameBits(const Arrays& arrays,
                    const ceres::Solver::Options& options,
                    const Options& ext_options) {
  Arrays by_problem = arrays;
  Arrays by_arrays = arrays;
  auto problem = by_problem.MakeProblem();
  Summary expected;
  Solve(options, ext_options, problem.get(), &expected);
  ASSERT_EQ(expected.path, PATH_FULL) << expected.path_reason;
  ASSERT_TRUE(expected.IsSolutionUsable()) << expected.message;
  ASSERT_GT(expected.num_successful_steps, 2);

  ArrayProblem array_problem = by_arrays.Make();
  Summary summary;
  Solve(options, ext_options, &array_problem, &summary);
  ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
  ASSERT_TRUE(summary.IsSolutionUsable()) << summary.message;
  EXPECT_EQ(summary.path_reason, expected.path_reason);
  EXPECT_EQ(by_arrays.bal.cameras, by_problem.bal.cameras);
  EXPECT_EQ(by_arrays.bal.points, by_problem.bal.points);
  ExpectSameSummary(summary, expected);
  EXPECT_EQ(summary.method, expected.method);
  EXPECT_EQ(summary.device, expected.device);
}

void ExpectSameBitsOnAllDevices(
    const Arrays& arrays,
    const ceres::Solver::Options& options = SolverOptions(),
    JacobianType jacobian = JACOBIAN_STORED) {
  for (const DeviceType device : Devices()) {
    SCOPED_TRACE(DeviceTypeToString(device));
    Options ext_options = On(device);
    ext_options.jacobian = jacobian;
    ExpectSameBits(arrays, options, ext_options);
  }
}

// All kinds of rows, losses, weights, manifolds and constants:
// array_kinds_test.
TEST(ArrayProblem, SameBitsAsAProblem) {
  for (const int camera_size : {9, 10}) {
    const Arrays arrays(camera_size);
    ExpectSameBitsOnAllDevices(arrays);
    ExpectSameBitsOnAllDevices(arrays, SolverOptions(), JACOBIAN_RECOMPUTED);
    ceres::Solver::Options cgnr = SolverOptions();
    cgnr.linear_solver_type = ceres::CGNR;
    cgnr.preconditioner_type = ceres::JACOBI;
    ExpectSameBitsOnAllDevices(arrays, cgnr);
  }
}

TEST(ArrayProblem, SameBitsWithDogleg) {
  const Arrays arrays(9);
  ceres::Solver::Options options = SolverOptions();
  options.linear_solver_type = ceres::DENSE_SCHUR;
  options.trust_region_strategy_type = ceres::DOGLEG;
  for (const ceres::DoglegType type :
       {ceres::TRADITIONAL_DOGLEG, ceres::SUBSPACE_DOGLEG}) {
    options.dogleg_type = type;
    ExpectSameBitsOnAllDevices(arrays, options);
  }
}

TEST(ArrayProblem, SameBitsWithBlocksThatNobodyNames) {
  Arrays arrays(9);
  // Camera 12 and point 150, and another in the middle.
  arrays.bal.cameras.insert(arrays.bal.cameras.end(), 9, 0.5);
  const std::vector<double> alone = {1.0, 2.0, 3.0};
  arrays.bal.points.insert(
      arrays.bal.points.begin() + 3 * 70, alone.begin(), alone.end());
  for (int& point : arrays.bal.point_id) {
    point += point >= 70 ? 1 : 0;
  }
  ExpectSameBitsOnAllDevices(arrays);
}

// is_eliminated is the first group of linear_solver_ordering, of points or of
// cameras.
TEST(ArrayProblem, SameBitsWithEliminatedBlocks) {
  for (const bool eliminates_points : {true, false}) {
    for (const bool use_functor : {true, false}) {
      for (const DeviceType device : Devices()) {
        SCOPED_TRACE(DeviceTypeToString(device));
        const Options ext_options = On(device);
        Arrays by_problem(9);
        by_problem.use_functor = use_functor;
        auto problem = by_problem.MakeProblem();
        ceres::Solver::Options options = SolverOptions();
        options.linear_solver_ordering =
            std::make_shared<ceres::ParameterBlockOrdering>();
        for (int i = 0; i < by_problem.bal.num_cameras(); ++i) {
          options.linear_solver_ordering->AddElementToGroup(
              by_problem.bal.camera(i), eliminates_points ? 1 : 0);
        }
        for (int j = 0; j < by_problem.bal.num_points(); ++j) {
          options.linear_solver_ordering->AddElementToGroup(
              by_problem.bal.point(j), eliminates_points ? 0 : 1);
        }
        Summary expected;
        Solve(options, ext_options, problem.get(), &expected);

        Arrays by_arrays(9);
        by_arrays.use_functor = use_functor;
        (eliminates_points ? by_arrays.of_points : by_arrays.of_cameras)
            .is_eliminated = true;
        ArrayProblem arrays = by_arrays.Make();
        Summary summary;
        Solve(SolverOptions(), ext_options, &arrays, &summary);
        EXPECT_EQ(summary.path, expected.path) << summary.path_reason;
        EXPECT_EQ(summary.path, PATH_FULL) << summary.path_reason;
        EXPECT_EQ(by_arrays.bal.cameras, by_problem.bal.cameras);
        EXPECT_EQ(by_arrays.bal.points, by_problem.bal.points);
        EXPECT_EQ(summary.linear_solver_ordering_used,
                  (eliminates_points ? std::vector<int>{150, 12}
                                     : std::vector<int>{12, 150}));

        // The ceres::Problem that inner iterations need has the ordering.
        Arrays inner(9);
        inner.use_functor = use_functor;
        (eliminates_points ? inner.of_points : inner.of_cameras).is_eliminated =
            true;
        ArrayProblem with_inner = inner.Make();
        ceres::Solver::Options inner_options = SolverOptions();
        inner_options.use_inner_iterations = true;
        Solve(inner_options, ext_options, &with_inner, &summary);
        EXPECT_EQ(summary.linear_solver_ordering_given,
                  (eliminates_points ? std::vector<int>{150, 12}
                                     : std::vector<int>{12, 150}))
            << summary.path_reason;
      }
    }
  }
}

// Then the solver chooses, as without it.
TEST(ArrayProblem, NothingThatVariesIsEliminated) {
  std::vector<std::vector<double>> results;
  for (const bool is_eliminated : {false, true}) {
    Arrays arrays(9);
    arrays.use_functor = true;
    const std::vector<uint8_t> all(arrays.bal.num_points(), 1);
    arrays.of_points.is_constant = all.data();
    arrays.of_points.is_eliminated = is_eliminated;
    ArrayProblem problem = arrays.Make();
    ceres::Solver::Options options = SolverOptions();
    options.num_threads = 1;
    Summary summary;
    Solve(options, On(DEVICE_HOST), &problem, &summary);
    EXPECT_TRUE(summary.IsSolutionUsable()) << summary.message;
    results.push_back(arrays.bal.cameras);
  }
  EXPECT_EQ(results[0], results[1]);
}

// Solved again and again with other values, flags, losses and options, as by a
// solver that has never seen anything.
TEST(ArrayProblem, ASolverThatKeepsWhatItHasSolvesAsANewOne) {
  ceres::HuberLoss huber(1.0);
  for (const DeviceType device : Devices()) {
    ArraySolver solver;
    std::mt19937 generator(3);
    for (int round = 0; round < 12; ++round) {
      SCOPED_TRACE(round);
      Arrays arrays(round % 6 == 5 ? 10 : 9);
      // Other points in other rows, in some rounds.
      if (round % 4 == 3) {
        std::shuffle(arrays.bal.camera_id.begin(),
                     arrays.bal.camera_id.begin() + 6,
                     generator);
      }
      for (double& value : arrays.bal.points) {
        value += 0.001 * static_cast<double>(generator() % 7);
      }
      std::vector<uint8_t> is_constant(arrays.bal.num_cameras(), 0);
      is_constant[round % 12] = 1;
      if (round % 3 == 1) {
        arrays.of_cameras.is_constant = is_constant.data();
      }
      arrays.loss = round % 5 == 2 ? &huber : nullptr;
      Options ext_options = On(device);
      ext_options.jacobian =
          round % 7 <= 2 ? JACOBIAN_RECOMPUTED : JACOBIAN_STORED;
      ceres::Solver::Options options = SolverOptions();
      options.num_threads = round < 8 ? 2 : 3;
      Arrays again = arrays;
      Summary summary;
      ArrayProblem problem = arrays.Make();
      solver.Solve(options, ext_options, &problem, &summary);
      Summary expected;
      ArrayProblem other = again.Make();
      Solve(options, ext_options, &other, &expected);
      ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
      ASSERT_TRUE(summary.IsSolutionUsable()) << summary.message;
      EXPECT_EQ(summary.final_cost, expected.final_cost);
      EXPECT_EQ(arrays.bal.cameras, again.bal.cameras);
      EXPECT_EQ(arrays.bal.points, again.bal.points);
      EXPECT_EQ(summary.device, expected.device);
      EXPECT_EQ(summary.num_threads_used, options.num_threads);
    }
  }
}

// The same of views: the same rows again, other values, rows with other points,
// with other images, with fewer columns, and the first ones again.
TEST(ArrayProblem, ASolverThatKeepsTheIndexOfViewsSolvesAsANewOne) {
  enum { kSame, kOtherValues, kOtherPoints, kOtherImages, kOnePose };
  const BalTestProblem start = MakeBalTestProblem(12, 300, 4, 9);
  for (const DeviceType device : Devices()) {
    ArraySolver solver;
    std::vector<double> first;
    for (const int change : {kSame,
                             kSame,
                             kOtherValues,
                             kOtherPoints,
                             kOtherPoints,
                             kOtherImages,
                             kOnePose,
                             kSame}) {
      SCOPED_TRACE(change);
      std::vector<double> results[2];
      double costs[2] = {};
      for (const int is_new : {0, 1}) {
        BalTestProblem bal = start;
        std::vector<int32_t> intrinsics_id;
        if (change == kOtherValues) {
          bal.points[0] += 0.001;
        } else if (change == kOtherPoints) {
          std::swap(bal.point_id[17], bal.point_id[117]);
        } else if (change == kOtherImages) {
          bal.camera_id[40] = (bal.camera_id[40] + 1) % 12;
        }
        std::vector<double> poses;
        std::vector<double> intrinsics;
        for (int c = 0; c < 12; ++c) {
          poses.insert(poses.end(), bal.camera(c), bal.camera(c) + 6);
          if (c % 4 == 0) {
            intrinsics.insert(
                intrinsics.end(), bal.camera(c) + 6, bal.camera(c) + 9);
          }
        }
        for (const int32_t c : bal.camera_id) {
          intrinsics_id.push_back(c / 4);
        }
        const std::vector<uint8_t> are_constant(3, 1);
        ArrayProblem problem;
        const int pose = problem.AddParameters({poses.data(), 12, 6});
        ArrayProblem::Parameters of_intrinsics = {intrinsics.data(), 3, 3};
        of_intrinsics.is_constant =
            change == kOnePose ? are_constant.data() : nullptr;
        const int intrinsic = problem.AddParameters(of_intrinsics);
        const int point = problem.AddParameters({bal.points.data(), 300, 3});
        problem.AddResiduals<
            DeviceAutoDiffCostFunction<SplitReprojection, 2, 6, 3, 3>>(
            static_cast<int64_t>(bal.camera_id.size()),
            bal.observations.data(),
            {{pose, bal.camera_id.data()},
             {intrinsic, intrinsics_id.data()},
             {point, bal.point_id.data()}});
        Summary summary;
        if (is_new == 1) {
          Solve(SolverOptions(), On(device), &problem, &summary);
        } else {
          solver.Solve(SolverOptions(), On(device), &problem, &summary);
        }
        ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
        ASSERT_TRUE(summary.IsSolutionUsable()) << summary.message;
        costs[is_new] = summary.final_cost;
        results[is_new] = poses;
        results[is_new].insert(
            results[is_new].end(), bal.points.begin(), bal.points.end());
      }
      EXPECT_EQ(costs[0], costs[1]);
      EXPECT_EQ(results[0], results[1]);
      if (first.empty()) {
        first = results[0];
      }
      EXPECT_EQ(first == results[0], change == kSame);
    }
  }
}

// A solve that fails, and one by a ceres::Problem, leave a solver that works.
TEST(ArrayProblem, ASolverGoesOnAfterAFailure) {
  for (const DeviceType device : Devices()) {
    ArraySolver solver;
    for (const int fault : {0, 1, 0, 2, 0}) {
      Arrays arrays(9);
      arrays.use_functor = fault == 2;
      if (fault == 1) {
        // The optical centre.
        const double* const camera = arrays.bal.camera(arrays.bal.camera_id[0]);
        double* const point = arrays.bal.point(arrays.bal.point_id[0]);
        const double back[3] = {-camera[0], -camera[1], -camera[2]};
        const double t[3] = {-camera[3], -camera[4], -camera[5]};
        ceres::AngleAxisRotatePoint(back, t, point);
      }
      ArrayProblem problem = arrays.Make();
      Summary summary;
      solver.Solve(SolverOptions(), On(device), &problem, &summary);
      EXPECT_EQ(summary.IsSolutionUsable(), fault != 1) << summary.message;
    }
  }
}

// A point of its own for each of 40 observations, and no index.
TEST(ArrayProblem, NoIndexIsTheBlockOfTheSameNumber) {
  BalTestProblem bal = MakeBalTestProblem(4, 40, 1, 9);
  ASSERT_EQ(bal.camera_id.size(), 40u);
  BalTestProblem other = bal;
  std::vector<double> results[2];
  for (const bool with_index : {false, true}) {
    BalTestProblem& of = with_index ? other : bal;
    ArrayProblem problem;
    const int cameras = problem.AddParameters({of.cameras.data(), 4, 9});
    const int points = problem.AddParameters({of.points.data(), 40, 3});
    // An array without residual blocks is as good as none.
    problem.AddResiduals<BalReprojectionError>(
        0, static_cast<const double*>(nullptr), {{0, nullptr}, {1, nullptr}});
    problem.AddResiduals<BalReprojectionError>(
        40,
        of.observations.data(),
        {{cameras, of.camera_id.data()},
         {points, with_index ? of.point_id.data() : nullptr}});
    Summary summary;
    Solve(SolverOptions(), On(DEVICE_HOST), &problem, &summary);
    ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
    ASSERT_TRUE(summary.IsSolutionUsable()) << summary.message;
    results[with_index ? 1 : 0] = of.points;
  }
  EXPECT_EQ(results[0], results[1]);
}

// Features that need a ceres::Problem build one, and the summary says so.
struct Reason {
  const char* name;
  const char* reason;
  std::function<void(Arrays*, ceres::Solver::Options*, Options*)> change;
  bool is_said = false;  // of the same solve of a ceres::Problem
};

class WithAProblem : public ::testing::TestWithParam<Reason> {};

TEST_P(WithAProblem, SaysWhyAndEndsWhereItEnds) {
  Arrays by_arrays(9);
  ceres::Solver::Options options = SolverOptions();
  options.num_threads = 1;
  Options ext_options = On(DEVICE_HOST);
  GetParam().change(&by_arrays, &options, &ext_options);
  Arrays by_problem(9);
  GetParam().change(&by_problem, &options, &ext_options);

  Summary expected;
  auto problem = by_problem.MakeProblem();
  Solve(options, ext_options, problem.get(), &expected);
  ArrayProblem arrays = by_arrays.Make();
  Summary summary;
  Solve(options, ext_options, &arrays, &summary);
  // A reason that is that of stock Ceres too is said once.
  const std::string reason = GetParam().reason;
  EXPECT_EQ(expected.path_reason == reason, GetParam().is_said);
  EXPECT_EQ(summary.path_reason,
            expected.path_reason +
                "; a ceres::Problem was built from the arrays" +
                (GetParam().is_said ? " for that" : ", because " + reason));
  EXPECT_EQ(summary.path, expected.path);
  EXPECT_EQ(summary.termination_type, expected.termination_type);
  EXPECT_EQ(summary.final_cost, expected.final_cost);
  EXPECT_EQ(by_arrays.bal.points, by_problem.bal.points);
}

INSTANTIATE_TEST_SUITE_P(
    ,
    WithAProblem,
    ::testing::Values(
        Reason{"LineSearch",
               "minimizer_type LINE_SEARCH needs a ceres::Problem",
               [](Arrays*, ceres::Solver::Options* options, Options*) {
                 options->minimizer_type = ceres::LINE_SEARCH;
               }},
        Reason{"InnerIterations",
               "inner iterations need a ceres::Problem",
               [](Arrays*, ceres::Solver::Options* options, Options*) {
                 options->use_inner_iterations = true;
               }},
        Reason{"CheckedGradients",
               "check_gradients needs a ceres::Problem",
               [](Arrays*, ceres::Solver::Options* options, Options*) {
                 options->check_gradients = true;
               }},
        Reason{"FactorOfFloat",
               "stock Ceres solves with DENSE_SCHUR on the host, because "
               "use_mixed_precision_solves needs a device",
               [](Arrays*, ceres::Solver::Options* options, Options*) {
                 options->linear_solver_type = ceres::DENSE_SCHUR;
                 options->use_mixed_precision_solves = true;
                 options->max_num_refinement_iterations = 4;
               },
               true},
        Reason{"SwitchedOff",
               "this library is switched off (enabled = false)",
               [](Arrays*, ceres::Solver::Options*, Options* ext_options) {
                 ext_options->enabled = false;
               },
               true}),
    [](const auto& info) { return std::string(info.param.name); });

// Rows that Ceres evaluates, one of its own cost functions each.
TEST(ArrayProblem, TakesAnyCostFunctions) {
  Arrays arrays(9);
  Arrays expected = arrays;
  std::vector<std::unique_ptr<ceres::CostFunction>> owner;
  std::vector<ceres::CostFunction*> cost_functions;
  for (size_t k = 0; k < arrays.bal.camera_id.size(); ++k) {
    owner.emplace_back(arrays.bal.MakeCost(k, Derivatives::kAutodiff));
    cost_functions.push_back(owner.back().get());
  }
  ArrayProblem problem;
  ArrayProblem::Residuals residuals;
  residuals.num_blocks = static_cast<int64_t>(cost_functions.size());
  residuals.cost_functions = cost_functions.data();
  residuals.blocks = {
      {problem.AddParameters({arrays.bal.cameras.data(), 12, 9}),
       arrays.bal.camera_id.data()},
      {problem.AddParameters({arrays.bal.points.data(), 150, 3}),
       arrays.bal.point_id.data()}};
  problem.AddResiduals(residuals);
  Summary summary;
  Solve(SolverOptions(), On(DEVICE_HOST), &problem, &summary);
  ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
  ASSERT_TRUE(summary.IsSolutionUsable()) << summary.message;
  auto analytic = expected.MakeProblem();
  Summary of_problem;
  Solve(SolverOptions(), On(DEVICE_HOST), analytic.get(), &of_problem);
  // Two derivations of the same derivatives.
  EXPECT_NEAR(
      summary.final_cost, of_problem.final_cost, 1e-6 * of_problem.final_cost);
}

// Counts iterations, and ends the solve in one of them.
class Watch final : public ceres::IterationCallback {
 public:
  Watch(const std::vector<double>* values, int last)
      : values_(values), last_(last) {}
  ceres::CallbackReturnType operator()(
      const ceres::IterationSummary& iteration) final {
    seen_.push_back(*values_);
    return iteration.iteration == last_ ? ceres::SOLVER_ABORT
                                        : ceres::SOLVER_CONTINUE;
  }
  const std::vector<std::vector<double>>& seen() const { return seen_; }

 private:
  const std::vector<double>* values_;
  const int last_;
  std::vector<std::vector<double>> seen_;
};

TEST(ArrayProblem, CallbacksSeeTheStateAndAnAbortLeavesTheStart) {
  for (const DeviceType device : Devices()) {
    for (const bool update : {false, true}) {
      SCOPED_TRACE(update);
      Arrays arrays(9);
      const Arrays start = arrays;
      ArrayProblem problem = arrays.Make();
      ceres::Solver::Options options = SolverOptions();
      options.update_state_every_iteration = update;
      Watch watch(&arrays.bal.points, 2);
      options.callbacks.push_back(&watch);
      Summary summary;
      Solve(options, On(device), &problem, &summary);
      EXPECT_EQ(summary.path, PATH_FULL) << summary.path_reason;
      EXPECT_EQ(summary.termination_type, ceres::USER_FAILURE);
      EXPECT_EQ(arrays.bal.points, start.bal.points);
      EXPECT_EQ(arrays.bal.cameras, start.bal.cameras);
      ASSERT_EQ(watch.seen().size(), 3u);
      EXPECT_EQ(watch.seen()[0], start.bal.points);
      EXPECT_EQ(watch.seen()[1] != start.bal.points, update);
    }
  }
}

TEST(ArrayProblem, NoMemoryIsAFailureWithTheStartKept) {
  if (!HasDevice()) {
    GTEST_SKIP() << "No device whose memory could be limited.";
  }
  Arrays arrays(9);
  const Arrays start = arrays;
  ArrayProblem problem = arrays.Make();
  Options ext_options = On(DEVICE_CUDA);
  ext_options.cuda_memory_limit_bytes = 1000;
  ext_options.fallback = FALLBACK_REFUSE;
  Summary summary;
  Solve(SolverOptions(), ext_options, &problem, &summary);
  EXPECT_EQ(summary.termination_type, ceres::FAILURE);
  EXPECT_NE(summary.message.find("memory"), std::string::npos)
      << summary.message;
  EXPECT_EQ(arrays.bal.points, start.bal.points);
}

// Each fault is refused by a sentence that names it, and nothing is written.

ArrayProblem Add(const Arrays& arrays,
                 const std::function<void(ArrayProblem::Parameters*,
                                          ArrayProblem::Parameters*,
                                          ArrayProblem::Residuals*)>& change) {
  const ArrayProblem good = arrays.Make();
  ArrayProblem::Parameters cameras = good.parameters()[0];
  ArrayProblem::Parameters points = good.parameters()[1];
  ArrayProblem::Residuals residuals = good.residuals()[0];
  change(&cameras, &points, &residuals);
  ArrayProblem problem;
  problem.AddParameters(cameras);
  problem.AddParameters(points);
  problem.AddResiduals(residuals);
  return problem;
}

TEST(ArrayProblem, AnyNumberOfThreadsIsAnswered) {
  Arrays arrays(9);
  ArrayProblem problem = arrays.Make();
  ceres::Solver::Options options = SolverOptions();
  options.num_threads = std::numeric_limits<int>::max();
  Summary summary;
  Solve(options, On(DEVICE_HOST), &problem, &summary);
  EXPECT_TRUE(summary.IsSolutionUsable()) << summary.message;
}

// A ceres::Problem of it would end the process.
TEST(ArrayProblem, RefusesAResidualBlockThatDependsOnABlockTwice) {
  std::vector<double> values(3 * 4, 0.5);
  const std::vector<int32_t> first = {0, 1, 2};
  const std::vector<int32_t> second = {1, 1, 0};
  ceres::AutoDiffCostFunction<Near<4>, 4, 4, 4> difference(new Near<4>{1.0});
  const std::vector<ceres::CostFunction*> cost_functions(3, &difference);
  ArrayProblem problem;
  ArrayProblem::Parameters parameters;
  parameters.values = values.data();
  parameters.num_blocks = 3;
  parameters.size = 4;
  problem.AddParameters(parameters);
  ArrayProblem::Residuals residuals;
  residuals.num_blocks = 3;
  residuals.blocks = {{0, first.data()}, {0, second.data()}};
  residuals.cost_functions = cost_functions.data();
  problem.AddResiduals(residuals);
  Summary summary;
  Solve(SolverOptions(), Options(), &problem, &summary);
  EXPECT_EQ(summary.termination_type, ceres::FAILURE);
  EXPECT_EQ(summary.message,
            "residuals 0, blocks[0] and blocks[1]: residual block 1 has block "
            "1 of parameters 0 twice, expected different ones");
}

TEST(ArrayProblem, RefusesEliminatedBlocksThatShareAResidualBlock) {
  std::vector<double> values(2 * 4, 0.5);
  const std::vector<int32_t> first = {0};
  const std::vector<int32_t> second = {1};
  ceres::AutoDiffCostFunction<Near<4>, 4, 4, 4> difference(new Near<4>{1.0});
  ceres::CostFunction* const cost_functions[] = {&difference};
  ArrayProblem problem;
  ArrayProblem::Parameters parameters;
  parameters.values = values.data();
  parameters.num_blocks = 2;
  parameters.size = 4;
  parameters.is_eliminated = true;
  problem.AddParameters(parameters);
  ArrayProblem::Residuals residuals;
  residuals.num_blocks = 1;
  residuals.blocks = {{0, first.data()}, {0, second.data()}};
  residuals.cost_functions = cost_functions;
  problem.AddResiduals(residuals);
  std::string error;
  EXPECT_FALSE(problem.IsValid(1, &error));
  EXPECT_EQ(error,
            "residuals 0: several blocks are of parameters 0, which has "
            "is_eliminated; expected at most one");
}

TEST(ArrayProblem, RefusesWhatDoesNotFit) {
  Arrays arrays(9);
  arrays.bal.points[3 * 11 + 2] = 4.5;
  const Arrays start = arrays;
  using Parameters = ArrayProblem::Parameters;
  using Residuals = ArrayProblem::Residuals;
  ceres::QuaternionManifold quaternion;
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<double> weights(arrays.bal.camera_id.size(), 1.0);
  std::vector<double> bad_points = arrays.bal.points;
  bad_points[3 * 7 + 2] = infinity;
  std::vector<double> bad_observations = arrays.bal.observations;
  bad_observations[2 * 33] = std::nan("");
  std::vector<int> bad_index = arrays.bal.point_id;
  bad_index[800] = 150;
  bad_index[801] = -1;
  std::vector<int> negative_index = arrays.bal.camera_id;
  negative_index[5] = -3;
  std::vector<ceres::Manifold*> manifolds(150, nullptr);
  manifolds[9] = &quaternion;
  const auto expect =
      [&](const std::string& message,
          const std::function<void(Parameters*, Parameters*, Residuals*)>&
              change) {
        ArrayProblem problem = Add(arrays, change);
        std::string error;
        EXPECT_FALSE(problem.IsValid(2, &error));
        EXPECT_EQ(error, message);
        Summary summary;
        Solve(SolverOptions(), Options(), &problem, &summary);
        EXPECT_EQ(summary.termination_type, ceres::FAILURE);
        EXPECT_EQ(summary.message, message);
        EXPECT_EQ(arrays.bal.points, start.bal.points);
      };
  expect("parameters 0: num_blocks is -1, expected 0 to 2^31 - 1",
         [](Parameters* c, Parameters*, Residuals*) { c->num_blocks = -1; });
  expect("parameters 1: num_blocks is 2147483648, expected 0 to 2^31 - 1",
         [](Parameters*, Parameters* p, Residuals*) {
           p->num_blocks = int64_t{1} << 31;
         });
  expect(
      "the parameters have 3000000108 values together, expected at most "
      "2^31 - 1",
      [](Parameters*, Parameters* p, Residuals*) {
        p->num_blocks = 1000000000;
      });
  // A sum of two such numbers would overflow.
  expect(
      "the parameters have 4611686011984936962 values together, expected at "
      "most 2^31 - 1",
      [](Parameters* c, Parameters* p, Residuals*) {
        c->num_blocks = p->num_blocks = (int64_t{1} << 31) - 2;
        c->size = p->size = (int64_t{1} << 31) - 1;
      });
  expect("parameters 0: size is 0, expected at least 1",
         [](Parameters* c, Parameters*, Residuals*) { c->size = 0; });
  expect("parameters 1: values is null",
         [](Parameters*, Parameters* p, Residuals*) { p->values = nullptr; });
  expect("parameters 1: its manifold has AmbientSize 4, expected the size 3",
         [&](Parameters*, Parameters* p, Residuals*) {
           p->manifold = &quaternion;
         });
  std::vector<double> lower(3 * 150, -infinity);
  std::vector<double> upper(3 * 150, infinity);
  std::vector<uint8_t> is_constant(150, 0);
  ceres::SubsetManifold plane(3, {2});
  const auto with_bounds = [&](double from, double to) {
    lower[3 * 11 + 2] = from;
    upper[3 * 11 + 2] = to;
    return [&](Parameters*, Parameters* p, Residuals*) {
      p->lower_bounds = lower.data();
      p->upper_bounds = upper.data();
      p->is_constant = is_constant.data();
    };
  };
  const std::string bounded =
      "parameters 1: value 2 of block 11, 4.5, has the bounds ";
  expect(bounded + "nan and inf, expected numbers",
         with_bounds(std::nan(""), infinity));
  expect(bounded + "-inf and nan, expected numbers",
         with_bounds(-infinity, std::nan("")));
  expect(bounded + "4.5 and 4.5, expected the first to be smaller",
         with_bounds(4.5, 4.5));
  expect(bounded + "5 and 4, expected the first to be smaller",
         with_bounds(5.0, 4.0));
  is_constant[11] = 1;
  expect(bounded +
             "5 and 6, expected a value within them, because the block is "
             "constant",
         with_bounds(5.0, 6.0));
  is_constant[11] = 0;
  const double of_all[] = {0.0, 0.0, 0.0};
  expect("parameters 1: values and parameters 1: lower_bound overlap in memory",
         [&](Parameters*, Parameters* p, Residuals*) {
           p->lower_bound = p->values;
         });
  expect("parameters 1: value 0 of block 0, " + Sentence(arrays.bal.points[0]) +
             ", has the bounds 0 and 0, expected the first to be smaller",
         [&](Parameters*, Parameters* p, Residuals*) {
           p->lower_bound = p->upper_bound = of_all;
         });
  expect(bounded +
             "-inf and 4, expected a value within them, because its manifold "
             "keeps it constant",
         [&](Parameters* c, Parameters* p, Residuals* r) {
           with_bounds(-infinity, 4.0)(c, p, r);
           p->manifold = &plane;
         });
  expect(
      "parameters 1, block 9: its manifold has AmbientSize 4, expected the "
      "size 3",
      [&](Parameters*, Parameters* p, Residuals*) {
        p->manifolds = manifolds.data();
      });
  expect("parameters 0 and 1 have is_eliminated, expected at most one array",
         [](Parameters* c, Parameters* p, Residuals*) {
           c->is_eliminated = p->is_eliminated = true;
         });
  expect("residuals 0: num_blocks is -5, expected 0 to 2^31 - 1",
         [](Parameters*, Parameters*, Residuals* r) { r->num_blocks = -5; });
  expect("there are 4294967294 residuals, expected at most 2^31 - 1",
         [](Parameters*, Parameters*, Residuals* r) {
           r->num_blocks = (int64_t{1} << 31) - 1;
         });
  expect(
      "residuals 0: constants is null",
      [](Parameters*, Parameters*, Residuals* r) { r->constants = nullptr; });
  expect(
      "residuals 0: constants_bytes is 4611686018427387904, expected 1 to "
      "2^31 - 1",
      [](Parameters*, Parameters*, Residuals* r) {
        r->constants_bytes = int64_t{1} << 62;
      });
  expect(
      "residuals 0: expected either constants of a type of cost function "
      "or cost_functions",
      [](Parameters*, Parameters*, Residuals* r) {
        r->make_cost_function = nullptr;
      });
  expect(
      "residuals 0: blocks has 1 index arrays, expected 2, one for each "
      "parameter block of the cost function",
      [](Parameters*, Parameters*, Residuals* r) { r->blocks.pop_back(); });
  expect(
      "residuals 0, blocks[1]: parameters is 2, expected 0 <= parameters < "
      "2",
      [](Parameters*, Parameters*, Residuals* r) {
        r->blocks[1].parameters = 2;
      });
  // Also without residual blocks.
  expect(
      "residuals 0, blocks[0]: parameters is -1, expected 0 <= parameters < "
      "2",
      [](Parameters*, Parameters*, Residuals* r) {
        r->num_blocks = 0;
        r->blocks[0].parameters = -1;
      });
  expect(
      "residuals 0, blocks[1]: parameters 0 has blocks of 9 values, "
      "expected 3 as the cost function has",
      [](Parameters*, Parameters*, Residuals* r) {
        r->blocks[1].parameters = 0;
      });
  expect(
      "residuals 0, blocks[0]: block is null and parameters 0 has 12 "
      "blocks, expected 900, one for each residual block",
      [](Parameters*, Parameters*, Residuals* r) {
        r->blocks[0].block = nullptr;
      });
  expect("parameters 0: values and parameters 1: values overlap in memory",
         [](Parameters* c, Parameters* p, Residuals*) {
           p->values = c->values + 9 * 11;
         });
  expect("parameters 1: values and residuals 0: constants overlap in memory",
         [](Parameters*, Parameters* p, Residuals* r) {
           r->constants = p->values + 100;
           r->num_blocks = 10;
         });
  expect("parameters 1: value 2 of block 7 is inf, expected a finite number",
         [&](Parameters*, Parameters* p, Residuals*) {
           p->values = bad_points.data();
         });
  expect(
      "residuals 0: value 0 of observation 33 is nan, expected a finite "
      "number",
      [&](Parameters*, Parameters*, Residuals* r) {
        r->constants = bad_observations.data();
      });
  expect(
      "residuals 0, blocks[1]: block[800] is 150, expected 0 <= block < "
      "150",
      [&](Parameters*, Parameters*, Residuals* r) {
        r->blocks[1].block = bad_index.data();
      });
  expect("residuals 0, blocks[0]: block[5] is -3, expected 0 <= block < 12",
         [&](Parameters*, Parameters*, Residuals* r) {
           r->blocks[0].block = negative_index.data();
         });
  expect(
      "residuals 0: weights[4] is -1, expected a finite number that is not "
      "negative",
      [&](Parameters*, Parameters*, Residuals* r) {
        weights[4] = -1.0;
        r->weights = weights.data();
      });
}

TEST(ArrayProblem, NothingThatVariesIsSolvedByAProblem) {
  Arrays arrays(9);
  std::vector<uint8_t> all(arrays.bal.num_points(), 1);
  arrays.of_cameras.is_constant = all.data();
  arrays.of_points.is_constant = all.data();
  ArrayProblem problem = arrays.Make();
  Summary summary;
  Solve(SolverOptions(), Options(), &problem, &summary);
  EXPECT_EQ(summary.termination_type, ceres::CONVERGENCE);
  EXPECT_GT(summary.final_cost, 0.0);

  ArrayProblem empty;
  Solve(SolverOptions(), Options(), &empty, &summary);
  EXPECT_EQ(summary.termination_type, ceres::CONVERGENCE) << summary.message;
}

}  // namespace
}  // namespace ceres_ext
