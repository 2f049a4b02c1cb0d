// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Global positioning: rows of a direction, a centre, a point and a scale that
// no other row has, on the host and on a device, real or emulated, against
// stock Ceres, which eliminates the scales alone. Exact steps of both are the
// same, so the costs are, step by step.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "Eigen/Core"
#include "ceres/autodiff_cost_function.h"
#include "ceres/ceres.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/direction_cost_functions.h"
#include "ceres_ext/photogrammetry.h"
#include "ceres_ext/solve.h"
#include "gtest/gtest.h"
#include "tests/common/has_device.h"

namespace ceres_ext {
namespace {

// An emulated device takes longer.
#ifdef CERES_EXT_EMULATED
constexpr int kNumPoints = 60;
constexpr int kManyRows = 100;
#else
constexpr int kNumPoints = 400;
constexpr int kManyRows = 3000;
#endif

using AutoDiffCost =
    CostFunctionFor<ceres::AutoDiffCostFunction, DirectionError>;

// Cameras along a path that see the points near them; start values anywhere.
struct Positions {
  explicit Positions(unsigned seed, int num_points = kNumPoints) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> uniform(0.0, 1.0);
    const int num_cameras = std::max(6, num_points / 20);
    std::vector<Eigen::Vector3d> at;
    for (int i = 0; i < num_cameras; ++i) {
      at.emplace_back(0.5 * i, 3.0 * std::sin(0.3 * i), 0.5 * normal(random));
      for (int k = 0; k < 3; ++k) {
        centers.push_back(10.0 * (uniform(random) - 0.5));
      }
    }
    for (int p = 0; p < num_points; ++p) {
      const double place = num_cameras * uniform(random);
      const Eigen::Vector3d X(0.5 * place + normal(random),
                              8.0 + 3.0 * normal(random),
                              3.0 * normal(random));
      for (int k = 0; k < 3; ++k) {
        points.push_back(10.0 * (uniform(random) - 0.5));
      }
      // One point has one row, another one has many.
      const int num_rows = p == 0 ? 1 : p == 1 ? kManyRows : 5;
      for (int k = 0; k < num_rows; ++k) {
        const int c =
            std::clamp(static_cast<int>(place + 6.0 * (uniform(random) - 0.5)),
                       0,
                       num_cameras - 1);
        const Eigen::Vector3d noise(
            normal(random), normal(random), normal(random));
        const Eigen::Vector3d d =
            ((X - at[c]).normalized() + 0.01 * noise).normalized();
        errors.push_back({{d[0], d[1], d[2]}});
        camera.push_back(c);
        point.push_back(p);
      }
    }
    scales.assign(errors.size(), 1.0);
  }

  std::vector<double> centers;
  std::vector<double> points;
  std::vector<double> scales;
  std::vector<DirectionError> errors;
  std::vector<int32_t> camera;
  std::vector<int32_t> point;
};

struct Wanted {
  bool batched = false;  // DirectionCost, else AutoDiffCostFunction
  bool ordered = true;   // scales, points, centers
  bool bounds = false;
  bool mixed = false;  // some scales are constant, points have priors
};

std::unique_ptr<ceres::Problem> MakeProblem(const Wanted& wanted,
                                            Positions* of,
                                            ceres::Solver::Options* options) {
  auto problem = std::make_unique<ceres::Problem>();
  auto* const loss = new ceres::HuberLoss(0.1);
  for (size_t i = 0; i < of->errors.size(); ++i) {
    ceres::CostFunction* cost = nullptr;
    if (wanted.batched) {
      cost = new DirectionCost(of->errors[i]);
    } else {
      cost = new AutoDiffCost(new DirectionError(of->errors[i]));
    }
    problem->AddResidualBlock(cost,
                              loss,
                              &of->centers[3 * of->camera[i]],
                              &of->points[3 * of->point[i]],
                              &of->scales[i]);
    if (wanted.bounds) {
      problem->SetParameterLowerBound(&of->scales[i], 0, 1e-5);
    }
    if (wanted.mixed && i % 5 == 0) {
      of->scales[i] = 0.1;
      problem->SetParameterBlockConstant(&of->scales[i]);
    }
  }
  for (size_t p = 0; wanted.mixed && p < of->points.size() / 3; p += 3) {
    problem->AddResidualBlock(
        new CostFunctionFor<ceres::AutoDiffCostFunction, PointPrior>(
            new PointPrior{{1.0, 8.0, 0.0}}),
        nullptr,
        &of->points[3 * p]);
  }
  options->linear_solver_type = ceres::SPARSE_SCHUR;
  options->max_num_iterations = 12;
  options->logging_type = ceres::SILENT;
  if (wanted.ordered) {
    options->linear_solver_ordering =
        std::make_shared<ceres::ParameterBlockOrdering>();
    std::vector<double*> blocks;
    problem->GetParameterBlocks(&blocks);
    const auto is_in = [](const double* block, const std::vector<double>& all) {
      return block >= all.data() && block < all.data() + all.size();
    };
    for (double* block : blocks) {
      options->linear_solver_ordering->AddElementToGroup(
          block,
          is_in(block, of->scales)   ? 0
          : is_in(block, of->points) ? 1
                                     : 2);
    }
  }
  return problem;
}

class PositionsTest : public ::testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override {
    if (GetParam() == DEVICE_CUDA && !HasDevice()) {
      GTEST_SKIP() << "skipped: no CUDA device";
    }
    ext_options_.device = GetParam();
    // A device may have no library for sparse matrices.
    ext_options_.schur_factorization = SCHUR_FACTORIZATION_DENSE;
  }

