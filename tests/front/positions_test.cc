// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
//
// Global positioning: rows of a direction, a centre, a point and a scale that
// no other row has, on the host and on a device, real or emulated, against
// stock Ceres, which eliminates the scales alone. Exact steps of both are the
// same, so the costs are, step by step.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "Eigen/Core"
#include "ceres/autodiff_cost_function.h"
#include "ceres/ceres.h"
#include "ceres_ext/array_problem.h"
#include "ceres_ext/covariance.h"
#include "ceres_ext/direction_cost_functions.h"
#include "ceres_ext/front/solve_parts.h"
#include "ceres_ext/photogrammetry.h"
#include "ceres_ext/solve.h"
#include "cuda_kernels/machine/communicator.h"
#include "cuda_kernels/machine/host_context.h"
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

  // Arrays of this object and *loss, which outlive them. least_scale: a lower
  // bound, or null.
  void AddTo(ArrayProblem* arrays,
             ceres::LossFunction* loss,
             bool points_are_eliminated = false,
             const double* least_scale = nullptr) {
    const auto of = [](std::vector<double>* values, int size) {
      return ArrayProblem::Parameters{
          values->data(), static_cast<int64_t>(values->size()) / size, size};
    };
    ArrayProblem::Parameters of_points = of(&points, 3);
    of_points.is_eliminated = points_are_eliminated;
    ArrayProblem::Parameters of_scales = of(&scales, 1);
    of_scales.lower_bound = least_scale;
    const int center_array = arrays->AddParameters(of(&centers, 3));
    const int point_array = arrays->AddParameters(of_points);
    const int scale_array = arrays->AddParameters(of_scales);
    arrays->AddResiduals<DirectionCost>(static_cast<int64_t>(errors.size()),
                                        errors.data(),
                                        {{center_array, camera.data()},
                                         {point_array, point.data()},
                                         {scale_array, nullptr}},
                                        loss);
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
    // A host that takes over from a device would hide its failure.
    ext_options_.fallback = FALLBACK_REFUSE;
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

  // Stock's solves of a problem from starts that differ by rounding. make()
  // returns a Positions or RandomPositions; solve solves one.
  template <typename Make, typename Solve>
  static std::vector<ceres::Solver::Summary> SolveNearby(const Make& make,
                                                         const Solve& solve) {
    std::vector<ceres::Solver::Summary> summaries;
    std::mt19937 random(1);
    std::normal_distribution<double> normal;
    for (const double rounding :
         {0.0, 1e-15, 1e-15, 6e-15, 6e-15, 1e-14, 3e-14, 3e-14}) {
      auto of = make();
      for (auto* values : {&of.centers, &of.points, &of.scales}) {
        for (double& value : *values) {
          value *= 1.0 + rounding * normal(random);
        }
      }
      solve(&of, &summaries.emplace_back());
    }
    return summaries;
  }
  // The search along the projected step may make all of the rounding of a step:
  // costs are compared while those of stock's solves are the same. Returns how
  // many are.
  static size_t ExpectSameCostsNearby(
      const ceres::Solver::Summary& ours,
      const std::vector<ceres::Solver::Summary>& stock) {
    const auto& expected = stock[0].iterations;
    for (size_t i = 0; i < expected.size(); ++i) {
      const double cost = expected[i].cost;
      if (std::any_of(stock.begin(), stock.end(), [&](const auto& other) {
            return i >= other.iterations.size() ||
                   std::abs(other.iterations[i].cost - cost) > 1e-10 * cost;
          })) {
        return i;
      }
      if (i >= ours.iterations.size()) {
        ADD_FAILURE() << "There are fewer iterations.";
        return i;
      }
      EXPECT_NEAR(ours.iterations[i].cost, cost, 1e-7 * cost) << i;
      EXPECT_EQ(ours.iterations[i].step_is_successful,
                expected[i].step_is_successful)
          << i;
    }
    return expected.size();
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
  ceres::Solver::Options options;
  Wanted wanted;
  wanted.bounds = true;
  const auto expected =
      SolveNearby([] { return Positions(5); },
                  [&](Positions* of, ceres::Solver::Summary* summary) {
                    const auto stock = MakeProblem(wanted, of, &options);
                    options.max_num_iterations = 8;
                    ceres::Solve(options, stock.get(), summary);
                  });
  Positions of_ours(5);
  const auto ours = MakeProblem(wanted, &of_ours, &options);
  options.max_num_iterations = 8;
  Summary summary;
  Solve(options, ext_options_, ours.get(), &summary);
  ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
  EXPECT_GE(ExpectSameCostsNearby(summary, expected), 4u);
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
  ceres::HuberLoss loss(0.1);
  ArrayProblem arrays;
  of.AddTo(&arrays, &loss);
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

// The blocks in another order.
struct TurnedDirection {
  template <typename T>
  bool operator()(const T* scale,
                  const T* point,
                  const T* center,
                  T* residuals) const {
    return error(center, point, scale, residuals);
  }
  DirectionError error;
};
// A centre of two values.
struct PlanarDirection {
  template <typename T>
  bool operator()(const T* center,
                  const T* point,
                  const T* scale,
                  T* residuals) const {
    const T at[3] = {center[0], center[1], T(0.25)};
    return error(at, point, scale, residuals);
  }
  DirectionError error;
};

// Few rows of any structure: centres that are constant, of two values or on a
// plane, points on a plane, scales that are constant, pairs of centre and point
// that repeat, centres of one row, with and without a loss, bounds and an
// order.
struct RandomPositions {
  explicit RandomPositions(unsigned seed) : random(seed) {
    const int num_cameras = 2 + Below(7);
    const int num_points = 3 + Below(30);
    is_planar = Below(4) == 0;
    const int size = is_planar ? 2 : 3;
    std::vector<Eigen::Vector3d> at;
    for (int c = 0; c < num_cameras; ++c) {
      at.emplace_back(c, std::sin(c), is_planar ? 0.25 : 0.3 * c);
      for (int k = 0; k < size; ++k) {
        centers.push_back(at.back()[k] + Uniform());
      }
    }
    for (int p = 0; p < num_points; ++p) {
      const Eigen::Vector3d X(
          num_cameras * Uniform(), 6.0 + 4.0 * Uniform(), 3.0 * Uniform());
      for (int k = 0; k < 3; ++k) {
        points.push_back(X[k] + Uniform());
      }
      for (int k = 1 + Below(7); k > 0; --k) {
        camera.push_back(Below(num_cameras));
        point.push_back(p);
        const Eigen::Vector3d d =
            (X - at[camera.back()] +
             0.05 * Eigen::Vector3d(Uniform(), Uniform(), Uniform()))
                .normalized();
        errors.push_back({{d[0], d[1], d[2]}});
      }
    }
    scales.assign(errors.size(), 0.2);
    kind = Below(3);
    held = Below(4);
    has_loss = Below(2) == 0;
    has_bounds = Below(3) == 0;
    is_ordered = Below(2) == 0;
    constant_scales = Below(3) == 0 ? 2 + Below(5) : 0;
    constant_centers = Below(2) == 0 ? 1 + Below(2) : 0;
  }

  int Below(int n) {
    return std::uniform_int_distribution<int>(0, n - 1)(random);
  }
  double Uniform() {
    return std::uniform_real_distribution<double>(0.0, 1.0)(random);
  }
  ceres::CostFunction* MakeCost(size_t i) const {
    if (is_planar) {
      return new ceres::AutoDiffCostFunction<PlanarDirection, 3, 2, 3, 1>(
          new PlanarDirection{errors[i]});
    }
    if (kind == 0) {
      return new ceres::AutoDiffCostFunction<TurnedDirection, 3, 1, 3, 3>(
          new TurnedDirection{errors[i]});
    }
    // Rows of one of two types are evaluated one by one on the host.
    if (kind == 1 && i % 2 == 0) {
      return new AutoDiffCost(new DirectionError(errors[i]));
    }
    return new DirectionCost(errors[i]);
  }
  std::unique_ptr<ceres::Problem> Make(ceres::Solver::Options* options) {
    auto problem = std::make_unique<ceres::Problem>();
    ceres::LossFunction* const loss =
        has_loss ? new ceres::HuberLoss(0.1) : nullptr;
    const int size = is_planar ? 2 : 3;
    for (size_t i = 0; i < errors.size(); ++i) {
      double* const center = &centers[size * camera[i]];
      double* const X = &points[3 * point[i]];
      std::vector<double*> blocks = {center, X, &scales[i]};
      if (!is_planar && kind == 0) {
        std::swap(blocks[0], blocks[2]);
      }
      problem->AddResidualBlock(MakeCost(i), loss, blocks);
      if (has_bounds) {
        problem->SetParameterLowerBound(&scales[i], 0, 1e-3);
      }
      if (constant_scales > 0 && i % constant_scales == 0) {
        problem->SetParameterBlockConstant(&scales[i]);
      }
      if (camera[i] < constant_centers) {
        problem->SetParameterBlockConstant(center);
      } else if (held == 1 && camera[i] % 2 == 0) {
        problem->SetManifold(center, new ceres::SubsetManifold(size, {1}));
      }
      if (held == 2 && point[i] % 3 == 0) {
        problem->SetManifold(X, new ceres::SubsetManifold(3, {2}));
      }
    }
    options->linear_solver_type = ceres::DENSE_SCHUR;
    options->max_num_iterations = 4;
    options->num_threads = 2;
    options->logging_type = ceres::SILENT;
    options->linear_solver_ordering = nullptr;
    if (is_ordered) {
      options->linear_solver_ordering =
          std::make_shared<ceres::ParameterBlockOrdering>();
      std::vector<double*> blocks;
      problem->GetParameterBlocks(&blocks);
      for (double* block : blocks) {
        const bool is_scale =
            block >= scales.data() && block < scales.data() + scales.size();
        options->linear_solver_ordering->AddElementToGroup(block,
                                                           is_scale ? 0 : 1);
      }
    }
    return problem;
  }

  std::mt19937 random;
  std::vector<double> centers;
  std::vector<double> points;
  std::vector<double> scales;
  std::vector<DirectionError> errors;
  std::vector<int32_t> camera;
  std::vector<int32_t> point;
  bool is_planar = false;
  int kind = 0;
  int held = 0;
  bool has_loss = false;
  bool has_bounds = false;
  bool is_ordered = false;
  int constant_scales = 0;  // every so many; 0: none
  int constant_centers = 0;
};

TEST_P(PositionsTest, OfAnyStructureHaveTheCostsOfStock) {
#ifdef CERES_EXT_EMULATED
  constexpr unsigned kNumCases = 60;
#else
  constexpr unsigned kNumCases = 200;
#endif
  size_t num_iterations = 0;
  size_t num_compared = 0;
  for (unsigned seed = 1; seed <= kNumCases; ++seed) {
    SCOPED_TRACE(seed);
    ceres::Solver::Options options;
    const auto expected =
        SolveNearby([&] { return RandomPositions(seed); },
                    [&](RandomPositions* of, ceres::Solver::Summary* summary) {
                      const auto stock = of->Make(&options);
                      ceres::Solve(options, stock.get(), summary);
                    });
    RandomPositions of_ours(seed);
    const auto ours = of_ours.Make(&options);
    Summary summary;
    Solve(options, ext_options_, ours.get(), &summary);
    ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
    num_iterations += expected[0].iterations.size();
    num_compared += ExpectSameCostsNearby(summary, expected);
    if (testing::Test::HasFailure()) {
      return;
    }
  }
  EXPECT_GT(num_compared, num_iterations * 9 / 10);
}

// The memory of rows from arrays, of which ceres_ext/solver/nested_batch.h has
// the bill: five rows a point, and PCG. A search along a projected step that
// interpolates by gradients would take another J.
TEST_P(PositionsTest, TakeFewBytesARow) {
  constexpr double kLeastScale = 1e-5;
  for (const bool has_bounds : {false, true}) {
    int64_t bytes[2];
    int64_t num_rows[2];
    for (const int i : {0, 1}) {
      Positions of(7, 2000 + 4000 * i);
      num_rows[i] = static_cast<int64_t>(of.errors.size());
      ceres::HuberLoss loss(0.1);
      ArrayProblem arrays;
      of.AddTo(&arrays, &loss, false, has_bounds ? &kLeastScale : nullptr);
      ceres::Solver::Options options;
      options.linear_solver_type = ceres::ITERATIVE_SCHUR;
      options.preconditioner_type = ceres::SCHUR_JACOBI;
      options.line_search_interpolation_type = ceres::BISECTION;
      options.max_num_iterations = 1;
      options.logging_type = ceres::SILENT;
      Summary summary;
      Solve(options, ext_options_, &arrays, &summary);
      ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
      bytes[i] = summary.memory_bytes;
    }
    const double of_row = static_cast<double>(bytes[1] - bytes[0]) /
                          static_cast<double>(num_rows[1] - num_rows[0]);
    RecordProperty(has_bounds ? "bytes_of_bounded_row" : "bytes_of_row",
                   std::to_string(of_row));
    const double of_host = GetParam() == DEVICE_HOST ? 15.0 : 0.0;
    EXPECT_LT(of_row, (has_bounds ? 403.0 : 390.0) + of_host);
  }
}

// With constant scales in some rows and constant centres, exact steps and PCG
// to the end agree.
TEST_P(PositionsTest, PcgToTheEndTakesExactSteps) {
  for (const unsigned seed : {3u, 8u, 21u}) {
    SCOPED_TRACE(seed);
    double cost[2];
    for (const bool exact : {true, false}) {
      RandomPositions of(seed);
      ceres::Solver::Options options;
      const auto problem = of.Make(&options);
      options.linear_solver_type =
          exact ? ceres::DENSE_SCHUR : ceres::ITERATIVE_SCHUR;
      options.preconditioner_type = ceres::SCHUR_JACOBI;
      options.eta = 1e-12;
      Summary summary;
      Solve(options, ext_options_, problem.get(), &summary);
      ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
      cost[exact ? 1 : 0] = summary.final_cost;
    }
    EXPECT_NEAR(cost[0], cost[1], 1e-6 * cost[1]);
  }
}

// A covariance takes scales as blocks like others. Four cameras see all points;
// without two constant ones all could be moved and scaled.
TEST_P(PositionsTest, HaveTheCovariancesOfStock) {
  constexpr int kCameras = 4;
  constexpr int kPoints = 6;
  std::vector<double> centers = {0, 0, 0, 2, 0, 1, 4, 1, 0, 6, 0, 0.5};
  std::vector<double> points;
  std::vector<double> scales(size_t{kCameras} * kPoints);
  ceres::Problem problem;
  for (int p = 0; p < kPoints; ++p) {
    points.insert(points.end(), {0.5 + p, 5.0 + 0.7 * (p % 3), 0.3 * p});
  }
  for (int p = 0; p < kPoints; ++p) {
    for (int c = 0; c < kCameras; ++c) {
      const Eigen::Map<const Eigen::Vector3d> X(&points[3 * p]);
      const Eigen::Map<const Eigen::Vector3d> at(&centers[3 * c]);
      const Eigen::Vector3d d = (X - at).normalized();
      double* const scale = &scales[kCameras * p + c];
      *scale = 1.0 / (X - at).norm();
      problem.AddResidualBlock(new DirectionCost({d[0], d[1], d[2]}),
                               nullptr,
                               &centers[3 * c],
                               &points[3 * p],
                               scale);
    }
  }
  problem.SetParameterBlockConstant(&centers[0]);
  problem.SetParameterBlockConstant(&centers[3]);
  const std::vector<std::pair<const double*, const double*>> pairs = {
      {&scales[0], &scales[0]},
      {&scales[0], &centers[6]},
      {&centers[6], &centers[9]},
      {&points[3], &scales[7]}};
  ceres::Covariance::Options stock_options;
  stock_options.algorithm_type = ceres::DENSE_SVD;
  ceres::Covariance stock(stock_options);
  ASSERT_TRUE(stock.Compute(pairs, &problem));
  CovarianceOptions our_options;
  our_options.ext = ext_options_;
  Covariance ours(our_options);
  ASSERT_TRUE(ours.Compute(pairs, &problem)) << ours.error();
  for (const auto& [a, b] : pairs) {
    double expected[9];
    double found[9];
    const int n = problem.ParameterBlockSize(a) * problem.ParameterBlockSize(b);
    ASSERT_TRUE(stock.GetCovarianceBlock(a, b, expected));
    ASSERT_TRUE(ours.GetCovarianceBlock(a, b, found));
    double largest = 0.0;
    for (int i = 0; i < n; ++i) {
      largest = std::max(largest, std::abs(expected[i]));
    }
    // The condition of J'J is below 1e6.
    for (int i = 0; i < n; ++i) {
      EXPECT_NEAR(found[i], expected[i], 1e-8 * largest) << i;
    }
  }
}

// A problem that is dealt out to several devices, as Options::cuda_devices has
// it, by points or, where nothing is said, by scales: the costs of one device,
// with and without bounds. Rejected steps and searches along a projected step
// are among them. PCG ends where the model's cost changes by 1e-14, so steps
// differ by the root of that. A small radius keeps the condition of S low; with
// the usual one PCG leaves 1e-6 of a step in directions that hardly change the
// model, also in one part. Eight steps make up to a hundred times more of it.
TEST_P(PositionsTest, PartsHaveTheCostsOfOne) {
#ifdef CERES_EXT_EMULATED
  GTEST_SKIP() << "An emulated device runs the kernels of one thread.";
#endif
  constexpr double kLeastScale = 0.05;
  // Each rank has a device of its own.
  const size_t most_parts =
      GetParam() == DEVICE_HOST ? 3 : static_cast<size_t>(NumDevices());
  if (most_parts < 2) {
    GTEST_SKIP() << "skipped: no CUDA device beside another";
  }
  kernels::HostContext context(2);
  ceres::HuberLoss loss(0.1);
  ceres::Solver::Options options;
  options.linear_solver_type = ceres::ITERATIVE_SCHUR;
  options.preconditioner_type = ceres::SCHUR_JACOBI;
  options.max_linear_solver_iterations = 5000;
  options.eta = 1e-14;
  options.initial_trust_region_radius = 1.0;
  options.max_num_iterations = 8;
  options.logging_type = ceres::SILENT;
  for (const bool by_points : {true, false}) {
    for (const bool has_bounds : {true, false}) {
      const double* const least = has_bounds ? &kLeastScale : nullptr;
      SCOPED_TRACE((by_points ? "by points" : "by scales") +
                   std::string(has_bounds ? ", bounds" : ""));
      Positions alone(17, 40);
      ArrayProblem arrays;
      alone.AddTo(&arrays, &loss, by_points, least);
      Summary expected;
      Solve(options, ext_options_, &arrays, &expected);
      ASSERT_EQ(expected.path, PATH_FULL) << expected.path_reason;
      for (size_t num_parts = 2; num_parts <= std::min<size_t>(most_parts, 3);
           ++num_parts) {
        std::vector<Options> of_ranks(num_parts, ext_options_);
        for (size_t i = 0; i < num_parts; ++i) {
          of_ranks[i].cuda_device = static_cast<int>(i);
        }
        Positions dealt(17, 40);
        ArrayProblem problem;
        dealt.AddTo(&problem, &loss, by_points, least);
        Summary summary;
        std::string reason;
        ASSERT_TRUE(SolveParts(
            options,
            of_ranks,
            problem,
            &context,
            [](const ceres::Solver::Options& of_rank,
               const Options& ext_options,
               ArrayProblem* part,
               Summary* of_part) {
              Solve(of_rank, ext_options, part, of_part);
            },
            &summary,
            &reason))
            << reason;
        ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
        ASSERT_EQ(summary.iterations.size(), expected.iterations.size());
        for (size_t i = 0; i < summary.iterations.size(); ++i) {
          EXPECT_EQ(summary.iterations[i].step_is_successful,
                    expected.iterations[i].step_is_successful)
              << i;
          EXPECT_NEAR(summary.iterations[i].cost,
                      expected.iterations[i].cost,
                      1e-5 * expected.iterations[i].cost)
              << i;
        }
        EXPECT_EQ(*std::min_element(dealt.scales.begin(), dealt.scales.end()) >=
                      kLeastScale,
                  has_bounds);
      }
    }
  }
}

// Ranks have private blocks among those that all of them have. PCG ends at
// 1e-12 of the right-hand side, and the condition of S is above 1e6.
TEST(PositionsOfRanks, HaveTheCostOfStock) {
  constexpr int kNumRanks = 2;
  ceres::HuberLoss loss(0.1);
  ceres::Solver::Options options;
  options.linear_solver_type = ceres::ITERATIVE_SCHUR;
  options.preconditioner_type = ceres::SCHUR_JACOBI;
  options.max_linear_solver_iterations = 5000;
  options.eta = 1e-12;
  options.max_num_iterations = 4;
  options.logging_type = ceres::SILENT;
  Options ext_options;
  ext_options.device = DEVICE_HOST;
  const auto communicators = kernels::MakeThreadCommunicators(
      kNumRanks, std::chrono::milliseconds(60000));
  std::vector<Positions> of(kNumRanks, Positions(13, 40));
  std::vector<Summary> summaries(kNumRanks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kNumRanks; ++rank) {
    threads.emplace_back([&, rank] {
      Positions* const part = &of[rank];
      // Points by turns, and their rows.
      std::vector<double> points;
      std::vector<int32_t> number(part->points.size() / 3, -1);
      std::vector<double> directions;
      std::vector<int32_t> camera;
      std::vector<int32_t> point;
      std::vector<int32_t> scale;
      for (size_t i = 0; i < part->errors.size(); ++i) {
        const int32_t p = part->point[i];
        if (p % kNumRanks != rank) {
          continue;
        }
        if (number[p] < 0) {
          number[p] = static_cast<int32_t>(points.size() / 3);
          points.insert(points.end(),
                        part->points.begin() + 3 * p,
                        part->points.begin() + 3 * p + 3);
        }
        const double* const d = part->errors[i].direction;
        directions.insert(directions.end(), d, d + 3);
        camera.push_back(part->camera[i]);
        point.push_back(number[p]);
        scale.push_back(static_cast<int32_t>(i));
      }
      ArrayProblem problem;
      const int centers =
          problem.AddParameters({part->centers.data(),
                                 static_cast<int64_t>(part->centers.size() / 3),
                                 3});
      ArrayProblem::Parameters own{
          points.data(), static_cast<int64_t>(points.size() / 3), 3};
      own.is_own = true;
      const int point_array = problem.AddParameters(own);
      const int scales = problem.AddParameters(
          {part->scales.data(), static_cast<int64_t>(part->scales.size()), 1});
      problem.AddResiduals<DirectionCost>(static_cast<int64_t>(camera.size()),
                                          directions.data(),
                                          {{centers, camera.data()},
                                           {point_array, point.data()},
                                           {scales, scale.data()}},
                                          &loss);
      Options of_rank = ext_options;
      of_rank.communicator = communicators[rank].get();
      Solve(options, of_rank, &problem, &summaries[rank]);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  Positions of_stock(13, 40);
  const auto stock = MakeProblem({}, &of_stock, &options);
  options.max_num_iterations = 4;
  ceres::Solver::Summary expected;
  ceres::Solve(options, stock.get(), &expected);
  for (const Summary& summary : summaries) {
    ASSERT_EQ(summary.path, PATH_FULL) << summary.path_reason;
    EXPECT_NEAR(
        summary.final_cost, expected.final_cost, 1e-4 * expected.final_cost);
  }
}

}  // namespace
}  // namespace ceres_ext