  static void ExpectSameCosts(const ceres::Solver::Summary& ours,
                              const ceres::Solver::Summary& stock) {
    ASSERT_EQ(ours.iterations.size(), stock.iterations.size());
    for (size_t i = 0; i < ours.iterations.size(); ++i) {
      EXPECT_EQ(ours.iterations[i].step_is_successful,
                stock.iterations[i].step_is_successful)
          << i;
      // The condition of the first steps is above 1e6.
      EXPECT_NEAR(ours.iterations[i].cost,
                  stock.iterations[i].cost,
                  1e-7 * stock.iterations[i].cost)
          << i;
    }
  }

  Options ext_options_;
};

INSTANTIATE_TEST_SUITE_P(Devices,
                         PositionsTest,
                         ::testing::ValuesIn(kDevices),
                         [](const auto& info) {
                           return std::string(DeviceTypeToString(info.param));
                         });

TEST_P(PositionsTest, HaveTheCostsOfStock) {
  for (const Wanted& wanted : {Wanted{false, true, false, false},
                               Wanted{true, true, false, false},
                               Wanted{true, false, false, false},
                               Wanted{false, true, false, true},
                               Wanted{true, false, false, true}}) {
    SCOPED_TRACE((wanted.batched ? "batched " : "") +
                 std::string(wanted.ordered ? "ordered " : "") +
                 (wanted.mixed ? "mixed" : ""));
    Positions of_stock(3);
    ceres::Solver::Options options;
    const auto stock = MakeProblem(wanted, &of_stock, &options);
    ceres::Solver::Summary expected;
    ceres::Solve(options, stock.get(), &expected);

    Positions of_ours(3);
    const auto ours = MakeProblem(wanted, &of_ours, &options);
    Summary summary;
    Solve(options, ext_options_, ours.get(), &summary);
    ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
    ExpectSameCosts(summary, expected);
    // The points are eliminated too: S has the columns of the centers.
    EXPECT_NE(summary.method.find(
                  "n = " + std::to_string(of_ours.centers.size()) + ","),
              std::string::npos)
        << summary.method;
  }
}

// Values in bounds, as stock has them. The search along the projected step is
// Ceres's; it makes more of the rounding of two steps than they themselves.
TEST_P(PositionsTest, KeepBounds) {
  Positions of_stock(5);
  ceres::Solver::Options options;
  Wanted wanted;
  wanted.bounds = true;
  const auto stock = MakeProblem(wanted, &of_stock, &options);
  options.max_num_iterations = 8;
  ceres::Solver::Summary expected;
  ceres::Solve(options, stock.get(), &expected);
  Positions of_ours(5);
  const auto ours = MakeProblem(wanted, &of_ours, &options);
  options.max_num_iterations = 8;
  Summary summary;
  Solve(options, ext_options_, ours.get(), &summary);
  ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
  ExpectSameCosts(summary, expected);
  EXPECT_GE(*std::min_element(of_ours.scales.begin(), of_ours.scales.end()),
            1e-5);
}

// PCG of S of the centers alone, its bits for any number of threads, and the
// same problem from arrays.
TEST_P(PositionsTest, PcgHasTheSameBitsForAnyNumberOfThreads) {
  std::vector<double> first;
  for (const int num_threads : {1, 2, 3}) {
    Positions of(7);
    ceres::Solver::Options options;
    Wanted wanted;
    wanted.batched = true;
    wanted.ordered = num_threads != 2;
    const auto problem = MakeProblem(wanted, &of, &options);
    options.linear_solver_type = ceres::ITERATIVE_SCHUR;
    options.preconditioner_type = ceres::SCHUR_JACOBI;
    options.num_threads = num_threads;
    Summary summary;
    Solve(options, ext_options_, problem.get(), &summary);
    ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
    EXPECT_LT(summary.final_cost, 0.5 * summary.initial_cost);
    if (first.empty()) {
      first = of.scales;
    } else {
      EXPECT_EQ(of.scales, first) << num_threads;
    }
  }
  Positions of(7);
  ArrayProblem arrays;
  const auto add = [&](std::vector<double>* values, int size) {
    ArrayProblem::Parameters parameters;
    parameters.values = values->data();
    parameters.num_blocks = static_cast<int64_t>(values->size()) / size;
    parameters.size = size;
    return arrays.AddParameters(parameters);
  };
  const int centers = add(&of.centers, 3);
  const int points = add(&of.points, 3);
  const int scales = add(&of.scales, 1);
  ceres::HuberLoss loss(0.1);
  arrays.AddResiduals<DirectionCost>(static_cast<int64_t>(of.errors.size()),
                                     of.errors.data(),
                                     {{centers, of.camera.data()},
                                      {points, of.point.data()},
                                      {scales, nullptr}},
                                     &loss);
  ceres::Solver::Options options;
  options.linear_solver_type = ceres::DENSE_SCHUR;
  options.max_num_iterations = 12;
  options.logging_type = ceres::SILENT;
  Summary summary;
  Solve(options, ext_options_, &arrays, &summary);
  ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
  EXPECT_NE(
      summary.method.find("n = " + std::to_string(of.centers.size()) + ","),
      std::string::npos)
      << summary.method;

  Positions of_stock(7);
  const auto stock = MakeProblem({}, &of_stock, &options);
  ceres::Solver::Summary expected;
  ceres::Solve(options, stock.get(), &expected);
  ExpectSameCosts(summary, expected);
}

}  // namespace
}  // namespace ceres_ext
